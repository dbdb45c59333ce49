"""What a training would take, said before it begins."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from statewise import training
from statewise.core import Mixer
from statewise.data import Data, file_names, memory_file, stored_in
from statewise.models import AnyMixer
from statewise.specs import AnyRunSpec, UserError, as_overrides, make_spec
from statewise.tasks.dispatch import open_job
from statewise.tasks.job import Opening
from statewise.tasks.launch import asked_for


def plan(
    recipe: "str | AnyRunSpec | type[Mixer[Any]]" = "lstm",
    *,
    mixer: AnyMixer | Sequence[AnyMixer] | None = None,
    settings: Mapping[str, Any] | Sequence[str] = (),
    data: Data | None = None,
    display: training.Display | None = None,
) -> training.Plan:
    """How many bytes and seconds `train` with these arguments takes, by its first steps. No run is made.

    >>> made = sw.plan("gru", data="text.txt", settings={"train.batch": 16})
    >>> made.held < made.peak
    True
    """
    display, paths = display or training.make_display(quiet=True), None if data is None else file_names(data)
    table, source, mixers = asked_for(recipe, mixer)
    in_memory = data is not None and paths is None
    overrides = as_overrides(settings)
    spec = make_spec(table, overrides, data=[""] if in_memory else paths, source=source, mixers=mixers).absolute()
    with TemporaryDirectory() as name, training.parallel(training.pick_device(spec.train.device)) as par:
        folder, made = Path(name) / "run", memory_file(spec, data, training=True) if in_memory else None
        spec = spec if made is None else made.run_spec(spec, folder)
        with stored_in(made, folder, leads=True):
            job = open_job(spec, Opening(folder, par))
            spec = job.spec
            if spec.learns != "gradient":
                raise UserError(f"{spec.name} counts its data once: there are no steps to plan")
            training.refuse_what_does_not_fit(job.num_parameters(), spec.train, par.device)
            display.say(job.headline())
            return training.plan(job.build().to(par.device), job, spec.train, seed=spec.seed, par=par)
