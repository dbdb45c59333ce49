"""Whole models out of mixers: block, stack, language model; `build` turns a spec into a module."""

from statewise.models.build import build as build
from statewise.models.build import build_mixer as build_mixer
from statewise.models.language_model import LanguageModel as LanguageModel
from statewise.models.lineage import LINEAGE as LINEAGE
from statewise.models.lineage import Ancestor as Ancestor
from statewise.models.stack import Stack as Stack
from statewise.models.stack import StackState as StackState
