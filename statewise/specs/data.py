"""What is read, how it becomes tokens, and in which order a model sees it."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from statewise.specs.base import Spec


def _one_or_many(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


class DataSpec(Spec):
    text: Annotated[tuple[str, ...], BeforeValidator(_one_or_many)] = Field(
        (), description="files, folders or '-' for standard input; empty: the embedded corpus"
    )
    validation: Annotated[tuple[str, ...], BeforeValidator(_one_or_many)] = Field(
        (), description="files held out for evaluation; empty: the last part of `text`"
    )
    held_out: float = Field(0.1, gt=0, lt=1, description="share of `text` held out when `validation` is empty")
    tokenizer: str = Field("char", min_length=1, description="char, byte, word, bpe, or the path of a tokenizer.json")
    vocab: int | None = Field(
        None, ge=2, description="largest vocabulary; default: all characters, 10000 words, 2048 BPE pieces"
    )
    separator: str | None = Field(
        None, min_length=1, description="text that ends a document inside a file; the state is reset there"
    )
    direction: Literal["forward", "reverse"] = Field("forward", description="read from the start or from the end")
    order: Literal["sequential", "random"] = Field(
        "sequential", description="sequential carries the state from window to window; random resets it"
    )
