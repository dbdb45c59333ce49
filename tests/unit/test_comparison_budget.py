"""Every entry has as much as every other: by formula, and counted on models that were really built."""

from typing import Any

import pytest

from statewise.comparison.budget import Entry, solve
from statewise.comparison.opened import Opener
from statewise.comparison.study import parse_study
from statewise.core import state_bytes
from statewise.models import LINEAGE, build
from statewise.models.growth import context_bytes
from statewise.specs import LanguageModelSpec, UserError

KINDS = [row.name for row in LINEAGE if row.spec.learns == "gradient"]


@pytest.fixture(scope="module")
def opener() -> Opener:
    return Opener()


def study(*entries: dict[str, Any], **more: Any) -> Any:
    base = {"data": {"order": "random"}, "train": {"steps": 10, "batch": 4, "window": 8}, **more.pop("base", {})}
    return parse_study({"title": "t", "question": "q", "base": base, "entry": list(entries), **more})


def of_kind(kind: str, **settings: Any) -> dict[str, Any]:
    return {"name": kind, "settings": {"model": {"kind": kind, **settings}}}


def language_model(entry: Entry) -> LanguageModelSpec:
    assert isinstance(entry.spec, LanguageModelSpec)
    return entry.spec


@pytest.mark.parametrize("amount", [30_000, 70_000])
@pytest.mark.parametrize("kind", KINDS)
def test_parameters_of_every_kind_are_met_by_a_built_model(kind: str, amount: int, opener: Opener) -> None:
    more = {"mlp": "gelu"} if kind.startswith("ttt") else {}  # their widths are even, and too far apart at this size
    (entry,) = solve(study(of_kind(kind, **more), budget={"amount": amount}), opener=opener)
    vocab = opener(entry.spec).job.build().vocab
    model = build(language_model(entry).model, vocab=vocab)
    counted = sum(p.numel() for p in model.parameters())
    assert counted == entry.parameters == entry.met
    assert abs(counted / amount - 1) <= 0.02
    assert entry.error == counted / amount - 1
    assert entry.solved["model.width"] == language_model(entry).model.sizes()["width"]


@pytest.mark.parametrize("kind", ["elman", "lstm", "gru", "mingru", "mamba2", "transformer", "ttt_linear", "window"])
def test_bytes_of_state_are_met_by_a_state_that_was_read_into(kind: str, opener: Opener) -> None:
    budget = {"kind": "state_bytes", "amount": 6000, "context": 40, "tolerance": 0.08}
    (entry,) = solve(study(of_kind(kind), budget=budget), opener=opener)
    model = build(language_model(entry).model, vocab=11)
    assert context_bytes(model, 40) == entry.met == entry.state_bytes
    assert abs(entry.met / 6000 - 1) <= 0.08
    assert state_bytes(model.init_state(1)) <= entry.met


@pytest.mark.parametrize("kind", ["lstm", "mingru", "transformer"])
def test_flops_are_met_by_steps_and_sizes_stay(kind: str, opener: Opener) -> None:
    budget = {"kind": "flops", "amount": 2_000_000_000}
    (entry,) = solve(study(of_kind(kind, width=24), budget=budget), opener=opener)
    spec = language_model(entry)
    assert list(entry.solved) == ["train.steps"]
    assert spec.model.sizes()["width"] == 24
    vocab = opener(spec).job.build().vocab
    each = sum(spec.model.forward_flops(vocab, context) for context in range(8)) / 8
    assert entry.met == pytest.approx(3 * each * 4 * 8 * spec.train.steps)
    assert abs(entry.met / 2e9 - 1) <= 0.02


def test_without_an_amount_the_first_entry_gives_it(opener: Opener) -> None:
    first, second, counted = solve(
        study(of_kind("lstm", width=40), of_kind("gru"), {**of_kind("markov"), "width": "none"}), opener=opener
    )
    assert first.wanted == first.met == second.wanted == first.parameters
    assert first.solved == {"model.width": 40}
    assert (counted.met, counted.error, counted.solved) == (None, None, {})


def test_nothing_is_solved_where_nothing_is_held_equal(opener: Opener) -> None:
    (entry,) = solve(study(of_kind("lstm", width=31), budget={"kind": "none"}), opener=opener)
    assert (entry.solved, entry.met, language_model(entry).model.sizes()["width"]) == ({}, None, 31)


def test_a_coarse_grid_of_widths_is_made_up_for_by_a_finer_setting(opener: Opener) -> None:
    coarse = of_kind("gated_delta", heads=16, depth=2, mlp="swiglu", mlp_ratio=2.0)
    (entry,) = solve(study(coarse, budget={"amount": 50_000, "tolerance": 0.004}), opener=opener)
    assert language_model(entry).model.sizes()["width"] % 16 == 0
    assert "model.mlp_ratio" in entry.solved
    assert abs(entry.error or 1) <= 0.004
    vectors = of_kind("lstm", depth=3)
    (entry,) = solve(study(vectors, budget={"amount": 50_000, "tolerance": 0.002}), opener=opener)
    assert "model.embedding" in entry.solved
    assert abs(entry.error or 1) <= 0.002


@pytest.mark.parametrize(
    ("entry", "budget", "says"),
    [
        (of_kind("linear_attention", heads=32), {"amount": 40_000}, "nothing comes within 2.0% of 40,000 parameters"),
        (of_kind("lstm"), {"amount": 1}, "'lstm': nothing comes within"),
        (of_kind("window", order=4096), {"amount": 10**15}, "no width meets the budget"),
        (of_kind("markov"), {"amount": 1000}, "no width meets the budget\n.*model.width: unknown key"),
        (of_kind("transformer"), {"kind": "flops", "amount": 10**9}, "costs more with every step"),
    ],
)
def test_what_cannot_be_met_is_refused(
    entry: dict[str, Any], budget: dict[str, Any], says: str, opener: Opener
) -> None:
    with pytest.raises(UserError, match=f"(?s){says}"):
        solve(study(entry, budget=budget, base={"data": {"order": "sequential"}}), opener=opener)


def test_other_tasks_have_no_flops_and_no_state_by_formula() -> None:
    for kind, says in (("flops", "a tree run has none"), ("state_bytes", "no size by formula")):
        table = {"base": {"task": "tree"}, "entry": [{"name": "a"}]}
        one = parse_study({"title": "t", "question": "q", **table, "budget": {"kind": kind, "amount": 1000}})
        with pytest.raises(UserError, match=says):
            solve(one)
