"""A comparison as data: entries, seeds, what is held equal, what is searched, and which figure answers."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, PrivateAttr, model_validator

from statewise.specs.base import Spec
from statewise.specs.custom import OwnMixer

Scalar = str | int | float | bool
SizeKind = Literal["parameters", "state_bytes"]  # met by the width
TrainingKind = Literal["flops", "tokens", "seconds"]  # met by how long an entry trains
HeldKind = SizeKind | TrainingKind
_UNSAID = "a budget of seconds needs its amount, for example amount = 60"


def _none(value: Any) -> Any:
    """TOML has no word for nothing."""
    return None if value == "none" else value


class TrainingBudgetSpec(Spec):
    """How long every entry trains, beside its size."""

    kind: TrainingKind
    amount: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="how much of it; none: as much as the first entry has as written"
    )

    @model_validator(mode="after")
    def _says_how_many_seconds(self) -> Self:
        if self.kind == "seconds" and self.amount is None:
            raise ValueError(_UNSAID)
        return self


class BudgetSpec(Spec):
    """What all entries have the same of. Each entry's width, or how long it trains, is chosen to meet it."""

    kind: Literal["none"] | HeldKind = Field(
        "parameters",
        description="parameters or bytes of state after `context` tokens (widths are solved), training FLOPs, tokens "
        "or seconds (widths stay as written)",
    )
    amount: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="how much of it; none: as much as the first entry has as written"
    )
    also: TrainingBudgetSpec | None = Field(
        None, description="held beside a size: { kind = 'seconds', amount = 60 }, or tokens, or flops"
    )
    context: int = Field(1024, ge=1, description="state_bytes: after so many tokens")
    tolerance: float = Field(0.02, gt=0, description="how far an entry may be off, as a share")

    @model_validator(mode="after")
    def _also_stands_beside_a_size(self) -> Self:
        if self.also is not None and self.kind not in ("parameters", "state_bytes"):
            sizes = "set kind = 'parameters' or 'state_bytes'"
            raise ValueError(f"budget.also needs a size budget, but kind is {self.kind!r}; {sizes}, or leave also out")
        return self

    @model_validator(mode="after")
    def _says_how_many_seconds(self) -> Self:
        if self.kind == "seconds" and self.amount is None:
            raise ValueError(_UNSAID)
        return self

    def stretched(self, share: float) -> Self:
        """The same for a training that is so many times as long; sizes stay."""
        changed: dict[str, Any] = {}
        if self.kind in ("flops", "tokens", "seconds") and self.amount is not None:
            changed["amount"] = self.amount * share
        if self.also is not None and self.also.amount is not None:
            changed["also"] = self.also.model_copy(update={"amount": self.also.amount * share})
        return self.model_copy(update=changed)

    def held(self) -> tuple[tuple[HeldKind, float | None], ...]:
        """Everything that is held equal, sizes first, each with its amount (None: as the first entry has it)."""
        first = () if self.kind == "none" else ((self.kind, self.amount),)
        return first if self.also is None else (*first, (self.also.kind, self.also.amount))


def by_path(value: Any) -> Any:
    """`train.lr` may be written as one key or as a table in a table; TOML and --set make the second of it."""
    if not isinstance(value, Mapping):
        return value
    flat: dict[Any, Any] = {}
    for name, inner in value.items():
        inside = by_path(inner)
        flat |= (
            {f"{name}.{path}": value for path, value in inside.items()}
            if isinstance(inside, Mapping)
            else {name: inner}
        )
    return flat


class SearchSpec(Spec):
    """The same number of tries for every entry, over the same values."""

    trials: int = Field(1, ge=1, description="tries per entry, on one seed, before the seeds are run")
    space: Annotated[dict[str, tuple[Scalar, ...]], BeforeValidator(by_path)] = Field(
        {}, description="settings, and the values tried"
    )


class EntrySpec(Spec):
    """One competitor: what differs from the base."""

    name: str = Field(min_length=1)
    settings: dict[str, Any] = Field({}, description="settings by path, such as train.lr")
    width: Annotated[str | tuple[str, ...] | None, BeforeValidator(_none)] = Field(
        "model.width", description="the setting the solver turns, or several that are turned alike; none: no size"
    )


class Tried(Spec):
    """One trial of a search: the values it tried for an entry, and the metric it ended with (none: it failed)."""

    entry: str
    settings: dict[str, Scalar]
    metric: float | None = None


class StudySpec(Spec):
    title: str
    question: str = Field(description="what the study answers, in a sentence")
    base: dict[str, Any] = Field(description="the recipe that all entries share")
    entry: tuple[EntrySpec, ...] = Field(min_length=1)
    seeds: int = Field(3, ge=1)
    budget: BudgetSpec = BudgetSpec()
    search: SearchSpec = SearchSpec()
    metric: str = Field("bits_per_byte", description="the metric of the evaluation that ranks")
    better: Literal["lower", "higher"] = "lower"
    also: tuple[str, ...] = Field(
        (), description="other metrics of the evaluation, shown beside it in the table; they do not rank"
    )
    minutes: float = Field(
        4.0, gt=0, description="what it takes on two cores as written; another number scales the steps"
    )
    record: tuple[Tried, ...] = Field((), description="the search as it was run once; its best values are used")
    record_of: dict[str, Any] = Field({}, description="the settings and the data that the recorded search was run with")
    _mixers: tuple[OwnMixer, ...] = PrivateAttr(())

    def model_post_init(self, context: Any) -> None:
        self._mixers = tuple(context or ())

    @property
    def mixers(self) -> tuple[OwnMixer, ...]:
        """The user's own classes that entries may be made of. They are passed in and are no part of the data."""
        return self._mixers

    def chosen(self, entry: str) -> Tried | None:
        """The best recorded trial of an entry; None where there is none."""
        tried = [trial for trial in self.record if trial.entry == entry]
        best = self.best([trial.metric for trial in tried])
        return None if best is None else tried[best]

    def best(self, metrics: Sequence[float | None]) -> int | None:
        """The place of the best metric, of equally good ones the middle one: values on both sides of it do as well."""
        there = [metric for metric in metrics if metric is not None]
        if not there:
            return None
        best = min(there) if self.better == "lower" else max(there)
        equal = [place for place, metric in enumerate(metrics) if metric == best]
        return equal[(len(equal) - 1) // 2]


class PartSpec(Spec):
    """One study of a story: which, and what of it."""

    study: str = Field(min_length=1, description="a shipped study, or a TOML file named from the story's own folder")
    name: str = Field("", description="of its folder; default: the study's name")
    only: tuple[str, ...] = Field((), description="entries of it; empty: all")
    settings: dict[str, Any] = Field({}, description="settings of the study by path, such as seeds or base.train.steps")


class LookSpec(Spec):
    """A look inside the trained models of one part: how much each earlier token decides the answer."""

    part: str
    rows: int = Field(128, ge=1, description="held-out rows that are averaged")


class StorySpec(Spec):
    """Several studies under one title, one after another, with one report."""

    title: str
    question: str = Field(description="what the story answers, in a sentence")
    part: tuple[PartSpec, ...] = Field(min_length=1)
    look: LookSpec | None = None
