"""Test-time training: token by token (primal), mini-batch by mini-batch (dual), and the choice between them."""

from torch import Tensor

from statewise.core import map_state, to
from statewise.kernels.along_time import no_autocast, wide
from statewise.kernels.choice import Choice, Wish, choose
from statewise.kernels.ttt import dual, naive
from statewise.kernels.ttt.inner import InnerNorm as InnerNorm
from statewise.kernels.ttt.inner import Weights as Weights
from statewise.kernels.ttt.naive import Carried as Carried


def choice(*, wish: Wish = "auto") -> Choice:
    return choose("test-time training", obstacles=[], wish=wish, fast=("batched",))


def ttt(
    q_BTHK: Tensor,
    k_BTHK: Tensor,
    v_BTHK: Tensor,
    rate_BTH: Tensor,
    state: Carried,
    start: Weights,
    norm: InnerNorm | None = None,
    *,
    mini_batch: int,
    lengths_B: Tensor | None = None,
    wish: Wish = "auto",
) -> tuple[Tensor, Carried]:
    """What is read at each moment, and the state after the last; both in the dtype of the state that came in."""
    run = naive.ttt if choice(wish=wish).implementation == "naive" else dual.ttt
    like = state.change[0]
    with no_autocast(like):
        q, k, v, rate = wide(q_BTHK, k_BTHK, v_BTHK, rate_BTH)
        wide_state = map_state(lambda leaf: wide(leaf)[0] if leaf.is_floating_point() else leaf, state)
        wide_norm = None if norm is None else InnerNorm(*wide(*norm))
        y_BTHK, after = run(q, k, v, rate, wide_state, wide(*start), wide_norm, mini_batch, lengths_B)
    return y_BTHK.to(like), to(after, like.dtype)
