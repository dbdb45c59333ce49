"""Figures of every kind, as drawings, files and tables: the same numbers, nothing from data more than text."""

import csv
import io
import json
import re
import struct
import xml.etree.ElementTree as ET
import zlib
from pathlib import Path
from typing import Any

import pytest

from statewise.figures import html
from statewise.figures.drawing import Drawing, draw, hues, svg_file
from statewise.figures.figure import Axis, Figure, Grid, Series
from statewise.figures.markdown import figure as as_markdown
from statewise.figures.paint import paint
from statewise.figures.passage import LEVELS, Passage, between, ends, shared_ends
from statewise.figures.svg_map import DEEPENING, DIVERGING, colour, png
from statewise.figures.table import Column, Table, words

EVIL = "<script>alert(1)</script> & $x$"


def made(kind: Any, **more: Any) -> Figure:
    rows = Axis("", "category", categories=("one", EVIL))
    y = rows if kind in ("dots", "bars") else Axis("y")
    low, high = ((0.4, 1.5), (0.6, 2.5)) if kind in ("dots", "bars") else ((-0.2, 0.5), (0.2, 1.5))
    series = (Series("a", (0.5, 2.0), (0.0, 1.0), low, high), Series(EVIL, (1.0, 3.0), (0.0, 1.0)))
    return Figure(f"some-{kind}", EVIL, kind, Axis("x"), y, series, "How to read it.", "What it shows.", **more)


FIGURES: dict[str, Drawing] = {
    **{kind: made(kind) for kind in ("line", "points", "dots", "bars", "scatter")},
    "plane": made("plane", circle=1.0),
    "map": made("map")._replace(
        series=(),
        x=Axis("column", categories=("p", EVIL)),
        y=Axis("row", categories=("q", "r", "s")),
        grid=Grid(((1.0, None), (2.0, 3.0), (0.5, 4.0)), "weight"),
    ),
    "large-map": made("map")._replace(
        name="large",
        series=(),
        grid=Grid(
            tuple(tuple(10.0 ** -abs(a - b) for a in range(50)) for b in range(50)),
            "norm",
            x=tuple(range(50)),
            y=tuple(range(50)),
            log=True,
        ),
    ),
    "signed-map": made("map")._replace(
        name="signed", series=(), grid=Grid(((-1.0, 2.0),), "gap", x=(0.0, 1.0), y=(0.0,), signed=True)
    ),
    "text": Passage(
        "text", "A text", (("the ", 1.0), (EVIL, -2.0), ("\n", None)), "bits", "How.", "What.", signed=True
    ),
}


@pytest.mark.parametrize("name", FIGURES)
def test_it_is_drawn_and_lets_nothing_through(name: str) -> None:
    for width in (340, 640):
        drawn = draw(FIGURES[name], width=width)
        root = ET.fromstring(drawn)
        assert root.tag.endswith("svg")
        assert "<script" not in drawn
        for number in re.findall(r' (?:x|y|cx|cy|x1|y1|width|height)="([^"%]+)"', drawn):
            assert -20 <= float(number) < 3000
    shown = html.figure(FIGURES[name])
    assert "<script" not in shown
    assert FIGURES[name].finding in shown
    assert FIGURES[name].reading in shown
    assert FIGURES[name].finding in "\n".join(as_markdown(FIGURES[name]))


@pytest.mark.parametrize("name", FIGURES)
def test_a_file_has_its_own_colours(name: str) -> None:
    text = svg_file(FIGURES[name])
    ET.fromstring(text)
    assert "var(" not in text
    if name == "line":
        assert re.search(rf"\.c0 \.curve\{{[^}}]*stroke: {hues()[0]}", text)


@pytest.mark.parametrize("name", FIGURES)
def test_a_png_is_painted(name: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra `plots`")
    paint(FIGURES[name], tmp_path / "one.png")
    data = (tmp_path / "one.png").read_bytes()
    assert data.startswith(b"\x89PNG")
    wide, high = struct.unpack(">II", data[16:24])
    assert 300 < wide < 2000
    assert 50 < high < 2000


@pytest.mark.parametrize("name", FIGURES)
def test_a_table_of_its_numbers(name: str) -> None:
    one = FIGURES[name]
    rows = list(csv.reader(io.StringIO(one.csv())))
    if isinstance(one, Passage):
        assert [row[0] for row in rows[1:]] == [piece for piece, _ in one.pieces]
        assert [row[1] for row in rows[1:]] == ["1.0", "-2.0", ""]
    elif one.grid is not None:
        cells = [cell for row in one.grid.values for cell in row]
        assert [None if row[2] == "" else float(row[2]) for row in rows[1:]] == pytest.approx(cells)
    else:
        assert len(rows) == 1 + sum(len(series.x) for series in one.series)
    json.dumps(one.as_dict(), allow_nan=False)


def test_a_page_has_every_kind() -> None:
    shown = html.page(title=EVIL, description=EVIL, body=html.figures(list(FIGURES.values())))
    assert shown.count("<figure ") == len(FIGURES)
    assert "alert(1)</script>" not in shown
    assert shown.count("<script>") == 1
    assert 'data-rows="50" data-columns="50"' in shown  # an image whose cells the script reads from the CSV
    assert "<script" not in html.page(title="t", body="", static=True)


def test_depth_goes_by_the_logarithm_where_it_is_asked_to() -> None:
    plain = Grid(((1.0, 100.0),), "")
    assert plain.depth(50.5) == pytest.approx(0.5)
    assert plain._replace(log=True).depth(10.0) == pytest.approx(0.5)
    assert plain._replace(log=True).depth(0.0) == 0.0
    signed = Grid(((-1.0, 3.0),), "", signed=True)
    assert signed.ends() == (-3.0, 3.0)
    assert signed.depth(0.0) == pytest.approx(0.5)
    assert Grid(((2.0,),), "").depth(2.0) == 0.0


def test_the_ends_of_a_palette_are_its_stops() -> None:
    assert colour(0.0) == DEEPENING[0]
    assert colour(1.0) == DEEPENING[-1]
    assert colour(0.5, signed=True) == DIVERGING[2]
    # From pale to deep without a turn, so that a map can be read without colour.
    light = [sum(colour(at / 20)) for at in range(21)]
    assert light == sorted(light, reverse=True)


def test_pixels_are_those_of_the_file() -> None:
    data = png([[(1, 2, 3), None], [(4, 5, 6), (7, 8, 9)]])
    assert struct.unpack(">II", data[16:24]) == (2, 2)
    start = data.index(b"IDAT") + 4
    lines = zlib.decompress(data[start : start + struct.unpack(">I", data[start - 8 : start - 4])[0]])
    assert lines == bytes([0, 1, 2, 3, 255, 0, 0, 0, 0, 0, 4, 5, 6, 255, 7, 8, 9, 255])


def test_a_text_keeps_its_lines_and_its_shades() -> None:
    pieces = (("ab", 1.0), ("c\n", 0.5), ("d" * 200, 1.0))
    drawn = draw(Passage("t", "", pieces, "bits", "", "", bounds=(0.9,)), width=340)
    assert re.findall(r">([^<]+)</text>", drawn)[:2] == ["abc⏎", "d" * 44]
    wide = [float(one) for one in re.findall(r'<rect [^>]* width="([0-9.]+)"', drawn)]
    assert sum(wide) == pytest.approx(202 * wide[0] / 2, abs=1)


def test_letters_that_no_font_has(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra `plots`")
    paint(Passage("t", "状态 𓀀", (("状态 𓀀", 1.0),), "bits", "", ""), tmp_path / "one.png")


def test_a_point_at_the_radius_lies_on_the_circle() -> None:
    """Both axes of a plane have one scale."""
    ends = Series("tips", (0.0, 1.0), (1.0, 0.0))
    plane = Figure("tips", "Tips", "plane", Axis("x"), Axis("y"), (ends,), "", "", circle=1.0)
    drawn = svg_file(plane, width=520)
    places = [(float(x), float(y)) for x, y in re.findall(r'<circle [^>]*cx="([\d.]+)" cy="([\d.]+)"', drawn)]
    radius = float(re.findall(r'class="axis"[^>]* r="([\d.]+)"', drawn)[0])
    (x, y), *tips = places[:3]  # the circle, and the two points; a legend follows
    for across, down in tips:
        assert abs(((across - x) ** 2 + (down - y) ** 2) ** 0.5 - radius) < 0.2


def test_levels_of_a_text() -> None:
    one = Passage("t", "", (("a", 0.0), ("b", 4.0), ("c", -8.0), ("d", None)), "bits", "", "", signed=True)
    assert one.levels() == [0, 4, 1 - LEVELS, 0]
    assert one._replace(bounds=(1.0, 5.0)).levels() == [0, 1, -2, 0]
    assert one._replace(signed=False).levels()[2] == LEVELS - 1


def test_pieces_of_one_text_share_their_ends() -> None:
    fine, coarse = [("a", 1.0), ("b", 2.0), ("cd", 4.0)], [("ab", 8.0), ("c", 16.0), ("d", 32.0)]
    assert ends(fine) == [1, 2, 4]
    assert shared_ends([fine, coarse]) == [2, 4]
    assert between(fine, [2, 4]) == [3.0, 4.0]
    assert between(coarse, [2, 4]) == [8.0, 48.0]


def test_a_table_is_escaped() -> None:
    one = Table((Column("a", EVIL, text=True),), ((words(EVIL),),))
    assert "<script" not in html.table(one)
