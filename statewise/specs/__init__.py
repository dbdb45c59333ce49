"""What a run is, as frozen data. Nothing here imports torch, so help and validation stay instant."""

from statewise.specs.data import DataSpec as DataSpec
from statewise.specs.error import UserError as UserError
from statewise.specs.error import nearest as nearest
from statewise.specs.model import ModelSpec as ModelSpec
from statewise.specs.recipe import load_recipe as load_recipe
from statewise.specs.recipe import recipe_names as recipe_names
from statewise.specs.recurrent import ElmanSpec as ElmanSpec
from statewise.specs.recurrent import GRUSpec as GRUSpec
from statewise.specs.recurrent import LSTMSpec as LSTMSpec
from statewise.specs.run import RunSpec as RunSpec
from statewise.specs.run import make_spec as make_spec
from statewise.specs.train import TrainSpec as TrainSpec
from statewise.specs.truncation import FixedTruncation as FixedTruncation
from statewise.specs.truncation import FullTruncation as FullTruncation
from statewise.specs.truncation import RandomTruncation as RandomTruncation
from statewise.specs.truncation import TruncationSpec as TruncationSpec
from statewise.specs.truncation import UnbiasedTruncation as UnbiasedTruncation
