"""The whole Transformer of 2017, encoder and decoder, against torch.nn.Transformer; and its laws."""

from typing import Any

import pytest
import torch
from agreement import assert_same, fill
from torch import Tensor, nn
from torch.nn import functional as F
from torch_layers import DEPTH, HEADS, WIDTH, copy_torch_layer, torch_encoder

from statewise.core import concat, detach, laws, lens, rows, unroll
from statewise.models import Transformer, build_seq2seq
from statewise.specs import Seq2SeqSpec, TransformerSpec

SOURCE, TARGET = 7, 9
SOURCE_LENGTHS = torch.tensor([5, 2, 4])


def tokens(vocab: int, time: int, *, seed: int) -> Tensor:
    return torch.randint(vocab, (3, time), generator=torch.Generator().manual_seed(seed))


def made(**options: Any) -> Transformer:
    side = TransformerSpec(**{"width": WIDTH, "depth": DEPTH, "heads": HEADS, "position": "sinusoidal", **options})
    spec = Seq2SeqSpec(encoder=side, decoder=side, bidirectional=True)
    ours = build_seq2seq(spec, source_vocab=SOURCE, target_vocab=TARGET).double().eval()
    assert isinstance(ours, Transformer)
    fill(ours)
    return ours


def torch_decoder(norm_place: str, mlp: str) -> nn.TransformerDecoder:
    layer = nn.TransformerDecoderLayer(
        WIDTH,
        HEADS,
        dim_feedforward=4 * WIDTH,
        dropout=0.0,
        activation=F.relu if mlp == "relu" else lambda x: F.gelu(x, approximate="tanh"),
        batch_first=True,
        norm_first=norm_place == "pre",
    )
    norm = nn.LayerNorm(WIDTH) if norm_place == "pre" else None
    decoder = nn.TransformerDecoder(layer, DEPTH, norm=norm).double().eval()
    fill(decoder, seed=1)
    return decoder


@pytest.mark.parametrize("mlp", ["relu", "gelu"])
@pytest.mark.parametrize("norm_place", ["pre", "post"])
def test_against_torch_nn(norm_place: str, mlp: str) -> None:
    theirs = nn.Transformer(
        WIDTH,
        HEADS,
        batch_first=True,
        custom_encoder=torch_encoder(norm_place, mlp),
        custom_decoder=torch_decoder(norm_place, mlp),
    ).eval()
    ours = made(position="none", norm_place=norm_place, mlp=mlp)
    encoder: Any = ours.reader.layers.encoder
    for layer, mine in zip(theirs.encoder.layers, encoder.layers, strict=True):
        copy_torch_layer(layer, mine.mixer.heads, mine.norm, mine.mlp, mine.mlp_norm)
    for layer, block in zip(theirs.decoder.layers, ours.blocks, strict=True):
        # A decoder's layer has a second attention, and its norm is the second of three.
        mine: Any = block
        like_encoder: Any = layer
        heads = mine.cross.heads
        with torch.no_grad():
            heads.w_PI.copy_(like_encoder.multihead_attn.in_proj_weight)
            heads.b_P.copy_(like_encoder.multihead_attn.in_proj_bias)
            heads.o_DD.copy_(like_encoder.multihead_attn.out_proj.weight)
            heads.b_D.copy_(like_encoder.multihead_attn.out_proj.bias)
        copy_torch_layer(like_encoder, mine.mixer.heads, mine.norm, mine.mlp, mine.cross_norm)
        mine.mlp_norm.load_state_dict(like_encoder.norm3.state_dict())
    if norm_place == "pre":
        encoder.final_norm.load_state_dict(theirs.encoder.norm.state_dict())
        ours.final_norm.load_state_dict(theirs.decoder.norm.state_dict())

    source_BS, target_BT = tokens(SOURCE, 5, seed=1), tokens(TARGET, 6, seed=2)
    padding_BS = torch.arange(5) >= SOURCE_LENGTHS[:, None]
    expected = ours.head(
        theirs(
            ours.reader.entry(source_BS),
            ours.embedding(target_BT),
            tgt_mask=torch.ones(6, 6, dtype=torch.bool).triu(1),
            src_key_padding_mask=padding_BS,
            memory_key_padding_mask=padding_BS,
        )
    )
    state = ours.condition(source_BS, SOURCE_LENGTHS)
    assert_same(ours(target_BT, state)[0], expected, tolerance=1e-10)
    assert_same(unroll(ours.step, target_BT, state)[0], expected, tolerance=1e-10)


OPTIONS = {
    "sinusoidal": {},
    "learned, post": {"position": "learned", "context": 12, "norm_place": "post", "mlp": "relu"},
    "rotary, grouped": {"position": "rotary", "kv_heads": 1, "norm": "rms", "mlp": "swiglu", "bias": False},
    "alibi": {"position": "alibi"},
    "naive": {"kernel": "naive"},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
def test_every_law(options: dict[str, Any]) -> None:
    model = made(**options)
    state = detach(model.condition(tokens(SOURCE, 5, seed=1), SOURCE_LENGTHS))
    _, state = model(tokens(TARGET, 3, seed=3), state, torch.tensor([1, 2, 3]))
    case = laws.Case(tokens(TARGET, 6, seed=2), detach(state))
    broken = {law: error_of(model, case) for law, error_of in laws.EXACT.items()}
    assert max(broken.values()) <= 1e-10, broken


@pytest.mark.parametrize("kernel", ["fused", "naive"])
def test_rows_do_not_feel_each_other(kernel: str) -> None:
    """Ragged sources, sources put together later, rows reordered as in a beam: each goes on as if alone."""
    model = made(kernel=kernel)
    source_BS, target_BT = tokens(SOURCE, 5, seed=1), tokens(TARGET, 4, seed=2)
    alone = [model.condition(source_BS[i : i + 1, :n]) for i, n in enumerate(SOURCE_LENGTHS.tolist())]
    expected = torch.cat([model(target_BT[i : i + 1], state)[0] for i, state in enumerate(alone)])
    assert_same(model(target_BT, model.condition(source_BS, SOURCE_LENGTHS))[0], expected)
    assert_same(model(target_BT, concat(alone))[0], expected)
    order = torch.tensor([2, 0, 0])
    assert_same(model(target_BT[order], rows(concat(alone), order))[0], expected[order])


@pytest.mark.parametrize("kernel", ["fused", "naive"])
def test_without_a_source_it_still_writes(kernel: str) -> None:
    model = made(kernel=kernel)
    logits, _ = model(tokens(TARGET, 4, seed=2))
    empty, _ = model(tokens(TARGET, 4, seed=2), model.condition(tokens(SOURCE, 5, seed=1), torch.tensor([0, 0, 0])))
    assert logits.isfinite().all()
    assert_same(empty, logits)


def test_a_lens_tells_the_two_kinds_of_attention_apart() -> None:
    model = made()
    with lens("*.attention.weights") as seen:
        state = model.condition(tokens(SOURCE, 5, seed=1))
        model(tokens(TARGET, 4, seed=2), state)
    assert seen["layers.0.source.attention.weights"].shape == (3, 4, HEADS, 5)
    assert seen["layers.0.attention.weights"].shape == (3, 4, HEADS, 4)
    assert seen["reader.encoder.1.attention.weights"].shape == (3, 5, HEADS, 5)
