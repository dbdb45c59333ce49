"""From a spec to an encoder-decoder: a reader, a decoder, and what goes from one to the other."""

import torch
from torch import nn

from statewise.core import State, leaves
from statewise.encoders import Bidirectional
from statewise.layers import Embedding
from statewise.layers.alignment import make_alignment
from statewise.layers.attend import Attend
from statewise.layers.score import make_score
from statewise.models.build import build_mixer, build_stack
from statewise.models.head import CategoricalHead
from statewise.models.reader import BothWays, OneWay
from statewise.models.seq2seq import Bridge, Reader, Seq2Seq
from statewise.specs import Seq2SeqSpec


def build_seq2seq(spec: Seq2SeqSpec, *, source_vocab: int, target_vocab: int, seed: int = 0) -> Seq2Seq:
    """An encoder-decoder. The weights are a function of the seed alone."""
    generator = torch.Generator().manual_seed(seed)
    reader = build_reader(spec, vocab=source_vocab, generator=generator)
    decoder, look = spec.decoder, spec.attention
    embedding = Embedding(target_vocab, decoder.embedding_width, generator=generator)
    attends = spec.context == "attention"
    each_step = spec.context in ("each_step", "both")
    fed = 0
    if attends:
        fed = reader.width if look.style == "bahdanau" else decoder.mixer_output() * look.input_feeding
    entering = decoder.embedding_width + reader.width * each_step + fed
    enter = None
    if decoder.residual and entering != decoder.embedding_width:
        enter = nn.Linear(entering, decoder.embedding_width)
        entering = decoder.embedding_width
    stack, width = build_stack(decoder, input_width=entering, generator=generator)
    attend = combine = None
    if attends:
        attend = Attend(
            make_score(
                look.score,
                query_width=width,
                key_width=reader.width,
                hidden=look.hidden,
                longest=look.longest,
                generator=generator,
            ),
            make_alignment(look.alignment, query_width=width, reach=look.reach, generator=generator),
            hops=look.hops,
        )
        beside = decoder.embedding_width if look.style == "bahdanau" else 0
        combine = nn.Linear(width + reader.width + beside, width)
    for linear in (enter, combine):
        if linear is not None:
            nn.init.xavier_uniform_(linear.weight, generator=generator)
            nn.init.zeros_(linear.bias)
    begins = spec.context in ("initial", "both") or (attends and look.begin and _is_vectors(stack.init_state(1)))
    return Seq2Seq(
        reader=reader,
        embedding=embedding,
        stack=stack,
        head=CategoricalHead(width, target_vocab, generator=generator),
        stack_width=width,
        enter=enter,
        bridge=Bridge(reader.width, stack.init_state(1), generator=generator) if begins else None,
        each_step=each_step,
        attend=attend,
        style=look.style,
        combine=combine,
        input_feeding=look.input_feeding,
        output_edges=spec.output_edges,
    )


def _is_vectors(state: State) -> bool:
    return all(leaf.dim() == 2 and leaf.is_floating_point() and leaf.shape[1] > 0 for _, leaf in leaves(state))


def build_reader(spec: Seq2SeqSpec, *, vocab: int, generator: torch.Generator | None = None) -> Reader:
    """Who reads the source: the encoder's stack one way, or layers of its mixer from both ends."""
    embedding = Embedding(vocab, spec.encoder.embedding_width, generator=generator)
    width = spec.encoder.embedding_width
    if not spec.bidirectional:
        stack, width = build_stack(spec.encoder, input_width=width, generator=generator)
        return OneWay(embedding, stack, width=width, summary=spec.source)
    layers = []
    for _ in range(spec.encoder.depth):
        ahead, back = (build_mixer(spec.encoder, input_width=width, generator=generator) for _ in range(2))
        layers.append(Bidirectional(forward=ahead, backward=back))
        width = layers[-1].output_width
    return BothWays(embedding, layers, width=width, summary=spec.source)
