"""A model as data: one spec per kind, told apart by `kind`."""

from typing import Annotated, Any, get_args

from pydantic import BeforeValidator, Field

from statewise.specs.recurrent import ElmanSpec, GRUSpec, LSTMSpec

AnyModelSpec = ElmanSpec | LSTMSpec | GRUSpec
KINDS: tuple[str, ...] = tuple(spec.model_fields["kind"].default for spec in get_args(AnyModelSpec))


def _default_kind(value: Any) -> Any:
    return {"kind": "lstm", **value} if isinstance(value, dict) else value


ModelSpec = Annotated[Annotated[AnyModelSpec, Field(discriminator="kind")], BeforeValidator(_default_kind)]
