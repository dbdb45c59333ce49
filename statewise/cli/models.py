"""`statewise models`: list the models, or describe one."""

import textwrap
from functools import partial
from typing import Annotated, Any

import typer

from statewise.cli.option import Json, option
from statewise.cli.output import print_json

_VOCAB = 65  # characters of a small corpus, for which sizes are given
_READABLE = 110  # letters of a line


def models(
    name: Annotated[str | None, typer.Argument(metavar="MODEL", help="One model. Default: all of them.")] = None,
    context: Annotated[
        int, option("--context N", "Bytes of state, and FLOPs of a token, after N tokens.", min=0)
    ] = 1024,
    training: Annotated[
        bool, option("--training", "Also measure training memory and the longest path between two tokens.")
    ] = False,
    json_: Json = False,
) -> None:
    """List the models: year, parameters, bytes of state after some tokens, what the state is, and what each fixed.

    Example: statewise models --context 4096
    Example: statewise models --context 4096 --training
    Example: statewise models lstm
    """
    from statewise.specs import UserError, nearest

    rows = {row["name"]: row for row in _rows(context)}
    if name is not None and name not in rows:
        raise UserError(f"{name!r} is not a model", fix=nearest(name, rows))
    if training or name is not None:
        _measure_training([row for row in rows.values() if name in (None, row["name"])], context)
    if json_:
        print_json(list(rows.values()) if name is None else rows[name])
    elif name is not None:
        _print_one(rows[name])
    else:
        _print(list(rows.values()), context)


def _rows(context: int) -> list[dict[str, Any]]:
    from statewise.core import state_bytes
    from statewise.models import (
        ENCODER_DECODERS,
        ENCODERS,
        LINEAGE,
        build,
        build_seq2seq,
        context_bytes,
        cost_of,
        source_bytes,
    )

    def described(
        row: Any, model: Any, held: int, initial: int, *, family: str, state: str, learns: str, flops: int | None = None
    ) -> dict[str, Any]:
        return {
            "name": row.name,
            "id": row.id,
            "family": family,
            "year": row.year,
            "state": state,
            "learns": learns,
            "parameters": sum(p.numel() for p in model.parameters()),
            "context": context,
            "context_bytes": held,
            "initial_bytes": initial,
            "flops_per_token": flops,
            **({"computes": row.computes} if family == "encoder" else {}),
            "fixed": row.fixed,
            "cost": row.cost,
            "paper": row.paper,
        }

    rows: list[dict[str, Any]] = []
    for row in LINEAGE:
        model = build(row.spec, vocab=_VOCAB)
        flops = cost_of(partial(build, row.spec, vocab=_VOCAB), context=context).flops
        sizes = context_bytes(model, context), state_bytes(model.init_state(1))
        known: dict[str, Any] = {"family": row.family, "state": row.state, "learns": row.spec.learns}
        rows.append({**described(row, model, *sizes, **known, flops=flops), "recipe": row.recipe})
    for encoding in ENCODERS:  # they do not read token by token
        known = {"family": "encoder", "state": "none: it needs the whole input", "learns": "gradient"}
        rows.append(described(encoding, encoding.make(encoding.width), 0, 0, **known))
    for conditional in ENCODER_DECODERS:
        writer = build_seq2seq(conditional.spec, source_vocab=_VOCAB, target_vocab=_VOCAB)
        # After a source of so many tokens, before the first target token. FLOPs depend on two lengths.
        sizes = source_bytes(writer, context), state_bytes(writer.init_state(1))
        known = {"family": "encoder-decoder", "state": conditional.state, "learns": conditional.spec.learns}
        rows.append(described(conditional, writer, *sizes, **known))
    return rows


def _measure_training(rows: list[dict[str, Any]], context: int) -> None:
    """Add the memory that training keeps for one row of so many tokens, and how the path between two tokens grows."""
    from statewise.encoders import TreeEncoder
    from statewise.models import ENCODERS, LINEAGE, build, path, training_bytes, tree_path

    specs = {row.name: row.spec for row in LINEAGE if row.spec.learns == "gradient"}
    encoders = {encoding.name: encoding.make for encoding in ENCODERS}
    for row in rows:
        row |= {"training_bytes": None, "path": None}
        if row["name"] in specs:
            spec = specs[row["name"]]
            row["training_bytes"] = training_bytes(build(spec, vocab=_VOCAB), context)
            row["path"] = path(build(spec.small(), vocab=_VOCAB))
        elif row["name"] in encoders and isinstance(encoder := encoders[row["name"]](8), TreeEncoder):
            row["path"] = tree_path(encoder.composer)


def _print(rows: list[dict[str, Any]], context: int) -> None:
    """A line of numbers for each model; below it what its state is and what it fixed."""
    from statewise.display import make_console

    console = make_console()
    say = console.say
    wide = min(console.width, _READABLE)
    longest = max(len(row["name"]) for row in rows)
    training = "training_bytes" in rows[0]
    more = f"; training bytes of one row of {context:,}, and the path between two tokens N apart" if training else ""
    say(f"Sizes by default, vocabulary {_VOCAB}; state and FLOPs per token after {context:,} tokens{more}.\n")
    headings = "  training bytes   path" if training else ""
    say(f"{'model':{longest}}  year   parameters    state bytes   FLOPs/token{headings}", "bold")
    for row in rows:
        numbers = (
            f"{row['year']}  {_parameters(row):>11}  {row['context_bytes']:>13,}  {_count(row['flops_per_token']):>12}"
        )
        if training:
            numbers += f"  {_count(row['training_bytes']):>14}  {row['path'] or '-':>5}"
        console.print(f"[bold]{row['name']:{longest}}[/]  {numbers}", highlight=False, soft_wrap=True)
        for title in ("state", "fixed"):
            say(textwrap.fill(f"{title}: {row[title]}", wide, initial_indent="  ", subsequent_indent="    "))
    say("\nall about one: statewise models lstm; train it: statewise train lstm")


def _print_one(row: dict[str, Any]) -> None:
    from statewise.display import make_console

    console = make_console()
    after = f" after {row['context']:,} tokens"
    facts = {
        "family": row["family"],
        "paper": row["paper"],
        "computes": row.get("computes", ""),
        "state": row["state"],
        "what it fixed": row["fixed"],
        "what it costs": row["cost"],
        "parameters": f"{_parameters(row)} (default size, vocabulary {_VOCAB})",
        "bytes of state": f"{row['context_bytes']:,}{after}, {row['initial_bytes']:,} before any",
        "FLOPs per token": f"{_count(row['flops_per_token'])}{after}",
        "training memory": ""
        if row["training_bytes"] is None
        else f"{row['training_bytes']:,} bytes for one row of {row['context']:,} tokens, kept for the backward pass",
        "longest path": "" if row["path"] is None else f"{row['path']} between two tokens N apart",
        "train it": f"statewise train {row['recipe']}" if "recipe" in row else "",
    }
    console.print(f"[bold]{row['name']}[/] ({row['year']})", highlight=False)
    for title, text in facts.items():
        if text:
            line = textwrap.fill(f"{title}: {text}", min(console.width, _READABLE), subsequent_indent="    ")
            console.say(textwrap.indent(line, "  "))


def _parameters(row: dict[str, Any]) -> str:
    return f"{row['parameters']:,}" if row["learns"] == "gradient" else "by counting"


def _count(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"
