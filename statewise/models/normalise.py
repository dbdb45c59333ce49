"""A norm's module, applied by the fastest form of its op."""

import torch
from torch import Tensor, nn

from statewise.kernels.layer_norm import norm, sum_and_norm


def normalise(module: nn.Module, x: Tensor, *, for_products: bool = False) -> Tensor:
    """`module(x)`. `for_products`: only products read it, so under autocast it may come in their precision."""
    match module:
        case nn.LayerNorm() if not x.is_cuda:  # at once: a step of writing on a CPU feels every question on the way
            return torch.layer_norm(x, module.normalized_shape, module.weight, module.bias, module.eps)
        case _ if not x.is_cuda:
            own: Tensor = module(x)
            return own
        case nn.LayerNorm():
            return norm(x, module.weight, module.bias, module.eps, centred=True, for_products=for_products)
        case nn.RMSNorm():
            assert module.eps is not None
            return norm(x, module.weight, None, module.eps, centred=False, for_products=for_products)
        case _:
            y: Tensor = module(x)
            return y


def add_normalise(module: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """`x + y`, and `normalise` of it for products: by one kernel, where nobody wants a gradient and there is one."""
    if x.is_cuda and not torch.is_grad_enabled() and x.dtype == y.dtype:
        match module:
            case nn.LayerNorm():
                found = sum_and_norm(x, y, module.weight, module.bias, module.eps, centred=True)
            case nn.RMSNorm():
                assert module.eps is not None
                found = sum_and_norm(x, y, module.weight, None, module.eps, centred=False)
            case _:
                found = None
        if found is not None:
            return found
    total = x + y
    return total, normalise(module, total, for_products=True)
