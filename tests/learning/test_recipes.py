"""Every shipped recipe learns: on the embedded text it soon knows more than how often each letter occurs.

The quick form makes each model small and gives it a few steps. `make learn` runs the recipes as they are, for a
quarter of their steps, and prints a table with a second baseline: pairs of letters, counted.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.table import Table

import statewise
from statewise.models import LINEAGE
from statewise.specs import LanguageModelSpec, load_recipe, make_spec, recipe_names
from statewise.specs.recipe import recipe_folder
from statewise.tasks.language_model import LanguageModelEvaluation

SHARE = 4  # of a recipe's steps, the long form takes one in so many
QUICK: dict[str, Any] = {
    "train.steps": 40,
    "train.warmup": 5,
    "train.batch": 8,
    "train.truncation": 32,
    "train.lr": 1e-2,
    "train.evaluate_tokens": 100,  # the whole held-out text is judged once, after training
    "data.held_out": 0.01,
}
# Where the token vectors and the head are all that learns.
SLOW_TO_BEGIN: dict[str, Any] = {"train.steps": 150, "train.lr": 3e-2}


def on_the_embedded_text(name: str) -> bool:
    """Language models, but for those that ask to be brought a text."""
    spec = make_spec(load_recipe(name))
    asks = "Bring the text" in (recipe_folder() / f"{name}.toml").read_text(encoding="utf-8")
    return isinstance(spec, LanguageModelSpec) and not spec.data.text and not asks


RECIPES = [name for name in recipe_names() if on_the_embedded_text(name)]
BY_DAY = {row.recipe for row in LINEAGE}


def spec_of(name: str) -> LanguageModelSpec:
    spec = make_spec(load_recipe(name))
    assert isinstance(spec, LanguageModelSpec)
    return spec


def learn(name: str, out: Path, settings: dict[str, Any]) -> LanguageModelEvaluation:
    trained = statewise.train(name, settings=settings, out=out)
    run: Any = statewise.load(trained.path)
    found: LanguageModelEvaluation = run.evaluate()
    return found


def test_every_model_is_among_them() -> None:
    assert {spec_of(name).model.kind for name in RECIPES if name in BY_DAY} == {row.name for row in LINEAGE}


@pytest.mark.parametrize(  # one of each model by day
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name not in BY_DAY else []) for name in RECIPES]
)
def test_a_few_steps_beat_letter_frequencies(name: str, tmp_path: Path) -> None:
    settings = dict(QUICK)
    if spec_of(name).model.learns == "gradient":
        settings["model.width"] = 32
    if name in ("basic_attention", "reservoir"):
        settings |= SLOW_TO_BEGIN
    found = learn(name, tmp_path / "run", settings)
    assert found.perplexity < 0.95 * found.unigram_perplexity
    assert found.unigram_perplexity < found.uniform_perplexity


# The long form: make learn.


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> float:
    """Perplexity of counted pairs: Markov of order 1, which a neighbour alone tells."""
    return learn("markov", tmp_path_factory.mktemp("pairs") / "run", {"model.order": 1}).perplexity


@pytest.fixture(scope="module")
def table(pairs: float) -> Iterator[Table]:
    made = Table(title=f"Every recipe, a {SHARE}th of its steps", title_justify="left")
    for heading in ("recipe", "steps", "perplexity", "unigram", "pairs", "bits per byte"):
        made.add_column(heading, justify="left" if heading == "recipe" else "right")
    yield made
    Console().print(made)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", RECIPES)
def test_a_share_of_its_steps_beats_letter_frequencies(name: str, tmp_path: Path, pairs: float, table: Table) -> None:
    spec = spec_of(name)
    steps = 1 if spec.model.learns == "counting" else -(-spec.train.steps // SHARE)
    settings = {"train.steps": steps, "train.warmup": spec.train.warmup // SHARE}
    found = learn(name, tmp_path / "run", settings)
    table.add_row(
        name,
        f"{steps:,}",
        f"{found.perplexity:.3f}",
        f"{found.unigram_perplexity:.3f}",
        f"{pairs:.3f}",
        f"{found.bits_per_byte:.3f}",
    )
    assert found.perplexity < 0.6 * found.unigram_perplexity
