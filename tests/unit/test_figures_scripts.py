"""Pictures of text that is not English: nothing is unseen, nothing lies on its neighbour, nothing breaks a file."""

import csv
import io
import warnings
from pathlib import Path
from xml.etree import ElementTree

import pytest

from statewise.cli.output import put
from statewise.display.letter import alone, clusters, columns, visible, whole_letters
from statewise.display.number import with_interval
from statewise.figures import html, markdown
from statewise.figures.drawing import draw, svg_file
from statewise.figures.figure import Axis, Figure, Series, ticks
from statewise.figures.label import distinguishable, shortened, text_width
from statewise.figures.paint import missing_glyphs, paint
from statewise.figures.passage import Passage, merge_split_characters, widened
from statewise.figures.svg_axis import tick_text
from statewise.figures.table import Column, Table, words
from statewise.figures.typeset import levels, order, runs_right_to_left, typeset
from statewise.inspection.subject import read_text
from statewise.specs import UserError

FAMILY, FLAG, TONE = "👨‍👩‍👧‍👦", "🇩🇪", "👍🏽"


def passage(*pieces: str) -> Passage:
    return Passage(
        "some-text", "Text", tuple((one, float(at + 1)) for at, one in enumerate(pieces)), "bits", "How.", "W."
    )


def test_what_has_no_shape_gets_one() -> None:
    assert visible("a\r\n\tb\x00\x1b\x7f\x85") == "a␍⏎⇥b␀␛␡⟨0085⟩"
    assert visible("\u202eabc\u202c\u200f\ufeff\u2028\ufffe") == "⟨202E⟩abc⟨202C⟩⟨200F⟩⟨FEFF⟩⟨2028⟩⟨FFFE⟩"
    for whole in (FAMILY, "नमस्ते", "می‌خواهم", "中文 字", "a b\u00a0c"):
        assert visible(whole) == whole


def test_a_piece_alone_has_a_name() -> None:
    assert [alone(one) for one in (" a b ", "  ", "\u3000", "\u200d", "ि", "")] == [
        "␣a b␣",
        "␣␣",
        "⟨3000⟩",
        "⟨200D⟩",
        "◌ि",
        "…",
    ]


def test_letters_with_their_marks() -> None:
    assert clusters("शांति") == ["शां", "ति"]
    assert clusters(f"{FAMILY}{FLAG}{FLAG}{TONE}") == [FAMILY, FLAG, FLAG, TONE]
    assert clusters("น้ำ") == ["น้ำ"]
    assert [columns(one) for one in ("a", "中", "é", FAMILY, FLAG, "❤️", "שָׁ")] == [1, 2, 1, 2, 2, 2, 1]
    assert text_width("é") == text_width("e")


def test_a_name_is_cut_between_letters() -> None:
    for text in ("नमस्ते" * 9, FAMILY * 9):
        cut = shortened(text, 60)
        assert cut.endswith("…")
        assert clusters(cut[:-1]) == clusters(text)[: len(clusters(cut[:-1]))]


def test_pieces_that_add_no_letter_are_shown_with_the_one_before() -> None:
    assert whole_letters(["क", "ि", "त", " ", "👨", "\u200d", "👩", "x"]) == [(0, 1), (2,), (3,), (4, 5, 6), (7,)]
    page = html.figure(passage("क", "ि", "त"))
    assert ">कि</i>" in page
    assert "क: 1.000 bits\n◌ि: 2.000 bits" in page


def test_halves_of_a_character_are_paid_with_it() -> None:
    assert merge_split_characters([("", 1.0), ("", 2.0), ("中", 3.0), ("a", 4.0)]) == [("中", 6.0), ("a", 4.0)]


def test_a_line_from_the_right() -> None:
    line = "שלום abc 12"
    assert runs_right_to_left(line)
    assert "".join(line[at] for at in order(levels(line, right=True))) == "abc 12 םולש"
    assert "".join(line[at] for at in order(levels(line, right=False))) == "םולש abc 12"


def test_each_letter_has_its_own_places() -> None:
    spots = typeset(["中", "文a", "\n", "אב", "ג"], room=10)
    assert [(one.row, one.column, one.wide, one.text, one.pieces) for one in spots] == [
        (0, 0, 2, "中", (0,)),
        (0, 2, 2, "文", (1,)),
        (0, 4, 1, "a", (1,)),
        (0, 5, 1, "⏎", (2,)),
        (1, 7, 1, "ג", (4,)),
        (1, 8, 1, "ב", (3,)),
        (1, 9, 1, "א", (3,)),
    ]
    assert max(one.column + one.wide for one in typeset(["中a" * 50], room=9)) <= 9


def test_a_bracket_is_turned_with_its_line() -> None:
    assert [one.alone for one in typeset(["(א)"], room=3)] == ["(", "א", ")"]


@pytest.mark.parametrize("bad", ["\x00", "\x1b[31m", "\x0b", "\r", "\ufffe", "\ud800"])
def test_no_character_breaks_a_drawing(bad: str) -> None:
    ElementTree.fromstring(svg_file(passage("a", bad, "b")))
    axis = Axis("x", "category", categories=(f"a{bad}",))
    rows = Figure("f", f"T{bad}", "bars", Axis(f"x{bad}"), axis, (Series(f"s{bad}", (1.0,), (0.0,)),), "How.", "What.")
    ElementTree.fromstring(draw(rows))


@pytest.mark.parametrize("cell", ["\r", "a\rb", "\n", '"', ",", "\x00", "=1+1", "中"])
def test_every_cell_comes_back(cell: str) -> None:
    told = [passage("a", cell).csv(), Table((Column("a", "a", text=True),), ((words("x"),), (words(cell),))).csv()]
    for text in told:
        rows = list(csv.reader(io.StringIO(text, newline="")))
        assert rows[2][0] == ("'=1+1" if cell == "=1+1" else cell)  # a spreadsheet would compute it


def test_a_spreadsheet_is_told_how_a_file_is_written() -> None:
    assert "utf-8,%EF%BB%BFpiece" in html.figure(passage("中"))
    assert "utf-8,piece" in html.figure(passage("a"))


def test_markdown_shows_what_cannot_be_seen() -> None:
    assert markdown.code("a\x1b \t") == "<code>a␛␣⇥</code>"
    assert markdown.escaped("a\x1b\u202eb") == "a␛⟨202E⟩b"


def test_colours_reach_as_far_as_costs_do() -> None:
    bounds = (0.25, 1.0, 8.0)
    assert widened(bounds, [1.0, 2.0, 30.0]) == bounds
    assert widened(bounds, [11.0, 12.0, 13.0]) == (0.5, 2.0, 16.0)
    assert widened(bounds, []) == bounds


@pytest.mark.parametrize("size", [1e-12, 1e-3, 1.0, 1e6, 1e12])
def test_ticks_of_any_size_differ(size: float) -> None:
    for low, high in ((size, 3 * size), (size, size * (1 + 1e-7))):
        found = ticks(Axis("x"), low, high, most=6)
        assert len(found) > 2
        assert all(low <= one * (1 + 1e-9) and one <= high * (1 + 1e-9) for one in found)
        assert len({tick_text(Axis("x"), one, found) for one in found}) == len(found)


def test_intervals_of_any_size() -> None:
    assert with_interval(2.3141, 0.0213) == "2.314 ± 0.021"
    assert with_interval(2.3141e-12, 0.0213e-12) == "(2.314 ± 0.021)e-12"
    assert with_interval(2.3141e12, 0.0213e12) == "(2.314 ± 0.021)e+12"


def test_a_picture_says_which_letters_it_lacks(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="pictures are painted by matplotlib, which is not installed here")
    unassigned = "\U000e0fff"  # no font has it
    one = passage("ab", "שלום", "$x$", "\n", f"x{unassigned}")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        paint(one, tmp_path / "text.png")
    assert (tmp_path / "text.png").read_bytes().startswith(b"\x89PNG")
    assert unassigned in missing_glyphs(one)
    assert not missing_glyphs(passage("ab", "é", "\n", "\t", "שלום"))


def test_names_that_begin_alike_are_told_apart() -> None:
    names = [f"a class with a rather long name, number {at}" for at in range(5)] + ["short"]
    shown = distinguishable(names, 120)
    assert len(set(shown)) == len(names)
    assert shown[-1] == "short"
    assert all(text_width(one) <= 120 for one in shown)


def test_no_model_controls_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    wrote = "\x1b[2J\x07a\n\tb\x9b中"
    put(wrote)
    assert capsys.readouterr().out == f"{wrote}\n"  # a file gets what was written
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    put(wrote)
    assert capsys.readouterr().out == "␛[2J␇a\n\tb⟨009B⟩中\n"


def test_a_text_without_spaces_is_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert read_text("他/她是学生") == "他/她是学生"
    assert read_text("a\0b") == "a\0b"
    (tmp_path / "資料").mkdir()
    for missing in ("資料/她", "data/missing", "没有.txt"):
        with pytest.raises(UserError, match="there is no file"):
            read_text(missing)
    (tmp_path / "bom.txt").write_text("\ufeff文", encoding="utf-8")
    assert read_text("bom.txt") == "文"
