"""Runs as scikit-learn estimators, by scikit-learn's own checks and tools."""

import pickle
import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from statewise.interop.sklearn import SequenceClassifier, SequenceTagger, SeriesForecaster

QUICK: dict[str, Any] = {"model.width": 8, "train.batch": 8, "train.evaluate_every": 1000}


@pytest.mark.slow
@pytest.mark.parametrize("kind", [SequenceClassifier, SeriesForecaster])
def test_the_checks_of_scikit_learn(kind: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(kind(steps=8, settings=QUICK), on_fail=None)
    assert [one for one in results if one["status"] not in ("passed", "skipped")] == []
    assert len(results) > 40


def test_texts() -> None:
    rows, labels = ["a good film", "a bad film"] * 12, [7, 3] * 12
    model = SequenceClassifier(steps=60, settings={**QUICK, "data.min_count": 1}).fit(rows, labels)
    assert model.predict(["a bad film", "a good film"]).tolist() == [3, 7]
    assert model.predict_proba(rows[:2]).sum(1) == pytest.approx(1)
    again = pickle.loads(pickle.dumps(model))
    del model
    assert np.array_equal(again.predict_proba(rows), again.predict_proba(rows))
    assert again.score(rows, labels) == 1
    with pytest.raises(ValueError, match="24 texts and 3 labels"):
        SequenceClassifier().fit(rows, [1, 2, 3])


def test_numbers_in_a_pipeline_and_a_search() -> None:
    x_NT = np.random.default_rng(0).normal(size=(48, 6))
    up_N = np.where(x_NT.sum(1) > 0, "up", "down")
    model = make_pipeline(StandardScaler(), SequenceClassifier(steps=40, settings={**QUICK, "train.lr": 0.02}))
    assert cross_val_score(model, x_NT, up_N, cv=2).mean() > 0.7
    search = GridSearchCV(SequenceClassifier(settings=QUICK), {"steps": [1, 40]}, cv=2).fit(x_NT, up_N)
    assert search.best_params_ == {"steps": 40}


def test_tags() -> None:
    sentences, tags = [["a", "cat"], ["the", "dog"]] * 8, [["DET", "NOUN"]] * 16
    model = SequenceTagger(steps=30, settings=QUICK).fit(sentences, tags)
    assert model.predict([["the", "cat"]]) == [["DET", "NOUN"]]
    assert model.score(sentences, tags) == 1


def test_windows_of_a_series() -> None:
    windows = np.lib.stride_tricks.sliding_window_view(np.sin(np.arange(200) / 5), 28)
    model = SeriesForecaster(steps=60, settings=QUICK).fit(windows[:140, :24], windows[:140, 24:])
    assert model.predict(windows[150:153, :24]).shape == (3, 4)
    assert model.score(windows[150:, :24], windows[150:, 24:]) > 0.8
    alone = SeriesForecaster(steps=20, settings=QUICK).fit(windows[:, :24], windows[:, 24])
    assert alone.predict(windows[:3, :24]).shape == (3,)
