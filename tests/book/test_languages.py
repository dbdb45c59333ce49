"""Both languages have the same pages, headings, code, formulas and boxes; only the prose differs."""

import re
import tomllib

import pytest
from chapter import BOOK, COLUMNS, FORMULA, LANGUAGES, ROOT, Page, chapters, pages
from page import anchors
from reference import FENCE, PACKAGES
from stage import SOFT_BREAK, terms

CHAPTERS = [page.name for page in chapters()]
FORMULAS, LIVE_FIGURES = 60, 18  # at least so many in the whole book
SECTIONS = ("start", "scratch", "package", "summary", "exercises", "next")  # that every chapter has, in this order
each_chapter = pytest.mark.parametrize("name", CHAPTERS)


def both(name: str) -> tuple[Page, Page]:
    english, chinese = ({page.name: page for page in pages(language)}[name] for language in LANGUAGES)
    return english, chinese


def test_both_have_the_same_pages() -> None:
    names = [[page.name for page in pages(language)] for language in LANGUAGES]
    assert names[0] == names[1]
    assert "01-order" in names[0]


@pytest.mark.parametrize("name", [page.name for page in pages("en")])
def test_a_page_is_the_same_in_both(name: str) -> None:
    english, chinese = both(name)
    assert [block.code for block in english.blocks] == [block.code for block in chinese.blocks]
    assert [block.folded for block in english.blocks] == [block.folded for block in chinese.blocks]
    assert english.levels == chinese.levels
    assert english.labels == chinese.labels
    assert english.formulas == chinese.formulas
    assert english.directives == chinese.directives
    assert pictures(english) == pictures(chinese)
    assert links(english) == links(chinese)


def pictures(page: Page) -> list[str]:
    return re.findall(r"^!\[.+\]\(([\w-]+\.svg)\)$", page.prose, re.MULTILINE)


def links(page: Page) -> list[str]:
    return sorted(re.findall(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)", page.prose))


@each_chapter
def test_the_chinese_page_is_in_chinese(name: str) -> None:
    _, page = both(name)
    prose = re.sub(
        r"`[^`]*`|\$[^$]*\$|\]\([^)]*\)|^:.*$|^\(.*\)=$", "", FORMULA.sub("", page.prose), flags=re.MULTILINE
    )
    for paragraph in filter(str.strip, prose.split("\n\n")):
        assert re.search(r"[\u4e00-\u9fff]", paragraph) or not re.search(r"[A-Za-z]{4}", paragraph), paragraph


@each_chapter
def test_a_chapter_has_its_parts_in_order(name: str) -> None:
    page, _ = both(name)
    stem = page.labels[0].rsplit("-", 1)[0]
    assert [label for label in page.labels if label in {f"{stem}-{part}" for part in SECTIONS}] == [
        f"{stem}-{part}" for part in SECTIONS
    ]
    assert len(page.labels) == page.levels.count(2), "every section has a label"
    kinds = [directive for directive, _, _ in page.directives]
    assert kinds.count("claim") >= 2
    number = int(name[:2])
    exercises = [argument for directive, argument, _ in page.directives if directive == "exercise"]
    assert exercises == [f"{number}.{at}" for at in range(1, 6)]
    assert page.title.startswith(f"{number}. ")


@each_chapter
def test_every_formula_is_checked(name: str) -> None:
    page, _ = both(name)
    checked = {label for block in page.blocks for label in block.checks}
    labels = [label for label, _ in page.formulas]
    assert len(labels) >= 3
    assert not [tex for _, tex in page.formulas if "\\text{" in tex], "words of one language inside a formula"
    assert set(labels) == checked, "a displayed formula has a label, and a block `# checks` it"


def test_enough_formulas_are_checked() -> None:
    assert sum(len(page.formulas) for page in chapters()) >= FORMULAS


def test_every_chapter_has_a_live_figure() -> None:
    """Sliders, whose pictures are all there without a script; views of the lab stand below a picture."""
    kinds = [[kind for kind, _, _ in page.directives] for page in chapters()]
    assert all("slider" in found for found in kinds)
    assert sum(found.count("slider") for found in kinds) >= LIVE_FIGURES
    for page in chapters():
        for label in page.labels:
            text = section(page, label)
            if "{live}" in text:
                before = text.split("{live}")[0]
                assert "{slider}" in before or ".svg)" in before, f"{label}: what a reader without scripts sees"


@each_chapter
def test_code_fits_on_the_page(name: str) -> None:
    page, _ = both(name)
    wide = [line for block in page.blocks for line in block.code.splitlines() if len(line) > COLUMNS]
    assert not wide


@each_chapter
@pytest.mark.parametrize(
    ("section", "following", "least", "most"), [("scratch", "package", 10, 40), ("package", "summary", 2, 3)]
)
def test_code_from_scratch_and_with_the_package_is_short(
    name: str, section: str, following: str, least: int, most: int
) -> None:
    page, _ = both(name)
    stem = page.labels[0].rsplit("-", 1)[0]
    after = page.text.split(f"({stem}-{section})=")[1].split(f"({stem}-{following})=")[0]
    code = re.search(r"^```python\n(.*?)^```$", after, re.DOTALL | re.MULTILINE)
    assert code
    builds_four = name == "10-shapes" and section == "package"  # models, a line each
    assert least <= sum(bool(line.strip()) for line in code[1].splitlines()) <= most + builds_four


@pytest.mark.parametrize("language", LANGUAGES)
def test_links_lead_somewhere(language: str) -> None:
    labels = {label for page in pages(language) for label in page.labels}
    for page in pages(language):
        for link in links(page):
            path, _, anchor = link.partition("#")
            if re.match(r"\w+:", link):
                continue
            if not path:
                assert anchor in labels, f"{page.path.name} links to {link}"
                continue
            target = (page.path.parent / path).resolve()
            assert target.exists(), f"{page.path.name} links to {link}"
            assert not anchor or anchor in anchors(target), f"{page.path.name} links to {link}"


def section(page: Page, label: str) -> str:
    text = page.text.split(f"({label})=", 1)[1]
    return re.split(r"^\([\w-]+\)=$", text, maxsplit=1, flags=re.MULTILINE)[0]


def test_a_section_uses_the_terms_that_it_introduces() -> None:
    texts = {
        language: {label: section(page, label) for page in pages(language) for label in page.labels}
        for language in LANGUAGES
    }
    for term in terms():
        assert term.en.lower() in " ".join(texts["en"][term.section].lower().split()), term
        assert term.zh in texts["zh"][term.section].replace("\n", ""), term
    assert len({term.en for term in terms()}) == len({term.zh for term in terms()}) == len(terms())


def test_other_words_are_those_of_sections() -> None:
    labels = {label for page in chapters() for label in page.labels}
    words = tomllib.loads((BOOK / "terms.toml").read_text(encoding="utf-8"))["words"]
    assert not words.keys() - labels
    assert all(re.search("[a-zA-Z].*[\u4e00-\u9fff]", text) for text in words.values())


def test_the_api_reference_has_every_package() -> None:
    packages = {path.parent.name for path in (ROOT / "statewise").glob("*/__init__.py")}
    assert set(PACKAGES) == packages - {"cli"}


def test_terms_are_those_of_the_reference() -> None:
    """A term that both glossaries have is the same in both."""
    rows = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").splitlines()
    known = dict(tuple(cell.strip() for cell in row.split("|")[1:3]) for row in rows if row.startswith("| "))
    for term in terms():
        assert term.zh in known.get(term.en, term.zh).split("、"), term


def test_the_index_lists_every_chapter() -> None:
    for language in LANGUAGES:
        text = (BOOK / language / "index.md").read_text(encoding="utf-8")
        assert [name for name in CHAPTERS if f"\n{name}\n" not in text] == []


def test_bold_chinese_is_read_as_bold() -> None:
    """`**…。**` before a letter closes nothing: the mark stays outside."""
    wrong = []
    for path in [*(BOOK / "zh").glob("*.md"), *(ROOT / "docs" / "zh").rglob("*.md")]:
        for paragraph in FENCE.sub("", path.read_text(encoding="utf-8")).split("\n\n"):
            for bold in re.finditer(r"\*\*([^*]+)\*\*", paragraph):
                before, after = paragraph[: bold.start()][-1:], paragraph[bold.end() :][:1]
                if re.fullmatch(r"\w\W", before + bold[1][0]) or re.fullmatch(r"\W\w", bold[1][-1] + after):
                    wrong.append((path.name, bold[0]))
    assert wrong == []


def test_no_chinese_line_of_the_reference_ends_within_a_sentence() -> None:
    """A line end is a space, which Chinese does not write; the book's are joined by `stage.py`."""
    for path in (ROOT / "docs" / "zh").rglob("*.md"):
        prose = FENCE.sub("", path.read_text(encoding="utf-8"))
        assert not re.findall("[\u3000-\u9fff\uff00-\uffef”]\n *[\u3001-\u9fff\uff00-\uffef“]", prose), path


def test_lines_of_the_chinese_book_are_joined_where_no_space_is_read() -> None:
    joined = "按时间步，一步一步\n  来；[第 2 章](02-counting.md)\n说过"
    assert SOFT_BREAK.sub(r"\1", joined) == joined.replace("\n  ", "").replace("\n", "")
    kept = "[minGRU](mingru.md)\n和 LSTM\n都是"
    assert SOFT_BREAK.sub(r"\1", kept) == kept


def test_no_year_is_read_as_the_number_of_a_list() -> None:
    for folder in ("docs", "book/en", "book/zh"):
        for path in sorted((ROOT / folder).rglob("*.md")):
            prose = FENCE.sub("", path.read_text(encoding="utf-8"))
            assert not re.search(r"^\d{4}\. ", prose, re.MULTILINE), path
