"""Read-only lenses on one model: how it uses its context, as figures and numbers."""

from statewise.display import make_progress as make_progress
from statewise.inspection.bptt import BlockGradients as BlockGradients
from statewise.inspection.bptt import block_gradients as block_gradients
from statewise.inspection.finding import Finding as Finding
from statewise.inspection.finding import letters_without_font as letters_without_font
from statewise.inspection.gradient import chosen_variance as chosen_variance
from statewise.inspection.gradient import gradient_norms as gradient_norms
from statewise.inspection.lenses import LENSES as LENSES
from statewise.inspection.lenses import Inspection as Inspection
from statewise.inspection.lenses import apply_lens as apply_lens
from statewise.inspection.lenses import find_lens as find_lens
from statewise.inspection.lenses import inspect as inspect
from statewise.inspection.subject import Subject as Subject
from statewise.inspection.subject import live_subject as live_subject
from statewise.inspection.subject import open_subject as open_subject
