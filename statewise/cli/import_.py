"""`statewise import`: a model folder of another library becomes a run."""

from pathlib import Path
from typing import Annotated

import typer

from statewise.cli.option import Json, option
from statewise.cli.output import print_json, tell


def import_(
    folder: Annotated[
        Path,
        typer.Argument(metavar="FOLDER", help="A Hugging Face folder: config.json, *.safetensors, tokenizer.json."),
    ],
    out: Annotated[Path | None, option("--out -o DIR", "Folder of the run. Default: runs/FOLDER.")] = None,
    json_: Json = False,
) -> int:
    """Make a run of a GPT-2, Llama, Mistral, Qwen2, Qwen3 or Mamba-2 folder: generate, evaluate, inspect, fine-tune.

    Without config.json: the tensors of a torch.nn RNN, GRU or LSTM with an embedding and a linear layer. Pickled
    weights are refused, and no code of the folder runs.

    Example: statewise import ~/models/SmolLM-135M --out runs/smol
    """
    from statewise.interop import from_pretrained

    run = from_pretrained(folder, out=out, device="cpu")
    parameters = sum(value.numel() for value in run.model.parameters())
    if json_:
        print_json({"run": str(run.path), "kind": run.spec.model.kind, "parameters": parameters, **run.sizes()})
        return 0
    tell(f"{run.spec.model.kind}, {parameters:,} parameters, vocabulary {run.sizes()['vocabulary']:,} -> {run.path}")
    tell(f"try: statewise generate {run.path} --prompt 'Once upon a time'; statewise train {run.path} --data my.txt")
    return 0
