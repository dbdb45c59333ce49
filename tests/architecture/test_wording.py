"""Help, messages, descriptions and pages use the field's words: none of the private ones that this package once had."""

import ast
import re

import pytest
from package_source import ROOT, modules

from statewise import cli

# The private word, and what the field says.
BANNED = {
    r"\bmend": "correct",
    r"\btold (apart )?from\b|\bnot told\b": "statistically tied, distinguishable",
    r"\btaken for\b": "confusion matrix, predicted as",
    r"\bsaid again\b|\bsay it again\b|\bsay again\b": "can be repeated, run it again",
    r"\bno kind of\b": "not a known format",
    r"\bmoments?\b": "time step",
    r"\b(go|goes|went) on with\b": "continue",
    r"\banew\b": "again",
    r"(?<!there )\bis none\b(?! of)": "is not",
    r"\bbends?\b": "activation",
    r"\bnobody\b|\bwhoever\b": "no entry, what",
    r"\bsomething to\b": "say what",
    r"\bfor machines\b": "as JSON",
    r"\bsettled\b|\bdeeds?\b": "finished, operation",
    r"\bin what was asked\b": "in the command",
    r"\bfinal figure\b|\bis not a figure\b": "metric, evaluation",
    r"\bbeside what is trivial\b|\bwhat is trivial\b": "trivial baseline",
    r"\bwhat training held out\b": "the held-out part",
    r"\bwhom\b|\bsomebody\b": "which, a user",
    r"\bforeseen\b": "predicted, expected",
    r"\bbeaten\b|\bas little\b": "Pareto-optimal",
    r"\bat rest\b": "initial state",
    r"\bsight\b": "mask",
    r"\bfor the while\b": "temporary",
    r"\bone after the other\b": "sequentially",
    r"\bother way round\b": "vice versa, reversed",
    r"\bsooner\b": "faster, earlier",
    r"\btells? apart\b": "distinguish",
}
# More of them, in pages: with other meanings in messages, or not there yet.
BANNED_IN_PAGES = {
    **BANNED,
    r"\btold\b": "given, known",
    r"\bafresh\b": "from the initial state",
    r"\bbeside\b": "next to, compared with",
    r"\bchance\b": "randomness, guessing, sampling noise",
    r"\bso many\b": "that many",
    r"\b(plain|fast|faster|parallel|chunked|fused) forms?\b": "implementation",
    r"\blikeliest\b|\blikelier\b": "most probable",
}
# History, the licences of others, and the list of these words.
NOT_READ = {"docs/log.md", "docs/licences.md", "docs/glossary.md"}
# Where a word has another meaning: statistical moments.
ALLOWED = {("docs/derivations/vanishing-gradients.md", "moments")}
SPOKEN = {"UserError", "ValueError", "Field", "Option", "Argument", "print", "say", "either"}
# Reports and figures have their own words, and a test of them.
OTHERS = ("statewise.comparison.report", "statewise.figures")


def spoken(tree: ast.Module) -> list[tuple[int, str]]:
    """Lines and texts that a user may read: in messages, help and descriptions of settings."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    named = [node for node in calls if getattr(node.func, "id", getattr(node.func, "attr", "")) in SPOKEN]
    texts = [inside for node in named for inside in ast.walk(node) if isinstance(inside, ast.Constant)]
    return [(text.lineno, text.value) for text in texts if isinstance(text.value, str)]


def private(text: str, banned: dict[str, str] = BANNED) -> list[str]:
    return [f"{found[0]!r}, say: {better}" for word, better in banned.items() for found in re.finditer(word, text)]


def test_messages_and_help_are_in_plain_words() -> None:
    found = [
        f"{name}:{line}: {word}: {text!r}"
        for name, tree in modules().items()
        if not name.startswith(OTHERS)
        for line, text in spoken(tree)
        for word in private(text)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("verb", cli.app.registered_commands, ids=lambda one: one.callback.__name__)
def test_what_a_verb_says_of_itself_is_in_plain_words(verb: object) -> None:
    assert not private(verb.callback.__doc__ or "")  # type: ignore[attr-defined]


def prose(page: str) -> str:
    """A page without its code and without the targets of its links."""
    return re.sub(r"`[^`]*`|\]\([^)]*\)", " ", re.sub(r"^```.*?^```$", "", page, flags=re.DOTALL | re.MULTILINE))


def test_pages_are_in_plain_words() -> None:
    pages = {path.relative_to(ROOT).as_posix(): path for path in (ROOT / "docs").rglob("*.md")}
    pages |= {
        path.relative_to(ROOT).as_posix(): path for path in (ROOT / "book").rglob("*.md") if "_build" not in path.parts
    }
    pages |= {name: ROOT / name for name in ("README.md", "CONTRIBUTING.md")}
    found = [
        f"{name}: {match[0]!r}, say: {better}"
        for name, path in sorted(pages.items())
        if name not in NOT_READ
        for text in (prose(path.read_text(encoding="utf-8")),)
        for word, better in BANNED_IN_PAGES.items()
        for match in re.finditer(word, text)
        if (name, match[0]) not in ALLOWED
    ]
    assert not found, "\n".join(found)


def test_comments_of_recipes_and_benchmarks_are_in_plain_words() -> None:
    recipes = [
        (path, re.findall(r"^# (.*)", path.read_text(), re.MULTILINE)) for path in (ROOT / "recipes").rglob("*.toml")
    ]
    scripts = [path for folder in ("benchmarks", "examples") for path in (ROOT / folder).glob("*.py")]
    said = [*recipes, *((path, [ast.get_docstring(ast.parse(path.read_text())) or ""]) for path in scripts)]
    found = [
        f"{path.name}: {word}" for path, texts in said for text in texts for word in private(text, BANNED_IN_PAGES)
    ]
    assert not found, "\n".join(found)


def test_exit_codes_are_in_plain_words() -> None:
    assert not private(cli.EXIT_CODES)
    assert "2 invalid command, setting or data" in cli.EXIT_CODES


@pytest.mark.parametrize(
    "source",
    [
        "raise UserError('wrong', fix='mend the line')",
        "raise UserError(f'{path} is no kind of file')",
        "x = Field(1, description='moments that are read')",
        "typer.Option('--test', help='May be said again.')",
    ],
)
def test_the_gate_sees(source: str) -> None:
    assert [word for _, text in spoken(ast.parse(source)) for word in private(text)]


def test_the_gate_reads_prose_alone() -> None:
    page = "Row by row.\n\n```python\nmoment = 1\n```\n\nSee `moment` and [this](moment.md), beside that.\n"
    assert private(prose(page), BANNED_IN_PAGES) == ["'beside', say: next to, compared with"]


def test_the_log_is_newest_first() -> None:
    dates = re.findall(r"^## (\d{4}-\d\d-\d\d): ", (ROOT / "docs/log.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(dates) > 40
    assert dates == sorted(dates, reverse=True)
