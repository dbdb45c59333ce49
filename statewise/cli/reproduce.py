"""`statewise reproduce`: train the recipe of a published result, and compare."""

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from statewise.cli.option import Json, Quiet, option
from statewise.cli.output import print_json, tell

if TYPE_CHECKING:
    from statewise.specs import ReproductionSpec
    from statewise.tasks import Verdict

_READABLE = 110  # letters of a line


def reproduce(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="The recipe of a published result. Default: list them.")
    ] = None,
    data: Annotated[Path | None, option("--data -d DIR", "The folder (or file) with the recipe's data.")] = None,
    set_: Annotated[
        list[str] | None, option("--set -s PATH=VALUE", "Change any setting, e.g. train.steps=500.")
    ] = None,
    test: Annotated[
        list[str] | None, option("--test -t FILE", "Evaluate on this file in the end. Can be repeated.")
    ] = None,
    metric: Annotated[str | None, option("--metric -m NAME", "Report this metric of the task, e.g. span_f1.")] = None,
    seeds: Annotated[int, option("--seeds N", "Train with so many seeds; the mean is compared.", min=1)] = 1,
    out: Annotated[
        Path | None, option("--out -o DIR", "Folder of the run; of several seeds, DIR-seed0 and so on.")
    ] = None,
    quiet: Quiet = False,
    json_: Json = False,
) -> int:
    """Train the recipe of a published result on your copy of its data, and compare with the published figure.

    On other data, or by another metric, it reports the score alone.

    Example: statewise reproduce ewt-upos --data UD_English-EWT
    Example: statewise reproduce jsb-lstm --data JSB_Chorales.mat --seeds 3
    """
    from statewise.specs import UserError, load_published, published_names

    if name is None:
        _list({each: load_published(each)[1] for each in published_names()}, json_=json_)
        return 0
    _, reproduction = load_published(name)  # a wrong name comes before a missing option
    if data is None and not set_ and reproduction.files:
        raise UserError(
            "--data is missing", fix=f"name the folder that holds the data: statewise reproduce {name} --data DIR"
        )

    from statewise.tasks import reproduce as run_again
    from statewise.training import make_display

    verdict = run_again(
        name,
        data=data,
        settings=set_ or (),
        test=test or (),
        metric=metric,
        seeds=seeds,
        out=out,
        display=make_display(quiet=quiet),
    )
    if json_:
        print_json(verdict._asdict())
    else:
        _print(verdict)
    return 1 if verdict.landed is False else 0


def _list(every: "dict[str, ReproductionSpec]", *, json_: bool) -> None:
    """A line of numbers for each recipe; below it the metric, the sources and the status of our result."""
    if json_:
        print_json(
            [
                {
                    "name": name,
                    **spec.model_dump(mode="json"),
                    "expected": spec.interval,
                    "expected_from": spec.expected_from,
                    "status": spec.status,
                }
                for name, spec in every.items()
            ]
        )
        return

    from statewise.display import make_console

    console = make_console()
    say = console.say
    longest = max(map(len, every))
    say(f"{'recipe':{longest}} {'published':>9} {'our goal':>8} {'ours':>14} expected", "bold")
    for name, spec in every.items():
        mark = "~" if spec.published is not None and not spec.published.verified else ""
        expected = "" if spec.interval is None else "{:.4g}–{:.4g}".format(*spec.interval)
        published, goal = _figure(spec.published), _figure(spec.goal)
        ours = "" if spec.ours is None else str(spec.ours)
        say(f"{name:{longest}} {mark + published:>9} {goal:>8} {ours:>14} {expected}")
        notes = [f"{spec.metric.replace('_', ' ')}, {spec.better} is better; {spec.status}"]
        if spec.published is not None:
            of = f" (on {spec.published.measured})" if spec.published.measured else ""
            notes.append(f"published: {spec.published.source}{of}")
        if spec.goal is not None and spec.goal.why:
            notes.append(f"our goal: {spec.goal.why}")
        for line in notes:
            wide = min(console.width, _READABLE)
            say(textwrap.fill(line, wide, initial_indent="  ", subsequent_indent="    "))
    say("\nours: one run, or the mean of several seeds and their standard deviation")
    bases = {(spec.expected_from, "±" in str(spec.ours)) for spec in every.values() if spec.expected_from}
    for basis, spread in sorted(bases):
        say(f"expected, where ours has {'a' if spread else 'no'} ±: {basis}")
    say("~: quoted from elsewhere, not read in the source itself")
    say("the files each needs: statewise reproduce --json")


def _figure(result: Any) -> str:
    return "" if result is None else f"{result.figure:g}"


def _print(verdict: "Verdict") -> None:
    interval = ""
    if verdict.expected is not None:
        interval = "the expected {:.4g} to {:.4g}".format(*verdict.expected) + f" ({verdict.expected_from})"
    where = {None: "no interval is known", True: f"inside {interval}", False: f"OUTSIDE {interval}"}[verdict.landed]
    if verdict.other_data:
        where = f"no verdict: other data than the recipe's ({', '.join(verdict.other_data)})"
    spread = f" ± {verdict.deviation:.4f}" if verdict.deviation is not None else ""
    tell(f"{verdict.metric} {verdict.found:.4f}{spread}: {where}; {verdict.seconds:.0f} s -> {', '.join(verdict.runs)}")
    if len(verdict.figures) > 1:
        each = ", ".join(f"{figure:.4f}" for figure in verdict.figures)
        tell(f"mean and standard deviation of {len(verdict.figures)} seeds: {each}")
    tell(verdict.note)
    if verdict.other_data:
        files = "".join(f" --data {file}" for file in verdict.evaluated)
        tell(f"beside trivial baselines: statewise evaluate {verdict.runs[0]}{files}")
    if verdict.changed:
        tell(f"with other settings than the recipe's: {', '.join(verdict.changed)}")
    reached = {None: "", True: ", reached", False: ", not reached"}
    if verdict.published is not None:
        tell(f"published {verdict.published:g}{reached[verdict.reached]}: {verdict.source}")
    if verdict.goal is not None:
        tell(f"our goal {verdict.goal:g}{reached[verdict.goal_reached]}")
