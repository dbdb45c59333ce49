"""Dependencies are chosen: few, listed, used, pinned, and the optional ones are asked for by name."""

import importlib
import json
import re
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from package_source import ROOT, imports, modules
from packaging.requirements import Requirement

from statewise.specs import UserError, extra, install_command, optional

MOST = 50  # distributions beside torch's own
# Who imports what a default installation does not have, each after asking whether it is there.
OPTIONAL = {
    "httptools": "statewise.serving.http",
    "jinja2": "statewise.serving.template",
    "lm_eval": "statewise.interop.lm_eval",
    "matplotlib": "statewise.figures",
    "mlflow": "statewise.training.trackers",
    "onnxruntime": "statewise.runtime",
    "pyarrow": "statewise.data.hub",
    "sklearn": "statewise.interop.sklearn",
    "starlette": "statewise.serving.http",
    "transformers": "statewise.hf",
    "triton": "statewise.kernels",
    "tensorboard": "statewise.training.journal",
    "trackio": "statewise.training.trackers",
    "uvicorn": "statewise.serving.http",
    "uvloop": "statewise.serving.http",
    "wandb": "statewise.training.trackers",
    "zstandard": "statewise.data.compressed",
}


@pytest.fixture(scope="module")
def listed() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        yield importlib.import_module("dependencies")


def names(requirements: list[str]) -> set[str]:
    return {Requirement(text).name for text in requirements}


def test_an_installation_stays_small(listed: Any) -> None:
    core, _ = listed.requirements()
    beside = listed.beside_torch(core)
    assert None not in beside.values()
    assert "torch" not in beside
    assert {"numpy", "huggingface-hub"} < set(beside), "what is required in turn counts"
    assert len(beside) <= MOST, sorted(beside)


def test_what_a_requirement_needs_is_followed_through_extras_and_markers(
    listed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = {
        "a": ["b[more]>=1", "never; python_version < '3'"],
        "b": ["c", "d; extra == 'more'", "e; extra == 'other'"],
        "c": ["a"],
        "d": [],
    }

    class Made:
        def __init__(self, name: str) -> None:
            if name not in made:
                raise metadata.PackageNotFoundError(name)
            self.requires = made[name]

    monkeypatch.setattr(listed.metadata, "distribution", Made)
    assert set(listed.closure(["a"])) == {"a", "b", "c", "d"}
    assert listed.closure(["missing"]) == {"missing": None}


def test_every_core_dependency_is_imported_and_nothing_else_is(listed: Any) -> None:
    core, _ = listed.requirements()
    found: dict[str, set[str]] = {}
    for name, tree in modules().items():
        for _, imported in imports(tree, within=name):
            found.setdefault(imported.split(".")[0], set()).add(name)
    foreign = set(found) - set(sys.stdlib_module_names) - {"statewise", "__future__"}
    assert names(core) <= foreign
    for library in foreign - names(core) - {"pydantic_core"}:  # which is pydantic's own
        assert all(who.startswith(OPTIONAL.get(library, "nobody")) for who in found[library]), (library, found[library])


def test_every_dependency_is_on_its_page(listed: Any) -> None:
    core, extras = listed.requirements()
    page = (ROOT / "docs/dependencies.md").read_text(encoding="utf-8")
    for name in names(core):
        assert f"\n| {name} |" in page
    for extra_name, needs in extras.items():
        for name in names(needs):
            assert f"\n| `{extra_name}` | {name} |" in page


def pinned(name: str) -> list[tuple[str, str]]:
    return re.findall(r"^([\w.-]+)==([^\s;]+)", (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE)


def test_all_that_the_two_commands_install_is_pinned(listed: Any) -> None:
    """With what is required in turn, on this platform as on any other, and the tools of the build."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    groups = {*names(project["optional-dependencies"]["dev"])} - {"statewise"}
    core, extras = listed.requirements()
    wanted = listed.closure([*core, *groups, *(one for needs in extras.values() for one in needs)])
    pins = {name for name, _ in pinned("constraints.txt")}
    assert wanted.keys() <= pins, sorted(wanted.keys() - pins)
    assert {"hatchling", "editables", "nvidia-cudnn-cu13", "triton"} <= pins


def test_the_lock_has_the_same_pins_and_a_hash_for_each() -> None:
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    assert pinned("requirements.lock") == pinned("constraints.txt")
    entries = re.split(r"\n(?=\w)", lock)[1:]
    assert len(entries) == len(pinned("constraints.txt"))
    assert all("--hash=sha256:" in entry for entry in entries)
    for text in (lock, (ROOT / "constraints.txt").read_text(encoding="utf-8")):
        assert "//" not in text, "where it came from is nobody's business"


def test_every_pin_has_a_line_among_the_licences() -> None:
    page = (ROOT / "docs/licences.md").read_text(encoding="utf-8")
    assert not [name for name, _ in pinned("constraints.txt") if f"\n| {name} |" not in page]


# ------------------------------------------------------------------ what is optional


def test_a_missing_library_is_named_with_a_command_that_works_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    with pytest.raises(UserError, match="pictures need the library no_such_library, which is not installed") as caught:
        optional("no_such_library.inside", extra="plots", needed_by="pictures")
    assert caught.value.fix == install_command("plots")
    assert caught.value.fix.endswith("install -e '.[plots]'")
    assert optional("json.decoder", extra="plots", needed_by="pictures") is json.decoder


def test_what_a_library_lacks_is_not_taken_for_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "half_installed.py").write_text("import no_such_library\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ModuleNotFoundError, match="no_such_library"):
        optional("half_installed", extra="plots", needed_by="pictures")


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        (None, "'statewise[hub]'"),
        ({"url": "https://example.org/statewise.whl", "archive_info": {}}, "'statewise[hub]'"),
        ({"url": "file:///home/me/state%20wise", "dir_info": {}}, "'/home/me/state wise[hub]'"),
    ],
)
def test_the_command_depends_on_where_it_was_installed_from(
    origin: dict[str, Any] | None, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Installed:
        def read_text(self, name: str) -> str | None:
            assert name == "direct_url.json"
            return None if origin is None else json.dumps(origin)

    monkeypatch.setattr(extra, "__file__", str(tmp_path / "site-packages/statewise/specs/extra.py"))
    monkeypatch.setattr(extra.metadata, "distribution", lambda name: Installed())
    assert install_command("hub").endswith(f" install {expected}")


def test_the_command_names_the_interpreter_that_lacks_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pip = tmp_path / "bin/pip"
    pip.parent.mkdir()
    pip.write_text("#!/bin/sh\n")
    pip.chmod(0o755)
    monkeypatch.setenv("PATH", str(pip.parent))
    assert install_command("hub").startswith(f"{sys.executable} -m pip install ")
    monkeypatch.setattr(sys, "executable", str(pip.with_name("python")))
    assert install_command("hub").startswith("pip install ")
