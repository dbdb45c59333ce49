"""A trained run as graphs that run elsewhere: ONNX with its proof, or PyTorch's own exported programs."""

from statewise.export.folder import export_run as export_run
from statewise.export.folder import graphs_of as graphs_of
from statewise.export.graph import AFTER as AFTER
from statewise.export.graph import MARK as MARK
from statewise.export.graph import Graph as Graph
from statewise.export.graph import step_graph as step_graph
from statewise.export.proof import Proof as Proof
from statewise.export.proof import prove as prove
from statewise.export.proof import session as session
