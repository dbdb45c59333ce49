"""Sentences of lenses say what their numbers say, and no more."""

import math

import pytest
import torch

from statewise.figures.figure import Series
from statewise.figures.table import Cell, Column, Table
from statewise.inspection import apply_lens, live_subject
from statewise.inspection.attention.lens import AttentionSettings
from statewise.inspection.attention.weights import CrossWeights
from statewise.inspection.finding import Finding, Named
from statewise.inspection.gradient.context import Gain, context_figure, length_words, longest_context
from statewise.inspection.gradient.flow import Decay, Sides
from statewise.inspection.gradient.lens import _TOKENS
from statewise.inspection.gradient.picture import decays
from statewise.inspection.intervene.address import Address, Intervention
from statewise.inspection.intervene.picture import against_none, difference, with_half, worst_part
from statewise.inspection.lenses import LENSES
from statewise.inspection.probes.lens import _furthest, _worth
from statewise.kernels import student_t
from statewise.models import build
from statewise.specs import TransformerSpec

# Interventions.


def test_a_mean_over_moments_has_its_interval() -> None:
    added_P = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
    t = float(student_t.quantile(torch.tensor(0.975, dtype=torch.float64), torch.tensor(3.0, dtype=torch.float64)))
    half = t * float(added_P.std()) / 2
    assert with_half(added_P) == f"0.25 ± {half:.2f}"
    assert difference(added_P, "nats") == f"0.25 ± {half:.2f} nats more"
    assert difference(-added_P, "nats") == f"0.25 ± {half:.2f} nats less"


@pytest.mark.parametrize(
    ("other", "none", "said"),
    [
        ([1.1, 1.2, 1.1, 1.2], [0.1, 0.2, 0.1, 0.2], "worse than none"),
        ([0.1, 0.2, 0.1, 0.2], [1.1, 1.2, 1.1, 1.2], "better than none"),
        ([0.0, 1.0, 0.0, 1.1], [1.0, 0.0, 1.0, 0.0], "not significantly better or worse than none"),
        ([0.3], [0.2], "not significantly better or worse than none"),  # one moment says nothing of chance
        # Each differs widely from moment to moment, and one is always a little dearer: pairs tell that.
        ([5.1, 0.1, 9.1, 2.1], [5.0, 0.0, 9.0, 2.0], "worse than none"),
    ],
)
def test_another_memory_against_none(other: list[float], none: list[float], said: str) -> None:
    assert against_none(torch.tensor(other).double(), torch.tensor(none).double()) == said


def test_the_part_that_is_missed_most() -> None:
    one, other = Intervention(Address("a"), "zero"), Intervention(Address("b"), "zero")
    more_P, less_P = torch.tensor([0.3, 0.5]).double(), torch.tensor([-0.3, -0.5]).double()
    assert worst_part({one: less_P}, "it", "nats")[1].startswith("a set to 0 costs -0.4")
    assert worst_part({one: less_P, other: more_P}, "it", "nats") == (
        other,
        f"Of 2 parts of it, each set to 0, b costs most: {with_half(more_P)} nats",
    )
    assert (
        worst_part({one: less_P, other: less_P}, "it", "nats")[1]
        == "None of 2 parts of it, each set to 0, increases the loss"
    )


# Context and distance.


def gain_of(nats: tuple[float, ...], targets: int = 9) -> Gain:
    return Gain(tuple(2**power for power in range(len(nats))), nats, (0.0,) * len(nats), targets)


def test_context_that_does_harm_is_drawn_as_it_is() -> None:
    """A shorter context that is better than the longest lies below 0, and is not called worth something."""
    figure = context_figure(gain_of((2.0, 0.9, 1.0)), 0.01)
    assert figure.series[0].y == pytest.approx((1.0, -0.1, 0.0))
    harmful = context_figure(gain_of((1.0, 1.1, 1.5)), 0.01)
    assert harmful.finding == "With 4 tokens of context the loss is 0.5000 nats higher than with 1: no benefit."


def test_one_token_is_called_one_and_a_single_target_is_confessed() -> None:
    assert length_words(1, 9) == "about 1 token"
    assert length_words(2, 9) == "about 2 tokens"
    assert length_words(None, 9) == "more than the 9 tokens measured"
    assert "single token" in context_figure(gain_of((2.0, 1.0), targets=1), 0.01).finding
    assert context_figure(gain_of((2.0, 1.0)), 0.01).reading.startswith("The same 9 tokens")


@pytest.mark.parametrize(
    ("tokens", "longest"),
    [(84, 41), (5, 2), (4, 2), (300, 149), (20_001, 256), (500, 249), (600, 256)],
)
def test_a_short_text_leaves_tokens_to_try_context_on(tokens: int, longest: int) -> None:
    assert longest_context(tokens, wanted=256, targets=256) == longest
    assert tokens - longest >= min(2, tokens - 2)


def test_a_band_that_begins_at_nothing_does_not_begin_at_the_mean() -> None:
    decay = Decay((0, 1, 2), (1.0, 0.1, 0.01), (0.5, 0.0, 0.001), (2.0, 0.2, 0.02))
    (figure,) = decays({"input": Sides(decay, None)}, 0.05, _TOKENS, noise=0.0)
    assert figure.series[0].low == pytest.approx((0.5, 0.001, 0.001))
    assert figure.series[0].high == pytest.approx((2.0, 0.2, 0.02))


# Probes.


def points(**by_name: tuple[float, float]) -> list[Series]:
    return [Series(name, (x,), (y,)) for name, (x, y) in by_name.items()]


def test_what_a_byte_is_worth() -> None:
    assert _worth(points(small=(64.0, 0.01), large=(4096.0, 0.02))) == "No family is better than guessing."
    alone = _worth(points(small=(64.0, 0.1), large=(4096.0, 0.9)))
    assert alone == "large has the highest skill: 0.9000 with 4 KiB; no smaller state has half of it."
    frugal = _worth(points(small=(64.0, 0.5), large=(4096.0, 0.9), waste=(8192.0, 0.8)))
    assert frugal.endswith("small has 0.5000 with 64 B, the smallest state with half of it.")


def test_luck_is_not_called_skill() -> None:
    few = {"one": (22, 40, 0), "other": (19, 40, 0)}
    assert "no family is significantly better than guessing" in _furthest(few, 0.5)
    many = {"one": (2200, 4000, 0), "other": (1900, 4000, 0)}
    assert _furthest(many, 0.5) == "At the greatest distance one is the most accurate: 55.0 % of 4,000."
    # Of many, the luckiest is luckier: what one alone may be called right for is chance among twenty.
    right = 20 + math.ceil(2.2 * math.sqrt(10))
    assert "no family" not in _furthest({"one": (right, 40, 0)}, 0.5)
    assert "no family" in _furthest({f"{n}": (right, 40, 0) for n in range(20)}, 0.5)


# Alignments.


def test_layers_and_heads_of_an_alignment_are_chosen() -> None:
    chance = torch.Generator().manual_seed(0)
    first_THS, second_THS = (torch.rand(3, heads, 4, generator=chance) for heads in (2, 2))
    cross = CrossWeights({"layers.0.weights": first_THS, "layers.1.weights": second_THS})
    torch.testing.assert_close(cross.mean(), torch.stack([first_THS, second_THS]).mean((0, 2)))
    torch.testing.assert_close(cross.mean(layers=(1,), heads=(0,)), second_THS[:, 0])
    assert not torch.equal(cross.mean(layers=(0,)), cross.mean())


# In a notebook.


def test_a_table_in_a_notebook_says_how_it_is_read() -> None:
    columns = (Column("a", "entropy", "bits"),)
    rows = tuple((Cell(n, str(n)),) for n in range(30))
    shown = Finding("x", "X", "y", ("said",), tables=(Named("t", "T", "Read it so.", Table(columns, rows)),))
    html = shown._repr_html_()
    assert "Read it so." in html
    assert "entropy <small>bits" in html  # without a stylesheet the two would be one word
    assert "All 30 rows" in html


def test_settings_are_all_described() -> None:
    assert AttentionSettings().layers == ()
    undescribed = [
        f"{one.name}.{name}"
        for one in LENSES
        for name, field in one.settings.model_fields.items()
        if not field.description
    ]
    assert undescribed == []


def test_how_far_was_tried_is_what_the_curve_shows() -> None:
    """Gradients of few tokens reach the whole window; the sentence names the distance up to which there is a mean."""
    model = build(TransformerSpec(width=8, heads=2, depth=1), vocab=7).eval()
    tokens_T = torch.randint(7, (120,), generator=torch.Generator().manual_seed(0))
    found = apply_lens(live_subject(model, tokens_T), "gradient", window=30, queries=6, context=8, targets=8, steps=2)
    tried = found.data["decay"]["input"]["distance"][-1]
    assert tried < 29
    assert found.data["decay"]["input"]["memory_length"] is None
    assert f"more than the {tried} tokens measured long by its gradients" in found.sentences[0]
