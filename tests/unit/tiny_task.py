"""A task for the training loop alone: random tokens, a loss in the model's own precision, scripted validation."""

from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from statewise.core import map_state
from statewise.models import LanguageModel, build
from statewise.specs import TrainSpec
from statewise.training import Parallel, Window
from statewise.training.loop import Trainer
from statewise.training.progress import Silent

VOCAB = 5


class TokenTask:
    def __init__(self, *, rows: int = 4, time: int = 12, nats: Sequence[float] = ()) -> None:
        self.rows, self.time = rows, time
        self.nats = list(nats)
        self.seen: list[dict[str, Tensor]] = []  # the weights at each evaluation

    def tokens(self, step: int) -> Tensor:
        generator = torch.Generator().manual_seed(1000 + step)
        return torch.randint(VOCAB, (self.rows, self.time + 1), generator=generator)

    judges = MappingProxyType({"nats": "lower"})

    def begin(self, model: Any, rows: int) -> Any:
        return model.init_state(rows)

    def window(self, step: int) -> Window:
        return Window(
            self.rows,
            self.time,
            step == 0,
            self.tokens(step),
            weight=self.rows * self.time,
            tokens=self.rows * self.time,
        )

    def loss(self, model: Any, window: Window, some: slice, times: slice, state: Any) -> tuple[Tensor, Any]:
        logits_BTV, state = model(window.content[some, :-1][:, times], state)
        targets_BT = window.content[some, 1:][:, times]
        return F.cross_entropy(logits_BTV.flatten(0, 1), targets_BT.flatten(), reduction="sum"), state

    def evaluate(self, model: Any, poll: Callable[[], None]) -> dict[str, float]:
        poll()
        self.seen.append({name: p.detach().clone() for name, p in model.named_parameters()})
        return {"nats": self.nats[len(self.seen) - 1]}


def tiny(kind: str = "lstm", **options: Any) -> LanguageModel:
    return build(kind, vocab=VOCAB, seed=3, width=6, **options).double()


def spec(**settings: Any) -> TrainSpec:
    return TrainSpec.model_validate({"steps": 4, "batch": 4, "window": 12, "warmup": 0, **settings})


def trainer(model: LanguageModel, task: Any, settings: TrainSpec) -> Trainer:
    """One that stands in the middle of a run: its state is not zero."""
    made = Trainer(model, task, settings, 0, None, Parallel(), Silent())
    generator = torch.Generator().manual_seed(5)
    zero = model.init_state(task.rows)
    made.updater.state = map_state(lambda leaf: torch.randn(leaf.shape, generator=generator, dtype=leaf.dtype), zero)
    return made


def gradients(model: LanguageModel) -> dict[str, Tensor]:
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def distance(a: dict[str, Tensor], b: dict[str, Tensor]) -> float:
    """The largest difference, relative to the largest entry."""
    assert a.keys() == b.keys()
    largest = max(float(value.detach().abs().max()) for value in a.values())
    return max(float((a[name] - b[name]).detach().abs().max()) for name in a) / largest
