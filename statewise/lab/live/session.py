"""What the page of a server asks: steps from states that are kept here, gradients, and training."""

import secrets
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, final

import numpy as np
import torch
from pydantic import Field

from statewise.core import state_bytes
from statewise.lab.bundle import VERSION, distinct_names, machine_record, model_record, reader_of
from statewise.lab.extra import extra, truncation
from statewise.lab.live.model import WINDOW, Change, Hold, Model, Training, changed, greedy, sent
from statewise.models import Markov, TokenMachine
from statewise.serving.http import Body
from statewise.specs import UserError
from statewise.tasks import LanguageModelRun, Run

_KEPT = 1 << 30  # bytes of states
_SAMPLE = 80  # tokens that a trained copy writes


class Asked(Body):
    """From a state that is kept (None: the first), after some changes, with values that are held from there on."""

    model: str
    state: str | None = None
    changes: list[Change] = Field(default_factory=list, max_length=4096)
    holds: list[Hold] = Field(default_factory=list, max_length=64)


class ReadRequest(Asked):
    tokens: list[int] = Field(min_length=1, max_length=64)


class FutureRequest(Asked):
    """The most probable tokens after this one, but for one that is never chosen."""

    token: int
    length: int = Field(ge=1, le=200)
    never: int | None = None


class GradientRequest(Body):
    model: str
    tokens: list[int] = Field(min_length=1, max_length=600)
    target: int = Field(ge=0)


class TextRequest(Body):
    model: str
    text: str = Field(max_length=4000)


class TrainRequest(TextRequest):
    """More updates of the copy that learns this text; `restart`: of a new copy."""

    updates: int = Field(ge=1, le=50)
    rate: float = Field(gt=0, le=10)
    clip: float = Field(ge=0, le=1e6)
    cut: int = Field(ge=1, le=WINDOW)
    restart: bool


@final
class Live:
    """What the page of a server asks: one question after the other."""

    def __init__(self, runs: Sequence[Run], *, kept_bytes: int = _KEPT) -> None:
        self.runs = dict(zip(distinct_names(runs), runs))
        self._models: dict[str, Model] = {}
        self._trained: dict[str, Training] = {}
        self._states: OrderedDict[str, tuple[str, Any]] = OrderedDict()
        self._left = kept_bytes
        self._lock = threading.Lock()

    def bundle(self) -> dict[str, Any]:
        """The data of the page: records without weights. A table of counts is in the page as always."""
        records = []
        for name, run in self.runs.items():

            def made(machine: TokenMachine[Any], state: Any, name: str = name, run: Run = run) -> dict[str, Any]:
                if isinstance(machine, Markov):
                    return machine_record(machine, state)
                self._models[name] = Model(machine.to(run.device), state, reader_of(run)[1].vocab)
                return self._models[name].record()

            records.append(model_record(run, name=name, computed=made))
        return {"version": VERSION, "models": records, "extra": extra(list(self.runs.values()))}

    def read(self, asked: ReadRequest) -> dict[str, Any]:
        """The steps over some tokens."""
        with self._begun(asked) as (model, state, holds):
            steps = []
            for left, token in zip(reversed(range(len(asked.tokens))), asked.tokens):
                logits_V, state, seen = model.step(token, state, holds, look=left == 0)
                about = {"logits": sent(logits_V), "state": model.shown(state), "seen": seen}
                steps.append({"id": self._keep(asked.model, state), **about})
        return {"steps": steps}

    def future(self, asked: FutureRequest) -> dict[str, Any]:
        with self._begun(asked) as (model, state, holds):
            return {"tokens": greedy(model, state, asked.token, asked.length, asked.never, holds)}

    def gradient(self, asked: GradientRequest) -> dict[str, Any]:
        with self._begun(Asked(model=asked.model)) as (model, _, _):
            return {"norms": model.gradient(asked.tokens, asked.target)}

    def truncation(self, asked: TextRequest) -> dict[str, Any]:
        """A run's own gradients of a text, for every choice of cuts."""
        run, _ = self._learner(asked.model)
        with self._lock, torch.enable_grad():
            return {**truncation(run, asked.text), "name": asked.model}

    def train(self, asked: TrainRequest) -> dict[str, Any]:
        """Train a copy of a run further on a text; the run itself stays as it is."""
        run, model = self._learner(asked.model)
        start = int(run.begin().token_B[0])
        tokens = [start, *map(int, run.tokenizer.encode(asked.text))]
        if len(tokens) < 2:
            raise UserError("there is nothing to learn in an empty text", fix="write a sentence")
        with self._lock:
            if asked.restart or asked.model not in self._trained:
                self._trained[asked.model] = Training(model)
            copied = self._trained[asked.model]
            done = [copied.learn(tokens, rate=asked.rate, clip=asked.clip, cut=asked.cut) for _ in range(asked.updates)]
            with torch.no_grad():
                written = [
                    run.tokenizer.decode(greedy(one, one.first, start, _SAMPLE, run.tokenizer.unknown_id, {}))
                    for one in (model, copied.model)
                ]
        # JSON has no infinity: weights that exploded give null.
        losses, norms = ([value if np.isfinite(value) else None for value in values] for values in zip(*done))
        return {"losses": losses, "norms": norms, "written": written}

    def _learner(self, name: str) -> tuple[LanguageModelRun, Model]:
        run = self.runs.get(name)
        if not isinstance(run, LanguageModelRun) or name not in self._models:
            raise UserError(f"{name!r} is not a language model that learns by gradients", fix="choose another model")
        return run, self._models[name]

    @contextmanager
    def _begun(self, asked: Asked) -> Iterator[tuple[Model, Any, dict[str, Hold]]]:
        if asked.model not in self._models:
            raise UserError(f"no model {asked.model!r} is live", fix=f"one of {', '.join(self._models) or 'none'}")
        model = self._models[asked.model]
        unknown = {hold.name for hold in asked.holds} - set(model.lens)
        if unknown:
            known = ", ".join(model.lens)
            raise UserError(f"{asked.model!r} has no value {sorted(unknown)[0]!r}", fix=f"one of {known}")
        with self._lock, torch.no_grad():
            yield model, changed(self._kept(asked, model), asked.changes), {hold.name: hold for hold in asked.holds}

    def _kept(self, at: Asked, model: Model) -> Any:
        if at.state is None:
            return model.first
        name, state = self._states.get(at.state, (None, None))
        if name != at.model:
            raise UserError(
                f"the state {at.state!r} is not kept any more", fix="change the text, or load the page again"
            )
        self._states.move_to_end(at.state)
        return state

    def _keep(self, name: str, state: Any) -> str:
        key = secrets.token_hex(12)
        self._states[key] = name, state
        self._left -= state_bytes(state)
        while self._left < 0 and len(self._states) > 1:
            _, (_, old) = self._states.popitem(last=False)
            self._left += state_bytes(old)
        return key
