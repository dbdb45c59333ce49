"""A page of the documentation as what can be run: `python page.py PAGE` runs its blocks, in the current folder.

Shell blocks are processes of their own; Python blocks share one namespace, in this process. A Python block that begins
with `# NAME.py` is written as that file instead. Only the standard library is needed, because this runs in the
environment of a user.
"""

import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
HEADING = re.compile(r"^#+ +(.+?)\s*$", re.MULTILINE)
FILE = re.compile(r"# (\w+\.py)\n")


class Block(NamedTuple):
    language: str
    code: str
    line: int


def runnable(page: Path) -> list[Block]:
    """Its shell and Python blocks. A block marked `text`, or anything else, is not run."""
    text = page.read_text(encoding="utf-8")
    blocks = [Block(match[1], match[2], text.count("\n", 0, match.start()) + 2) for match in BLOCK.finditer(text)]
    return [block for block in blocks if block.language in ("sh", "bash", "python")]


def anchors(page: Path) -> set[str]:
    """Of its headings, as git hosts and MyST write them."""
    headings = HEADING.findall(BLOCK.sub("", page.read_text(encoding="utf-8")))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def without_make(code: str) -> str:
    """The block without its `make` lines, whose targets must exist."""
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    kept = []
    for line in code.splitlines():
        words = line.split("#")[0].split()
        if words[:1] == ["make"]:
            missing = {word for word in words[1:] if "=" not in word} - targets
            assert not missing, f"the Makefile has no target {missing}"
        else:
            kept.append(line)
    return "\n".join(kept)


def run_page(page: Path) -> int:
    """Run all blocks in order, as far as they go; 0 if every one ended well."""
    sys.path.insert(0, str(Path.cwd()))  # so that a block can import a file that was written
    namespace: dict[str, Any] = {"__name__": "page"}
    for block in runnable(page):
        print(f"{page}:{block.line}", flush=True)
        if block.language == "python" and (named := FILE.match(block.code)):
            Path(named[1]).write_text(block.code, encoding="utf-8")
        elif block.language == "python":
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                warnings.filterwarnings("ignore", message="RNN module weights are not part of single contiguous chunk")
                # Padded, so that a traceback names the line of the page.
                exec(compile("\n" * (block.line - 1) + block.code, str(page), "exec"), namespace)
        else:
            command = ["bash", "-euo", "pipefail", "-c", without_make(block.code)]
            if code := subprocess.run(command, stdin=subprocess.DEVNULL, timeout=120, check=False).returncode:
                print(f"ended with {code}")
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(run_page(Path(sys.argv[1])))
