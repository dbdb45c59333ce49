"""Drawings of architectures: arrows end at boxes, everything lies inside, texts keep their subscripts."""

import math
import re
from xml.etree import ElementTree

import pytest

from statewise.figures import Arrow, Box, Diagram, unrolled
from statewise.figures.label import text_width

SVG = "{http://www.w3.org/2000/svg}"
CHAIN = unrolled(
    "t", "d", inputs=("x_1", "x_2"), states=("h_0", "h_1", "h_2"), outputs=("y_1", ""), maps=("W", "U", "V")
)


def parsed(diagram: Diagram) -> ElementTree.Element:
    return ElementTree.fromstring(diagram.svg())


def test_an_unrolled_network_has_its_arrows() -> None:
    assert {(arrow.start, arrow.end, arrow.text) for arrow in CHAIN.arrows} == {
        ("h0", "h1", "U"),
        ("h1", "h2", "U"),
        ("x1", "h1", "W"),
        ("x2", "h2", "W"),
        ("h1", "y1", "V"),
    }
    assert [(box.name, box.column, box.row) for box in CHAIN.boxes if box.kind == "input"] == [
        ("x1", 1, 2),
        ("x2", 2, 2),
    ]


def test_an_arrow_ends_at_the_edge_of_its_box() -> None:
    wide = Box("b", 3, 1, "a wide box of text")
    for towards, side in (((0.0, wide.centre[1]), -1), ((999.0, wide.centre[1]), 1)):
        assert wide.edge(towards) == pytest.approx((wide.centre[0] + side * wide.width / 2, wide.centre[1]))
    x, y = wide.edge((wide.centre[0], 0.0))
    assert x == wide.centre[0]
    assert y < wide.centre[1]


def test_an_arrow_touches_the_round_end_of_a_state() -> None:
    state = Box("s", 0, 0, "h_t")
    x, y = state.edge((100.0, 60.0))
    round_ = state.edge((0.0, 99.0))[1]
    assert math.hypot(x - (state.width / 2 - round_), y) == pytest.approx(round_)


@pytest.mark.parametrize(("column", "row"), [(1, 2), (1, 1.2), (3, 1), (-2, 1)])
def test_the_name_of_a_slanted_arrow_lies_beside_it(column: float, row: float) -> None:
    boxes = (Box("a", 0, 0, "a", "input"), Box("b", column, row, "b", "input"))
    tree = parsed(Diagram("t", "d", boxes, (Arrow("a", "b", "W_k"),)))
    (x0, y0), (x1, y1) = (box.centre for box in boxes)
    (name,) = (text for text in tree.iter(f"{SVG}text") if text.text == "W")
    x, y, wide = float(name.attrib["x"]), float(name.attrib["y"]), text_width("Wk", 12.0)
    left = x if name.get("text-anchor") == "start" else x - wide / 2
    # From the top of a capital to the foot of its subscript.
    corners = [(left, y + 4), (left + wide, y + 4), (left, y - 8), (left + wide, y - 8)]
    sides = {(x1 - x0) * (y - y0) > (y1 - y0) * (x - x0) for x, y in corners}
    assert len(sides) == 1, "the arrow crosses its name"


@pytest.mark.parametrize("bow", [-1.5, 0.0, 1.5])
def test_everything_lies_inside(bow: float) -> None:
    boxes = (Box("a", 0, 0, "x_t", "input"), Box("b", 2, 0, "h_{t-1} + h_t"), Box("c", 4, 1, "text", "text"))
    tree = parsed(Diagram("t", "d", boxes, (Arrow("a", "b", bow=bow), Arrow("b", "b", "U"), Arrow("b", "c"))))
    _, _, width, height = map(float, tree.attrib["viewBox"].split())
    moved = tree.find(f"{SVG}g")
    assert moved is not None
    right, down = map(float, re.findall(r"-?[\d.]+", moved.attrib["transform"]))
    for shape in moved:
        numbers = shape.get("points") or (shape.get("d") or "").replace("C", " ").replace("Q", " ").lstrip("M")
        values = list(map(float, re.findall(r"-?[\d.]+", numbers)))
        assert all(0 <= x + right <= width for x in values[::2])
        assert all(0 <= y + down <= height for y in values[1::2])


def test_texts_are_escaped_and_have_subscripts() -> None:
    tree = parsed(Diagram("a < b", "d", (Box("a", 0, 0, "h_{t-1} < x_t^2"),), ()))
    (text,) = tree.iter(f"{SVG}text")
    assert "".join(text.itertext()) == "ht-1 < xt2"
    assert [span.text for span in text.iter(f"{SVG}tspan") if span.get("font-size")] == ["t-1", "t", "2"]
    shifts = [float(span.attrib["dy"]) for span in text.iter(f"{SVG}tspan")]
    assert shifts[0] > 0 > shifts[1]
    title = tree.find(f"{SVG}title")
    assert title is not None
    assert title.text == "a < b"
