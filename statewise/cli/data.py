"""`statewise data build`: a text of any size as tokens on disk, or examples of another task."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from statewise.cli.option import Json, Quiet, option
from statewise.cli.output import print_json, tell

if TYPE_CHECKING:
    from statewise.specs import DataSpec


def data(
    action: Annotated[Literal["build"], typer.Argument(metavar="build", help="Write data into a folder to train on.")],
    source: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE",
            help="Files (text, .jsonl, .parquet, .arrow; also .gz and .zst), folders, hub:NAME:SPLIT.",
        ),
    ],
    out: Annotated[Path, option("--out -o FOLDER", "The folder to write.")],
    recipe: Annotated[
        str | None,
        option(
            "--for RECIPE",
            "The recipe to train on it: classification, translation, tagging, tree, or a file. "
            "Default: a language model.",
        ),
    ] = None,
    tokenizer: Annotated[
        str | None,
        option(
            "--tokenizer KIND|FILE",
            "char, byte, word, wordpunct, bpe, or a tokenizer.json. Default: the recipe's; of a language model bpe.",
        ),
    ] = None,
    vocab: Annotated[int | None, option("--vocab N", "Largest vocabulary.")] = None,
    validation: Annotated[
        list[str] | None,
        option("--validation FILE", "Held-out data. Default: a tenth of it, of a text the last. Can be repeated."),
    ] = None,
    workers: Annotated[int | None, option("--workers N", "Processes that encode. Default: one for each core.")] = None,
    set_: Annotated[
        list[str] | None, option("--set -s PATH=VALUE", "A setting of the data, e.g. data.text_column=content.")
    ] = None,
    quiet: Quiet = False,
    json_: Json = False,
) -> int:
    """Tokenise data once into a folder of shards; `train --data FOLDER` reads it.

    Neither the data nor the tokens need fit into memory. With `--for`, pairs, labelled texts, tagged sentences or trees
    are read as that recipe reads them. A text is encoded by several processes; interrupted, the same command goes on
    where it stopped.

    Example: statewise data build books/ --out tokens --tokenizer bpe --vocab 8000
    Example: statewise data build pages.jsonl.zst --out tokens --set data.text_column=content
    Example: statewise data build reviews.csv --out examples --for classification --set data.text=review
    """
    from statewise.display import make_amounts
    from statewise.specs import LanguageModelSpec, UserError, as_overrides, load_recipe, make_spec

    if "-" in (*source, *(validation or ())):
        raise UserError("standard input cannot be read here: data are read twice", fix="name a file")
    given = {"data.tokenizer": tokenizer, "data.vocab": vocab, "data.validation": validation or None}
    settings = as_overrides({name: value for name, value in given.items() if value is not None}) + (set_ or [])
    for setting in set_ or [] if recipe is None else []:
        if not setting.startswith("data."):
            raise UserError(f"--set {setting}: not a setting of the text", fix="expected --set data.NAME=VALUE")
    if workers is not None and workers < 1:
        raise UserError(f"--workers {workers}", fix="give 1 or more")
    table = {"data": {"tokenizer": "bpe"}} if recipe is None else load_recipe(recipe)
    spec = make_spec(table, settings, data=source, source="the command")
    progress = make_amounts(quiet=quiet or json_)
    if recipe is None or isinstance(spec, LanguageModelSpec):
        assert isinstance(spec, LanguageModelSpec)
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return _tokens(spec.data, out, workers or cores, progress, json_)
    if workers is not None:
        raise UserError("--workers is for texts; examples are encoded by threads of the tokenizer", fix="leave it out")

    from statewise.tasks import build_examples

    index = build_examples(recipe, source, out, settings=settings, progress=progress)
    counts = {name: index.columns[f"{name}_rows"].size for name in ("train", "validation")}
    if json_:
        print_json({"folder": str(out), "sha256": index.sha256, "task": index.task, **counts})
        return 0
    for name, count in counts.items():
        tell(f"{name}: {count:,} examples")
    tell(f"in {out}; try: statewise train {recipe} --data {out}")
    return 0


def _tokens(spec: "DataSpec", out: Path, workers: int, progress: Any, json_: bool) -> int:
    from statewise.data import build_shards

    built = build_shards(spec, out, workers=workers, progress=progress)
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
