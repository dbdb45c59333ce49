"""A step graph as JSON for the interpreter in `static/graph.js`: nodes over numbered values, and weights apart.

The page reads one text at a time, so the batch is fixed to 1 and what then is constant is folded.
"""

import base64
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from statewise.export import AFTER, MARK, Graph
from statewise.specs import UserError, optional

# Pointwise, then those that move numbers, then all others: the interpreter knows these. A test compares the lists.
_OPERATORS = """
Abs Add And Cast Ceil Clip Cos Div Elu Equal Erf Exp Floor Gelu Greater GreaterOrEqual IsNaN Less LessOrEqual Log
Max Min Mul Neg Not Or Pow Reciprocal Relu Sigmoid Sign Sin Softplus Sqrt Sub Tanh Where
Concat ConstantOfShape Expand Gather GatherElements GatherND Pad Range Reshape ScatterElements ScatterND Shape
Slice Split Squeeze Transpose Unsqueeze
Gemm LayerNormalization MatMul ReduceMax ReduceMean ReduceMin ReduceSum Softmax"""
OPERATORS = frozenset(_OPERATORS.split())
_INLINE = 64  # numbers of a constant that stay exact, in the JSON: shapes, rates, frequencies
_FOLDED = 1 << 28  # numbers of a constant: a large weight, too, is transposed here and not at every step
_KINDS = {"f": "f", "i": "i", "u": "i", "b": "b"}


def record_of(graph: Graph, *, exact: bool, fold: bool = True) -> dict[str, Any]:
    """`graph` (nodes, constants, names) and `weights` (base64 of float16, or of float32 if `exact`).

    `fold`: for a batch of 1, compute what then is constant. Without, the graph is taken as it is.
    """
    onnx = optional("onnx", extra="onnx", needed_by="the lab")
    graph = (for_one_text(graph) if fold else graph).graph
    number: dict[str, int] = {}
    alias: dict[str, str] = {}

    def at(name: str) -> int:
        while name in alias:
            name = alias[name]
        return -1 if not name else number.setdefault(name, len(number))

    constants: dict[str, NDArray[Any]] = {
        tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer
    }
    nodes: list[list[Any]] = []
    unknown = sorted({node.op_type for node in graph.node} - OPERATORS - {"Constant", "Identity"})
    if unknown:
        raise UserError(
            f"the lab's interpreter does not know {', '.join(unknown)}, which this model uses",
            fix="write the mixer with other operations; the lab knows " + ", ".join(sorted(OPERATORS)),
        )
    for node in graph.node:
        least = constants.get(node.input[1]) if node.op_type in ("Clip", "Max") and len(node.input) > 1 else None
        attributes = {one.name: _attribute(one) for one in node.attribute}
        if node.op_type == "Constant":
            constants[node.output[0]] = np.asarray(next(iter(attributes.values())))
        elif node.op_type == "Identity":
            alias[node.output[0]] = node.input[0]
        elif least is not None and least.size == 1 and least.item() == np.float32(MARK):
            nodes.append(["Identity", [at(node.input[0])], [at(node.output[0])], {}])
        else:
            made = {name: _plain(value) for name, value in attributes.items()}
            nodes.append([node.op_type, list(map(at, node.input)), list(map(at, node.output)), made])
    inputs = [[value.name, at(value.name)] for value in graph.input]
    outputs = [[value.name, at(value.name)] for value in graph.output]
    used = {place for _, given, _, _ in nodes for place in given} | {place for _, place in outputs}
    kept = {number[name]: array for name, array in constants.items() if number.get(name) in used}
    large = {place: array for place, array in kept.items() if array.dtype.kind == "f" and array.size > _INLINE}
    kind = "f4" if exact else "f2"
    return {
        "graph": {
            "size": len(number),
            "inputs": inputs,
            "outputs": outputs,
            "nodes": nodes,
            "constants": [
                [place, _KINDS[array.dtype.kind], list(array.shape), None if place in large else _numbers(array)]
                for place, array in kept.items()
            ],
        },
        "weights": {"kind": kind, "data": packed(large.values(), kind)},
    }


def packed(arrays: Iterable[NDArray[Any]], kind: str) -> str:
    """Arrays one after the other, little-endian, in base64."""
    return base64.b64encode(b"".join(array.astype(f"<{kind}").tobytes() for array in arrays)).decode()


def lens_of(record: Mapping[str, Any]) -> list[str]:
    """The observed values among a graph's outputs, but for those that are constant: nothing could be edited there."""
    computed = {place for _, _, places, _ in record["nodes"] for place in places}
    return [name for name, place in record["outputs"][1:] if not name.startswith(AFTER) and place in computed]


def for_one_text(graph: Graph) -> Graph:
    """The graph for a batch of 1, with what then is constant computed."""
    optimizer = optional("onnxscript.optimizer", extra="onnx", needed_by="the lab")
    fixed = type(graph)()
    fixed.CopyFrom(graph)
    for value in (*fixed.graph.input, *fixed.graph.output):
        for size in value.type.tensor_type.shape.dim[:1]:
            size.dim_value = 1
    return optimizer.optimize(fixed, num_iterations=4, input_size_limit=_FOLDED, output_size_limit=_FOLDED)


def _attribute(attribute: Any) -> Any:
    onnx = optional("onnx", extra="onnx", needed_by="the lab")
    value = onnx.helper.get_attribute_value(attribute)
    return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def _plain(value: Any) -> Any:
    match value:
        case bytes():
            return value.decode()
        case np.ndarray():
            return [_KINDS[value.dtype.kind], list(value.shape), _numbers(value)]
        case str() | int() | float():
            return value
        case _:
            return list(value)


def _numbers(array: NDArray[Any]) -> list[Any]:
    """As JSON, which has no infinity: those are written as words."""
    wide = array.astype(np.float64).ravel().tolist() if array.dtype.kind == "f" else array.astype(int).ravel().tolist()
    return [value if abs(value) <= 1e300 else repr(value) for value in wide]


def inlined(array: NDArray[Any]) -> dict[str, Any]:
    """A tensor of a state, as the interpreter reads it."""
    return {"kind": _KINDS[array.dtype.kind], "dims": list(array.shape), "data": _numbers(array)}


def state_record(state: Mapping[str, NDArray[Any]]) -> list[dict[str, Any]]:
    return [{"name": name, **inlined(array)} for name, array in state.items()]
