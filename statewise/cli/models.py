"""`statewise models`: the lineage as a table."""

from typing import Annotated

import typer

from statewise.cli.output import print_json

_VOCAB = 65  # characters of a small corpus; sizes are quoted for it


def models(
    context: Annotated[
        int | None, typer.Option("--context", metavar="N", min=0, help="Bytes of state after N tokens, too.")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="A list for machines.")] = False,
) -> None:
    """The lineage: name, year, what the state is, its bytes, and the parameters at the default size.

    Example: statewise models --context 4096
    """
    from statewise.core import state_bytes
    from statewise.models import ENCODERS, LINEAGE, build, context_bytes

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
                "computes": encoding.computes,
                "fixed": encoding.fixed,
                "cost": encoding.cost,
                "paper": encoding.paper,
            }
        )
    if json_:
        print_json(rows)
        return

    from rich.console import Console
    from rich.table import Table

    table = Table(
        title=f"The lineage (default sizes, vocabulary {_VOCAB})", title_justify="left", caption_justify="left"
    )
    table.add_column("model", no_wrap=True)
    after = [] if context is None else [f"after {context:,}"]
    # A terminal is only so wide: whoever asks for another figure gets figures.
    words = {"what the state is": "state", "what it fixed": "fixed"} if context is None else {}
    for heading in ("year", *words):
        table.add_column(heading)
    for heading in ("parameters", "state bytes", *after):
        table.add_column(heading, justify="right", no_wrap=True)
    for entry in rows:
        if entry["name"] == ENCODERS[0].name:
            table.add_section()
        table.add_row(
            f"[bold]{entry['name']}[/]",
            str(entry["year"]),
            *(str(entry[word]) for word in words.values()),
            f"{entry['parameters']:,}" if entry["learns"] == "gradient" else "by counting",
            f"{entry['state_bytes']:,}",
            *(f"{entry['context_bytes']:,}" for _ in after),
        )
    table.caption = "train one: statewise train lstm"
    Console().print(table)
