"""What every spec shares: frozen, closed to unknown keys, finite numbers only."""

from typing import ClassVar, NamedTuple

from pydantic import BaseModel, ConfigDict


class Finer(NamedTuple):
    """A setting that changes a model's size by less than its width does: so many `units`, `each` worth so much."""

    setting: str
    units: int
    each: float | None = None  # None: the setting is their number itself

    def value(self, units: int) -> float | int:
        return units if self.each is None else units * self.each


class Spec(BaseModel):
    layout_of_files: ClassVar[tuple[str, ...]] = ()  # fields that say how a file is written, not what is learned

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, validate_default=True)

    @property
    def known_as(self) -> str:
        """What a model of this spec is called: its kind, or the name of a user's class."""
        return str(type(self).model_fields["kind"].default)

    def finer(self) -> Finer | None:
        """What may be turned beside the width, where widths are far apart."""
        return None
