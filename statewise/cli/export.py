"""`statewise export`: a run as graphs that need neither this package nor PyTorch."""

from pathlib import Path
from typing import Annotated, Any, Literal

from statewise.cli.option import Json, MixerOption, RunFolder, open_run, option
from statewise.cli.output import make_table, print_json, tell

_PROOFS = ("proof", "whole", "compiled")


def export(
    run: RunFolder,
    to: Annotated[
        Literal["onnx", "pt2", "hf", "gguf"],
        option("--to", "ONNX graphs, PyTorch's programs, a Hugging Face folder, or llama.cpp's format."),
    ] = "onnx",
    out: Annotated[Path | None, option("--out -o DIR", "A new folder. Default: RUN-onnx and so on.")] = None,
    taps: Annotated[
        list[str] | None, option("NAME", "An observed value as one more output: '*forget_gate'. Can be repeated.")
    ] = None,
    int8: Annotated[bool, option("--int8", "Smaller graphs too, and what they lose.")] = False,
    compiled: Annotated[
        bool, option("--compiled", "With --to pt2, a step for C++ too; it needs a C++ compiler.")
    ] = False,
    mixer: MixerOption = None,
    json_: Json = False,
) -> int:
    """Write a step graph and a sequence graph with named states, and compare them with PyTorch.

    The folder has all that `statewise.runtime` needs, which is in it too: NumPy runs it, and onnxruntime faster.

    Example: statewise export runs/lstm --to onnx --out exported
    Example: statewise export shakespeare-lstm --taps "*forget_gate" --int8
    """
    from statewise.export import export_run
    from statewise.specs import UserError

    opened = open_run(run, device="cpu", mixer=mixer)
    folder = Path(f"{run.name}-{to}") if out is None else out
    if to in ("hf", "gguf"):
        if taps or int8 or compiled:
            raise UserError("--taps, --int8 and --compiled are of graphs", fix="leave them out, or export graphs")
        return (_hugging_face if to == "hf" else _gguf)(opened, folder, json_=json_)
    assert to in ("onnx", "pt2")
    about = export_run(opened, folder, to=to, taps=taps or (), int8=int8, compiled=compiled)
    if json_:
        print_json(about)
    else:
        _print(about, folder)
    return 0 if all(about[part]["passed"] for part in _PROOFS if part in about) else 1


def _gguf(run: Any, folder: Path, *, json_: bool) -> int:
    from statewise.interop import export_gguf

    file = export_gguf(run, folder)
    if json_:
        print_json({"file": str(file), "bytes": file.stat().st_size})
    else:
        tell(f"{file}: {file.stat().st_size:,} bytes in float32; llama.cpp opens it, and makes smaller ones of it")
    return 0


def _hugging_face(run: Any, folder: Path, *, json_: bool) -> int:
    from statewise.interop import export_hugging_face
    from statewise.specs import from_json

    export_hugging_face(run, folder)
    kind = from_json((folder / "config.json").read_text(encoding="utf-8"))["model_type"]
    if json_:
        print_json({"folder": str(folder), "model_type": kind})
        return 0
    tell(f"{folder}: a {kind} model; open it with transformers.AutoModelForCausalLM.from_pretrained")
    if kind == "statewise":
        tell("its architecture is not one of transformers: import statewise.hf before that")
    return 0


def _print(about: dict[str, Any], folder: Path) -> None:
    from statewise.display import make_console

    table = make_table(title="Largest error against PyTorch, relative", title_justify="left")
    for column in ("what", "batches", "lengths", "error"):
        table.add_column(column, justify="right" if column == "error" else "left")
    if "proof" in about:
        proof = about["proof"]
        batches, lengths = (", ".join(map(str, proof[name])) for name in ("batches", "lengths"))
        table.add_row("step", batches, "1", f"{proof['step']:.1e}")
        table.add_row("chained steps", batches, str(proof["steps"]), f"{proof['chained']:.1e}")
        table.add_row("sequence", batches, lengths, f"{proof['sequence']:.1e}")
    if "compiled" in about:
        proof = about["compiled"]
        table.add_row("compiled step", batches, "1", f"{proof['step']:.1e}")
        table.add_row("compiled, chained", batches, str(proof["steps"]), f"{proof['chained']:.1e}")
    if "whole" in about:
        whole = about["whole"]
        batches, lengths = (", ".join(map(str, whole[name])) for name in ("batches", "lengths"))
        table.add_row(whole["graph"], batches, lengths, f"{whole['error']:.1e}")
    make_console().print(table)
    if about.get("proof", {}).get("rounding"):
        tell(
            f"this model amplifies rounding: PyTorch in float32 is {about['proof']['rounding']:.1e} from float64 itself"
        )
    if "milliseconds" in about:
        taken = about["milliseconds"]
        tell(f"a step of one row takes {taken['graph']:.3f} ms, in PyTorch {taken['torch']:.3f} ms")
    if "int8" in about:
        loss = about["int8"]
        tell(
            f"int8: {loss['bytes']:.0%} of the size; it loses {loss['nats']:.4f} nats a token, and "
            f"{loss['same_best']:.1%} of the best tokens stay ({loss['tokens']} tokens of the model's own text)"
        )
    failed = [part for part in _PROOFS if part in about and not about[part]["passed"]]
    tell(f"{folder}: {', '.join(about['bytes'])}")
    if failed:
        tell("BROKEN: the graphs do not compute what the run does; please report this", error=True)
