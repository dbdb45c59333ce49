"""Check a reader's answers: `python check.py [--json] 4.2 answers.py`; without a number, all that the file answers.

A chapter's checks are `check_4_2(answers)` in `chapter_04.py`. They call what the reader wrote on inputs of their own;
an assertion says what was wrong. Exit code 0: all passed, 1: one did not, 2: nothing was checked.
"""

import importlib.util
import inspect
import json
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).parent


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def checks() -> Iterator[tuple[str, Callable[[ModuleType], None]]]:
    """The number and the check of every exercise, in order."""
    for path in sorted(HERE.glob("chapter_*.py")):
        for name, check in vars(load(path)).items():
            if found := re.fullmatch(r"check_(\d+)_(\d+)", name):
                yield f"{found[1]}.{found[2]}", check


def needed(check: Callable[[ModuleType], None]) -> list[str]:
    """The names that a check asks of the answers."""
    return sorted(set(re.findall(r"\banswers\.(\w+)", inspect.getsource(check))))


def said(error: BaseException, file: Path) -> str:
    """What went wrong, with the line of the reader's file, if that is where."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == file]
    where = f" ({file.name}, line {lines[-1]})" if lines else ""
    kind = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
    return f"{kind}{error or 'an assertion failed'}{where}"


def main(number: str | None, file: Path, *, as_json: bool) -> int:
    known = dict(checks())
    if number is not None and number not in known:
        return refuse(f"there is no exercise {number}", f"there are {', '.join(known)}")
    if not file.is_file():
        return refuse(f"{file} does not exist", "write your answers there, or name another file")
    try:
        answers = load(file.resolve())
    except Exception as error:
        return refuse(f"{file} does not run: {said(error, file.resolve())}", "correct the file")
    if number is not None:
        chosen = [number]
    else:
        chosen = [name for name, check in known.items() if all(hasattr(answers, one) for one in needed(check))]
    if not chosen:
        return refuse(f"{file} answers no exercise", "start with one: statewise book check 1.1")
    wrong = {name: fault(known[name], answers, file.resolve()) for name in chosen}
    if as_json:
        print(json.dumps([{"exercise": name, "passed": not text, "fault": text} for name, text in wrong.items()]))
    else:
        print("\n".join(f"{name} failed: {text}" if text else f"{name} passed" for name, text in wrong.items()))
    return int(any(wrong.values()))


def refuse(wrong: str, fix: str) -> int:
    print(f"error: {wrong}\n{fix}", file=sys.stderr)
    return 2


def fault(check: Callable[[ModuleType], None], answers: ModuleType, file: Path) -> str:
    """What is wrong with an answer; empty if nothing is."""
    if missing := [name for name in needed(check) if not hasattr(answers, name)]:
        return f"{file.name} does not define {', '.join(missing)}"
    try:
        check(answers)
    except Exception as error:
        return said(error, file)
    return ""


if __name__ == "__main__":
    *options, name = sys.argv[1:]
    numbers = [option for option in options if option != "--json"]
    sys.exit(main(numbers[0] if numbers else None, Path(name), as_json="--json" in options))
