"""Kernels that begin early do so on NVIDIA's GPUs since Hopper, and nowhere else."""

import pytest
import torch

from statewise.kernels import with_triton


class There:
    """All that is looked at of a tensor."""

    def __init__(self, kind: str) -> None:
        self.device = torch.device(kind)


@pytest.mark.parametrize(
    ("capability", "hip", "begins"), [((9, 0), None, True), ((8, 9), None, False), ((9, 4), "6.4", False)]
)
def test_where(monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], hip: str | None, begins: bool) -> None:
    with_triton._has_dependent_launch.cache_clear()
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch.version, "hip", hip)
    try:
        found = with_triton.dependent_launch(There("cuda"))  # type: ignore[arg-type]  # stands for a tensor
    finally:
        with_triton._has_dependent_launch.cache_clear()
    assert found == ({"EARLY": True, "launch_pdl": True} if begins else {"EARLY": False})


def test_without_a_gpu() -> None:
    assert with_triton.dependent_launch(torch.zeros(1)) == {"EARLY": False}
