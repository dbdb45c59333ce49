"""`statewise export` and `statewise.runtime`: what leaves the package computes what it did inside."""

import contextlib
import json
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from shutil import which
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from command import call

import statewise as sw
from statewise import runtime
from statewise.core import leaves
from statewise.export import graphs_of, prove, session
from statewise.models import ENCODER_DECODERS, LINEAGE, build_sample
from statewise.tasks.proof import label
from statewise.training.progress import Silent

VOCAB = 17
SPECS = {label(row.name, spec, row.spec.small()): spec for row in LINEAGE for spec in (row.spec.small(), *row.variants)}
DECODERS = {
    label(row.name, spec, row.spec.small()): spec
    for row in ENCODER_DECODERS
    for spec in (row.spec.small(), *row.variants)
}
FEW = ["elman", "window[order=1, activation=relu]", "mingru"]
SIZES: dict[str, dict[str, Any]] = {
    "gru": {"kind": "gru", "width": 8},
    "transformer": {"kind": "transformer", "width": 8, "heads": 2},
}
SAMPLINGS: list[dict[str, Any]] = [
    {"temperature": 0.0},
    {"temperature": 0.8, "seed": 3},
    {"temperature": 0.9, "top_k": 9, "top_p": 0.9, "min_p": 0.02, "repetition": 1.2, "seed": 7},
]

slow = pytest.mark.slow
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of PyTorch's exporter, about itself


def machine(spec: Any) -> Any:
    return build_sample(spec, vocab=VOCAB).eval()


@pytest.fixture(scope="module")
def exported(world: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With everything that an export can have."""
    out = tmp_path_factory.mktemp("exported") / "lstm"
    with contextlib.chdir(world):
        said = call("export", "runs/lstm", "--out", str(out), "--taps", "*forget_gate", "--int8")
    assert said.code == 0, said.err
    assert "Largest error against PyTorch" in said.out
    assert "nats a token" in said.out
    return out


def check(name: str) -> None:
    model = machine({**SPECS, **DECODERS}[name])
    step, sequence = graphs_of(model)
    paths = [path for path, _ in leaves(model.init_state(1))]
    for graph in (step.graph, sequence.graph):
        assert [value.name for value in graph.input] == ["tokens", *paths]
        assert [value.name for value in graph.output] == ["logits", *(f"after.{path}" for path in paths)]
    proof = prove(model, session(step), session(sequence))
    assert proof.passed, proof
    assert proof.step <= 2e-6 or "ttt" in name, proof  # whose inner learning amplifies rounding within one step
    plain = prove(model, *(runtime.interpreted(graph.SerializeToString()) for graph in (step, sequence)))
    assert plain.passed, plain


@pytest.mark.parametrize("name", FEW)
def test_few(name: str) -> None:
    check(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*SPECS, *DECODERS])
def test_all(name: str) -> None:
    check(name)


def test_another_model_is_noticed() -> None:
    spec = SPECS["elman"]
    other = sw.build(spec, vocab=VOCAB, seed=1).eval()
    step, sequence = graphs_of(machine(spec))
    assert not prove(other, session(step), session(sequence)).passed


def test_the_folder(exported: Path) -> None:
    about = json.loads((exported / "export.json").read_text())
    assert about["proof"]["passed"]
    assert (about["proof"]["batches"], about["proof"]["lengths"]) == ([1, 3, 8], [1, 7, 64, 300])
    assert max(about["proof"][part] for part in ("step", "chained", "sequence")) < 2e-5
    assert 0 < about["int8"]["nats"] < 0.1
    assert (exported / "runtime.py").read_text() == Path(runtime.__file__).read_text()
    for name in ("step", "sequence"):
        onnx.checker.check_model(str(exported / f"{name}.onnx"), full_check=True)
        assert (exported / f"{name}.int8.onnx").stat().st_size < (exported / f"{name}.onnx").stat().st_size


def test_a_tap_is_what_a_lens_sees(exported: Path, world: Path) -> None:
    model = sw.load(world / "runs/lstm", device="cpu").machine
    assert model is not None
    _, state = model(torch.tensor([[1, 2, 3], [3, 2, 1]]))
    feed = {path: leaf.detach().numpy() for path, leaf in leaves(state)}
    name = "layers.0.lstm.forget_gate"
    for graph, tokens in (("step", torch.tensor([4, 5])), ("sequence", torch.tensor([[4, 6], [5, 7]]))):
        found = session(str(exported / f"{graph}.onnx"))({"tokens": tokens.numpy(), **feed})
        with torch.no_grad(), sw.lens(name) as seen:
            model(tokens[:, None] if graph == "step" else tokens, state)
        true = seen[name][:, 0] if graph == "step" else seen[name]
        torch.testing.assert_close(torch.from_numpy(found[name]), true)


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
def test_the_same_text(exported: Path, world: Path, sampling: dict[str, Any]) -> None:
    ours = sw.load(world / "runs/lstm", device="cpu").generate("the c", tokens=1000, sampling=sw.Sampling(**sampling))
    theirs = runtime.load(exported).generate("the c", tokens=1000, sampling=runtime.Sampling(**sampling))
    assert theirs == ours


def test_states_go_both_ways(exported: Path, world: Path, tmp_path: Path) -> None:
    run, out = sw.load(world / "runs/lstm", device="cpu"), runtime.load(exported)
    assert isinstance(run, sw.tasks.LanguageModelRun)
    run.save_state(run.begin("the cat"), tmp_path / "ours")
    out.save_state(out.begin("the cat"), tmp_path / "theirs")
    texts = [
        "".join(piece for piece, _ in one.stream(" sat", tokens=40, start=one.load_state(tmp_path / name)))
        for one in (run, out)
        for name in ("ours", "theirs")
    ]
    assert len(set(texts)) == 1


def test_a_state_of_other_weights_is_refused(exported: Path, tmp_path: Path) -> None:
    run = runtime.load(exported)
    arrays, metadata = runtime.read_safetensors(exported / "start.safetensors")
    runtime.write_safetensors(tmp_path / "other", arrays, {**metadata, "weights": "0"})
    with pytest.raises(ValueError, match="of another weights"):
        run.load_state(tmp_path / "other")
    for part, value, complaint in (
        ("position_B", [-1], "has position -1, expected 0 or more"),
        ("token_B", [5000], "tokens that are not in the vocabulary"),
        ("tail_BK", [[5000] * 8], "tokens that are not in the vocabulary"),
    ):
        runtime.write_safetensors(tmp_path / "odd", {**arrays, part: np.array(value)}, metadata)
        with pytest.raises(ValueError, match=complaint):
            run.load_state(tmp_path / "odd")
    (tmp_path / "no").write_text("nothing")
    with pytest.raises(ValueError, match="is not a saved state"):
        run.load_state(tmp_path / "no")
    with pytest.raises(ValueError, match="there is no state file"):
        run.load_state(tmp_path / "missing")


def test_the_folder_runs_where_torch_is_not(exported: Path, here: Path) -> None:
    hidden = "import sys, runpy; sys.modules['torch'] = sys.modules['statewise'] = None; sys.argv = sys.argv[1:]"
    code = f"{hidden}; runpy.run_path(sys.argv[0], run_name='__main__')"
    asked = ["--prompt", "the c", "--tokens", "60", "--seed", "5"]
    words = [sys.executable, "-c", code, str(exported / "runtime.py"), *asked]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout == call("generate", "runs/lstm", *asked).out


def test_the_folder_runs_with_numpy_alone(exported: Path, here: Path) -> None:
    """Neither onnxruntime nor tokenizers: the same text of a character model, and saved states."""
    absent = ("torch", "statewise", "onnxruntime", "tokenizers")
    hidden = f"import sys, runpy; sys.modules.update(dict.fromkeys({absent})); sys.argv = sys.argv[1:]"
    asked = ["--prompt", "the c", "--tokens", "60", "--seed", "5"]
    code = f"{hidden}; runpy.run_path(sys.argv[0], run_name='__main__')"
    words = [sys.executable, "-c", code, str(exported / "runtime.py"), *asked]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout == call("generate", "runs/lstm", *asked).out


@pytest.mark.parametrize(
    "kind", ["bpe", *(pytest.param(kind, marks=slow) for kind in ("char", "byte", "word", "wordpunct"))]
)
def test_the_same_text_by_every_tokenizer(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand tokens with NumPy alone, after a prompt with what the text does not have."""
    (tmp_path / "text.txt").write_text("The cat's mat, and 12 hats!\nWe'll sit – don't they? 日本語を話す。\n" * 40)
    settings = {"data.tokenizer": kind, "model.width": 8}
    trained = sw.train(
        "gru", data=tmp_path / "text.txt", steps=4, out=tmp_path / "run", settings=settings, display=Silent()
    )
    sw.export.export_run(trained.load(), tmp_path / "out")
    for library in ("onnxruntime", "tokenizers"):
        monkeypatch.setitem(sys.modules, library, None)
    prompt, sampling = "They're 3 Cats\n\n ÜBER 日本", {"temperature": 0.8, "seed": 3}
    text = runtime.load(tmp_path / "out").generate(prompt, tokens=1000, sampling=runtime.Sampling(**sampling))
    monkeypatch.undo()
    assert text == trained.load().generate(prompt, tokens=1000, sampling=sw.Sampling(**sampling))


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("runs/lstm --out runs", "'runs' already exists"),
        ("runs/lstm --out new --taps nothing", "no value of this model is observed under 'nothing'"),
        ("runs/lstm --out new --to pt2 --int8", "--int8 and --taps are for ONNX"),
        ("runs/lstm --out new --compiled", "--compiled is for PyTorch's programs"),
        ("runs/lstm --out new --to hf --compiled", "--taps, --int8 and --compiled are of graphs"),
        ("runs", "'runs' is not a run folder"),
    ],
)
def test_mistakes(words: str, complaint: str, here: Path) -> None:
    said = call("export", *words.split())
    assert said.code == 2
    assert complaint in said.err
    assert not Path("new").exists()


def test_other_precisions_are_refused(world: Path, tmp_path: Path) -> None:
    run = sw.load(world / "runs/lstm", device="cpu")
    run.model.double()
    with pytest.raises(sw.UserError, match=r"weights in torch.float64, and graphs are in float32"):
        sw.export.export_run(run, tmp_path / "out")


@pytest.mark.slow
def test_what_cannot_be_traced_is_refused(here: Path) -> None:
    said = call("export", "shakespeare-markov", "--out", "new", "--taps", "*known")
    assert said.code == 2
    assert "PyTorch cannot trace this model" in said.err
    assert not Path("new").exists()


def test_what_is_no_export_is_refused(exported: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not a folder that `statewise export` wrote"):
        runtime.load(tmp_path)
    (tmp_path / "export.json").write_text('{"format": 99}')
    with pytest.raises(ValueError, match="has format 99, expected 2"):
        runtime.load(tmp_path)


def cut(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:100])


def replaced(**facts: Any) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        about = json.loads((folder / "export.json").read_text())
        (folder / "export.json").write_text(json.dumps({**about, **facts}))

    return change


def setting(**facts: Any) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        about = json.loads((folder / "export.json").read_text())
        replaced(settings={**about["settings"], **facts})(folder)

    return change


def other_state(folder: Path) -> None:
    """Of another graph: one part has another name."""
    arrays, metadata = runtime.read_safetensors(folder / "start.safetensors")
    arrays["state.odd"] = arrays.pop(next(name for name in arrays if name.startswith("state.")))
    runtime.write_safetensors(folder / "start.safetensors", arrays, metadata)


def other_ids(folder: Path) -> None:
    """Each token has an id outside the vocabulary."""
    table = json.loads((folder / "tokenizer.json").read_text())
    table["model"]["vocab"] = {token: i + 5000 for token, i in table["model"]["vocab"].items()}
    (folder / "tokenizer.json").write_text(json.dumps(table))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda folder: (folder / "step.onnx").unlink(), "there is no graph"),
        (setting(never=[5000]), r"is not complete: sizes and tokens are \[.*5000"),
        (setting(context="long"), "is not complete: sizes and tokens are"),
        (other_state, "have no state 'odd'|cannot be computed"),
        (other_ids, "outside the vocabulary|is damaged"),
        (lambda folder: (folder / "tokenizer.json").unlink(), "is not complete"),
        (lambda folder: (folder / "start.safetensors").unlink(), "is not complete"),
        (cut("step.onnx"), r"step.onnx' (cannot be opened|is damaged)"),
        (cut("sequence.onnx"), r"sequence.onnx' (cannot be opened|is damaged)"),
        (cut("start.safetensors"), "is not a saved state"),
        (cut("tokenizer.json"), "tokenizer.json' is damaged"),
        (cut("export.json"), r"export.json' is damaged"),
        (lambda folder: (folder / "export.json").write_text("[1]"), "it holds no table"),
        (replaced(task="poetry"), "is not complete: 'poetry'"),
        (replaced(settings={}), "is not complete: 'vocab'"),
        (replaced(format=1), "has format 1, expected 2"),
    ],
)
@pytest.mark.parametrize("absent", [(), ("onnxruntime", "tokenizers")], ids=["all", "numpy"])
def test_damaged_folders(
    change: Any, complaint: str, absent: Any, exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(exported, tmp_path / "out")
    change(tmp_path / "out")
    for library in absent:
        monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ValueError, match=complaint):
        runtime.load(tmp_path / "out").generate("the", tokens=1)


@pytest.mark.parametrize(
    ("asked", "complaint"),
    [
        ({"sampling": runtime.Sampling(temperature=-1.0)}, "temperature = -1.0 is not valid"),
        ({"sampling": runtime.Sampling(top_k=0)}, "top_k = 0 is not valid, expected at least 1"),
        ({"sampling": runtime.Sampling(top_p=0.0)}, "top_p = 0.0 is not valid"),
        ({"sampling": runtime.Sampling(min_p=2.0)}, "min_p = 2.0 is not valid"),
        ({"sampling": runtime.Sampling(repetition=0.0)}, "repetition = 0.0 is not valid"),
        ({"sampling": runtime.Sampling(seed=-1)}, "seed = -1 is not valid"),
        ({"tokens": -1}, "tokens = -1 is not valid, expected 0 or more"),
        ({"prompt": 3}, "this run reads texts; got int"),
    ],
    ids=str,
)
def test_what_cannot_be_generated(asked: dict[str, Any], complaint: str, exported: Path) -> None:
    with pytest.raises(ValueError, match=complaint):
        runtime.load(exported).generate(**{"prompt": "the", "tokens": 1, **asked})


def classifier(folder: Path, recipe: str, data: Any, **settings: Any) -> tuple[Any, Any]:
    """A small run, and what was exported of it."""
    small = {"model.kind": "lstm", "model.width": 8, "train.batch": 4, "reader.bidirectional": False, **settings}
    trained = sw.train(recipe, data=data, steps=4, out=folder / "run", settings=small, display=Silent())
    about = sw.export.export_run(trained.load(), folder / "out")
    assert about["whole"]["passed"]
    return trained.load(), runtime.load(folder / "out")


def in_numpy(folder: Path) -> Any:
    """The exported run where onnxruntime is not installed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "onnxruntime", None)
        return runtime.load(folder / "out")


def agree(run: Any, out: Any, rows: list[Any]) -> None:
    assert out.predict(rows) == run.predict(rows)
    for ours, theirs in zip(run.predict_rows(rows), out.predict_rows(rows), strict=True):
        assert theirs["probabilities"] == pytest.approx(ours["probabilities"], abs=1e-6)


def test_a_classifier_of_texts(tmp_path: Path) -> None:
    texts = [("a great film", "good"), ("an awful plot, a long one", "bad"), ("great", "good")] * 8
    run, out = classifier(tmp_path, "classification", texts)
    agree(run, out, ["a great plot", "awful", "", "one " * 40])
    agree(run, in_numpy(tmp_path), ["a great plot", "awful", "", "one " * 40])
    assert out.generate("great") == run.generate("great")
    with pytest.raises(ValueError, match="classifies texts; got int"):
        out.predict([3])
    out._settings["context"] = 2
    with pytest.raises(ValueError, match="the text has 3 tokens, and this model has 2 positions"):
        out.predict("a great film")


@pytest.mark.slow
def test_a_classifier_of_values(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [rng.normal(size=(6, 2)) + i % 2 for i in range(24)]
    both = (rows, ["high" if i % 2 else "low" for i in range(24)])
    run, out = classifier(tmp_path, "classification", both, **{"data.kind": "values", "reader.bidirectional": True})
    agree(run, out, rows)
    with pytest.raises(ValueError, match=r"expected \[time, 2\]"):
        out.predict([np.zeros((3, 4))])


@pytest.mark.parametrize(
    "settings",
    [
        {"model.kind": "grid", "model.depth": 2},
        pytest.param({"model.kind": "grid", "model.summary": "max"}, marks=slow),
        pytest.param({"model.kind": "grid", "model.summary": "corners"}, marks=slow),
        {"model.kind": "gru"},
    ],
    ids=str,
)
def test_a_classifier_of_grids(settings: dict[str, Any], tmp_path: Path) -> None:
    """By its own network, for grids of any size; and row by row."""
    rng = np.random.default_rng(0)
    grids = [rng.normal(size=(5, 4, 2)) + i % 2 for i in range(24)]
    both = (grids, ["high" if i % 2 else "low" for i in range(24)])
    run, out = classifier(tmp_path, "digits", both, **settings)
    for one in (out, in_numpy(tmp_path)):
        agree(run, one, grids[:4])
    for size in ((1, 1, 2), (9, 2, 2), (1, 12, 2)) if settings["model.kind"] == "grid" else ():
        agree(run, out, [rng.normal(size=size)])
    with pytest.raises(ValueError, match=r"expected \[height, width, 2\]"):
        out.predict([np.zeros((3, 4))])


@pytest.mark.slow
def test_a_classifier_of_vectors(tmp_path: Path) -> None:
    rows = [row + i % 2 for i, row in enumerate(np.random.default_rng(0).normal(size=(24, 3)))]
    run, out = classifier(tmp_path, "vector-to-class", (rows, ["high" if i % 2 else "low" for i in range(24)]))
    agree(run, out, rows)
    assert out.generate("0.5 1 -2") == run.generate("0.5 1 -2")


SENTENCES = [(["Anna", "sees", "New", "York"], ["B-PER", "O", "B-LOC", "I-LOC"]), (["a", "cat"], ["O", "O"])] * 8


@pytest.mark.parametrize(
    "settings",
    [
        {"words.characters": 0, "objective.kind": "crf"},
        pytest.param({"data.longest": 3, "reader.bidirectional": True}, marks=slow),
    ],
    ids=str,
)
def test_a_tagger(settings: dict[str, Any], tmp_path: Path) -> None:
    """With and without a chain of tags; spelled words, and sentences in parts."""
    run, out = classifier(tmp_path, "tagging", SENTENCES, **settings)
    rows = [["Anna", "sees", "Anna"], ["York"], ["an", "unheard-of-and-very-long-word-without-any-end", "cat", "a"] * 3]
    assert out.predict(rows) == run.predict(rows)
    for ours, theirs in zip(run.predict_rows(rows), out.predict_rows(rows), strict=True):
        assert theirs.pop("probabilities") == pytest.approx(ours.pop("probabilities"), abs=1e-6)
        assert theirs == ours
    assert in_numpy(tmp_path).predict(rows) == run.predict(rows)
    assert out.generate("Anna sees\na cat") == run.generate("Anna sees\na cat")
    with pytest.raises(ValueError, match="a sentence is a list of words"):
        out.predict(["Anna sees"])


@pytest.mark.parametrize(
    "settings",
    [
        {"forecast.mode": "recursive", "objective.kind": "squared"},
        pytest.param(
            {"forecast.mode": "recursive", "objective.kind": "squared", "data.channels": "shared"}, marks=slow
        ),
        pytest.param({"forecast.mode": "direct", "objective.kind": "gaussian"}, marks=slow),
        pytest.param({"forecast.mode": "direct", "objective.kind": "quantile", "data.scaling": "pooled"}, marks=slow),
    ],
    ids=str,
)
def test_a_forecaster(settings: dict[str, Any], tmp_path: Path) -> None:
    time = np.arange(200)[:, None]
    series = [np.sin(time / np.array([4, 7]) + shift) * (shift + 1) for shift in range(3)]
    small = {"forecast.context": 16, "forecast.horizon": 5, "data.split": "0.7/0.2/0.1", **settings}
    run, out = classifier(tmp_path, "forecasting", series, **small)
    for given in (series, [array[40:90] + 3 for array in series], [series[1][:60]]):
        for ours, theirs in zip(run.predict(given), out.predict(given), strict=True):
            np.testing.assert_allclose(theirs, ours, atol=1e-5)
    for one in (out, in_numpy(tmp_path)):
        np.testing.assert_allclose(one.predict(series[2]), run.predict(series[2]), atol=1e-5)
    np.testing.assert_allclose(out.predict(np.stack(series)), run.predict(np.stack(series)), atol=1e-5)
    for horizon in (1, 12):
        there = run.forecast(series[1], horizon=horizon).mean_HC
        np.testing.assert_allclose(out.predict(series[1], horizon=horizon), there, atol=1e-5)
    short = np.where(np.arange(10)[:, None] % 3, series[0][:10], np.nan)  # less than a context, with holes
    np.testing.assert_allclose(out.predict(short), run.predict(short), atol=1e-5)
    with pytest.raises(ValueError, match=r"expected values of \[T, 2\]"):
        out.predict(np.full((30, 2), np.nan))


@pytest.mark.parametrize(
    "settings",
    [
        {"objective.kind": "gaussian"},
        pytest.param({"objective.kind": "student", "data.channels": "shared"}, marks=slow),
        pytest.param({"objective.kind": "quantile", "forecast.anchor": "none"}, marks=slow),
    ],
    ids=str,
)
def test_sampled_futures_are_the_same(settings: dict[str, Any], tmp_path: Path) -> None:
    time = np.arange(200)[:, None]
    series = np.sin(time / np.array([4, 7])) + 0.1 * np.random.default_rng(0).normal(size=(200, 2))
    small = {"forecast.mode": "recursive", "forecast.context": 16, "forecast.horizon": 5, "forecast.paths": 9}
    run, out = classifier(tmp_path, "forecasting", series, **small, **settings)
    for one in (out, in_numpy(tmp_path)):
        np.testing.assert_allclose(one.predict(series), run.predict(series), atol=1e-5)
    for seed in (0, 1):
        future = out.predict(series, draw=seed, horizon=20)
        np.testing.assert_allclose(future, run.forecast(series, draw=seed, horizon=20).mean_HC, atol=1e-5)
        assert np.abs(future - out.predict(series, draw=seed + 1, horizon=20)).max() > 1e-3
    prompt = " ".join(f"{value:.3f}" for value in series[:30].ravel())
    for sampling in SAMPLINGS[:2]:
        ours, theirs = (
            np.array([[float(x) for x in row.split(",")] for row in text.splitlines()])
            for text in (
                run.generate(prompt, tokens=7, sampling=sw.Sampling(**sampling)),
                out.generate(prompt, tokens=7, sampling=runtime.Sampling(**sampling)),
            )
        )
        assert ours.shape == (7, 2)
        np.testing.assert_allclose(theirs, ours, atol=1e-5)


@pytest.mark.parametrize("mode", ["recursive", pytest.param("direct", marks=slow)])
def test_a_forecaster_with_covariates(mode: str, tmp_path: Path) -> None:
    """Those of a file, and those of the calendar; some values are missing."""
    times = np.datetime64("2024-02-27T05") + np.arange(320).astype("timedelta64[h]")
    load = 3 + np.sin(np.arange(320) / 4)
    value = np.where(np.arange(320) % 17, np.sin(np.arange(320) / 4 + 1), np.nan)
    rows = [
        f"{at},{x:.6f},{'' if np.isnan(y) or i >= 300 else f'{y:.6f}'}"
        for i, (at, x, y) in enumerate(zip(times, load, value))
    ]
    (tmp_path / "past.csv").write_text("\n".join(["time,load,value", *rows[:300]]))
    (tmp_path / "all.csv").write_text("\n".join(["time,load,value", *rows]))
    small = {"forecast.mode": mode, "forecast.context": 16, "forecast.horizon": 5, "objective.kind": "gaussian"}
    small |= {
        "data.targets": ["value"],
        "data.covariates": ["load"],
        "data.time_features": ["t", "hour", "weekday", "month"],
    }
    run, out = classifier(tmp_path, "forecasting", str(tmp_path / "past.csv"), **small)
    expected = [row["mean"] for row in run.predict_rows(str(tmp_path / "all.csv"))]
    given = {"covariates": np.round(load, 6)[:, None], "times": times}
    values = np.round(value[:300], 6)
    np.testing.assert_allclose(out.predict(values, **given), expected, atol=1e-5)
    with pytest.raises(ValueError, match=r"covariates have shape .*, expected \[304, 1\]|expected \[305, 1\]"):
        out.predict(values, times=times)
    with pytest.raises(ValueError, match="this run reads the hour; give times"):
        out.predict(values, covariates=given["covariates"])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gru", "transformer"])
def test_a_translator(kind: str, tmp_path: Path) -> None:
    sides = {f"model.{side}.{name}": value for side in ("encoder", "decoder") for name, value in SIZES[kind].items()}
    run, out = translator(tmp_path, "translation", **sides)
    texts = ["a b c", "f e d c b a", "c"]
    assert out.predict([*texts, ""]) == run.predict([*texts, ""])
    assert in_numpy(tmp_path).predict(texts) == run.predict(texts)
    for text in texts:
        for sampling in SAMPLINGS:
            ours = run.generate(text, sampling=sw.Sampling(**sampling))
            assert out.generate(text, sampling=runtime.Sampling(**sampling)) == ours
    with pytest.raises(ValueError, match="needs a prompt"):
        out.generate(" ")


def translator(folder: Path, recipe: str, **settings: Any) -> tuple[Any, Any]:
    """A small run of a recipe with embedded data, or of reversed words; and what was exported of it."""
    rng = random.Random(0)
    words = [[rng.choice("abcdef") for _ in range(rng.randint(2, 6))] for _ in range(40)]
    data = [(" ".join(one), " ".join(one[::-1])) for one in words] if recipe == "translation" else None
    small = {"train.batch": 8, "decoding.beam": 1, **settings}
    trained = sw.train(recipe, data=data, steps=8, out=folder / "run", settings=small, display=Silent())
    about = sw.export.export_run(trained.load(), folder / "out")
    assert about["proof"]["passed"], about["proof"]
    assert about["whole"]["passed"], about["whole"]
    return trained.load(), runtime.load(folder / "out")


@pytest.mark.slow
@pytest.mark.parametrize("ends", ["end", "bernoulli", "remaining"])
@pytest.mark.parametrize("kind", ["gru", "transformer"])
def test_a_translator_of_one_model(kind: str, ends: str, tmp_path: Path) -> None:
    sizes = {f"model.{name}": value for name, value in SIZES[kind].items()}
    run, out = translator(tmp_path, "translation", **sizes, **{"termination.kind": ends, "data.shared_vocab": True})
    texts = ["a b c", "f e d c b a", "c"]
    assert out.predict([*texts, ""]) == in_numpy(tmp_path).predict([*texts, ""]) == run.predict([*texts, ""])
    for text in texts:
        for sampling in SAMPLINGS:
            ours = run.generate(text, sampling=sw.Sampling(**sampling))
            assert out.generate(text, sampling=runtime.Sampling(**sampling)) == ours


@pytest.mark.parametrize("recipe", ["class-to-text", pytest.param("vector-to-series", marks=slow)])
def test_a_translator_of_classes_and_vectors(recipe: str, tmp_path: Path) -> None:
    run, out = translator(tmp_path, recipe, **{"model.decoder.width": 8, "model.encoder.width": 8})
    given = [answer.given for answer in run.answers().rows[:3]]
    assert out.predict(given) == in_numpy(tmp_path).predict(given) == run.predict(given)
    for text in given:
        for sampling in SAMPLINGS:
            ours = run.generate(text, sampling=sw.Sampling(**sampling))
            assert out.generate(text, sampling=runtime.Sampling(**sampling)) == ours
    with pytest.raises(ValueError, match=r"is no class that was learned|needs numbers"):
        out.predict("nothing of the kind")


TREES = ["(1 (0 a) (1 b))", "(0 (0 a) (0 (1 c) (0 d)))", "(1 x)"] * 8


@pytest.mark.parametrize(
    "settings",
    [
        {"model.kind": "child_sum", "data.binarise": "none", "data.unary": "keep"},
        pytest.param({"model.kind": "nary", "data.binarise": "left", "data.unary": "collapse"}, marks=slow),
        pytest.param({"model.kind": "composition", "data.binarise": "right", "objective.nodes": "root"}, marks=slow),
        {"model.kind": "nary", "model.shape": "balanced"},
        pytest.param({"model.kind": "child_sum", "model.shape": "chain", "data.unary": "collapse"}, marks=slow),
        {"model.kind": "lstm", "data.binarise": "left"},
    ],
    ids=str,
)
def test_a_tree_run(settings: dict[str, Any], tmp_path: Path) -> None:
    run, out = tree_run(tmp_path, settings)
    rows = [
        "(0 (0 (1 a) (0 b)) (1 (1 c) (0 (0 d) (0 unheard))))",
        "( (1 (0 a) (1 b)) )",
        "(0 a)",
        "(1 (0 (1 a)) (0 b))",
        "(1 (0 a) b (1 c) (0 (1 d) (0 x) (1 a)))",
    ]
    assert out.predict(rows) == in_numpy(tmp_path).predict(rows) == run.predict(rows)
    for ours, theirs in zip(run.predict_rows(rows), out.predict_rows(rows), strict=True):
        assert theirs["probabilities"] == pytest.approx(ours["probabilities"], abs=1e-6)
        for mine, its in zip(ours["nodes"], theirs["nodes"], strict=True):
            assert its.pop("probability") == pytest.approx(mine.pop("probability"), abs=1e-6)
            assert its == mine
    assert out.generate(rows[0]) == run.generate(rows[0])
    for text in ("", "(1 a", "a)", "(1 a) (0 b)", "(1 ())", ")"):
        with pytest.raises(ValueError, match=r"tree in brackets|has no label"):
            out.predict(text)


def tree_run(folder: Path, settings: dict[str, Any]) -> tuple[Any, Any]:
    (folder / "trees.txt").write_text("\n".join(TREES))
    small = {"model.width": 8, "train.batch": 4, **settings}
    trained = sw.train("tree", data=folder / "trees.txt", steps=4, out=folder / "run", settings=small, display=Silent())
    about = sw.export.export_run(trained.load(), folder / "out")
    assert about["whole"]["passed"]
    return trained.load(), runtime.load(folder / "out")


@pytest.mark.slow
def test_pt2(here: Path, tmp_path: Path) -> None:
    said = call("export", "runs/lstm", "--to", "pt2", "--out", str(tmp_path / "out"), "--json")
    assert said.code == 0, said.err
    assert json.loads(said.out)["proof"]["passed"]
    assert {path.name for path in (tmp_path / "out").glob("*.pt2")} == {"step.pt2", "sequence.pt2"}


@pytest.mark.slow
@pytest.mark.skipif(which("g++") is None, reason="AOTInductor needs a C++ compiler")
def test_a_compiled_step(here: Path, tmp_path: Path) -> None:
    said = call("export", "runs/lstm", "--to", "pt2", "--compiled", "--out", str(tmp_path / "out"), "--json")
    assert said.code == 0, said.err
    proof = json.loads(said.out)["compiled"]
    assert proof["passed"]
    assert proof["batches"] == [1, 3, 8]
    assert (tmp_path / "out/step.compiled.pt2").is_file()


def test_a_compiled_step_needs_a_compiler(here: Path) -> None:
    from torch._inductor import config  # takes a second: not while tests are collected

    with config.patch({"cpp.cxx": ("no-such-compiler",)}):
        said = call("export", "runs/lstm", "--to", "pt2", "--compiled", "--out", "new")
    assert said.code == 2
    assert "needs a C++ compiler, and PyTorch finds none" in said.err
    assert not Path("new").exists()


@pytest.mark.slow
def test_markov_is_a_table_and_a_graph(here: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    said = call("export", "shakespeare-markov", "--out", str(out))
    assert said.code == 0, said.err
    assert {"counts.npz", "counts.json", "step.onnx", "sequence.onnx"} <= {path.name for path in out.iterdir()}
    ours = sw.load("shakespeare-markov", device="cpu").generate("ROMEO:", tokens=300)
    assert runtime.load(out).generate("ROMEO:", tokens=300) == ours
