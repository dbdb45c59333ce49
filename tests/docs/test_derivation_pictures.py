"""The pictures beside the derivations are those that the code on their pages makes."""

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

PAGES = sorted((Path(__file__).parents[2] / "docs" / "derivations").glob("*.md"))
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PICTURE = re.compile(r"!\[[^\]]+\]\((\w[\w-]*\.svg)\)")
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
NEAR = 1.5  # pixels: other versions of PyTorch round differently


def shape(svg: str) -> tuple[str, list[float]]:
    """What is drawn without its numbers, and the numbers."""
    drawn = re.sub(r"<style>.*?</style>", "", svg, flags=re.DOTALL)
    return NUMBER.sub("#", drawn), [float(one) for one in NUMBER.findall(drawn)]


def test_there_are_pages() -> None:
    assert {page.stem for page in PAGES} == {
        "unrolling",
        "bptt",
        "vanishing-gradients",
        "teacher-forcing",
        "alignment",
        "attention-cost",
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_pictures_are_the_pages_own(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = page.read_text(encoding="utf-8")
    namespace: dict[str, Any] = {"__name__": "page"}
    for code in PYTHON.findall(text):
        exec(compile(code, str(page), "exec"), namespace)
    names = PICTURE.findall(text)
    assert names
    for name in names:
        made, kept = (tmp_path / name).read_text(), page.with_name(name).read_text(encoding="utf-8")
        assert ElementTree.fromstring(kept).tag.endswith("svg")
        words, numbers = shape(made)
        kept_words, kept_numbers = shape(kept)
        again = f"{name} is another picture now; if that was meant, put the new one in its place"
        assert words == kept_words, again
        assert all(abs(a - b) <= NEAR + 0.01 * abs(b) for a, b in zip(numbers, kept_numbers, strict=True)), again
