"""A comparison as data: entries, seeds, what is held equal, what is searched, and which figure answers."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from statewise.specs.base import Spec

Scalar = str | int | float | bool


def _none(value: Any) -> Any:
    """TOML has no word for nothing."""
    return None if value == "none" else value


class BudgetSpec(Spec):
    """What all entries have the same of. Each entry's width is chosen to meet it."""

    kind: Literal["parameters", "flops", "state_bytes", "none"] = Field(
        "parameters", description="parameters, training FLOPs, or bytes of state after `context` tokens"
    )
    amount: int | None = Field(
        None, ge=1, description="how much of it; none: as much as the first entry has as written"
    )
    context: int = Field(1024, ge=1, description="state_bytes: after so many tokens")
    tolerance: float = Field(0.02, gt=0, description="how far an entry may be off, as a share")


class SearchSpec(Spec):
    """The same number of tries for every entry, over the same values."""

    trials: int = Field(1, ge=1, description="tries per entry, on one seed, before the seeds are run")
    space: dict[str, tuple[Scalar, ...]] = Field({}, description="settings, and the values tried")


class EntrySpec(Spec):
    """One competitor: what differs from the base."""

    name: str = Field(min_length=1)
    settings: dict[str, Any] = Field({}, description="settings by path, as in --set")
    width: Annotated[str | tuple[str, ...] | None, BeforeValidator(_none)] = Field(
        "model.width", description="the setting the solver turns, or several that are turned alike; none: no size"
    )


class StudySpec(Spec):
    title: str
    question: str = Field(description="what the study answers, in a sentence")
    base: dict[str, Any] = Field(description="the recipe that all entries share")
    entry: tuple[EntrySpec, ...] = Field(min_length=1)
    seeds: int = Field(3, ge=1)
    budget: BudgetSpec = BudgetSpec()
    search: SearchSpec = SearchSpec()
    metric: str = Field("bits_per_byte", description="the figure of the evaluation that ranks")
    better: Literal["lower", "higher"] = "lower"
    minutes: float = Field(4.0, gt=0, description="what it takes on two cores as written; --minutes scales the steps")
