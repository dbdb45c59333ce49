"""A model of the lineage in other people's training loops: plain PyTorch, Lightning, and the Trainer of transformers.

    python examples/other_loops.py [--loop plain|lightning|trainer] [--kind gru] [--steps 200]

A model is a `torch.nn.Module`, so any loop can train it. Only the plain and the Lightning loop carry the state from
one window to the next (truncated backpropagation through time): the Trainer shuffles its rows, so each window begins
with an empty state.

B rows, T time, W windows, V vocabulary.
"""

import argparse
import sys
import tempfile
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

import statewise as sw
from statewise.core import detach

TEXT = "the cat sat on the mat. the dog sat on the log. the bird sang on the branch. " * 60
LETTERS = sorted(set(TEXT))
ROWS, TIME, RATE = 8, 32, 5e-3


class Windows(Dataset[tuple[Tensor, Tensor]]):
    """The text as `ROWS` parallel streams: item w holds the w-th window of each, inputs and targets `[B, T]`."""

    def __init__(self) -> None:
        stream = torch.tensor([LETTERS.index(letter) for letter in TEXT])
        self.inputs_BN = stream[: -1 - (len(stream) - 1) % ROWS].view(ROWS, -1)
        self.targets_BN = stream[1 : 1 + self.inputs_BN.numel()].view(ROWS, -1)

    def __len__(self) -> int:
        return self.inputs_BN.shape[1] // TIME

    def __getitem__(self, window: int) -> tuple[Tensor, Tensor]:
        at = slice(window * TIME, (window + 1) * TIME)
        return self.inputs_BN[:, at], self.targets_BN[:, at]


def nats(logits_BTV: Tensor, targets_BT: Tensor) -> Tensor:
    return F.cross_entropy(logits_BTV.flatten(0, 1), targets_BT.flatten())


def plain(model: Any, steps: int) -> float:
    """The loop that everybody writes, with the state carried and cut from its gradient."""
    optimizer, data = torch.optim.AdamW(model.parameters(), lr=RATE), Windows()
    state, loss = None, torch.tensor(0.0)
    for step in range(steps):
        if step % len(data) == 0:
            state = None  # the streams begin again
        inputs_BT, targets_BT = data[step % len(data)]
        logits_BTV, state = model(inputs_BT, state)
        loss = nats(logits_BTV, targets_BT)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        state = detach(state)
    return loss.item()


def with_lightning(model: Any, steps: int) -> float:
    import lightning

    class Carried(lightning.LightningModule):
        """Lightning has had no truncated backpropagation since version 2; these twenty lines are it."""

        def __init__(self) -> None:
            super().__init__()
            self.model, self.state = model, None

        def on_train_epoch_start(self) -> None:
            self.state = None

        def training_step(self, batch: Any, index: int) -> Tensor:
            inputs_BT, targets_BT = batch
            logits_BTV, state = self.model(inputs_BT, self.state)
            self.state = detach(state)
            loss = nats(logits_BTV, targets_BT)
            self.log("loss", loss)
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), lr=RATE)

    with tempfile.TemporaryDirectory() as folder:
        trainer = lightning.Trainer(
            max_steps=steps, max_epochs=-1, accelerator="cpu", logger=False, enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False, gradient_clip_val=1.0, default_root_dir=folder,
        )  # fmt: skip
        trainer.fit(Carried(), DataLoader(Windows(), batch_size=None))
    return float(trainer.callback_metrics["loss"])


def with_trainer(model: Any, steps: int) -> float:
    import transformers

    class WithLoss(torch.nn.Module):
        """The Trainer wants the loss from the model itself."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: Tensor, labels: Tensor) -> dict[str, Tensor]:
            logits_BTV, _ = self.model(input_ids)
            return {"loss": nats(logits_BTV, labels), "logits": logits_BTV}

    windows = Windows()
    pairs = [(x, y) for window in range(len(windows)) for x, y in zip(*windows[window])]
    rows = [{"input_ids": inputs_T, "labels": targets_T} for inputs_T, targets_T in pairs]
    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            folder, max_steps=steps, per_device_train_batch_size=ROWS, learning_rate=RATE, max_grad_norm=1.0,
            lr_scheduler_type="constant", report_to=[], save_strategy="no", logging_steps=steps, disable_tqdm=True,
            use_cpu=True,
        )  # fmt: skip
        done = transformers.Trainer(WithLoss(), arguments, train_dataset=rows).train()
    return nats(model(windows[0][0])[0], windows[0][1]).item() if done.global_step else float("nan")


LOOPS = {"plain": plain, "lightning": with_lightning, "trainer": with_trainer}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loop", choices=LOOPS, default="plain")
    parser.add_argument("--kind", choices=[one for one in sw.LINEAGE if one != "markov"], default="gru")
    parser.add_argument("--steps", type=int, default=200)
    asked = parser.parse_args()
    model = sw.build(asked.kind, vocab=len(LETTERS), width=64)
    before = nats(model(Windows()[0][0])[0], Windows()[0][1]).item()
    try:
        after = LOOPS[asked.loop](model, asked.steps)
    except ImportError as error:
        print(f"error: {error}\ntry: pip install lightning, or pip install 'transformers[torch]'", file=sys.stderr)
        return 1
    print(f"{asked.kind} by the {asked.loop} loop, {asked.steps} steps: {before:.3f} -> {after:.3f} nats per letter")
    return 0


if __name__ == "__main__":
    sys.exit(main())
