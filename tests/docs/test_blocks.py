"""What the documentation shows is run: every shell and Python block, page by page; and its links lead somewhere.

The blocks of a page run in order, in one temporary folder; its Python blocks share one namespace.
A block marked `text` (or anything else) is not run. A Python block that begins with `# NAME.py` is that file.
The commands of the README start as they do for everybody;
those of the other pages are forks of one process that has imported everything (`warm.py`).
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
WARM = Path(__file__).with_name("warm.py")
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(?<!\!)\[[^\]]*\]\(([^)\s]+)\)")
FILE = re.compile(r"# (\w+\.py)\n")
HEADING = re.compile(r"^#+ +(.+?)\s*$", re.MULTILINE)


class Block(NamedTuple):
    language: str
    code: str
    line: int


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [Block(match[1], match[2], text.count("\n", 0, match.start()) + 2) for match in BLOCK.finditer(text)]


def runnable(page: Path) -> list[Block]:
    return [block for block in blocks(page) if block.language in ("sh", "bash", "python")]


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def make_targets() -> set[str]:
    return set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def without_make(code: str) -> str:
    """The block without its `make` lines, whose targets must exist."""
    kept = []
    for line in code.splitlines():
        words = line.split("#")[0].split()
        if words[:1] == ["make"]:
            missing = {word for word in words[1:] if "=" not in word} - make_targets()
            assert not missing, f"the Makefile has no target {missing}"
        else:
            kept.append(line)
    return "\n".join(kept)


def shell(folder: Path, statewise: str) -> dict[str, str]:
    """An environment in which `statewise` and `python` are those that run this test."""
    for command, words in {"statewise": statewise, "python": ""}.items():
        script = folder / command
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
        script.chmod(0o755)
    path = os.pathsep.join([str(folder), os.environ.get("PATH", "")])
    modules = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    return {**os.environ, "PATH": path, "PYTHONPATH": modules, "COLUMNS": "100", "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def cold(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return shell(tmp_path_factory.mktemp("bin"), "-m statewise")


@pytest.fixture(scope="module")
def warm(cold: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with tempfile.TemporaryDirectory() as short:  # the name of a socket must be
        place = Path(short) / "warm"
        command = [sys.executable, str(WARM), "serve", str(place)]
        with subprocess.Popen(command, env=cold, stdin=subprocess.PIPE) as server:
            try:
                while not place.exists():
                    assert server.poll() is None, "the server ended"
                    time.sleep(0.05)
                # -S and -E: the caller needs nothing that is installed.
                yield shell(tmp_path_factory.mktemp("bin"), f'-S -E "{WARM}" call "{place}"')
            finally:
                assert server.stdin is not None
                server.stdin.close()


@pytest.mark.parametrize("page", [page for page in PAGES if runnable(page) and "zh" not in page.parts], ids=name_of)
def test_the_blocks_of_a_page_run(
    page: Path, cold: dict[str, str], request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    commands = any(block.language != "python" for block in runnable(page))
    environment = request.getfixturevalue("warm") if commands and page.name != "README.md" else cold
    namespace: dict[str, Any] = {"__name__": "page"}
    for block in runnable(page):
        where = f"{name_of(page)}:{block.line}"
        if block.language == "python" and (named := FILE.match(block.code)):
            Path(named[1]).write_text(block.code, encoding="utf-8")
            continue
        if block.language == "python":
            # Padded, so that a traceback names the line of the page.
            exec(compile("\n" * (block.line - 1) + block.code, str(page), "exec"), namespace)
            continue
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", without_make(block.code)],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"{where}\n{done.stdout}"


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


def anchors(page: Path) -> set[str]:
    headings = HEADING.findall(BLOCK.sub("", page.read_text(encoding="utf-8")))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_chinese_readme_shows_the_same_commands() -> None:
    english, chinese = (runnable(ROOT / name) for name in ("README.md", "docs/zh/README.md"))
    assert [(block.language, block.code) for block in chinese] == [(block.language, block.code) for block in english]


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs/index.md").read_text(encoding="utf-8")
    for page in (ROOT / "docs").rglob("*.md"):
        name = page.relative_to(ROOT / "docs").as_posix()
        assert name == "index.md" or f"({name})" in index, f"docs/index.md does not name {name}"
