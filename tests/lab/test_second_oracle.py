"""onnxruntime-web runs the same graphs in JavaScript: a second opinion on the interpreter, and on its size."""

import base64
import gzip
from pathlib import Path
from typing import Any

import torch
from node import answered, npm_package

from statewise.core import leaves
from statewise.export import step_graph
from statewise.lab.graph import lens_of, record_of, state_record
from statewise.models import LINEAGE, build

STATIC = Path(__file__).parents[2] / "statewise/lab/static"
RUNTIME = "tensor node simd pointwise movement product operator graph backward markov tokenizer machine".split()  # noqa: SIM905
TRIED = ("lstm", "transformer", "mamba2", "ttt_linear")


def case(name: str) -> dict[str, Any]:
    (row,) = (row for row in LINEAGE if row.name == name)
    machine = build(row.variants[0], vocab=11, seed=2).eval()
    graph = step_graph(machine, taps=["*"], marked=True)
    record = record_of(graph, exact=True)
    states = state_record({path: leaf.numpy() for path, leaf in leaves(machine.init_state(1))})
    tokens = torch.randint(11, (40,), generator=torch.Generator().manual_seed(0)).tolist()
    model = base64.b64encode(graph.SerializeToString()).decode()
    return {
        "name": name,
        "record": {**record, "states": states, "lens": lens_of(record["graph"])},
        "model": model,
        "tokens": tokens,
    }


def test_onnxruntime_web_agrees(tmp_path: Path) -> None:
    package = npm_package("onnxruntime-web")
    for found in answered("oracle.js", {"cases": [case(name) for name in TRIED]}, tmp_path, str(package)):
        assert found["error"] <= 2e-6, found


def test_the_runtime_is_small() -> None:
    """25 KB compressed, reverse mode and WebAssembly included."""
    source = b"".join((STATIC / f"{name}.js").read_bytes() for name in RUNTIME)
    assert len(gzip.compress(source, 9)) <= 25_000
