"""The gradients of an Elman network by hand: Goodfellow, Bengio and Courville, Deep Learning, section 10.2.2.

The book's letters (its W is the recurrence, its U the input):

    a_t = b + W h_{t-1} + U x_t        h_t = tanh a_t        o_t = c + V h_t        ŷ_t = softmax o_t
    L   = - Σ_t log ŷ_t[y_t]

    ∇_{o_t} = ŷ_t - 1[y_t]
    ∇_{h_τ} = Vᵀ ∇_{o_τ}
    ∇_{h_t} = Vᵀ ∇_{o_t} + Wᵀ diag(1 - h_{t+1}²) ∇_{h_{t+1}}
    ∇_c = Σ_t ∇_{o_t}                               ∇_V = Σ_t ∇_{o_t} h_tᵀ
    ∇_b = Σ_t diag(1 - h_t²) ∇_{h_t}                ∇_W = Σ_t diag(1 - h_t²) ∇_{h_t} h_{t-1}ᵀ
                                                    ∇_U = Σ_t diag(1 - h_t²) ∇_{h_t} x_tᵀ

and, by the same rule one step further back, ∇_{h_0} = Wᵀ diag(1 - h_1²) ∇_{h_1}, ∇_{x_t} = Uᵀ diag(1 - h_t²) ∇_{h_t}.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Network(NamedTuple):
    U: Array
    W: Array
    b: Array
    V: Array
    c: Array


class Gradients(NamedTuple):
    U: Array
    W: Array
    b: Array
    V: Array
    c: Array
    h0: Array
    x: Array


def softmax(o: Array) -> Array:
    e = np.exp(o - o.max())
    return e / e.sum()


def loss_and_gradients(net: Network, x: Array, y: NDArray[np.int64], h0: Array) -> tuple[float, Gradients]:
    """One sequence: `x` is [τ, inputs], `y` the τ labels, `h0` the state before."""
    U, W, b, V, c = net
    steps = len(x)

    h = [h0]  # h[t + 1] is the state after reading x[t]
    predicted = []
    for t in range(steps):
        h.append(np.tanh(b + W @ h[t] + U @ x[t]))
        predicted.append(softmax(c + V @ h[t + 1]))
    loss = -sum(np.log(predicted[t][y[t]]) for t in range(steps))

    d = Gradients(*(np.zeros_like(part) for part in (*net, h0, x)))
    from_later = np.zeros_like(h0)  # Wᵀ diag(1 - h_{t+1}²) ∇_{h_{t+1}}; nothing comes after the last
    for t in reversed(range(steps)):
        d_o = predicted[t] - np.eye(len(c))[y[t]]
        d_h = V.T @ d_o + from_later
        d_a = (1 - h[t + 1] ** 2) * d_h
        d.c[:] += d_o
        d.V[:] += np.outer(d_o, h[t + 1])
        d.b[:] += d_a
        d.W[:] += np.outer(d_a, h[t])
        d.U[:] += np.outer(d_a, x[t])
        d.x[t] = U.T @ d_a
        from_later = W.T @ d_a
    d.h0[:] = from_later
    return float(loss), d


def of_batch(net: Network, x: Array, y: NDArray[np.int64], h0: Array) -> tuple[float, Gradients]:
    """Several sequences: weights are shared, so their gradients add; states and inputs are each row's own."""
    losses, rows = zip(*(loss_and_gradients(net, *row) for row in zip(x, y, h0, strict=True)), strict=True)
    shared = [sum(getattr(row, name) for row in rows) for name in Network._fields]
    return sum(losses), Gradients(*shared, h0=np.stack([row.h0 for row in rows]), x=np.stack([row.x for row in rows]))
