"""`statewise export`: a run as a folder of graphs that needs neither this package nor PyTorch, with its proof."""

import inspect
import json
import tempfile
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from statewise import __version__, runtime
from statewise.core import Machine, leaves, save_state
from statewise.core import to as moved
from statewise.decoding import Continuation, Sampling, extend
from statewise.disk import make_folder, write
from statewise.export.graph import Graph, condition, flat, grows, quiet, step_graph, trace, traced_sequence
from statewise.export.proof import Call, Proof, prove, prove_whole, session, step_times
from statewise.export.scan import scan_over
from statewise.models import TokenMachine
from statewise.specs import UserError, option, optional
from statewise.tasks import Port, Portable, Run

Target = Literal["onnx", "pt2"]
_PRODUCTS = ["MatMul", "Gemm"]  # what is quantised; tables that are looked up stay exact
_WRITTEN = 512  # tokens of the model's own text, on which the loss by int8 is measured


def export_run(
    run: Run,
    out: str | Path,
    *,
    to: Target = "onnx",
    taps: Sequence[str] = (),
    int8: bool = False,
    compiled: bool = False,
) -> dict[str, Any]:
    """Write a run's graphs to a new folder, compare them with PyTorch, and return what `export.json` then holds.

    `taps`: patterns of observed names, such as `*forget_gate`, that become outputs of the step graph. `int8`: smaller
    graphs beside the others, with their loss. `compiled`: with `to="pt2"`, a step for C++ and this kind of processor.
    """
    if to not in ("onnx", "pt2"):
        raise UserError(f"{option('to', to)} is not a format of graphs", fix="onnx or pt2")
    if to == "pt2" and (int8 or taps):
        raise UserError(f"{option('int8')} and {option('taps')} are for ONNX", fix=f"leave out {option('to', 'pt2')}")
    if compiled and to != "pt2":
        raise UserError(f"{option('compiled')} is for PyTorch's programs", fix=f"add {option('to', 'pt2')}")
    if compiled:
        _refuse_no_compiler()
    folder = Path(out)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{str(folder)!r} already exists", fix=f"choose another folder: {option('out', 'DIR')}")
    for library in ("onnx", "onnxscript", "onnxruntime") if to == "onnx" else ():
        optional(library, extra="onnx", needed_by="ONNX graphs")
    portable = run.portable()
    odd = {str(part.dtype) for part in run.model.parameters() if part.dtype != torch.float32}
    if odd:
        raise UserError(f"the run has weights in {', '.join(sorted(odd))}, and graphs are in float32")
    about: dict[str, Any] = {
        "format": runtime.FORMAT,
        "statewise": __version__,
        "run": run.path.name,
        "model": run.spec.name,
        "task": run.spec.task,
        "settings": dict(portable.settings),
    }
    files: dict[str, bytes] = {}
    if portable.machine is not None:
        make = _onnx_graphs if to == "onnx" else _pt2_graphs
        step, sequence = make(portable.machine, files, taps)
        about["taps"] = list(taps)
        about["proof"] = _as_json(prove(portable.machine, step, sequence))
        about["milliseconds"] = step_times(portable.machine, step)
        if compiled:
            about["compiled"] = _as_json(prove(portable.machine, _compiled(portable.machine, files), sequence))
        if int8:
            about["int8"] = _int8_graphs(portable, files, sequence)
    whole = portable.whole
    if portable.machine is not None and portable.source is not None:
        whole = condition(portable.machine, portable.source)
    if whole is not None:
        if to == "pt2":
            raise UserError(f"a {run.spec.task} run has no pt2 form", fix=option("to", "onnx"))
        files[f"{whole.name}.onnx"] = trace(whole.module, whole.ports(), whole.outputs).SerializeToString()
        about["whole"] = {"graph": whole.name, **prove_whole(whole, session(files[f"{whole.name}.onnx"]))}
    _write(folder, about, files, portable, with_runtime=to == "onnx")
    return about


def _write(
    folder: Path, about: dict[str, Any], files: dict[str, bytes], portable: Portable, *, with_runtime: bool
) -> None:
    make_folder(folder)
    for name, content in files.items():
        write(folder / name, content)
    for name, text in portable.files.items():
        write(folder / name, text)
    if portable.start is not None:
        save_state(moved(portable.start, "cpu"), folder / "start.safetensors", weights=portable.weights)
    if with_runtime:
        write(folder / "runtime.py", inspect.getsource(runtime))
    about["bytes"] = {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
    write(folder / "export.json", json.dumps(about, indent=1) + "\n")  # last: a folder that has it is complete


def _as_json(proof: Proof) -> dict[str, Any]:
    return {**proof._asdict(), "passed": proof.passed}


def graphs_of(machine: Machine[Any], *, taps: Sequence[str] = ()) -> tuple[Graph, Graph]:
    """The step graph and the sequence graph. Over time, taps are seen where the sequence is a loop."""
    step = step_graph(machine, taps=taps)
    return step, traced_sequence(machine) if grows(machine) else scan_over(step)


def _onnx_graphs(machine: Machine[Any], files: dict[str, bytes], taps: Sequence[str]) -> tuple[Call, Call]:
    for name, graph in zip(("step.onnx", "sequence.onnx"), graphs_of(machine, taps=taps)):
        files[name] = graph.SerializeToString()
    return session(files["step.onnx"]), session(files["sequence.onnx"])


def _pt2_graphs(machine: Machine[Any], files: dict[str, bytes], taps: Sequence[str]) -> tuple[Call, Call]:
    calls = []
    for name, is_step in (("step.pt2", True), ("sequence.pt2", False)):
        module, ports, outputs = flat(machine, step=is_step)
        with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
            torch.export.save(_program(module, ports), Path(folder) / name)
            files[name] = (Path(folder) / name).read_bytes()
            loaded: Callable[..., tuple[Tensor, ...]] = torch.export.load(Path(folder) / name).module()
        inputs, names = [port.name for port in ports], [name for name, _ in outputs]
        calls.append(_pt2_call(loaded, inputs, names))
    return calls[0], calls[1]


def _refuse_no_compiler() -> None:
    try:
        import_module("torch._inductor.cpp_builder").get_cpp_compiler()
    except Exception as error:  # PyTorch's own kinds differ by version
        raise UserError(
            f"{option('compiled')} needs a C++ compiler, and PyTorch finds none: {str(error).partition(chr(10))[0]}",
            fix=f"install g++, or name one in the variable CXX; or leave out {option('compiled')}",
        ) from None


def _compiled(machine: Machine[Any], files: dict[str, bytes]) -> Call:
    """The step as a package of AOTInductor: code for this processor, which C++ runs without Python."""
    module, ports, outputs = flat(machine, step=True)
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder, quiet():
        package = Path(folder) / "step.compiled.pt2"
        inductor = import_module("torch._inductor")  # a second and more of imports, which ONNX does without
        inductor.aoti_compile_and_package(_program(module, ports), package_path=str(package))
        files[package.name] = package.read_bytes()
        loaded = inductor.aoti_load_package(str(package))
    return _pt2_call(loaded, [port.name for port in ports], [name for name, _ in outputs])


def _program(module: nn.Module, ports: Sequence[Port]) -> torch.export.ExportedProgram:
    free = tuple(dict.fromkeys(port.axes, torch.export.Dim.DYNAMIC) for port in ports)
    return torch.export.export(module, tuple(port.example for port in ports), dynamic_shapes=(free[0], free[1:]))


def _pt2_call(program: Callable[..., tuple[Tensor, ...]], inputs: Sequence[str], outputs: Sequence[str]) -> Call:
    @torch.no_grad()
    def call(feed: Any) -> dict[str, Any]:
        results = program(*(torch.from_numpy(np.ascontiguousarray(feed[name])) for name in inputs))
        return {name: value.numpy() for name, value in zip(outputs, results)}

    return call


def _int8_graphs(portable: Portable, files: dict[str, bytes], sequence: Call) -> dict[str, Any]:
    """Weights in 8 bits by onnxruntime's own quantiser; and what that costs on text of the model's own."""
    machine, at = portable.machine, portable.start
    if not isinstance(machine, TokenMachine) or not isinstance(at, Continuation):
        raise UserError("int8 graphs are made of language models", fix=f"leave out {option('int8')}")
    smaller = _quantised(files["step.onnx"])
    if not any(node.op_type == "MatMulInteger" for node in smaller.graph.node):
        raise UserError("this model has no matrix product to quantise", fix=f"leave out {option('int8')}")
    files["step.int8.onnx"] = smaller.SerializeToString()
    again = _quantised(files["sequence.onnx"]) if grows(machine) else scan_over(smaller)
    files["sequence.int8.onnx"] = again.SerializeToString()
    tokens = min(_WRITTEN, (portable.settings["context"] or _WRITTEN + 1) - 1)
    read_BT = torch.cat([at.token_B[:, None], extend(machine, at, Sampling(), tokens=tokens)[0]], 1)[:, :-1]
    feed = {"tokens": read_BT.cpu().numpy(), **{path: leaf.cpu().numpy() for path, leaf in leaves(at.state)}}
    exact_TV, rough_TV = (
        torch.from_numpy(graph(feed)["logits"][0]).double().log_softmax(-1)
        for graph in (sequence, session(files["sequence.int8.onnx"]))
    )
    return {
        "tokens": tokens,
        "nats": float((exact_TV.exp() * (exact_TV - rough_TV)).nan_to_num().sum(-1).mean()),
        "same_best": float((exact_TV.argmax(-1) == rough_TV.argmax(-1)).double().mean()),
        "bytes": len(files["step.int8.onnx"]) / len(files["step.onnx"]),
    }


def _quantised(model: bytes) -> Graph:
    onnx = optional("onnx", extra="onnx", needed_by="ONNX graphs")
    quantization = optional("onnxruntime.quantization", extra="onnx", needed_by="int8 graphs")
    with tempfile.TemporaryDirectory() as folder, quiet():
        after = Path(folder) / "after.onnx"
        quantization.quantize_dynamic(
            onnx.load_from_string(model),
            after,
            weight_type=quantization.QuantType.QInt8,
            op_types_to_quantize=_PRODUCTS,
        )
        return onnx.load(after)
