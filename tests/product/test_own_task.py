"""A seventh task, as docs/adding-a-task.md describes it: regression, a row of text and one number.

Its parts are registered for these tests alone. Everything else is the package: nothing in it knows this task.
"""

import contextlib
import copy
import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Union, get_args

import numpy as np
import pytest
import torch
from command import call
from torch import Tensor

import statewise as sw
from statewise.core import Machine
from statewise.data import Data, Tokenizer, as_files, memory_source, pad, read_labelled, read_texts
from statewise.data.memory_text import labelled_file
from statewise.data.ragged import RaggedBatches
from statewise.decoding import Sampling
from statewise.inspection import LENSES
from statewise.models import Classifier, build_classifier, measured, row_flops
from statewise.specs import AnyMixerSpec, LabelledDataSpec, LSTMSpec, ReaderSpec, RunSpec, parse
from statewise.tasks import PredictingRun, dispatch, launch
from statewise.tasks.folder import Opened, fingerprint
from statewise.tasks.job import Job, Opening, Trivial
from statewise.tasks.metric import directions
from statewise.tasks.report import Report, of_this_run, shows_report, worse_than_trivial
from statewise.tasks.run import named
from statewise.tasks.specimen import (
    Courses,
    Poll,
    ReaderParts,
    Specimen,
    Specimens,
    Words,
    places_before_the_end,
    position,
)
from statewise.training import Better, Payload, Window

# ------------------------------------------------------------------------- the settings


class RegressionSpec(RunSpec):
    main_data: ClassVar[str] = "data.train"

    task: Literal["regression"] = "regression"
    data: LabelledDataSpec = LabelledDataSpec()
    model: AnyMixerSpec = LSTMSpec(width=64)
    reader: ReaderSpec = ReaderSpec()

    @property
    def loss_name(self) -> str:
        return "mse"

    @property
    def name(self) -> str:
        return f"{self.model.known_as}-regression"


# ------------------------------------------------------------------------- the job


class Rows(NamedTuple):
    ids: list[np.ndarray[Any, Any]]
    value_N: Tensor

    def batch(self, index: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
        ids_BT, length_B = pad([self.ids[at] for at in index])
        return ids_BT, length_B, self.value_N[list(index)]


def read_rows(paths: Sequence[str]) -> list[tuple[str, float]]:
    return [(row.text, float(row.label)) for row in read_labelled(list(paths))]


def encoded(tokenizer: Tokenizer, rows: Sequence[tuple[str, float]]) -> Rows:
    return Rows([np.asarray(tokenizer.encode(text)) for text, _ in rows], torch.tensor([value for _, value in rows]))


def built(spec: RegressionSpec, tokenizer: Tokenizer) -> Classifier:
    return build_classifier(spec.model, spec.reader, num_classes=1, vocab=tokenizer.vocab, seed=spec.seed)


class RegressionJob(Job):
    question = ("train", "held_out")

    spec: RegressionSpec

    def __init__(self, spec: RegressionSpec, tokenizer: Tokenizer | None) -> None:
        rows = read_rows(spec.data.train)
        held = max(1, round(spec.data.held_out * len(rows)))
        self.spec = spec
        self.tokenizer = tokenizer or Tokenizer.train("word", [text for text, _ in rows[held:]])
        self.held, self.rows = (encoded(self.tokenizer, part) for part in (rows[:held], rows[held:]))
        self.sha256 = fingerprint([text for text, _ in rows])
        lengths = np.array([len(one) for one in self.rows.ids])
        self._batches = RaggedBatches(lengths, batch=spec.train.batch, seed=spec.seed, rank=0, world=1)

    @classmethod
    def open(cls, spec: RegressionSpec, opening: Opening) -> "RegressionJob":
        kept = opening.kept
        return cls(spec, None if kept is None else Tokenizer.load(kept / "tokenizer.json")).of_checkpoint(kept)

    @property
    def judges(self) -> Mapping[str, Better]:
        return directions("mse")

    def build(self) -> Classifier:
        return built(self.spec, self.tokenizer)

    def window(self, step: int) -> Window:
        index = self._batches.at(step)
        content = self.rows.batch(index.tolist())
        return Window(len(index), 1, True, content, weight=float(len(index)), tokens=int(content[1].sum()))

    def loss(self, model: Any, window: Window, some: slice, times: slice, state: Any) -> tuple[Tensor, Any]:
        ids_BT, length_B, value_B = (part[some] for part in window.content)
        return (model(ids_BT, length_B)[:, 0] - value_B).square().sum(), state

    @torch.no_grad()
    def evaluate(self, model: Any, poll: Callable[[], None]) -> dict[str, float]:
        poll()
        return {"mse": squared_error(model, self.held)}

    def identity(self) -> dict[str, Payload]:
        return {"tokenizer.json": self.tokenizer.to_json(), "data.sha256": self.sha256}

    def flops_per_token(self) -> float:
        flops = measured(self.build, row_flops)
        return sum(flops(len(one)) for one in self.rows.ids) / sum(map(len, self.rows.ids))

    def headline(self) -> str:
        return f"{self.spec.model.known_as} on {len(self.rows.ids)} rows"

    def facts(self) -> dict[str, Any]:
        return {"data": {"rows": len(self.rows.ids), "sha256": self.sha256}}

    def trivial(self) -> Trivial:
        return Trivial("the mean", "mse", float((self.held.value_N - self.rows.value_N.mean()).square().mean()))


def squared_error(model: Any, rows: Rows) -> float:
    ids_BT, length_B, value_B = rows.batch(range(len(rows.ids)))
    return float((model(ids_BT, length_B)[:, 0] - value_B).square().mean())


# ------------------------------------------------------------------------- the run


@shows_report
class RegressionEvaluation(NamedTuple):
    mse: float
    mean_mse: float  # of always answering the mean
    rows: int

    def report(self, name: str) -> Report:
        rows = ((name, f"{self.mse:.4f}"), ("the mean", f"{self.mean_mse:.4f}"))
        warning = worse_than_trivial(name, "mse", self.mse, {"the mean": self.mean_mse})
        return Report(("squared error",), rows, own=0, note=f"{self.rows} rows", warning=warning)


class RegressionSpecimens(Specimens):
    words = Words(
        "token", "row", "squared error", "tokens before the end of the row", "token", text=True, classes=False
    )
    has_truth = True

    def __init__(self, model: Classifier, rows: Rows, tokenizer: Tokenizer, *, source: str) -> None:
        self.model, self.source, self._rows, self._tokenizer = model, source, rows, tokenizer

    def __len__(self) -> int:
        return len(self._rows.ids)

    def length(self, number: int) -> int:
        return len(self._rows.ids[number])

    def precise(self) -> "RegressionSpecimens":
        made = copy.copy(self)
        made.model = copy.deepcopy(self.model).double()
        return made

    def at(self, number: int) -> Specimen:
        parts, ids_T = ReaderParts(self.model.reader), self._rows.ids[number]
        with torch.no_grad():
            x_TE = self.model.reader.entry(torch.from_numpy(ids_T)[None])[0]

        def answer(y_NTC: Tensor, x_NTE: Tensor) -> Tensor:
            value_N1: Tensor = self.model.head(parts.encoded(y_NTC).summary_BC)
            return value_N1[:, None]

        return Specimen(
            name=f"row {number}",
            pieces=tuple(self._tokenizer.decode([int(one)]) for one in ids_T),
            x_TE=x_TE,
            enter=parts.enter,
            read=parts.read,
            judge=lambda y, x: (answer(y, x)[:, :, 0] - self._rows.value_N[number]).square(),
            answer=answer,
            questions=("the number",),
            distance=places_before_the_end(len(ids_T)),
            machine=parts.machine,
            readers=parts.readers,
            signals={"position": position(len(ids_T))},
        )

    @torch.no_grad()
    def answers(self, poll: Poll) -> Courses:
        ids_BT, length_B, value_B = self._rows.batch(range(len(self)))
        loss_W1 = (self.model(ids_BT, length_B)[:, :1] - value_B[:, None]).square().double().numpy()
        index = np.arange(len(self))
        return Courses(loss_W1, "squared error", None, index, index)


class RegressionRun(PredictingRun):
    _evaluation = RegressionEvaluation

    spec: RegressionSpec
    model: Classifier

    def _open(self, opened: Opened) -> Classifier:
        self.tokenizer = Tokenizer.load(opened.verified / "tokenizer.json")
        return opened.model(lambda: built(self.spec, self.tokenizer))

    def sizes(self) -> dict[str, Any]:
        return self.spec.model.sizes()

    @property
    def machine(self) -> Machine[Any] | None:
        return self.model.reader.layers.machine

    def _held(self, data: Data | None) -> Rows:
        if data is None:
            return RegressionJob(self.spec, self.tokenizer).held
        with as_files(self.spec, data) as files:
            return encoded(self.tokenizer, read_rows(files.paths))

    @of_this_run
    @torch.no_grad()
    def evaluate(self, data: Data | None = None) -> RegressionEvaluation:
        rows = self._held(data)
        mean = RegressionJob(self.spec, self.tokenizer).rows.value_N.mean()
        trivial = float((rows.value_N - mean).square().mean())
        return RegressionEvaluation(squared_error(self.model, rows), trivial, len(rows.ids))

    @torch.no_grad()
    def _value(self, text: str) -> float:
        return float(self.model(torch.from_numpy(np.asarray(self.tokenizer.encode(text)))[None])[0, 0])

    def _rows(self, paths: Sequence[str], data: LabelledDataSpec) -> Iterator[dict[str, Any]]:
        for path in paths:
            for row in read_texts(path):
                yield {"file": path, "line": row.where.line, "text": row.text, "value": self._value(row.text)}

    def _answer(self, row: Mapping[str, Any]) -> float:
        return float(row["value"])

    def predict_lines(self, data: str | Path | Sequence[str | Path]) -> Iterator[str]:
        return (f"{row['value']:.6g}" for row in self._rows(named(data), self.spec.data))

    def _generate(self, prompt: str, tokens: int | None, sampling: Sampling, stop: Sequence[str]) -> str:
        return f"{self._value(self._asked(prompt)):.6g}"

    def specimens(self, data: Data | None = None, *, text: str | None = None) -> RegressionSpecimens:
        return RegressionSpecimens(self.model, self._held(data), self.tokenizer, source="the held-out rows")


# ------------------------------------------------------------------------- registered, and used


@pytest.fixture(scope="module")
def regression() -> Iterator[None]:
    """The lines that the page adds to files of the package."""
    known = Union[(*get_args(parse.AnyRunSpec), RegressionSpec)]
    in_package = memory_source.memory_file

    def memory_file(spec: Any, data: Data, *, labelled: bool = True, training: bool = False) -> Any:
        if isinstance(spec, RegressionSpec):
            return labelled_file(spec.data, data, labelled=labelled, training=training)
        return in_package(spec, data, labelled=labelled, training=training)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parse, "AnyRunSpec", known)
        patch.setattr(parse, "TASKS", (*parse.TASKS, "regression"))
        patch.setattr(memory_source, "memory_file", memory_file)
        patch.setattr(launch, "memory_file", memory_file)
        patch.setattr(dispatch, "TASKS", {**dispatch.TASKS, "regression": dispatch.Task(RegressionJob, RegressionRun)})
        yield


@pytest.fixture(scope="module")
def trained(regression: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The number of a row is how many of its words are "up"."""
    folder = tmp_path_factory.mktemp("regression")
    rng = random.Random(0)
    rows = [[rng.choice(("up", "down", "left")) for _ in range(rng.randint(2, 6))] for _ in range(200)]
    lines = [f"{' '.join(words)}\t{words.count('up')}" for words in rows]
    (folder / "rows.tsv").write_text("text\tlabel\n" + "\n".join(lines) + "\n")
    settings = {"steps": 120, "batch": 32, "lr": 0.02, "warmup": 10, "log_every": 20, "evaluate_every": 60}
    lines = [f"{name} = {value}" for name, value in settings.items()]
    recipe = ['task = "regression"', "[model]", 'kind = "gru"', "width = 12", "[train]", *lines]
    (folder / "regression.toml").write_text("\n".join(recipe) + "\n")
    with contextlib.chdir(folder):
        said = call("train", "regression.toml", "--data", "rows.tsv", "--out", "run", "--quiet")
    assert said.code == 0, said.err
    return folder / "run"


def test_it_learns(trained: Path) -> None:
    run = sw.load(trained)
    assert isinstance(run, RegressionRun)
    evaluation = run.evaluate()
    assert evaluation.mse < 0.2 * evaluation.mean_mse
    assert (run.metrics[0].name, run.metrics[0].better) == ("mse", "lower")
    assert run.history["validation_mse"][-1] == pytest.approx(evaluation.mse, rel=1e-4)
    elsewhere = run.evaluate({"text": ["up up up", "down left"], "label": [3, 0]})
    assert elsewhere.rows == 2


def test_it_answers(trained: Path) -> None:
    run = sw.load(trained)
    assert isinstance(run, RegressionRun)
    many, none = run.predict(["up up up", "down left down"])
    assert many == pytest.approx(3, abs=0.7)
    assert none == pytest.approx(0, abs=0.7)
    assert float(call("generate", str(trained), "--prompt", "up up up").out) == pytest.approx(many, rel=1e-3)
    said = call("predict", str(trained), str(trained.parent / "rows.tsv"), "--json")
    assert said.code == 0, said.err
    assert len(said.out.splitlines()) == 200
    assert json.loads(said.out.splitlines()[0]).keys() == {"file", "line", "text", "value"}


def test_the_command_line_evaluates_verifies_and_resumes_it(trained: Path) -> None:
    said = call("evaluate", str(trained), "--json")
    assert said.code == 0, said.err
    assert json.loads(said.out)["mse"] == pytest.approx(sw.load(trained).evaluate().mse)
    assert call("verify", str(trained)).code == 0
    with contextlib.chdir(trained.parent):
        said = call("train", "--resume", "--out", "run", "--set", "train.steps=130", "--quiet")
    assert said.code == 0, said.err


@pytest.mark.parametrize("lens", [lens.name for lens in LENSES if lens.needs_run])
def test_every_lens_looks_into_it(lens: str, trained: Path) -> None:
    small = {"bptt": {"draws": 2, "rows": 2}, "gradient": {"rows": 3}}.get(lens, {})
    finding = sw.inspect(sw.load(trained), lens, **small).findings[0]
    assert finding.sentences
    assert finding.data


def test_its_mistakes_are_named(regression: None, tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text('task = "regresion"\n')
    said = call("train", str(tmp_path / "own.toml"))
    assert said.code == 2
    assert "did you mean 'regression'?" in said.err
