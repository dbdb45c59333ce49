"""Numbers, text and tables for people: rounded, readable, and unable to control a terminal."""

from statewise.display.letter import alone as alone
from statewise.display.letter import clusters as clusters
from statewise.display.letter import columns as columns
from statewise.display.letter import safe as safe
from statewise.display.letter import visible as visible
from statewise.display.letter import whole_letters as whole_letters
from statewise.display.number import NONE as NONE
from statewise.display.number import Format as Format
from statewise.display.number import count as count
from statewise.display.number import duration as duration
from statewise.display.number import plain as plain
from statewise.display.number import rough as rough
from statewise.display.number import share as share
from statewise.display.number import size as size
from statewise.display.number import whole as whole
from statewise.display.number import with_interval as with_interval
from statewise.display.progress import Progress as Progress
from statewise.display.progress import ShownProgress as ShownProgress
from statewise.display.progress import SilentProgress as SilentProgress
from statewise.display.progress import Status as Status
from statewise.display.progress import make_amounts as make_amounts
from statewise.display.progress import make_progress as make_progress
from statewise.display.progress import ticking as ticking
from statewise.display.progress import time_left as time_left
from statewise.display.terminal import make_console as make_console
