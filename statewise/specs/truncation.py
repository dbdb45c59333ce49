"""How far gradients flow back in time inside the window one optimiser step reads."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from statewise.specs.base import Spec


class FullTruncation(Spec):
    """No cut: gradients flow through the whole window."""

    kind: Literal["full"] = "full"


class FixedTruncation(Spec):
    """A cut every `length` tokens; the state is carried across it, detached."""

    kind: Literal["fixed"] = "fixed"
    length: int = Field(64, ge=1, description="tokens between two cuts")


class RandomTruncation(Spec):
    """Segments of random length, `length` tokens in the mean; the state is carried, detached."""

    kind: Literal["random"] = "random"
    length: int = Field(64, ge=1, description="tokens between two cuts")


class UnbiasedTruncation(Spec):
    """Every `length` tokens the gradient passes with probability `keep`, then weighted by 1 / keep."""

    kind: Literal["unbiased"] = "unbiased"
    length: int = Field(16, ge=1, description="tokens between two places where it may be cut")
    keep: float = Field(0.5, gt=0, le=1, description="probability that the gradient passes")


def _shorthand(value: Any) -> Any:
    """`64` is a fixed length, `"random"` a kind, `"random:32"` a kind with its length; fixed by default."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return {"kind": "fixed", "length": value}
    if isinstance(value, str):
        kind, colon, length = value.partition(":")
        return {"kind": kind, "length": length} if colon else {"kind": kind}
    return {"kind": "fixed", **value} if isinstance(value, dict) else value


TruncationSpec = Annotated[
    Annotated[FullTruncation | FixedTruncation | RandomTruncation | UnbiasedTruncation, Field(discriminator="kind")],
    BeforeValidator(_shorthand),
]
