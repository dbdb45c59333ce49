"""The only place where a spec becomes a module."""

import math
from typing import Any, assert_never

import torch

from statewise.core import Mixer
from statewise.layers import MLP, Dropout, Embedding, make_norm
from statewise.mixers import GRU, LSTM, Elman
from statewise.models.block import Block
from statewise.models.head import CategoricalHead
from statewise.models.language_model import LanguageModel
from statewise.models.stack import Stack
from statewise.specs import ElmanSpec, GRUSpec, LSTMSpec, ModelSpec, RunSpec, UserError


def build(model: str | ModelSpec = "lstm", *, vocab: int, seed: int = 0, **options: Any) -> LanguageModel:
    """A language model from a spec, or from a name and options: `build("lstm", vocab=65, width=256)`.

    The weights are a function of the seed alone, whatever else was drawn before.
    """
    if isinstance(model, str):
        spec = RunSpec.parse({"model": {"kind": model, **options}}, source=f"build({model!r}, ...)").model
    elif options:
        raise UserError(f"options {sorted(options)} go with a name, not with a spec that already holds them")
    else:
        spec = model
    if vocab < 1:
        raise UserError(f"vocab is {vocab}, expected at least 1")
    generator = torch.Generator().manual_seed(seed)
    embedding = Embedding(
        vocab,
        spec.embedding_width,
        row_dropout=spec.embedding_dropout,
        # A tied matrix is also the head: unit logits need vectors of unit length, not of unit entries.
        scale=1 / math.sqrt(spec.embedding_width) if spec.tie else 1.0,
        generator=generator,
    )
    blocks: list[Block[Any]] = []
    width = spec.embedding_width
    for _ in range(spec.depth):
        mixer = build_mixer(spec, input_width=width, generator=generator)
        out = mixer.output_width
        mlp = None
        if spec.mlp != "none":
            mlp = MLP(out, hidden=spec.mlp_width(), kind=spec.mlp, bias=spec.bias, generator=generator)
        blocks.append(
            Block(
                mixer,
                norm=make_norm(spec.norm, width if spec.norm_place == "pre" else out),
                dropout=Dropout(spec.dropout, variational=spec.variational),
                residual=spec.residual,
                norm_place=spec.norm_place,
                mlp=mlp,
                mlp_norm=None if mlp is None else make_norm(spec.norm, out),
            )
        )
        width = out
    return LanguageModel(
        embedding=embedding,
        input_dropout=Dropout(spec.input_dropout, variational=spec.variational),
        stack=Stack(
            blocks,
            final_norm=make_norm(spec.norm if spec.residual and spec.norm_place == "pre" else "none", width),
        ),
        head=CategoricalHead(width, vocab, tie=embedding if spec.tie else None, generator=generator),
    )


def build_mixer(
    spec: ModelSpec, *, input_width: int | None = None, generator: torch.Generator | None = None
) -> Mixer[Any]:
    """One mixer, as the spec says."""
    match spec:
        case ElmanSpec():
            return Elman(
                spec.width,
                input_width=input_width,
                activation=spec.activation,
                weight_drop=spec.weight_drop,
                zoneout=spec.zoneout,
                init=spec.init,
                kernel=spec.kernel,
                generator=generator,
            )
        case LSTMSpec():
            return LSTM(
                spec.width,
                input_width=input_width,
                peephole=spec.peephole,
                projection=spec.projection,
                layer_norm=spec.layer_norm,
                coupled=spec.coupled,
                forget_bias=spec.forget_bias,
                weight_drop=spec.weight_drop,
                zoneout=spec.zoneout,
                init=spec.init,
                kernel=spec.kernel,
                generator=generator,
            )
        case GRUSpec():
            return GRU(
                spec.width,
                input_width=input_width,
                reset=spec.reset,
                weight_drop=spec.weight_drop,
                zoneout=spec.zoneout,
                init=spec.init,
                kernel=spec.kernel,
                generator=generator,
            )
        case _:
            assert_never(spec)
