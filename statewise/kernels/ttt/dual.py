"""Test-time training, one mini-batch after the other, without forming any token's own gradient (the dual form).

Inside a mini-batch a gradient is an outer product, x_sᵀ e_s, so a layer that has been changed by the first t of
them acts on z_t as

    z_t (W - P - Σ_{s ≤ t} η_s x_sᵀ e_s) = z_t (W - P) - Σ_{s ≤ t} (z_t · x_s) η_s e_s,

a masked matrix of products like attention's; P is what was pending when the mini-batch was entered. For the inner
MLP the same holds layer by layer. Rows may stand at different places in their mini-batches, so each row is moved
to the right by its own place first; what fills the gaps has rate 0.

B batch, T time, H heads, K width of a head, N mini-batches, C and S tokens in one.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from statewise.core import is_known
from statewise.kernels.associative_memory import Inputs
from statewise.kernels.time_axis import past_end
from statewise.kernels.ttt.inner import InnerNorm, Weights, inner_gradient, shown
from statewise.kernels.ttt.naive import Carried


def ttt(
    inputs: Inputs, state: Carried, start: Weights, norm: InnerNorm | None, mini_batch: int, lengths_B: Tensor | None
) -> tuple[Tensor, Carried]:
    time = inputs[0].shape[1]
    lengths = torch.full_like(state.left_B, time)
    if lengths_B is not None:
        lengths = lengths_B.clamp(max=time)
        inputs = tuple(past_end(value, lengths_B) for value in inputs)
    place_B = mini_batch - state.left_B
    end_B = place_B + lengths
    # Asking a GPU where its rows stand would stop it, and a tracer has no answer: there, an empty mini-batch at the end
    # is the lesser evil.
    latest = int(place_B.max()) if place_B.device.type == "cpu" and is_known(place_B) else mini_batch - 1
    count = -(-(latest + time) // mini_batch)
    at_BT = place_B[:, None] + torch.arange(time, device=place_B.device)
    q_NBHCK, k_NBHCK, v_NBHCK, rate_NBHC = (_aligned(value, at_BT, count, mini_batch) for value in inputs)

    change, pending, outputs = state.change, state.pending, []
    for n in range(count):
        begin = tuple(w_0 + c for w_0, c in zip(start, change, strict=True))
        y_BHCK, written = _one_mini_batch(q_NBHCK[n], k_NBHCK[n], v_NBHCK[n], rate_NBHC[n], begin, pending, norm)
        outputs.append(y_BHCK)
        full_B111 = (end_B >= (n + 1) * mini_batch).view(-1, 1, 1, 1)
        total = tuple(p + w for p, w in zip(pending, written, strict=True))
        change = tuple(torch.where(full_B111, c - p, c) for c, p in zip(change, total, strict=True))
        pending = tuple(torch.where(full_B111, torch.zeros_like(p), p) for p in total)
    y_BSHK = torch.cat(outputs, dim=2).transpose(1, 2)
    y_BTHK = y_BSHK.gather(1, at_BT[..., None, None].expand(-1, -1, *y_BSHK.shape[2:]))
    after = Carried(change, pending, mini_batch - end_B % mini_batch)
    return (y_BTHK if lengths_B is None else past_end(y_BTHK, lengths_B)), after


def _aligned(x_BTH: Tensor, at_BT: Tensor, count: int, mini_batch: int) -> Tensor:
    """`[B, T, H, ...]` to `[N, B, H, C, ...]`, row by row at its own place, 0 elsewhere."""
    empty = x_BTH.new_zeros(x_BTH.shape[0], count * mini_batch, *x_BTH.shape[2:])
    index = at_BT.view(*at_BT.shape, *[1] * (x_BTH.dim() - 2)).expand_as(x_BTH)
    placed = torch.unflatten(empty.scatter(1, index, x_BTH), 1, (count, mini_batch))
    return placed.movedim(1, 0).transpose(2, 3)


def _one_mini_batch(
    q_BHCK: Tensor,
    k_BHCK: Tensor,
    v_BHCK: Tensor,
    rate_BHC: Tensor,
    begin: Weights,
    pending: Weights,
    norm: InnerNorm | None,
) -> tuple[Tensor, Weights]:
    """What is read at each token, and Σ η ∇ℓ of each layer."""
    gradient = inner_gradient(k_BHCK, v_BHCK, begin, norm, rows=True)
    z_BHCK, written = q_BHCK, []
    for layer, (w, p, inputs, errors) in enumerate(zip(begin, pending, gradient.inputs, gradient.errors, strict=True)):
        step_BHCK = rate_BHC[..., None] * errors
        written.append(inputs.mT @ step_BHCK)
        z_BHCK = F.gelu(z_BHCK) if layer else z_BHCK
        z_BHCK = z_BHCK @ (w - p) - (z_BHCK @ inputs.mT).tril() @ step_BHCK
    return shown(q_BHCK, z_BHCK, norm), tuple(written)
