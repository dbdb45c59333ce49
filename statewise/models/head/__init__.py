"""From features to a distribution: over tokens, over bits, over real values."""

from statewise.models.head.bernoulli import BernoulliHead as BernoulliHead
from statewise.models.head.categorical import CategoricalHead as CategoricalHead
from statewise.models.head.contract import Head as Head
from statewise.models.head.contract import RealHead as RealHead
from statewise.models.head.gaussian import Gaussian as Gaussian
from statewise.models.head.gaussian import GaussianHead as GaussianHead
from statewise.models.head.make import RealHeadKind as RealHeadKind
from statewise.models.head.make import make_real_head as make_real_head
from statewise.models.head.point import PointHead as PointHead
from statewise.models.head.quantile import QuantileHead as QuantileHead
from statewise.models.head.student import Student as Student
from statewise.models.head.student import StudentHead as StudentHead
