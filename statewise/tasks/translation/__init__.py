"""Translation: a whole source, then a target of any length."""

from statewise.tasks.translation.evaluation import TranslationEvaluation as TranslationEvaluation
from statewise.tasks.translation.job import TranslationJob as TranslationJob
from statewise.tasks.translation.run import Translation as Translation
from statewise.tasks.translation.run import TranslationRun as TranslationRun
