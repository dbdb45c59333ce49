"""Nothing that loads a user's files can run code; files stay of a size to read; names say what is inside."""

import ast
import re

import pytest
from package_source import PACKAGE, imports, modules

FORBIDDEN_MODULES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}
FORBIDDEN_CALLS = {"eval", "exec", "compile", "torch.load", "yaml.load", "yaml.unsafe_load", "numpy.load", "np.load"}
OWN_FILES = "statewise.models.source"  # runs a mixer file that a person named
UNTELLING = {"utils", "util", "helpers", "helper", "common", "misc"}


def dotted(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=name):
            return f"{dotted(value)}.{name}"
        case _:
            return "?"


def dangers(tree: ast.Module) -> list[str]:
    """What could run code from a file: unpicklers, and text made into code."""
    found = []
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                found += [f"import {a.name}" for a in names if a.name.split(".")[0] in FORBIDDEN_MODULES]
            case ast.ImportFrom(module=str(module), names=names):
                if module.split(".")[0] in FORBIDDEN_MODULES:
                    found.append(f"from {module}")
                found += [f"from {module} import {a.name}" for a in names if f"{module}.{a.name}" in FORBIDDEN_CALLS]
            case ast.Call(func=function, keywords=keywords):
                name = dotted(function)
                safe_numpy = name.endswith(".load") and any(
                    k.arg == "allow_pickle" and isinstance(k.value, ast.Constant) and k.value.value is False
                    for k in keywords
                )
                if name in FORBIDDEN_CALLS and not safe_numpy:
                    found.append(f"{name}(")
                if any(k.arg == "weights_only" for k in keywords):
                    found.append(f"{name}(weights_only=")
    return found


def test_nothing_unpickles_or_evaluates() -> None:
    found = [f"{name}: {danger}" for name, tree in modules().items() if name != OWN_FILES for danger in dangers(tree)]
    assert not found, "\n".join(found)


def test_a_mixer_file_is_executed_in_one_place() -> None:
    """And only what is passed in by a person leads there: nothing that reads a folder does."""
    assert dangers(modules()[OWN_FILES]) == ["exec(", "compile("]
    users = {
        name
        for name, tree in modules().items()
        for _, imported in imports(tree, within=name)
        if imported.startswith(f"{OWN_FILES}.run_source")
    }
    assert users == {"statewise.models.custom"}


def test_foreign_json_toml_and_arrays_are_read_in_one_place() -> None:
    """There they are bounded; elsewhere a nested or huge file would end in a traceback."""
    unbounded = {"json.loads", "json.load", "tomllib.loads", "tomllib.load", "np.load", "gzip.decompress"}
    own = {"statewise.specs.toml", "statewise.data.arrays", "statewise.data.embedded.digits"}
    own |= {"statewise.specs.extra"}  # what the installer wrote
    own |= {"statewise.runtime"}  # stands alone, and reads the folder that it lies in
    calls = {
        name: {dotted(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)} & unbounded
        for name, tree in modules().items()
    }
    assert {name for name, called in calls.items() if called} == own


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from pickle import loads",
        "from torch import load",
        "torch.load(path, weights_only=True)",
        "def f(text):\n    return eval(text)",
        "exec('x = 1')",
        "import yaml\nyaml.load(file)",
        "np.load(path)",
        "np.load(path, allow_pickle=True)",
    ],
)
def test_the_gate_itself_sees(source: str) -> None:
    assert dangers(ast.parse(source))


def test_the_gate_lets_the_harmless_through() -> None:
    harmless = "model.eval()\njson.load(f)\nre.compile('x')\nnp.load(p, allow_pickle=False)\n'torch.load(x)'"
    assert dangers(ast.parse(harmless)) == []


# What may write files by itself, and why that is safe; everything else asks `statewise.disk`.
OWN_WRITES = {
    "statewise.disk.write": "is the place",
    "statewise.training.checkpoint": "writes under the temporary name that `replacing` gave, and renames whole folders",
    "statewise.data.cache": "fills a new folder of the cache, which is renamed when it is sealed",
    "statewise.data.lines": "a temporary folder of its own",
    "statewise.data.memory_source": "a temporary folder of its own",
    "statewise.data.memory_object": "`rename` is that of pandas",
    "statewise.cli": "only the null device",
    "statewise.runtime": "stands alone: a saved state, where the user said",
}
WRITING_CALLS = {
    "write_text",
    "write_bytes",
    "save_file",
    "savefig",
    "rename",
    "touch",
    "NamedTemporaryFile",
    "mkstemp",
}
WRITING_CALLS |= {"symlink_to", "hardlink_to", "copyfile", "copy2", "copytree", "tofile"}


def file_writes(tree: ast.Module) -> list[str]:
    """Calls that make or change a file, but for those inside `with replacing(...)`."""
    safe = {
        id(inside)
        for node in ast.walk(tree)
        if isinstance(node, ast.With) and any("replacing" in ast.unparse(item.context_expr) for item in node.items)
        for inside in ast.walk(node)
    }
    return [
        f"{node.lineno}: {ast.unparse(node.func)}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and id(node) not in safe and writes_a_file(node)
    ]


def writes_a_file(call: ast.Call) -> bool:
    name = dotted(call.func)
    last = name.rpartition(".")[2]
    if name == "os.open":
        return any(flag in ast.unparse(call) for flag in ("O_WRONLY", "O_RDWR", "O_CREAT"))
    if last in ("open", "fdopen"):
        given = [*call.args, *(k.value for k in call.keywords if k.arg == "mode")]
        modes = [one.value for one in given if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        return last == "open" and any(re.fullmatch(r"[rbt]*[wax+][bt+]*", mode) for mode in modes)
    path_replace = last == "replace" and len(call.args) == 1 and not call.keywords and "." in name
    return last in WRITING_CALLS or name in ("os.replace", "os.truncate") or path_replace


def test_files_are_written_in_one_place() -> None:
    """Whole or not at all, and never through a link: see `statewise.disk`."""
    found = {name: writes for name, tree in modules().items() if (writes := file_writes(tree))}
    strangers = [f"{name}:{write}" for name in found.keys() - OWN_WRITES.keys() for write in found[name]]
    assert not strangers, "\n".join(strangers)
    assert found.keys() == OWN_WRITES.keys(), "an exception that is no longer needed"


@pytest.mark.parametrize(
    "source",
    [
        "path.write_text(text)",
        "open('x', 'w')",
        "path.open('ab')",
        "path.open(mode='w+b')",
        "os.open(path, os.O_WRONLY | os.O_CREAT)",
        "save_file(tensors, path)",
        "os.replace(a, b)",
        "partial.replace(path)",
    ],
)
def test_the_gate_sees_who_writes(source: str) -> None:
    assert file_writes(ast.parse(source))
    assert not file_writes(ast.parse(f"with replacing(path) as temporary:\n    {source}"))


def test_the_gate_lets_readers_through() -> None:
    harmless = "path.open('rb')\nopen('w.txt')\n'a'.replace('a', 'b')\nwhen.replace(tzinfo=UTC)\nreplace(spec)"
    assert not file_writes(ast.parse(harmless))


def test_files_stay_readable() -> None:
    lines = {str(path.relative_to(PACKAGE)): len(path.read_text().splitlines()) for path in PACKAGE.rglob("*.py")}
    del lines["runtime.py"]  # one file, because exported folders carry it
    assert not {name: count for name, count in lines.items() if count > 400}


def test_names_say_what_is_inside() -> None:
    assert not [name for name in modules() if UNTELLING & set(name.split("."))]


def launches(tree: ast.Module) -> list[ast.Call]:
    """Of Triton's kernels: a name, and behind it brackets that hold a grid."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [node for node in calls if isinstance(node.func, ast.Subscript) and isinstance(node.func.value, ast.Name)]


def test_no_launch_leaves_rounding_to_a_default() -> None:
    """Triton's will change, and results with it."""
    triton = {name: tree for name, tree in modules().items() if ".triton" in name or name.endswith("chunk_autograd")}
    every = [(name, node) for name, tree in triton.items() for node in launches(tree)]
    assert len(every) > 20, "launches look different now"
    silent = [
        f"{name}:{node.lineno}"
        for name, node in every
        if "**FUSED" not in [f"**{dotted(k.value)}" for k in node.keywords]
    ]
    assert not silent, "\n".join(silent)


def asks_in_forward(tree: ast.Module) -> list[int]:
    forwards = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == "forward"]
    inside = [node for forward in forwards for node in ast.walk(forward) if isinstance(node, ast.Attribute)]
    return [node.lineno for node in inside if node.attr == "needs_input_grad"]


def test_no_forward_asks_its_context_whether_gradients_are_wanted() -> None:
    """Of a parameter, `needs_input_grad` is true inside `no_grad`, too: whoever calls has to say it (`is_wanted`)."""
    found = [f"{name}:{line}" for name, tree in modules().items() for line in asks_in_forward(tree)]
    assert not found, "\n".join(found)
    assert asks_in_forward(ast.parse("class F:\n    def forward(ctx, x):\n        return any(ctx.needs_input_grad)"))


def flags_outside_markers(tree: ast.Module) -> list[str]:
    """Sentences that speak of flags (`--out`) to Python code, too. `option`, `setting` and `either` know both."""
    marked = {
        id(inside)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and dotted(node.func) == "either"
        for inside in ast.walk(node)
    }
    documentation = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and isinstance(node.body[0], ast.Expr)
    }
    # A flag alone is an argument of some program; with a blank beside it, it is part of a sentence.
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.search(r"\s--[a-z]|(^|[\s(])--[a-z][a-z-]*\s", node.value)
        and id(node) not in marked | documentation
    ]


def test_no_message_outside_the_command_line_speaks_of_flags() -> None:
    """Python users pass arguments."""
    found = [
        f"{name}: {text!r}"
        for name, tree in modules().items()
        if not name.startswith("statewise.cli")
        for text in flags_outside_markers(tree)
    ]
    assert not found, "\n".join(found)
    assert flags_outside_markers(ast.parse("raise UserError('x', fix='choose another --out')"))
    assert flags_outside_markers(ast.parse("raise UserError('x', fix=f'--set {name}=2')"))
    assert not flags_outside_markers(ast.parse("f\"choose {either('--out DIR', 'out=DIR')}\""))


# Where text may leave for a terminal: through these it is made safe.
WAYS_OUT = {"statewise.cli.output": {"print"}, "statewise.display.terminal": {"SafeConsole"}}
ALONE = {"statewise.runtime": {"print"}}  # its own command line, where this package is not installed
OWN_LOG = {"statewise.comparison.worker": {"print"}}  # into the trial's own file
IN_MEMORY = {"statewise.nn.swap": {"Console"}}


def prints(tree: ast.Module) -> set[str]:
    ways = {"print", "Console", "SafeConsole", "sys.stdout.write", "sys.stderr.write", "typer.echo", "typer.secho"}
    ways |= {"sys.stdout.buffer.write", "sys.stderr.buffer.write", "rich.print", "csv.writer"}
    return {dotted(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)} & ways


def test_text_leaves_for_a_terminal_or_a_spreadsheet_in_one_place() -> None:
    allowed = WAYS_OUT | ALONE | OWN_LOG | IN_MEMORY | {"statewise.figures.table": {"csv.writer"}}
    allowed |= {"statewise.tasks.forecasting.answer": {"csv.writer"}}  # lines that continue the user's own file
    allowed |= {"statewise.data.memory_numbers": {"csv.writer"}}  # read back at once
    found = {name: used for name, tree in modules().items() if (used := prints(tree))}
    assert found == allowed
    assert prints(ast.parse("def f():\n    sys.stderr.write(x)\n    Console().print(y)")) == {
        "sys.stderr.write",
        "Console",
    }
