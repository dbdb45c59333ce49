"""What a GPU holds, as far as a kernel's plan must know it.

STATEWISE_CAPABILITY=8.0 pretends: plans keep the limits of that older GPU, and its code is translated by the driver for
the one that is there. Tests and benchmarks use it.
"""

from functools import cache
from typing import NamedTuple

import torch

from statewise.kernels.choice import CAPABILITY
from statewise.specs import UserError

_K = 1024
_MEASURED_ON = 132  # multiprocessors of the GPU that filled the table


class Gpu(NamedTuple):
    capability: tuple[int, int]
    multiprocessors: int
    shared_bytes: int  # that one block can ask for
    pretended: bool = False

    @property
    def name(self) -> str:
        return "{}.{}".format(*self.capability)

    @property
    def measured(self) -> bool:
        """Whether the table's plans were made for it: Hopper, the instructions of sm_90a included."""
        return self.capability == (9, 0) and not self.pretended

    @property
    def clusters(self) -> dict[int, int]:
        """How many clusters of so many blocks run at once, a block a multiprocessor; as an H200's driver answers."""
        if self.measured and self.multiprocessors >= _MEASURED_ON:
            return {1: self.multiprocessors, 2: 66, 4: 30, 8: 15, 16: 7}
        return {1: self.multiprocessors}

    @property
    def product_cycles(self) -> int:
        """Cycles a quarter of a multiprocessor takes for a product of 16 by 8 by 16 summed in float32."""
        return {(8, 0): 8, (9, 0): 7, (10, 0): 7, (10, 3): 7}.get(self.capability, 32)


# Limits of one GPU of each capability, for pretending.
KNOWN = {
    gpu.name: gpu
    for gpu in (
        Gpu((8, 0), 108, 163 * _K, pretended=True),
        Gpu((8, 6), 84, 99 * _K, pretended=True),
        Gpu((8, 9), 128, 99 * _K, pretended=True),
        Gpu((9, 0), 132, 227 * _K, pretended=True),
        Gpu((10, 0), 148, 227 * _K, pretended=True),
        Gpu((12, 0), 170, 99 * _K, pretended=True),
    )
}
H200 = KNOWN["9.0"]._replace(pretended=False)


def gpu_of(device: int) -> Gpu:
    """The GPU that is there, or the one that is wished for."""
    return _gpu(device, CAPABILITY.read())


@cache
def _gpu(device: int, wished: str) -> Gpu:
    properties = torch.cuda.get_device_properties(device)
    here = Gpu(
        (properties.major, properties.minor),
        properties.multi_processor_count,
        properties.shared_memory_per_block_optin,  # type: ignore[attr-defined]  # torch's stubs leave it out
    )
    if not wished:
        return here
    older = {name: gpu for name, gpu in KNOWN.items() if gpu.capability <= here.capability}
    if wished not in older:
        raise UserError(
            f"STATEWISE_CAPABILITY is {wished!r}, and a GPU of {here.name} cannot pretend to be that",
            fix=f"valid here: {', '.join(older) or 'none'}; or unset it",
        )
    gpu = older[wished]
    return gpu._replace(
        multiprocessors=min(gpu.multiprocessors, here.multiprocessors),
        shared_bytes=min(gpu.shared_bytes, here.shared_bytes),
    )
