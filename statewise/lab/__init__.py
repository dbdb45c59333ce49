"""The lab: every model of the lineage, live, in one HTML file that opens from disk."""

from statewise.lab.bundle import bundle as bundle
from statewise.lab.bundle import lineage as lineage
from statewise.lab.notebook import Lab as Lab
from statewise.lab.notebook import frame as frame
from statewise.lab.notebook import show as show
from statewise.lab.onnxruntime import Foreign as Foreign
from statewise.lab.onnxruntime import foreign as foreign
from statewise.lab.page import page as page
