"""Dropout on attention's weights: nothing while evaluating, nothing in the mean while training."""

import pytest
import torch

from statewise.mixers import Attention, SlidingAttention
from statewise.models import build
from statewise.specs import UserError

DRAWS, RATE = 4000, 0.4
MIXERS = {"attention": {}, "window": {"window": 3}, "alibi": {"position": "alibi"}}


def make(options: dict[str, object], dropout: float, kernel: str) -> Attention | SlidingAttention:
    kind = SlidingAttention if "window" in options else Attention
    generator = torch.Generator().manual_seed(0)
    made = kind(8, heads=2, dropout=dropout, kernel=kernel, generator=generator, **options)  # options are of many types
    return made.double()


@pytest.mark.parametrize("kernel", ["naive", "fused"])
@pytest.mark.parametrize("options", MIXERS.values(), ids=MIXERS)
def test_in_the_mean_nothing_changes(options: dict[str, object], kernel: str) -> None:
    torch.manual_seed(0)  # dropout draws from the global generator, as everywhere in PyTorch
    dropped, plain = make(options, RATE, kernel), make(options, 0.0, kernel)
    x = torch.randn(1, 5, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    expected, _ = plain(x)
    with torch.no_grad():
        assert torch.equal(dropped.eval()(x)[0], expected), "while evaluating, it is not there"
        y, state = dropped.train()(x.expand(DRAWS, -1, -1))
    error = (y.mean(0) - expected[0]).abs()
    spread = y.std(0) / DRAWS**0.5
    assert (spread > 1e-4).all(), "each draw is another"
    assert (error < 5 * spread).all()
    keys = state.keys_BSGK
    assert torch.equal(keys, keys[:1].expand_as(keys)), "what is remembered is not dropped"


def test_a_spec_says_how_much() -> None:
    model = build("transformer", vocab=9, width=8, heads=2, attention_dropout=0.25)
    assert [block.mixer.dropout for block in model.stack.blocks] == [0.25, 0.25]
    model = build("transformer", vocab=9, width=8, heads=2, window=3, attention_dropout=0.25)
    assert [block.mixer.dropout for block in model.stack.blocks] == [0.25, 0.25]
    with pytest.raises(UserError, match=r"model\.attention_dropout = 1\.0"):
        build("transformer", vocab=9, attention_dropout=1.0)


@pytest.mark.gpu
def test_past_the_last_learned_position_on_a_gpu() -> None:
    """The lookup itself would end the process: it has to be refused before."""
    model = build("transformer", vocab=9, width=8, position="learned", context=4).cuda()
    with pytest.raises(UserError, match=r"position 4 is past the 4 positions"):
        model(torch.zeros(1, 5, dtype=torch.int64, device="cuda"))
    _, state = model(torch.zeros(1, 4, dtype=torch.int64, device="cuda"))
    with pytest.raises(UserError, match=r"position 4 is past the 4 positions[^$]*model.context"):
        model.step(torch.zeros(1, dtype=torch.int64, device="cuda"), state)
    assert model.reserve(state, 3)[1] == 0
