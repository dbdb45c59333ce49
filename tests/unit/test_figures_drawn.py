"""How figures are drawn: inside their frames, by their axes, in colours that can be seen, with numbers people read."""

import math
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import made_study as made
import pytest

from statewise import display, figures
from statewise.comparison.report.content import Part, gather
from statewise.figures.figure import Axis, Figure, Grid, Series, bounds, ticks
from statewise.figures.label import spread
from statewise.figures.svg import draw
from statewise.figures.svg_map import draw_map

STYLE = Path(figures.__file__).with_name("style.css").read_text()


# -------------------------------------------------------------------- drawings


def shapes(svg: str) -> ET.Element:
    return ET.fromstring(svg)


@pytest.mark.parametrize("width", [340, 640])
@pytest.mark.parametrize("entries", [made.ENTRIES, made.LINEAGE], ids=["six", "nineteen"])
def test_drawings_stay_in_their_frame(width: int, entries: tuple[made.Made, ...], tmp_path: Path) -> None:
    part = Part("made", made.study([one.name for one in entries]), [], made.results(entries), (), tmp_path)
    content = gather([part, made.memory(tmp_path), made.prediction(tmp_path)], title="t", question="q")
    for figure in content.figures:
        drawing = shapes(draw(figure, colours=content.colours, width=width))
        _, _, wide, high = map(float, drawing.attrib["viewBox"].split())
        boxes = []
        for text in drawing.iter("{http://www.w3.org/2000/svg}text"):
            if "x" not in text.attrib:
                continue
            size = float(text.get("font-size", 12)) * 0.57 * len(text.text or "")
            shift = {"middle": 0.5, "end": 1.0}.get(text.get("text-anchor", "start"), 0.0)
            left = float(text.attrib["x"]) - shift * size
            assert left >= -1, (figure.name, text.text)
            assert left + size <= wide + 1, (figure.name, text.text)
            assert float(text.attrib["y"]) <= high
            boxes.append((left, float(text.attrib["y"]) - 9, left + size, float(text.attrib["y"]), text.text))
        for at, a in enumerate(boxes):
            for b in boxes[at + 1 :]:
                overlap = a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
                assert not overlap, (figure.name, a, b)


def test_a_drawing_places_points_by_its_axes() -> None:
    series = Series("a", x=(1.0, 10.0, 100.0), y=(0.0, 5.0, 10.0), entry="a")
    figure = Figure("f", "t", "line", Axis("x", scale="log"), Axis("y"), (series,), "r.", "f.")
    drawing = shapes(draw(figure, colours={"a": 0}, width=640))
    marks = [one for one in drawing.iter("{http://www.w3.org/2000/svg}circle") if one.get("class") == "mark"][:3]
    (x0, y0), (x1, y1), (x2, y2) = ((float(one.attrib["cx"]), float(one.attrib["cy"])) for one in marks)
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.11)
    assert y0 - y1 == pytest.approx(y1 - y2, abs=0.11)
    assert y0 > y2


@pytest.mark.parametrize(
    ("axis", "low", "high"),
    [
        (Axis("a"), 2.2437, 2.6581),
        (Axis("a"), 0.0, 300.0),
        (Axis("a", scale="log"), 3.0, 900_000.0),
        (Axis("a", scale="log"), 60_050.0, 60_500.0),
        (Axis("a", scale="log", base=2), 24.0, 1e8),
        (Axis("a", unit="bytes"), 3.9e8, 4.2e8),
        (Axis("a", unit="bytes", scale="log", base=2), 5000.0, 5100.0),
    ],
)
@pytest.mark.parametrize("most", [4, 7])
def test_ticks_are_few_and_inside(axis: Axis, low: float, high: float, most: int) -> None:
    found = ticks(axis, low, high, most=most)
    assert 2 <= len(found) <= most + 1
    assert found == sorted(set(found))
    slack = 1e-9 * high
    assert low - slack <= found[0]
    assert found[-1] <= high + slack


def test_bounds_hold_all_values() -> None:
    for axis in (Axis("a"), Axis("a", scale="log")):
        low, high = bounds(axis, [3.0, 7.0])
        assert low < 3 < 7 < high
        low, high = bounds(axis, [5.0])
        assert low < 5 < high


# -------------------------------------------------------------------- colours


def luminance(colour: str) -> float:
    """WCAG 2's relative luminance."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_colours_can_be_seen(theme: int) -> None:
    block = re.findall(r":root \{(.*?)\}", STYLE, re.DOTALL)[theme]
    colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block))
    for name in ("ink", "quiet", "accent"):
        assert contrast(colours[name], colours["paper"]) >= 4.5, name
        assert contrast(colours[name], colours["panel"]) >= 4.5, name
    assert contrast(colours["warn"], colours["warn-paper"]) >= 4.5
    for at in range(8):
        assert contrast(colours[f"c{at}"], colours["paper"]) >= 3, at


# Severe forms of the two common kinds of colour blindness: Machado et al. (2009), in linear RGB.
VISION = {
    "normal": ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)),
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.01182, 0.04294, 0.968881)),
}
XYZ = ((0.4124564, 0.3575761, 0.1804375), (0.2126729, 0.7151522, 0.072175), (0.0193339, 0.119192, 0.9503041))
WHITE = (0.95047, 1.0, 1.08883)


def lab(colour: str, vision: str = "normal") -> tuple[float, float, float]:
    """CIELAB under D65 of a colour as it is seen."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    seen = [min(max(sum(a * b for a, b in zip(row, linear)), 0.0), 1.0) for row in VISION[vision]]
    ratios = [sum(a * b for a, b in zip(row, seen)) / white for row, white in zip(XYZ, WHITE)]
    x, y, z = (r ** (1 / 3) if r > (6 / 29) ** 3 else r / (3 * (6 / 29) ** 2) + 4 / 29 for r in ratios)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_eight_colours_differ(theme: int, vision: str) -> None:
    """By at least 15 in CIELAB (2.3 is just noticeable), for people with colour blindness too."""
    block = re.findall(r":root \{(.*?)\}", STYLE, re.DOTALL)[theme]
    seen = [lab(colour, vision) for colour in re.findall(r"--c\d: (#[0-9a-f]{6})", block)]
    assert len(seen) == 8
    nearest = min(math.dist(a, b) for at, a in enumerate(seen) for b in seen[at + 1 :])
    assert nearest >= 15, nearest


# -------------------------------------------------------------------- numbers


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (display.count(60_160), "60.2k"),
        (display.count(999_600), "1M"),
        (display.count(0), "0"),
        (display.count(12), "12"),
        (display.size(620), "620 B"),
        (display.size(1 << 20), "1 MiB"),
        (display.duration(0.0002), "200 µs"),
        (display.duration(99.14), "99.1 s"),
        (display.duration(600), "10 min"),
        (display.plain(2.26189), "2.262"),
        (display.rough(0.08308), "0.083"),
        (display.rough(-0.0), "0"),
        (display.with_interval(2.26189, 0.0191), "2.262 ± 0.019"),
        (display.with_interval(2.26189, None), "2.262"),
        (display.with_interval(31.4, 12.2), "31 ± 12"),
        (display.share(0.0354), "3.5 %"),
    ],
)
def test_numbers_as_people_read_them(text: str, expected: str) -> None:
    assert text == expected


def test_names_of_columns_lie_where_they_fit_and_stand_upright_otherwise() -> None:
    def drawn(names: tuple[str, ...]) -> str:
        axes = Axis("source", categories=names), Axis("written", categories=("a",))
        grid = Grid(((0.1,) * len(names),), "weight")
        return draw_map(Figure("m", "Map", "map", *axes, (), reading="r", finding="f", grid=grid), width=640)

    assert 'rotate(-90)" text-anchor="end"' not in drawn(("a", "b", "c"))
    assert drawn(("a", "b", "a long name of a column")).count('rotate(-90)" text-anchor="end"') == 3


# -------------------------------------------------------------------- names


def test_names_of_curves_keep_a_distance_and_their_order() -> None:
    wanted = [50.0, 50.0, 50.5, 10.0, 300.0, 299.0]
    found = spread(wanted, low=0.0, high=300.0)
    assert all(b - a >= 12.5 - 1e-9 for a, b in zip(sorted(found), sorted(found)[1:]))
    assert sorted(range(6), key=found.__getitem__) == sorted(range(6), key=wanted.__getitem__)
    assert found[3] == 10.0  # nothing is near
    assert max(found) <= 300.0


def test_every_point_is_named() -> None:
    """Also where many lie on each other: a thin line leads to the name."""
    points = tuple(Series(f"model {at}", (100.0 + at,), (2.0 + 0.01 * at,)) for at in range(8))
    figure = Figure("f", "t", "points", Axis("x"), Axis("y"), (*points, Series("far", (900.0,), (9.0,))), "r.", "f.")
    for width in (340, 640):
        drawn = draw(figure, colours={}, width=width)
        assert set(re.findall(r'class="name"[^>]*>([^<]+)', drawn)) == {one.name for one in figure.series}
        assert 'class="leader"' in drawn


def test_points_are_joined_in_the_given_order() -> None:
    series = tuple(Series(name, (x,), (y,)) for name, x, y in (("a", 1.0, 3.0), ("b", 2.0, 2.0), ("c", 3.0, 1.0)))
    figure = Figure("f", "t", "points", Axis("x"), Axis("y"), series, "r.", "f.", joined=(("a", "b", "c", "missing"),))
    (path,) = re.findall(r'<g class="c0"><path class="leader" d="M([^"]+)"', draw(figure, colours={}, width=640))
    places = [tuple(map(float, place.split())) for place in path.split("L")]
    assert [x for x, _ in places] == sorted(x for x, _ in places)
    assert len(places) == 3


def test_a_curve_is_named_where_it_ends_and_not_in_a_legend() -> None:
    series = tuple(Series(f"unit {at}", (0.0, 1.0), (0.0, 1.0 + at)) for at in range(3))
    drawn = draw(Figure("f", "t", "line", Axis("x"), Axis("y"), series, "r.", "f."), colours={}, width=640)
    assert re.findall(r'class="name"[^>]*>([^<]+)', drawn) == ["unit 0", "unit 1", "unit 2"]
    assert 'class="series key' not in drawn
