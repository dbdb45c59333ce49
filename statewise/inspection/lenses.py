"""Every lens there is, in the order of a page."""

from statewise.inspection.attention.lens import LENS as ATTENTION
from statewise.inspection.bptt.lens import LENS as BPTT
from statewise.inspection.gates.lens import LENS as GATES
from statewise.inspection.gradient.lens import LENS as GRADIENT
from statewise.inspection.intervene.lens import LENS as INTERVENE
from statewise.inspection.lens import Lens
from statewise.inspection.probes.lens import LENS as PROBES
from statewise.inspection.subject import Subject
from statewise.inspection.surprise.lens import LENS as SURPRISE
from statewise.specs import UserError, nearest

LENSES: tuple[Lens, ...] = (SURPRISE, GRADIENT, ATTENTION, BPTT, GATES, INTERVENE, PROBES)
_BY_NAME = {lens.name: lens for lens in LENSES}


def find_lens(name: str) -> Lens:
    if name not in _BY_NAME:
        raise UserError(f"{name!r} is not a lens", fix=nearest(name, _BY_NAME))
    return _BY_NAME[name]


def refuse_other_task(lens: Lens, subject: Subject) -> None:
    """What this lens cannot look at, and which others can."""
    if not lens.tasks or subject.task in lens.tasks:
        return
    able = [one.name for one in LENSES if subject.task in one.tasks]
    why = f": {lens.why}" if lens.why else ""
    raise UserError(
        f"the lens {lens.name!r} says nothing of {subject.task or 'no'} runs{why}",
        fix=f"look at {subject.name} through {', '.join(able)}" if able else f"it is for {', '.join(lens.tasks)} runs",
    )
