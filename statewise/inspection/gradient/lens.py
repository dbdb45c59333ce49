"""The lens `gradient`: gradients through time, Jacobians, memory length, clipping, saturation."""

import copy
from typing import Any

from torch import Tensor
from torch.nn import functional as F

from statewise.core import Machine
from statewise.inspection.finding import Finding
from statewise.inspection.gradient import picture
from statewise.inspection.gradient.clipping import clipping
from statewise.inspection.gradient.context import Gain, gain, longest_context
from statewise.inspection.gradient.flow import Decay, Flow, decay, follow
from statewise.inspection.gradient.jacobian import Stretch
from statewise.inspection.gradient.recurrence import jacobians, without_eigenvalues
from statewise.inspection.gradient.rows import look_at_rows
from statewise.inspection.gradient.saturation import saturation
from statewise.inspection.gradient.settings import SHORTEST, GradientSettings
from statewise.inspection.lens import ROW_TASKS, Lens
from statewise.inspection.progress import Progress
from statewise.inspection.reading import Reading, windows
from statewise.inspection.subject import Subject
from statewise.specs import UserError
from statewise.tasks.language_model import Documents

_WINDOWS = 4


def look(subject: Subject, settings: GradientSettings, progress: Progress) -> Finding:
    if subject.specimens is not None:
        return look_at_rows(subject, subject.specimens, settings, progress)
    reading, missing = subject.tokens, []
    length = min(settings.window, len(reading) - 1, reading.window or settings.window)
    if length < SHORTEST:
        raise UserError(
            f"{reading.source} has {len(reading) - 1} tokens, too few to follow a gradient", fix="give a longer text"
        )
    # In double precision: what is left of a gradient after many steps is small, and must not be noise.
    machine = copy.deepcopy(subject.machine).double().eval()
    window_BT = windows(reading, length + 1, settings.rows or _WINDOWS).to(machine.like.device)
    flow = _flow(machine, reading, window_BT, settings.queries, progress)
    decays = {
        name: decay(flow.queries, norm_QTB)
        for name, norm_QTB in (("input", flow.input_QTB), ("state", flow.state_QTB))
        if norm_QTB is not None and bool((norm_QTB.nan_to_num() > 0).any())
    }
    if not decays:
        missing.append("Nothing here is learnt by gradients, so there are none to follow.")
    stretches, found_PN = jacobians(machine, window_BT[0, :-1], settings, progress) if decays else ([], [])
    if decays and not found_PN:
        missing.append(without_eigenvalues(machine, window_BT[0, :-1], settings.largest))
    worth = _worth(subject.machine, reading, settings, progress)
    clips = None if subject.run is None else clipping(subject.run.path)
    shares = [saturation(scaled=scaled, keys=settings.keys, draws=128) for scaled in (True, False)]
    figures = [
        *picture.decays(decays, settings.threshold),
        *picture.maps(flow),
        *picture.jacobians(stretches, found_PN),
        picture.context(worth, settings.threshold),
        *picture.clips(clips),
        *picture.softmax(*shares, keys=settings.keys),
    ]
    return Finding(
        "gradient",
        "Gradients through time",
        subject.name,
        tuple(_sentences(subject.name, decays, worth, stretches, settings.threshold)),
        tuple(figures),
        data=_data(decays, flow, stretches, found_PN, worth, clips, shares, settings, length),
        missing=tuple(missing),
    )


def _flow(machine: Machine[Any], reading: Reading, window_BT: Tensor, queries: int, progress: Progress) -> Flow:
    inputs_BT, targets_BT = window_BT[:, :-1], window_BT[:, 1:]
    time = inputs_BT.shape[1]
    first = min(max(time // 3, 1), time - 1)
    at = sorted({round(first + (time - 1 - first) * (n + 1) / queries) for n in range(queries)})
    read = machine if reading.end_id is None else Documents(machine, end_id=reading.end_id)

    def loss_at(logits_BV: Tensor, t: int) -> Tensor:
        return F.cross_entropy(logits_BV, targets_BT[:, t], reduction="none")

    return follow(read, inputs_BT, loss_at, at, progress)


def _worth(machine: Machine[Any], reading: Reading, settings: GradientSettings, progress: Progress) -> Gain:
    wanted = min(settings.context, reading.window or settings.context)
    longest = longest_context(len(reading), wanted=wanted, targets=settings.targets)
    window_BT = windows(reading, longest + 1, settings.targets).to(machine.like.device)
    return gain(machine, window_BT, progress)


def _sentences(
    name: str, decays: dict[str, Decay], worth: Gain, stretches: list[Stretch], threshold: float
) -> list[str]:
    said = []
    by_gain = picture.length_words(worth.length(threshold), worth.contexts[-1])
    open_end = picture.unsure(worth, threshold)
    if decays:
        shown = decays.get("input", decays.get("state"))
        assert shown is not None
        by_gradient = picture.length_words(shown.length(threshold), shown.distance[-1])
        said.append(
            f"{name} remembers {by_gradient} by its gradients, and {by_gain} by what context is worth to it{open_end}."
        )
    else:
        said.append(f"{name} remembers {by_gain} by what context is worth to it{open_end}.")
    if stretches:
        said.append(picture.stretch_sentence(stretches))
    return said


def _data(
    decays: dict[str, Decay],
    flow: Flow,
    stretches: list[Stretch],
    found_PN: list[Tensor],
    worth: Gain,
    clips: Any,
    shares: list[Any],
    settings: GradientSettings,
    length: int,
) -> dict[str, Any]:
    return {
        "window": length,
        "threshold": settings.threshold,
        "decay": {
            name: {**one._asdict(), "memory_length": one.length(settings.threshold)} for name, one in decays.items()
        },
        "queries": list(flow.queries),
        "jacobian": [
            {"steps": one.steps, "rms": one.rms, "largest": one.singular[0] if one.singular else None}
            for one in stretches
        ],
        "spectral_radius": [float(one_N.abs().max()) for one_N in found_PN],
        "context": {
            **worth._asdict(),
            "memory_length": worth.length(settings.threshold),
            "memory_length_interval": worth.lengths(settings.threshold),
        },
        "clipping": None if clips is None else {**clips._asdict(), "total": clips.total},
        "saturation": {name: one._asdict() for name, one in zip(("scaled", "unscaled"), shares)},
    }


LENS = Lens(
    "gradient",
    "Gradients against distance, Jacobians, eigenvalues, memory length, clipping, softmax saturation.",
    ("language_model", *ROW_TASKS),
    quick=True,
    settings=GradientSettings,
    look=look,
)
