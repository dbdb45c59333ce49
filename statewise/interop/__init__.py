"""Models of other libraries as runs, and runs as models of other libraries.

The modules `sklearn` and `lm_eval` are imported by name: each needs the library it is called after. `statewise.hf`
registers all models in `transformers`.
"""

from statewise.interop.gguf import export_gguf as export_gguf
from statewise.interop.hugging_face import export_hugging_face as export_hugging_face
from statewise.interop.pretrained import from_pretrained as from_pretrained
