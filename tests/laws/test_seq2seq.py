"""An encoder-decoder keeps the laws too: from the state that `condition` gives, it is a machine like any other."""

import itertools
from typing import Any

import pytest
import torch

from statewise.core import detach, laws, rows
from statewise.models import ConditionalMachine, build_seq2seq
from statewise.specs import AttentionSpec, ElmanSpec, GRUSpec, LSTMSpec, Seq2SeqSpec, UserError

ENCODERS = {"gru": GRUSpec(width=6), "lstm": LSTMSpec(width=5), "both ways": GRUSpec(width=3)}
STATIC = {
    f"{name}-{context}-{source}-{'edges' if edges else 'no edges'}": Seq2SeqSpec(
        encoder=encoder,
        decoder=LSTMSpec(width=6),
        bidirectional=name == "both ways",
        context=context,
        source=source,
        output_edges=edges,
    )
    for (name, encoder), context, source, edges in itertools.product(
        ENCODERS.items(), ("initial", "each_step", "both"), ("last", "mean"), (True, False)
    )
}
LOOKS = {
    f"{style}-{score}-{alignment}-{'fed' if feeding else 'not fed'}": Seq2SeqSpec(
        encoder=GRUSpec(width=6),
        decoder=GRUSpec(width=6),
        attention=AttentionSpec(style=style, score=score, alignment=alignment, input_feeding=feeding),
    )
    for style, (score, alignment), feeding in itertools.product(
        ("bahdanau", "luong"),
        [
            ("additive", "soft"),
            ("dot", "sparsemax"),
            ("general", "local_monotonic"),
            ("concat", "local_predictive"),
            ("location", "soft"),
            ("cosine", "hard"),
            ("scaled_dot", "soft"),
        ],
        (True, False),
    )
}
SPECS = STATIC | LOOKS


def made(spec: Seq2SeqSpec) -> ConditionalMachine[Any]:
    return build_seq2seq(spec, source_vocab=7, target_vocab=9).double().eval()


def conditioned(model: ConditionalMachine[Any]) -> laws.Case:
    generator = torch.Generator().manual_seed(0)
    source_BS = torch.randint(7, (3, 5), generator=generator)
    state = model.condition(source_BS, torch.tensor([5, 3, 1]))
    return laws.Case(model.sample_input(3, 6, generator=generator), detach(state))


@pytest.mark.parametrize("name", SPECS)
def test_every_law(name: str) -> None:
    model = made(SPECS[name])
    broken = {law: error_of(model, conditioned(model)) for law, error_of in laws.EXACT.items()}
    assert max(broken.values()) <= 1e-10, broken


@pytest.mark.parametrize("name", ["both ways-both-last-edges", "gru-initial-mean-edges", "luong-dot-sparsemax-fed"])
def test_padding_a_source_changes_nothing(name: str) -> None:
    """A row of a ragged batch of sources gives what that source gives alone; so do reordered rows (beams)."""
    model = made(SPECS[name])
    source_BS, lengths_B = torch.randint(7, (3, 5)), torch.tensor([5, 3, 1])
    together = model.condition(source_BS, lengths_B)
    target_BT = torch.randint(9, (3, 4))
    logits_BTV, _ = model(target_BT, together)
    for i, length in enumerate(lengths_B.tolist()):
        alone, _ = model(target_BT[i : i + 1], model.condition(source_BS[i : i + 1, :length]))
        torch.testing.assert_close(logits_BTV[i : i + 1], alone, rtol=0, atol=1e-12)
    order = torch.tensor([2, 0, 0])
    reordered, _ = model(target_BT[order], rows(together, order))
    torch.testing.assert_close(reordered, logits_BTV[order], rtol=0, atol=1e-12)


def test_the_source_matters_and_edges_are_edges() -> None:
    model = made(STATIC["gru-both-last-no edges"])
    source_BS = torch.randint(7, (1, 5))
    first, _ = model(torch.tensor([[1, 2, 3]]), model.condition(source_BS))
    second, _ = model(torch.tensor([[4, 5, 6]]), model.condition(source_BS))
    assert torch.equal(first, second), "without output edges, targets do not reach the decoder"
    other, _ = model(torch.tensor([[1, 2, 3]]), model.condition((source_BS + 1) % 7))
    assert not torch.allclose(first, other)


def test_a_summary_can_only_begin_a_state_of_vectors() -> None:
    from statewise.specs import TransformerSpec

    decoder = TransformerSpec(width=8, heads=2, depth=1)
    with pytest.raises(UserError, match="cannot begin from a summary"):
        made(Seq2SeqSpec(decoder=decoder, encoder=ElmanSpec(width=4), context="initial"))
    looks = Seq2SeqSpec(decoder=decoder, encoder=ElmanSpec(width=4), attention=AttentionSpec(style="luong"))
    model = made(looks)
    broken = {law: error_of(model, conditioned(model)) for law, error_of in laws.EXACT.items()}
    assert max(broken.values()) <= 1e-10, broken
