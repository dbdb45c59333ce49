"""From a spec to a reader: any model of the lineage, in one direction or both, over any input."""

import torch
from torch import nn

from statewise.encoders import Bidirectional, EncoderLayer, TransformerEncoder
from statewise.layers import Attend, Dropout, Pool, make_alignment, make_linear, make_score
from statewise.models.build import build_around, build_last_norm, build_mixer, build_stack
from statewise.models.reader import AllAtOnce, BothWays, Layers, NoLayers, OneWay, Reader, Summary
from statewise.specs import (
    AlignmentKind,
    EncoderSpec,
    LinearEncoderSpec,
    MixerSpec,
    ScoreKind,
    TransformerSpec,
    UserError,
)


def build_reader(
    mixer: EncoderSpec,
    *,
    entry: nn.Module,
    entry_width: int,
    bidirectional: bool = False,
    summary: Summary = "last",
    score: ScoreKind = "additive",
    alignment: AlignmentKind = "soft",
    generator: torch.Generator | None = None,
) -> Reader:
    """`entry(source)` gives `[B, S, entry_width]`; the layers are as the spec says.

    Read from both ends, each layer is two mixers side by side, twice as wide. Where the spec adds a layer's input
    to its output (`residual`), a linear map joins the two to the width of one. A Transformer needs no second
    direction: its attention is without a mask. A width that layers cannot take is brought to theirs by a map.
    `score` and `alignment` are those of a summary by attention.
    """
    if entry_width < 1:
        raise UserError(f"entry_width is {entry_width}, expected at least 1")
    if isinstance(mixer, LinearEncoderSpec):
        dropout = Dropout(mixer.input_dropout, variational=False)
        return Reader(
            entry=entry,
            entry_width=entry_width,
            input_dropout=dropout,
            layers=NoLayers(entry_width),
            summary=summary,
        )
    width = mixer.reader_input(bidirectional=bidirectional) or entry_width
    enter = None if width == entry_width else make_linear(entry_width, width, generator=generator)
    # A Transformer's encoder drops after it has added positions.
    input_dropout = 0.0 if bidirectional and isinstance(mixer, TransformerSpec) else mixer.input_dropout
    layers = _layers(mixer, width, bidirectional, generator)
    pool = _pool(layers.width, score, alignment, generator) if summary == "attention" else None
    return Reader(
        entry=entry,
        entry_width=entry_width,
        input_dropout=Dropout(input_dropout, variational=mixer.variational),
        enter=enter,
        layers=layers,
        summary=summary,
        pool=pool,
    )


def _pool(width: int, score: ScoreKind, alignment: AlignmentKind, generator: torch.Generator | None) -> Pool:
    scored = make_score(score, query_width=width, key_width=width, generator=generator)
    aligned = make_alignment(alignment, query_width=width, generator=generator)
    return Pool(Attend(scored, aligned), width=width, generator=generator)


def _layers(spec: MixerSpec, width: int, bidirectional: bool, generator: torch.Generator | None) -> Layers:
    if not bidirectional:
        stack, width = build_stack(spec, input_width=width, generator=generator)
        return OneWay(stack, width=width)
    if isinstance(spec, TransformerSpec):
        return AllAtOnce(_transformer(spec, generator))
    layers = []
    for _ in range(spec.depth):
        ahead, back = (build_mixer(spec, input_width=width, generator=generator) for _ in range(2))
        both = Bidirectional(
            forward=ahead, backward=back, merge="join" if spec.keeps_width else "concat", generator=generator
        )
        layers.append(EncoderLayer(both, build_around(spec, width, both.output_width, generator=generator)))
        width = both.output_width
    return BothWays(layers, final_norm=build_last_norm(spec, width), width=width, joined=spec.keeps_width)


def _transformer(spec: TransformerSpec, generator: torch.Generator | None) -> TransformerEncoder:
    if spec.window is not None:
        raise UserError(
            f"window = {spec.window} looks back only, but this Transformer reads both ways",
            fix="leave window out, or set bidirectional = false",
        )
    if spec.head_width is not None or spec.query_key_norm or spec.rotary_scaling is not None:
        raise UserError(
            "head_width, query_key_norm and rotary_scaling are of Transformers that look back only",
            fix="leave them out, or set bidirectional = false",
        )
    own = spec.subset("depth", "kv_heads", "position", "context", "rotary_base", "attention_dropout")
    around = spec.subset("norm", "norm_epsilon", "norm_place", "residual", "mlp", "mlp_ratio", "bias")
    shared = spec.subset("dropout", "input_dropout", "variational", "init", "kernel")
    return TransformerEncoder(spec.width, heads=spec.num_heads, **own, **around, **shared, generator=generator)
