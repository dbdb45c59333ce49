"""What a trained run answers, shown beside the truth: the same held-out rows for every entry of a study."""

from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np
import torch

from statewise.comparison.trial import Answer, Course
from statewise.data import NO_LABEL
from statewise.tasks import Run
from statewise.tasks.classification import ClassificationRun
from statewise.tasks.classification import examples as rows
from statewise.tasks.classification import log_probabilities as class_probabilities
from statewise.tasks.forecasting import ForecastingRun, read_parts
from statewise.tasks.tagging import TaggingRun, by_sentence, encode, guess
from statewise.tasks.tagging import examples as sentences
from statewise.tasks.translation import TranslationRun
from statewise.tasks.translation import examples as pairs
from statewise.tasks.tree import TreeRun, counted, log_probabilities, make_trees
from statewise.tasks.tree import examples as trees

_MOST = 60  # answers that are kept of a trial
_PAST = 2  # horizons of what came before a forecast that are shown with it
_AROUND = 6  # words on either side of one that is tagged


def answers(run: Run) -> list[Answer] | None:
    """Of the first held-out rows; None where a run does not answer but write, or forecast."""
    match run:
        case TranslationRun():
            found = _translated(run)
        case ClassificationRun():
            found = _classified(run)
        case TaggingRun():
            found = _tagged(run)
        case TreeRun():
            found = _composed(run)
        case _:
            return None
    return list(islice(found, _MOST))


def _translated(run: TranslationRun) -> Iterator[Answer]:
    held = pairs.read_split(run.spec.data, seed=run.spec.seed)[1]
    some = held.chosen(range(min(_MOST, len(held))))
    for source, target, written in zip(some.sources, some.targets, run.translate(list(some.sources))):
        yield Answer(source, "", " ".join(target.split()), " ".join(written.split()))


def _classified(run: ClassificationRun) -> Iterator[Answer]:
    held = rows.read_split(run.spec.data, seed=run.spec.seed)[1]
    some = held.chosen(np.arange(min(_MOST, len(held.labels))))
    log_NK = class_probabilities(run.model, run.encoding.encode(some.content), device=run.device)
    guessed = run.classes.decode(log_NK.argmax(-1).tolist())
    for content, where, label, answer in zip(some.content, some.where, some.labels, guessed):
        yield Answer(content if isinstance(content, str) else str(where), "", label, answer)


def _tagged(run: TaggingRun) -> Iterator[Answer]:
    """Word by word, each with some of what stands around it."""
    some = sentences.read_split(run.spec.data, seed=run.spec.seed)[1][:_MOST]
    guessed = guess(run.model, encode(run.spec, run.known, some), device=run.device)
    for one, tags in zip(some, by_sentence(run.known.tags.decode(guessed.best_N.tolist()), some)):
        for at, (true, answer) in enumerate(zip(one.tags, tags)):
            around = slice(max(at - _AROUND, 0), at), slice(at + 1, at + 1 + _AROUND)
            before, after = (" ".join(one.words[part]) for part in around)
            yield Answer(f"{before} [{one.words[at]}] {after}".strip(), one.words[at], true, answer)


def _composed(run: TreeRun) -> Iterator[Answer]:
    """Of the root: whoever reads words is asked no other node."""
    held = trees.read_split(run.spec.read_data, seed=run.spec.seed)[1]
    some = held.chosen(np.arange(min(_MOST, len(held.trees))))
    made = make_trees(run.spec, some, run.tokenizer, run.classes)
    label_N = counted(made, roots_only=True)
    log_NK = log_probabilities(run.model, made, wanted_N=label_N != NO_LABEL, device=run.device)
    guessed = run.classes.decode(log_NK[made.first_B].argmax(-1).tolist())
    for tree, root, answer in zip(some.trees, made.first_B, guessed):
        if label_N[root] != NO_LABEL:
            yield Answer(" ".join(tree.sentence()), "", str(tree.root_label), answer)


@torch.no_grad()
def course(run: Run) -> Course | None:
    """What lies ahead of the first held-out moment that has a whole past, as it was forecast and as it came."""
    if not isinstance(run, ForecastingRun) or not isinstance(context := run.spec.forecast.context, int):
        return None
    horizon = run.spec.forecast.horizon
    parts = read_parts(run.spec.data, seed=run.spec.seed)
    for span in parts.test or parts.validation:
        origin = max(span.begin, span.reach + context)
        if origin + horizon > span.end:
            continue
        ahead = run.forecast(span.series, origin=origin)
        past_T = span.series.values_TC[max(origin - _PAST * horizon, 0) : origin, 0]
        truth_H = span.series.values_TC[origin : origin + horizon, 0]
        return Course(
            name=f"{span.series.channels[0]} from {_moment(span.series.time_T[origin])}",
            past=_numbers(past_T.tolist()),
            truth=_numbers(truth_H.tolist()),
            forecast=_numbers(ahead.mean_HC[:, 0].tolist()),
        )
    return None


def _moment(time: np.generic) -> str:
    """As few parts of it as it has: no seconds where there are only hours."""
    return str(np.datetime_as_string(time, unit="auto")) if isinstance(time, np.datetime64) else f"{time}"


def _numbers(values: Sequence[float]) -> list[float | None]:
    """A missing value has no number in JSON either."""
    return [value if np.isfinite(value) else None for value in values]
