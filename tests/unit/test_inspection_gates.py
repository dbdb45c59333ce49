"""Which unit follows what: a planted one is found, noise is not, and what was read is what the model did."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from statewise.core import lens
from statewise.display import SilentProgress as Silent
from statewise.inspection import apply_lens, live_subject
from statewise.inspection.gates.feature import FEATURES, at_pieces, at_tokens, parse_features
from statewise.inspection.gates.statistics import Correlation, Saturating
from statewise.inspection.gates.trace import observable, trace, twins
from statewise.models import LINEAGE, Ancestor, build, build_sample
from statewise.specs import UserError
from statewise.tasks import TextSpecimens

TEXT = 'He said "It (really) is [3 (or 4)] o\'clock." Then:\n    nothing happened in 1984.\n'


def a_text(tokens_T: Tensor, model: Any = None, *, end_id: int, decode: Any = None, **more: Any) -> TextSpecimens:
    return TextSpecimens(model, tokens_T, end_id=end_id, decode=decode, source="here", **more)


def feature(name: str) -> list[float]:
    found = at_pieces([one for one in FEATURES if one.name == name], list(TEXT))[name]
    return [float(value) for value in found]


def marked(name: str) -> str:
    return "".join(character for character, value in zip(TEXT, feature(name)) if value)


def test_features_by_hand() -> None:
    assert marked("capital") == "HIT"
    assert marked("digit") == "341984"
    assert marked("line end") == "\n\n"
    assert marked("quotes") == "\"It (really) is [3 (or 4)] o'clock."
    assert marked("indentation") == "    "
    assert max(feature("nesting")) == 2
    assert feature("nesting")[TEXT.index("4")] == 2
    assert feature("nesting")[TEXT.index("really")] == 1
    assert feature("line position")[TEXT.index("nothing")] == 5
    assert feature("word position")[TEXT.index("really") + 5] == 6
    assert feature("sentence position")[TEXT.index("1984")] > 10


def test_a_feature_of_ones_own() -> None:
    (year,) = parse_features(["year=[12][0-9]{3}"])
    found = at_pieces([year], list(TEXT))["year"]
    assert "".join(c for c, value in zip(TEXT, found) if value) == "1984"
    for wrong in ("year", "=x", "year=", "capital=x", "year=("):
        with pytest.raises(UserError):
            parse_features([wrong])


def test_a_piece_of_several_characters_has_their_mean() -> None:
    digit = [one for one in FEATURES if one.name == "digit"]
    assert at_pieces(digit, ["a1", "", "23", "b"])["digit"].tolist() == [0.5, 1.0, 1.0, 0.0]


def test_documents_know_nothing_of_each_other_and_a_reversed_text_is_the_same_text() -> None:
    tokens = [9, *map(ord, '"a'), 9, *map(ord, "b(c")]
    text = a_text(torch.tensor(tokens), end_id=9, decode=lambda ids: "".join(map(chr, ids)))
    found = at_tokens(FEATURES, text)
    assert found["quotes"].tolist() == [0, 1, 1, 0, 0, 0, 0]
    assert found["nesting"].tolist() == [0, 0, 0, 0, 0, 1, 1]
    back = a_text(torch.tensor([9, *map(ord, "c(b")]), end_id=9, decode=text.decode, backwards=True)
    assert at_tokens(FEATURES, back)["nesting"].tolist() == [0, 1, 1, 0]


# Correlation.


def smooth(draw: np.random.Generator, moments: int, units: int) -> np.ndarray:
    """Noise that changes slowly, as units and texts do: what fools a test that takes moments for independent."""
    noise = draw.standard_normal((moments + 50, units))
    return np.stack([np.convolve(noise[:, u], np.ones(50) / 50, "same")[:moments] for u in range(units)], 1)


def test_a_planted_unit_is_found_and_its_correlation_is_numpys() -> None:
    draw = np.random.default_rng(0)
    mark = (smooth(draw, 2000, 1)[:, 0] > 0.1).astype(np.float32)
    unit_TU = smooth(draw, 2000, 30).astype(np.float32)
    unit_TU[:, 17] = 3 - 2 * mark + 0.5 * draw.standard_normal(2000)
    correlation = Correlation({"mark": mark, "never": np.zeros(2000, dtype=np.float32)})
    for begin in range(0, 2000, 300):
        correlation.add("units", begin, unit_TU[begin : begin + 300])
    (found,) = correlation.followers(most=1)
    assert (found.name, found.unit, found.feature) == ("units", 17, "mark")
    assert found.r == pytest.approx(np.corrcoef(unit_TU[:, 17], mark)[0, 1], abs=1e-5)
    assert correlation.constant == ["never"]
    expected = [np.corrcoef(unit_TU[:, u], np.roll(mark, correlation.slide_K[5]))[0, 1] for u in range(30)]
    np.testing.assert_allclose(correlation.table("units")[:, 5, 0], expected, atol=1e-5)


def test_noise_is_rarely_taken_for_something() -> None:
    """At a level of 5 %, over 40 texts with 12 features and 30 units each, about 2 may find anything at all."""
    draw = np.random.default_rng(1)
    fooled = 0
    for _ in range(40):
        features = {f"f{i}": column.astype(np.float32) for i, column in enumerate(smooth(draw, 600, 12).T)}
        correlation = Correlation(features, slides=59)
        correlation.add("units", 0, smooth(draw, 600, 30).astype(np.float32))
        fooled += bool(correlation.followers())
    assert fooled <= 6


# Saturation.


def test_saturation_by_hand() -> None:
    gate_TU = np.array([[0.05, 0.5], [0.02, 0.95], [0.99, 0.97], [0.04, 0.99]], dtype=np.float32)
    saturating = Saturating()
    saturating.add(gate_TU[:1])
    saturating.add(gate_TU[1:])
    found = saturating.found()
    assert found is not None
    assert found.is_gate
    assert found.at_low_U.tolist() == [0.75, 0.0]
    assert found.at_high_U.tolist() == [0.25, 0.75]
    np.testing.assert_allclose(found.mean_U, gate_TU.mean(0), rtol=1e-6)


@pytest.mark.parametrize("values", [[0.0, 3.0], [-2.0, 0.1], [0.3, 0.3], [0.01, 0.04]])
def test_what_has_no_known_ends_is_not_judged(values: list[float]) -> None:
    saturating = Saturating()
    saturating.add(np.array(values, dtype=np.float32)[:, None])
    assert saturating.found() is None


def test_chances_are_no_gates() -> None:
    """Most of them must be near 0, for all of them together are 1; that says nothing of a model."""
    chance_TU = np.random.default_rng(0).dirichlet(np.full(20, 0.1), size=50).astype(np.float32)
    saturating = Saturating()
    saturating.add(chance_TU[:10])
    saturating.add(chance_TU[10:])
    assert saturating.found() is None
    saturating.add(np.array([[0.5] * 20], dtype=np.float32))
    assert saturating.found() is not None


# What is read is what the model did.


@pytest.mark.parametrize("kind", ["lstm", "gru", "mingru", "ttt_linear", "transformer", "gated_delta"])
def test_a_trace_is_what_a_lens_sees(kind: str) -> None:
    heads = {"heads": 2} if kind in ("ttt_linear", "transformer", "gated_delta") else {}
    model = build(kind, vocab=7, width=8, depth=2, **heads).double()
    tokens_T = torch.randint(7, (40,), generator=torch.Generator().manual_seed(0))
    text = a_text(tokens_T, model, end_id=6)
    found = observable(text)
    assert found.observed
    starts = [0, *[at for at, token in enumerate(tokens_T.tolist()) if token == 6 and at]]
    parts = []
    for begin, stop in zip(starts, [*starts[1:], 40]):
        with torch.no_grad(), lens() as seen:
            model(tokens_T[None, begin:stop])
        parts.append({one.name: torch.stack(seen.seen[one.name]).flatten(1) for one in found.observed})
    chunks = list(trace(text, found.observed, Silent(), chunk=7))
    assert [begin for begin, _ in chunks] == sorted({begin for begin, _ in chunks})
    for one in found.observed:
        whole = np.concatenate([chunk[one.name] for _, chunk in chunks])
        np.testing.assert_allclose(whole, torch.cat([part[one.name] for part in parts]).numpy(), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("row", LINEAGE, ids=lambda row: row.name)
def test_every_family_has_units_to_look_at(row: Ancestor) -> None:
    model = build_sample(row.spec.small(), vocab=128).eval()
    subject = live_subject(model, torch.tensor([*map(ord, TEXT)]), decode=lambda ids: "".join(map(chr, ids)))
    found = apply_lens(subject, "gates", slides=19)
    assert len(found.figures[0].y.categories) >= 1
    found.to_json()


def test_an_update_lowers_the_inner_loss_of_an_online_step() -> None:
    """Before and after are the same loss, at the weights before and after the step: a small step goes down."""
    torch.manual_seed(0)
    model = build("ttt_linear", vocab=9, width=16, heads=2, mini_batch=1, rate=0.1, inner_norm=False).double()
    with torch.no_grad(), lens("*inner_loss*") as seen:
        model(torch.randint(9, (1, 50)))
    assert twins(seen.names) == [("layers.0.ttt.inner_loss", "layers.0.ttt.inner_loss_after")]
    before, after = seen["layers.0.ttt.inner_loss"], seen["layers.0.ttt.inner_loss_after"]
    assert (after < before).all()


def test_the_finding_says_what_it_left_out_and_refuses_unknown_names() -> None:
    model = build("gru", vocab=128, width=8, seed=1)
    text = TEXT * 6
    subject = live_subject(model, torch.tensor([*map(ord, text)]), decode=lambda ids: "".join(map(chr, ids)))
    found = apply_lens(subject, "gates", tokens=300, features=["year=1984", "none=zzz"])
    assert any("300 of" in one for one in found.missing)
    assert any("none" in one for one in found.missing)
    assert {figure.name for figure in found.figures} >= {"gates-features", "gates-saturation"}
    assert found.data["tokens"] == 300
    with pytest.raises(UserError, match="reset_gate"):
        apply_lens(subject, "gates", names="nothing")


def test_features_of_other_scripts() -> None:
    features = {one.name: one.of for one in FEATURES}

    def where(name: str, text: str) -> str:
        return "".join(letter for letter, value in zip(text, features[name](text)) if value)

    assert where("punctuation", "यह किताब है। הַיּוֹם, 你好！") == "।,！"  # marks belong to their letters
    assert where("vowel", "Über ça да ως") == "Ueaаω".replace("U", "Ü", 1)
    assert where("quotes", "a「bc」d „ef“ g «h» i") == "「bc„ef«h"
    assert where("nesting", "《书》（注）x") == "《书（注"
    assert features["sentence position"]("你好。再见").tolist() == [1, 2, 0, 1, 2]
    assert features["word position"]("कि ता").tolist() == [1, 2, 0, 1, 2]


def test_the_name_of_an_end_is_no_text() -> None:
    found = at_pieces(FEATURES, ["ab ", "<end> ", "<unk> "])
    assert not found["punctuation"].any()
    assert not found["word position"][1] > found["word position"][0]
