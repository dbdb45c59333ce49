"""ListOps by an LSTM of 128 units: ours in three variants next to torch.nn.LSTM in a plain loop, on the same files.

    python benchmarks/listops.py [--rows 100000] [--epochs 5] [--seeds 1] [--only NAME …] [--device cpu] [--json FILE]

Expressions are generated; a tenth of them is the test set. Variants: `ours`; `unsorted`: batches are not sorted by
length; `torch_init`: the initialisation of torch.nn; `torch_nn`: the plain loop.
"""

import math
import random
import tempfile
from pathlib import Path
from unittest.mock import patch

import torch
from command_line import console, options, positive, write
from rich.table import Table
from torch import Tensor, nn
from torch.nn import functional as F

VARIANTS = ("ours", "unsorted", "torch_init", "torch_nn")
BATCH, WIDTH, RATE, WARMUP, FINAL = 64, 128, 1e-3, 100, 0.05
Row = tuple[int, str]  # value, expression


def median(values: list[int]) -> int:
    """Of an even number, the mean of the two in the middle, rounded down."""
    ordered, half = sorted(values), len(values) // 2
    return ordered[half] if len(values) % 2 else (ordered[half - 1] + ordered[half]) // 2


OPERATIONS = {"MIN": min, "MAX": max, "MED": median, "SM": lambda values: sum(values) % 10}


def expressions(count: int) -> list[Row]:
    """Different ones of 4 to 100 words; of the short ones, 15 in 100."""
    rng = random.Random(0)

    def draw(depth: int) -> Row:
        if depth < 20 and rng.random() < 0.25:
            name, number = rng.choice(list(OPERATIONS)), rng.randint(2, 5)
            arguments = [draw(depth + 1) for _ in range(number)]
            value = OPERATIONS[name]([value for value, _ in arguments])
            return value, f"[{name} {' '.join(text for _, text in arguments)} ]"
        digit = rng.randint(0, 9)
        return digit, str(digit)

    found: dict[str, int] = {}
    while len(found) < count:
        value, text = draw(0)
        words = len(text.split())
        if 3 < words <= 100 and text not in found and (words >= 10 or rng.random() < 0.15):
            found[text] = value
    return [(value, text) for text, value in found.items()]


def ours(variant: str, train: list[Row], test: list[Row], *, steps: int, seed: int, device: str) -> float:
    import statewise as sw
    from statewise.data import RaggedBatches
    from statewise.specs import parse_spec

    other = {"init": "torch", "forget_bias": 0.0} if variant == "torch_init" else {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part, rows in (("train", train), ("test", test)):
            lines = "".join(f"{text}\t{value}\n" for value, text in rows)
            (folder / f"{part}.tsv").write_text(f"text\tlabel\n{lines}", encoding="utf-8")
        rates = {"lr": RATE, "warmup": min(WARMUP, steps // 2), "final": FINAL}
        often = {"evaluate_every": 2000, "save_every": 20_000}
        table = {
            "task": "classification",
            "seed": seed,
            "model": {"kind": "lstm", "width": WIDTH, **other},
            "data": {"train": str(folder / "train.tsv"), "held_out": 0.02},
            "train": {"steps": steps, "batch": BATCH, "device": device, **rates, **often},
        }
        bucket = {"bucket": 1} if variant == "unsorted" else {}
        with patch.dict(RaggedBatches.__init__.__kwdefaults__, bucket):
            trained = sw.train(parse_spec(table), out=folder / "run")
        return float(sw.load(trained.path, device=device).evaluate(folder / "test.tsv").accuracy)


class Plain(nn.Module):
    def __init__(self, vocab: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab, WIDTH)
        self.lstm = nn.LSTM(WIDTH, WIDTH, batch_first=True)
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, tokens_BT: Tensor, lengths_B: Tensor) -> Tensor:
        y_BTD, _ = self.lstm(self.embedding(tokens_BT))
        logits_BK: Tensor = self.head(y_BTD[torch.arange(len(lengths_B)), lengths_B - 1])
        return logits_BK


def plain_loop(train: list[Row], test: list[Row], *, steps: int, seed: int, device: str) -> float:
    torch.manual_seed(seed)
    vocab = {word: number for number, word in enumerate(sorted({w for _, text in train for w in text.split()}), 1)}

    def tensors(rows: list[Row]) -> tuple[Tensor, Tensor, Tensor]:
        texts = [torch.tensor([vocab.get(word, 0) for word in text.split()]) for _, text in rows]
        lengths_N = torch.tensor([len(text) for text in texts])
        values_N = torch.tensor([value for value, _ in rows])
        padded_NT = nn.utils.rnn.pad_sequence(texts, batch_first=True)
        return padded_NT.to(device), lengths_N.to(device), values_N.to(device)

    tokens_NT, lengths_N, values_N = tensors(train)
    model = Plain(len(vocab) + 1).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.99), weight_decay=0.01)
    order, at = torch.randperm(len(train)), 0
    for step in range(steps):
        if at + BATCH > len(train):
            order, at = torch.randperm(len(train)), 0
        rows_B = order[at : at + BATCH].to(device)
        at += BATCH
        lengths_B = lengths_N[rows_B]
        loss = F.cross_entropy(model(tokens_NT[rows_B, : int(lengths_B.max())], lengths_B), values_N[rows_B])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        falling = FINAL + (1 - FINAL) * 0.5 * (1 + math.cos(math.pi * step / steps))
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1.0, (step + 1) / WARMUP) * falling
        optimizer.step()
    tokens_NT, lengths_N, values_N = tensors(test)
    with torch.no_grad():
        parts = zip(tokens_NT.split(500), lengths_N.split(500), values_N.split(500))
        right = sum(int((model(tokens, lengths).argmax(-1) == values).sum()) for tokens, lengths, values in parts)
    return right / len(test)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--rows", type=positive, default=100_000)
    parser.add_argument("--epochs", type=positive, default=5)
    parser.add_argument("--seeds", type=positive, default=1)
    parser.add_argument("--only", nargs="+", choices=VARIANTS, default=VARIANTS)
    parser.add_argument("--device", default="cpu")
    asked = parser.parse_args()
    rows = expressions(asked.rows)
    held = len(rows) // 10
    train, test = rows[:-held], rows[-held:]
    sizes = {"steps": asked.epochs * len(train) // BATCH, "device": asked.device}
    table = Table("variant", "seed", "accuracy", title="ListOps by an LSTM")
    found = []
    for variant in asked.only:
        for seed in range(asked.seeds):
            if variant == "torch_nn":
                accuracy = plain_loop(train, test, seed=seed, **sizes)
            else:
                accuracy = ours(variant, train, test, seed=seed, **sizes)
            table.add_row(variant, str(seed), f"{accuracy:.4f}")
            found.append({"variant": variant, "seed": seed, "accuracy": accuracy})
    console().print(table)
    write(asked.json, found)


if __name__ == "__main__":
    main()
