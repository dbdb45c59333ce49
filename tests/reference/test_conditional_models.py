"""Encoder-decoders against networks made of torch.nn, by copied weights: every logit, from ragged sources."""

from typing import Any, cast

import pytest
import torch
from agreement import assert_same, fill
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from statewise.comparison.study import load_study, spec_of
from statewise.models import ENCODER_DECODERS, Seq2Seq, build_seq2seq
from statewise.specs import Seq2SeqSpec

SOURCE, TARGET = 7, 9
LENGTHS = torch.tensor([5, 2, 4])
ROWS = {row.name: row for row in ENCODER_DECODERS}


def tokens(vocab: int, time: int) -> Tensor:
    return torch.randint(vocab, (3, time), generator=torch.Generator().manual_seed(time))


def made(name: str, **options: Any) -> Seq2Seq:
    """A row of the table at a small size, every weight random."""
    spec = Seq2SeqSpec.model_validate({**ROWS[name].spec.small().model_dump(), **options})
    model = build_seq2seq(spec, source_vocab=SOURCE, target_vocab=TARGET).double().eval()
    assert isinstance(model, Seq2Seq)
    fill(model)
    return model


def copied(mixers: list[Any], *, bidirectional: bool = False) -> nn.LSTM | nn.GRU:
    """One torch.nn network of several layers, with the weights of our mixers, layer by layer and way by way."""
    gates = "u_GP" if hasattr(mixers[0], "u_GP") else "u_GD"
    kind: Any = nn.LSTM if gates == "u_GP" else nn.GRU
    width = mixers[0].output_width
    depth = len(mixers) // (2 if bidirectional else 1)
    theirs = kind(
        mixers[0].input_width, width, depth, batch_first=True, bidirectional=bidirectional, dtype=torch.float64
    )
    ways = ["", "_reverse"] if bidirectional else [""]
    with torch.no_grad():
        for mixer, suffix in zip(mixers, [f"l{n}{way}" for n in range(depth) for way in ways], strict=True):
            getattr(theirs, f"weight_ih_{suffix}").copy_(mixer.w_GI)
            getattr(theirs, f"weight_hh_{suffix}").copy_(getattr(mixer, gates))
            getattr(theirs, f"bias_ih_{suffix}").copy_(mixer.b_G)
            getattr(theirs, f"bias_hh_{suffix}").zero_()
            if kind is nn.GRU:
                getattr(theirs, f"bias_hh_{suffix}")[2 * width :] = mixer.b_u_D
    return theirs


def read(model: Seq2Seq, source_BS: Tensor) -> tuple[Tensor, Tensor]:
    """Outputs and last states of torch.nn's own reading of packed rows."""
    layers: Any = model.reader.layers
    if hasattr(layers, "stack"):
        theirs = copied([block.mixer for block in layers.stack.blocks])
    else:
        both = [layer.mixer for layer in layers.layers]
        theirs = copied([mixer for way in both for mixer in (way.ahead, way.back)], bidirectional=True)
    x_BSE = model.reader.entry(source_BS)
    packed = pack_padded_sequence(x_BSE, LENGTHS, batch_first=True, enforce_sorted=False)
    outputs, last = theirs(packed)
    outputs_BSC, _ = pad_packed_sequence(outputs, batch_first=True, total_length=source_BS.shape[1])
    h_LBD = last[0] if isinstance(last, tuple) else last
    ends = [h_LBD[-2], h_LBD[-1]] if theirs.bidirectional else [h_LBD[-1]]
    return outputs_BSC, torch.cat(ends, dim=-1)


def first_state(model: Seq2Seq, summary_BC: Tensor) -> Any:
    assert model.bridge is not None
    parts = torch.stack([torch.tanh(F.linear(summary_BC, m.weight, m.bias)) for m in model.bridge.maps])
    if hasattr(model.stack.blocks[0].mixer, "u_GP"):  # an LSTM's leaves come as h and c of each layer
        return parts[0::2].contiguous(), parts[1::2].contiguous()
    return parts


def decoder(model: Seq2Seq) -> nn.LSTM | nn.GRU:
    return copied([block.mixer for block in model.stack.blocks])


@pytest.mark.parametrize("source", ["last", "mean"])
@pytest.mark.parametrize("name", ["encoder_decoder", "contextual_decoder"])
def test_a_fixed_context(name: str, source: str) -> None:
    model = made(name, source=source)
    source_BS, target_BT = tokens(SOURCE, 5), tokens(TARGET, 6)
    outputs_BSC, last_BC = read(model, source_BS)
    summary_BC = last_BC if source == "last" else outputs_BSC.sum(1) / LENGTHS[:, None]
    x_BTX = model.embedding(target_BT)
    if name == "contextual_decoder":
        x_BTX = torch.cat([x_BTX, summary_BC[:, None].expand(-1, 6, -1)], dim=-1)
    y_BTD, _ = decoder(model)(x_BTX, first_state(model, summary_BC))
    expected = F.linear(y_BTD, model.head.weight_VE, model.head.bias_V)
    assert_same(model(target_BT, model.condition(source_BS, LENGTHS))[0], expected, tolerance=1e-11)


@pytest.mark.parametrize("edges", [True, False], ids=["edges", "no edges"])
@pytest.mark.parametrize("context", ["initial", "each_step", "both"])
def test_row_a14_the_output_reads_state_token_and_context(context: str, edges: bool) -> None:
    """`g(h, y, c)`: logits of `tanh(W [h; c; y])`, step by step, from a few lines of torch."""
    model = made("contextual_decoder", context=context, output="deep", output_edges=edges)
    source_BS, target_BT = tokens(SOURCE, 5), tokens(TARGET, 6)
    _, c_BC = read(model, source_BS)
    theirs = decoder(model)
    state = None if model.bridge is None else first_state(model, c_BC)
    combine: Any = model.combine
    expected = []
    for t in range(6):
        e_BE = model.embedding(target_BT[:, t]) * float(edges)
        x_BX = e_BE if context == "initial" else torch.cat([e_BE, c_BC], dim=-1)
        h_B1D, state = theirs(x_BX[:, None], state)
        w_h, w_c, w_y = combine.weight.split([h_B1D.shape[-1], c_BC.shape[-1], e_BE.shape[-1]], dim=1)
        shown = torch.tanh(h_B1D[:, 0] @ w_h.T + c_BC @ w_c.T + e_BE @ w_y.T + combine.bias)
        expected.append(shown @ model.head.weight_VE.T + model.head.bias_V)
    found, _ = model(target_BT, model.condition(source_BS, LENGTHS))
    assert_same(found, torch.stack(expected, dim=1), tolerance=1e-11)


def _context_models() -> dict[str, Seq2SeqSpec]:
    """The models of the shipped study `context`, by the names of their entries."""
    study = load_study("context")
    models = {entry.name: spec_of(study, entry).model for entry in study.entry}
    assert all(isinstance(model, Seq2SeqSpec) for model in models.values())
    return cast("dict[str, Seq2SeqSpec]", models)


def test_row_d4_the_study_has_every_way_to_condition() -> None:
    ways = {(model.context, model.source, model.output_edges) for model in _context_models().values()}
    contexts = ("initial", "each_step", "both")
    assert ways == {
        (context, *rest) for context in contexts for rest in (("last", True), ("last", False), ("mean", True))
    }


@pytest.mark.parametrize("name", _context_models())
def test_row_d4_every_entry_is_its_equation(name: str) -> None:
    """h_t = GRU([e(y_{t-1}), c], h_{t-1}): c, e or the initial state are missing where the entry says so."""
    spec = _context_models()[name]
    model = build_seq2seq(spec.small(), source_vocab=SOURCE, target_vocab=TARGET).double().eval()
    assert isinstance(model, Seq2Seq)
    fill(model)
    source_BS, target_BT = tokens(SOURCE, 5), tokens(TARGET, 6)
    outputs_BSC, last_BC = read(model, source_BS)
    c_BC = last_BC if spec.source == "last" else outputs_BSC.sum(1) / LENGTHS[:, None]
    x_BTX = model.embedding(target_BT) if spec.output_edges else torch.zeros_like(model.embedding(target_BT))
    if spec.context != "initial":
        x_BTX = torch.cat([x_BTX, c_BC[:, None].expand(-1, 6, -1)], dim=-1)
    y_BTD, _ = decoder(model)(x_BTX, first_state(model, c_BC) if spec.context != "each_step" else None)
    expected = F.linear(y_BTD, model.head.weight_VE, model.head.bias_V)
    assert_same(model(target_BT, model.condition(source_BS, LENGTHS))[0], expected, tolerance=1e-11)


def weights_of(scores_BS: Tensor) -> Tensor:
    past_BS = torch.arange(scores_BS.shape[1]) >= LENGTHS[:, None]
    return scores_BS.masked_fill(past_BS, -torch.inf).softmax(-1)


@pytest.mark.parametrize("query", ["state", "token"])
def test_row_a15_attention_decoder_in_the_six_steps_of_the_paper(query: str) -> None:
    """Encoder states, scores, softmax, context, state update, output: one target position after the other.

    In the paper the last state alone is the query; by default the token that was written last is added to it.
    """
    model = made("attention_decoder", attention={"query": query})
    assert (model.ask is None) == (query == "state")
    source_BS, target_BT = tokens(SOURCE, 5), tokens(TARGET, 6)
    h_BSC, last_BC = read(model, source_BS)
    theirs, state = decoder(model), first_state(model, last_BC)
    score: Any = model.attend.score
    combine: Any = model.combine
    s_BD = torch.zeros(3, model.stack_width, dtype=torch.float64)
    expected = []
    for t in range(6):
        e_BE = model.embedding(target_BT[:, t])
        q_BD = s_BD if model.ask is None else s_BD + F.linear(e_BE, model.ask.weight)
        inner = torch.tanh((q_BD @ score.w_AQ.T)[:, None] + h_BSC @ score.u_AK.T + score.b_A)
        c_BC = torch.einsum("bs,bsc->bc", weights_of(inner @ score.v_A), h_BSC)
        y_B1D, state = theirs(torch.cat([e_BE, c_BC], dim=-1)[:, None], state)
        s_BD = y_B1D[:, 0]
        shown = torch.tanh(F.linear(torch.cat([s_BD, c_BC, e_BE], dim=-1), combine.weight, combine.bias))
        expected.append(F.linear(shown, model.head.weight_VE, model.head.bias_V))
    found, _ = model(target_BT, model.condition(source_BS, LENGTHS))
    assert_same(found, torch.stack(expected, dim=1), tolerance=1e-11)


@pytest.mark.parametrize("feeding", [True, False], ids=["fed", "not fed"])
@pytest.mark.parametrize("kind", ["dot", "general"])
def test_general_attention_as_luong_wrote_it(kind: str, feeding: bool) -> None:
    look = {"style": "luong", "score": kind, "input_feeding": feeding}
    model = made("general_attention", attention=look)
    source_BS, target_BT = tokens(SOURCE, 5), tokens(TARGET, 6)
    h_BSC, last_BC = read(model, source_BS)
    theirs, state = decoder(model), first_state(model, last_BC)
    score: Any = model.attend.score
    combine: Any = model.combine
    fed_BD = torch.zeros(3, model.stack_width, dtype=torch.float64)
    expected = []
    for t in range(6):
        x_BX = model.embedding(target_BT[:, t])
        x_BX = torch.cat([x_BX, fed_BD], dim=-1) if feeding else x_BX
        y_B1D, state = theirs(x_BX[:, None], state)
        keys = h_BSC if kind == "dot" else h_BSC @ score.w_QK.T
        c_BC = torch.einsum("bs,bsc->bc", weights_of(torch.einsum("bd,bsd->bs", y_B1D[:, 0], keys)), h_BSC)
        fed_BD = torch.tanh(F.linear(torch.cat([c_BC, y_B1D[:, 0]], dim=-1), combine.weight, combine.bias))
        expected.append(F.linear(fed_BD, model.head.weight_VE, model.head.bias_V))
    found, _ = model(target_BT, model.condition(source_BS, LENGTHS))
    assert_same(found, torch.stack(expected, dim=1), tolerance=1e-11)
