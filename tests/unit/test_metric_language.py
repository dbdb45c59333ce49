"""Metrics of labels, spans and translations, beside the libraries that define them."""

import math

import nltk
import numpy as np
import pytest
import sacrebleu
from hypothesis import given, settings
from hypothesis import strategies as st
from seqeval.metrics import f1_score, precision_score, recall_score
from sklearn import metrics as sklearn

from statewise.specs import UserError
from statewise.tasks.metric import label, metric_of, perplexity, span, translation

HYPOTHESES = ["The cat sat on the mat .", "A dog barks at the tall man .", "two birds"]
REFERENCES = ["the cat sat on a mat .", "A dog barks at the man .", "Two birds"]


# Translation.


def test_bleu_chrf_and_ter_are_those_of_sacrebleu() -> None:
    assert translation.bleu(HYPOTHESES, REFERENCES).value == sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES]).score
    assert translation.chrf(HYPOTHESES, REFERENCES) == sacrebleu.corpus_chrf(HYPOTHESES, [REFERENCES]).score
    assert translation.ter(HYPOTHESES, REFERENCES) == sacrebleu.corpus_ter(HYPOTHESES, [REFERENCES]).score


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
    assert translation.token_error_rate(["a b x d e"], ["a b c d"]) == 50
    moved = (["b c d a"], ["a b c d"])
    assert translation.token_error_rate(*moved) == 50
    assert translation.ter(*moved) == 25
    assert translation.token_error_rate(["a B"], ["a b"]) == 50
    near = translation.token_error_rate(["a b", "c"], ["a b c d", "x"], more_references=[["a b", "c"]])
    assert near == 0
    apart = translation.token_error_rate(["a b", "c"], ["a b c d", "x"], more_references=[["z z z", "y z"]])
    assert apart == pytest.approx(100 * (2 + 1) / (3.5 + 1.5))


def test_every_score_takes_more_references() -> None:
    one = translation.translation_scores(HYPOTHESES, REFERENCES)
    two = translation.translation_scores(HYPOTHESES, REFERENCES, more_references=[HYPOTHESES])
    assert (two.bleu, two.chrf, two.ter, two.token_error_rate, two.exact) == (pytest.approx(100), 100, 0, 0, 1)
    for name in set(one._fields) - {"signature"}:
        sign = 1 if metric_of(name).better == "higher" else -1
        assert sign * getattr(two, name) >= sign * getattr(one, name), name


def test_exact_match_and_all_scores_together() -> None:
    assert translation.exact_match(["I_JUMP  I_RUN", "I_RUN", ""], ["I_JUMP I_RUN", "i_run", ""]) == 2 / 3
    scores = translation.translation_scores(HYPOTHESES, REFERENCES)
    assert scores.bleu == translation.bleu(HYPOTHESES, REFERENCES).value
    assert scores.bleu_tokenised_lower == translation.tokenised_bleu(HYPOTHESES, REFERENCES).value
    assert scores.exact == 0
    quick = translation.quick_scores(HYPOTHESES, REFERENCES)
    assert quick == {"bleu": scores.bleu, "exact": scores.exact}


def test_lines_must_go_together() -> None:
    with pytest.raises(UserError, match="1 predicted lines, but 3 true ones"):
        translation.bleu(["a"], REFERENCES)
    with pytest.raises(UserError, match="no lines"):
        translation.exact_match([], [])
    with pytest.raises(UserError, match="reference 1 is one text"):
        translation.chrf(["a"], "a")


# Labels.


def test_labels_by_scikit_learn() -> None:
    true = ["a", "b", "a", "c", "a", "new"]
    predicted = ["a", "a", "a", "c", "b", "b"]
    scores = label.label_scores(true, predicted, names=["c", "a", "b", "never"])
    assert scores.accuracy == sklearn.accuracy_score(true, predicted)
    assert scores.macro_f1 == pytest.approx(
        sklearn.f1_score(true, predicted, average="macro", zero_division=0.0), rel=1e-14
    )
    order = ["c", "a", "b", "never", "new"]
    assert scores.labels == list(scores.per_class) == order
    np.testing.assert_array_equal(scores.confusion, sklearn.confusion_matrix(true, predicted, labels=order))
    assert np.sum(scores.confusion) == len(true), "no row is lost"
    assert scores.per_class["a"]["precision"] == pytest.approx(2 / 3)
    assert scores.per_class["a"]["recall"] == pytest.approx(2 / 3)
    assert scores.per_class["never"]["f1"] == 0
    assert scores.per_class["new"]["count"] == 1


LABELS = st.sampled_from(["a", "b", "c", "never predicted"])


@given(st.lists(st.tuples(LABELS, LABELS), min_size=1, max_size=30), st.booleans())
def test_labels_are_counted_as_scikit_learn_counts_them(pairs: list[tuple[str, str]], named: bool) -> None:
    true, predicted = ([pair[side] for pair in pairs] for side in (0, 1))
    names = ["c", "a", "other"] if named else []
    scores = label.label_scores(true, predicted, names=names)
    order = scores.labels
    assert set(order) == {*names, *true, *predicted}
    table = sklearn.precision_recall_fscore_support(true, predicted, labels=order, zero_division=0.0)
    found = [[scores.per_class[name][field] for name in order] for field in ("precision", "recall", "f1", "count")]
    np.testing.assert_allclose(found, table, rtol=1e-14)
    if len(order) > 1:  # of a single label scikit-learn warns that there may be more
        np.testing.assert_array_equal(scores.confusion, sklearn.confusion_matrix(true, predicted, labels=order))
    macro = sklearn.f1_score(true, predicted, average="macro", zero_division=0.0)
    assert scores.macro_f1 == pytest.approx(macro, rel=1e-14)


# Spans.

TRUE = [["B-X", "I-X", "O", "B-Y"], ["O", "B-X"]]


def test_spans_count_whole() -> None:
    found = [["B-X", "O", "O", "B-Y"], ["O", "B-X"]]
    scores = span.measure(TRUE, found)
    assert (scores.precision, scores.recall, scores.f1) == pytest.approx((2 / 3, 2 / 3, 2 / 3))


def test_a_stray_inside_begins_a_span() -> None:
    assert span.measure(TRUE, [["I-X", "I-X", "O", "B-Y"], ["O", "B-X"]]).f1 == 1


TAGS = st.sampled_from(["O", *(f"{mark}-{kind}" for mark in "BIES" for kind in ("X", "Y-Z"))])


@given(st.lists(st.lists(st.tuples(TAGS, TAGS), min_size=1, max_size=12), min_size=1, max_size=4))
def test_spans_are_counted_as_seqeval_counts_them(rows: list[list[tuple[str, str]]]) -> None:
    true, found = ([[pair[side] for pair in row] for row in rows] for side in (0, 1))
    scores = span.measure(true, found)
    expected = [score(true, found, zero_division=0) for score in (precision_score, recall_score, f1_score)]
    assert [scores.precision, scores.recall, scores.f1] == pytest.approx(expected, rel=1e-14)


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
    assert span.measure([["O"]], [["O"]]).f1 == 0


def test_spans_refuse_what_they_cannot_count() -> None:
    with pytest.raises(UserError, match="tag 'NOUN' of predicted row 1"):
        span.measure(TRUE, [TRUE[0], ["O", "NOUN"]])
    with pytest.raises(UserError, match="row 1 has 1 predicted tags, but 2"):
        span.measure(TRUE, [TRUE[0], ["O"]])


def test_a_perplexity_is_never_too_large_for_a_float() -> None:
    assert perplexity(math.log(4)) == pytest.approx(4)
    assert perplexity(1e5) == math.inf
