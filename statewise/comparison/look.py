"""A look inside the trained models of a recall study: which of the tokens that were read decide the answer?

B rows, T places of a row, E width of a token's vector, K classes.
"""

import copy
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from statewise.comparison.record import trial_folder
from statewise.comparison.report import Part
from statewise.figures import Axis, Figure, Grid
from statewise.models import Classifier, classes_of
from statewise.specs import ClassificationSpec, LookSpec, UserError
from statewise.tasks import load
from statewise.tasks.classification import ClassificationRun, read_split

Floats = NDArray[np.float64]
_STRETCHES = 4  # that the filler is shown in
_NOTHING = 0.01  # a share below which a token does not count


class Rows(NamedTuple):
    """Held-out rows of one length in which the first pair is asked for, and what stands at each place."""

    texts: list[str]
    labels: list[str]
    stretches: tuple[tuple[str, slice], ...]  # names of places; the first is the pair asked for, its key and its value


def look_inside(look: LookSpec | None, parts: Sequence[Part]) -> Figure | None:
    """How much of the answer's gradient falls on each token, by entry; None where no look is asked for or possible."""
    part = next((part for part in parts if look is not None and part.name == look.part), None)
    if look is None or part is None:
        return None
    shares: dict[str, list[Floats]] = {}
    by_seed: dict[int, Rows] = {}  # each seed has held-out rows of its own
    for found in part.found:
        folder = trial_folder(part.folder, found.key) / "run"
        if found.phase != "final" or not folder.is_dir():
            continue
        run = load(folder, mixer=classes_of(part.study.mixers))
        if not isinstance(run, ClassificationRun) or run.spec.data.embedded != "recall" or run.spec.data.train:
            raise UserError(f"part {part.name!r} is not a study of embedded recall", fix="leave [look] out")
        if found.seed not in by_seed:
            by_seed[found.seed] = first_pair_rows(run.spec, most=look.rows)
        rows = by_seed[found.seed]
        norm_BT = influence(run, rows.texts, rows.labels)
        share_T = (norm_BT / norm_BT.sum(axis=1, keepdims=True)).mean(axis=0)
        shares.setdefault(found.entry, []).append(np.array([share_T[at].sum() for _, at in rows.stretches]))
    if not by_seed:
        return None
    count = sum(len(rows.texts) for rows in by_seed.values())
    means = {entry.name: np.mean(shares[entry.name], axis=0) for entry in part.entries if entry.name in shares}
    names = tuple(name for name, _ in next(iter(by_seed.values())).stretches)
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


def first_pair_rows(spec: ClassificationSpec, *, most: int) -> Rows:
    """Of the held-out rows; the pair asked for is then the one that was read longest ago."""
    data, held = spec.data, read_split(spec.data, seed=spec.seed)[1]
    chosen = [(text, label) for text, label in zip(held.content, held.labels) if text.split()[0] == text.split()[-1]]
    texts, labels = zip(*chosen[:most])
    length = len(texts[0].split())
    shown = length - 2 - data.distance  # keys and values
    places = [("key asked for", slice(0, 1)), ("its value", slice(1, 2))]
    for pair in range(1, shown // 2):
        places += [(f"key {pair + 1}", slice(2 * pair, 2 * pair + 1))]
        places += [(f"value {pair + 1}", slice(2 * pair + 1, 2 * pair + 2))]
    cuts = [shown + data.distance * at // _STRETCHES for at in range(_STRETCHES + 1)]
    for begin, end in pairwise(cuts):
        if end > begin:
            places.append((f"filler {begin - shown + 1}–{end - shown}", slice(begin, end)))
    places += [("?", slice(length - 2, length - 1)), ("the key again", slice(length - 1, length))]
    return Rows(list(texts), list(labels), tuple(places))


def influence(run: ClassificationRun, texts: Sequence[str], labels: Sequence[str]) -> Floats:
    """`[B, T]`: the norm of the gradient of log p(label) by the vector of each token. Rows have one length.

    In double precision: what is left of a gradient after many steps is small, and must not be rounding.
    """
    assert isinstance(run.model, Classifier), "it reads rows of tokens"
    model = copy.deepcopy(run.model).double().eval()
    rows = run.encoding.encode(list(texts))
    batch = rows.batch(np.arange(len(rows))).to(run.device)
    label_B = torch.tensor([run.classes.names.index(label) for label in labels], device=run.device)
    with torch.enable_grad():
        x_BTE = model.reader.entry(batch.source).detach().requires_grad_()
        encoded = model.reader.encoded(model.reader.read(model.reader.admit(x_BTE)).outputs_BSC, batch.size_B)
        log_BK = model.head(encoded.summary_BC).log_softmax(-1)
        (gradient_BTE,) = torch.autograd.grad(log_BK.gather(1, label_B[:, None]).sum(), x_BTE)
    norms: Floats = gradient_BTE.norm(dim=-1).cpu().numpy()
    return norms


def _finding(means: dict[str, Floats]) -> str:
    """Who tells the value asked for from the others, and who does not reach as far back as the pairs."""
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
