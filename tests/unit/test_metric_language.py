"""Metrics of labels, spans, translations and probabilities, beside the libraries that define them."""

import math

import nltk
import numpy as np
import pytest
import sacrebleu
from hypothesis import given, settings
from hypothesis import strategies as st
from seqeval.metrics import f1_score, precision_score, recall_score
from sklearn import metrics as sklearn
from sklearn.calibration import calibration_curve

from statewise.specs import UserError
from statewise.tasks.metric import Score, label, metric_of, probability, rank, span, translation

HYPOTHESES = ["The cat sat on the mat .", "A dog barks at the tall man .", "two birds"]
REFERENCES = ["the cat sat on a mat .", "A dog barks at the man .", "Two birds"]


# Translation.


def test_bleu_chrf_and_ter_are_those_of_sacrebleu() -> None:
    assert translation.bleu(HYPOTHESES, REFERENCES).value == sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES]).score
    assert translation.chrf(HYPOTHESES, REFERENCES).value == sacrebleu.corpus_chrf(HYPOTHESES, [REFERENCES]).score
    ter = translation.ter(HYPOTHESES, REFERENCES)
    assert ter.value == sacrebleu.corpus_ter(HYPOTHESES, [REFERENCES]).score
    assert ter.higher_is_better is False


def test_tokenised_bleu_looks_at_blanks_and_case_alone() -> None:
    lower = translation.tokenised_bleu(HYPOTHESES, REFERENCES)
    plain = sacrebleu.corpus_bleu(
        [h.lower() for h in HYPOTHESES], [[r.lower() for r in REFERENCES]], tokenize="none", force=True
    )
    assert lower.value == pytest.approx(plain.score, rel=1e-14)
    assert "case:lc" in lower.signature
    assert "tok:none" in lower.signature
    cased = translation.tokenised_bleu(HYPOTHESES, REFERENCES, lower=False)
    assert cased.value < lower.value
    assert "case:mixed" in cased.signature
    assert "tok:13a" in translation.bleu(HYPOTHESES, REFERENCES).signature


def test_more_references_help_and_are_in_the_signature() -> None:
    more = translation.bleu(HYPOTHESES, REFERENCES, more_references=[HYPOTHESES])
    assert more.value == pytest.approx(100)
    assert "nrefs:2" in more.signature


@settings(deadline=None)
@given(*[st.lists(st.sampled_from("abc"), max_size=8)] * 2)
def test_token_edits_are_those_of_nltk(one: list[str], other: list[str]) -> None:
    assert translation.levenshtein(one, other) == nltk.edit_distance(one, other)


def test_the_token_error_rate_counts_edits_for_a_hundred_words() -> None:
    """Capitals count; a move costs two edits, and one in TER; of several references the nearest counts."""
    assert translation.token_error_rate(["a b x d e"], ["a b c d"]).value == 50
    moved = (["b c d a"], ["a b c d"])
    assert translation.token_error_rate(*moved).value == 50
    assert translation.ter(*moved).value == 25
    assert translation.token_error_rate(["a B"], ["a b"]).value == 50
    near = translation.token_error_rate(["a b", "c"], ["a b c d", "x"], more_references=[["a b", "c"]])
    assert (near.value, near.higher_is_better) == (0, False)
    apart = translation.token_error_rate(["a b", "c"], ["a b c d", "x"], more_references=[["z z z", "y z"]])
    assert apart.value == pytest.approx(100 * (2 + 1) / (3.5 + 1.5))


def test_every_score_takes_more_references() -> None:
    one = translation.translation_scores(HYPOTHESES, REFERENCES)
    two = translation.translation_scores(HYPOTHESES, REFERENCES, more_references=[HYPOTHESES])
    assert (two.bleu, two.chrf, two.ter, two.token_error_rate, two.exact) == (pytest.approx(100), 100, 0, 0, 1)
    for name in set(one._fields) - {"signature"}:
        sign = 1 if metric_of(name).better == "higher" else -1
        assert sign * getattr(two, name) >= sign * getattr(one, name), name


def test_exact_match_and_all_scores_together() -> None:
    assert translation.exact_match(["I_JUMP  I_RUN", "I_RUN", ""], ["I_JUMP I_RUN", "i_run", ""]).value == 2 / 3
    scores = translation.translation_scores(HYPOTHESES, REFERENCES)
    assert scores.bleu == translation.bleu(HYPOTHESES, REFERENCES).value
    assert scores.bleu_tokenised_lower == translation.tokenised_bleu(HYPOTHESES, REFERENCES).value
    assert scores.exact == 0
    quick = translation.quick_scores(HYPOTHESES, REFERENCES)
    assert (quick.bleu, quick.exact) == (scores.bleu, scores.exact)


def test_lines_must_go_together() -> None:
    with pytest.raises(UserError, match="1 predicted lines, but 3 true ones"):
        translation.bleu(["a"], REFERENCES)
    with pytest.raises(UserError, match="no lines"):
        translation.exact_match([], [])
    with pytest.raises(UserError, match="reference 1 is one text"):
        translation.chrf(["a"], "a")


# Ranking.


def test_ranks_only_what_compares() -> None:
    good, bad = Score("TER", 20.0, False, "x", 3), Score("TER", 50.0, False, "x", 3)
    assert rank({"b": bad, "g": good}) == ["g", "b"]
    assert rank({"b": bad._replace(higher_is_better=True), "g": good._replace(higher_is_better=True)}) == ["b", "g"]
    bleus = {
        "a": translation.bleu(HYPOTHESES, REFERENCES),
        "b": translation.tokenised_bleu(HYPOTHESES, REFERENCES),
    }
    with pytest.raises(UserError, match=r"b was measured by tokenised BLEU .* do not compare"):
        rank(bleus)
    with pytest.raises(UserError, match="on 4"):
        rank({"g": good, "b": bad._replace(count=4)})
    with pytest.raises(UserError, match="no better or worse"):
        rank({"c": Score("coverage", 0.9, None, "", 1)})
    with pytest.raises(UserError, match="not a number"):
        rank({"n": good._replace(value=math.nan)})
    assert rank({}) == []


# Labels.


def test_labels_by_scikit_learn() -> None:
    true = ["a", "b", "a", "c", "a", "new"]
    predicted = ["a", "a", "a", "c", "b", "b"]
    scores = label.measure(true, predicted, names=["c", "a", "b", "never"])
    assert scores.accuracy.value == sklearn.accuracy_score(true, predicted)
    assert scores.macro_f1.value == pytest.approx(
        sklearn.f1_score(true, predicted, average="macro", zero_division=0.0), rel=1e-14
    )
    order = ["c", "a", "b", "never", "new"]
    assert [one.label for one in scores.labels] == order
    np.testing.assert_array_equal(scores.confusion_KK, sklearn.confusion_matrix(true, predicted, labels=order))
    assert scores.confusion_KK.sum() == len(true), "no row is lost"
    by_name = {one.label: one for one in scores.labels}
    assert by_name["a"].precision == pytest.approx(2 / 3)
    assert by_name["a"].recall == pytest.approx(2 / 3)
    assert by_name["never"].f1 == 0
    assert by_name["new"].count == 1
    plain = label.label_scores(true, predicted, names=["c", "a", "b", "never"])
    assert (plain.accuracy, plain.macro_f1) == (scores.accuracy.value, scores.macro_f1.value)
    assert plain.confusion == scores.confusion_KK.tolist()
    assert plain.labels == list(plain.per_class) == order


LABELS = st.sampled_from(["a", "b", "c", "never predicted"])


@given(st.lists(st.tuples(LABELS, LABELS), min_size=1, max_size=30), st.booleans())
def test_labels_are_counted_as_scikit_learn_counts_them(pairs: list[tuple[str, str]], named: bool) -> None:
    true, predicted = ([pair[side] for pair in pairs] for side in (0, 1))
    names = ["c", "a", "other"] if named else []
    scores = label.measure(true, predicted, names=names)
    order = [one.label for one in scores.labels]
    assert set(order) == {*names, *true, *predicted}
    table = sklearn.precision_recall_fscore_support(true, predicted, labels=order, zero_division=0.0)
    found = [[getattr(one, field) for one in scores.labels] for field in ("precision", "recall", "f1", "count")]
    np.testing.assert_allclose(found, table, rtol=1e-14)
    if len(order) > 1:  # of a single label scikit-learn warns that there may be more
        np.testing.assert_array_equal(scores.confusion_KK, sklearn.confusion_matrix(true, predicted, labels=order))
    macro = sklearn.f1_score(true, predicted, average="macro", zero_division=0.0)
    assert scores.macro_f1.value == pytest.approx(macro, rel=1e-14)


# Spans.

TRUE = [["B-X", "I-X", "O", "B-Y"], ["O", "B-X"]]


def test_spans_count_whole() -> None:
    found = [["B-X", "O", "O", "B-Y"], ["O", "B-X"]]
    scores = span.measure(TRUE, found)
    assert (scores.precision, scores.recall, scores.f1.value) == pytest.approx((2 / 3, 2 / 3, 2 / 3))
    assert scores.token_accuracy.value == pytest.approx(5 / 6)


def test_a_stray_inside_begins_a_span() -> None:
    assert span.measure(TRUE, [["I-X", "I-X", "O", "B-Y"], ["O", "B-X"]]).f1.value == 1


TAGS = st.sampled_from(["O", *(f"{mark}-{kind}" for mark in "BIES" for kind in ("X", "Y-Z"))])


@given(st.lists(st.lists(st.tuples(TAGS, TAGS), min_size=1, max_size=12), min_size=1, max_size=4))
def test_spans_are_counted_as_seqeval_counts_them(rows: list[list[tuple[str, str]]]) -> None:
    true, found = ([[pair[side] for pair in row] for row in rows] for side in (0, 1))
    scores = span.measure(true, found)
    expected = [score(true, found, zero_division=0) for score in (precision_score, recall_score, f1_score)]
    assert [scores.precision, scores.recall, scores.f1.value] == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize(
    ("true", "found"),
    [
        (["B-A", "E-A", "S-A", "O", "S-B"], ["B-A", "E-A", "O", "O", "S-B"]),
        (["B-A", "L-A", "U-A", "O", "U-B"], ["B-A", "L-A", "O", "O", "U-B"]),
    ],
)
def test_spans_end_where_iobes_and_bilou_say(true: list[str], found: list[str]) -> None:
    """Two of three spans are found; read as IOB1 the first two would be one."""
    assert span.marks_spans(true)
    scores = span.measure([true], [found])
    assert (scores.precision, scores.recall) == (1.0, pytest.approx(2 / 3))


@pytest.mark.parametrize("names", [["O"], ["NOUN", "O"], ["B-A", "L-A", "E-A"], ["O", "B-"]])
def test_other_tags_mark_no_spans(names: list[str]) -> None:
    assert not span.marks_spans(names)


def test_no_span_anywhere_is_no_crash() -> None:
    assert span.measure([["O"]], [["O"]]).f1.value == 0


def test_spans_refuse_what_they_cannot_count() -> None:
    with pytest.raises(UserError, match="tag 'NOUN' of predicted row 1"):
        span.measure(TRUE, [TRUE[0], ["O", "NOUN"]])
    with pytest.raises(UserError, match="row 1 has 1 predicted tags, but 2"):
        span.token_accuracy(TRUE, [TRUE[0], ["O"]])
    assert span.token_accuracy([["NOUN", "VERB"]], [["NOUN", "NOUN"]]).value == 0.5


# Probabilities.


def test_surprise_in_three_units() -> None:
    scores = probability.surprise(10 * math.log(4), 10, per="byte")
    assert scores.bits.value == pytest.approx(2)
    assert scores.perplexity.value == pytest.approx(4)
    assert scores.nats.signature == "per:byte"
    assert probability.surprise(1e6, 1, per="byte").perplexity.value == math.inf
    with pytest.raises(UserError, match="no frame"):
        probability.surprise(0.0, 0, per="frame")


@pytest.mark.parametrize("bins", [1, 5, 15])
def test_calibration_error_from_the_curve_of_scikit_learn(bins: int) -> None:
    generator = np.random.default_rng(0)
    confidence = generator.uniform(size=500)
    correct = generator.uniform(size=500) < confidence**2
    share, mean = calibration_curve(correct, confidence, n_bins=bins)
    count = np.histogram(confidence, bins=np.linspace(0, 1, bins + 1))[0]
    expected = (np.abs(share - mean) * count[count > 0]).sum() / 500
    assert probability.calibration_error(confidence, correct, bins=bins).value == pytest.approx(expected, rel=1e-12)


def test_calibration_at_the_ends_and_of_logits() -> None:
    assert probability.calibration_error([1.0, 0.0], [True, False]).value == 0
    with pytest.raises(UserError, match="not logits"):
        probability.calibration_error([3.0], [True])
    with pytest.raises(UserError, match="shapes"):
        probability.calibration_error([0.5, 0.5], [True])
