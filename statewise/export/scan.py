"""The sequence graph: ONNX `Scan` over the step graph, for any length."""

from typing import Any

from statewise.export.graph import Graph
from statewise.specs import optional

_INNER = "step/"  # prefix of names inside the loop


def scan_over(step: Graph) -> Graph:
    """What is read gets a time axis, and so do all outputs that are no state; names are those of the step graph."""
    onnx = optional("onnx", extra="onnx", needed_by="ONNX graphs")
    helper = onnx.helper
    compose = optional("onnx.compose", extra="onnx", needed_by="ONNX graphs")
    inner = compose.add_prefix_graph(step.graph, _INNER)
    read, *state = step.graph.input
    first, *rest = step.graph.output
    after, seen = rest[: len(state)], rest[len(state) :]
    outside = [first, *seen]  # one of these at each time step

    body = helper.make_graph(
        inner.node,
        "step",
        [_untyped(onnx, value, _INNER) for value in (*state, read)],
        [_untyped(onnx, value, _INNER) for value in (*after, *outside)],
    )
    scan = helper.make_node(
        "Scan",
        [value.name for value in (*state, read)],
        [value.name for value in (*after, *outside)],
        body=body,
        num_scan_inputs=1,
        scan_input_axes=[1],
        scan_output_axes=[1] * len(outside),
    )
    graph = helper.make_graph(
        [scan],
        "sequence",
        [_over_time(onnx, read), *state],
        [_over_time(onnx, first), *after, *(_over_time(onnx, value) for value in seen)],
        initializer=inner.initializer,
    )
    model = helper.make_model(graph, opset_imports=step.opset_import, ir_version=step.ir_version)
    onnx.checker.check_model(model, full_check=True)
    return model


def _untyped(onnx: Any, value: Any, prefix: str) -> Any:
    """With the kind of number and without a shape: Scan finds it."""
    return onnx.helper.make_tensor_value_info(prefix + value.name, value.type.tensor_type.elem_type, None)


def _over_time(onnx: Any, value: Any) -> Any:
    sizes = [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]
    return onnx.helper.make_tensor_value_info(
        value.name, value.type.tensor_type.elem_type, [sizes[0], "time", *sizes[1:]]
    )
