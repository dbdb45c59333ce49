"""A run that compiles nothing does not load the compiler; optimisers are PyTorch's all the same."""

import subprocess
import sys

import pytest
import torch

from statewise.training.optimizer import PlainAdamW, PlainSGD

_RUN = """
import sys
from pathlib import Path
from statewise.tasks import train
out = Path(sys.argv[1])
settings = {"train.steps": 2, "train.optimizer": sys.argv[2], "model.width": 8, "train.evaluate_tokens": 500}
train(sys.argv[3], out=out / "run", settings=settings)
assert "torch" in sys.modules
loaded = [name for name in ("torch._dynamo", "torch._inductor", "sympy") if name in sys.modules]
sys.exit(f"loaded: {loaded}" if loaded else 0)
"""


@pytest.mark.parametrize(
    ("model", "optimizer"),
    [
        ("transformer", "adamw"),
        pytest.param("deep_rnn", "muon", marks=pytest.mark.slow),
        pytest.param("lstm", "sgd", marks=pytest.mark.slow),
    ],
)
def test_a_run_does_without_the_compiler(tmp_path: object, model: str, optimizer: str) -> None:
    argv = [sys.executable, "-c", _RUN, str(tmp_path), optimizer, model]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("ours", "theirs", "options"),
    [
        (PlainAdamW, torch.optim.AdamW, {"fused": True, "weight_decay": 0.1}),
        (PlainSGD, torch.optim.SGD, {"fused": True, "momentum": 0.9}),
    ],
)
def test_they_move_as_pytorch_moves(ours: type, theirs: type, options: dict[str, object]) -> None:
    found, expected = (torch.nn.Parameter(torch.linspace(-1, 1, 6, dtype=torch.float64)) for _ in range(2))
    one, other = ours([found], lr=0.1, **options), theirs([expected], lr=0.1, **options)
    for step in range(4):
        for p, optimizer in ((found, one), (expected, other)):
            optimizer.zero_grad()
            (p.sin() * (step + 1)).sum().backward()
            optimizer.step()
        assert torch.equal(found, expected)
    assert one.state_dict()["state"].keys() == other.state_dict()["state"].keys()
