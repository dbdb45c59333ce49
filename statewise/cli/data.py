"""`statewise data build`: a text of any size as tokens on disk."""

import os
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from statewise.cli.option import Json, Quiet, option
from statewise.cli.output import print_json, tell


def data(
    action: Annotated[
        Literal["build"], typer.Argument(metavar="build", help="Tokenise texts into a folder to train on.")
    ],
    source: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE",
            help="Files (text, .jsonl, .parquet, .arrow; also .gz and .zst), folders, hub:NAME:SPLIT.",
        ),
    ],
    out: Annotated[Path, option("--out -o FOLDER", "The folder of the tokens.")],
    tokenizer: Annotated[
        str, option("--tokenizer KIND|FILE", "char, byte, word, wordpunct, bpe, or a tokenizer.json.")
    ] = "bpe",
    vocab: Annotated[int | None, option("--vocab N", "Largest vocabulary.")] = None,
    validation: Annotated[
        list[str] | None,
        option("--validation FILE", "Held-out text. Default: the last tenth of the text. Can be repeated."),
    ] = None,
    workers: Annotated[int | None, option("--workers N", "Processes that encode. Default: one for each core.")] = None,
    set_: Annotated[
        list[str] | None, option("--set -s PATH=VALUE", "A setting of the text, e.g. data.text_column=content.")
    ] = None,
    quiet: Quiet = False,
    json_: Json = False,
) -> int:
    """Tokenise texts once, by several processes, into a folder of shards; `train --data FOLDER` reads it.

    Neither the text nor the tokens need fit into memory. Interrupted, the same command goes on where it stopped.

    Example: statewise data build books/ --out tokens --tokenizer bpe --vocab 8000
    Example: statewise data build pages.jsonl.zst --out tokens --set data.text_column=content
    """
    from statewise.data import build_shards
    from statewise.display import make_amounts
    from statewise.specs import LanguageModelSpec, UserError, make_spec

    table: dict[str, Any] = {
        "data": {"text": source, "validation": validation or [], "tokenizer": tokenizer, "vocab": vocab}
    }
    for setting in set_ or []:
        if not setting.startswith("data."):
            raise UserError(f"--set {setting}: not a setting of the text", fix="expected --set data.NAME=VALUE")
    spec = make_spec(table, set_ or [], source="the command")
    assert isinstance(spec, LanguageModelSpec)
    if "-" in (*spec.data.text, *spec.data.validation):
        raise UserError("standard input cannot be read here: a text is read twice", fix="name a file")
    if workers is not None and workers < 1:
        raise UserError(f"--workers {workers}", fix="give 1 or more")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    progress = make_amounts(quiet=quiet or json_)
    built = build_shards(spec.data, out, workers=workers or cores, progress=progress)
    index = built.index
    parts = {"train": index.train, "validation": index.validation}
    if json_:
        counts = {
            name: {"tokens": part.tokens, "bytes": part.bytes, "unknown": part.unknown, "shards": len(part.shards)}
            for name, part in parts.items()
        }
        print_json({"folder": str(out), "sha256": index.sha256, "tokenizer": index.tokenizer, **counts})
        return 0
    for name, part in parts.items():
        each = part.bytes / max(1, part.tokens)
        shards = "1 shard" if len(part.shards) == 1 else f"{len(part.shards):,} shards"
        tell(f"{name}: {part.tokens:,} tokens in {shards}, of {part.bytes:,} bytes ({each:.2f} each)")
    tell(f"in {out}; try: statewise train lstm --data {out}")
    return 0
