"""Whoever is in the package is in the lineage, the recipes and the docs: an untested model is noticed here."""

import ast
import importlib.util
import inspect
import pkgutil
import re
from pathlib import Path
from types import ModuleType
from typing import TypeVar

import pytest
from package_source import ROOT

import statewise.encoders
import statewise.mixers
from statewise.core import Composer, Encoder, Mixer
from statewise.models import ENCODERS, LINEAGE, Markov, build_mixer
from statewise.models.encoding import Encoding
from statewise.models.lineage import Ancestor
from statewise.specs import load_published, load_recipe, make_spec, published_names, recipe_names
from statewise.specs.model import KINDS

T = TypeVar("T")

each_row = pytest.mark.parametrize("row", LINEAGE, ids=[row.name for row in LINEAGE])


def types_in(package: ModuleType, base: type[T]) -> set[type[T]]:
    """Every concrete class of this kind that a module of the package defines, exported or not."""
    found = set()
    for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        for value in vars(importlib.import_module(info.name)).values():
            own = isinstance(value, type) and issubclass(value, base) and value.__module__ == info.name
            if own and not inspect.isabstract(value):
                found.add(value)
    return found


def mixer_types() -> set[type[Mixer]]:
    return types_in(statewise.mixers, Mixer)


def with_an_oracle() -> set[str]:
    """Names of the package's classes that some test in tests/reference makes one of."""
    made = set()
    for path in (ROOT / "tests" / "reference").glob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                made.add(node.func.id)
    return made


def test_every_mixer_is_in_the_lineage() -> None:
    layered = [row for row in LINEAGE if row.spec.learns == "gradient"]
    listed = {type(build_mixer(spec)) for row in layered for spec in (row.spec, *row.variants)}
    assert mixer_types() == listed
    assert listed


def test_every_mixer_is_tried_by_the_laws() -> None:
    """Not that a list of names is long enough: that a machine of this type is on it."""
    location = importlib.util.spec_from_file_location("listed_machines", ROOT / "tests" / "laws" / "listed.py")
    assert location is not None
    assert location.loader is not None
    listed = importlib.util.module_from_spec(location)
    location.loader.exec_module(listed)
    tried = {type(part) for machine in listed.LISTED for part in machine.make().modules()}
    assert mixer_types() <= tried
    assert Markov in tried


def test_every_mixer_has_an_oracle() -> None:
    """Somebody else's word on it, in tests/reference."""
    missing = {mixer.__name__ for mixer in (*mixer_types(), Markov)} - with_an_oracle()
    assert not missing, f"no test in tests/reference makes one of {sorted(missing)}"
    assert "Perceptron" not in with_an_oracle(), "whoever is not there is not found"


def test_every_mixer_is_final_and_exported() -> None:
    for mixer in mixer_types():
        assert getattr(mixer, "__final__", False), f"{mixer.__name__} is not @final"
        assert getattr(statewise.mixers, mixer.__name__, None) is mixer


def test_every_kind_has_one_row_in_order_of_time() -> None:
    assert {row.name for row in LINEAGE} == set(KINDS)
    assert [row.year for row in LINEAGE] == sorted(row.year for row in LINEAGE)
    assert all(re.fullmatch(r"A\d+", row.id) for row in LINEAGE), "ids are rows of the mission"


@each_row
def test_a_row_says_all_it_should(row: Ancestor) -> None:
    assert row.spec.kind == row.name == row.recipe, "a bare model name is its default recipe"
    assert {variant.kind for variant in row.variants} <= {row.name}
    assert all([row.family, row.paper, row.state, row.fixed, row.cost])


@each_row
def test_a_row_has_a_recipe_that_trains_it(row: Ancestor) -> None:
    assert (ROOT / "recipes" / f"{row.recipe}.toml").is_file()
    assert make_spec(load_recipe(row.recipe)).model.kind == row.name


@each_row
def test_a_row_has_a_page(row: Ancestor) -> None:
    page = ROOT / "docs" / "models" / f"{row.name}.md"
    assert page.is_file(), f"{page.relative_to(ROOT)} is missing"
    assert page.read_text(encoding="utf-8").strip()


# Studies are of another shape: tests/unit/test_comparison_shipped.py has them.
RECIPES = [path for path in sorted((ROOT / "recipes").rglob("*.toml")) if path.parent.name != "studies"]


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_is_valid(path: Path) -> None:
    make_spec(load_recipe(str(path)), source=str(path))


@pytest.mark.parametrize("name", published_names())
def test_every_published_recipe_says_what_it_should_give(name: str) -> None:
    table, published = load_published(name)
    make_spec(table, [f"{setting}={file!r}" for setting, file in published.files.items()])
    assert published.files or "embedded" in table["data"]
    assert published.published is None or published.published.source


def test_recipes_are_found_by_name() -> None:
    assert recipe_names() == sorted(path.stem for path in (ROOT / "recipes").glob("*.toml"))


# The encoders stand beside the lineage.


def listed_encoders(encoding: Encoding) -> list[Encoder]:
    return [make(12) for make in (encoding.make, *encoding.variants.values())]


def encoder_types(encoding: Encoding) -> set[type]:
    """What a row lists: its encoders, and the composers they were given."""
    made = listed_encoders(encoding)
    composers = {type(part) for encoder in made for part in encoder.children() if isinstance(part, Composer)}
    return {type(encoder) for encoder in made} | composers


def test_every_encoder_and_composer_is_listed() -> None:
    """And so tried by tests/laws/test_encoder_laws.py, which reads the same list."""
    defined = {*types_in(statewise.encoders, Encoder), *types_in(statewise.encoders, Composer)}
    listed = set().union(*(encoder_types(encoding) for encoding in ENCODERS))
    assert defined == listed
    for made in defined:
        assert getattr(made, "__final__", False), f"{made.__name__} is not @final"
        assert getattr(statewise.encoders, made.__name__, None) is made


def test_encoders_stand_in_order_of_time() -> None:
    assert [encoding.year for encoding in ENCODERS] == sorted(encoding.year for encoding in ENCODERS)


@pytest.mark.parametrize("encoding", ENCODERS, ids=[encoding.name for encoding in ENCODERS])
def test_an_encoder_has_its_words_its_page_and_its_oracle(encoding: Encoding) -> None:
    assert all([encoding.id, encoding.paper, encoding.computes, encoding.fixed, encoding.cost])
    page = ROOT / "docs" / "models" / f"{encoding.name}.md"
    assert page.is_file(), f"{page.relative_to(ROOT)} is missing"
    for made in encoder_types(encoding):
        assert made.__name__ in page.read_text(encoding="utf-8"), f"{page.name} does not name {made.__name__}"
        assert made.__name__ in with_an_oracle(), f"no test in tests/reference makes a {made.__name__}"
