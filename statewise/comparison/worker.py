"""One trial, in a process of its own: train or go on, evaluate, measure, and leave a result or a reason.

`python -m statewise.comparison.worker` imports everything once and then forks for each trial it is told of. So a trial
costs no import, what it takes of memory is its own, and if it dies nothing else does.
"""

import json
import os
import select
import shutil
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NoReturn

import torch

from statewise.comparison.measure import (
    bytes_by_context,
    clock,
    costs,
    curve,
    finite_metrics,
    longest_path,
    model_bytes,
    peak_bytes,
    refuse_without,
    seconds_by_context,
    training_by_context,
    watched,
)
from statewise.comparison.record import Order, append, read_lines, read_order, write_failure, write_found
from statewise.comparison.trial import COSTS, Failure, Found, Trial
from statewise.disk import make_folder, open_to_append
from statewise.models import CustomMixer, Source, classes_of, from_source
from statewise.specs import OwnMixer, StackedSpec, UserError, from_json, lack_of_memory
from statewise.tasks import NEEDS, Answers, Trained, load, read_spec, train, trivial_scores
from statewise.training import Extent, NonFinite, Stopped, newest_verified, pick_device, summary_writer

End = Literal["found", "failed", "stopped"]
Tell = Callable[[Mapping[str, Any]], None]
STOPPED = 75  # exit code of a trial that was asked to stop, and can go on
_EVERY = 0.2  # seconds between two words about a training


def sent(mixers: Sequence[OwnMixer]) -> list[dict[str, str]]:
    """A user's own classes as plain data. They come from the process that drives a study, never from its folder."""
    own_classes = [own for own in classes_of(mixers) if own.source is not None]
    return [{"name": own.name, **own.source._asdict()} for own in own_classes if own.source is not None]


def received(mixers: Sequence[Mapping[str, str]]) -> tuple[CustomMixer, ...]:
    """What was sent, as classes again."""
    return tuple(from_source(Source(mixer["path"], mixer["text"]), mixer["name"]) for mixer in mixers)


def run_trial(path: Path, *, tell: Tell = lambda _: None, mixers: Sequence[CustomMixer] = ()) -> End:
    """Do what `trial.json` says. Afterwards there is `result.json` or `failure.json`, unless a signal came."""
    order = read_order(path, mixers=mixers)
    trial = order.trial
    try:
        result = _run(path, order, tell, mixers)
    except Stopped:
        return "stopped"
    except UserError as error:
        return _failed(path, trial, str(error), lasting=True)
    except NonFinite as error:
        return _failed(path, trial, f"{error}; a smaller train.lr or train.clip may help", lasting=True)
    except Exception as error:
        traceback.print_exc()
        return _failed(path, trial, _explained(error), lasting=False)
    write_found(path, result)
    return "found"


def _explained(error: Exception) -> str:
    """On a CPU, only the message of the error says that memory ran out."""
    said = f"{type(error).__name__}: {error}"
    if lacking := lack_of_memory(error):
        return f"{lacking}; a smaller model, a smaller train.batch or fewer workers may help"
    return said


def _failed(path: Path, trial: Trial, error: str, *, lasting: bool) -> End:
    write_failure(path, Failure(trial.key, trial.entry, trial.seed, trial.phase, error, lasting))
    return "failed"


def _run(path: Path, order: Order, tell: Tell, mixers: Sequence[CustomMixer]) -> Found:
    trial, metric = order.trial, order.metric
    trained = _train(path, trial, tell, mixers)
    tell({"doing": "evaluating"})
    run = load(trained.path, device=trial.spec.train.device, mixer=mixers)
    evaluation = run.evaluate()._asdict()
    metrics = finite_metrics(evaluation)
    if metric not in COSTS:
        refuse_without(metric, metrics, run.spec.task)
    append(path / "sessions.jsonl", {"peak": peak_bytes(run.device)})
    tell({"doing": "measuring"})
    lines = read_lines(path / "sessions.jsonl")
    at = clock(trained.path)
    tokens, seconds = at.at(trained.outcome.step)
    final = trial.phase == "final"  # of a search, only the metric is needed
    shown = run.answers() if final else Answers()
    sample = shown.sample
    measured = final or metric in COSTS
    state_bytes = bytes_by_context(run.machine, also=order.context) if measured else {}
    by_context = seconds_by_context(run.machine) if measured else None
    if metric in COSTS:  # only then: a time is not the same twice
        metrics |= costs(state_bytes, by_context, context=order.context)
        refuse_without(metric, metrics, run.spec.task)
    reach = trial.spec.model.reach if isinstance(trial.spec.model, StackedSpec) else None
    clocked: dict[str, Any] = {"at": at, "flops_per_token": trial.flops_per_token}
    return Found(
        key=trial.key,
        entry=trial.entry,
        seed=trial.seed,
        phase=trial.phase,
        settings=trial.settings,
        figures=metrics,
        curve=curve(trained.path, metric=metric, **clocked),
        parameters=sum(p.numel() for p in run.model.parameters()),
        flops_per_token=trial.flops_per_token,
        state_bytes=state_bytes,
        steps=trained.outcome.step,
        seconds=seconds,
        tokens=tokens,
        tokens_per_second=tokens / max(seconds, 1e-9),
        decode_tokens_per_second=run.decode_speed() if final else None,
        # Of all who worked on it: the last may only have had to evaluate.
        peak_bytes=max(line["peak"] for line in lines if "peak" in line),
        sample=None if sample is None else sample.sample,
        surprise=None if sample is None else sample.surprise,
        weights_sha256=trained.outcome.weights_sha256,
        seconds_by_context=by_context,
        training_bytes=training_by_context(run.machine) if metric in COSTS else None,
        path=longest_path(run.machine, reach=reach) if metric in COSTS else None,
        watched=watched(trained.path, metric=metric, **clocked),
        prompt=None if sample is None else sample.prompt,
        answers=shown.rows,
        course=shown.course,
        anchors={} if metric in COSTS else trivial_scores(evaluation, metric),
        model_bytes=model_bytes(run.model),
    )


def _train(path: Path, trial: Trial, tell: Tell, mixers: Sequence[CustomMixer]) -> Trained:
    out, sessions = path / "run", path / "sessions.jsonl"
    checkpoint, _ = newest_verified(out, needs=NEEDS) if trial.spec.learns == "gradient" else (None, [])
    # Its data may have moved: what is kept names the old place.
    if checkpoint is None or read_spec(checkpoint.path, mixers=mixers) != trial.spec:
        shutil.rmtree(out, ignore_errors=True)
        _begin(sessions, step=0)
        make_folder(out, inside=path)
        trained = train(trial.spec, out=out, display=_Telling(tell))
    else:
        _begin(sessions, step=checkpoint.step)
        trained = train(out=out, resume=True, display=_Telling(tell), mixer=mixers)
    # A worker that is killed while it evaluates has still trained, and knows what that took.
    append(sessions, {"peak": peak_bytes(pick_device(trial.spec.train.device))})
    return trained


def _begin(path: Path, *, step: int) -> None:
    append(path, {"step": step, "pid": os.getpid(), "time": round(time.time(), 3)})


class _Telling:
    """A display for training that passes on how far it is."""

    def __init__(self, tell: Tell) -> None:
        self._tell, self._last = tell, 0.0

    def start(self, at: Extent) -> None: ...

    def update(self, at: Extent, *, loss: float, tokens_per_second: float) -> None:
        now = time.monotonic()
        if now - self._last >= _EVERY:
            self._last = now
            share = at.done / at.whole if at.whole else 1.0
            self._tell({"doing": str(at), "share": share, "tokens_per_second": tokens_per_second})

    def say(self, text: str) -> None:
        print(text, flush=True)  # into the trial's own log

    def stop(self) -> None: ...


def main() -> None:
    """Read orders from standard input, a line each, until it closes; answer on standard output."""
    channel = os.dup(1)
    os.dup2(2, 1)  # whatever else is printed must not be taken for an answer
    _import_what_trainings_want()
    _say(channel, {"ready": True})
    with open(0, "rb", buffering=0, closefd=False) as orders:
        while line := orders.readline():
            order = from_json(line)
            pid = os.fork()
            if pid == 0:
                _child(Path(order["path"]), order["threads"], channel, order["mixers"])
            _, status = os.waitpid(pid, 0)
            _say(channel, {"done": os.waitstatus_to_exitcode(status)})


def _import_what_trainings_want() -> None:
    """TensorBoard's writer, if there is one, and the compiler: PyTorch imports it when it is told not to use it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        summary_writer()
        torch.use_deterministic_algorithms(False)


def _child(path: Path, threads: int, channel: int, mixers: Sequence[Mapping[str, str]]) -> NoReturn:
    code = 1
    try:
        threading.Thread(target=_die_with_the_driver, daemon=True).start()
        log = open_to_append(path / "log.txt")
        os.dup2(log, 1)
        os.dup2(log, 2)
        _say(channel, {"pid": os.getpid()})
        torch.set_num_threads(threads)
        end = run_trial(path, tell=lambda words: _say(channel, words), mixers=received(mixers))
        code = STOPPED if end == "stopped" else 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # the loop above is the parent's


def _die_with_the_driver() -> None:
    """The driver holds the other end of standard input; however it dies, the kernel closes it."""
    poll = select.poll()
    poll.register(0, 0)  # nothing but the hang-up
    while not any(event & (select.POLLHUP | select.POLLERR) for _, event in poll.poll()):
        pass
    os._exit(1)


def _say(channel: int, words: Mapping[str, Any]) -> None:
    try:
        os.write(channel, (json.dumps(dict(words)) + "\n").encode())
    except BrokenPipeError:
        os._exit(1)


if __name__ == "__main__":
    main()
