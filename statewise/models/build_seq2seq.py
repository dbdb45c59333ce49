"""From a spec to a model that writes: an encoder-decoder, or one machine that reads a source and then goes on."""

from typing import Any, Literal, assert_never

import numpy as np
import torch
from torch import nn

from statewise.encoders import MultiHeadAttention
from statewise.layers import Attend, Dropout, Embedding, Looks, make_alignment, make_linear, make_norm, make_score
from statewise.models.build import build, build_around, build_mixer, build_position, build_stack
from statewise.models.build_reader import build_reader
from statewise.models.cross_block import CrossBlock
from statewise.models.head import CategoricalHead
from statewise.models.reader import Reader
from statewise.models.remaining_length import RemainingLength
from statewise.models.seq2seq import Bridge, Seq2Seq
from statewise.models.termination import BernoulliStop, Body, EndSymbol, Terminating
from statewise.models.token_machine import ConditionalMachine, CountingMachine, TokenMachine
from statewise.models.transformer import Transformer
from statewise.specs import AttentionSpec, MixerSpec, ModelSpec, Seq2SeqSpec, TransformerSpec, UserError


def build_seq2seq(
    spec: Seq2SeqSpec,
    *,
    source_vocab: int | None = None,
    source_values: int | None = None,
    target_vocab: int,
    seed: int = 0,
) -> ConditionalMachine[Any]:
    """An encoder-decoder that writes tokens. The weights are a function of the seed alone.

    A source is `[B, S]` tokens, of `source_vocab`, or `[B, S, source_values]` numbers.
    """
    sizes = {"source_vocab": source_vocab, "source_values": source_values, "target_vocab": target_vocab}
    for name, size in sizes.items():
        if size is not None and size < 1:
            raise UserError(f"{name} is {size}, expected at least 1")
    if (source_vocab is None) == (source_values is None):
        raise UserError("a source is of tokens or of numbers", fix="give source_vocab or source_values")
    if spec.share_embeddings and source_vocab != target_vocab:
        raise UserError(
            "share_embeddings needs one vocabulary, "
            f"but source and target have {source_vocab} and {target_vocab} tokens",
            fix="build one tokenizer on both sides, or set share_embeddings = false",
        )
    generator = torch.Generator().manual_seed(seed)
    target = _target_embedding(spec, target_vocab, generator)
    width = spec.encoder.embedding_width
    source: nn.Module
    if source_vocab is None:
        assert source_values is not None
        source = make_linear(source_values, width, generator=generator)
    else:
        source = Embedding(
            source_vocab,
            width,
            row_dropout=spec.encoder.embedding_dropout,
            scale=spec.encoder.token_scale,
            gain=target.gain if spec.share_embeddings else 1.0,
            share=target if spec.share_embeddings else None,
            generator=generator,
        )
    reader = build_reader(
        spec.encoder,
        entry=source,
        entry_width=width,
        bidirectional=spec.bidirectional,
        summary=spec.source,
        generator=generator,
    )
    return build_decoder(spec, reader=reader, embedding=target, generator=generator)


def _target_embedding(spec: Seq2SeqSpec, vocab: int, generator: torch.Generator) -> Embedding:
    width = spec.decoder.embedding_width
    scale = spec.decoder.token_scale
    return Embedding(
        vocab,
        width,
        row_dropout=spec.decoder.embedding_dropout,
        scale=scale,
        # As an input a tied matrix is brought back to unit entries (Vaswani et al. 2017), so that added positions and
        # other inputs do not drown it.
        gain=1 / scale if spec.decoder.tie else 1.0,
        generator=generator,
    )


def build_decoder(
    spec: Seq2SeqSpec, *, reader: Reader, embedding: Embedding, generator: torch.Generator | None = None
) -> ConditionalMachine[Any]:
    """The decoder of a spec, over any reader."""
    if spec.style == "each_layer":
        return _build_transformer(spec, reader, embedding, generator)
    decoder, look = spec.decoder, spec.attention
    entering = decoder.embedding_width + spec.entering()
    enter = None
    if decoder.keeps_width and entering != decoder.embedding_width:
        enter = make_linear(entering, decoder.embedding_width, generator=generator)
        entering = decoder.embedding_width
    # The target's vectors enter at unit size, tied or not; learned positions are to be as large.
    untied = decoder.model_copy(update={"tie": False})
    stack, width = build_stack(untied, input_width=entering, generator=generator)
    attend = combine = ask = None
    if spec.style is not None:
        attend = _build_look(look, query_width=width, key_width=reader.width, generator=generator)
        beside = decoder.embedding_width if spec.style == "bahdanau" else 0
        combine = make_linear(width + reader.width + beside, width, generator=generator)
    elif spec.output == "deep":
        combine = make_linear(width + reader.width + decoder.embedding_width, width, generator=generator)
    if spec.asks_with_token():
        ask = make_linear(decoder.embedding_width, width, bias=False, generator=generator)
    return Seq2Seq(
        reader=reader,
        embedding=embedding,
        stack=stack,
        head=_head(spec, embedding, width, generator),
        stack_width=width,
        input_dropout=Dropout(decoder.input_dropout, variational=decoder.variational),
        dropout=Dropout(decoder.dropout, variational=decoder.variational),
        enter=enter,
        bridge=Bridge(reader.width, stack.init_state(1), generator=generator) if spec.begins() else None,
        each_step=spec.context in ("each_step", "both"),
        attend=attend,
        style="luong" if spec.style == "luong" else "bahdanau",
        combine=combine,
        ask=ask,
        input_feeding=look.input_feeding,
        output_edges=spec.output_edges,
    )


def _head(spec: Seq2SeqSpec, embedding: Embedding, width: int, generator: torch.Generator | None) -> CategoricalHead:
    vocab = embedding.weight.shape[0]
    return CategoricalHead(
        width, vocab, tie=embedding if spec.decoder.tie else None, bias=spec.decoder.head_bias, generator=generator
    )


def _build_look(
    look: AttentionSpec, *, query_width: int, key_width: int, generator: torch.Generator | None
) -> Attend | Looks:
    if look.hops > 1 and look.heads == 1 and query_width != key_width:
        raise UserError(
            f"with hops = {look.hops} what is found ({key_width} wide) is added to what asks ({query_width} wide)",
            fix="make the decoder as wide as what the encoder gives, or set hops = 1",
        )

    def attend(query_width: int, key_width: int) -> Attend:
        score = make_score(
            look.score,
            query_width=query_width,
            key_width=key_width,
            hidden=look.hidden,
            longest=look.longest,
            generator=generator,
        )
        alignment = make_alignment(look.alignment, query_width=query_width, reach=look.reach, generator=generator)
        return Attend(score, alignment, hops=look.hops)

    if look.heads == 1:
        return attend(query_width, key_width)
    width = max(1, key_width // look.heads)
    return Looks(
        [attend(width, width) for _ in range(look.heads)],
        query_width=query_width,
        key_width=key_width,
        value_width=key_width,
        width=width,
        generator=generator,
    )


def _build_transformer(
    spec: Seq2SeqSpec, reader: Reader, embedding: Embedding, generator: torch.Generator | None
) -> Transformer:
    decoder = spec.decoder
    assert isinstance(decoder, TransformerSpec)
    width = decoder.width
    blocks = []
    for _ in range(decoder.depth):
        own = build_mixer(decoder, input_width=width, generator=generator)
        options = decoder.subset("kv_heads", "bias", "init", "kernel")
        cross = MultiHeadAttention(
            width, heads=decoder.num_heads, dropout=decoder.attention_dropout, **options, generator=generator
        )
        cross_norm = make_norm(decoder.norm, width, epsilon=decoder.norm_epsilon)
        around = build_around(decoder, width, width, generator=generator)
        blocks.append(CrossBlock(own, cross, cross_norm, around))
    return Transformer(
        reader=reader,
        embedding=embedding,
        input_dropout=Dropout(decoder.input_dropout, variational=decoder.variational),
        blocks=blocks,
        final_norm=make_norm(
            decoder.norm if decoder.norm_place == "pre" else "none", width, epsilon=decoder.norm_epsilon
        ),
        head=_head(spec, embedding, width, generator),
        position=build_position(decoder.model_copy(update={"tie": False}), generator=generator),
        bring=None if reader.width == width else make_linear(reader.width, width, generator=generator),
        output_edges=spec.output_edges,
    )


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


def build_sample(spec: ModelSpec | Seq2SeqSpec, *, vocab: int, seed: int = 0, tokens: int = 400) -> TokenMachine[Any]:
    """Any model without training; one that learns by counting has counted a random text."""
    if isinstance(spec, Seq2SeqSpec):
        return build_seq2seq(spec, source_vocab=vocab, target_vocab=vocab, seed=seed)
    model = build(spec, vocab=vocab, seed=seed)
    if isinstance(model, CountingMachine):
        model.count(np.random.default_rng(seed).integers(vocab, size=tokens), end_id=0)
    return model
