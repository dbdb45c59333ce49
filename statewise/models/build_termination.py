"""A terminating machine from a spec: any model of the lineage that learns by gradients, with any of the three ends."""

from typing import Any, Literal, assert_never

import torch

from statewise.layers import Dropout, Embedding
from statewise.models.body import Body
from statewise.models.build import build_stack
from statewise.models.remaining_length import RemainingLength
from statewise.models.termination import BernoulliStop, EndSymbol, Terminating
from statewise.specs import MixerSpec, UserError

Scheme = Literal["end", "bernoulli", "remaining"]
SCHEMES: tuple[Scheme, ...] = ("end", "bernoulli", "remaining")


def build_terminating(spec: MixerSpec, *, scheme: Scheme, vocab: int, seed: int = 0) -> Terminating[Any]:
    """`vocab` content symbols; the weights are a function of the seed."""
    if vocab < 1:
        raise UserError(f"vocab is {vocab}, expected at least 1")
    generator = torch.Generator().manual_seed(seed)
    embedding = Embedding(
        vocab + 1,
        spec.embedding_width,
        row_dropout=spec.embedding_dropout,
        scale=spec.token_scale,
        generator=generator,
    )
    stack, width = build_stack(spec, input_width=spec.embedding_width, generator=generator)
    body = Body(
        embedding=embedding,
        machine=stack,
        width=width,
        input_dropout=Dropout(spec.input_dropout, variational=spec.variational),
        tie=spec.tie,
    )
    match scheme:
        case "end":
            return EndSymbol(body=body, generator=generator)
        case "bernoulli":
            return BernoulliStop(body=body, generator=generator)
        case "remaining":
            return RemainingLength(body=body, generator=generator)
        case _:
            assert_never(scheme)
