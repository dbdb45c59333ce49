"""The frame around lenses: what is read, what is refused, what comes back."""

import json
import math
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from statewise.core import forward_with_resets
from statewise.display import ShownProgress as Shown
from statewise.display import SilentProgress as Silent
from statewise.inspection import Finding, apply_lens, inspect, live_subject
from statewise.inspection.attention.alignment import Agreement, agreement, gold, known, slope
from statewise.inspection.attention.weights import describe
from statewise.inspection.lens import read_settings
from statewise.inspection.lenses import LENSES, find_lens
from statewise.inspection.subject import read_text
from statewise.inspection.surprise.lens import SurpriseSettings
from statewise.inspection.surprise.measure import Bucket, measure, places, useful_context
from statewise.models import build, build_sample
from statewise.specs import ElmanSpec, LSTMSpec, MarkovSpec, TransformerSpec, UserError
from statewise.tasks import TextSpecimens

QUIET = Silent()
END = 0


def stream(length: int, *, vocab: int = 9, seed: int = 0) -> Tensor:
    tokens_T = torch.randint(1, vocab, (length,), generator=torch.Generator().manual_seed(seed))
    tokens_T[0] = END
    return tokens_T


def letters(ids: Any) -> str:
    return "".join("·abcdefghijklmnop"[int(one)] for one in ids)


def reading(tokens_T: Tensor, model: Any = None, **more: Any) -> TextSpecimens:
    return TextSpecimens(model, tokens_T, end_id=END, decode=letters, source="a stream", **more)


# ---------------------------------------------------------------- reading


@pytest.mark.parametrize("length", [2, 3, 511, 513, 1025])
def test_a_long_text_is_read_as_a_whole_would_be(length: int) -> None:
    """In chunks, with documents that begin where they like: the loss is that of one forward with resets."""
    model = build(LSTMSpec(width=6, dropout=0.0), vocab=9).double().eval()
    tokens_T = stream(length)
    tokens_T[length // 2] = tokens_T[-1] = END
    found = torch.cat([one.nats_T for one in reading(tokens_T, model).read()])
    inputs_BT = tokens_T[None, :-1]
    with torch.no_grad():
        logits_BTV, _ = forward_with_resets(
            model, inputs_BT, model.init_state(1), inputs_BT == END, initial=model.init_state(1)
        )
    expected = F.cross_entropy(logits_BTV[0], tokens_T[1:], reduction="none")
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-6)


def test_positions_count_from_the_last_fresh_start() -> None:
    model = build(ElmanSpec(width=4, dropout=0.0), vocab=9).eval()
    tokens_T = stream(600)
    tokens_T[550] = END
    position_T = torch.cat([one.position_T for one in reading(tokens_T, model).read()])
    assert position_T.tolist() == [*range(550), *range(49)]
    position_T = torch.cat([one.position_T for one in reading(tokens_T, model, window=100).read()])
    assert position_T.tolist() == [*(at % 100 for at in range(550)), *range(49)]


def test_a_memory_that_grows_starts_afresh_where_nobody_said_when() -> None:
    attention = build(TransformerSpec(width=8, heads=2, depth=1, dropout=0.0), vocab=9)
    vector = build(ElmanSpec(width=4), vocab=9)
    assert reading(stream(9), vector).reach is None
    assert reading(stream(9), attention).reach is not None
    assert reading(stream(9), attention, window=7).reach == 7


def test_windows_lie_inside_a_document() -> None:
    tokens_T = stream(200)
    tokens_T[[70, 140]] = END
    found_BT = reading(tokens_T).window_tokens(40, 12)
    assert found_BT.shape[1] == 40
    assert len(found_BT) > 3
    assert not (found_BT[:, 1:] == END).any()
    tokens_T[::5] = END  # nowhere is there room
    assert reading(tokens_T).window_tokens(40, 3).shape == (3, 40)


def test_names_of_tokens() -> None:
    one = reading(torch.tensor([0, 1, 2, 0, 3]))
    assert one.names() == ["<end>", "a", "b", "<end>", "c"]
    assert one.names(1, 3) == ["a", "b"]


# ---------------------------------------------------------------- surprise


def test_surprise_is_minus_log_probability() -> None:
    model = build_sample(MarkovSpec(order=1), vocab=5, tokens=2000)
    tokens_T = stream(50, vocab=5)
    found = measure(reading(tokens_T, model), QUIET)
    with torch.no_grad():
        log_TV = model(tokens_T[None, :-1])[0][0].log_softmax(-1)
    expected = -log_TV[torch.arange(49), tokens_T[1:]] / math.log(2)
    torch.testing.assert_close(found.bits_T, expected.double(), rtol=1e-5, atol=1e-6)
    assert sum(one.tokens for one in found.bins) == sum(one.tokens for one in found.by_position) == 49
    assert found.accuracy == pytest.approx(float((log_TV.argmax(-1) == tokens_T[1:]).double().mean()))
    assert found.entropy == pytest.approx(float(-(log_TV.exp() * log_TV).sum(-1).mean()) / math.log(2), rel=1e-4)


def test_calibration_of_what_is_known() -> None:
    """A model that always says 0.8 and is right half the time is off by 0.3."""

    class Sure(torch.nn.Module):
        like = torch.zeros(1)

        def init_state(self, batch: int) -> Tensor:
            return torch.zeros(batch, 1)

        def __call__(self, tokens_BT: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
            p_V = torch.tensor([0.05, 0.8, 0.15]).log()
            return p_V.expand(*tokens_BT.shape, 3), state

    tokens_T = torch.tensor([1, 2] * 500 + [1])
    found = measure(TextSpecimens(Sure(), tokens_T, end_id=None, decode=None, source="made"), QUIET)
    assert found.error == pytest.approx(0.3, abs=1e-3)
    assert len(found.bins) == 1
    assert found.bins[0].confidence == pytest.approx(0.8)


def test_useful_context_is_where_the_loss_stops_falling() -> None:
    falling = [Bucket(2**k - 1, 2 ** (k + 1) - 2, max(4.0 - k, 1.0), 0.01, 100) for k in range(7)]
    assert useful_context(tuple(falling)) == 2**3 - 1
    assert useful_context(tuple(falling[:3])) == falling[2].low  # it still falls
    assert useful_context(tuple(one._replace(tokens=3) for one in falling)) is None


def test_two_readings_of_one_text() -> None:
    found = places([("a", 1.0), ("b", 2.0)], [("ab", 5.0)])
    assert [(one.piece, one.first, one.second, one.gap) for one in found] == [("ab", 3.0, 5.0, -2.0)]


# ---------------------------------------------------------------- the whole


@pytest.fixture(scope="module")
def findings() -> dict[str, Finding]:
    lstm = build(LSTMSpec(width=8, dropout=0.0), vocab=9).eval()
    subject = live_subject(lstm, stream(400), decode=letters, end_id=END)
    small = {
        "gradient": {"window": 16, "queries": 4, "context": 16, "targets": 8, "steps": 4},
        "bptt": {"window": 24, "length": 8, "draws": 4, "rows": 2, "batches": 2},
    }
    return {
        name: apply_lens(subject, name, **small.get(name, {})) for name in ("surprise", "gradient", "attention", "bptt")
    }


def test_every_lens_of_this_half_answers(findings: dict[str, Finding]) -> None:
    for name, found in findings.items():
        assert found.lens == name
        assert found.sentences
        for one in (*found.figures, *found.tables):
            assert one.name.startswith(f"{name}-")
            assert one.reading
        for figure in found.figures:
            assert figure.finding
            assert figure.drawable
        assert json.loads(found.to_json())["sentences"] == list(found.sentences)
        assert found.title in found._repr_html_()
        assert found.sentences[0].split()[0] in found.to_markdown()
    names = [one.name for found in findings.values() for one in (*found.figures, *found.tables)]
    assert len(set(names)) == len(names)


def test_attention_says_when_there_is_none(findings: dict[str, Finding]) -> None:
    assert "no attention" in findings["attention"].sentences[0]


def test_attention_shows_the_weights_of_the_equation() -> None:
    model = build(TransformerSpec(width=8, heads=2, depth=2, dropout=0.0), vocab=9).eval()
    found = apply_lens(live_subject(model, stream(60), end_id=END), "attention", window=12, rows=2, maps=8)
    assert found.data["layers"] == ["layers.0.attention.weights", "layers.1.attention.weights"]
    assert found.data["kernel_difference"] < 1e-5
    maps = [one for one in found.figures if one.name.startswith("attention-layer")]
    assert len(maps) == 4
    for one in maps:
        assert one.grid is not None
        for query, row in enumerate(one.grid.values):
            seen = [value for value in row if value is not None]
            assert len(seen) == query + 1
            assert sum(seen) == pytest.approx(1, abs=1e-5)
    chosen = {"layers": (1,), "heads": (0,), "queries": (3, 7)}
    one = apply_lens(live_subject(model, stream(60), end_id=END), "attention", window=12, **chosen)
    (shown,) = [figure for figure in one.figures if figure.name.startswith("attention-layer")]
    assert shown.name == "attention-layer-1-head-0"
    assert len(shown.grid.values) == 2
    for wrong in ({"layers": (5,)}, {"heads": (2,)}, {"queries": (12,)}):
        with pytest.raises(UserError, match=r"5|2|12"):
            apply_lens(live_subject(model, stream(60), end_id=END), "attention", window=12, **wrong)


def test_the_page_and_its_files(findings: dict[str, Finding], tmp_path: Path) -> None:
    lstm = build(LSTMSpec(width=8, dropout=0.0), vocab=9).eval()
    found = inspect(live_subject(lstm, stream(300), decode=letters, end_id=END), "surprise")
    page = found.write(tmp_path / "new" / "folder", static=True, command="statewise inspect …")
    assert page.name == "inspect.html"
    assert "statewise inspect …" in page.read_text()
    record = json.loads(page.with_name("inspect.json").read_text())
    assert record["findings"][0]["data"]["tokens"] == 299
    kinds = {path.suffix for path in found.files(page.parent)}
    assert {".html", ".json", ".md", ".csv", ".svg"} <= kinds
    assert not list(tmp_path.rglob(".tmp-*"))
    with pytest.raises(UserError, match="is a file"):
        found.write(page)


def test_a_lens_that_cannot_look_does_not_take_the_others_with_it() -> None:
    model = build(LSTMSpec(width=8, dropout=0.0), vocab=9).eval()
    found = inspect(live_subject(model, stream(4), end_id=END))
    by_name = {one.lens: one for one in found.findings}
    assert by_name["gradient"].sentences[0].startswith("Not inspected: ")
    assert by_name["surprise"].data["tokens"] == 3


# ---------------------------------------------------------------- what is refused


def test_settings_are_checked() -> None:
    with pytest.raises(UserError, match=r"'surprise'.*\n  show: unknown setting; did you mean 'shown'"):
        read_settings(SurpriseSettings, {"show": 3}, lens="surprise")
    with pytest.raises(UserError, match="shown = 0: input should be greater than or equal to 1"):
        read_settings(SurpriseSettings, {"shown": 0}, lens="surprise")


def test_lenses_are_known_by_name() -> None:
    assert len({one.name for one in LENSES}) == len(LENSES)
    with pytest.raises(UserError, match="did you mean 'gradient'"):
        find_lens("gradeint")
    with pytest.raises(UserError, match="none was named"):
        apply_lens(None, "surprise")


def test_bad_windows_and_draws() -> None:
    subject = live_subject(build(ElmanSpec(width=4), vocab=9), stream(40), end_id=END)
    with pytest.raises(UserError, match="not a power of two\ntry 4 or 8"):
        apply_lens(subject, "bptt", draws=6)
    with pytest.raises(UserError, match="nothing to cut"):
        apply_lens(subject, "bptt", window=8, length=8)
    counting = live_subject(build_sample(MarkovSpec(order=1), vocab=9), stream(40), end_id=END)
    with pytest.raises(UserError, match="does not learn by gradients"):
        apply_lens(counting, "bptt")
    assert "Nothing here is learnt by gradients" in apply_lens(counting, "gradient", targets=4).missing[0]
    with pytest.raises(UserError, match="tokens of shape"):
        live_subject(build(ElmanSpec(width=4), vocab=9), torch.zeros(3, 2))


def test_texts(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("some text")
    (tmp_path / "empty.txt").write_text(" \n")
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    assert read_text(str(tmp_path / "a.txt")) == read_text("some text") == "some text"
    for given, said in (
        (tmp_path / "none.txt", "there is no file"),
        ("none.txt", "there is no file 'none.txt'"),
        (tmp_path, "is a folder"),
        (tmp_path / "empty.txt", "is empty"),
        (tmp_path / "latin.txt", "is not UTF-8: byte 3 is 0xe9"),
        ("  ", "the text is empty"),
    ):
        with pytest.raises(UserError, match=said):
            read_text(given)


def test_progress_is_silent_at_first(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(Shown().over([1, 2, 3], "work")) == [1, 2, 3]
    assert capsys.readouterr().err == ""
    clock = iter(float(at) for at in range(0, 1000, 3))
    monkeypatch.setattr("statewise.display.progress.time.monotonic", lambda: next(clock))
    assert list(Shown().over(range(10), "work")) == list(range(10))
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith("work: 1 of 10")
    assert "\x1b" not in "".join(said)
    assert 2 <= len(said) <= 4  # ten items of three seconds each: a line every ten


def test_who_cannot_say_how_far_it_is_says_that_it_goes_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, seconds in (
        ("_SECONDS_BEFORE", 0.05),
        ("_SECONDS_BETWEEN_TICKS", 0.02),
        ("_SECONDS_BETWEEN_LINES", 0.05),
    ):
        monkeypatch.setattr(f"statewise.display.progress.{name}", seconds)
    with Shown().busy("work"):
        pass
    assert capsys.readouterr().err == ""
    with Shown().busy("work"):
        time.sleep(0.4)
    said = capsys.readouterr().err.splitlines()
    assert 1 <= len(said) <= 8
    assert set(said) == {"work: 0 s so far"}


# ---------------------------------------------------------------- alignment


def test_a_known_alignment_is_judged() -> None:
    assert known(["a", "b"], ["a", "b"]) == "copy"
    assert known(["a", "b"], ["b", "a"]) == "reversal"
    assert known(["a", "b", "a"], ["a", "b", "a"]) == "copy"
    assert known(["a", "b"], ["a", "c"]) is None
    weights_TS = torch.eye(4, dtype=torch.float64)
    assert agreement(weights_TS, gold("copy", 4)) == Agreement(4, 4, 4, 1.0)
    assert agreement(weights_TS.flip(0), gold("reversal", 4)).right == 4
    assert agreement(weights_TS.roll(1, dims=1), gold("copy", 4)) == Agreement(0, 3, 4, 0.0)
    assert slope(weights_TS) == pytest.approx(1)
    assert slope(weights_TS.flip(0)) == pytest.approx(-1)
    assert slope(torch.full((4, 4), 0.25)) == 0.0


def test_heads_are_described_by_what_they_do() -> None:
    """One head that looks at the token before, one that looks everywhere alike."""
    time = 8
    before_TS = torch.zeros(time, time).index_put((torch.arange(1, time), torch.arange(time - 1)), torch.tensor(1.0))
    before_TS[0, 0] = 1.0
    even_TS = torch.tril(torch.ones(time, time)) / torch.arange(1, time + 1)[:, None]
    sharp, wide = describe(0, [torch.stack([before_TS, even_TS], dim=1)], causal=True)
    assert (sharp.entropy, sharp.previous, sharp.distance) == (0.0, 1.0, 1.0)
    assert wide.share == pytest.approx(1)
    assert wide.itself == pytest.approx(wide.first)
