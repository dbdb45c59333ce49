"""Command-line parts shared by the benchmarks: options, a GPU check, tables, a JSON file for numbers."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

WIDE = 150  # columns, for the widest of the tables


def options(doc: str | None, *, numbers: bool = True) -> argparse.ArgumentParser:
    """`--help` shows the whole text at the top of the file. `numbers`: with `--json FILE`."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    if numbers:
        parser.add_argument("--json", type=Path, help="a file for the numbers")
    return parser


def positive(text: str) -> int:
    if not text.replace("_", "").isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 on")
    return int(text)


def device_of(text: str) -> torch.device:
    try:
        return torch.device(text)
    except RuntimeError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a device; valid: cpu, cuda") from None


def readable(text: str) -> Path:
    if not Path(text).is_file():
        raise argparse.ArgumentTypeError(f"{text!r} is not a file")
    return Path(text)


def need_gpu(wanted: torch.device | str = "cuda") -> None:
    """One line where a GPU is wanted and there is none."""
    if torch.device(wanted).type == "cuda" and not torch.cuda.is_available():
        raise SystemExit("this needs an NVIDIA GPU, and PyTorch sees none here")


def console() -> Console:
    """As wide as the terminal; in a file or a pipe wide enough for every column."""
    made = Console()
    return made if made.is_terminal else Console(width=WIDE)


def write(path: Path | None, rows: Sequence[dict[str, Any]], **around: Any) -> None:
    """Where it was asked for: the rows, what else there is to say, and where they were measured."""
    if path is not None:
        gpu = {"gpu": torch.cuda.get_device_name()} if torch.cuda.is_available() else {}
        where = {"torch": torch.__version__, "threads": torch.get_num_threads(), **gpu}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({**where, **around, "rows": list(rows)}, indent=1) + "\n", encoding="utf-8")
