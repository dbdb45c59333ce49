"""`statewise settings`: what --set can change."""

from typing import Annotated

import typer

from statewise.cli.option import Json
from statewise.cli.output import print_json


def settings(
    recipe: Annotated[
        str, typer.Argument(metavar="RECIPE|MODEL", help="A recipe (.toml or name) or a model's name. Default: lstm.")
    ] = "lstm",
    json_: Json = False,
) -> None:
    """List every setting of a recipe: its path, its value there, and what it means.

    Example: statewise settings classification
    """
    from statewise.specs import as_toml, load_recipe, make_spec, settings_of

    listed = list(settings_of(make_spec(load_recipe(recipe), source=f"recipe {recipe}")))
    if json_:
        print_json(
            [
                {**one._asdict(), "value": list(one.value) if isinstance(one.value, tuple) else one.value}
                for one in listed
            ]
        )
        return

    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table

    from statewise.display import make_console

    table = Table("setting", "meaning", box=SIMPLE_HEAD, pad_edge=False)
    table.columns[0].overflow = "fold"
    group = ""
    for one in listed:
        if one.path.rpartition(".")[0] != group:
            group = one.path.rpartition(".")[0]
            table.add_section()
        choices = ", ".join(one.choices) if len(one.choices) > 1 else ""
        meaning = "; ".join(filter(None, [choices, one.description]))
        table.add_row(escape(f"{one.path}={as_toml(one.value)}"), escape(meaning))
    console = make_console()
    console.print(table)
    console.print(f"change one: statewise train {recipe} --set train.lr=0.001", highlight=False, markup=False)
