"""Imports point down the tree of ARCHITECTURE.md: the one rule of style that is enforced."""

import ast
import subprocess
import sys

import pytest
from package_source import PACKAGE, ROOT, imports, modules

LAYERS = (  # from the top; folders on one line do not import each other
    ("cli",),
    ("lab",),
    ("serving",),
    ("export",),
    ("comparison", "inspection", "interop"),
    ("tasks",),
    ("training", "decoding"),
    ("models", "data"),
    ("mixers", "encoders", "nn"),
    ("layers",),
    ("kernels",),
    ("core", "figures"),
    ("display",),
    ("disk",),
    ("specs",),
)
HEIGHT = {folder: -number for number, folders in enumerate(LAYERS) for folder in folders}
ALONE = ("cluster", "cpu", "runtime")  # they import nothing of the package, and anybody may import them
EXEMPT = {"statewise.__init__", "statewise.__main__", "statewise.hf", *(f"statewise.{name}" for name in ALONE)}
MAY_ASK_FOR_THE_VERSION = {
    "cli",
    "export",
    "interop",
    "serving",
    "tasks",
    "training",
}  # it is written into every folder


def offence(module: str, imported: str) -> str | None:
    """Why `module` may not import `imported`, or None."""
    target = imported.split(".")
    if target[0] != "statewise" or module in EXEMPT:
        return None
    folder = module.split(".")[1]
    if len(target) == 1 or target[1] not in HEIGHT:
        if len(target) > 1 and target[1] in ALONE:
            return None
        return None if folder in MAY_ASK_FOR_THE_VERSION else f"{folder} takes {imported} from the top of the package"
    if folder == target[1] or HEIGHT[folder] > HEIGHT[target[1]]:
        return None
    return f"{folder} may not import {target[1]}"


def test_every_folder_has_its_place() -> None:
    folders = {path.name for path in PACKAGE.iterdir() if path.is_dir() and any(path.rglob("*.py"))}
    assert folders <= HEIGHT.keys(), f"not in the tree of ARCHITECTURE.md: {sorted(folders - HEIGHT.keys())}"
    alone = {f"statewise.{path.stem}" for path in PACKAGE.glob("*.py")}
    assert alone == EXEMPT


def test_imports_point_down() -> None:
    offences = [
        f"{name}:{line}: {why}"
        for name, tree in modules().items()
        for line, imported in imports(tree, within=name)
        if (why := offence(name, imported))
    ]
    assert not offences, "\n".join(offences)


def around_surface(module: str, imported_from: str) -> bool:
    """Whether an import reaches into a module of another folder, past that folder's `__init__`."""
    target = imported_from.split(".")
    same_folder = len(target) < 3 or target[1] == module.partition(".")[2].partition(".")[0]
    return target[0] == "statewise" and not same_folder and not ROOT.joinpath(*target, "__init__.py").exists()


def test_folders_import_from_each_others_surface() -> None:
    offences = [
        f"{name}:{node.lineno}: {node.module}"
        for name, tree in modules().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module and around_surface(name, node.module)
    ]
    assert not offences, "import these from the folder's __init__:\n" + "\n".join(offences)


def test_an_import_around_a_surface_is_noticed() -> None:
    assert around_surface("statewise.tasks.run", "statewise.data.corpus")
    assert around_surface("statewise.mixers.lstm", "statewise.kernels.lstm.naive")
    assert not around_surface("statewise.mixers.lstm", "statewise.kernels.lstm")
    assert not around_surface("statewise.data.text", "statewise.data.corpus")


@pytest.mark.parametrize("name", ALONE)
def test_the_exempt_modules_stand_alone(name: str) -> None:
    module = f"statewise.{name}"
    assert not [used for _, used in imports(modules()[module], within=module) if "statewise" in used]


def test_the_runtime_needs_three_libraries() -> None:
    needed = {used.split(".")[0] for _, used in imports(modules()["statewise.runtime"], within="statewise.runtime")}
    assert needed - set(sys.stdlib_module_names) == {"numpy", "onnxruntime", "tokenizers"}


@pytest.mark.parametrize(
    ("module", "imported", "allowed"),
    [
        ("statewise.mixers.lstm", "statewise.kernels.lstm.lstm", True),
        ("statewise.kernels.lstm", "statewise.mixers.LSTM", False),
        ("statewise.layers.norm", "statewise.kernels.layer_norm.norm", True),
        ("statewise.kernels.layer_norm", "statewise.layers.make_norm", False),
        ("statewise.training.loop", "statewise.decoding.generate", False),
        ("statewise.training.loop", "statewise.training.folder", True),
        ("statewise.core.state", "statewise.__version__", False),
        ("statewise.cli", "statewise.__version__", True),
        ("statewise.tasks.train", "statewise", True),
        ("statewise.data.text", "statewise", False),
        ("statewise.specs.run", "statewise.core.State", False),
        ("statewise.specs.run", "pydantic.BaseModel", True),
    ],
)
def test_the_rule_itself(module: str, imported: str, allowed: bool) -> None:
    assert (offence(module, imported) is None) == allowed


def test_only_the_command_line_imports_lazily() -> None:
    """Elsewhere what a module needs of this package stands at its top, where a reader looks for it."""
    lazy = [
        f"{name}:{inner.lineno}"
        for name, tree in modules().items()
        if name not in EXEMPT and not name.startswith("statewise.cli")
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for inner in ast.walk(function)
        if isinstance(inner, ast.ImportFrom) and (inner.module or "").split(".")[0] == "statewise"
    ]
    assert not lazy, "\n".join(lazy)


def test_specs_never_import_torch() -> None:
    named = [name for name in modules() if name.startswith("statewise.specs")]
    assert named
    assert not [
        n for n in named for _, imported in imports(modules()[n], within=n) if imported.split(".")[0] == "torch"
    ]


@pytest.mark.parametrize("module", ["statewise", "statewise.specs", "statewise.cli"])
def test_light_modules_leave_torch_out(module: str) -> None:
    code = f"import sys, {module}; sys.exit(sorted({{'torch', 'numpy', 'tensorboard'}} & sys.modules.keys()) or None)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"importing {module} also imported {done.stderr}"


def test_the_runtime_leaves_torch_out() -> None:
    code = "import sys, statewise.runtime; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
