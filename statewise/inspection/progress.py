"""How far a lens is: the progress of any long loop, under the names that lenses use."""

from statewise.display import Progress as Progress
from statewise.display import ShownProgress as Shown
from statewise.display import SilentProgress as Silent
from statewise.display import make_progress as make_progress
from statewise.display import ticking as ticking

__all__ = ["Progress", "Shown", "Silent", "make_progress", "ticking"]
