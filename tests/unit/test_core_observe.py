"""The tap: the identity when closed, the equation's own values when open."""

import pytest
import torch
from torch import Tensor

from statewise.core import is_observed, lens, observe, scope
from statewise.mixers import GRU, LSTM, Elman, LSTMState
from statewise.models import build

X = torch.randn(2, 5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def test_closed_it_is_the_identity() -> None:
    value = torch.ones(3)
    assert observe("anything", value) is value
    assert not is_observed()
    with scope("layers.0"):
        assert observe("anything", value) is value


def test_open_it_shows_the_same_object_and_records() -> None:
    value = torch.ones(3)
    with lens() as opened:
        assert is_observed()
        assert observe("a", value) is value
    assert opened.names == ["a"]
    assert opened.seen["a"] == [value]


def test_only_what_matches_a_pattern_is_seen() -> None:
    with lens("lstm.*", "gru.h") as opened:
        for name in ("lstm.cell", "gru.h", "gru.candidate", "elman.h"):
            observe(name, torch.ones(1))
    assert opened.names == ["lstm.cell", "gru.h"]


def test_scopes_nest_and_end() -> None:
    with lens() as opened:
        with scope("layers.0"):
            with scope("left"):
                observe("h", torch.ones(1))
            observe("h", torch.ones(1))
        observe("h", torch.ones(1))
    assert opened.names == ["layers.0.left.h", "layers.0.h", "h"]


def test_an_inner_lens_sees_alone_and_gives_back() -> None:
    with lens() as outer:
        with lens() as inner:
            observe("a", torch.ones(1))
        observe("b", torch.ones(1))
    assert (inner.names, outer.names) == (["a"], ["b"])


def test_closing_ends_it_even_after_an_error() -> None:
    with pytest.raises(RuntimeError), lens() as opened, scope("layers.0"):
        raise RuntimeError
    assert not is_observed()
    observe("late", torch.ones(1))
    assert opened.names == []
    with lens() as fresh:
        observe("h", torch.ones(1))
    assert fresh.names == ["h"], "the scope ended too"


def test_an_unseen_name_says_what_was_seen() -> None:
    with lens() as opened:
        observe("lstm.cell", torch.ones(1))
    with pytest.raises(KeyError, match=r"lstm\.sell.*seen: lstm\.cell"):
        opened["lstm.sell"]


def sigmoid(a: Tensor) -> Tensor:
    return 1 / (1 + torch.exp(-a))


def test_lstm_values_are_those_of_the_equation() -> None:
    mixer = LSTM(3, input_width=4).double()
    h = torch.full((2, 3), 0.3, dtype=torch.float64)
    c = torch.full((2, 3), -0.2, dtype=torch.float64)
    with torch.no_grad(), lens() as opened:
        mixer(X, LSTMState(h, c))
        for t in range(5):
            i, f, g, o = (X[:, t] @ mixer.w_GI.T + h @ mixer.u_GP.T + mixer.b_G).chunk(4, dim=1)
            c = sigmoid(f) * c + sigmoid(i) * torch.tanh(g)
            h = sigmoid(o) * torch.tanh(c)
            by_hand = {
                "lstm.input_gate": sigmoid(i),
                "lstm.forget_gate": sigmoid(f),
                "lstm.candidate": torch.tanh(g),
                "lstm.output_gate": sigmoid(o),
                "lstm.cell": c,
                "lstm.h": h,
            }
            for name, value in by_hand.items():
                torch.testing.assert_close(opened[name][:, t], value, rtol=0, atol=1e-12)
    assert set(opened.names) == set(by_hand)
    assert opened["lstm.cell"].shape == (2, 5, 3)


def test_gru_and_elman_values_are_those_of_the_equation() -> None:
    gru, elman = GRU(3, input_width=4).double(), Elman(3, input_width=4).double()
    h = torch.zeros(2, 3, dtype=torch.float64)
    with torch.no_grad(), lens() as opened:
        gru(X)
        elman(X)
        a = X[:, 0] @ gru.w_GI.T + gru.b_G
        u_h = h @ gru.u_GD.T
        r, z = sigmoid(a[:, :3] + u_h[:, :3]), sigmoid(a[:, 3:6] + u_h[:, 3:6])
        n = torch.tanh(a[:, 6:] + r * (u_h[:, 6:] + gru.b_u_D))
        by_hand = {
            "gru.reset_gate": r,
            "gru.update_gate": z,
            "gru.candidate": n,
            "gru.h": (1 - z) * n + z * h,
            "elman.h": torch.tanh(X[:, 0] @ elman.w_DI.T + elman.b_D),
        }
    assert set(opened.names) == set(by_hand)
    for name, value in by_hand.items():
        torch.testing.assert_close(opened[name][:, 0], value, rtol=0, atol=1e-12)


def test_names_are_scoped_by_layer_in_forward_and_step() -> None:
    model = build("gru", vocab=7, width=4, depth=2).double()
    tokens = torch.tensor([[1, 2, 3]])
    with torch.no_grad(), lens("*.gru.h") as parallel:
        model(tokens)
    with torch.no_grad(), lens("*.gru.h") as stepped:
        state = model.init_state(1)
        for token_B in tokens.T:
            _, state = model.step(token_B, state)
    assert parallel.names == stepped.names == ["layers.0.gru.h", "layers.1.gru.h"]
    for name in parallel.names:
        torch.testing.assert_close(stepped[name], parallel[name], rtol=0, atol=1e-12)
    assert torch.equal(stepped["layers.1.gru.h"][:, -1], state.layers[1].h_BD)


def test_looking_changes_nothing() -> None:
    mixer = LSTM(3, input_width=4).double()
    y, state = mixer(X)
    with lens():
        y_seen, state_seen = mixer(X)
    torch.testing.assert_close(y_seen, y, rtol=0, atol=1e-12)
    torch.testing.assert_close(state_seen.c_BD, state.c_BD, rtol=0, atol=1e-12)


def test_an_edit_changes_what_follows() -> None:
    """A forget gate held at 1 and an input gate held at 0 make the cell a constant."""
    mixer = LSTM(3, input_width=4).double()
    held = {"lstm.forget_gate": 1.0, "lstm.input_gate": 0.0}
    start = LSTMState(torch.zeros(2, 3, dtype=torch.float64), torch.full((2, 3), 0.7, dtype=torch.float64))
    with lens(*held, edit=lambda name, value: torch.full_like(value, held[name])) as opened:
        y, after = mixer(X, start)
    assert torch.equal(after.c_BD, start.c_BD)
    assert (opened["lstm.forget_gate"] == 1).all(), "what is recorded is what was used"
    y_plain, _ = mixer(X, start)
    assert (y - y_plain).abs().max() > 1e-2


def test_an_edited_cell_is_the_cell_that_shows() -> None:
    mixer = LSTM(3, input_width=4).double()
    with lens("lstm.cell", edit=lambda name, value: torch.zeros_like(value)):
        y, after = mixer(X)
    assert (y == 0).all()
    assert (after.c_BD == 0).all()


def test_gradients_flow_through_what_was_seen() -> None:
    mixer = Elman(3, input_width=4).double()
    with lens("elman.h") as opened:
        y, _ = mixer(X)
    (gradient,) = torch.autograd.grad(y[:, -1].sum(), opened.seen["elman.h"][0])
    assert gradient.abs().max() > 0


def test_after_closing_the_fast_path_is_back_and_nothing_is_recorded() -> None:
    mixer = LSTM(3, input_width=4).double()
    with lens() as opened:
        assert mixer.choice().implementation == "naive"
        mixer(X)
    seen = {name: len(values) for name, values in opened.seen.items()}
    assert mixer.choice().implementation == "fused"
    mixer(X)
    assert {name: len(values) for name, values in opened.seen.items()} == seen


def test_what_is_not_kept_is_still_seen_by_an_edit() -> None:
    passed: list[str] = []

    def note(name: str, value: Tensor) -> Tensor:
        passed.append(name)
        return value

    with lens("a*", edit=note, keep=False) as opened:
        observe("ab", torch.ones(1))
        observe("b", torch.ones(1))
        observe("ab", torch.ones(1))
    assert passed == ["ab", "ab"]
    assert opened.seen == {}
