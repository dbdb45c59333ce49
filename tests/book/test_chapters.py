"""Every block of the book runs; what it draws is shown, in both languages; the notebooks hold the same code."""

import ast
import importlib
import re
from pathlib import Path

import pytest
import run
from chapter import LANGUAGES, Page, chapters, pages, read
from notebook import notebook
from run import Result, main, results
from stage import inline, picture_words, pictures, staged, texts, translated


def of(name: str, language: str = "en") -> Page:
    return next(page for page in pages(language) if page.name == name)


@pytest.fixture(scope="module", params=[page.name for page in chapters()])
def ran(request: pytest.FixtureRequest) -> tuple[str, list[Result]]:
    """A chapter, and what its blocks did: run now, unless neither they nor what they import have changed."""
    return request.param, results(of(request.param))


@pytest.mark.slow
def test_a_chapter_runs_and_shows_what_it_draws(ran: tuple[str, list[Result]]) -> None:
    name, done = ran
    drawn = pictures(done)
    assert len(drawn) >= 2
    for language in LANGUAGES:
        text = of(name, language).text
        sliders = [argument for kind, argument, _ in of(name, language).directives if kind == "slider"]
        shown = {picture for picture in drawn if f"]({picture})" in text}
        shown |= {picture for picture in drawn if any(picture.startswith(f"{slider}-") for slider in sliders)}
        assert shown == set(drawn), "a picture that no page shows"
        placed = staged(of(name, language), done)
        assert all(result.printed.rstrip() in placed for result in done)


@pytest.mark.slow
def test_the_words_of_pictures_are_translated(ran: tuple[str, list[Result]]) -> None:
    _, done = ran
    missing = {text for drawn in pictures(done).values() for text in texts(drawn)} - picture_words().keys()
    assert not missing, "book/zh/pictures.toml lacks these"
    for drawn in pictures(done).values():
        assert "<style" not in inline(translated(drawn))


@pytest.mark.slow
def test_a_notebook_holds_the_blocks_in_order(ran: tuple[str, list[Result]]) -> None:
    name, done = ran
    for language in LANGUAGES:
        page = of(name, language)
        made = notebook(page, done)
        code = [cell["source"] for cell in made["cells"] if cell["cell_type"] == "code"]
        assert code == [block.code.rstrip("\n") for block in page.blocks]
        prose = "\n".join(cell["source"] for cell in made["cells"] if cell["cell_type"] == "markdown")
        assert page.title in prose
        assert ":::" not in prose
        links = re.findall(r"(?<!!)(\[[^\]]*\])\((?:#|[\w-]+\.md|\.\./)", page.prose)
        assert links
        assert [link for link in links if link in prose] == [], "brackets of a link to no file"
        shown = set(re.findall(r"\]\(([\w.+=:-]+\.svg)\)", prose))
        assert shown == set(pictures(done)), "pictures that the cells draw"
        assert ")=" not in [line[-2:] for line in prose.splitlines()]
        assert len({cell["id"] for cell in made["cells"]}) == len(made["cells"])


def test_what_chapters_import_exists() -> None:
    """By day, as the chapters themselves run nightly."""
    wanted = {
        (page.name, node.module, name.name)
        for page in pages("en")
        for block in page.blocks
        for node in ast.walk(ast.parse(block.code))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("statewise")
        for name in node.names
    }
    assert len(wanted) > 100
    assert not {found for found in wanted if not hasattr(importlib.import_module(found[1]), found[2])}


def test_a_block_that_fails_is_named_by_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "wrong.md"
    page.write_text("# 1. Wrong\n\n```python\nx = 1\nassert x == 2\n```\n", encoding="utf-8")
    assert main(str(page), str(tmp_path / "out.json")) == 1
    assert 'wrong.md", line 5' in capsys.readouterr().err
    assert not (tmp_path / "out.json").exists()


def test_results_are_kept_until_the_code_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "CACHE", tmp_path / "kept")
    path, counter = tmp_path / "page.md", tmp_path / "count"
    code = f"p = open({str(counter)!r}, 'a+')\np.write('x')\np.seek(0)\nruns = len(p.read())\np.close()\n"
    path.write_text(f"```python\n{code}print(runs)\n```\n", encoding="utf-8")
    assert [result.printed for result in run.results(read(path))] == ["1\n"]
    assert [result.printed for result in run.results(read(path))] == ["1\n"]
    path.write_text(f"```python\n{code}print('again', runs)\n```\n", encoding="utf-8")
    assert [result.printed for result in run.results(read(path))] == ["again 2\n"]


def test_chinese_lines_are_joined_but_titles_stay_alone(tmp_path: Path) -> None:
    text = (
        "第一行\n第二行。\n[第三行](x.md)\n**第四行**\n第五行 `x`\n第六行\n\n:::{erratum} 标题\n正文一\n正文二\n:::\n"
    )
    placed = staged(Page(tmp_path / "zh" / "01-x.md", text), [])
    joined = "第一行第二行。[第三行](x.md)**第四行**第五行 `x`\n第六行"
    assert placed == f"{joined}\n\n:::{{erratum}} 标题\n正文一正文二\n:::\n"
