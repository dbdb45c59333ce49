"""The figures of the lens `gradient`, each with a sentence computed from its numbers.

Q queries, T time, P visited states, N numbers in a state.
"""

from collections.abc import Mapping, Sequence

from torch import Tensor

from statewise.display import plain, rough, share
from statewise.figures import Axis, Figure, Grid, Series
from statewise.inspection.gradient.clipping import Clipping
from statewise.inspection.gradient.context import Gain
from statewise.inspection.gradient.flow import Decay, Flow
from statewise.inspection.gradient.jacobian import Stretch
from statewise.inspection.gradient.saturation import Saturation

_WORDS = {"input": "what was read", "state": "the state"}
_NOISE = 1e-14  # of the largest singular value: below it double precision has nothing to say


def length_words(length: int | None, longest: int) -> str:
    if length is None:
        return f"more than the {longest:,} tokens that were tried"
    return f"about {length:,} token{'' if length == 1 else 's'}"


def decays(found: Mapping[str, Decay], threshold: float) -> list[Figure]:
    if not found:
        return []
    series, said = [], []
    for name, one in found.items():
        kept = [at for at, mean in enumerate(one.mean) if mean > 0]
        least = min(low for low in (*one.low, *(one.mean[at] for at in kept)) if low > 0)  # a logarithm has no 0
        series.append(
            Series(
                f"by {_WORDS[name]}",
                tuple(float(one.distance[at]) for at in kept),
                tuple(one.mean[at] for at in kept),
                tuple(max(one.low[at], least) for at in kept),
                tuple(max(one.high[at], least) for at in kept),
            )
        )
        length = one.length(threshold)
        where = (
            f"after {length:,} token{'' if length == 1 else 's'}"
            if length is not None
            else f"nowhere within {one.distance[-1]:,} tokens"
        )
        said.append(f"with respect to {_WORDS[name]}, below {share(threshold)} of its largest {where}")
    return [
        Figure(
            "gradient-distance",
            "How far back a loss reaches",
            "line",
            Axis("distance in tokens", unit="whole"),
            Axis("norm of ∂loss(t) / ∂(t − distance)", "log"),
            tuple(series),
            reading="The norm of the gradient of a token's loss with respect to what lies so many tokens before it, in "
            "the mean over tokens; the band holds the middle half. A straight fall is a fall by a constant factor.",
            finding=f"The gradient falls, {'; '.join(said)}.",
        )
    ]


def maps(flow: Flow) -> list[Figure]:
    found = []
    for name, norm_QTB in (("input", flow.input_QTB), ("state", flow.state_QTB)):
        if norm_QTB is None:
            continue
        mean_QT = norm_QTB.mean(-1)
        seen = mean_QT[mean_QT > 0]
        if not len(seen):
            continue
        high = float(seen.max())
        low = max(float(seen.min()), high * 1e-8)
        values = [[one if one == one and one > 0 else None for one in row] for row in mean_QT.tolist()]
        far = _far_share(flow.queries, mean_QT)
        found.append(
            Figure(
                f"gradient-map-{name}",
                f"Gradients by {_WORDS[name]}, as a map",
                "map",
                Axis("token that it flows to", unit="whole"),
                Axis("token whose loss it is", unit="whole"),
                (),
                reading="A row is the loss of one token; the colour says how much it would change with what stands at "
                "each token before it. Dark far to the left is a long memory.",
                finding=f"{share(far)} of the gradient flows further back than half of what could be reached.",
                grid=Grid(
                    tuple(map(tuple, values)),
                    "norm of the gradient",
                    x=tuple(float(t) for t in range(mean_QT.shape[1])),
                    y=tuple(float(q) for q in flow.queries),
                    log=True,
                    limits=(low, high) if high > low else None,
                ),
            )
        )
    return found


def _far_share(queries: Sequence[int], mean_QT: Tensor) -> float:
    far = whole = 0.0
    for row, query in enumerate(queries):
        norm_T = mean_QT[row, : query + 1]
        far += float(norm_T[: (query + 1) // 2].sum())
        whole += float(norm_T.sum())
    return far / whole if whole else 0.0


def jacobians(stretches: Sequence[Stretch], found_PN: Sequence[Tensor]) -> list[Figure]:
    figures = []
    if stretches:
        series = []
        exact = [one for one in stretches if one.singular]
        for name, place in (("largest", 0.0), ("median", 0.5), ("smallest", 1.0)):
            values = [(one, one.singular[round(place * (len(one.singular) - 1))]) for one in exact]
            kept = [(float(one.steps), value) for one, value in values if value > _NOISE * one.singular[0]]
            if kept:
                series.append(_series(f"{name} singular value", kept))
        means = [(float(one.steps), one.rms) for one in stretches if one.rms > 0]
        if means:
            series.append(_series("root mean square", means))
        figures.append(
            Figure(
                "gradient-jacobian",
                "What some steps do to a small change of the state",
                "line",
                Axis("steps", "log", "whole", base=2),
                Axis("singular value", "log"),
                tuple(series),
                reading="Singular values of ∂state(t + steps) / ∂state(t), the product of the Jacobians on the way: "
                "above 1 a change grows, below 1 it is forgotten.",
                finding=stretch_sentence(stretches),
            )
        )
    if found_PN:
        radius = [float(one.abs().max()) for one in found_PN]
        outside = sum(int((one.abs() > 1).sum()) for one in found_PN)
        figures.append(
            Figure(
                "gradient-eigenvalues",
                "Eigenvalues of one step",
                "plane",
                Axis("real part"),
                Axis("imaginary part"),
                tuple(
                    Series(f"at state {at + 1}", tuple(one.real.tolist()), tuple(one.imag.tolist()))
                    for at, one in enumerate(found_PN)
                ),
                reading="Eigenvalues of ∂state(t + 1) / ∂state(t) at states that the text visits, with the unit "
                "circle: inside it what is remembered fades, outside it grows.",
                finding=f"The spectral radius is {', '.join(map(plain, radius))}; {outside} of "
                f"{sum(map(len, found_PN)):,} eigenvalues lie outside of the circle.",
                circle=1.0,
            )
        )
    return figures


def _series(name: str, points: Sequence[tuple[float, float]]) -> Series:
    return Series(name, tuple(x for x, _ in points), tuple(y for _, y in points))


def stretch_sentence(stretches: Sequence[Stretch]) -> str:
    first, last = stretches[0], stretches[-1]
    largest = f", its largest part by {rough(last.singular[0])}" if last.singular else ""
    word = "shrinks" if last.rms < 0.95 else "stretches" if last.rms > 1.05 else "keeps"  # as far as it is printed
    return (
        f"One step multiplies a small change of the state by {rough(first.rms)} in the mean; {last.steps} steps "
        f"by {rough(last.rms)}{largest}: the state {word} what it is told."
    )


def context(worth: Gain, threshold: float) -> Figure:
    extra = tuple(nats - worth.nats[-1] for nats in worth.nats)
    return Figure(
        "gradient-context",
        "What context is worth",
        "line",
        Axis("tokens of context", "log", "whole", base=2),
        Axis("nats above the longest context"),
        (
            Series(
                "mean over the same tokens",
                tuple(map(float, worth.contexts)),
                extra,
                tuple(one - half for one, half in zip(extra, worth.half)),
                tuple(one + half for one, half in zip(extra, worth.half)),
            ),
        ),
        reading=f"The same {worth.targets:,} token{'' if worth.targets == 1 else 's'}, predicted from only so many "
        "before them: how much dearer they are than with the longest context. The band is a 95 % interval.",
        finding=_worth_sentence(worth, threshold),
    )


def _worth_sentence(worth: Gain, threshold: float) -> str:
    saved, longest = worth.nats[0] - worth.nats[-1], worth.contexts[-1]
    if saved <= 0:
        return (
            f"With {longest:,} tokens of context they cost {plain(-saved)} nats more than with 1: it is worth nothing."
        )
    return (
        f"From 1 token to {longest:,}, context is worth {plain(saved)} nats; all but {share(threshold)} of it is had "
        f"with {length_words(worth.length(threshold), longest)}{unsure(worth, threshold)}."
    )


def unsure(worth: Gain, threshold: float) -> str:
    """How far the interval of the losses leaves the length open, in brackets; nothing where it does not."""
    if worth.targets == 1:
        return " (tried on a single token, which says little)"
    least, most = worth.lengths(threshold)
    if least == most:
        return ""
    more = f"more than {worth.contexts[-1]:,}"
    return (
        f" (from {more if least is None else f'{least:,}'} to {more if most is None else f'{most:,}'}, by the interval)"
    )


def clips(found: Clipping | None) -> list[Figure]:
    if found is None:
        return []
    return [
        Figure(
            "gradient-clipping",
            "Clip events over training",
            "line",
            Axis("step", unit="whole"),
            Axis("share of steps, and norm"),
            (
                Series("share of steps that were clipped", tuple(map(float, found.steps)), found.share),
                Series("largest gradient norm", tuple(map(float, found.steps)), found.norm),
            ),
            reading="At each note in the journal: how many of the steps since the last one had their gradient scaled "
            "down to the largest norm allowed, and the largest norm before that.",
            finding=f"{share(found.total)} of all steps were clipped; the largest norm was {plain(max(found.norm))}.",
        )
    ]


def softmax(scaled: Saturation, unscaled: Saturation, *, keys: int) -> list[Figure]:
    widths = tuple(map(float, scaled.widths))
    width = Axis("width of a head, k", "log", "whole", base=2)
    cases: tuple[tuple[str, str, Axis, str, str], ...] = (
        (
            "gradient-saturation-weight",
            "Why attention divides by √k: saturation",
            Axis("largest weight"),
            "largest",
            f"A softmax over the dot products of a random query with {keys} random keys: its largest weight. At 1 it "
            "is no longer a mean, but a choice.",
        ),
        (
            "gradient-saturation-gradient",
            "Why attention divides by √k: its gradient",
            Axis("norm of the softmax's Jacobian", "log"),
            "gradient",
            "The same softmax: how much its weights move with its scores. Where it is saturated, little is learnt.",
        ),
    )
    last = scaled.widths[-1]
    figures = []
    for name, title, axis, field, how in cases:
        divided, bare = getattr(scaled, field), getattr(unscaled, field)
        figures.append(
            Figure(
                name,
                title,
                "line",
                width,
                axis,
                (Series("divided by √k", widths, divided), Series("not divided", widths, bare)),
                reading=how,
                finding=f"At k = {last:,} it is {plain(divided[-1])} with the division and {plain(bare[-1])} without; "
                f"at k = {scaled.widths[0]} the two are {plain(divided[0])} and {plain(bare[0])}.",
            )
        )
    return figures
