"""Pure functions on tensors, one folder an op: `naive.py` is the equation, faster files stand beside it."""

from statewise.kernels.choice import Choice as Choice
from statewise.kernels.choice import Implementation as Implementation
from statewise.kernels.choice import Wish as Wish
from statewise.kernels.choice import force as force
from statewise.kernels.choice import is_asked as is_asked
from statewise.kernels.choice import record as record
from statewise.kernels.cpu import threads_for as threads_for
from statewise.kernels.packed_sequence import Rows as Rows
from statewise.kernels.time_axis import beyond as beyond
from statewise.kernels.time_axis import extend as extend
from statewise.kernels.time_axis import is_autocast as is_autocast
from statewise.kernels.time_axis import no_autocast as no_autocast
from statewise.kernels.time_axis import past_end as past_end
from statewise.kernels.time_axis import reverse_rows as reverse_rows
from statewise.kernels.time_axis import wide as wide
