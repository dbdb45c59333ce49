"""onnxruntime-web as the engine of a page: the user's own copy of its npm package is written into the page.

The model stays one ONNX file in the page. The interpreter, which still answers edits and gradients, finds the weights
inside it.
"""

import base64
import gzip
import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from statewise.core import leaves
from statewise.export import step_graph
from statewise.lab.graph import for_one_text, lens_of, record_of, state_record
from statewise.models import Markov, TokenMachine
from statewise.specs import UserError

_MODULE, _BINARY = "ort.wasm.bundle.min.mjs", "ort-wasm-simd-threaded.wasm"
_EXPORTS = re.compile(r"export\{([^}]*)\};?")
_USED = ("InferenceSession", "Tensor", "env")


class Foreign(NamedTuple):
    """A module that sets `globalThis.ort`, and its WebAssembly: gzip in base64."""

    module: str
    binary: str


def foreign(folder: Path) -> Foreign:
    """The engine, from the folder of the npm package."""
    place = next((one for one in (folder / "dist", folder) if (one / _MODULE).is_file()), None)
    if place is None or not (place / _BINARY).is_file():
        raise UserError(
            f"{str(folder)!r} is not the npm package onnxruntime-web: there is no {_MODULE} with {_BINARY}",
            fix="npm install onnxruntime-web, and name node_modules/onnxruntime-web",
        )
    source = (place / _MODULE).read_text(encoding="utf-8")
    found = _EXPORTS.findall(source)
    names = dict(reversed(one.split(" as ")) for one in (found[-1].split(",") if found else ()) if " as " in one)
    if not names.keys() >= set(_USED) or re.search(r"</script|<!--", source, re.IGNORECASE):
        raise UserError(
            f"{place / _MODULE} is of a version that this lab does not know", fix="npm install onnxruntime-web@1.30"
        )
    given = ",".join(f"{name}:{names[name]}" for name in _USED)
    module = _EXPORTS.sub(lambda one: f"globalThis.ort={{{given}}};" if one[1] == found[-1] else one[0], source)
    module = re.sub(r"^//# sourceMappingURL=.*$", "", module, flags=re.MULTILINE)
    binary = gzip.compress((place / _BINARY).read_bytes(), mtime=0)
    return Foreign(module, base64.b64encode(binary).decode())


def onnx_record(machine: TokenMachine[Any], state: Any) -> dict[str, Any]:
    """What onnxruntime and the interpreter compute: an ONNX model of float32, and where its weights are."""
    if isinstance(machine, Markov):
        raise UserError(
            "a Markov model is a table that is looked up, not a graph", fix="let the page's interpreter compute it"
        )
    graph = for_one_text(step_graph(machine, taps=["*"], marked=True))
    made = record_of(graph, exact=True, fold=False)
    model = graph.SerializeToString()
    numbers = base64.b64decode(made.pop("weights")["data"])
    places, at = [], 0
    for _, _, dims, inlined in made["graph"]["constants"]:
        if inlined is None:
            size = 4 * int(np.prod(dims))
            places.append([model.index(numbers[at : at + size]), size // 4])
            at += size
    states = state_record({path: leaf.detach().cpu().numpy() for path, leaf in leaves(state)})
    onnx = base64.b64encode(model).decode()
    return {**made, "onnx": onnx, "places": places, "states": states, "lens": lens_of(made["graph"])}
