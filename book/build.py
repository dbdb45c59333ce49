"""`make book`: run the chapters, and build both sites. `python book/build.py en` builds one.

The sites are `book/_build/en/index.html` and `book/_build/zh/index.html`; they open from disk and need no network.
"""

import os
import sys
import time
from pathlib import Path

from chapter import BOOK, LANGUAGES, chapters
from run import run_all
from stage import stage


def build(language: str) -> Path:
    from sphinx.cmd.build import build_main

    source, target = stage(language), BOOK / "_build" / language
    os.environ["BOOK_LANGUAGE"] = language
    if code := build_main(
        [
            "-q",
            "-W",
            "--keep-going",
            "-c",
            str(BOOK),
            "-d",
            str(BOOK / "_build" / f".{language}"),
            str(source),
            str(target),
        ]
    ):
        raise SystemExit(code)
    return target / "index.html"


if __name__ == "__main__":
    began = time.perf_counter()
    run_all(chapters())
    print(f"chapters ready in {time.perf_counter() - began:.0f} s")
    for language in sys.argv[1:] or LANGUAGES:
        began = time.perf_counter()
        print(f"{build(language)}, in {time.perf_counter() - began:.0f} s")
