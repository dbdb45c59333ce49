"""`statewise reproduce`: does a published result come out again?"""

from pathlib import Path
from typing import Annotated

import typer

from statewise.cli.option import Json, Quiet
from statewise.cli.output import print_json


def reproduce(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="A published recipe. None: list them.")] = None,
    data: Annotated[
        Path | None, typer.Option("--data", "-d", metavar="DIR", help="The folder (or file) with the recipe's data.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", "-s", metavar="PATH=VALUE", help="Override a setting, e.g. train.steps=500."),
    ] = None,
    test: Annotated[
        list[str] | None,
        typer.Option("--test", "-t", metavar="FILE", help="Evaluate on this file in the end. Can be repeated."),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="DIR", help="Folder of the run.")] = None,
    quiet: Quiet = False,
    json_: Json = False,
) -> int:
    """Train a published recipe on your copy of its data, and say whether the figure came out again.

    Of other data there is no verdict, but the same recipe's figure.

    Example: statewise reproduce ewt-upos --data UD_English-EWT
    """
    from rich.console import Console
    from rich.table import Table

    from statewise.specs import UserError, load_published, published_names

    if name is None:
        rows = [(each, load_published(each)[1]) for each in published_names()]
        if json_:
            print_json([{"name": each, **published.model_dump(mode="json")} for each, published in rows])
            return 0
        table = Table(title="Published results", title_justify="left")
        table.add_column("recipe", no_wrap=True)
        for heading in ("metric", "published", "expected here"):
            table.add_column(heading, overflow="fold")
        for each, published in rows:
            expected = "" if published.expected is None else "{:g} to {:g}".format(*published.expected)
            table.add_row(each, published.metric.replace("_", " "), f"{published.figure:g}", expected)
        table.caption = "the files each needs: statewise reproduce --json"
        Console().print(table)
        return 0
    load_published(name)  # a name that is not known is said before a missing option
    if data is None and not set_:
        raise UserError(
            "--data is missing", fix=f"name the folder that holds the data: statewise reproduce {name} --data DIR"
        )

    from statewise.tasks.reproduce import reproduce as run_again
    from statewise.training import make_display

    verdict = run_again(
        name, data=data, settings=set_ or (), test=test or (), out=out, display=make_display(quiet=quiet)
    )
    if json_:
        print_json(verdict._asdict())
    else:
        interval = "" if verdict.expected is None else "the expected {:g} to {:g}".format(*verdict.expected)
        where = {None: "no interval is known", True: f"inside {interval}", False: f"OUTSIDE {interval}"}[verdict.landed]
        if verdict.other_data:
            where = f"no verdict: other data than those of the published figure ({', '.join(verdict.other_data)})"
        print(f"{verdict.metric} {verdict.found:.4f}: {where}; {verdict.seconds:.0f} s -> {verdict.run}")
        print(verdict.note)
        if verdict.other_data:
            files = "".join(f" --data {file}" for file in verdict.evaluated)
            print(f"beside what is trivial: statewise evaluate {verdict.run}{files}")
        if verdict.changed:
            print(f"with other settings than the recipe's: {', '.join(verdict.changed)}")
        reached = {None: "", True: ", reached", False: ", not reached"}[verdict.reached]
        print(f"published {verdict.published:g}{reached}: {verdict.source}")
    return 1 if verdict.landed is False else 0
