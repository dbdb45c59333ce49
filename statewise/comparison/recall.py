"""Attribution in a recall study: which of the tokens that were read decide the answer?

T places of a row.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from statewise.comparison.record import trial_folder
from statewise.comparison.report import Part
from statewise.figures import Axis, Figure, Grid
from statewise.models import classes_of
from statewise.specs import LookSpec, UserError
from statewise.tasks import Specimen, Specimens, load

Floats = NDArray[np.float64]
_STRETCHES = 4  # that the filler is shown in
_NOTHING = 0.01  # a share below which a token does not count


class Rows(NamedTuple):
    """Held-out rows of one length that ask for the first pair, and the role of each position."""

    rows: list[Specimen]
    stretches: tuple[tuple[str, slice], ...]  # names of places; the first is the pair asked for, its key and its value


def gradient_map(look: LookSpec | None, parts: Sequence[Part]) -> Figure | None:
    """The share of the answer's gradient on each token, by entry; None where no look is asked for or possible."""
    part = next((part for part in parts if look is not None and part.name == look.part), None)
    if look is None or part is None:
        return None
    shares: dict[str, list[Floats]] = {}
    counts: dict[int, int] = {}  # rows by seed: each has held-out rows of its own
    for result in part.found:
        folder = trial_folder(part.folder, result.key) / "run"
        if result.phase != "final" or not folder.is_dir():
            continue
        run = load(folder, mixer=classes_of(part.study.mixers))
        data = run.spec.data.model_dump()
        if data.get("embedded") != "recall" or data["train"]:
            raise UserError(f"part {part.name!r} is not a study of embedded recall", fix="leave [look] out")
        # In double precision: what is left of a gradient after many steps is small, and must not be rounding.
        rows = first_pair_rows(run.specimens().precise(), distance=data["distance"] * data["longer"], most=look.rows)
        norms = np.stack([influence(row) for row in rows.rows])
        share_T = (norms / norms.sum(axis=1, keepdims=True)).mean(axis=0)
        shares.setdefault(result.entry, []).append(np.array([share_T[at].sum() for _, at in rows.stretches]))
        counts[result.seed] = len(rows.rows)
    if not counts:
        return None
    count = sum(counts.values())
    means = {entry.name: np.mean(shares[entry.name], axis=0) for entry in part.entries if entry.name in shares}
    names = tuple(name for name, _ in rows.stretches)
    return Figure(
        name="look",
        title="What decides the answer",
        kind="map",
        x=Axis("what was read, from the first token to the last", "category", categories=names),
        y=Axis("", "category", categories=tuple(means)),
        series=(),
        reading=(
            "A row is a model, a column a token of the input. The colour is the token's share of the gradient of the "
            "answer's log-probability: how much a small change of that token would change the answer. In all rows the "
            f"first pair is asked for; mean over {count} held-out rows."
        ),
        finding=_finding(means),
        grid=Grid(tuple(tuple(map(float, share)) for share in means.values()), "gradient share"),
    )


def first_pair_rows(specimens: Specimens, *, distance: int, most: int) -> Rows:
    """Of the held-out rows; the pair asked for is then the one that was read longest ago."""
    rows: list[Specimen] = []
    for number in range(len(specimens)):
        row = specimens.at(number)
        if row.pieces[0].strip() == row.pieces[-1].strip():
            rows.append(row)
        if len(rows) == most:
            break
    length = len(rows[0])
    shown = length - 2 - distance  # keys and values
    places = [("key asked for", slice(0, 1)), ("its value", slice(1, 2))]
    for pair in range(1, shown // 2):
        places += [(f"key {pair + 1}", slice(2 * pair, 2 * pair + 1))]
        places += [(f"value {pair + 1}", slice(2 * pair + 1, 2 * pair + 2))]
    cuts = [shown + distance * at // _STRETCHES for at in range(_STRETCHES + 1)]
    for begin, end in pairwise(cuts):
        if end > begin:
            places.append((f"filler {begin - shown + 1}–{end - shown}", slice(begin, end)))
    places += [("?", slice(length - 2, length - 1)), ("the key again", slice(length - 1, length))]
    return Rows(rows, tuple(places))


def influence(row: Specimen) -> Floats:
    """`[T]`: the norm of the gradient of the answer's loss by the vector of each token."""
    with torch.enable_grad():
        x_1TE = row.x_TE[None].detach().requires_grad_()
        (gradient_1TE,) = torch.autograd.grad(row.costs(x_1TE).sum(), x_1TE)
    norms: Floats = gradient_1TE[0].norm(dim=-1).cpu().numpy()
    return norms


def _finding(means: dict[str, Floats]) -> str:
    """Which entries single out the value asked for, and which do not reach as far back as the pairs."""
    reached = {name: float(share[:8].sum()) for name, share in means.items()}
    ratios = {name: float(means[name][1] / means[name][3:8:2].mean()) for name in means if reached[name] >= _NOTHING}
    said = []
    if ratios:
        ordered = sorted(ratios, key=lambda name: -ratios[name])
        listed = ", ".join(f"{ratios[name]:.2g} in {name}" for name in ordered)
        said.append(f"Weight of the value asked for, relative to the other values: {listed}.")
    if lost := [name for name in means if reached[name] < _NOTHING]:
        said.append(f"In {' and '.join(lost)}, less than {_NOTHING:.0%} of the gradient reaches any pair.")
    return " ".join(said)
