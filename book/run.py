"""Run the blocks of a chapter once; what they print and draw is kept and placed in both languages.

A kept result is used again while the code of the chapter, the versions of Python and PyTorch, and every file of this
project that the chapter imported are the same.
"""

import contextlib
import hashlib
import io
import json
import os
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from chapter import BOOK, ROOT, Page, read

CACHE = BOOK / "_build" / "results"


class Result(NamedTuple):
    """What one block did."""

    printed: str
    pictures: dict[str, str]  # name of a file: SVG


def results(page: Page) -> list[Result]:
    """Of every block of a chapter; a chapter that has changed is run in a process of its own."""
    kept = CACHE / f"{page.name}.json"
    if kept.exists():
        record = json.loads(kept.read_text(encoding="utf-8"))
        if record["key"] == key_of(page) and record["files"] == _hashes(record["files"]):
            return [Result(**result) for result in record["results"]]
    command = [sys.executable, str(Path(__file__)), str(page.path), str(kept)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    if subprocess.run(command, env=environment, check=False).returncode:
        raise SystemExit(f"{page.path} did not run")
    return [Result(**result) for result in json.loads(kept.read_text(encoding="utf-8"))["results"]]


def run_all(pages: Sequence[Page]) -> None:
    """Run the chapters that have changed: as many at once as there are cores, with one thread each."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        list(pool.map(results, pages))


def key_of(page: Page) -> str:
    """The code of all blocks, and what runs it."""
    versions = [sys.version, *(f"{name} {metadata.version(name)}" for name in ("torch", "numpy"))]
    return hashlib.sha256("\0".join([*versions, *(block.code for block in page.blocks)]).encode()).hexdigest()


def _hashes(names: Any) -> dict[str, str]:
    paths = {name: ROOT / name for name in names}
    return {name: hashlib.sha256(p.read_bytes()).hexdigest() if p.exists() else "" for name, p in paths.items()}


def run(page: Page) -> list[Result]:
    """Run all blocks in this process, in a temporary folder; the first that fails ends it with its traceback."""
    namespace: dict[str, Any] = {"__name__": "chapter"}
    done, seen = [], set[Path]()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for block in page.blocks:
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed), warnings.catch_warnings():
                warnings.simplefilter("error")
                warnings.filterwarnings("ignore", message="RNN module weights are not part of single contiguous chunk")
                # Padded, so that a traceback names the line of the page.
                exec(compile("\n" * (block.line - 1) + block.code, str(page.path), "exec"), namespace)
            new = sorted(set(Path(folder).glob("*.svg")) - seen)
            seen.update(new)
            done.append(Result(printed.getvalue(), {path.name: path.read_text(encoding="utf-8") for path in new}))
    return done


def imported() -> list[str]:
    """Files of this project that this process has imported."""
    named = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    inside = {Path(name) for name in named if name and Path(name).is_relative_to(ROOT / "statewise")}
    return sorted(path.relative_to(ROOT).as_posix() for path in inside)


def main(source: str, target: str) -> int:
    page = read(Path(source))
    try:
        done = run(page)
    except Exception:
        traceback.print_exc()
        return 1
    record = {"key": key_of(page), "files": _hashes(imported()), "results": [result._asdict() for result in done]}
    Path(target).parent.mkdir(parents=True, exist_ok=True)
    written = Path(f"{target}.{os.getpid()}")  # renamed: two builds may run the same chapter
    written.write_text(json.dumps(record, ensure_ascii=False), encoding="utf-8")
    written.replace(target)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
