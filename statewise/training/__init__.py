"""Loops over any machine: truncation, optimiser, schedule, checkpoints. Names no architecture and no task."""

from statewise.training.counting import count as count
from statewise.training.folder import RunFolder as RunFolder
from statewise.training.loop import Outcome as Outcome
from statewise.training.loop import fit as fit
from statewise.training.loop import judge_of as judge_of
from statewise.training.parallel import Parallel as Parallel
from statewise.training.parallel import parallel as parallel
from statewise.training.problem import NonFinite as NonFinite
from statewise.training.problem import Stopped as Stopped
from statewise.training.progress import Display as Display
from statewise.training.progress import make_display as make_display
from statewise.training.signals import Signals as Signals
from statewise.training.task import Better as Better
from statewise.training.task import Task as Task
from statewise.training.task import Window as Window
