"""What is known of memories is what the probes find: one bit is carried any distance, a window has nothing beyond."""

import pytest

from statewise.data.embedded import MEMORY_TASKS
from statewise.inspection.probes.trial import Probed, Trial, fitted, probe
from statewise.specs import GRUSpec, ModelSpec, TrainSpec, WindowSpec


def probed(task: str, spec: ModelSpec, *, longest: int, sizes: tuple[int, ...], steps: int) -> Probed:
    model = fitted(spec, vocab=len(MEMORY_TASKS[task].symbols), parameters=10_000)
    train = TrainSpec(steps=steps, batch=64, lr=6e-3, warmup=20)
    return probe(Trial(task, model, train, longest, sizes, 60, 0))


@pytest.mark.slow
def test_a_gated_vector_learns_parity_and_keeps_it_eight_times_as_far() -> None:
    found = probed("parity", GRUSpec(), longest=10, sizes=(10, 80), steps=300)
    assert found.accuracy(10) > 0.98
    assert found.accuracy(80) > 0.98


def test_a_window_learns_what_is_inside_it_and_nothing_beyond() -> None:
    """`reverse` asks at distances 2, 4, 6, …: a window of 7 sees the first three and guesses the rest."""
    found = probed("reverse", WindowSpec(order=7), longest=6, sizes=(6, 12), steps=250)
    near = [found.by_distance[distance] for distance in (2, 4, 6)]
    far = [pair for distance, pair in found.by_distance.items() if distance > 8]
    assert sum(right for right, _ in near) / sum(asked for _, asked in near) > 0.9
    assert sum(right for right, _ in far) / sum(asked for _, asked in far) < 2 * MEMORY_TASKS["reverse"].chance
