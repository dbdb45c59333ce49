"""The bag of words against scikit-learn's, and as a row of every evaluation of a text classifier."""

from pathlib import Path

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression

import statewise as sw
from statewise.tasks import bag_of_words
from statewise.tasks.bag_of_words import BAG_OF_WORDS, fit_bag_of_words

NAMES = [f"Word{number}" for number in range(60)]


def texts(count: int, *, classes: int, seed: int = 0) -> tuple[list[str], np.ndarray]:
    """Each class has words it prefers; words come twice, in both cases, with punctuation, and some texts are empty."""
    random = np.random.default_rng(seed)
    label_N = random.integers(0, classes, count)
    made = []
    for label in label_N:
        own = random.choice(NAMES[label::classes], 4)
        any_ = random.choice(NAMES, 6)
        words = [*own, *any_, own[0].lower(), "été"]
        made.append("" if random.random() < 0.02 else ", ".join(random.permutation(words)))
    return made, label_N


@pytest.mark.parametrize("classes", [2, 5])
@pytest.mark.parametrize("limit", [1000, 20])
def test_it_is_the_logistic_regression_of_scikit_learn(
    classes: int, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bag_of_words, "_WORDS", limit)
    train, label_N = texts(300, classes=classes)
    test, _ = texts(50, classes=classes, seed=1)
    test.append("words that nobody has seen")
    mine = fit_bag_of_words(train, label_N, classes=classes, tolerance=1e-10)
    vectors = CountVectorizer(binary=True, token_pattern=r"\w+", vocabulary=dict(mine.words))
    theirs = LogisticRegression(solver="newton-cholesky", tol=1e-12, max_iter=500).fit(
        vectors.transform(train), label_N
    )
    expected = theirs.predict_log_proba(vectors.transform(test))
    np.testing.assert_allclose(mine.log_probabilities(test), expected, atol=1e-6)
    quick = fit_bag_of_words(train, label_N, classes=classes).log_probabilities(test)
    np.testing.assert_allclose(np.exp(quick), np.exp(expected), atol=0.01)
    every = CountVectorizer(binary=True, token_pattern=r"\w+").fit(train)
    assert len(mine.words) == min(limit, len(every.vocabulary_))
    assert mine.words.keys() <= every.vocabulary_.keys()


def test_of_many_texts_some_are_learned_from(monkeypatch: pytest.MonkeyPatch) -> None:
    train, label_N = texts(200, classes=2)
    monkeypatch.setattr(bag_of_words, "_TEXTS", 20)
    some = np.linspace(0, 199, 20).astype(int)
    expected = fit_bag_of_words([train[i] for i in some], label_N[some], classes=2)
    found = fit_bag_of_words(train, label_N, classes=2)
    assert found.words == expected.words
    assert found.log_probabilities(train).tolist() == expected.log_probabilities(train).tolist()


@pytest.mark.parametrize("tokenizer", ["word", "char", "byte"])
def test_every_evaluation_of_texts_has_it(tmp_path: Path, tokenizer: str) -> None:
    train, label_N = texts(200, classes=2)
    test, of_test_N = texts(60, classes=2, seed=1)
    for name, rows, labels in (("train", train, label_N), ("test", test, of_test_N)):
        lines = [f"{'ab'[label]}\t{text or 'nothing'}" for text, label in zip(rows, labels)]
        (tmp_path / f"{name}.tsv").write_text("\n".join(["label\ttext", *lines]) + "\n", encoding="utf-8")
    trained = sw.train(
        "classification",
        data=tmp_path / "train.tsv",
        out=tmp_path / "run",
        settings=[
            f"data.tokenizer={tokenizer}",
            "data.min_count=1",
            "train.steps=2",
            "model.width=4",
            "train.evaluate_every=2",
        ],
    )
    run = sw.load(trained.path)
    found = run.evaluate(tmp_path / "test.tsv")
    assert found.baselines[BAG_OF_WORDS]["accuracy"] > 0.75 > found.accuracy
    report = found.report("tiny")
    assert [row[0] for row in report.rows[1:3]] == ["tiny", BAG_OF_WORDS]
    assert f"tiny is worse than {BAG_OF_WORDS}" in report.warning
    assert run.evaluate().baselines.keys() == {BAG_OF_WORDS}
    (tmp_path / "train.tsv").unlink()
    assert run.evaluate(tmp_path / "test.tsv").baselines == {}
