"""The page is one file: what it joins, what it lets run, and what no data can break out of."""

import base64
import gzip
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from statewise.lab import page
from statewise.lab.page import ENGINES, script, stylesheet

STATIC = Path(__file__).parents[2] / "statewise/lab/static"
EVIL = "</script><script>document.title='run'</script><img src=x onerror=\"document.title='run'\">"
BUNDLE: dict[str, Any] = {"version": 1, "models": [], "extra": {"labels": [EVIL, "\u2028", "中文"]}}


class Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self.texts.append("")
        self.inside = True

    def handle_endtag(self, tag: str) -> None:
        self.inside = False

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.texts[-1] += data


@pytest.fixture(scope="module")
def elements() -> Elements:
    parsed = Elements()
    parsed.feed(page(BUNDLE, f"{EVIL} & so on"))
    return parsed


def test_data_comes_back_as_it_was(elements: Elements) -> None:
    (packed,) = (
        text for (tag, given), text in zip(elements.found, elements.texts, strict=True) if given.get("id") == "data"
    )
    assert json.loads(gzip.decompress(base64.b64decode(packed))) == BUNDLE


def test_only_the_page_s_own_script_and_style_may_run(elements: Elements) -> None:
    (policy,) = (given["content"] for _, given in elements.found if given.get("http-equiv"))
    scripts = [
        text
        for (tag, given), text in zip(elements.found, elements.texts, strict=True)
        if tag == "script" and "type" not in given
    ]
    (style,) = (text for (tag, _), text in zip(elements.found, elements.texts, strict=True) if tag == "style")

    def hashed(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    assert scripts == [script()]
    assert f"script-src {hashed(scripts[0])} 'wasm-unsafe-eval';" in f"{policy};"
    assert f"style-src {hashed(style)};" in f"{policy};"
    assert policy is not None
    assert re.findall(r"'[\w-]*unsafe[\w-]*'", policy) == ["'wasm-unsafe-eval'"]
    assert policy.startswith("default-src 'none'")


def test_markup_in_a_title_stays_text(elements: Elements) -> None:
    assert [tag for tag, _ in elements.found].count("script") == 2
    assert "img" not in [tag for tag, _ in elements.found]
    assert [given["data-title"] for _, given in elements.found if "data-title" in given] == [f"{EVIL} & so on"]


def test_the_same_data_gives_the_same_page() -> None:
    assert page(BUNDLE, "a") == page(BUNDLE, "a")


def test_what_is_not_a_number_is_refused() -> None:
    with pytest.raises(ValueError, match="JSON"):
        page({"extra": {"x": float("nan")}}, "a")


@pytest.mark.parametrize("engine", ENGINES)
def test_every_module_is_in_the_page(engine: str) -> None:
    """In a scope of its own, and after those that it imports; of the engines, only its own."""
    joined = script(engine)
    places = {}
    others = {f"{name}.js" for name in ENGINES} - {f"{engine}.js", "machine.js"}
    for path in sorted(set(STATIC.rglob("*.js")) - {STATIC / name for name in others}):
        name = "$" + re.sub(r"\W", "_", path.relative_to(STATIC).as_posix().removesuffix(".js"))
        assert joined.count(f"const {name} = ") == 1, f"nothing imports {path.name}"
        places[path] = joined.index(f"const {name} = ")
    for path, place in places.items():
        for imported in re.findall(r'from "([^"]+)"', path.read_text(encoding="utf-8")):
            assert places[(path.parent / imported).resolve()] < place


def test_modules_stay_readable() -> None:
    lines = {path.name: len(path.read_text(encoding="utf-8").splitlines()) for path in STATIC.rglob("*.*")}
    assert not {name: count for name, count in lines.items() if count > 400}


def test_nothing_is_fetched_and_no_markup_is_parsed() -> None:
    banned = (r"https?://(?!www\.w3\.org/)", r"\bfetch\(", "innerHTML", "outerHTML", "insertAdjacentHTML", r"\beval\(")
    found = re.findall("|".join((*banned, r"document\.write", "new Function")), script() + stylesheet())
    assert not found


def test_both_languages_are_complete() -> None:
    """Every text has English and Chinese; only a name or a formula is the same in both."""
    pattern = r'\{\s*en: (["`])(.*?)\1,\s*zh: (["`])(.*?)\3,?\s*\}'
    for path in STATIC.rglob("*.js"):
        source = path.read_text(encoding="utf-8")
        pairs = re.findall(pattern, source, re.DOTALL)
        # One written `en:` of an object is one pair; types in comments are not.
        code = re.sub(r"/\*.*?\*/", "", source, flags=re.DOTALL)
        assert len(pairs) == len(re.findall(r"\ben: [\"`]", code)), path.name
        for _, english, _, chinese in pairs:
            assert chinese == english or re.search(r"[\u4e00-\u9fff]", chinese), f"{path.name}: {english}"
