"""One step: accumulation changes nothing, clipping does what it says, and the loop is the loop one would write."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_task import VOCAB, TokenTask, distance, gradients, spec, tiny, trainer
from torch import nn
from torch.nn import functional as F

from statewise.core import leaves
from statewise.training import NonFinite, RunFolder, fit, segments
from statewise.training.folder import weights_sha256


@pytest.mark.parametrize("accumulate", [2, 3, 4, 9])
@pytest.mark.parametrize("truncation", ["full", "fixed:5", "unbiased:4"])
def test_accumulation_changes_no_gradient_and_no_state(accumulate: int, truncation: str) -> None:
    def one(parts: int) -> tuple[dict[str, torch.Tensor], torch.Tensor, float]:
        model, task = tiny(depth=2), TokenTask()
        settings = spec(accumulate=parts, truncation=truncation)
        made = trainer(model, task, settings)
        loss = float(made.updater.backward(task.window(1), segments(settings.truncation, 12, key=(0, 1))))
        return gradients(model), torch.cat([leaf for _, leaf in leaves(made.updater.state)], dim=1), loss

    whole, state, loss = one(1)
    found, found_state, found_loss = one(accumulate)
    assert distance(whole, found) < 1e-12
    assert found_state.shape == state.shape
    torch.testing.assert_close(found_state, state, rtol=0, atol=1e-13)
    assert found_loss == pytest.approx(loss, rel=1e-13)


@pytest.mark.parametrize("clip", [0.01, 1e3])
def test_clipping_bounds_the_norm_of_the_update(clip: float) -> None:
    """With plain SGD of rate 1 the update is the gradient that was applied."""
    model, task = tiny(), TokenTask()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    made = trainer(model, task, spec(clip=clip, optimizer="sgd", lr=1.0, weight_decay=0, schedule="constant"))
    _, norm, _ = made.step(1)
    update = torch.cat([(before[name] - p.detach()).flatten() for name, p in model.named_parameters()])
    assert norm > 0.01
    assert float(update.norm()) == pytest.approx(min(clip, norm), rel=1e-4)


def test_clip_events_are_counted(tmp_path: Path) -> None:
    def records(clip: float) -> list[dict[str, Any]]:
        folder = tmp_path / str(clip)
        task = TokenTask(nats=[1.0, 0.5])
        fit(tiny(), task, spec(clip=clip, steps=6, log_every=3), folder=RunFolder(folder, identity={}))
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        return [line for line in lines if "loss" in line]

    assert [line["clipped"] for line in records(1e-4)] == [3, 3]
    assert [line["clipped"] for line in records(1e4)] == [0, 0]


class PlainLSTM(nn.Module):
    """What one writes without this package."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, 6)
        self.lstm = nn.LSTM(6, 6, batch_first=True)
        self.head = nn.Linear(6, VOCAB)
        self.double()


def test_the_loop_is_a_hand_written_loop() -> None:
    """Ten steps of AdamW with truncation, clipping, warm-up, cosine and a carried state, against torch.nn."""
    ours, task = tiny(), TokenTask()
    settings = spec(steps=10, warmup=3, clip=0.2, lr=0.05, weight_decay=0.1, log_every=1, final=0.1)
    plain = PlainLSTM()
    mixer: Any = ours.stack.blocks[0].mixer
    with torch.no_grad():
        plain.embedding.weight.copy_(ours.embedding.weight)
        plain.lstm.weight_ih_l0.copy_(mixer.w_GI)
        plain.lstm.weight_hh_l0.copy_(mixer.u_GP)
        plain.lstm.bias_ih_l0.copy_(mixer.b_G)
        plain.lstm.bias_hh_l0.zero_().requires_grad_(False)
        plain.head.weight.copy_(ours.head.weight_VE)
        plain.head.bias.copy_(ours.head.bias_V)
    trained = [p for p in plain.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(
        [
            {"params": [p for p in trained if p.dim() > 1], "weight_decay": 0.1},
            {"params": [p for p in trained if p.dim() == 1], "weight_decay": 0.0},
        ],
        lr=0.05,
        betas=settings.betas,
    )
    expected = []
    state = None
    for step in range(10):
        tokens = task.tokens(step)
        optimizer.zero_grad()
        y_BTD, (h, c) = plain.lstm(plain.embedding(tokens[:, :-1]), state)
        state = (h.detach(), c.detach())
        loss = F.cross_entropy(plain.head(y_BTD).flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(trained, 0.2)
        done = max(0.0, (step + 1 - 3) / 7)
        shape = 0.1 + 0.9 * 0.5 * (1 + float(torch.cos(torch.tensor(torch.pi * done, dtype=torch.float64))))
        for group in optimizer.param_groups:
            group["lr"] = 0.05 * min(1.0, (step + 1) / 3) * shape
        optimizer.step()
        expected.append(loss.item())

    made = trainer(ours, task, settings)
    made.updater.state = None
    found = [made.step(number)[0] for number in range(1, 11)]
    assert found == pytest.approx(expected, rel=1e-10)
    torch.testing.assert_close(ours.head.weight_VE, plain.head.weight, rtol=0, atol=1e-10)
    torch.testing.assert_close(mixer.u_GP, plain.lstm.weight_hh_l0, rtol=0, atol=1e-10)


def run_of(seed: int, **options: Any) -> tuple[str, list[float]]:
    model, losses = tiny(**options), []
    made = trainer(model, TokenTask(), spec(truncation="random:4"))
    made.updater.run_seed = seed
    losses = [made.step(number)[0] for number in range(1, 5)]
    return weights_sha256(model), losses


def test_one_seed_one_run_whatever_was_drawn_before() -> None:
    options = {"dropout": 0.4, "weight_drop": 0.3, "zoneout": 0.2, "variational": True}
    first = run_of(0, **options)
    torch.rand(17)
    assert run_of(0, **options) == first
    assert run_of(1, **options)[0] != first[0]


def test_dropout_is_a_function_of_seed_and_step() -> None:
    """The loss of a step does not depend on which steps were made before (the weights being equal)."""

    def loss_of(number: int, *, before: tuple[int, ...] = (), seed: int = 0) -> float:
        model = tiny(dropout=0.5)
        made = trainer(model, task := TokenTask(), spec(lr=1e-300, weight_decay=0, schedule="constant"))
        made.updater.run_seed = seed
        task.window = lambda step: TokenTask().window(7)  # one text for all steps
        state = made.updater.state
        for earlier in before:
            made.step(earlier)
            made.updater.state = state
        return made.step(number)[0]

    assert loss_of(3) == loss_of(3, before=(1, 2))
    assert len({loss_of(1), loss_of(2), loss_of(3), loss_of(3, seed=1)}) == 4


def poisoned(model: nn.Module, what: str) -> None:
    if what == "weight":
        with torch.no_grad():
            model.stack.blocks[0].mixer.u_GP[0, 0] = torch.nan
    elif what == "gradient":
        model.head.bias_V.register_hook(lambda gradient: gradient * torch.inf)


@pytest.mark.parametrize(
    ("what", "named"),
    [
        ("weight", "weight stack.blocks.0.mixer.u_GP"),
        ("gradient", "the gradient of head.bias_V"),
        ("loss", "the loss"),
    ],
)
def test_a_non_finite_value_stops_before_the_update(what: str, named: str) -> None:
    model, task = tiny(), TokenTask()
    made = trainer(model, task, spec())
    made.step(1)
    poisoned(model, what)
    if what == "loss":
        honest = task.loss
        task.loss = lambda *arguments: (honest(*arguments)[0] * torch.nan, arguments[-1])
    before = weights_sha256(model)
    with pytest.raises(NonFinite) as caught:
        made.step(2)
    assert str(caught.value) == f"{named} is not finite at step 2; the weights were not updated"
    assert weights_sha256(model) == before


def test_weights_that_are_not_finite_are_never_saved(tmp_path: Path) -> None:
    """An update can overflow; the checkpoint before it must not be pruned for one nobody can use."""
    model, task = tiny(), TokenTask(nats=[1.0])

    def overflow(step: int) -> None:
        if step == 3:
            with torch.no_grad():
                model.head.bias_V[0] = torch.inf

    settings = spec(steps=10, save_every=1, keep=1)
    with pytest.raises(NonFinite, match=r"weight head\.bias_V is not finite at step 3; nothing was saved"):
        fit(model, task, settings, folder=RunFolder(tmp_path, identity={}), on_step=overflow)
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-00000002"]
