"""Tagging: what part does each token of Python source play?

The tokens and their kinds are those of `tokenize`. Names are told apart by what they do, which takes
context: the same word is called here, defined there, and an attribute elsewhere.
"""

import io
import keyword
import tokenize
from collections.abc import Iterator, Sequence

from statewise.data.embedded.parts import Parts, by_file, parts
from statewise.data.embedded.standard_library import SourceFile, library_files
from statewise.data.lines import Examples
from statewise.data.tagged import Tagged

MODULES = (
    "argparse",
    "bisect",
    "calendar",
    "cmd",
    "configparser",
    "copy",
    "csv",
    "difflib",
    "dis",
    "fnmatch",
    "fractions",
    "ftplib",
    "gettext",
    "gzip",
    "heapq",
    "json",
    "mailbox",
    "pprint",
    "queue",
    "random",
    "sched",
    "shelve",
    "shlex",
    "shutil",
    "socketserver",
    "statistics",
    "string",
    "tarfile",
    "textwrap",
    "threading",
    "trace",
    "urllib",
    "wave",
    "weakref",
)
_LAYOUT = {
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.COMMENT,
    tokenize.ENDMARKER,
    tokenize.ENCODING,
}
_LONGEST_TOKEN, _LONGEST_LINE = 40, 60


def source_tags(*, share: float = 0.15) -> Parts[Tagged]:
    """Logical lines of source with a tag on each token; whole files are held out.

    Lines with a very long token (mostly docstrings) are counted and left out.
    """
    files = {file.name: _sentences(file) for file in library_files(MODULES)}
    return parts("tokens of the standard library", *by_file(files, share=share))


def _sentences(file: SourceFile) -> Examples[Tagged]:
    found: Examples[Tagged] = Examples()
    for line in _logical_lines(file.text):
        words = tuple(token.string for token in line)
        if any(len(word) > _LONGEST_TOKEN or not word.strip() or "\n" in word for word in words):
            found.counts["lines with a long token"] += 1
        elif len(words) > _LONGEST_LINE:
            found.counts["long lines"] += 1
        else:
            found.append(Tagged(words, tuple(tags_of(line)), file.where(line[0].start[0])))
    return found


def _logical_lines(text: str) -> Iterator[list[tokenize.TokenInfo]]:
    line: list[tokenize.TokenInfo] = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _LAYOUT:
            line.append(token)
        elif token.type == tokenize.NEWLINE and line:
            yield line
            line = []


def tags_of(line: Sequence[tokenize.TokenInfo]) -> Iterator[str]:
    """`tokenize`'s own names of the kinds; a NAME is a keyword, a definition, an attribute, a call or a name."""
    before = ""
    for token, after in zip(line, [*(token.string for token in line[1:]), ""]):
        if token.type != tokenize.NAME:
            yield tokenize.tok_name[token.type]
        elif keyword.iskeyword(token.string):
            yield "KEYWORD"
        elif before in ("def", "class"):
            yield "DEFINITION"
        elif before == ".":
            yield "METHOD" if after == "(" else "ATTRIBUTE"
        elif after == "(":
            yield "CALL"
        elif after == "=" and before in ("(", ","):
            yield "ARGUMENT"
        else:
            yield "NAME"
        before = token.string
