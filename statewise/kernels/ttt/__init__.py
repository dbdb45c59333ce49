"""Test-time training: token by token, mini-batch by mini-batch (dual), all of them in one kernel, and the choice."""

from torch import Tensor

from statewise.core import map_state
from statewise.kernels.associative_memory import Inputs
from statewise.kernels.choice import PLAIN_CHUNKS, Choice, Wish, choose
from statewise.kernels.time_axis import no_autocast, wide
from statewise.kernels.ttt import dual, naive
from statewise.kernels.ttt.inner import InnerNorm as InnerNorm
from statewise.kernels.ttt.inner import Weights as Weights
from statewise.kernels.ttt.naive import Carried as Carried
from statewise.kernels.with_triton import load, with_triton

WIDEST, LONGEST = 64, 64  # a head, and a mini-batch, whose tiles the registers of one program hold


def choice(start: Weights, *, mini_batch: int, wish: Wish = "auto") -> Choice:
    variant = None
    if start[0].shape[-2] > WIDEST or mini_batch > LONGEST:
        variant = f"it takes heads up to {WIDEST} wide and mini-batches up to {LONGEST} long"
    fast, absent = with_triton(["batched"], start[0], variant=variant)
    return choose("test-time training", obstacles=[], wish=wish, fast=fast, absent=absent, traced=PLAIN_CHUNKS)


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
    """What is read at each time step, and the state after the last; both in float32 at least."""
    chosen = choice(start, mini_batch=mini_batch, wish=wish).implementation
    run = naive.ttt if chosen == "naive" else dual.ttt
    if chosen == "triton":
        run = load("ttt", "triton" if len(start) == 1 else "triton_mlp").ttt
    like = state.change[0]
    with no_autocast(like):
        inputs: Inputs = (q_BTHK, k_BTHK, v_BTHK, rate_BTH)
        if chosen != "triton":  # which widens in registers what it reads
            inputs = wide(*inputs)
        wide_state = map_state(lambda leaf: wide(leaf)[0] if leaf.is_floating_point() else leaf, state)
        wide_norm = None if norm is None else InnerNorm(*wide(*norm))
        y_BTHK, after = run(inputs, wide_state, wide(*start), wide_norm, mini_batch, lengths_B)
    return y_BTHK, after
