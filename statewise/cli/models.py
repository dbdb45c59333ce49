"""`statewise models`: the lineage as a table."""

from typing import Annotated

import typer

from statewise.cli.output import print_json

_VOCAB = 65  # characters of a small corpus; sizes are quoted for it


def models(json_: Annotated[bool, typer.Option("--json", help="A list for machines.")] = False) -> None:
    """The lineage: name, year, what the state is, its bytes, and the parameters at the default size."""
    from statewise.core import state_bytes
    from statewise.models import LINEAGE, build

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
                "parameters": sum(p.numel() for p in model.parameters()),
                "state_bytes": state_bytes(model.init_state(1)),
                "fixed": row.fixed,
                "cost": row.cost,
                "paper": row.paper,
                "recipe": row.recipe,
            }
        )
    if json_:
        print_json(rows)
        return

    from rich.console import Console
    from rich.table import Table

    width = LINEAGE[0].spec.width
    table = Table(
        title=f"The lineage (width {width}, vocabulary {_VOCAB})", title_justify="left", caption_justify="left"
    )
    for heading in ("model", "year", "what the state is", "what it fixed"):
        table.add_column(heading)
    for heading in ("parameters", "state bytes"):
        table.add_column(heading, justify="right")
    for entry in rows:
        table.add_row(
            f"[bold]{entry['name']}[/]",
            str(entry["year"]),
            str(entry["state"]),
            str(entry["fixed"]),
            f"{entry['parameters']:,}",
            f"{entry['state_bytes']:,}",
        )
    table.caption = "train one: statewise train lstm"
    Console().print(table)
