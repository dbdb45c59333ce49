"""One file per job: what turns a batch into a loss, a figure and a text."""

from statewise.tasks.dispatch import load as load
from statewise.tasks.language_model import Evaluation as Evaluation
from statewise.tasks.language_model import LanguageModelJob as LanguageModelJob
from statewise.tasks.language_model import LanguageModelRun as LanguageModelRun
from statewise.tasks.language_model import measure as measure
from statewise.tasks.launch import train as train
from statewise.tasks.proof import Finding as Finding
from statewise.tasks.proof import verify as verify
from statewise.tasks.run import Run as Run
from statewise.tasks.trained import Trained as Trained
