"""statewise: every sequence model is a state machine, `y, state = model(x, state)`.

    import statewise as sw

    trained = sw.train("lstm", data="my.txt", settings={"train.steps": 500})
    run = sw.load(trained.path)
    print(run.generate("Once upon a time"))

Names and packages (`sw.mixers.Mamba2`) are imported when they are first used, so `import statewise` itself is light.
"""

import importlib
from typing import TYPE_CHECKING, Any

from statewise.cpu import cap_onednn_where_amx_may_fail

__version__ = "0.1.0"

cap_onednn_where_amx_may_fail()

if TYPE_CHECKING:
    from statewise import core as core
    from statewise import data as data
    from statewise import decoding as decoding
    from statewise import encoders as encoders
    from statewise import export as export
    from statewise import inspection as inspection
    from statewise import interop as interop
    from statewise import kernels as kernels
    from statewise import lab as lab
    from statewise import layers as layers
    from statewise import mixers as mixers
    from statewise import models as models
    from statewise import nn as nn
    from statewise import serving as serving
    from statewise import specs as specs
    from statewise import tasks as tasks
    from statewise import training as training
    from statewise.comparison import compare as compare
    from statewise.core import lens as lens
    from statewise.core import load_state as load_state
    from statewise.core import map_state as map_state
    from statewise.core import observe as observe
    from statewise.core import save_state as save_state
    from statewise.core import state_bytes as state_bytes
    from statewise.decoding import Sampling as Sampling
    from statewise.inspection import inspect as inspect
    from statewise.interop import export_hugging_face as export_hugging_face
    from statewise.interop import from_pretrained as from_pretrained
    from statewise.mixers import GRU as GRU
    from statewise.mixers import LSTM as LSTM
    from statewise.mixers import Elman as Elman
    from statewise.models import LINEAGE as LINEAGE
    from statewise.models import build as build
    from statewise.specs import UserError as UserError
    from statewise.tasks import Run as Run
    from statewise.tasks import load as load
    from statewise.tasks import plan as plan
    from statewise.tasks import train as train
    from statewise.tasks import verify as verify

_HOME = {
    "comparison": ("compare",),
    "core": ("lens", "load_state", "map_state", "observe", "save_state", "state_bytes"),
    "decoding": ("Sampling",),
    "inspection": ("inspect",),
    "interop": ("export_hugging_face", "from_pretrained"),
    "mixers": ("GRU", "LSTM", "Elman"),
    "models": ("LINEAGE", "build"),
    "specs": ("UserError",),
    "tasks": ("Run", "load", "plan", "train", "verify"),
}
_PACKAGES = (
    "core",
    "data",
    "decoding",
    "encoders",
    "export",
    "inspection",
    "interop",
    "kernels",
    "lab",
    "layers",
    "mixers",
    "models",
    "nn",
    "serving",
    "specs",
    "tasks",
    "training",
)
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}
__all__ = [*_MODULE_OF]


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return importlib.import_module(f"statewise.{name}")
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'statewise' has no attribute {name!r}")
    return getattr(importlib.import_module(f"statewise.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*_MODULE_OF, *_PACKAGES, "__version__"])
