"""Where and in which precision a run computes."""

import os
import subprocess
import sys
from contextlib import AbstractContextManager, nullcontext, suppress
from threading import Thread
from typing import Any

import torch

from statewise.specs import TrainSpec, UserError

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


def wake(device: torch.device) -> None:
    """Let a GPU get ready, and the library of its products with it, while the host still reads and builds.

    Nobody waits for it here; and if it fails, whoever needs the GPU will be told why.
    """

    def first_product() -> None:
        with suppress(RuntimeError):
            one = torch.ones(16, 16, device=device)
            torch.mm(one, one)

    if device.type == "cuda":
        Thread(target=first_product, name="wake").start()


def autocast(spec: TrainSpec, device: torch.device) -> AbstractContextManager[Any]:
    """bfloat16 where it was asked for or is the habit of the device; float32 otherwise."""
    wanted = spec.precision == "bfloat16" or (
        spec.precision == "auto" and device.type == "cuda" and torch.cuda.is_bf16_supported()
    )
    if not wanted:
        return nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16)


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
