"""The device of a run: which one, whether a model fits into its memory, and how it gets ready."""

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from threading import Thread

import torch

from statewise.specs import TrainSpec, UserError

_MOMENTS = {"sgd": 0, "asgd": 1, "muon": 1, "adamw": 2}  # numbers that an optimiser keeps per parameter, at least
_LIMIT = Path("/sys/fs/cgroup/memory.max")  # of a container, on Linux
_GIB = 2**30
_PROBE = "import torch; a = torch.ones(64, 64, dtype=torch.bfloat16); (a @ a).sum().item()"


def pick_device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UserError(f"{name!r} is not a device", fix="valid: auto, cpu, cuda, cuda:0") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UserError(f"the device {name!r} was asked for, but PyTorch sees no GPU here", fix="use auto or cpu")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UserError(f"the device {name!r} was asked for, but there are {torch.cuda.device_count()} GPUs")
    if device.type not in ("cpu", "cuda"):
        raise UserError(f"the device {name!r} is not supported", fix="valid: auto, cpu, cuda, cuda:0")
    return device


def warm_up_gpu(device: torch.device) -> None:
    """Initialise CUDA and cuBLAS in the background, while the host reads data and builds the model.

    A failure is ignored here: the first real use of the GPU raises it again.
    """

    def multiply() -> None:
        with suppress(RuntimeError):
            matrix = torch.ones(16, 16, device=device)
            torch.mm(matrix, matrix)

    if device.type == "cuda":
        Thread(target=multiply, name="warm_up_gpu").start()


def allow_amx_if_it_works() -> bool:
    """Lift the cap that `import statewise` put on oneDNN, if a child process survives a bfloat16 product.

    Call it before the first tensor operation: oneDNN reads its environment once.
    """
    if os.environ.get("STATEWISE_AMX_CAPPED") != "1":
        return False
    environment = {k: v for k, v in os.environ.items() if k not in ("ONEDNN_MAX_CPU_ISA", "STATEWISE_AMX_CAPPED")}
    child = subprocess.run([sys.executable, "-c", _PROBE], env=environment, capture_output=True, check=False)
    if child.returncode == 0:
        del os.environ["ONEDNN_MAX_CPU_ISA"], os.environ["STATEWISE_AMX_CAPPED"]
    return child.returncode == 0


def refuse_what_does_not_fit(
    parameters: int,
    spec: TrainSpec,
    device: torch.device,
    *,
    name: str = "the model",
    fix: str = "take a smaller model.width or model.depth",
    parts: int = 1,
) -> None:
    """Refuse a model whose weights, gradients and optimiser state exceed the memory (float32, no activations).

    `parts`: how many processes share them.
    """
    needed = training_bytes(parameters, spec) / parts
    available = memory_of(device)
    if available is not None and needed > available:
        raise UserError(
            f"{name} has {parameters:,} parameters: to train them takes {needed / _GIB:,.0f} GiB, and there are "
            f"{available / _GIB:,.0f} on {device.type}",
            fix=fix,
        )


def training_bytes(parameters: int, spec: TrainSpec) -> int:
    """Weights, gradients and optimiser state in float32; the latter is not there where it is kept by the host."""
    return 4 * parameters * (2 + (0 if spec.offload else _MOMENTS[spec.optimizer]))


def memory_of(device: torch.device) -> int | None:
    """Total memory in bytes; None where it is unknown."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    limits = []
    with suppress(AttributeError, ValueError, OSError):  # not on every system
        limits.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    with suppress(ValueError, OSError):  # "max": no limit
        limits.append(int(_LIMIT.read_text()))
    return min(limits, default=None)
