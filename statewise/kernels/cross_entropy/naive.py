"""How surprising tokens are to a linear map of features: the logits, written out, and their cross-entropy.

N tokens, D features, V vocabulary.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

LOGITS = {"cpu": 2**20, "cuda": 2**27}  # numbers in one chunk of logits; benchmarks/cross_entropy.py
ROWS = {"cpu": 256, "cuda": 1024}  # tokens at least: every chunk reads all of W, and writes its gradient


def chunk_tokens(vocab: int, device: torch.device) -> int:
    """Few enough for the logits to stay small, many enough for a product to be worth its start."""
    kind = device.type if device.type in LOGITS else "cuda"
    tokens = max(ROWS[kind], LOGITS[kind] // vocab)
    return tokens - tokens % 128 if tokens > 128 and kind == "cuda" else tokens  # whole tiles of a product


def token_nats(
    y_ND: Tensor, weight_VD: Tensor, bias_V: Tensor | None, target_N: Tensor, smoothing: float = 0.0
) -> Tensor:
    """`-Σ_v q_v log softmax(W y + c)_v`, where q is the target, or, smoothed, mixed with the uniform distribution."""
    logits_NV = F.linear(y_ND, weight_VD, bias_V)
    logits_NV = logits_NV.to(torch.promote_types(logits_NV.dtype, torch.float32))
    return F.cross_entropy(logits_NV, target_N, reduction="none", label_smoothing=smoothing)


def total_nats(
    y_ND: Tensor, weight_VD: Tensor, bias_V: Tensor | None, target_N: Tensor, share_N: Tensor | None, smoothing: float
) -> Tensor:
    """The sum over tokens, each counted by its share."""
    nats_N = token_nats(y_ND, weight_VD, bias_V, target_N, smoothing)
    return (nats_N if share_N is None else nats_N * share_N).sum()
