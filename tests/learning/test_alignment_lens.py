"""Alignments that form in training, seen by the lens `attention`: forward on copies, backward on reversals.

And what attention is without positions: a function of a set.
"""

import random
from pathlib import Path
from typing import Any

import pytest
import torch

from statewise.core import lens
from statewise.encoders import MultiHeadAttention
from statewise.figures import Passage
from statewise.inspection import apply_lens
from statewise.models import ENCODER_DECODERS
from statewise.tasks import train
from statewise.training.progress import Silent

SETTINGS = {
    "data.header": "no",
    "model.encoder.width": 32,
    "model.encoder.dropout": 0.0,
    "model.decoder.width": 32,
    "model.decoder.dropout": 0.0,
    "train.steps": 300,
    "train.batch": 32,
    "train.lr": 1e-2,
    "train.warmup": 10,
    "train.evaluate_every": 300,
    "train.save_every": 300,
    "decoding.beam": 1,
    "decoding.watch": 8,
}


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", [pytest.param("copy", marks=pytest.mark.slow), "reversal"])
def test_row_a15_an_alignment_forms(kind: str, seed: int, tmp_path: Path) -> None:
    """With the recipe's attention, which is the default, every token is over the word that it is from."""
    dice = random.Random(0)
    drawn = (tuple(dice.choice("abcdefgh") for _ in range(dice.randint(4, 6))) for _ in range(3000))
    rows = dict.fromkeys(drawn)  # in the same order each time, which a set of words is not
    targets = {row: row if kind == "copy" else row[::-1] for row in rows}
    (tmp_path / "pairs.tsv").write_text("".join(f"{' '.join(a)}\t{' '.join(b)}\n" for a, b in targets.items()))
    run = train(
        "translation",
        settings={**SETTINGS, "seed": seed},
        data=tmp_path / "pairs.tsv",
        out=tmp_path / "run",
        display=Silent(),
    ).load()
    listed = next(row.spec for row in ENCODER_DECODERS if row.name == "attention_decoder")
    assert (run.spec.model.style, run.spec.model.attention) == (listed.style, listed.attention)
    found = apply_lens(run, "attention", judged=40)
    pairs = found.data["pairs"]
    assert len(pairs) == 40
    assert {pair["kind"] for pair in pairs} <= {kind, "copy"}  # one that reads the same from both ends is a copy
    judged = [pair for pair in pairs if pair["kind"] == kind]
    right = sum(pair["agreement"]["right"] for pair in judged) / sum(pair["agreement"]["tokens"] for pair in judged)
    way = 1 if kind == "copy" else -1
    assert min(way * pair["slope"] for pair in judged) > 0.9
    assert right > 0.9
    for figure in found.figures:  # without the end symbols a picture is as high as it is wide
        across, down = (axis.categories for axis in (figure.x, figure.y))
        assert [name.split()[1] for name in down] == [name.split()[1] for name in across][::way]
        assert len(figure.grid.values) == len(down) == len(figure.grid.values[0]) == len(across)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)])
def test_row_a16_pooling_finds_the_word_that_decides(seed: int, tmp_path: Path) -> None:
    """One word of a row is in capitals, and is its class: the summary is made of that word."""
    dice = random.Random(seed)
    rows = []
    for _ in range(600):
        words = dice.choices("abcdefgh", k=dice.randint(6, 12))
        at = dice.randrange(len(words))
        rows.append((" ".join([*words[:at], words[at].upper(), *words[at + 1 :]]), words[at]))
    settings = {
        "seed": seed,
        "data.min_count": 1,
        "model.width": 16,
        "model.embedding": 16,
        "model.dropout": 0.0,
        "reader.summary": "attention",
        "train.steps": 200,
        "train.batch": 32,
        "train.lr": 1e-2,
        "train.warmup": 10,
        "train.evaluate_every": 200,
        "train.save_every": 200,
    }
    run = train("classification", settings=settings, data=rows, out=tmp_path / "run", display=Silent()).load()
    found = apply_lens(run, "attention", rows=20)
    pooled = found.data["pooled"]
    assert len(pooled) == 20
    marked = [[piece.strip().isupper() for piece in row["pieces"]].index(True) for row in pooled]
    on_it = [row["weights"][at] for row, at in zip(pooled, marked, strict=True)]
    assert min(on_it) > 0.5  # so that no other word has more
    assert all(sum(row["weights"]) == pytest.approx(1, abs=1e-5) for row in pooled)
    shown = found.figures[0]
    assert isinstance(shown, Passage)
    assert [value for _, value in shown.pieces] == [value for row in pooled for value in row["weights"]]


@pytest.mark.parametrize(("position", "follows"), [("none", True), ("rotary", False), ("alibi", False)])
def test_without_positions_weights_follow_their_tokens(position: Any, follows: bool) -> None:
    """Permute what is read: weights and outputs are permuted with it, and with positions they are not."""
    generator = torch.Generator().manual_seed(0)
    attention = MultiHeadAttention(8, heads=2, position=position, generator=generator).double().eval()
    x_BTD = torch.randn(1, 7, 8, dtype=torch.float64, generator=generator)
    order_T = torch.randperm(7, generator=generator)

    def seen(read_BTD: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with lens("*weights") as opened, torch.no_grad():
            y_BTD = attention(read_BTD)
        return y_BTD, opened[opened.names[0]]  # [B, T, H, S]

    y_BTD, weights_BTHS = seen(x_BTD)
    permuted_BTD, permuted_BTHS = seen(x_BTD[:, order_T])
    off_by = max(
        float((permuted_BTD - y_BTD[:, order_T]).abs().max()),
        float((permuted_BTHS - weights_BTHS[:, order_T][..., order_T]).abs().max()),
    )
    assert (off_by < 1e-14) == follows
