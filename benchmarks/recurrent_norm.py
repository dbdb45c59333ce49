"""The LSTM with layer norm on a GPU: our implementations against the usual loop over time steps.

    python benchmarks/recurrent_norm.py [--widths 512 1024] [--batches 16 64 256] [--precision bfloat16]

cuDNN has no such layer. The loop is scripted by TorchScript, as in PyTorch's own example of custom LSTMs, and run with
and without a CUDA graph. Same weights and inputs; outputs are compared before anything is timed;
interleaved, medians. `--out FOLDER` receives the numbers as JSON.
"""

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from command_line import need_gpu
from recurrent import PRECISIONS, STEPS, graphed, reading, rounds, training
from recurrent_case import Case, draw, mixer, precision
from torch import Tensor, nn
from torch.nn import functional as F

from statewise.kernels.choice import force


class Loop(nn.Module):
    """One step after the other, by PyTorch's ops."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.w = nn.Parameter(module.w_GI.detach().clone())
        self.u = nn.Parameter(module.u_GP.detach().clone())
        self.b = nn.Parameter(module.b_G.detach().clone())
        self.input_gain = nn.Parameter(module.norm_input_G.detach().clone())
        self.recurrent_gain = nn.Parameter(module.norm_recurrent_G.detach().clone())
        self.cell_gain = nn.Parameter(module.norm_cell_D.detach().clone())
        self.cell_bias = nn.Parameter(module.norm_cell_bias_D.detach().clone())

    def forward(self, x_TBI: Tensor) -> Tensor:
        width = self.u.shape[1]
        h = torch.zeros(x_TBI.shape[1], width, dtype=x_TBI.dtype, device=x_TBI.device)
        c = torch.zeros_like(h)
        share_TBG = F.layer_norm(F.linear(x_TBI, self.w), self.input_gain.shape, self.input_gain) + self.b
        outputs: list[Tensor] = []
        for t in range(x_TBI.shape[0]):
            recurrent = F.layer_norm(torch.mm(h, self.u.t()), self.recurrent_gain.shape, self.recurrent_gain)
            i, f, g, o = (share_TBG[t] + recurrent).chunk(4, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(F.layer_norm(c, self.cell_gain.shape, self.cell_gain, self.cell_bias))
            outputs.append(h)
        return torch.stack(outputs)


def measure_one(case: Case) -> dict[str, Any]:
    module = mixer(case)
    loop = Loop(module)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TorchScript is on its way out, but still what people have
        scripted = torch.jit.script(loop)
    x_TBI, _, gradients = draw(case)

    def ours(kernel: str) -> Callable[[Tensor], Tensor]:
        def call(x: Tensor) -> Tensor:
            with force(kernel):  # type: ignore[arg-type]  # a wish in words
                y: Tensor = module(x.transpose(0, 1))[0].transpose(0, 1)
            return y

        return call

    calls: dict[str, tuple[Callable[[Tensor], Tensor], list[Tensor]]] = {
        "stepped": (ours("stepped"), list(module.parameters())),
        "naive": (ours("naive"), list(module.parameters())),
        "scripted": (scripted, list(loop.parameters())),
    }
    with torch.no_grad():
        found = {name: call(x_TBI).float() for name, (call, _) in calls.items()}
    row: dict[str, Any] = {
        "difference": {name: round(float((y - found["stepped"]).abs().max()), 5) for name, y in found.items()}
    }
    ways: dict[str, dict[str, Callable[[], object]]] = {
        "training": {name: training(call, parts, x_TBI, gradients[0]) for name, (call, parts) in calls.items()},
        "forward": {name: reading(call, x_TBI) for name, (call, _) in calls.items()},
    }
    for way, runs in ways.items():
        plain = training(loop, calls["scripted"][1], x_TBI, gradients[0]) if way == "training" else reading(loop, x_TBI)
        runs["loop, graph"] = graphed(plain)
        row[way] = {name: round(us, 3) for name, us in rounds(runs, 3, 1).items()}
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--widths", type=int, nargs="*", default=[512, 1024])
    parser.add_argument("--batches", type=int, nargs="*", default=[16, 64, 256])
    parser.add_argument("--precision", default="bfloat16", choices=list(PRECISIONS))
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--out", type=Path, default=Path())
    options = parser.parse_args()
    need_gpu()
    print(
        f"# torch {torch.__version__}, {torch.cuda.get_device_name()}, {STEPS} steps, microseconds a step", flush=True
    )
    dtype, tf32 = PRECISIONS[options.precision]
    deadline = time.monotonic() + options.seconds
    rows: list[dict[str, Any]] = []
    for width in options.widths:
        for batch in options.batches:
            if time.monotonic() > deadline:
                print("out of time", flush=True)
                break
            case = Case("lstm", width, batch, STEPS, width, dtype, normed=True, tf32=tf32)
            row: dict[str, Any] = {"width": width, "batch": batch, "precision": options.precision}
            try:
                with precision(case):
                    row |= measure_one(case)
            except Exception as error:
                row["failed"] = repr(error)[:300]
            rows.append(row)
            print(json.dumps(row), flush=True)
            torch.cuda.empty_cache()
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "recurrent_norm.json").write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
