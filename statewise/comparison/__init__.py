"""Studies across models: the same budget, several seeds, one report."""

from statewise.comparison.comparison import Compared as Compared
from statewise.comparison.comparison import ComparedPart as ComparedPart
from statewise.comparison.comparison import compare as compare
from statewise.comparison.progress import make_board as make_board
from statewise.comparison.study import load_story as load_story
from statewise.comparison.study import study_names as study_names
