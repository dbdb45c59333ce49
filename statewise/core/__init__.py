"""The contract every sequence model keeps, what can be done with a state, and the tap that looks inside."""

from statewise.core.machine import Composer as Composer
from statewise.core.machine import Encoder as Encoder
from statewise.core.machine import Machine as Machine
from statewise.core.machine import Mixer as Mixer
from statewise.core.machine import forward_with_resets as forward_with_resets
from statewise.core.machine import one_step as one_step
from statewise.core.machine import unroll as unroll
from statewise.core.observe import Lens as Lens
from statewise.core.observe import is_observed as is_observed
from statewise.core.observe import lens as lens
from statewise.core.observe import observe as observe
from statewise.core.observe import scope as scope
from statewise.core.state import State as State
from statewise.core.state import concat as concat
from statewise.core.state import detach as detach
from statewise.core.state import fork as fork
from statewise.core.state import hold as hold
from statewise.core.state import leaves as leaves
from statewise.core.state import load_state as load_state
from statewise.core.state import map_state as map_state
from statewise.core.state import reset_rows as reset_rows
from statewise.core.state import rows as rows
from statewise.core.state import save_state as save_state
from statewise.core.state import state_bytes as state_bytes
from statewise.core.state import to as to
from statewise.core.state import where as where
