"""The list as a state: how it grows, how it is bounded, what is written in place, what is refused."""

from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from statewise.core import concat, fork, forward_with_resets, leaves, lens, rows, state_bytes, unroll
from statewise.layers import Heads
from statewise.mixers import Attention, BasicAttention, SlidingAttention
from statewise.models import build, context_bytes, num_parameters
from statewise.specs import TransformerSpec, UserError


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_the_list_grows_by_what_is_read() -> None:
    mixer = Attention(8, heads=4, kv_heads=2).double()
    state = mixer.init_state(3)
    assert state.keys_BSGK.shape == (3, 0, 2, 2)
    _, state = mixer(noise(3, 5, 8), state)
    _, state = mixer.step(noise(3, 8), state)
    assert state.keys_BSGK.shape == state.values_BSGK.shape == (3, 6, 2, 2)
    assert state.length_B.tolist() == [6, 6, 6]
    assert state_bytes(state) == 2 * 3 * 6 * 4 * 8 + 3 * 8


def test_ragged_rows_take_no_more_slots_than_the_longest_needs() -> None:
    for mixer in (Attention(8, heads=2).double(), BasicAttention(8).double()):
        _, state = mixer(noise(3, 50, 8), None, torch.tensor([2, 0, 3]))
        assert state[0].shape[1] == 3
        _, state = mixer(noise(3, 50, 8), state, torch.tensor([0, 1, 1]))
        assert state[0].shape[1] == 4
        assert state.length_B.tolist() == [2, 1, 4]


def test_a_window_bounds_the_state() -> None:
    mixer = SlidingAttention(8, heads=2, window=4).double()
    state = mixer.init_state(2)
    size = state_bytes(state)
    _, state = mixer(noise(2, 50, 8), state)
    assert state_bytes(state) == size
    assert state.keys_BSGK.shape[1] == 3
    assert state.position_B.tolist() == [50, 50]


def test_a_wide_window_is_no_window() -> None:
    plain = Attention(8, heads=2, position="rotary").double()
    bounded = SlidingAttention(8, heads=2, window=20, position="rotary").double()
    bounded.load_state_dict(plain.state_dict())
    x = noise(2, 20, 8)
    torch.testing.assert_close(bounded(x)[0], plain(x)[0], rtol=0, atol=1e-12)


def test_what_padding_and_unused_slots_hold_does_not_matter() -> None:
    for mixer in (
        Attention(8, heads=2, position="rotary").double(),
        SlidingAttention(8, heads=2, window=3).double(),
        BasicAttention(8).double(),
    ):
        x, lengths = noise(3, 6, 8), torch.tensor([6, 2, 0])
        broken = x.masked_fill((torch.arange(6) >= lengths[:, None])[:, :, None], torch.nan)
        y, state = mixer(x, None, lengths)
        again, other = mixer(broken, None, lengths)
        assert torch.equal(y, again)
        more = noise(3, 2, 8, seed=1)
        torch.testing.assert_close(mixer(more, state)[0], mixer(more, other)[0], rtol=0, atol=0)


@settings(deadline=None, max_examples=30)
@given(
    lengths=st.lists(st.integers(0, 5), min_size=1, max_size=3),
    steps=st.integers(1, 4),
    position=st.sampled_from(["none", "rotary", "alibi"]),
    room=st.integers(0, 3),
)
def test_steps_in_place_equal_pure_steps(lengths: list[int], steps: int, position: str, room: int) -> None:
    mixer = Attention(8, heads=4, kv_heads=2, position=position).double()
    batch = len(lengths)
    _, start = mixer(noise(batch, 5, 8), None, torch.tensor(lengths))
    x = noise(batch, steps, 8, seed=1)
    with torch.no_grad():
        expected, after = unroll(mixer.step, x, start)
    kept = fork(start)
    state, ready = mixer.reserve(start, steps + room)
    assert ready == steps + room
    got, state = unroll(mixer.step_, x, state)
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)
    assert state.length_B.tolist() == after.length_B.tolist()
    for row, length in enumerate(state.length_B.tolist()):
        torch.testing.assert_close(state.keys_BSGK[row, :length], after.keys_BSGK[row, :length], rtol=0, atol=1e-12)
    for (_, a), (_, b) in zip(leaves(start), leaves(kept), strict=True):
        assert torch.equal(a, b), "reserve made a copy"


def test_a_full_list_says_so() -> None:
    mixer = Attention(8, heads=2).double()
    state, _ = mixer.reserve(mixer.init_state(1), 1)
    _, state = mixer.step_(noise(1, 8), state)
    with pytest.raises(UserError, match=r"the list is full: it has 1 slots[^$]*reserve"):
        mixer.step_(noise(1, 8), state)


def test_rows_of_different_lengths_come_together_and_part() -> None:
    """Two sessions of different age, batched: each goes on as if it were alone."""
    model = build("transformer", vocab=9, width=8, heads=2, position="learned", context=16).double()
    old, young = torch.tensor([[1, 2, 3, 4, 5]]), torch.tensor([[6]])
    _, first = model(old)
    _, second = model(young)
    together, state = model(torch.tensor([[7, 8], [7, 8]]), concat([first, second]))
    for row, begun in enumerate([old, young]):
        alone, _ = model(torch.cat([begun, torch.tensor([[7, 8]])], dim=1))
        torch.testing.assert_close(together[row], alone[0, -2:], rtol=0, atol=1e-12)
    apart, _ = model(torch.tensor([[3]]), rows(state, slice(1, 2)))
    alone, _ = model(torch.tensor([[6, 7, 8, 3]]))
    torch.testing.assert_close(apart[0, 0], alone[0, -1], rtol=0, atol=1e-12)


def test_documents_inside_a_row_begin_with_an_empty_list() -> None:
    model = build("transformer", vocab=9, width=8, heads=2).double()
    tokens = torch.tensor([[1, 2, 3, 4, 5, 6]])
    resets = torch.tensor([[False, False, True, False, False, False]])
    y, after = forward_with_resets(model, tokens, model.init_state(1), resets, initial=model.init_state(1))
    torch.testing.assert_close(y[:, 2:], model(tokens[:, 2:])[0], rtol=0, atol=1e-12)
    assert after.layers[0].length_B.tolist() == [4]
    assert after.layers[0].keys_BSGK.shape[1] == 4, "the slots of the document before are free"


def test_weights_of_a_layer_can_be_seen() -> None:
    model = build("transformer", vocab=9, width=8, heads=2)
    with lens("*.attention.weights") as seen:
        model(torch.tensor([[1, 2, 3]]))
    assert seen.names == ["layers.0.attention.weights", "layers.1.attention.weights"]
    assert seen["layers.1.attention.weights"].shape == (1, 3, 2, 3)


# Specs.


@settings(deadline=None, max_examples=60)
@given(data=st.data(), vocab=st.integers(1, 20))
def test_the_formula_counts_what_is_built(data: st.DataObject, vocab: int) -> None:
    def one_of(*values: object) -> object:
        return data.draw(st.sampled_from(values))

    spec = TransformerSpec.model_validate(
        {
            "width": one_of(12, 64, 96),
            "depth": one_of(1, 3),
            "heads": one_of(None, 2, 4),
            "kv_heads": one_of(None, 1),
            "window": one_of(None, 3),
            "position": one_of("none", "learned", "sinusoidal", "rotary", "alibi"),
            "context": one_of(1, 17),
            "norm": one_of("none", "layer", "rms"),
            "norm_place": one_of("pre", "post"),
            "mlp": one_of("none", "relu", "gelu", "swiglu"),
            "mlp_ratio": one_of(0.5, 8 / 3, 4.0),
            "bias": one_of(True, False),
            "tie": one_of(True, False),
            "init": one_of("orthogonal", "published", "torch"),
        }
    )
    model = build(spec, vocab=vocab)
    assert num_parameters(partial(build, spec, vocab=vocab)) == sum(p.numel() for p in model.parameters())
    logits, _ = model(torch.zeros(1, 1, dtype=torch.int64))
    logits.square().sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_heads_follow_the_width() -> None:
    assert [TransformerSpec(width=w).num_heads for w in (4, 12, 64, 100, 128, 256)] == [1, 1, 2, 2, 4, 8]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": 12, "heads": 5}, r"width 12 is not a multiple of heads 5; heads that fit: 1, 2, 3, 4, 6, 12"),
        ({"width": 12, "heads": 4, "kv_heads": 3}, "heads 4 is not a multiple of kv_heads 3"),
        ({"width": 12, "window": 0}, r"model\.window = 0"),
        ({"width": 12, "position": "rotry"}, r"model\.position = 'rotry'"),
    ],
)
def test_a_mistake_is_explained(options: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        build("transformer", vocab=9, **options)


def test_other_mistakes() -> None:
    with pytest.raises(UserError, match="embedding 3 must be width 4"):
        build("basic_attention", vocab=9, width=4, embedding=3)
    with pytest.raises(UserError, match="width 6 is not a multiple of heads 4"):
        Heads(6, heads=4)
    model = build("transformer", vocab=9, width=8, position="learned", context=4)
    with pytest.raises(UserError, match=r"position 4 is past the 4 positions"):
        model(torch.zeros(1, 5, dtype=torch.int64))
    _, state = model(torch.zeros(1, 4, dtype=torch.int64))
    with pytest.raises(UserError, match=r"position 4 is past the 4 positions[^$]*model.context"):
        model.step(torch.zeros(1, dtype=torch.int64), state)


# What has to be remembered.


def test_memory_after_a_context_is_what_reading_it_leaves() -> None:
    model = build("transformer", vocab=9, width=8, depth=2, heads=2, kv_heads=1)
    for tokens in (0, 1, 70):
        _, state = model(torch.zeros(1, max(1, tokens), dtype=torch.int64))
        expected = model.init_state(1) if tokens == 0 else state
        assert context_bytes(model, tokens) == state_bytes(expected)


@pytest.mark.parametrize("options", [{"window": None}, {"window": 16}, {"window": None, "position": "learned"}])
def test_memory_of_a_long_context_by_formula(options: dict[str, object]) -> None:
    """Keys and values of every layer, or of the newest entries; and the positions, whole numbers of 8 bytes."""
    model = build("transformer", vocab=9, width=8, depth=2, heads=4, kv_heads=2, **{"context": 4096, **options})
    held = 65_536 if options["window"] is None else 15
    positions = 3 if "position" in options else 2
    assert context_bytes(model, 65_536) == 2 * 2 * held * (2 * 2) * 4 + positions * 8


def test_a_vector_never_grows() -> None:
    model = build("gru", vocab=9, width=8)
    assert context_bytes(model, 10**9) == 8 * 4
