"""Linear attention against the sums of Katharopoulos et al. 2020, eq. 8 to 12, written out in NumPy."""

import numpy as np
import pytest
from agreement import assert_same, fill, noise

from statewise.mixers import LinearAttention

BATCH, TIME, INPUT, WIDTH, HEADS = 2, 7, 5, 6, 2
HEAD = WIDTH // HEADS
X = noise(BATCH, TIME, INPUT, seed=1)


def made(feature: str, kernel: str) -> LinearAttention:
    options = {"input_width": INPUT, "heads": HEADS, "feature": feature, "kernel": kernel}
    mixer = LinearAttention(WIDTH, **options).double()
    fill(mixer)
    return mixer


@pytest.mark.parametrize("kernel", ["naive", "batched"])
def test_each_output_is_a_weighted_mean_of_the_values(kernel: str) -> None:
    """As attention: weights φ(q)·φ(k) over their sum. The state never appears on this side."""
    mixer = made("elu", kernel)
    x = X.numpy()
    w_q, w_k, w_v = np.split(mixer.w_GI.detach().numpy(), 3)

    def phi(a: np.ndarray) -> np.ndarray:
        return np.where(a > 0, a, np.exp(np.minimum(a, 0)) - 1) + 1

    y = np.zeros((BATCH, TIME, WIDTH))
    for b in range(BATCH):
        for h in range(HEADS):
            at = slice(h * HEAD, (h + 1) * HEAD)
            q, k, v = phi(x[b] @ w_q[at].T), phi(x[b] @ w_k[at].T), x[b] @ w_v[at].T
            for t in range(TIME):
                weights = k[: t + 1] @ q[t]
                y[b, t, at] = weights @ v[: t + 1] / (weights.sum() + 1e-6)
    assert_same(mixer(X)[0].detach(), y @ mixer.w_out_DD.detach().numpy().T)


@pytest.mark.parametrize("kernel", ["naive", "batched"])
def test_without_feature_it_is_attention_without_softmax(kernel: str) -> None:
    mixer = made("identity", kernel)
    q, k, v = (
        part.view(BATCH, TIME, HEADS, HEAD).transpose(1, 2) for part in (X @ mixer.w_GI.T).detach().chunk(3, dim=-1)
    )
    scores = (q @ k.mT / HEAD**0.5).tril()
    expected = (scores @ v).transpose(1, 2).reshape(BATCH, TIME, WIDTH) @ mixer.w_out_DD.detach().T
    y, state = mixer(X)
    assert_same(y.detach(), expected)
    assert_same(state.kv_BHKK.detach(), k.mT @ v)
    assert_same(state.k_BHK.detach(), k.sum(2))


def test_float16_holds_where_sums_leave_its_range() -> None:
    """The sums over 2,000 tokens are above 65,504; their quotient is not."""
    mixer = LinearAttention(256).half()
    x = noise(1, 2000, 256, seed=2)
    y, state = mixer(x.half())
    expected, _ = mixer.double()(x.half().double())
    assert state.k_BHK.sum(-1).min() > 65504
    assert (y - expected).norm() / expected.norm() < 2e-3
