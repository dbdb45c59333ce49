"""Encoder-decoders from one spec: any reader with any decoder, sizes by formula, shared matrices, dropout, refusals."""

import itertools
from typing import Any, get_args

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn

from statewise.core import detach, leaves, unroll
from statewise.layers import Embedding, drop, one_sequence
from statewise.models import ConditionalMachine, Seq2Seq, Transformer, build_decoder, build_reader, build_seq2seq
from statewise.models.build import build_stack
from statewise.specs import AttentionSpec, ElmanSpec, GRUSpec, LSTMSpec, MixerSpec, Seq2SeqSpec, TransformerSpec
from statewise.specs import UserError as Refused
from statewise.specs.model import ShippedMixerSpec

SOURCE, TARGET = 7, 9
LENGTHS = torch.tensor([5, 2, 0])
SIDE = TransformerSpec(width=8, heads=2, depth=2)
EVERY: dict[str, MixerSpec] = {
    spec.model_fields["kind"].default: spec(width=8, depth=2) for spec in get_args(ShippedMixerSpec)
}
LOOKS = {
    "general, two heads": AttentionSpec(style="luong", score="general", heads=2),
    "two hops": AttentionSpec(style="bahdanau", score="scaled_dot", hops=2),
    "the state asks": AttentionSpec(style="bahdanau", query="state"),
    "concat, two heads": AttentionSpec(style="bahdanau", score="concat", hidden=5, heads=2),
    "location": AttentionSpec(style="luong", score="location", longest=6, input_feeding=False),
    "cosine, predictive": AttentionSpec(style="bahdanau", score="cosine", alignment="local_predictive", begin=False),
}
SPECS: dict[str, Seq2SeqSpec] = {
    **{f"{a}-{b}": Seq2SeqSpec(encoder=EVERY[a], decoder=EVERY[b]) for a, b in zip(EVERY, [*EVERY][::-1], strict=True)},
    **{
        f"both ways-{kind}-{context}": Seq2SeqSpec(
            encoder=LSTMSpec(width=5), decoder=decoder, context=context, bidirectional=True
        )
        for (kind, decoder), context in itertools.product(EVERY.items(), ("each_step", "attention"))
    },
    **{
        f"transformer-{kind}": Seq2SeqSpec(encoder=SIDE, decoder=decoder, bidirectional=True)
        for kind, decoder in EVERY.items()
    },
    **{
        name: Seq2SeqSpec(encoder=GRUSpec(width=8), decoder=GRUSpec(width=8), attention=look)
        for name, look in LOOKS.items()
    },
    "initial": Seq2SeqSpec(encoder=SIDE, decoder=LSTMSpec(width=6, projection=3, depth=2), context="initial"),
    "both": Seq2SeqSpec(decoder=GRUSpec(width=6, embedding=4, residual=False, tie=True), context="both"),
    "around": Seq2SeqSpec(decoder=LSTMSpec(width=8, residual=True, norm="rms", mlp="relu"), context="both"),
    "deep, tied": Seq2SeqSpec(decoder=GRUSpec(width=6, embedding=4, tie=True), context="initial", output="deep"),
    "shared, tied": Seq2SeqSpec(
        encoder=SIDE,
        decoder=TransformerSpec(width=8, heads=2, tie=True, position="learned", context=9, norm_place="post"),
        share_embeddings=True,
        bidirectional=True,
    ),
    "each layer, other widths": Seq2SeqSpec(
        encoder=GRUSpec(width=5), decoder=TransformerSpec(width=8, heads=2, mlp="none", window=3, kv_heads=1)
    ),
    "luong over a Transformer": Seq2SeqSpec(decoder=SIDE, attention=AttentionSpec(style="luong", score="general")),
}
each_spec = pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())


def made(spec: Seq2SeqSpec, *, seed: int = 0) -> ConditionalMachine[Any]:
    target = SOURCE if spec.share_embeddings else TARGET
    model = build_seq2seq(spec, source_vocab=SOURCE, target_vocab=target, seed=seed)
    return model.double().eval()


def tokens(vocab: int, time: int) -> Tensor:
    return torch.randint(vocab, (3, time), generator=torch.Generator().manual_seed(time))


@each_spec
def test_at_once_is_step_by_step(spec: Seq2SeqSpec) -> None:
    """What `forward` takes out of the loop changes no output, no state and no gradient, on ragged rows too."""
    model = made(spec)
    parameters = [p for p in model.parameters() if p.requires_grad]
    target_BT = tokens(model.vocab, 4)
    for lengths_B in (None, torch.tensor([4, 0, 2])):
        results = []
        for run in (model, lambda *args: unroll(model.step, *args)):
            state = model.condition(tokens(SOURCE, 5), LENGTHS)
            logits_BTV, after = run(target_BT, state, lengths_B)
            later, _ = model(target_BT, after)  # states that grow are judged by what follows from them
            loss = logits_BTV.square().sum() + later.sin().sum()
            gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
            results.append([logits_BTV, later, *(g for g in gradients if g is not None)])
        for fast, plain in zip(*results, strict=True):
            torch.testing.assert_close(fast, plain, rtol=1e-9, atol=1e-10)


def test_whose_state_is_vectors() -> None:
    for kind, spec in EVERY.items():
        stack, _ = build_stack(spec, input_width=8)
        vectors = all(leaf.dim() == 2 and leaf.is_floating_point() for _, leaf in leaves(stack.init_state(1)))
        assert vectors == spec.vector_state, kind


def test_a_transformer_looks_in_each_layer_unless_told_otherwise() -> None:
    assert Seq2SeqSpec(decoder=SIDE).style == "each_layer"
    assert Seq2SeqSpec().style == "bahdanau"
    assert Seq2SeqSpec(context="initial").style is None
    assert isinstance(made(Seq2SeqSpec(decoder=SIDE)), Transformer)
    assert isinstance(made(SPECS["luong over a Transformer"]), Seq2Seq)


@torch.no_grad()
def test_one_matrix_for_both_languages() -> None:
    model = made(SPECS["shared, tied"])
    assert isinstance(model, Transformer)
    assert model.reader.entry.weight is model.embedding.weight is model.head.weight_VE
    # As a head the rows have unit length; as an input their entries have unit spread.
    assert 0.5 < float(model.head.weight_VE.norm(dim=1).mean()) < 1.5
    assert 0.5 < float(model.embedding(torch.arange(SOURCE)).std()) < 1.5
    assert 0.5 < float(model.reader.entry(torch.arange(SOURCE)).std()) < 1.5
    with pytest.raises(Refused, match="source and target have 7 and 9 tokens"):
        build_seq2seq(SPECS["shared, tied"], source_vocab=7, target_vocab=9)


@pytest.mark.parametrize("option", ["dropout", "input_dropout", "embedding_dropout"])
@pytest.mark.parametrize("side", ["encoder", "decoder"])
@pytest.mark.parametrize("kind", ["bahdanau", "luong", "initial", "each_layer"])
def test_every_dropout_is_where_the_spec_says(kind: str, side: str, option: str) -> None:
    plain = SIDE if kind == "each_layer" else GRUSpec(width=8)
    sides = {"encoder": plain, "decoder": plain, side: plain.model_copy(update={option: 0.5})}
    look = {} if kind == "initial" else {"attention": AttentionSpec(style=kind)}
    context: Any = "initial" if kind == "initial" else "attention"
    model = made(Seq2SeqSpec(context=context, **sides, **look))

    def logits() -> Tensor:
        found, _ = model(tokens(TARGET, 4), model.condition(tokens(SOURCE, 5), LENGTHS))
        return found.detach()

    calm = logits()
    assert torch.equal(calm, logits())
    model.train()
    torch.manual_seed(0)
    assert not torch.allclose(calm, logits())


def test_weights_of_attention_are_dropped_wherever_a_transformer_looks() -> None:
    spec = Seq2SeqSpec(encoder=SIDE, decoder=SIDE.model_copy(update={"attention_dropout": 0.3}), bidirectional=True)
    model = made(spec)
    assert isinstance(model, Transformer)
    assert {block.cross.dropout for block in model.blocks} == {0.3}
    assert {block.mixer.dropout for block in model.blocks} == {0.3}
    reader = build_reader(spec.decoder, entry=nn.Identity(), entry_width=8, bidirectional=True).double()
    x_BSE = torch.randn(2, 4, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    calm = reader.eval()(x_BSE).outputs_BSC
    assert not torch.allclose(reader.train()(x_BSE).outputs_BSC, calm)


@pytest.mark.parametrize("style", ["bahdanau", "luong"])
def test_what_is_dropped_for_a_whole_sequence_is_drawn_once(style: str) -> None:
    """Without edges or a growing look, equal steps stay equal only if each step drops the same."""
    decoder = ElmanSpec(width=64, dropout=0.5, variational=True, weight_drop=0.5)
    spec = Seq2SeqSpec(decoder=decoder, attention=AttentionSpec(style=style, begin=False), output_edges=False)
    model = made(spec).train()
    assert isinstance(model, Seq2Seq)
    with torch.no_grad():
        for parameter in model.stack.parameters():
            parameter.zero_()
        model.stack.blocks[0].mixer.b_D.fill_(1.0)
    seen = []
    model.head.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    model(torch.zeros(1, 6, dtype=torch.int64), detach(model.condition(torch.zeros(1, 1, dtype=torch.int64))))
    first, second = seen[0][0, 1], seen[0][0, 2]
    torch.testing.assert_close(first, second)


def test_dropped_weights_are_drawn_once_a_sequence() -> None:
    weight = nn.Parameter(torch.ones(50))
    with one_sequence():
        first, second = (drop(weight, 0.5, training=True) for _ in range(2))
    assert torch.equal(first, second)
    assert set(first.tolist()) == {0.0, 2.0}
    with one_sequence():
        assert not torch.equal(first, drop(weight, 0.5, training=True))


def test_a_decoder_over_a_reader_of_numbers() -> None:
    spec = Seq2SeqSpec(encoder=GRUSpec(width=6), decoder=GRUSpec(width=5))
    reader = build_reader(spec.encoder, entry=nn.Linear(2, 6), entry_width=6)
    model = build_decoder(spec, reader=reader, embedding=Embedding(TARGET, 5))
    logits_BTV, _ = model(tokens(TARGET, 4), model.condition(torch.randn(3, 5, 2), LENGTHS))
    assert logits_BTV.shape == (3, 4, TARGET)


def test_small_and_sizes() -> None:
    spec = Seq2SeqSpec(encoder=LSTMSpec(width=99, depth=3), decoder=GRUSpec(width=77))
    assert spec.sizes() == {"encoder_width": 99, "encoder_depth": 3, "decoder_width": 77, "decoder_depth": 1}
    assert spec.small().encoder == spec.encoder.small()
    assert spec.small().decoder == spec.decoder.small()


REFUSALS = {
    "a look that is not taken": ({"context": "initial", "attention": {"score": "dot"}}, "set context = 'attention'"),
    "an encoder's head": ({"encoder": GRUSpec(tie=True)}, "an encoder has no head"),
    "unequal vectors": (
        {"encoder": GRUSpec(width=3), "decoder": GRUSpec(width=4), "share_embeddings": True},
        "needs token vectors of one width, not 3 .encoder. and 4",
    ),
    "a deep output beside attention": ({"output": "deep"}, "output = 'deep' has no meaning with attention"),
    "each layer of a GRU": ({"attention": {"style": "each_layer"}}, "needs a Transformer decoder, not 'gru'"),
    "each layer without sums": ({"decoder": TransformerSpec(residual=False)}, "leave residual on"),
    "a score of a Transformer": ({"decoder": SIDE, "attention": {"score": "dot"}}, "attention.score has no meaning"),
    "feeding a Transformer": ({"decoder": SIDE, "attention": {"input_feeding": False}}, "attention.input_feeding has"),
    "a window both ways": (
        {"encoder": TransformerSpec(window=3), "bidirectional": True},
        "encoder.window looks back only",
    ),
}


@pytest.mark.parametrize(("options", "message"), REFUSALS.values(), ids=REFUSALS.keys())
def test_what_makes_no_sense_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Seq2SeqSpec(**options)


def test_widths_that_cannot_meet_are_refused() -> None:
    spec = Seq2SeqSpec(encoder=GRUSpec(width=3), decoder=GRUSpec(width=4), attention=AttentionSpec(hops=2))
    with pytest.raises(Refused, match=r"what is found \(3 wide\) is added to what asks \(4 wide\)"):
        made(spec)
    with pytest.raises(Refused, match="source_vocab is 0"):
        build_seq2seq(Seq2SeqSpec(), source_vocab=0, target_vocab=3)
