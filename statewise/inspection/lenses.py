"""All lenses, and applying one or several of them to a model."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from statewise.display import Progress, SilentProgress
from statewise.inspection.attention.lens import LENS as ATTENTION
from statewise.inspection.bptt.lens import LENS as BPTT
from statewise.inspection.finding import Finding, page, write, written_files
from statewise.inspection.gates.lens import LENS as GATES
from statewise.inspection.gradient.lens import LENS as GRADIENT
from statewise.inspection.intervene.lens import LENS as INTERVENE
from statewise.inspection.lens import Lens, read_settings
from statewise.inspection.probes.lens import LENS as PROBES
from statewise.inspection.subject import NOTHING, Subject, open_subject
from statewise.inspection.surprise.lens import LENS as SURPRISE
from statewise.specs import UserError, nearest
from statewise.tasks import Run

LENSES: tuple[Lens, ...] = (SURPRISE, GRADIENT, ATTENTION, BPTT, GATES, INTERVENE, PROBES)
_BY_NAME = {lens.name: lens for lens in LENSES}


def find_lens(name: str) -> Lens:
    if name not in _BY_NAME:
        raise UserError(f"{name!r} is not a lens", fix=nearest(name, _BY_NAME))
    return _BY_NAME[name]


class Inspection(NamedTuple):
    """What the lenses of `sw.inspect` found about one model; a notebook shows it.

    >>> inspection = sw.inspect("runs/lstm", "surprise", text="the cat sat on the mat")
    >>> inspection
    Inspection('runs/lstm': surprise)
    """

    subject: str
    findings: tuple[Finding, ...]

    def finding(self, lens: str) -> Finding:
        """What one lens found: `sentences`, `figures`, `tables`, and the numbers behind them in `data`.

        >>> inspection = sw.inspect("runs/lstm", "surprise", text="the cat sat on the mat")
        >>> inspection.finding("surprise").title
        'Surprise'
        """
        return next(finding for finding in self.findings if finding.lens == find_lens(lens).name)

    def write(self, folder: "str | Path", *, static: bool = False, command: str | None = None) -> Path:
        """Write `inspect.html`, `inspect.md`, `inspect.json`, and every figure and table as a file.

        Returns the path of the page. `static` leaves out the interactive figures.

        >>> inspection = sw.inspect("runs/lstm", "surprise", text="the cat sat on the mat")
        >>> inspection.write("looked", static=True).name
        'inspect.html'
        """
        return write(self.subject, self.findings, Path(folder), static=static, command=command)

    def files(self, folder: "str | Path") -> list[Path]:
        """The files that `write` has put into the folder.

        >>> inspection = sw.inspect("runs/lstm", "surprise", text="the cat sat on the mat")
        >>> page = inspection.write("looked", static=True)
        >>> page in inspection.files("looked")
        True
        """
        return [path for path in written_files(self.findings, Path(folder)) if path.is_file()]

    def to_html(self, *, static: bool = False) -> str:
        """The whole page as a string.

        >>> "<html" in sw.inspect("runs/lstm", "surprise", text="the cat sat").to_html(static=True)
        True
        """
        return page(self.subject, self.findings, static=static)

    def __repr__(self) -> str:
        return f"Inspection({self.subject!r}: {', '.join(finding.lens for finding in self.findings)})"

    def _repr_html_(self) -> str:
        return "".join(finding._repr_html_() for finding in self.findings)


def apply_lens(
    what: "str | Path | Run | Subject | None",
    lens: str,
    *,
    text: "str | Path | None" = None,
    data: "str | Path | None" = None,
    progress: Progress | None = None,
    **settings: Any,
) -> Finding:
    """Apply one lens. `what`: a run folder, an opened run or a subject; None where the lens makes its own models.

    `text` is a file or the text itself, `data` a file in the format that the run learned from; by default what
    training held out is read.
    """
    chosen = find_lens(lens)
    read = read_settings(chosen.settings, settings, lens=lens)
    if what is None and chosen.needs_run:
        raise UserError(f"the lens {lens!r} needs a run, and none was named", fix="name a trained folder")
    progress = progress or SilentProgress()
    with progress.busy("opening"):
        subject = NOTHING if what is None else open_subject(what, text=text, data=data)
    with progress.busy(chosen.name):
        return chosen.apply(subject, read, progress)


def inspect(
    what: "str | Path | Run | Subject | None",
    lenses: "str | Sequence[str] | None" = None,
    *,
    text: "str | Path | None" = None,
    data: "str | Path | None" = None,
    progress: Progress | None = None,
    **settings: Any,
) -> Inspection:
    """Look inside a model with one lens, several, or (by default) every quick one.

    `what` is a run folder or an opened run; `text` (a file or the text itself) or `data` (a file in the format of the
    training data) is what the model reads meanwhile. Settings are those of a single lens; of several, by their names:
    `gradient={"window": 16}`. Returns figures, tables and sentences that a notebook shows.

    >>> inspection = sw.inspect("runs/lstm", "surprise", text="the cat sat on the mat")
    >>> inspection.finding("surprise").data["tokens"]
    22
    """
    if isinstance(lenses, str):
        finding = apply_lens(what, lenses, text=text, data=data, progress=progress, **settings)
        return Inspection(finding.subject, (finding,))
    if what is None:
        raise UserError("neither a run nor a lens was named", fix="name a trained folder")
    progress = progress or SilentProgress()
    with progress.busy("opening"):
        subject = open_subject(what, text=text, data=data)
    chosen = [find_lens(name) for name in lenses] if lenses is not None else [lens for lens in LENSES if lens.quick]
    of_each = {chosen[0].name: settings} if len(chosen) == 1 else _of_each(settings, chosen)
    given = {lens.name: read_settings(lens.settings, of_each.get(lens.name, {}), lens=lens.name) for lens in chosen}
    findings, refused = [], []
    for lens in chosen:
        try:
            with progress.busy(lens.name):
                findings.append(lens.apply(subject, given[lens.name], progress))
        except UserError as error:
            if lenses is not None:  # it was asked for by name
                raise
            refused.append(error)
            findings.append(
                Finding(lens.name, lens.name.capitalize(), subject.name, (f"Not inspected: {error.what}.",))
            )
    if len(refused) == len(chosen):
        raise refused[0]
    return Inspection(subject.name, tuple(findings))


def _of_each(settings: Mapping[str, Any], chosen: Sequence[Lens]) -> dict[str, dict[str, Any]]:
    """Settings of several lenses: `gradient={"window": 16}`, or `gradient.window` as a key."""
    known = [lens.name for lens in chosen]
    by_lens: dict[str, dict[str, Any]] = {}
    for key, value in settings.items():
        lens, _, name = key.partition(".")
        if not name and not isinstance(value, Mapping):
            raise UserError(
                f"{key!r} is a setting of one lens, and {len(known)} were named",
                fix=f"name the lens, or say whose it is: {known[0]}.{key}",
            )
        if lens not in known:
            raise UserError(f"{key!r} is no setting of {', '.join(known)}", fix=nearest(lens, known))
        by_lens.setdefault(lens, {}).update({name: value} if name else value)
    return by_lens
