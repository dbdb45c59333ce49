"""`make book`: run the chapters, and build both sites. `python book/build.py en` builds one.

The sites are `book/_build/en/index.html` and `book/_build/zh/index.html`; they open from disk and need no network.
"""

import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from chapter import BOOK, LANGUAGES, chapters
from run import run_all
from stage import stage


def build(language: str, source: Path) -> Path:
    from sphinx.cmd.build import build_main

    target = BOOK / "_build" / language
    os.environ["BOOK_LANGUAGE"] = language
    options = ["-q", "-W", "--keep-going", "-c", str(BOOK), "-d", str(BOOK / "_build" / f".{language}")]
    if code := build_main([*options, str(source), str(target)]):
        raise SystemExit(code)
    return target / "index.html"


if __name__ == "__main__":
    began = time.perf_counter()
    run_all(chapters())
    print(f"chapters ready in {time.perf_counter() - began:.0f} s")
    languages, began = sys.argv[1:] or LANGUAGES, time.perf_counter()
    sources = [stage(language) for language in languages]
    with ProcessPoolExecutor(len(languages)) as pool:  # one core a language: Sphinx writes page after page
        for page in pool.map(build, languages, sources):
            print(page)
    print(f"written in {time.perf_counter() - began:.0f} s")
