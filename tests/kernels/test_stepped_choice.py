"""When a product and a kernel a step are taken, on a GPU that is only spoken of."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from statewise.kernels import lstm, stepped
from statewise.kernels.choice import choose, force
from statewise.kernels.lstm import LSTMNorm, LSTMWeights
from statewise.kernels.stepped.program import Program, Shape
from statewise.mixers import GRU, LSTM, Elman
from statewise.specs import UserError


def test_on_a_cpu_there_is_none() -> None:
    for mixer in (LSTM(8), GRU(8), Elman(8), LSTM(8, layer_norm=True)):
        assert mixer.choice().implementation != "stepped"
        with force("stepped"), pytest.raises(UserError, match=r"asks for the stepped .*, but"):
            mixer(torch.zeros(1, 2, 8))


def gpu_weight(dtype: torch.dtype, width: int = 2048) -> Any:
    return SimpleNamespace(device=torch.device("cuda"), shape=(4 * width, width), dtype=dtype)  # all that is looked at


def test_it_stands_before_cudnn_where_it_should_be_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(stepped, "obstacle", lambda cell, **_: asked.append(cell))
    monkeypatch.delenv("STATEWISE_KERNEL", raising=False)
    half, single = gpu_weight(torch.bfloat16), gpu_weight(torch.float32)
    gpu = SimpleNamespace(measured=True)
    monkeypatch.setattr(stepped, "gpu_of", lambda device: gpu)
    monkeypatch.setattr(stepped, "forward_kernel", lambda cell, *, batch, weight: "one" if batch == 40 else None)
    assert stepped.with_stepped(["fused"], {}, "lstm", half, batch=40)[0][0] == "stepped", "its forward is one kernel"
    asked.clear()
    assert stepped.with_stepped(["fused"], {}, "lstm", half, batch=16) == (["fused", "stepped"], {})
    assert asked == [], "nothing is compiled for a form that will not run"
    stepped.with_stepped(["fused"], {}, "lstm", half, batch=64, wish="stepped")
    assert asked == ["lstm"]
    for cell, width, batch in (("lstm", 1024, 256), ("gru", 2048, 64), ("tanh", 2048, 256)):
        taken = stepped.with_stepped(["fused"], {}, cell, gpu_weight(torch.bfloat16, width), batch=batch)
        assert taken == (["stepped", "fused"], {}), "measured"
    for cell, width, batch in (("lstm", 1024, 64), ("gru", 1024, 255), ("tanh", 2048, 64), ("tanh", 1024, 256)):
        taken = stepped.with_stepped(["fused"], {}, cell, gpu_weight(torch.bfloat16, width), batch=batch)
        assert taken == (["fused", "stepped"], {}), "cuDNN is as fast, or nobody knows"
    gpu.measured = False
    assert stepped.with_stepped(["fused"], {}, "lstm", half, batch=256) == (["fused", "stepped"], {})
    monkeypatch.setenv("STATEWISE_UNPROVEN", "1")
    assert stepped.with_stepped(["fused"], {}, "lstm", half, batch=16) == (["stepped", "fused"], {})
    assert stepped.with_stepped(["fused"], {}, "lstm", single, batch=64) == (["fused", "stepped"], {})
    both = ["persistent", "fused"]
    assert stepped.with_stepped(both, {}, "lstm", half, batch=64)[0] == [*both, "stepped"]
    monkeypatch.setattr(stepped, "obstacle", lambda cell, **_: "no compiler")
    assert stepped.with_stepped(["fused"], {}, "lstm", half, batch=64) == (["fused"], {"stepped": "no compiler"})


def test_in_float32_it_is_taken_where_both_round_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STATEWISE_KERNEL", raising=False)
    monkeypatch.setattr(stepped, "obstacle", lambda cell, **_: None)
    monkeypatch.setattr(stepped, "gpu_of", lambda device: SimpleNamespace(measured=True))
    matmul, rnn = torch.backends.cuda.matmul, torch.backends.cudnn.rnn
    before = matmul.fp32_precision, rnn.fp32_precision

    def first(cell: Any, width: int, batch: int) -> str:
        return stepped.with_stepped(["fused"], {}, cell, gpu_weight(torch.float32, width), batch=batch)[0][0]

    try:
        for products, layers in (("tf32", "tf32"), ("ieee", "ieee")):
            matmul.fp32_precision, rnn.fp32_precision = products, layers
            assert [first("lstm", 256, 1), first("gru", 1024, 256), first("tanh", 1024, 16)] == ["stepped"] * 3
            assert [first("lstm", 128, 64), first("tanh", 512, 64), first("tanh", 1024, 1)] == ["fused"] * 3
        matmul.fp32_precision, rnn.fp32_precision = "ieee", "tf32"
        assert first("lstm", 1024, 64) == "fused", "as PyTorch comes: cuDNN is faster where it rounds and we do not"
    finally:
        matmul.fp32_precision, rnn.fp32_precision = before


def test_layer_norm_has_this_form_alone_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STATEWISE_KERNEL", raising=False)
    monkeypatch.setattr(lstm, "obstacle", lambda cell, **_: None)
    weight = gpu_weight(torch.bfloat16)
    weights = LSTMWeights(weight, weight, weight, norm=LSTMNorm(weight, weight, weight, weight))
    assert lstm.choice(weights).implementation == "stepped"
    with pytest.raises(UserError, match="fused LSTM, but it has no layer norm"):
        lstm.choice(weights, wish="fused")
    for name in ("with_persistent", "with_stepped"):
        monkeypatch.setattr(lstm, name, lambda others, *_, **options: (others, {}))
    assert "no layer norm and no zoneout" in lstm.choice(weights._replace(zoneout=0.1)).reason
    monkeypatch.setattr(lstm, "obstacle", lambda cell, **_: "no compiler")
    assert lstm.choice(weights).implementation == "naive"
    with pytest.raises(UserError, match="stepped LSTM, but no compiler"):
        lstm.choice(weights, wish="stepped")


def test_what_stands_in_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    ask = stepped._obstacle.__wrapped__
    shape = Shape("lstm", "forward", 16, 256, torch.float32)
    assert "float64" in ask(shape._replace(dtype=torch.float64), 0)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 0))
    assert "compute capability 7.5, this GPU has 7.0" in ask(shape, 0)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    directions: list[str] = []
    monkeypatch.setattr(stepped, "load", lambda made, device: directions.append(made.direction))
    assert ask(shape, 0) is None
    assert directions == ["forward", "backward"]

    def refuse(made: Program, device: int) -> None:
        raise stepped.Unavailable("NVRTC is not here")

    monkeypatch.setattr(stepped, "load", refuse)
    assert ask(shape, 0) == "NVRTC is not here"
    assert stepped.obstacle("lstm", width=1, batch=1, weight=torch.zeros(4, 1)) == "it needs a GPU"
    assert choose("LSTM", obstacles=[], fast=["stepped", "fused"]).implementation == "stepped"
