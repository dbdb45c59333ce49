"""A replayed step is the step. Without a GPU the step is run, not replayed; the memory it has is a graph's."""

import functools
import threading
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_task import VOCAB, TokenTask, spec, tiny
from torch import Tensor

from statewise.core import WARM_UP, capture, check_replays_with, leaves, lens, no_waiting
from statewise.data.batch import ResidentTokens
from statewise.models import LINEAGE, CountingMachine, build_sample
from statewise.specs import TrainSpec, TransformerSpec, UserError, make_spec
from statewise.tasks import train as run_training
from statewise.tasks.job import Opening
from statewise.tasks.language_model import LanguageModelJob
from statewise.training import NonFinite, Parallel, RunFolder, Window, fit, graph
from statewise.training import loop as loop_module
from statewise.training.folder import newest_verified, weights_sha256
from statewise.training.journal import read_metrics
from statewise.training.optimizer import optimizer_tensors
from statewise.training.step_report import Readings
from statewise.training.task import DIFFERS
from statewise.training.update import Updater

RATE = 2.0**-7
CPU = torch.device("cpu")
DEVICES = [pytest.param(CPU, id="cpu"), pytest.param(torch.device("cuda"), id="cuda", marks=pytest.mark.gpu)]


class Epochs(TokenTask):
    """Five windows an epoch: the first is fresh, the last is shorter and nobody goes on from it."""

    def __init__(self, *, whole: bool = False, device: torch.device = CPU, **options: Any) -> None:
        super().__init__(nats=[1 / (1 + n) for n in range(50)], **options)
        self.whole, self.device = whole, device

    def window(self, step: int) -> Window:
        made = super().window(step)
        place = step % 5
        if self.whole:
            made = made._replace(fresh=True, ends=True, obstacle=None)
        else:
            short = place == 4
            made = made._replace(fresh=place == 0, ends=short, obstacle="it is shorter" if short else None)
            made = made._replace(time=7, content=made.content[:, :8]) if short else made
        return made._replace(content=made.content.to(self.device))

    def loss(self, model: Any, window: Window, some: slice, times: slice, state: Any) -> tuple[Tensor, Any]:
        fresh = window.fresh and times.start == 0
        return super().loss(model, window, some, times, None if fresh else state)


@pytest.fixture
def anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Captured on a CPU too."""
    monkeypatch.setattr(graph, "_of_the_run", lambda step, window: None)


def updater(
    task: TokenTask, model: Any = None, *, device: torch.device = CPU, precision: str = "float32", **settings: Any
) -> Updater:
    model = (tiny(depth=2, dropout=0.3) if model is None else model).to(device)
    settings = {"graph": "always", "precision": precision, **settings}
    return Updater(model, task, spec(**settings), seed=0, par=Parallel(device=device), guarded=True)


def everything(made: Updater) -> dict[str, Tensor]:
    state = dict(leaves(made.state)) if made.state is not None else {}
    return {
        **dict(made.model.named_parameters()),
        **{f"memory.{name}": value for name, value in optimizer_tensors(made.optimizer).items()},
        **{f"mean.{name}": value for name, value in made.average.tensors().items()},
        **{f"state.{name}": value for name, value in state.items()},
    }


def assert_same(a: Updater, b: Updater) -> None:
    one, other = everything(a), everything(b)
    assert one.keys() == other.keys()
    for name in one:
        assert torch.equal(one[name], other[name]), name


SETTINGS = {
    "adamw": {},
    "averaged": {"average": 0.9},
    "momentum": {"optimizer": "sgd", "momentum": 0.9, "clip": 0.05},
    "muon": {"optimizer": "muon", "matrix_decay": 0.1},
    "cut and accumulated": {"truncation": "fixed:5", "accumulate": 3, "clip": None},
}


@pytest.mark.usefixtures("anywhere")
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("whole", [False, True], ids=["carried", "whole"])
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_a_replayed_step_is_the_step(settings: dict[str, Any], whole: bool, device: torch.device) -> None:
    """Dropout too: its numbers are those of the step."""
    plain, replayed = (
        updater(Epochs(whole=whole, device=device), device=device, graph=asked, **settings)
        for asked in ("never", "always")
    )
    for number in range(1, 13):
        expected, found = (made.take(number, rate=RATE / number).numbers.clone() for made in (plain, replayed))
        assert torch.equal(expected, found), number
        assert replayed.graphs is not None
        assert replayed.graphs.why == ("it is shorter" if number % 5 == 0 and not whole else None)
        assert_same(plain, replayed)
    assert len(replayed.graphs._captured) == 1


@pytest.mark.parametrize("device", DEVICES)
def test_gradients_are_made_by_the_thread_that_asks(device: torch.device) -> None:
    """By itself, autograd makes those of a GPU in a thread of its own, and each step waits for it to wake."""
    model = tiny(depth=2)
    seen = set()
    for parameter in model.parameters():  # on a CPU there is no other thread, but the switch can be seen
        parameter.register_hook(lambda _: seen.add((threading.get_ident(), torch._C._is_multithreading_enabled())))
    updater(Epochs(device=device), model, device=device, graph="never").take(1, rate=RATE)
    assert seen == {(threading.get_ident(), False)}


@pytest.mark.usefixtures("anywhere")
@pytest.mark.parametrize("device", DEVICES)
def test_averaging_that_starts_on_the_way_is_another_step(device: torch.device) -> None:
    plain, replayed = (
        updater(Epochs(device=device), device=device, graph=asked, optimizer="asgd") for asked in ("never", "always")
    )
    for number in range(1, 8):
        for made in (plain, replayed):
            if number == 4:
                made.average.start()
            made.take(number, rate=RATE)
        assert_same(plain, replayed)
    assert replayed.graphs is not None
    assert len(replayed.graphs._captured) == 2


@pytest.mark.usefixtures("anywhere")
@pytest.mark.parametrize("device", DEVICES)
def test_a_rehearsed_capture_changes_nothing(device: torch.device) -> None:
    rehearsed, plain = (updater(Epochs(device=device), device=device, average=0.9) for _ in range(2))
    for number in range(1, 5):
        rehearsed.rehearse(number)
        for made in (rehearsed, plain):
            made.take(number, rate=RATE)
        assert_same(rehearsed, plain)


@pytest.mark.usefixtures("anywhere")
@pytest.mark.parametrize("device", DEVICES)
def test_what_is_not_finite_stops_replays_too(device: torch.device) -> None:
    task = Epochs(device=device)
    made = updater(task, device=device)
    for number in (1, 2):
        made.take(number, rate=RATE)
    before = weights_sha256(made.model)
    factor = torch.ones((), device=device, dtype=torch.float64)
    made.model.head.bias_V.register_hook(lambda gradient: gradient * factor)
    assert made.graphs is not None
    made.graphs._captured.clear()  # captured anew, with the hook
    factor.fill_(torch.inf)
    assert not made.take(3, rate=RATE).numbers.isfinite().all()
    factor.fill_(1.0)
    for number in (4, 6, 7):
        assert made.take(number, rate=RATE).numbers.isfinite().all()
    assert weights_sha256(made.model) == before


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("cut", [3, 6])
def test_a_resumed_run_repeats_the_uncut_one(
    anywhere: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, device: torch.device, cut: int
) -> None:
    class Cut(BaseException):
        pass

    def at(step: int) -> None:
        if step == cut:
            raise Cut

    monkeypatch.setattr(loop_module, "Updater", functools.partial(Updater, guarded=True))
    settings = spec(
        steps=9, save_every=1, evaluate_every=100, log_every=2, average=0.7, graph="always", precision="float32"
    )

    def run(folder: Path, **more: Any) -> tuple[list[dict[str, Any]], str]:
        model = tiny(depth=2, dropout=0.3).to(device)
        par = Parallel(device=device)
        outcome = fit(model, Epochs(device=device), settings, folder=RunFolder(folder, identity={}), par=par, **more)
        return read_metrics(folder), outcome.weights_sha256

    uncut = run(tmp_path / "uncut")
    with pytest.raises(Cut):
        run(tmp_path / "cut", on_step=at)
    checkpoint, _ = newest_verified(tmp_path / "cut")
    assert checkpoint is not None
    assert checkpoint.step == cut - 1
    metrics, weights = run(tmp_path / "cut", resume=checkpoint)
    for found, expected in zip(metrics, uncut[0], strict=True):
        assert found == expected, f"from step {checkpoint.step} on"
    assert weights == uncut[1]


@pytest.mark.usefixtures("anywhere")
def test_what_a_kernel_reports_is_raised_before_the_next_update(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[str] = []

    def check() -> None:
        if reported:
            raise RuntimeError(reported.pop())

    monkeypatch.setattr(capture, "_checks", [])
    check_replays_with(check)
    made, plain = (updater(Epochs()) for _ in range(2))
    for each in (made, plain):
        each.take(1, rate=RATE)
    reported.append("a kernel stalled")
    with pytest.raises(RuntimeError, match="a kernel stalled"):
        made.take(2, rate=RATE)
    assert made.intact
    for each in (made, plain):
        each.take(2, rate=RATE)
    assert_same(made, plain)


class Grows(Epochs):
    """Keys and values of all windows."""

    def window(self, step: int) -> Window:
        return super().window(step)._replace(fresh=step == 0, ends=False)


@pytest.mark.usefixtures("anywhere")
@pytest.mark.parametrize("device", DEVICES)
def test_a_state_that_grows_is_read_step_by_step(device: torch.device) -> None:
    model = build_sample(TransformerSpec(width=12, heads=2), vocab=VOCAB).double()
    with pytest.raises(UserError, match=r"the state grows from window to window: layers\.0\.keys_BSGK from"):
        updater(Grows(device=device), model, device=device).take(1, rate=RATE)
    made = updater(Grows(device=device), model, device=device, graph="auto")
    for number in (1, 2):
        made.take(number, rate=RATE)
        assert made.graphs is not None
        assert "the state grows" in str(made.graphs.why)


def test_why_not() -> None:
    def why(**settings: Any) -> str:
        task = Epochs(device=CPU)
        made = updater(task, **{"graph": "auto", **settings})
        made.par = Parallel(device=torch.device(device))
        return str(graph.obstacle(made, task.window(0)._replace(obstacle=reason)))

    device, reason = "cpu", None
    assert why(graph="never") == "train.graph = 'never'"
    assert "this model is on cpu" in why()
    with pytest.raises(UserError, match=r"train.graph = 'always', but graphs are for CUDA"):
        why(graph="always")
    device = "cuda"
    assert why() == why(graph="always") == "None"
    assert "truncation 'random' cuts every window elsewhere" in why(truncation="random:4")
    reason = "a document begins in this window"
    assert why() == why(graph="always") == reason, "one window is no reason to refuse all"
    reason = DIFFERS
    assert why() == DIFFERS
    with pytest.raises(UserError, match=DIFFERS):
        why(graph="always")
    with lens("*"):
        assert "a lens is open" in why()


def test_always_is_refused_where_it_never_can_be(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"train.graph = 'always', but graphs are for CUDA, and this model is on cpu"):
        fit(tiny(), TokenTask(), spec(graph="always"))
    with pytest.raises(UserError, match=r"train.graph = 'always', but graphs are for CUDA"):
        run_training("lstm", out=tmp_path / "run", settings={"train.graph": "always", "train.device": "cpu"})
    assert not (tmp_path / "run").exists()
    two = Parallel(world=2, device=torch.device("cuda"))
    with pytest.raises(UserError, match="2 processes agree on the host"):
        graph.refuse_what_is_never_captured(spec(graph="always"), two)


MODELS = {row.name: row.spec for row in LINEAGE}


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", MODELS)
def test_every_model_can_be_captured(name: str, precision: str) -> None:
    device = torch.device("cuda")
    made = []
    for asked in ("never", "always"):
        model = build_sample(MODELS[name].small(), vocab=VOCAB)
        if isinstance(model, CountingMachine):
            pytest.skip("it counts: there is no step to capture")
        whole = "transformer" in name or "attention" in name
        task = Epochs(whole=whole, device=device)
        made.append(updater(task, model, device=device, precision=precision, graph=asked))
    plain, replayed = made
    for number in range(1, 9):
        expected, found = (each.take(number, rate=RATE).numbers.clone() for each in made)
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)
    assert replayed.graphs is not None
    for (key, a), b in zip(plain.model.named_parameters(), replayed.model.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-2, atol=1e-3, msg=key)


@pytest.mark.gpu
def test_a_run_on_a_gpu_notices_later_and_names_the_step() -> None:
    device = torch.device("cuda")
    model = tiny().to(device)
    settings = TrainSpec.model_validate(
        {"steps": 40, "batch": 4, "window": 12, "graph": "always", "precision": "float32"}
    )
    count = iter(range(1, 100))
    # Called for the warm-up and the capture, then at the first window that is not replayed, which is the fifth.
    called = WARM_UP + 2
    model.head.bias_V.register_hook(lambda gradient: gradient * (torch.inf if next(count) == called else 1.0))
    with pytest.raises(NonFinite, match=r"the gradient of head\.bias_V is not finite at step 5"):
        fit(model, Epochs(device=device), settings, par=Parallel(device=device))


def language_model(
    kind: str, folder: Path, device: torch.device, asked: str, *, guarded: bool | None = None
) -> Updater:
    text = folder / "text.txt"
    text.write_text("one document, which is not short; " * 30)
    order = "random" if kind == "transformer" else "sequential"
    settings = ["train.batch=4", "train.window=16", "train.truncation=full", f"data.order={order}", "seed=1"]
    described = make_spec({"model": {"kind": kind, "width": 32}, "data": {"text": str(text)}}, settings)
    par = Parallel(device=device)
    job = LanguageModelJob.open(described, Opening(folder, par))
    job._resident = ResidentTokens(job.corpus.train.tokens, end_id=job.corpus.tokenizer.end_id, device=device)
    train = described.train.model_copy(update={"graph": asked})
    return Updater(job.build().to(device), job, train, seed=0, par=par, guarded=guarded)


@pytest.mark.usefixtures("anywhere")
@pytest.mark.parametrize("kind", ["lstm", "ttt_linear", "transformer"])
def test_windows_of_a_language_model(kind: str, tmp_path: Path) -> None:
    plain, replayed = (language_model(kind, tmp_path, CPU, asked, guarded=True) for asked in ("never", "always"))
    why = set()
    for number in range(1, 40):
        for made in (plain, replayed):
            made.take(number, rate=RATE)
        assert replayed.graphs is not None
        why.add(replayed.graphs.why)
    assert_same(plain, replayed)
    odd = {"a document begins in this window", "the last window of an epoch is shorter"}
    assert why == ({None} if kind == "transformer" else {None, *odd})


@pytest.mark.gpu
@pytest.mark.parametrize("asked", ["never", "always"])
@pytest.mark.parametrize("kind", ["lstm", "gru", "mingru", "ttt_linear", "transformer"])
def test_no_step_of_a_language_model_waits(kind: str, asked: str, tmp_path: Path) -> None:
    made, readings = language_model(kind, tmp_path, torch.device("cuda"), asked), Readings()
    assert made.graphs is not None
    losses: list[float] = []
    replayed = 0
    for number in range(1, 40):
        window = made.task.window(number - 1)
        odd = window.obstacle is not None or number < 4  # ragged rows may ask, and the first steps compile
        with nullcontext() if odd else no_waiting():
            readings.put(made.take(number, rate=RATE).numbers)
            losses += [numbers[0] / window.weight for numbers in readings.due()]
        replayed += made.graphs.why is None
    losses += [numbers[0] / window.weight for numbers in readings.due(all_of_them=True)]
    assert len(losses) == 39
    assert losses[-1] < losses[0]
    assert replayed == 0 if asked == "never" else replayed > 30
