"""Runs as scikit-learn estimators: `fit`, `predict`, `score`, in pipelines, grid searches and cross-validation."""

import shutil
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from statewise.disk import write
from statewise.specs import UserError
from statewise.tasks import load, train
from statewise.training import make_display

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError:
    raise UserError("scikit-learn is not installed", fix="pip install scikit-learn") from None


class _Estimator(BaseEstimator):  # type: ignore[misc]  # it has no types
    """A recipe with settings, trained in a folder of its own; `run_` is the trained run.

    `settings` are those of `sw.train`. `out` keeps the run; without it the folder goes with the estimator. A pickled
    estimator holds the files of its run.
    """

    _task: str

    def __init__(
        self,
        recipe: str | None = None,
        *,
        settings: Mapping[str, Any] | None = None,
        steps: int | None = None,
        seed: int = 0,
        device: str = "cpu",
        out: str | None = None,
    ) -> None:
        self.recipe = recipe
        self.settings = settings
        self.steps = steps
        self.seed = seed
        self.device = device
        self.out = out

    def _train(self, data: Any, **more: Any) -> None:
        path = self._new_folder() if self.out is None else Path(self.out)
        train(
            self.recipe or self._task,
            data=data,
            settings={**more, **(self.settings or {})},
            steps=self.steps,
            seed=self.seed,
            device=self.device,
            out=path,
            display=make_display(quiet=True),
        )
        self.run_: Any = load(path, device=self.device)

    def _new_folder(self) -> Path:
        """It is removed with the estimator."""
        path = tempfile.mkdtemp(prefix="statewise-")
        weakref.finalize(self, shutil.rmtree, path, ignore_errors=True)
        return Path(path) / "run"

    def __getstate__(self) -> dict[str, Any]:
        state = {name: value for name, value in vars(self).items() if name != "run_"}
        if hasattr(self, "run_"):
            every = (path for path in self.run_.path.iterdir() if path.is_file() and path.name != ".lock")
            state["_files"] = {path.name: path.read_bytes() for path in every}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        files = state.pop("_files", None)
        self.__dict__.update(state)
        if files is not None:
            path = self._new_folder()
            path.mkdir()
            for name, content in files.items():
                write(path / Path(name).name, content)
            self.run_ = load(path, device=self.device)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "run_")


def _numeric(x: Any) -> bool:
    """Arrays are numbers; a list of strings is text."""
    return not (isinstance(x, Sequence) and not isinstance(x, str) and len(x) > 0 and isinstance(x[0], str))


class SequenceClassifier(ClassifierMixin, _Estimator):  # type: ignore[misc]
    """Texts, or rows of numbers `[N, T]` or `[N, T, C]`, to classes.

    >>> from statewise.interop.sklearn import SequenceClassifier
    >>> model = SequenceClassifier(steps=60, settings={"data.min_count": 1, "model.width": 16})
    >>> model.fit(["good film", "bad film"] * 10, ["pos", "neg"] * 10).predict(["good film"])
    array(['pos'], dtype='<U3')
    """

    _task = "classification"

    def fit(self, X: Any, y: Any) -> Self:
        if not _numeric(X):
            rows, labels = list(X), np.asarray(y)
            if len(rows) != len(labels):
                raise ValueError(f"{len(rows)} texts and {len(labels)} labels")
        else:
            rows, labels = validate_data(self, X, y, dtype=np.float64, allow_nd=True)
        check_classification_targets(labels)
        self.classes_, number_N = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError("Classifier can't train when only one class is present.")
        names = [str(number) for number in number_N]  # classes of any type come back as they were
        data = (rows, names) if _numeric(X) else list(zip(rows, names, strict=True))
        self._train(data)
        return self

    def predict_proba(self, X: Any) -> np.ndarray[Any, Any]:
        check_is_fitted(self)
        rows = validate_data(self, X, dtype=np.float64, allow_nd=True, reset=False) if _numeric(X) else list(X)
        order = [str(number) for number in range(len(self.classes_))]
        every = [row["probabilities"] for row in self.run_.predict_rows(rows)]
        return np.array([[row.get(name, 0.0) for name in order] for row in every])

    def predict(self, X: Any) -> np.ndarray[Any, Any]:
        chosen_N = self.predict_proba(X).argmax(-1)
        classes: np.ndarray[Any, Any] = self.classes_[chosen_N]
        return classes

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.classifier_tags.poor_score = True  # a few steps on a few rows promise nothing
        return tags


class SequenceTagger(_Estimator):
    """Lists of tokens to lists of tags; `score` is the share of tokens that are right.

    >>> from statewise.interop.sklearn import SequenceTagger
    >>> model = SequenceTagger(steps=30, settings={"model.width": 16})
    >>> model.fit([["a", "cat"], ["the", "dog"]] * 8, [["DET", "NOUN"]] * 16).predict([["the", "cat"]])
    [['DET', 'NOUN']]
    """

    _task = "tagging"

    def fit(self, X: Sequence[Sequence[str]], y: Sequence[Sequence[str]]) -> Self:
        if len(X) != len(y):
            raise ValueError(f"{len(X)} sentences and {len(y)} lists of tags")
        self._train([(list(tokens), list(tags)) for tokens, tags in zip(X, y)])
        return self

    def predict(self, X: Sequence[Sequence[str]]) -> list[list[str]]:
        check_is_fitted(self)
        return [list(tags) for tags in self.run_.predict([list(tokens) for tokens in X])]

    def score(self, X: Sequence[Sequence[str]], y: Sequence[Sequence[str]]) -> float:
        right = [a == b for predicted, truth in zip(self.predict(X), y, strict=True) for a, b in zip(predicted, truth)]
        return float(np.mean(right))


class SeriesForecaster(RegressorMixin, _Estimator):  # type: ignore[misc]
    """Windows of the past `[N, T]` to the next values `[N, K]`; `score` is R², as of every regressor.

    `fit` takes windows and what followed them; `forecast.context` and `forecast.horizon` are read off their shapes.

    >>> from statewise.interop.sklearn import SeriesForecaster
    >>> wave = np.sin(np.arange(200) / 5)
    >>> windows = np.lib.stride_tricks.sliding_window_view(wave, 28)
    >>> model = SeriesForecaster(steps=60, settings={"model.width": 16, "train.batch": 8})
    >>> model.fit(windows[:, :24], windows[:, 24:]).predict(windows[:3, :24]).shape
    (3, 4)
    """

    _task = "forecasting"

    def fit(self, X: Any, y: Any) -> Self:
        past_NT, next_NK = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True)
        self._flat = next_NK.ndim == 1
        next_NK = next_NK.reshape(len(past_NT), -1)
        if len(past_NT) < 3:
            raise ValueError(f"n_samples={len(past_NT)}: at least 3 windows are needed")
        held = max(1, len(past_NT) // 20)  # for the choice of the weights, and for the run's own test
        rows = np.concatenate([past_NT, next_NK], axis=1)
        self._train(
            [row[:, None] for row in rows],
            **{
                "forecast.context": past_NT.shape[1],
                "forecast.horizon": next_NK.shape[1],
                "data.split": f"whole:{len(rows) - 2 * held}/{held}/{held}",
                "data.scaling": "pooled",
            },
        )
        return self

    def predict(self, X: Any) -> np.ndarray[Any, Any]:
        check_is_fitted(self)
        past_NT = validate_data(self, X, dtype=np.float64, reset=False)
        ahead = np.stack([np.asarray(self.run_.predict(row[:, None])) for row in past_NT])[..., 0]
        return ahead[:, 0] if self._flat else ahead

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        tags.target_tags.multi_output = True
        return tags
