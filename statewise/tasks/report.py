"""What an evaluation measured, in a shape that every task shares: a model between its trivial baselines."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any, NamedTuple, Protocol, TypeGuard, TypeVar

from statewise.figures import Table, html
from statewise.tasks.metric import metric_of

_FITS = 8  # columns on a narrow terminal, and letters in each
_MANY = 0.2  # a share of unknown tokens that no text in the language of the training data should have


class More(NamedTuple):
    """A further table, beside the metrics."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def table(self) -> Table:
        return Table.of_texts(self.columns, self.rows)


class Report(NamedTuple):
    """A table: a row for each predictor, its metrics under `columns`. `own` is the row of the model itself."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    own: int
    note: str  # one line below the table
    more: tuple[More, ...] = ()
    warning: str = ""  # that a trivial predictor is better

    def table(self) -> Table:
        return Table.of_texts(("predictor", *self.columns), self.rows)._replace(best=self.own)

    def as_text(self) -> str:
        tables = (f"\n{more.title}\n{more.table().as_text()}" for more in self.more)
        return "\n".join([self.table().as_text(), self.note, *tables])

    def as_html(self) -> str:
        tables = (f"<h4>{escape(more.title)}</h4>{html.table(more.table())}" for more in self.more)
        return "".join([html.table(self.table()), f"<p>{escape(self.note)}</p>", *tables])


def confusion_table(labels: Sequence[str], confusion: Sequence[Sequence[int]]) -> tuple[More, ...]:
    """How often each class was predicted for each, where that fits on a screen."""
    if not 2 <= len(labels) <= _FITS:
        return ()
    names = [label if len(label) <= _FITS else f"{label[: _FITS - 1]}…" for label in labels]
    rows = tuple((name, *(f"{count:,}" for count in row)) for name, row in zip(names, confusion, strict=True))
    return (More("confusion matrix (rows: true, columns: predicted)", ("true", *names), rows),)


class Evaluation(Protocol):
    """A NamedTuple of metrics, decorated with `shows_report`."""

    def _asdict(self) -> dict[str, Any]: ...

    def report(self, name: str) -> Report:
        """The metrics beside those of trivial baselines. `name` is what the model is called."""


class TimeWords(NamedTuple):
    """How a report speaks of what may change with time."""

    subject: str
    question: str
    rows: str  # what they are


class StationarityTest(Evaluation, Protocol):
    """Whether something changes with time."""

    @property
    def words(self) -> TimeWords: ...
    def as_dict(self) -> dict[str, Any]: ...


E = TypeVar("E", bound=type[Any])


def shows_report(cls: E) -> E:
    """Decorate the NamedTuple of an evaluation, so that it prints the table that `statewise evaluate` prints."""

    def text(self: Evaluation) -> str:
        return self.report("this model").as_text()

    def page(self: Any) -> str:
        curve: str = self.run.history.curve_html() if self.run else ""
        return f"{self.report('this model').as_html()}{curve}"

    shown = {name: getattr(cls, name) for name in ("__doc__", "__module__", "__qualname__", "__annotations__")}
    made: E = type(cls.__name__, (cls,), {**shown, "__repr__": text, "_repr_html_": page, "run": None})  # type: ignore[assignment]  # a NamedTuple has no other base
    return made


F = TypeVar("F", bound=Callable[..., Any])


def of_this_run(evaluate: F) -> F:
    """Decorate the `evaluate` of a run: in a notebook, what it returns shows the run's learning curve too."""

    @functools.wraps(evaluate)
    def evaluated(self: Any, *args: Any, **options: Any) -> Any:
        evaluation = evaluate(self, *args, **options)
        evaluation.run = self
        return evaluation

    return evaluated  # type: ignore[return-value]  # the same signature


def unknown_note(share: float | None, *, of: str = "tokens") -> str:
    """What a reader should know of words that the vocabulary lacks; where they are many, what to do."""
    if not share:
        return ""
    advice = "; byte or bpe as data.tokenizer reads any text" if share > _MANY else ""
    return f" · {percent(share)} of the {of} unknown{advice}"


def percent(share: float | None) -> str:
    """`99.7 %`; nothing for None."""
    return "" if share is None else f"{100 * share:.1f} %"


def worse_than_trivial(
    name: str, metric: str, own: float | None, trivial: Mapping[str, float | None], *, label: str = ""
) -> str:
    """A sentence where a trivial predictor has a better `metric` than the model, else nothing.

    >>> worse_than_trivial("lstm", "perplexity", 80.0, {"the unigram baseline": 25.5})
    'lstm is worse than the unigram baseline: perplexity 80 against 25.5; train longer, or try another learning rate'
    """
    known = {key: value for key, value in trivial.items() if value is not None}
    if own is None or not known:
        return ""
    better = metric_of(metric).better
    best = (min if better == "lower" else max)(known, key=lambda key: known[key])
    if math.isfinite(own) and (own <= known[best] if better == "lower" else own >= known[best]):
        return ""
    return (
        f"{name} is worse than {best}: {label or metric.replace('_', ' ')} {own:.4g} against {known[best]:.4g}; "
        "train longer, or try another learning rate"
    )


# Fields of an evaluation, or their prefixes, that hold the metrics of a trivial predictor, and its name.
_TRIVIAL = {
    "uniform": "blind guess",
    "majority": "most frequent class",
    "unigram": "token frequencies",
    "lexicon": "tag by word alone",
}
_TRIVIAL_OUTPUTS = {"copy": "source copied", "frequent": "one fixed target"}
_LIKE_ACCURACY = ("accuracy", "root_accuracy", "node_accuracy")


def trivial_scores(evaluation: Mapping[str, Any], metric: str) -> dict[str, float]:
    """The metric of every trivial predictor that an evaluation reports beside the model, by the predictor's name."""
    found: dict[str, Any] = {}
    for prefix, name in _TRIVIAL.items():
        value = evaluation.get(f"{prefix}_{metric}")
        found[name] = evaluation.get(f"{prefix}_accuracy") if value is None and metric in _LIKE_ACCURACY else value
    for field, name in _TRIVIAL_OUTPUTS.items():
        found[name] = (evaluation.get(field) or {}).get(metric)
    for name, table in (evaluation.get("baselines") or {}).items():
        found[name] = table.get(metric)
    if metric == "bits_per_byte":
        tokens = evaluation["tokens"] / evaluation["bytes"]
        found |= {
            name: math.log2(evaluation[f"{prefix}_perplexity"]) * tokens
            for prefix, name in _TRIVIAL.items()
            if is_finite(evaluation.get(f"{prefix}_perplexity"))
        }
    return {name: float(value) for name, value in found.items() if is_finite(value)}


def is_finite(value: object) -> TypeGuard[float]:
    return isinstance(value, float | int) and not isinstance(value, bool) and math.isfinite(value)
