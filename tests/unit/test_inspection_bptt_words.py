"""The laboratory does not call chance a result: who ends lowest is said with what its seeds allow."""

from types import SimpleNamespace
from typing import Any

import pytest

from statewise.inspection.bptt.picture import _lowest


def measured(**nats: tuple[float, ...]) -> Any:
    return {name: SimpleNamespace(trained=SimpleNamespace(nats=values)) for name, values in nats.items()}


@pytest.mark.parametrize(
    ("full", "fixed", "words"),
    [
        ((2.1,), (2.0,), "one seed cannot tell"),
        (
            (2.1, 2.2, 2.3),
            (2.0, 2.1, 2.2),
            "which is significant over seeds",
        ),  # each seed by 0.1, though seeds differ by more
        ((2.1, 2.0, 2.3), (2.0, 2.1, 2.2), "which is not significant over seeds"),
    ],
)
def test_what_seeds_allow(full: tuple[float, ...], fixed: tuple[float, ...], words: str) -> None:
    said = _lowest(measured(full=full, fixed=fixed))
    assert said.startswith("fixed has the lowest loss")
    assert words in said
