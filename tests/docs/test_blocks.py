"""What the documentation shows is run, in the environment that README's first command makes; its links lead somewhere.

The blocks of a page run in order, in one temporary folder (`page.py`). Commands are forks of one process (`warm.py`);
a slow test starts those of the README as they do for everybody.
"""

import re
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest
from page import BLOCK, ROOT, anchors, runnable
from user_environment import WARM, User

PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"(?<!\!)\[[^\]]*\]\(([^)\s]+)\)")
PICTURE = re.compile(r"!\[[^\]]+\]\((\w[\w-]*\.svg)\)")
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
STATED = re.compile(r"\d[\d.,]*\d")
NEAR = 1.5  # pixels: other versions of PyTorch round differently


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", [page for page in PAGES if runnable(page) and "zh" not in page.parts], ids=name_of)
def test_the_blocks_of_a_page_run(page: Path, warm_user: User, tmp_path: Path) -> None:
    done = warm_user.run(*(warm_user.python, "-S", "-E", WARM, "page", str(warm_user.socket), page), folder=tmp_path)
    assert done.returncode == 0, done.stdout
    if page.parent.name == "derivations":
        has_own_pictures(page, tmp_path)


def has_own_pictures(page: Path, made: Path) -> None:
    """The pictures beside a page are those that its code makes."""
    names = PICTURE.findall(page.read_text(encoding="utf-8"))
    assert names
    for name in names:
        kept = page.with_name(name).read_text(encoding="utf-8")
        assert ElementTree.fromstring(kept).tag.endswith("svg")
        words, numbers = shape((made / name).read_text())
        kept_words, kept_numbers = shape(kept)
        again = f"{name} is another picture now; if that was meant, put the new one in its place"
        assert words == kept_words, again
        assert all(abs(a - b) <= NEAR + 0.01 * abs(b) for a, b in zip(numbers, kept_numbers, strict=True)), again


def shape(svg: str) -> tuple[str, list[float]]:
    """What is drawn without its numbers, and the numbers."""
    drawn = re.sub(r"<style>.*?</style>", "", svg, flags=re.DOTALL)
    return NUMBER.sub("#", drawn), [float(number) for number in NUMBER.findall(drawn)]


@pytest.mark.slow
def test_the_commands_of_the_readme_run_in_processes_of_their_own(user: User, tmp_path: Path) -> None:
    done = user.run(user.python, Path(__file__).with_name("page.py"), ROOT / "README.md", folder=tmp_path)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(page.read_text(encoding="utf-8")):
        if re.match(r"\w+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{name_of(page)} links to {link}"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{name_of(page)} links to {link}"


TRANSLATED = {
    ROOT / "docs/zh/README.md": ROOT / "README.md",
    ROOT / "docs/zh/index.md": ROOT / "docs/index.md",
} | {ROOT / "docs/zh/models" / page.name: page for page in sorted((ROOT / "docs" / "models").glob("*.md"))}


@pytest.mark.parametrize("page", TRANSLATED, ids=name_of)
def test_a_chinese_page_has_the_code_of_the_english_one(page: Path) -> None:
    english, chinese = (runnable(path) for path in (TRANSLATED[page], page))
    assert [(block.language, block.code) for block in chinese] == [(block.language, block.code) for block in english]
    assert levels(page) == levels(TRANSLATED[page]), "other sections"


@pytest.mark.parametrize("page", TRANSLATED, ids=name_of)
def test_a_chinese_page_states_the_numbers_of_the_english_one(page: Path) -> None:
    """Those of two digits or more: a smaller one may be a word."""
    english, chinese = (
        Counter(STATED.findall(BLOCK.sub("", path.read_text("utf-8")))) for path in (TRANSLATED[page], page)
    )
    assert chinese == english


def levels(page: Path) -> list[int]:
    return [len(sharps) for sharps in re.findall(r"^(#+) ", BLOCK.sub("", page.read_text("utf-8")), re.MULTILINE)]


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


def test_every_page_is_in_the_index() -> None:
    for folder, index in ((ROOT / "docs", "index.md"), (ROOT / "docs/zh", "README.md")):
        listed = (folder / index).read_text(encoding="utf-8")
        for page in folder.rglob("*.md"):
            name = page.relative_to(folder).as_posix()
            if name not in (index, "zh/index.md") and not name.startswith(
                "zh/models/"
            ):  # the Chinese README names these
                assert f"({name})" in listed, f"{index} does not name {name}"
