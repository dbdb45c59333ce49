"""Each operator of the interpreter computes what onnxruntime computes, for drawn shapes; its reverse is its slope."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime
import pytest
from node import answered
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from statewise.lab.graph import OPERATORS, inlined, record_of

DRAWN = 4  # shapes of each
OPSET = helper.make_opsetid("", 20)
ONE = ["Abs", "Cos", "Elu", "Erf", "Exp", "Floor", "Ceil", "Gelu", "Neg", "Relu", "Sigmoid", "Sign", "Sin"]
ONE += ["Softplus", "Tanh"]
POSITIVE = ("Log", "Sqrt", "Reciprocal")
TWO = ("Add", "Sub", "Mul", "Div", "Max", "Min")
COMPARED = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
KINDS = {
    np.dtype(np.float32): TensorProto.FLOAT,
    np.dtype(np.int64): TensorProto.INT64,
    np.dtype(np.bool_): TensorProto.BOOL,
}


class Case(NamedTuple):
    op: str
    inputs: list[NDArray[Any] | None]  # None: left out
    attributes: dict[str, Any] = {}  # noqa: RUF012
    outputs: int = 1
    slopes: tuple[int, ...] = ()  # inputs by which it is differentiated
    fixed: tuple[int, ...] = ()  # inputs that are constants of the graph


def cases() -> Iterator[Case]:
    for seed in range(DRAWN):
        rng = np.random.default_rng(seed)

        def drawn(*dims: int, rng: np.random.Generator = rng) -> NDArray[np.float32]:
            return rng.normal(size=dims).astype(np.float32)

        def sizes(rank: int, rng: np.random.Generator = rng) -> list[int]:
            return rng.integers(1, 5, rank).tolist()

        x = drawn(*sizes(1 + seed % 3), 3)
        positive = np.abs(x) + np.float32(0.2)
        for op in ONE:
            yield Case(op, [x], slopes=() if op in ("Floor", "Ceil", "Sign") else (0,))
        yield Case("Gelu", [x], {"approximate": "tanh"}, slopes=(0,))
        for op in POSITIVE:
            yield Case(op, [positive], slopes=(0,))
        a, b, n = sizes(3)
        # Equal sizes with other shapes, one number, trailing axes, and axes of 1 on both sides.
        pairs = [((a, b), (a, b)), ((a, b, n), (n,)), ((1, 2, 4, 1), (1, 2, 1, 4)), ((a, 1, n), (b, 1)), ((a, b), ())]
        left, right = pairs[seed % len(pairs)]
        y, z = drawn(*left), drawn(*right)
        apart = (np.sign(z) * (np.abs(z) + np.float32(0.5))).astype(np.float32)
        for op in TWO:
            yield Case(op, [y, apart], slopes=(0, 1))
        yield Case("Pow", [np.abs(y) + np.float32(0.3), np.array(2.5, np.float32)], slopes=(0,))
        for op in COMPARED:
            yield Case(op, [np.round(y), np.round(z)])
        whole = rng.integers(-9, 9, left)
        yield Case("Div", [whole, np.array(4, np.int64)])
        yield Case("Cast", [drawn(*left) * 3], {"to": TensorProto.INT64})
        yield Case("Cast", [whole], {"to": TensorProto.FLOAT})
        yes, no = y > 0, z > 0
        for op in ("And", "Or"):
            yield Case(op, [yes, no])
        yield Case("Not", [yes])
        yield Case("IsNaN", [np.where(y > 0.5, np.float32(np.nan), y)])
        yield Case("Where", [yes, drawn(*left), z], slopes=(1, 2))
        yield Case("Clip", [3 * x, np.array(-1.03, np.float32), np.array(2.02, np.float32)], slopes=(0,), fixed=(1, 2))
        dims = sizes(3)
        t = drawn(*dims)
        order = rng.permutation(3).tolist()
        yield Case("Transpose", [t], {"perm": order}, slopes=(0,))
        yield Case("Concat", [t, drawn(*dims), t], {"axis": seed % 3}, slopes=(0, 1))
        yield Case("Expand", [drawn(dims[0], 1), np.array([2, dims[0], 3])], slopes=(0,), fixed=(1,))
        yield Case("Reshape", [t, np.array([0, -1])], slopes=(0,), fixed=(1,))
        yield Case("Squeeze", [t[None], np.array([0])], slopes=(0,), fixed=(1,))
        yield Case("Unsqueeze", [t, np.array([1, -1])], slopes=(0,), fixed=(1,))
        yield Case("Shape", [t], {"start": seed % 2})
        index = rng.integers(0, dims[1], (2, 2))
        yield Case("Gather", [t, index], {"axis": 1}, slopes=(0,))
        yield Case("GatherElements", [t, rng.integers(0, dims[1], dims)], {"axis": 1}, slopes=(0,))
        places = np.stack([rng.integers(0, size, 3) for size in dims[:2]], -1)
        yield Case("GatherND", [t, places], slopes=(0,))
        flat = rng.permutation(dims[0])[: max(1, dims[0] - 1)][:, None]
        yield Case("ScatterND", [t, flat, drawn(len(flat), *dims[1:])], slopes=(0, 2))
        along = np.argsort(drawn(*dims), 1)[:, : max(1, dims[1] - 1)]
        yield Case("ScatterElements", [t, along, drawn(*along.shape)], {"axis": 1}, slopes=(0, 2))
        yield Case(
            "ScatterElements", [t, along * 0, drawn(*along.shape)], {"axis": 1, "reduction": "add"}, slopes=(0, 2)
        )
        ends = np.array([9, -1 if dims[2] > 1 else 9])
        yield Case("Slice", [t, np.array([0, 0]), ends, np.array([0, 2])], slopes=(0,), fixed=(1, 2, 3))
        yield Case("Slice", [t, np.array([-1]), np.array([-9]), np.array([1]), np.array([-1])], slopes=(0,))
        cut = [1, dims[2] + 1]
        yield Case("Split", [drawn(dims[0], sum(cut)), np.array(cut)], {"axis": 1}, 2, slopes=(0,), fixed=(1,))
        pads = rng.integers(0, 3, 6)
        yield Case("Pad", [t, pads, np.array(1.5, np.float32)], slopes=(0,), fixed=(1, 2))
        yield Case("Range", [np.array(1), np.array(7 + seed), np.array(2)])
        yield Case("ConstantOfShape", [np.array(dims)], {"value": numpy_helper.from_array(np.array([2], np.int64))})
        k = 3
        yield Case("MatMul", [drawn(*dims, k), drawn(dims[1], k, 2)], slopes=(0, 1))
        yield Case("MatMul", [drawn(1, k), drawn(k, 5)], slopes=(0, 1))
        yield Case("Gemm", [drawn(2, k), drawn(4, k), drawn(4)], {"transB": 1, "alpha": 0.5}, slopes=(0, 1, 2))
        yield Case("Gemm", [drawn(k, 2), drawn(k, 4)], {"transA": 1}, slopes=(0, 1))
        wide = 5 + 4 * seed
        yield Case("MatMul", [drawn(2, 3, wide), drawn(wide, 6)], slopes=(0,), fixed=(1,))
        yield Case("Gemm", [drawn(2, 8), drawn(wide, 8), drawn(wide)], {"transB": 1}, slopes=(0, 2), fixed=(1,))
        yield Case("Gemm", [drawn(2, wide), drawn(wide, 3)], {"alpha": 0.5}, slopes=(0,), fixed=(1,))
        yield Case("Pow", [drawn(3, wide), np.array(2.0, np.float32)], slopes=(0,), fixed=(1,))
        yield Case("ReduceSum", [drawn(2, 8, wide), np.array([1])], {"keepdims": 0}, slopes=(0,), fixed=(1,))
        yield Case("Softmax", [t], {"axis": seed % 3}, slopes=(0,))
        yield Case("LayerNormalization", [drawn(2, 6), drawn(6), drawn(6)], {"epsilon": 1e-4}, slopes=(0, 1, 2))
        for name in ("Sum", "Mean", "Max", "Min"):
            keep = {"keepdims": seed % 2}
            yield Case(f"Reduce{name}", [t, np.array([seed % 3])], keep, slopes=(0,), fixed=(1,))
        yield Case("ReduceSum", [t], slopes=(0,))


def model(case: Case) -> tuple[Any, dict[str, NDArray[Any]]]:
    given = {f"x{i}": value for i, value in enumerate(case.inputs) if value is not None}
    constants = {f"x{i}" for i in case.fixed}
    names = [f"x{i}" if value is not None else "" for i, value in enumerate(case.inputs)]
    outputs = [f"y{i}" for i in range(case.outputs)]
    graph = helper.make_graph(
        [helper.make_node(case.op, names, outputs, **case.attributes)],
        "case",
        [helper.make_tensor_value_info(k, KINDS[v.dtype], v.shape) for k, v in given.items() if k not in constants],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(given[name], name) for name in sorted(constants)],
    )
    made = onnx.shape_inference.infer_shapes(helper.make_model(graph, opset_imports=[OPSET], ir_version=9))
    return made, {name: value for name, value in given.items() if name not in constants}


@pytest.fixture(scope="module", params=["0", "1"], ids=["javascript", "webassembly"])
def answers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[list[Case], list[dict[str, Any]], dict[str, Any]]:
    """All cases by onnxruntime and by the interpreter, in one process."""
    tried, expected, asked = list(cases()), [], []
    for case in tried:
        made, feed = model(case)
        session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
        names = [value.name for value in session.get_outputs()]
        expected.append(dict(zip(names, session.run(None, feed))))
        slopes = [f"x{i}" for i in case.slopes if f"x{i}" in feed]
        record = record_of(made, exact=True, fold=False)
        asked.append({"record": record, "feed": {k: inlined(v) for k, v in feed.items()}, "differentiable": slopes})
    return (
        tried,
        expected,
        answered("operators.js", {"cases": asked}, tmp_path_factory.mktemp("operators"), request.param),
    )


def test_each_operator_agrees_with_onnxruntime(answers: Any) -> None:
    tried, expected, given = answers
    for case, wanted, found in zip(tried, expected, given["found"], strict=True):
        for name, value in wanted.items():
            got = found["outputs"][name]
            assert got["dims"] == list(value.shape), (case, got)
            numbers = np.array([float(x) for x in got["data"]]).reshape(value.shape)
            np.testing.assert_allclose(numbers, value.astype(np.float64), rtol=2e-6, atol=2e-6, err_msg=str(case))


def test_each_reverse_is_the_slope(answers: Any) -> None:
    """Differences of float32 are good to a few thousandths."""
    tried, _, given = answers
    wrong = [(case.op, found["reverse"]) for case, found in zip(tried, given["found"]) if not found["reverse"] < 4e-3]
    assert not wrong


def test_every_operator_is_tried_and_listed(answers: Any) -> None:
    tried, _, given = answers
    assert {case.op for case in tried} == OPERATORS
    assert set(given["operators"]) - {"Identity", "GeluTanh"} == OPERATORS
