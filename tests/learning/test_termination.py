"""Each way to end learns when to: a length that the prompt settles, and one that it only gives in distribution."""

import pytest
import torch
from example import example

from statewise.decoding.termination import calibrate_lengths, decode_until_end
from statewise.models.build_seq2seq import SCHEMES, Scheme, build_terminating
from statewise.models.termination import Terminating
from statewise.specs import LSTMSpec, MixerSpec

termination = example("termination")


def trained(spec: MixerSpec, scheme: Scheme, kind: str, *, steps: int, longest: int) -> Terminating:
    model = build_terminating(spec, scheme=scheme, vocab=3)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = 1e-2 * (1 - step / steps) + 1e-4
        data = termination.terminated(kind, 32, seed=1000 + step, longest=longest)
        nats = model.loss(data.prompt_NP, data.prompt_length_N, data.content_NT, data.length_N).sum() / 32
        optimizer.zero_grad()
        nats.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return model.eval()


@pytest.mark.parametrize(
    "scheme", ["remaining", *(pytest.param(s, marks=pytest.mark.slow) for s in ("end", "bernoulli"))]
)
def test_a_length_that_the_prompt_settles(scheme: Scheme) -> None:
    """As many as there were: the model has to count, and to know when it is done."""
    model = trained(LSTMSpec(width=16), scheme, "determined", steps=250, longest=7)
    data = termination.terminated("determined", 100, seed=1, longest=7)
    written = decode_until_end(model, data.prompt_NP, data.prompt_length_N, longest=20, seed=None)
    assert (written.lengths_B == data.length_N).double().mean() >= 0.97
    assert written.ended_B.all()
    inside = torch.arange(written.tokens_BT.shape[1]) < written.lengths_B[:, None]
    assert (written.tokens_BT[inside] == 2).all()


@pytest.mark.slow
@pytest.mark.parametrize("scheme", SCHEMES)
def test_row_d7_a_length_that_the_prompt_distributes(scheme: Scheme) -> None:
    model = trained(LSTMSpec(width=24), scheme, "distributed", steps=250, longest=1)
    data = termination.terminated("distributed", 300, seed=1)
    with torch.no_grad():
        nats_N = model.loss(data.prompt_NP, data.prompt_length_N, data.content_NT, data.length_N).sum(1)
    assert -0.1 <= (nats_N - termination.least_nats(data)).mean() <= 0.25
    drawn = decode_until_end(model, data.prompt_NP.repeat_interleave(40, 0), longest=150, seed=2)
    drawn_NM = drawn.lengths_B.view(300, 40)
    found = calibrate_lengths(data.length_N.numpy(), drawn_NM.numpy())
    assert found.pit_distance < 0.15
    assert found.covered[0.8] > 0.72
    for symbol, mean in enumerate(termination.MEANS):
        own = drawn_NM[data.prompt_NP[:, 0] == symbol].double()
        assert own.mean().item() == pytest.approx(mean, rel=0.3, abs=0.5)
