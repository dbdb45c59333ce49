"""Rotary positions: the equation, one kernel for GPUs, and the choice between them."""

from torch import Tensor

from statewise.kernels.choice import Choice
from statewise.kernels.rotary import naive
from statewise.kernels.rotary.naive import Scaling as Scaling
from statewise.kernels.rotary.naive import rates as rates
from statewise.kernels.with_triton import load, triton_or


def choice(like: Tensor) -> Choice:
    return triton_or("naive", like, "one kernel reads and writes once what PyTorch's ops take a dozen launches for")


def rotate(x_BTHK: Tensor, at_BT: Tensor, *, base: float, scaling: Scaling | None = None) -> Tensor:
    """Su et al. 2021 (RoPE): the pair `(x_i, x_{i + K/2})` is turned by the angle `at · base^(-2i/K)`.

    Products of turned queries and keys then depend on their distance alone. An odd last unit stays.
    `scaling` slows the turns down.
    """
    if x_BTHK.shape[-1] < 2:
        return x_BTHK
    fast = x_BTHK.is_cuda and choice(x_BTHK).implementation == "triton"
    run = load("rotary").rotate if fast else naive.rotate
    turned: Tensor = run(x_BTHK, at_BT, base, scaling)
    return turned
