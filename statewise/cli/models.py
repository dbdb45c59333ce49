"""`statewise models`: the lineage as a table."""

from typing import Annotated

import typer

from statewise.cli.output import print_json

_VOCAB = 65  # characters of a small corpus; sizes are quoted for it
_WIDE = 120  # columns that hold two texts side by side


def models(
    context: Annotated[
        int | None,
        typer.Option("--context", metavar="N", min=0, help="Bytes of state, and FLOPs of a token, after N tokens."),
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="A list for machines.")] = False,
) -> None:
    """The lineage: name, year, what the state is, its bytes, and the parameters at the default size.

    Example: statewise models --context 4096
    """
    from statewise.core import state_bytes
    from statewise.models import (
        ENCODER_DECODERS,
        ENCODERS,
        LINEAGE,
        build,
        build_seq2seq,
        context_bytes,
        source_bytes,
    )

    rows = []
    for row in LINEAGE:
        model = build(row.spec, vocab=_VOCAB)
        rows.append(
            {
                "name": row.name,
                "id": row.id,
                "family": row.family,
                "year": row.year,
                "state": row.state,
                "learns": row.spec.learns,
                "parameters": sum(p.numel() for p in model.parameters()),
                "state_bytes": state_bytes(model.init_state(1)),
                **({} if context is None else {"context_bytes": context_bytes(model, context)}),
                "flops_per_token": row.spec.forward_flops(_VOCAB, context or 0),
                "fixed": row.fixed,
                "cost": row.cost,
                "paper": row.paper,
                "recipe": row.recipe,
            }
        )
    for encoding in ENCODERS:
        rows.append(
            {
                "name": encoding.name,
                "id": encoding.id,
                "family": "encoder",
                "year": encoding.year,
                "state": "none: it needs the whole input",
                "learns": "gradient",
                "parameters": sum(p.numel() for p in encoding.make().parameters()),
                "state_bytes": 0,
                **({} if context is None else {"context_bytes": 0}),
                "flops_per_token": None,  # it reads no token after another
                "computes": encoding.computes,
                "fixed": encoding.fixed,
                "cost": encoding.cost,
                "paper": encoding.paper,
            }
        )
    for conditional in ENCODER_DECODERS:
        writer = build_seq2seq(conditional.spec, source_vocab=_VOCAB, target_vocab=_VOCAB)
        rows.append(
            {
                "name": conditional.name,
                "id": conditional.id,
                "family": "encoder-decoder",
                "year": conditional.year,
                "state": conditional.state,
                "learns": conditional.spec.learns,
                "parameters": sum(p.numel() for p in writer.parameters()),
                "state_bytes": state_bytes(writer.init_state(1)),
                # After a source of so many tokens, nothing written yet.
                **({} if context is None else {"context_bytes": source_bytes(writer, context)}),
                "flops_per_token": None,  # it depends on two lengths
                "fixed": conditional.fixed,
                "cost": conditional.cost,
                "paper": conditional.paper,
            }
        )
    if json_:
        print_json(rows)
        return

    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    console = Console()
    table = Table(
        title=f"The lineage (default sizes, vocabulary {_VOCAB})",
        title_justify="left",
        caption_justify="left",
        box=SIMPLE_HEAD,
        pad_edge=False,
    )
    table.add_column("model", no_wrap=True)
    after = [] if context is None else [f"after {context:,}", "FLOPs/token"]
    # A terminal is only so wide: whoever asks for another figure gets figures.
    words = {} if after else {"year": "year", "what the state is": "state"}
    if words and console.width >= _WIDE:
        words["what it fixed"] = "fixed"
    for heading in words:
        table.add_column(heading)
    for heading in ("parameters", "bytes" if after else "state bytes", *after):
        table.add_column(heading, justify="right", no_wrap=True)
    for entry in rows:
        if entry["name"] in (ENCODERS[0].name, ENCODER_DECODERS[0].name):
            table.add_section()
        table.add_row(
            f"[bold]{entry['name']}[/]",
            *(str(entry[word]) for word in words.values()),
            f"{entry['parameters']:,}" if entry["learns"] == "gradient" else "by counting",
            f"{entry['state_bytes']:,}",
            *([f"{entry['context_bytes']:,}", _figure(entry["flops_per_token"])] if after else []),
        )
    table.caption = "train one: statewise train lstm; all that is known of each: --json"
    console.print(table)


def _figure(number: object) -> str:
    return "-" if number is None else f"{number:,}"
