"""`statewise settings`: what --set can change."""

from typing import Annotated

import typer

from statewise.cli.option import Json
from statewise.cli.output import make_table, print_json


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
        values = ([*setting.value] if isinstance(setting.value, tuple) else setting.value for setting in listed)
        print_json([{**setting._asdict(), "value": value} for setting, value in zip(listed, values)])
        return

    from rich.markup import escape

    from statewise.display import make_console

    table = make_table("setting", "meaning")
    table.columns[0].overflow = "fold"
    group = ""
    for setting in listed:
        if setting.path.rpartition(".")[0] != group:
            group = setting.path.rpartition(".")[0]
            table.add_section()
        choices = ", ".join(setting.choices) if len(setting.choices) > 1 else ""
        meaning = "; ".join(filter(None, [choices, setting.description]))
        table.add_row(escape(f"{setting.path}={as_toml(setting.value)}"), escape(meaning))
    console = make_console()
    console.print(table)
    console.print(f"change one: statewise train {recipe} --set train.lr=0.001", highlight=False, markup=False)
