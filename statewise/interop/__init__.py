"""Models of other libraries as runs, and runs as models of other libraries."""

from statewise.interop.hugging_face import export_hugging_face as export_hugging_face
from statewise.interop.pretrained import from_pretrained as from_pretrained
