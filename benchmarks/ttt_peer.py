"""The paper's public PyTorch layers of test-time training, loaded from a checkout and made comparable with ours.

Their file is not edited; differences are patched from outside, and documented here. Besides the equation that
both share, theirs rotates queries and keys in a mini-batch, weighs the step by the place in it, trains biases of the
inner model, and normalises before the last product; its GELU is the tanh form. For a comparison of numbers:

- all positions are 0, so nothing is rotated, and the learnt part of the weights by place makes each of them 1;
- a bias is a row of weights whose input is always 1. So one coordinate of each head's queries and keys is 0 there and
  1 here, where the rows of weights for it start as their bias; values are shifted with the keys. In an MLP this serves
  the second bias too, by a hidden unit whose GELU is 1, until weights change that make the unit move: at the end of
  the first mini-batch. So MLPs are compared over that one;
- outputs are taken before the last norm and product; with an MLP, their GELU is replaced by the exact one.
"""

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import transformers.utils.import_utils
from torch import Tensor, nn
from torch.nn import functional as F

from statewise.kernels.choice import Wish
from statewise.mixers import TTT
from statewise.mixers.ttt import Inner

GELU_IS_1 = 1.1446049403  # refined below, in the precision at hand


def load_peer(checkout: Path) -> tuple[ModuleType, list[str]]:
    """Their module, and what had to be put in place for it to be imported."""
    file = checkout / "ttt.py" if checkout.is_dir() else checkout
    if not file.is_file():
        raise SystemExit(f"--peer {str(checkout)!r} has no ttt.py")
    shims = []
    if not hasattr(transformers.utils.import_utils, "is_causal_conv1d_available"):
        transformers.utils.import_utils.is_causal_conv1d_available = lambda: False
        shims.append("transformers.utils.import_utils.is_causal_conv1d_available, which is gone")
    location = importlib.util.spec_from_file_location("ttt_peer_module", file)
    assert location is not None
    assert location.loader is not None
    module = importlib.util.module_from_spec(location)
    sys.modules["ttt_peer_module"] = module  # its dataclasses look themselves up there
    location.loader.exec_module(module)
    return module, shims


def their_layer(peer: ModuleType, inner: Inner, *, width: int, heads: int, mini_batch: int) -> nn.Module:
    config = peer.TTTConfig(
        hidden_size=width, num_attention_heads=heads, mini_batch_size=mini_batch, ttt_layer_type=inner
    )
    layer: nn.Module = {"linear": peer.TTTLinear, "mlp": peer.TTTMLP}[inner](config, 0)
    return layer


class Exact:
    """torch.nn.functional with the exact GELU, whatever form is asked for."""

    def __getattr__(self, name: str) -> Any:
        return getattr(F, name)

    def gelu(self, x: Tensor, approximate: str = "none") -> Tensor:
        return F.gelu(x)


def gelu_slope(x: Tensor) -> Tensor:
    return torch.special.ndtr(x) + x * torch.exp(-x.square() / 2) / (2 * torch.pi) ** 0.5


@contextmanager
def changed(module: ModuleType, **names: Any) -> Iterator[None]:
    before = {name: getattr(module, name) for name in names}
    for name, value in names.items():
        setattr(module, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(module, name, value)


def bare(peer: ModuleType) -> Any:
    """Inside, nothing is rotated: neither turned, nor laid out for it."""

    def same(q: Tensor, k: Tensor, *rest: object) -> tuple[Tensor, Tensor]:
        return q, k

    return changed(peer, permute_qk=same, undo_permute_qk=same, apply_rotary_pos_emb=same)


# ---------------------------------------------------------------- the same numbers


@torch.no_grad()
def agree(theirs: Any, ours: TTT) -> None:
    """Put their weights into ours, which reads one input more, that is always 1. The last coordinate of each head (and
    the last hidden unit of each MLP) stands for their biases."""
    heads, head = theirs.num_heads, theirs.head_dim
    for weight in (theirs.q_proj.weight, theirs.k_proj.weight):
        weight.view(heads, head, -1)[:, -1] = 0
    theirs.learnable_token_idx.copy_(1 - theirs.token_idx)
    for name in ("b1", "b2"):
        if hasattr(theirs, name):
            getattr(theirs, name).normal_(std=0.02)
    theirs.ttt_norm_weight.normal_(1, 0.1)
    theirs.ttt_norm_bias.normal_(0, 0.1)
    theirs.learnable_ttt_lr_bias.normal_()

    taken = torch.cat([layer.weight for layer in (theirs.q_proj, theirs.k_proj, theirs.v_proj)])
    ours.w_GI.copy_(torch.cat([taken, torch.zeros_like(taken[:, :1])], dim=1))
    ours.w_GI.view(3, heads, head, -1)[:, :, -1, -1] = 1
    ours.w_rate_HI.copy_(torch.cat([theirs.learnable_ttt_lr_weight[:, 0], torch.zeros(heads, 1).to(taken)], dim=1))
    ours.b_rate_H.copy_(theirs.learnable_ttt_lr_bias[:, 0])
    assert ours.gain_HK is not None
    assert ours.bias_HK is not None
    ours.gain_HK.copy_(theirs.ttt_norm_weight)
    ours.bias_HK.copy_(theirs.ttt_norm_bias)
    ours.w_out_DD.copy_(torch.eye(len(ours.w_out_DD)))
    ours.start[0].copy_(theirs.W1)
    ours.start[0][:, -1] = theirs.b1[:, 0]
    if len(ours.start) == 2:
        theirs.W1[:, :, -1] = theirs.b1[:, :, -1] = 0  # the unit that ours needs: silent there, 1 here
        theirs.W2[:, -1] = 0
        theirs.b2.zero_()  # at first: it is learnt all the same
        ours.start[0].copy_(theirs.W1)
        ours.start[0][:, -1] = theirs.b1[:, 0]
        at = torch.tensor(GELU_IS_1, dtype=torch.float64)
        for _ in range(4):
            at = at - (F.gelu(at) - 1) / gelu_slope(at)
        ours.start[0][:, :, -1] = 0
        ours.start[0][:, -1, -1] = at
        ours.start[1].copy_(theirs.W2)


def difference(
    peer: ModuleType,
    inner: Inner,
    *,
    width: int,
    heads: int,
    mini_batch: int,
    time: int,
    kernel: Wish = "naive",
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float64,
) -> dict[str, float]:
    """Outputs, and gradients of a random sum of them by the input: the largest differences, relative to the largest
    entry. Theirs is always in float64."""
    torch.manual_seed(0)
    theirs: Any = their_layer(peer, inner, width=width, heads=heads, mini_batch=mini_batch).double()
    ours = TTT(width, input_width=width + 1, heads=heads, inner=inner, mini_batch=mini_batch, kernel=kernel).double()
    agree(theirs, ours)
    ours.to(device, dtype)
    time = time if inner == "linear" else mini_batch
    x_BTD = torch.randn(2, time, width, dtype=torch.float64, requires_grad=True)
    shown: list[Tensor] = []
    hook = theirs.post_norm.register_forward_pre_hook(lambda _, given: shown.append(given[0]))
    exact = {"F": Exact(), "gelu_bwd": gelu_slope} if inner == "mlp" else {}
    with changed(peer, **exact):
        theirs(x_BTD, position_ids=torch.zeros(1, time, dtype=torch.long))
    hook.remove()
    with_one = torch.cat([x_BTD, torch.ones_like(x_BTD[..., :1])], dim=-1)
    y_BTD = ours(with_one.to(device, dtype))[0].to("cpu", torch.float64)
    constant = torch.zeros(heads, width // heads, dtype=torch.float64)
    constant[:, -1] = 1  # what a query's last coordinate is here, and not there
    y_BTD = y_BTD - constant.flatten()
    weight = torch.randn(y_BTD.shape, dtype=torch.float64)
    (expected,) = torch.autograd.grad((shown[0] * weight).sum(), x_BTD)
    (found,) = torch.autograd.grad((y_BTD * weight).sum(), x_BTD)
    return {
        "output": float((y_BTD - shown[0]).detach().abs().max() / shown[0].detach().abs().max()),
        "gradient": float((found - expected).abs().max() / expected.abs().max()),
    }
