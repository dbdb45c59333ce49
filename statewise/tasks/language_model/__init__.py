"""Language modelling: predict the next token, and say how surprising a text was."""

from statewise.tasks.language_model.documents import Documents as Documents
from statewise.tasks.language_model.job import LanguageModelEvaluation as LanguageModelEvaluation
from statewise.tasks.language_model.job import LanguageModelJob as LanguageModelJob
from statewise.tasks.language_model.job import fresh_window as fresh_window
from statewise.tasks.language_model.job import measure as measure
from statewise.tasks.language_model.run import LanguageModelRun as LanguageModelRun
from statewise.tasks.language_model.specimens import TextSpecimens as TextSpecimens
from statewise.tasks.language_model.stationarity import token_stationarity as token_stationarity
