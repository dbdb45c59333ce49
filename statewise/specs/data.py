"""What is read, how it becomes tokens, and in which order a model sees it."""

from typing import Literal

from pydantic import Field

from statewise.specs.base import Spec
from statewise.specs.paths import Paths

# Kinds of tokenizers that are trained on text. To add one: its name here, its training in data/tokenizer_training.py.
TOKENIZERS = ("char", "byte", "word", "wordpunct", "bpe")
TOKENIZER_HELP = f"{', '.join(TOKENIZERS)}, or the path of a tokenizer.json"


class DataSpec(Spec):
    text: Paths = Field((), description="files, folders or '-' for standard input; empty: the embedded corpus")
    validation: Paths = Field((), description="files held out for evaluation; empty: the last part of `text`")
    held_out: float = Field(0.1, gt=0, lt=1, description="share of `text` held out when `validation` is empty")
    tokenizer: str = Field("char", min_length=1, description=TOKENIZER_HELP)
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
