"""torch.nn's own Transformer layers with every weight random, and how theirs map to ours."""

from typing import Any

import torch
from agreement import fill
from torch import nn
from torch.nn import functional as F

WIDTH, HEADS, DEPTH = 12, 3, 2


def copy_torch_layer(layer: nn.TransformerEncoderLayer, heads: Any, norm: Any, mlp: Any, mlp_norm: Any) -> None:
    pairs = [
        (heads.w_PI, layer.self_attn.in_proj_weight),
        (heads.b_P, layer.self_attn.in_proj_bias),
        (heads.o_DD, layer.self_attn.out_proj.weight),
        (heads.b_D, layer.self_attn.out_proj.bias),
        (norm.weight, layer.norm1.weight),
        (norm.bias, layer.norm1.bias),
        (mlp.up.weight, layer.linear1.weight),
        (mlp.up.bias, layer.linear1.bias),
        (mlp.down.weight, layer.linear2.weight),
        (mlp.down.bias, layer.linear2.bias),
        (mlp_norm.weight, layer.norm2.weight),
        (mlp_norm.bias, layer.norm2.bias),
    ]
    with torch.no_grad():
        for mine, theirs in pairs:
            mine.copy_(theirs)


def torch_encoder(norm_place: str, mlp: str) -> nn.TransformerEncoder:
    layer = nn.TransformerEncoderLayer(
        WIDTH,
        HEADS,
        dim_feedforward=4 * WIDTH,
        dropout=0.0,
        activation=F.relu if mlp == "relu" else lambda x: F.gelu(x, approximate="tanh"),
        batch_first=True,
        norm_first=norm_place == "pre",
    )
    final_norm = nn.LayerNorm(WIDTH) if norm_place == "pre" else None
    theirs = nn.TransformerEncoder(layer, DEPTH, norm=final_norm, enable_nested_tensor=False).double()
    fill(theirs)
    return theirs.eval()
