"""What every spec shares: frozen, closed to unknown keys, finite numbers of bounded size only."""

import threading
from typing import Annotated, Any, ClassVar, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationInfo, field_validator

# The largest value of a number, by the name of its setting: more than anybody uses, and little enough for every
# product of them to be computed and refused. A setting that is not listed may be `_LARGEST_INT` or `_LARGEST_FLOAT`.
_LARGEST = {
    **dict.fromkeys(
        ("width", "embedding", "hidden", "projection", "output", "character_width", "characters", "head_width"), 2**20
    ),
    **dict.fromkeys(("depth", "input_depth", "output_depth", "transition_depth", "heads", "kv_heads"), 2**12),
    **dict.fromkeys(("hops", "arity", "expand", "ratio", "mlp_ratio", "max_ratio"), 2**10),
    **dict.fromkeys(("conv", "state", "mini_batch", "order", "beam", "n_best", "draws"), 2**14),
    **dict.fromkeys(("horizon", "context", "longest", "paths", "extra", "min_length"), 2**20),
    **dict.fromkeys(("length", "period", "vocab", "target_vocab"), 2**26),
    "seed": 2**63 - 1,
}
_LARGEST_INT = 2**40
_LARGEST_FLOAT = 1e30
_LONGEST_TEXT = 4096
_BUILDING = threading.RLock()


class Finer(NamedTuple):
    """A setting that changes a model's size by smaller steps than its width: `units` of it, each worth `each`."""

    setting: str
    units: int
    each: float | None = None  # None: the setting is their number itself

    def value(self, units: int) -> float | int:
        return units if self.each is None else units * self.each


class Spec(BaseModel):
    layout_of_files: ClassVar[tuple[str, ...]] = ()  # fields that describe the format of files
    layout_of_table: ClassVar[tuple[str, ...]] = (
        "format",
        "header",
        "delimiter",
        "encoding",
    )  # of a CSV, TSV or JSONL

    # A command needs the specs of one task: those of the others are never built.
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, validate_default=True, defer_build=True)

    @classmethod
    def model_rebuild(cls, **options: Any) -> bool | None:
        """Build on first use, in one thread at a time: Pydantic itself does that only from 2.14 on."""
        with _BUILDING:
            return super().model_rebuild(**options)

    @field_validator("*")
    @classmethod
    def _is_of_bounded_size(cls, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, int | float):
            largest = _LARGEST.get(info.field_name or "", _LARGEST_INT if isinstance(value, int) else _LARGEST_FLOAT)
            if abs(value) > largest:
                raise ValueError(f"too large; expected at most {largest:,}")
        elif isinstance(value, str) and len(value) > _LONGEST_TEXT:
            raise ValueError(f"{len(value):,} characters; expected at most {_LONGEST_TEXT:,}")
        return value

    def subset(self, *names: str) -> dict[str, Any]:
        """These settings by name: keywords of what takes them as they are."""
        return {name: getattr(self, name) for name in names}

    @property
    def known_as(self) -> str:
        """The model's name: its kind, or the name of a user's class."""
        return str(type(self).model_fields["kind"].default)

    def finer(self) -> Finer | None:
        """A setting to tune besides the width, where valid widths are far apart."""
        return None


def default_kind(kind: str) -> BeforeValidator:
    """For tables that may leave out their `kind`."""
    return BeforeValidator(lambda value: {"kind": kind, **value} if isinstance(value, dict) else value)


def _as_tuple(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


# Names of files: one, or a list of them.
Paths = Annotated[tuple[str, ...], BeforeValidator(_as_tuple)]
