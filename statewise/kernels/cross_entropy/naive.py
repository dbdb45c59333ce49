"""How surprising tokens are to a linear map of features: the logits, written out, and their cross-entropy.

N tokens, D features, V vocabulary.
"""

from torch import Tensor
from torch.nn import functional as F

from statewise.kernels.time_axis import wide


def token_nats(
    y_ND: Tensor, weight_VD: Tensor, bias_V: Tensor | None, target_N: Tensor, smoothing: float = 0.0
) -> Tensor:
    """`-Σ_v q_v log softmax(W y + c)_v`, where q is the target, or, smoothed, mixed with the uniform distribution."""
    (logits_NV,) = wide(F.linear(y_ND, weight_VD, bias_V))
    return F.cross_entropy(logits_NV, target_N, reduction="none", label_smoothing=smoothing)


def total_nats(
    y_ND: Tensor,
    weight_VD: Tensor,
    bias_V: Tensor | None,
    target_N: Tensor,
    share_N: Tensor | None,
    smoothing: float,
) -> Tensor:
    """The sum over tokens, each counted by its share."""
    nats_N = token_nats(y_ND, weight_VD, bias_V, target_N, smoothing)
    return (nats_N if share_N is None else nats_N * share_N).sum()
