"""The lens `gradient`: gradients through time, Jacobians, memory length, clipping, softmax saturation."""

import copy
from typing import Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from statewise.core import Machine
from statewise.display import Progress
from statewise.figures import Drawing
from statewise.inspection.finding import Finding
from statewise.inspection.gradient import picture
from statewise.inspection.gradient.context import (
    Gain,
    clipping,
    clipping_data,
    clipping_figures,
    context_figure,
    gain,
    length_words,
    longest_context,
    saturation,
    saturation_figures,
    unsure,
)
from statewise.inspection.gradient.flow import Decay, Flow, Sides, by_part, follow, follow_long_row, follow_row
from statewise.inspection.gradient.jacobian import (
    Recurrence,
    constant_leaves,
    recurrence,
    recurrence_figures,
    stretch_sentence,
    without_eigenvalues,
)
from statewise.inspection.lens import Lens, choose_rows
from statewise.inspection.subject import Subject
from statewise.specs import Spec, UserError
from statewise.tasks import Specimen, Specimens, TextSpecimens, Words
from statewise.tasks.language_model import Documents

_SHORTEST = 4  # tokens that a gradient can be followed through
_WINDOWS = 4
_ROWS = 12
_PRECISE = 1 << 20  # largest input of a row whose whole graph is held in double precision
_HELD = 1 << 23  # and at all
_STATES = 2048  # places of a row up to which every state is kept
_TOKENS = Words("token", "token", "loss (nats)", "distance in tokens", "token", text=True)


class GradientSettings(Spec):
    window: int = Field(64, ge=_SHORTEST, description="tokens that gradients are followed through")
    rows: int | None = Field(
        None, ge=1, description="windows of a text, or rows, that are read; default: 4, or 12 rows"
    )
    queries: int = Field(16, ge=1, description="time steps, or answers of a row, whose loss is followed back")
    threshold: float = Field(0.01, gt=0, lt=1, description="share of the largest below which a memory counts as gone")
    context: int = Field(256, ge=2, description="longest context whose worth is measured")
    targets: int = Field(256, ge=2, description="tokens that this is measured on")
    largest: int = Field(1024, ge=1, description="numbers in a state up to which its whole Jacobian is made")
    steps: int = Field(32, ge=1, description="steps over which Jacobians are multiplied")
    keys: int = Field(32, ge=2, description="keys that the softmax chooses from")


def apply(subject: Subject, settings: GradientSettings, progress: Progress) -> Finding:
    """Gradients are followed in double precision: after many steps they are small, and must not be rounding noise."""
    if isinstance(subject.specimens, TextSpecimens):
        return _on_text(subject, subject.specimens, settings, progress)
    assert subject.specimens is not None
    return _on_rows(subject, subject.specimens, settings, progress)


def _decay_data(decay: Decay | None, threshold: float) -> dict[str, Any] | None:
    return None if decay is None else {**decay._asdict(), "memory_length": decay.length(threshold)}


# -------------------------------------------------------------------- windows of a text


def _on_text(subject: Subject, text: TextSpecimens, settings: GradientSettings, progress: Progress) -> Finding:
    missing: list[str] = []
    tokens = len(text.tokens_T) - 1
    length = min(settings.window, tokens, text.window or settings.window)
    if length < _SHORTEST:
        raise UserError(f"{text.source} has {tokens} tokens, too few to follow a gradient", fix="give a longer text")
    machine = copy.deepcopy(subject.machine).double().eval()
    window_BT = text.window_tokens(length + 1, settings.rows or _WINDOWS).to(machine.like.device)
    flows = _follow_windows(machine, text, window_BT, settings.queries, progress)
    # Only distances that the earlier half of the queries has, too.
    sides = by_part(flows, reached_by=0.5)
    jacobians = Recurrence()
    if sides:
        x_T = window_BT[0, :-1]
        jacobians = recurrence(machine, x_T, progress, largest=settings.largest, steps=settings.steps)
        if not jacobians.eigenvalues_PN:
            missing.append(without_eigenvalues(machine, x_T, settings.largest))
    else:
        missing.append("Nothing here is learnt by gradients, so there are none to follow.")
    worth = _context_gain(subject.machine, text, settings, progress)
    clips = None if subject.run is None else clipping(subject.run.path)
    scaled, unscaled = (saturation(scaled=scaled, keys=settings.keys, draws=128) for scaled in (True, False))
    figures = [
        *picture.decays(sides, settings.threshold, _TOKENS, noise=0.0),
        *(
            picture.row_drawings(text.windows(length, settings.rows or _WINDOWS).at(0), flows[0], _TOKENS)
            if sides
            else ()
        ),
        *recurrence_figures(jacobians),
        context_figure(worth, settings.threshold),
        *clipping_figures(clips),
        *saturation_figures(scaled, unscaled, keys=settings.keys),
    ]
    return Finding(
        "gradient",
        "Gradients through time",
        subject.name,
        tuple(_text_sentences(subject.name, sides, worth, jacobians, settings.threshold)),
        tuple(figures),
        data={
            "window": length,
            "threshold": settings.threshold,
            "decay": {name: _decay_data(side.before, settings.threshold) for name, side in sides.items()},
            "queries": list(flows[0].queries),
            **jacobians.data(),
            "context": {
                **worth._asdict(),
                "memory_length": worth.length(settings.threshold),
                "memory_length_interval": worth.lengths(settings.threshold),
            },
            "clipping": clipping_data(clips),
            "saturation": {"scaled": scaled._asdict(), "unscaled": unscaled._asdict()},
        },
        missing=tuple(missing),
    )


def _follow_windows(
    machine: Machine[Any], text: TextSpecimens, window_BT: Tensor, queries: int, progress: Progress
) -> list[Flow]:
    inputs_BT, targets_BT = window_BT[:, :-1], window_BT[:, 1:]
    time = inputs_BT.shape[1]
    first = min(max(time // 3, 1), time - 1)
    at = sorted({round(first + (time - 1 - first) * (n + 1) / queries) for n in range(queries)})
    reader = machine if text.end_id is None else Documents(machine, begin_id=text.end_id)

    def loss_at(logits_BV: Tensor, t: int) -> Tensor:
        return F.cross_entropy(logits_BV, targets_BT[:, t], reduction="none")

    return follow(reader, inputs_BT, loss_at, at, progress)


def _context_gain(machine: Machine[Any], text: TextSpecimens, settings: GradientSettings, progress: Progress) -> Gain:
    wanted = min(settings.context, text.window or settings.context)
    longest = longest_context(len(text.tokens_T), wanted=wanted, targets=settings.targets)
    window_BT = text.window_tokens(longest + 1, settings.targets).to(machine.like.device)
    return gain(machine, window_BT, progress)


def _text_sentences(
    name: str, sides: dict[str, Sides], worth: Gain, jacobians: Recurrence, threshold: float
) -> list[str]:
    by_gain = f"{length_words(worth.length(threshold), worth.contexts[-1])} by the value of context"
    by_gain += unsure(worth, threshold)
    decay = next((side.before for side in sides.values()), None)  # of the input, where it has a gradient
    if decay is None:
        sentences = [f"The memory of {name} is {by_gain} long."]
    else:
        by_gradient = length_words(decay.length(threshold), decay.distance[-1])
        sentences = [f"The memory of {name} is {by_gradient} long by its gradients, and {by_gain}."]
    return [*sentences, *([stretch_sentence(jacobians.stretches)] if jacobians.stretches else [])]


# -------------------------------------------------------------------- rows of any task


def _on_rows(subject: Subject, specimens: Specimens, settings: GradientSettings, progress: Progress) -> Finding:
    words, missing = specimens.words, []
    precise = specimens.precise()
    numbers = _chosen(precise, settings.rows or _ROWS)
    rows = [precise.at(number) for number in numbers]
    large = [at for at, row in enumerate(rows) if not _in_parts(row) and row.x_TE.numel() > _PRECISE]
    if large:
        rows = [specimens.at(number) if at in large else rows[at] for at, number in enumerate(numbers)]
        missing.append(f"{len(large)} of {len(rows)} rows are so long that they were followed in single precision.")
    flows = []
    for row in progress.over(rows, "following gradients back"):
        queries = _queries(row, settings.queries)
        long = len(row) > _STATES
        flows.append(
            follow_long_row(row, queries) if long and _in_parts(row) else follow_row(row, queries, states=not long)
        )
    missing += _not_followed(specimens, rows)
    sides = by_part(flows)
    longest = max(range(len(rows)), key=lambda at: len(rows[at]))
    jacobians = _row_recurrence(rows[longest], flows[longest], settings, missing, progress)
    clips = None if subject.run is None else clipping(subject.run.path)
    figures: list[Drawing] = [
        *picture.decays(sides, settings.threshold, words),
        *picture.parts(flows, words),
        *picture.row_drawings(rows[longest], flows[longest], words),
        *recurrence_figures(jacobians),
        *clipping_figures(clips),
    ]
    return Finding(
        "gradient",
        "Gradients through the input",
        subject.name,
        tuple(_row_sentences(subject.name, specimens, rows, flows, sides, settings.threshold)),
        tuple(figures),
        data={
            "rows": [row.name for row in rows],
            "threshold": settings.threshold,
            "parts": picture.shares(flows),
            "decay": {
                name: {direction: _decay_data(decay, settings.threshold) for direction, decay in side._asdict().items()}
                for name, side in sides.items()
            },
            **jacobians.data(),
            "clipping": clipping_data(clips),
        },
        missing=tuple(missing),
    )


def _not_followed(specimens: Specimens, rows: list[Specimen]) -> list[str]:
    words, missing = specimens.words, []
    if any(len(row) > _STATES and _has_states(row) for row in rows):
        missing.append(f"Rows of more than {_STATES:,} {words.place}s are followed to the input, not to each state.")
    if not any(map(_has_states, rows)):
        missing.append("A row is read at once, or from several ends: there is no single state along it to follow.")
    if any(row.begin is not None and not row.readers for row in rows):
        missing.append(f"The {rows[0].parts[0].name} is read at once: there is no state along it to follow.")
    if not words.distance:
        missing.append(f"A {words.place} has no distance in time from the answer: there is only a map.")
    if not specimens.has_truth:
        missing.append("The right answers are not known: the loss is that of the model's own answers.")
    return missing


def _row_recurrence(
    row: Specimen, flow: Flow, settings: GradientSettings, missing: list[str], progress: Progress
) -> Recurrence:
    if row.machine is None or len(row) > _STATES:
        return Recurrence()
    z_TI = flow.z_TI[row.first :]
    with torch.no_grad():
        state = row.begun(flow.z_TI[None])
    jacobians = recurrence(row.machine, z_TI, progress, largest=settings.largest, steps=settings.steps, state=state)
    constant = constant_leaves(row.machine, z_TI, state)
    if not jacobians.eigenvalues_PN:
        missing.append(without_eigenvalues(row.machine, z_TI, settings.largest, state=state))
    elif constant:
        missing.append(f"{', '.join(constant)}: never changed by a step, so each of its numbers is an eigenvalue 1.")
    return jacobians


def _chosen(specimens: Specimens, count: int) -> list[int]:
    """Rows whose graph fits in memory. A row that is read along time is followed in chunks: any length fits."""
    numbers = choose_rows(specimens, count, shortest=_SHORTEST)
    first = specimens.at(numbers[0])
    if _in_parts(first):
        return numbers
    return choose_rows(specimens, count, shortest=_SHORTEST, longest=_HELD // first.x_TE.shape[1])


def _in_parts(row: Specimen) -> bool:
    """Whether a long row can be read again on the way back, chunk by chunk."""
    return row.machine is not None and row.begin is None


def _has_states(row: Specimen) -> bool:
    return row.machine is not None or bool(row.readers) or row.composed is not None


def _queries(row: Specimen, most: int) -> list[int]:
    count = len(row.questions)
    return [int(at) for at in np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int))]


def _row_sentences(
    name: str,
    specimens: Specimens,
    rows: list[Specimen],
    flows: list[Flow],
    sides: dict[str, Sides],
    threshold: float,
) -> list[str]:
    words = specimens.words
    inputs = {which: side for which, side in sides.items() if not picture.is_state(which)}
    answers = f"{sum(len(flow.queries) for flow in flows)} answers" if inputs else f"{len(rows)} answers"
    followed = f"Gradients of {name} were followed back from {answers} in {len(rows)} rows of {specimens.source}"
    if inputs:
        reaches = "; ".join(
            f"the {which} matters {picture.reach(side, threshold, words)}" for which, side in inputs.items()
        )
        followed = f"{followed}: {reaches}"
    sentences = [f"{followed}.", *(picture.parts_sentence(picture.shares(flows)) if inputs else [])]
    return [*sentences, picture.concentration(rows, flows, words)]


LENS = Lens(
    "gradient",
    "Gradients against distance, Jacobians, eigenvalues, memory length, clipping, softmax saturation.",
    quick=True,
    settings=GradientSettings,
    apply=apply,
)
