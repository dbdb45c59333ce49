"""A page of the book as parts: code blocks, headings, labels, formulas, directives. Both languages share all but prose.

Only the standard library is needed: tests, the runner, the notebooks and the site read pages through this file.
"""

import re
from pathlib import Path
from typing import NamedTuple

BOOK = Path(__file__).parent
ROOT = BOOK.parent
LANGUAGES = ("en", "zh")
COLUMNS = 88  # of code that a page shows without scrolling
FENCE = re.compile(r"^```(python)?( fold)?\n(.*?)^```$", re.DOTALL | re.MULTILINE)
HEADING = re.compile(r"^(#+) (.+)$", re.MULTILINE)
LABEL = re.compile(r"^\(([\w-]+)\)=$", re.MULTILINE)
FORMULA = re.compile(r"^\$\$\n(.*?)^\$\$(?: \(([\w-]+)\))?$", re.DOTALL | re.MULTILINE)
DIRECTIVE = re.compile(r"^:{3,}\{([\w-]+)\} ?(.*)\n((?::[\w-]+: ?.*\n)*)", re.MULTILINE)
CHECKS = re.compile(r"^# checks ([\w-]+(?:, [\w-]+)*)$", re.MULTILINE)
PROSE_OPTIONS = {"alt", "label", "names"}  # options of directives that are written in the page's language
PROSE_ARGUMENTS = {"claim", "erratum", "note"}  # directives whose argument is a title


class Block(NamedTuple):
    code: str
    folded: bool  # the code of a drawing, shown on demand
    line: int  # of the page, where the code begins
    span: tuple[int, int]  # of the whole fence

    @property
    def checks(self) -> tuple[str, ...]:
        """Labels of the formulas that this block's assertions check."""
        return tuple(name for found in CHECKS.findall(self.code) for name in found.split(", "))


class Page(NamedTuple):
    path: Path
    text: str

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def language(self) -> str:
        return self.path.parent.name

    @property
    def blocks(self) -> list[Block]:
        """The Python blocks, in order: they run in one namespace."""
        return [
            Block(found[3], bool(found[2]), self.text.count("\n", 0, found.start(3)) + 1, found.span())
            for found in FENCE.finditer(self.text)
            if found[1]
        ]

    @property
    def prose(self) -> str:
        """The page without its code."""
        return FENCE.sub("", self.text)

    @property
    def levels(self) -> list[int]:
        """The depth of every heading."""
        return [len(found[1]) for found in HEADING.finditer(self.prose)]

    @property
    def title(self) -> str:
        found = HEADING.search(self.prose)
        assert found, self.path
        return found[2]

    @property
    def labels(self) -> list[str]:
        """The names that other pages link to, of sections."""
        return LABEL.findall(self.prose)

    @property
    def formulas(self) -> list[tuple[str, str]]:
        """The displayed formulas: label, TeX."""
        return [(found[2] or "", found[1].strip()) for found in FORMULA.finditer(self.prose)]

    @property
    def directives(self) -> list[tuple[str, str, tuple[str, ...]]]:
        """Name, argument and options of every directive, without what is prose in them."""
        found = []
        for name, argument, options in DIRECTIVE.findall(self.prose):
            kept = [line for line in options.splitlines() if line.split(":")[1] not in PROSE_OPTIONS]
            found.append((name, "" if name in PROSE_ARGUMENTS else argument, tuple(kept)))
        return found


def read(path: Path) -> Page:
    return Page(path, path.read_text(encoding="utf-8"))


def pages(language: str) -> list[Page]:
    """All pages of a language, in the order of their names."""
    return [read(path) for path in sorted((BOOK / language).glob("*.md"))]


def chapters(language: str = "en") -> list[Page]:
    """The pages with a number: `01-order.md`."""
    return [page for page in pages(language) if page.name[0].isdigit()]
