"""Whoever is in the package is in the lineage, the recipes and the docs: an untested model is noticed here."""

import importlib
import pkgutil
import re
import tomllib
from pathlib import Path

import pytest
from package_source import ROOT

import statewise.encoders
import statewise.mixers
from statewise.core import Encoder, Mixer
from statewise.models import ENCODERS, LINEAGE, build_mixer
from statewise.models.encoding import Encoding
from statewise.models.lineage import Ancestor
from statewise.specs import load_recipe, make_spec, recipe_names
from statewise.specs.model import KINDS

each_row = pytest.mark.parametrize("row", LINEAGE, ids=[row.name for row in LINEAGE])


def mixer_types() -> set[type[Mixer]]:
    """Every concrete mixer that a module of statewise.mixers defines, exported or not."""
    found = set()
    for info in pkgutil.walk_packages(statewise.mixers.__path__, "statewise.mixers."):
        for value in vars(importlib.import_module(info.name)).values():
            if isinstance(value, type) and issubclass(value, Mixer) and value.__module__ == info.name:
                found.add(value)
    return found


def test_every_mixer_is_in_the_lineage() -> None:
    layered = [row for row in LINEAGE if row.spec.learns == "gradient"]
    listed = {type(build_mixer(spec)) for row in layered for spec in (row.spec, *row.variants)}
    assert mixer_types() == listed
    assert listed


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


@pytest.mark.parametrize("path", sorted((ROOT / "recipes").rglob("*.toml")), ids=lambda path: path.stem)
def test_every_recipe_is_valid(path: Path) -> None:
    make_spec(tomllib.loads(path.read_text(encoding="utf-8")), source=str(path))


def test_recipes_are_found_by_name() -> None:
    assert recipe_names() == sorted(path.stem for path in (ROOT / "recipes").glob("*.toml"))


# The encoders stand beside the lineage.


def test_listed_encoders_are_encoders_in_order_of_time() -> None:
    for encoding in ENCODERS:
        made = type(encoding.make())
        assert issubclass(made, Encoder)
        assert getattr(statewise.encoders, made.__name__, None) is made
    assert [encoding.year for encoding in ENCODERS] == sorted(encoding.year for encoding in ENCODERS)


@pytest.mark.parametrize("encoding", ENCODERS, ids=[encoding.name for encoding in ENCODERS])
def test_an_encoder_has_its_words_its_page_and_its_test(encoding: Encoding) -> None:
    assert all([encoding.id, encoding.paper, encoding.computes, encoding.fixed, encoding.cost])
    assert (ROOT / "docs" / "models" / f"{encoding.name}.md").is_file()
    assert (ROOT / "tests" / "reference" / f"test_{encoding.name}.py").is_file()
