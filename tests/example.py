"""A script of `examples/` as a module."""

import importlib.util
from pathlib import Path
from types import ModuleType

FOLDER = Path(__file__).parent.parent / "examples"


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"{name}_example", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
