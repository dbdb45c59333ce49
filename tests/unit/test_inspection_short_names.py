"""Names beside a picture: as short as they can be, and still told apart."""

import pytest

from statewise.inspection.lens import short_names


@pytest.mark.parametrize(
    ("names", "short"),
    [
        (
            ["layers.0.lstm.forget_gate", "layers.1.lstm.forget_gate", "layers.0.block.output"],
            ["0 forget_gate", "1 forget_gate", "output"],
        ),
        (
            ["reader.layers.0.ahead.gru.h", "reader.layers.0.back.gru.h", "reader.layers.0.layer.output"],
            ["ahead h", "back h", "output"],
        ),
        (["everything", "layers.0", "layers.1", "layers.0.own"], ["everything", "layers.0", "layers.1", "own"]),
        (["a.x.h", "b.y.h"], ["a.x.h", "b.y.h"]),  # they differ in two words at once: both stay as they are
        (["h"], ["h"]),
    ],
)
def test_what_tells_them_apart_stays(names: list[str], short: list[str]) -> None:
    assert short_names(names) == short
    assert len(set(short)) == len(set(names))
