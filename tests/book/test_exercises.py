"""The checks of the exercises accept the solutions, and nothing that is missing or wrong."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from chapter import BOOK, COLUMNS, LANGUAGES, ROOT, chapters
from stage import solutions

FOLDER = BOOK / "exercises"
NUMBERS = [int(page.name[:2]) for page in chapters()]


def check(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "statewise", "book", "check", *words]
    environment = {"PYTHONPATH": str(ROOT), "PATH": ""}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "number", [NUMBERS[0], *(pytest.param(number, marks=pytest.mark.slow) for number in NUMBERS[1:])]
)
def test_the_solutions_pass_and_empty_answers_do_not(number: int, tmp_path: Path) -> None:
    source = (FOLDER / f"solutions_{number:02}.py").read_text(encoding="utf-8")
    (tmp_path / "answers.py").write_text(source, encoding="utf-8")
    done = check("--json", folder=tmp_path)
    judged = json.loads(done.stdout)
    assert [one["exercise"] for one in judged] == [f"{number}.{at}" for at in range(1, 6)]
    assert done.returncode == 0, judged
    (tmp_path / "empty.py").write_text(emptied(source), encoding="utf-8")
    done = check("--json", "--answers", "empty.py", folder=tmp_path)
    assert [one["passed"] for one in json.loads(done.stdout)] == [False] * 5
    assert done.returncode == 1


def emptied(source: str) -> str:
    """The same functions, which return nothing."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.body = [ast.Return(ast.Constant(None))]
    return ast.unparse(ast.fix_missing_locations(tree))


@pytest.mark.parametrize("number", NUMBERS)
def test_the_page_names_what_a_check_asks_for(number: int) -> None:
    source = (FOLDER / f"chapter_{number:02}.py").read_text(encoding="utf-8")
    page = next(page for page in chapters() if page.name.startswith(f"{number:02}"))
    for function in ast.parse(source).body:
        if isinstance(function, ast.FunctionDef) and function.name.startswith("check_"):
            exercise = function.name.removeprefix("check_").replace("_", ".")
            text = re.search(
                rf"^:::\{{exercise\}} {re.escape(exercise)}\n(.*?)^:::$", page.text, re.DOTALL | re.MULTILINE
            )
            assert text
            for name in re.findall(r"\banswers\.(\w+)", ast.unparse(function)):
                assert f"`{name}" in text[1], f"exercise {exercise} does not name {name}"


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_page_of_solutions_has_every_chapter(language: str) -> None:
    text = solutions(language)
    for page in chapters(language):
        code = text.split(f"## {page.title}\n", 1)[1].split("```", 2)[1]
        asked = re.findall(r"^:::\{exercise\} [\d.]+\n`(\w+)", page.text, re.MULTILINE)
        assert len(asked) == 5
        assert all(f"def {name}(" in code for name in asked)
        assert all(len(line) <= COLUMNS for line in code.splitlines())


def test_mistakes_are_explained(tmp_path: Path) -> None:
    done = check("1.9", folder=tmp_path)
    assert (done.returncode, "there is no exercise 1.9" in done.stderr) == (2, True)
    done = check("1.1", folder=tmp_path)
    assert (done.returncode, "answers.py does not exist" in done.stderr) == (2, True)
    answers = tmp_path / "answers.py"
    answers.write_text("x = 1\n")
    done = check("1.1", folder=tmp_path)
    assert (done.returncode, done.stdout) == (1, "1.1 failed: answers.py does not define conditionals\n")
    done = check(folder=tmp_path)
    assert (done.returncode, "answers no exercise" in done.stderr) == (2, True)
    answers.write_text("def conditionals(joint):\n    return 1 / 0\n")
    done = check("1.1", folder=tmp_path)
    assert done.stdout == "1.1 failed: ZeroDivisionError: division by zero (answers.py, line 2)\n"
    answers.write_text("def conditionals(:\n")
    done = check("1.1", folder=tmp_path)
    assert (done.returncode, "answers.py does not run" in done.stderr) == (2, True)
