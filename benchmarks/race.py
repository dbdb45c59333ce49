"""A race to a validation loss on characters, from the start of the process: our recipes, and nanoGPT.

    python benchmarks/race.py --text input.txt [--peer NANOGPT_CHECKOUT] [--target 1.4697] [--recipe NAME_OR_FILE ...]

Every run is a separate process, timed from before its start: imports, reading the text, compilation and evaluation all
count. Ours is evaluated over the whole validation tenth, each character once: every window of 256 from the initial
state, as in nanoGPT (which draws 200 batches of such windows), and also with the state carried if the recipe trains
that way. Both sides evaluate in their training precision; when ours reaches the target, the same weights are evaluated
once more in float32. nanoGPT runs its own config/train_shakespeare_char.py as in its README, on the same text, scored
by its own log. It saves a checkpoint whenever it improves; ours does so with --saving, as `statewise train` would.
"""

import argparse
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import torch
from command_line import console
from rich.table import Table

from statewise.specs import LanguageModelSpec, UserError, load_recipe, make_spec
from statewise.specs.toml import dumps
from statewise.tasks.job import Opening
from statewise.tasks.language_model import LanguageModelJob, measure
from statewise.training import Parallel, RunFolder, fit, pick_device
from statewise.training.update import autocast

CONSOLE = console()
RECIPES = ("tinyshakespeare-race-transformer", "tinyshakespeare-race-lstm")
WINDOW = 256  # nanoGPT's block_size, from which its loss is a mean over all places
LANES = 64  # of text read side by side; each reads what stands before its own part first
PEER_LINE = re.compile(r"step (\d+): train loss [\d.]+, val loss ([\d.]+)")
HEADINGS = ("run", "to target, fresh", "step", "to target, carried", "best fresh", "best carried", "ms a step", "whole")


class Seen(NamedTuple):
    """One evaluation. `seconds` since the process was started; a peer has no `carried`."""

    seconds: float
    step: int
    fresh: float
    carried: float | None = None
    training_seconds: float | None = None


class Course(NamedTuple):
    name: str
    seen: list[Seen]
    whole_seconds: float
    notes: dict[str, Any]

    def first(self, target: float, which: str = "fresh") -> Seen | None:
        return next((one for one in self.seen if (getattr(one, which) or math.inf) <= target), None)

    def best(self, which: str = "fresh") -> float | None:
        figures = [getattr(one, which) for one in self.seen if getattr(one, which) is not None]
        return min(figures, default=None)

    def ms_per_step(self) -> float | None:
        """Of the second half of the run: the first steps compile."""
        timed = [one for one in self.seen if one.training_seconds is not None]
        if len(timed) < 2:
            return None
        begin, end = timed[len(timed) // 2 - 1], timed[-1]
        return 1e3 * ((end.training_seconds or 0) - (begin.training_seconds or 0)) / max(1, end.step - begin.step)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--text", type=Path, required=True, help="tinyshakespeare, one file")
    options.add_argument("--peer", type=Path, help="a checkout of nanoGPT, run after ours")
    options.add_argument("--target", type=float, default=1.4697, help="validation loss in nats per character")
    options.add_argument("--recipe", action="append", metavar="NAME_OR_FILE", help=f"default: {', '.join(RECIPES)}")
    options.add_argument("--set", action="append", default=[], metavar="PATH=VALUE", help="for all of our runs")
    options.add_argument("--until-target", action="store_true", help="end a run when its target is reached")
    options.add_argument("--saving", action="store_true", help="ours writes a run folder and checkpoints as it goes")
    options.add_argument("--peer-option", action="append", default=[], help="after nanoGPT's config file")
    options.add_argument("--json", type=Path, default=Path("race.json"), help="where every evaluation is written")
    options.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if not chosen.text.is_file():
        raise SystemExit(f"--text {str(chosen.text)!r} is not a file")
    recipes = chosen.recipe or list(RECIPES)
    if chosen.child:
        run_recipe(recipes[0], chosen)
        return
    courses = [watch_ours(recipe, chosen) for recipe in recipes]
    if chosen.peer is not None:
        courses.append(watch_peer(chosen))
    show(courses, chosen.target)
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    record = {
        "target": chosen.target,
        "torch": torch.__version__,
        "device": device,
        "saving": chosen.saving,
        "runs": [{**course._asdict(), "seen": [one._asdict() for one in course.seen]} for course in courses],
    }
    chosen.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    CONSOLE.print(f"every evaluation is in {chosen.json}")


# ---------------------------------------------------------------- one of our runs, in a process of its own


class Reached(Exception):
    pass


def run_recipe(recipe: str, chosen: argparse.Namespace) -> None:
    """Train a recipe, and say each evaluation as one line of JSON."""
    try:
        # Nothing of the validation tenth is left out.
        overrides = [*chosen.set, "train.evaluate_tokens=none"]
        spec = make_spec(load_recipe(recipe), overrides, data=[str(chosen.text)], source=f"recipe {recipe}").absolute()
    except UserError as error:
        raise SystemExit(str(error)) from None
    if not isinstance(spec, LanguageModelSpec):
        raise SystemExit(f"{recipe} is not a language model")
    par = Parallel(device=pick_device(spec.train.device))
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / "run"
        job = LanguageModelJob.open(spec, Opening(path, par))
        model = job.build().to(par.device)
        job.evaluate = judged(job, par.device, chosen)  # type: ignore[method-assign]  # judged as the race is, not as the task is
        folder = RunFolder(path, identity={"run.toml": dumps(spec.model_dump(mode="json")), **job.identity()})
        say(event="start", parameters=sum(p.numel() for p in model.parameters()))
        with suppress(Reached):
            fit(model, job, spec.train, seed=spec.seed, par=par, folder=folder if chosen.saving else None)


def judged(job: LanguageModelJob, device: torch.device, chosen: argparse.Namespace) -> Callable[..., dict[str, float]]:
    """Both figures instead of the job's one, said as they come."""
    every, evaluations, busy, since = job.spec.train.evaluate_every, 0, 0.0, time.monotonic()
    carries, is_confirmed = job.spec.data.order != "random", False

    def figure(model: Any, fresh: int | None, lanes: int) -> float:
        tokenizer = job.corpus.tokenizer
        begin_id = tokenizer.begin_id(job.spec.data.begin)
        nats, count = measure(
            model, job.corpus.validation, end_id=tokenizer.end_id, begin_id=begin_id, lanes=lanes, fresh=fresh
        )
        return nats / count

    def both(model: Any) -> tuple[float, float | None]:
        return figure(model, WINDOW, 2 * LANES), figure(model, None, LANES) if carries else None

    def evaluate(model: Any, poll: Callable[[], None]) -> dict[str, float]:
        nonlocal evaluations, busy, since, is_confirmed
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        busy += time.monotonic() - since
        evaluations += 1
        step = min(evaluations * every, job.spec.train.steps)
        with autocast(job.spec.train, device):
            fresh, carried = both(model)
        say(event="seen", step=step, fresh=fresh, carried=carried, training_seconds=busy)
        if fresh <= chosen.target and not is_confirmed:
            is_confirmed = True
            fresh_again, carried_again = both(model)
            say(event="float32", float32_step=step, float32_fresh=fresh_again, float32_carried=carried_again)
            if chosen.until_target:
                raise Reached
        since = time.monotonic()
        # The loop keeps what is best by how the recipe learns: from no memory, or with it.
        return {"nats": fresh if carried is None else carried}

    return evaluate


def say(**record: Any) -> None:
    print(json.dumps(record), flush=True)


# ---------------------------------------------------------------- watching


def watch_ours(recipe: str, chosen: argparse.Namespace) -> Course:
    command = [sys.executable, str(Path(__file__).resolve()), "--child", "--recipe", recipe]
    command += ["--text", str(chosen.text.resolve()), "--target", str(chosen.target)]
    command += [word for setting in chosen.set for word in ("--set", setting)]
    command += [flag for flag in ("--until-target", "--saving") if getattr(chosen, flag[2:].replace("-", "_"))]
    notes: dict[str, Any] = {}

    def read(line: str, seconds: float) -> Seen | None:
        try:
            record = json.loads(line)
        except ValueError:
            return None
        if record.pop("event") == "seen":
            return Seen(seconds, **record)
        notes.update(record, **({"start_seconds": seconds} if "parameters" in record else {}))
        return None

    return watch(f"statewise {recipe}", command, read, notes, cwd=Path.cwd())


def watch_peer(chosen: argparse.Namespace) -> Course:
    def read(line: str, seconds: float) -> Seen | None:
        found = PEER_LINE.search(line)
        return Seen(seconds, int(found[1]), float(found[2])) if found else None

    with tempfile.TemporaryDirectory() as folder:
        copy = prepare_peer(chosen.peer, chosen.text, Path(folder))
        command = [sys.executable, "train.py", "config/train_shakespeare_char.py", *chosen.peer_option]
        enough = chosen.target if chosen.until_target else -math.inf
        return watch("nanoGPT train_shakespeare_char", command, read, {}, cwd=copy, enough=enough)


def watch(
    name: str,
    command: Sequence[str],
    read: Callable[[str, float], Seen | None],
    notes: dict[str, Any],
    *,
    cwd: Path,
    enough: float = -math.inf,
) -> Course:
    """Start it, stamp what it says with the time since then, and end it once it is good enough."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    root = str(Path(__file__).resolve().parents[1])
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))
    seen: list[Seen] = []
    other: list[str] = []
    is_enough = False
    CONSOLE.print(f"[bold]{name}[/bold]")
    began = time.monotonic()
    with subprocess.Popen(
        command, cwd=cwd, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            found = read(line, time.monotonic() - began)
            if found is None:
                other = [*other[-19:], line]
                continue
            seen.append(found)
            carried = "" if found.carried is None else f", carried {found.carried:.4f}"
            CONSOLE.print(
                f"  {found.seconds:7.2f} s  step {found.step}: fresh {found.fresh:.4f}{carried}", highlight=False
            )
            if found.fresh <= enough:
                process.kill()
                is_enough = True
                break
    if process.returncode and not is_enough:
        raise SystemExit(f"{' '.join(command)} ended with code {process.returncode}:\n{''.join(other)}")
    return Course(name, seen, time.monotonic() - began, notes)


def prepare_peer(checkout: Path, text: Path, folder: Path) -> Path:
    """A copy of the peer with the text in place, so that nothing is downloaded or left behind. Not timed."""
    if not (checkout / "config" / "train_shakespeare_char.py").is_file():
        raise SystemExit(f"--peer {str(checkout)!r} is not a checkout of nanoGPT")
    copy = folder / "peer"
    shutil.copytree(checkout, copy, ignore=shutil.ignore_patterns(".git"))
    shutil.copy(text, copy / "data" / "shakespeare_char" / "input.txt")
    (copy / "requests.py").write_text("")  # imported by its prepare.py for a download that is not needed here
    subprocess.run(
        [sys.executable, "data/shakespeare_char/prepare.py"],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": str(copy)},
        check=True,
        stdout=subprocess.DEVNULL,
    )
    (copy / "requests.py").unlink()  # whoever else imports it must find the real one
    return copy


def show(courses: Sequence[Course], target: float) -> None:
    table = Table(
        title=f"From the start of the process to {target} nats per character",
        title_justify="left",
        caption="fresh: windows of 256 from no memory. carried: the state goes along the text. Best of the whole run.",
        caption_justify="left",
    )
    for heading in HEADINGS:
        table.add_column(heading, justify="left" if heading == "run" else "right")
    for course in courses:
        fresh, carried = course.first(target), course.first(target, "carried")
        table.add_row(
            course.name,
            "not reached" if fresh is None else f"{fresh.seconds:.2f} s",
            "" if fresh is None else str(fresh.step),
            "" if course.best("carried") is None else "not reached" if carried is None else f"{carried.seconds:.2f} s",
            *("" if figure is None else f"{figure:.4f}" for figure in (course.best(), course.best("carried"))),
            "" if (ms := course.ms_per_step()) is None else f"{ms:.2f}",
            f"{course.whole_seconds:.1f} s",
        )
    CONSOLE.print(table)
    for course in courses:
        if course.notes:
            CONSOLE.print(f"{course.name}: {course.notes}", highlight=False)


if __name__ == "__main__":
    main()
