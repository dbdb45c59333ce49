"""Every entry has as much as every other: by formula, and counted on models that were really built."""

from functools import partial
from typing import Any

import pytest
from covering import covered

from statewise.comparison.budget import Entry, Held, solve
from statewise.comparison.study import parse_study, spec_of
from statewise.comparison.study_data import Opener
from statewise.core import Machine, state_bytes
from statewise.models import LINEAGE, build, context_bytes, cost_of, num_parameters
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


@covered("kind, amount", KINDS, [30_000, 70_000], strength=1)
def test_parameters_of_every_kind_are_met_by_a_built_model(kind: str, amount: int, opener: Opener) -> None:
    more = {"mlp": "gelu"} if kind.startswith("ttt") else {}  # their widths are even, and too far apart at this size
    (entry,) = solve(study(of_kind(kind, **more), budget={"amount": amount}), opener=opener)
    vocab = opener(entry.spec).job.build().vocab
    model = build(language_model(entry).model, vocab=vocab)
    counted = sum(p.numel() for p in model.parameters())
    assert counted == entry.parameters == entry.held[0].met
    assert abs(counted / amount - 1) <= 0.02
    assert entry.error == counted / amount - 1
    assert entry.solved["model.width"] == language_model(entry).model.sizes()["width"]


@covered(
    "kind, budget",
    KINDS,
    [
        {"amount": 1e5},
        {"amount": 1e6},
        {"amount": 1e7},
        {"kind": "flops", "amount": 1e13},
        {"kind": "tokens", "amount": 1e7},
        {"kind": "state_bytes", "amount": 1e5, "context": 1024},
        {"amount": 1e6, "also": {"kind": "flops", "amount": 1e15}},
    ],
    strength=1,
)
def test_every_kind_meets_every_budget(kind: str, budget: dict[str, Any], opener: Opener) -> None:
    """Within the tolerance that a study has where it says none; the sizes and the work by formula."""
    base = {"train": {"steps": 1000, "batch": 8, "window": 64}}
    (entry,) = solve(study(of_kind(kind), budget=budget, base=base), opener=opener)
    assert [held.kind for held in entry.held] == [
        budget.get("kind", "parameters"),
        *(["flops"] if "also" in budget else []),
    ]
    for held in entry.held:
        assert held.error is not None
        assert abs(held.error) <= 0.02
    assert entry.held[0].wanted == budget["amount"]
    vocab = opener(entry.spec).job.build().vocab
    assert entry.parameters == num_parameters(partial(build, language_model(entry).model, vocab=vocab))


@pytest.mark.parametrize("kind", ["elman", "lstm", "gru", "mingru", "mamba2", "transformer", "ttt_linear", "window"])
def test_bytes_of_state_are_met_by_a_state_that_was_read_into(kind: str, opener: Opener) -> None:
    budget = {"kind": "state_bytes", "amount": 6000, "context": 40, "tolerance": 0.08}
    (entry,) = solve(study(of_kind(kind), budget=budget), opener=opener)
    model = build(language_model(entry).model, vocab=11)
    (held,) = entry.held
    assert context_bytes(model, 40) == held.met == entry.state_bytes
    assert abs(held.met / 6000 - 1) <= 0.08
    assert state_bytes(model.init_state(1)) <= held.met


@pytest.mark.parametrize("kind", ["lstm", "mingru", "transformer"])
def test_flops_are_met_by_steps_and_sizes_stay(kind: str, opener: Opener) -> None:
    budget = {"kind": "flops", "amount": 2_000_000_000}
    (entry,) = solve(study(of_kind(kind, width=24), budget=budget), opener=opener)
    spec = language_model(entry)
    assert all(path.startswith("train.") for path in entry.solved)
    assert (entry.solved["train.steps"], entry.solved["train.evaluate_every"]) == (
        spec.train.steps,
        spec.train.evaluate_every,
    )
    assert spec.train.evaluate_every / 250 == pytest.approx(spec.train.steps / 10, rel=0.01)
    assert spec.model.sizes()["width"] == 24
    vocab = opener(spec).job.build().vocab
    each = sum(cost_of(partial(build, spec.model, vocab=vocab), context=at).flops for at in range(8)) / 8
    (held,) = entry.held
    assert held.met == pytest.approx(3 * each * 4 * 8 * spec.train.steps)
    assert abs(held.met / 2e9 - 1) <= 0.02


def test_without_an_amount_the_first_entry_gives_it(opener: Opener) -> None:
    first, second, counted = solve(
        study(of_kind("lstm", width=40), of_kind("gru"), {**of_kind("markov"), "width": "none"}), opener=opener
    )
    assert first.held == (Held("parameters", first.parameters, first.parameters),)
    assert second.held[0].wanted == first.parameters
    assert first.solved == {"model.width": 40}
    assert (counted.held, counted.error, counted.solved) == ((), None, {})


def test_a_size_and_a_training_are_held_at_once(opener: Opener) -> None:
    budget = {"amount": 30_000, "also": {"kind": "seconds", "amount": 2.5}}
    lstm, counted = solve(study(of_kind("lstm"), {**of_kind("markov"), "width": "none"}, budget=budget), opener=opener)
    size, seconds = lstm.held
    assert (size.kind, size.met) == ("parameters", lstm.parameters)
    assert abs(lstm.parameters / 30_000 - 1) <= 0.02
    assert seconds == Held("seconds", 2.5, None)
    assert seconds.error is None  # it has not passed yet
    assert lstm.spec.train.seconds == lstm.solved["train.seconds"] == 2.5
    assert lstm.spec.train.steps == 10  # the ruler stays
    assert counted.held == ()
    assert counted.spec.train.seconds is None


def test_tokens_are_met_by_steps_whatever_a_step_reads(opener: Opener) -> None:
    wide = {"name": "wide", "settings": {"model.kind": "gru", "train.batch": 16, "train.window": 32}}
    entries = solve(study(of_kind("lstm"), wide, budget={"kind": "tokens", "amount": 51_200}), opener=opener)
    assert [entry.spec.train.steps for entry in entries] == [1600, 100]
    assert [entry.held for entry in entries] == [(Held("tokens", 51_200, 51_200),)] * 2
    assert [entry.spec.model for entry in entries] == [
        spec_of(study(of_kind("lstm"), wide), one).model for one in study(of_kind("lstm"), wide).entry
    ]
    unsaid = solve(study(wide, of_kind("lstm"), budget={"kind": "tokens"}), opener=opener)
    assert unsaid[1].held == (Held("tokens", 10 * 16 * 32, 10 * 16 * 32),)  # what the first reads as written
    with pytest.raises(
        UserError, match=r"nothing comes within 2.0% of 320 training tokens; the nearest is train.steps = 1,"
    ):
        solve(study(of_kind("lstm"), wide, budget={"kind": "tokens"}), opener=opener)


def test_tokens_and_flops_beside_a_size(opener: Opener) -> None:
    for kind in ("tokens", "flops"):
        first, second = solve(
            study(
                of_kind("lstm"),
                of_kind("elman"),
                budget={"amount": 30_000, "also": {"kind": kind}},
                base={"train": {"steps": 200, "batch": 4, "window": 8}},
            ),
            opener=opener,
        )
        assert first.spec.train.steps == 200  # at the width that was solved, as many steps as written
        assert first.held[1].met == first.held[1].wanted == second.held[1].wanted
        assert (second.spec.train.steps == 200) == (kind == "tokens")
        assert abs(second.held[1].error or 0) <= 0.005


def test_nothing_is_solved_where_nothing_is_held_equal(opener: Opener) -> None:
    (entry,) = solve(study(of_kind("lstm", width=31), budget={"kind": "none"}), opener=opener)
    assert (entry.solved, entry.held, language_model(entry).model.sizes()["width"]) == ({}, (), 31)


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


SMALL: dict[str, dict[str, Any]] = {
    "classification": {"model.kind": "gru"},
    "tagging": {"model.kind": "lstm"},
    "translation": {"model.kind": "transformer"},
    "tree": {"model.kind": "gru"},
    "forecasting": {"model.kind": "elman"},
}


@pytest.mark.parametrize("task", SMALL)
def test_every_task_can_be_held_to_any_budget(task: str, opener: Opener) -> None:
    def solved(**budget: Any) -> Entry:
        entry = {"name": "a", "settings": SMALL[task]}
        table = {
            "base": {"task": task, "train": {"batch": 8}},
            "entry": [entry],
            "budget": {"tolerance": 0.05, **budget},
        }
        (found,) = solve(parse_study({"title": "t", "question": "q", **table}), opener=opener)
        return found

    job = opener(solved(kind="none").spec).job
    read = [job.window(step).tokens for step in range(64)]
    by_tokens = solved(kind="tokens", amount=1_000_000)
    assert by_tokens.spec.train.steps == round(1_000_000 / (sum(read) / 64 * 8 / job.spec.train.batch))
    by_flops = solved(kind="flops", amount=1e13)
    assert by_flops.held[0].met == pytest.approx(
        3 * by_flops.flops_per_token * by_flops.spec.train.steps * sum(read) / 64 * 8 / job.spec.train.batch
    )
    by_state = solved(kind="state_bytes", amount=1_500, context=5)
    model = job.for_spec(by_state.spec).build()
    machine = model if isinstance(model, Machine) else model.reader.layers.machine
    assert isinstance(machine, Machine)
    assert by_state.held[0].met == by_state.state_bytes == context_bytes(machine, 5)
    assert abs(by_state.error or 0) <= 0.05


def test_trees_and_spans_of_the_same_data_cost_what_each_reads(opener: Opener) -> None:
    """A node is a token for both: along a tree it is composed once, as a span all its words are read."""
    entries = [of_kind("child_sum", width=20), of_kind("gru", width=20)]
    table = {"base": {"task": "tree"}, "entry": entries, "budget": {"kind": "none"}}
    tree, span = solve(parse_study({"title": "t", "question": "q", **table}), opener=opener)
    assert tree.spec.layout != span.spec.layout
    assert 2 * 20 * 7 * 20 < tree.flops_per_token < 2 * 20 * 9 * 20
    assert span.flops_per_token > 2 * 6 * 20 * 40  # of more than two words in the mean


def test_who_reads_a_whole_input_has_no_state_to_hold_equal(opener: Opener) -> None:
    entry = {"name": "both ways", "settings": {"reader.bidirectional": True}}
    table = {"base": {"task": "classification"}, "entry": [entry], "budget": {"kind": "state_bytes", "amount": 1000}}
    with pytest.raises(UserError, match="'both ways' reads a whole input at once"):
        solve(parse_study({"title": "t", "question": "q", **table}), opener=opener)
