"""What a study says of a trial besides its figures: the clock over several sessions, the cost of a longer past."""

import json
from pathlib import Path

import pytest
import torch

from statewise.comparison.measure import (
    bytes_by_context,
    clock,
    costs,
    curve,
    extended_state,
    refuse_without,
    seconds_by_context,
    training_by_context,
    watched,
)
from statewise.comparison.record import Log, found_of, found_record, read_lines, write_json
from statewise.comparison.trial import Found, Point, trial_key
from statewise.core import leaves, state_bytes
from statewise.models import LINEAGE, build_sample, build_seq2seq, context_bytes, training_bytes
from statewise.models.classifier import Classifier, build_classifier
from statewise.specs import GRUSpec, LSTMSpec, ReaderSpec, Seq2SeqSpec, UserError, parse_spec
from statewise.tasks import Answer, Course

LIST_KEEPERS = ("basic_attention", "transformer")


def write_run(folder: Path, records: list[tuple[int, int, float]]) -> None:
    """`(step, tokens, seconds)` each, and an evaluation at every step."""
    metrics, timing = [], [{"step": 0, "rehearsal_seconds": 9.0}]
    for step, tokens, seconds in records:
        metrics += [{"step": step, "loss": 1.0, "tokens": tokens}, {"step": step, "validation_bits": 1 / step}]
        timing.append({"step": step, "tokens_per_second": tokens / seconds, "seconds": seconds})
    for name, lines in (("metrics.jsonl", metrics), ("timing.jsonl", timing)):
        (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_seconds_are_those_the_run_wrote_down(tmp_path: Path) -> None:
    write_run(tmp_path, [(10, 1000, 10.0), (20, 2000, 16.0)])
    found = clock(tmp_path)
    assert found.seconds == [10.0, 16.0]
    assert found.at(15) == (1500, 13.0)  # between the two, on the line
    assert found.at(5) == (500, 5.0)
    assert found.at(20) == (2000, 16.0)


def test_a_curve_says_what_each_place_had_cost(tmp_path: Path) -> None:
    write_run(tmp_path, [(10, 1000, 10.0), (20, 2000, 20.0)])
    at = clock(tmp_path)
    points = curve(tmp_path, metric="bits", at=at, flops_per_token=7.0)
    assert points == [Point(10, 1000, 10.0, 21000.0, 0.1), Point(20, 2000, 20.0, 42000.0, 0.05)]
    assert curve(tmp_path, metric="other", at=at, flops_per_token=1.0) == []


@pytest.mark.parametrize("row", LINEAGE, ids=lambda row: row.name)
def test_a_drawn_out_state_is_as_large_as_one_that_was_read(row) -> None:
    model = build_sample(row.spec.small(), vocab=11).eval()
    tokens_BT = model.sample_input(1, 512, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        read, drawn = model.absorb(tokens_BT), extended_state(model, 512)
        growing = not all(leaf.numel() for _, leaf in leaves(model.init_state(1)))
        assert growing == (row.name in LIST_KEEPERS)
        if growing:
            assert [(name, leaf.shape) for name, leaf in leaves(drawn)] == [(n, leaf.shape) for n, leaf in leaves(read)]
            for (_, here), (_, there) in zip(leaves(drawn), leaves(read)):
                assert here.is_floating_point() or torch.equal(here, there)
            assert state_bytes(drawn) == context_bytes(model, 512)
            logits_BV, _ = model.step(tokens_BT[:, 0], drawn)
            assert logits_BV.isfinite().all()


@pytest.mark.parametrize("kind", ["lstm", "transformer"])
def test_time_is_known_at_every_context(kind: str) -> None:
    spec = next(row.spec for row in LINEAGE if row.name == kind)
    found = seconds_by_context(build_sample(spec.small(), vocab=11))
    assert found is not None
    assert found.keys() == bytes_by_context(build_sample(spec.small(), vocab=11)).keys()
    assert all(seconds > 0 for seconds in found.values())
    assert (len(set(found.values())) == 1) == (kind == "lstm")


def test_row_d2_training_memory_is_known_at_every_context() -> None:
    model = build_sample(next(row.spec for row in LINEAGE if row.name == "lstm").small(), vocab=11)
    found = training_by_context(model)
    assert found is not None
    assert found.keys() == bytes_by_context(model).keys()
    assert found[256] == training_bytes(model, 256)
    assert 3.9 < found[65_536] / found[16_384] < 4
    assert training_by_context(None) is None


def test_the_context_of_a_budget_is_asked_for_too() -> None:
    model = build_sample(next(row.spec for row in LINEAGE if row.name == "transformer").small(), vocab=11)
    found = bytes_by_context(model, also=26)
    assert list(found)[:2] == [26, 256]
    assert found[26] == context_bytes(model, 26)


def test_costs_are_figures_where_they_were_measured() -> None:
    found = costs({256: 8, 1024: 16}, {1024: 0.25}, context=1024)
    assert found == {"state_bytes": 16.0, "milliseconds_per_token": 250.0}
    assert costs({256: 8}, {1024: 0.25}, context=256) == {"state_bytes": 8.0}
    assert costs({}, None, context=256) == {}
    with pytest.raises(UserError, match="'state_bytes' is not among the finite metrics of this tree run: nats"):
        refuse_without("state_bytes", {"nats": 1.0}, "tree")


def test_what_remembers_in_other_tasks() -> None:
    one_way = build_classifier(LSTMSpec(width=8), ReaderSpec(bidirectional=False), num_classes=2, vocab=5)
    assert isinstance(one_way, Classifier)
    assert set(bytes_by_context(one_way.reader.layers.machine).values()) == {2 * 8 * 4}
    both_ways = build_classifier(LSTMSpec(width=8), ReaderSpec(bidirectional=True), num_classes=2, vocab=5)
    assert isinstance(both_ways, Classifier)
    assert both_ways.reader.layers.machine is None
    assert bytes_by_context(None) == {}
    assert seconds_by_context(None) is None
    writer = build_seq2seq(
        Seq2SeqSpec(encoder=GRUSpec(width=8), decoder=GRUSpec(width=8)), source_vocab=5, target_vocab=5
    )
    sizes = bytes_by_context(writer)
    assert list(sizes) == sorted(sizes)
    assert seconds_by_context(writer) is None


def some_found() -> Found:
    return Found(
        key="k",
        entry="lstm",
        seed=1,
        phase="final",
        settings={"model.width": 8},
        figures={"bits_per_byte": 2.5},
        curve=[Point(1, 2, 3.0, 4.0, 5.0)],
        parameters=9,
        flops_per_token=1.5,
        state_bytes={256: 8},
        steps=1,
        seconds=1.0,
        tokens=2,
        tokens_per_second=2.0,
        decode_tokens_per_second=None,
        peak_bytes=7,
        sample=[("n", 0.25), ("é", 1.25)],
        surprise=[("n", 0.5), ("é", 1.5)],
        weights_sha256="0",
        seconds_by_context={256: 0.5},
        training_bytes={256: 4096},
        path="N",
        watched={"nats": [Point(1, 2, 3.0, 4.0, 0.5)]},
        prompt="be",
        answers=[Answer("a b", "b", "N", "V")],
        course=Course("x", [1.0, None], [2.0], [2.5]),
        anchors={"blind guess": 4.0},
    )


def test_a_result_comes_back_from_its_file(tmp_path: Path) -> None:
    write_json(tmp_path / "result.json", found_record(some_found()))
    assert found_of(json.loads((tmp_path / "result.json").read_text()), source="the file") == some_found()
    with pytest.raises(UserError, match="the file is not the result of a trial"):
        found_of({"key": "k"}, source="the file")


def test_a_result_from_before_there_was_as_much_to_show_is_read() -> None:
    later = ("watched", "prompt", "answers", "course", "anchors")
    old = {name: value for name, value in found_record(some_found()).items() if name not in later}
    found = found_of(old, source="the file")
    assert found._replace(**{name: getattr(some_found(), name) for name in later}) == some_found()
    assert (dict(found.watched), found.prompt, found.answers, found.course, dict(found.anchors)) == (
        {},
        *[None] * 3,
        {},
    )


def test_other_figures_of_the_validation_have_curves_too(tmp_path: Path) -> None:
    lines = [
        {"step": 5, "loss": 1.0, "tokens": 100},
        {"step": 5, "validation_bleu": 2.0, "validation_nats": 3.0, "validation_same": 2.0},
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "timing.jsonl").write_text(json.dumps({"step": 5, "seconds": 1.0}) + "\n")
    told = {"at": clock(tmp_path), "flops_per_token": 1.0}
    found = watched(tmp_path, metric="bleu", **told)
    assert found == {"nats": [Point(5, 100, 1.0, 300.0, 3.0)]}  # what is the metric under another name is not there
    assert watched(tmp_path, metric="bits_per_byte", **told).keys() == {
        "bleu",
        "same",
    }  # nats are the same in other words


def test_a_trial_is_known_by_what_its_data_are_not_by_where(tmp_path: Path) -> None:
    def key(folder: str, **more: str) -> str:
        spec = parse_spec({"data": {"text": [str(tmp_path / folder / "text.txt")]}})
        return trial_key(spec, **{"data": "d", "code": "c", **more})

    assert key("here") == key("there")
    assert len({key("here"), key("here", data="other"), key("here", code="other")}) == 3


def test_a_write_that_fails_says_which(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file") as raised:
        write_json(tmp_path / "none" / "report.json", {})
    assert raised.value.filename == str(tmp_path / "none" / "report.json")


def test_half_a_line_in_a_log_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text('{"event": "end", "key": "a"}\n{"event": "end", "k')
    assert len(read_lines(tmp_path / "log.jsonl")) == 1
    assert Log(tmp_path).ended() == {"a"}
