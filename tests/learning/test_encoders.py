"""The encoders, each on what a reading from left to right cannot do, or not as well."""

import random
from typing import Any

import nltk
import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F

from statewise.encoders import Bidirectional, GridEncoder, NaryTreeLSTM, TreeEncoder, chain, from_nltk
from statewise.mixers import GRU


def test_row_d6_both_directions_tag_by_what_follows() -> None:
    """A moment's tag is the sum of its neighbours: known from both sides, a coin's throw from one."""

    def task(batch: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        bits_BT = torch.randint(2, (batch, 12), generator=generator)
        left_BT, right_BT = F.pad(bits_BT, (1, 0))[:, :-1], F.pad(bits_BT, (0, 1))[:, 1:]
        return F.one_hot(bits_BT, 2).float(), left_BT + right_BT

    def accuracy_of(encoder: nn.Module, width: int) -> float:
        generator = torch.Generator().manual_seed(0)
        head = nn.Linear(width, 3)
        optimizer = torch.optim.AdamW([*encoder.parameters(), *head.parameters()], lr=2e-2)
        for _ in range(150):
            x_BTI, tag_BT = task(32, generator)
            y = encoder(x_BTI)
            y_BTD = y if isinstance(y, Tensor) else y[0]
            optimizer.zero_grad()
            F.cross_entropy(head(y_BTD).flatten(0, 1), tag_BT.flatten()).backward()
            optimizer.step()
        x_BTI, tag_BT = task(300, generator)
        with torch.no_grad():
            y = encoder(x_BTI)
            y_BTD = y if isinstance(y, Tensor) else y[0]
        return float((head(y_BTD).argmax(-1) == tag_BT).float().mean())

    def half(seed: int) -> GRU:
        return GRU(16, input_width=2, generator=torch.Generator().manual_seed(seed))

    torch.manual_seed(0)
    assert accuracy_of(Bidirectional(forward=half(1), backward=half(2)), 32) > 0.99
    assert accuracy_of(GRU(32, input_width=2, generator=torch.Generator().manual_seed(1)), 32) < 0.65


# Expressions.

TOKENS = ["0", "1", "and", "or", "xor", "(", ")"]


def expression(draw: random.Random, leaves: int) -> Any:
    """A random tree over 0 and 1; the label of an inner node is its operator."""
    if leaves == 1:
        return draw.choice("01")
    left = draw.randint(1, leaves - 1)
    return nltk.Tree(draw.choice(TOKENS[2:5]), [expression(draw, left), expression(draw, leaves - left)])


def value(tree: Any) -> bool:
    if isinstance(tree, str):
        return tree == "1"
    left, right = map(value, tree)
    return {"and": left and right, "or": left or right, "xor": left != right}[tree.label()]


def written(tree: Any) -> list[str]:
    """As it is written: `( 1 xor ( 0 or 1 ) )`. A chain reads all that the tree is told."""
    if isinstance(tree, str):
        return [tree]
    return ["(", *written(tree[0]), tree.label(), *written(tree[1]), ")"]


def learns_expressions(by: str, *, steps: int) -> float:
    """Accuracy on longer expressions than those learnt from."""
    generator = torch.Generator().manual_seed(0)
    embedding = nn.Embedding(len(TOKENS), 16)
    arity = 2 if by == "tree" else 1
    encoder = TreeEncoder(NaryTreeLSTM(24 if by == "tree" else 36, input_width=16, arity=arity, generator=generator))
    torch.manual_seed(0)
    embedding.reset_parameters()
    head = nn.Linear(encoder.output_width, 2)
    parameters = [*embedding.parameters(), *encoder.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=1e-2)
    draw = random.Random(0)

    def logits_of(trees: list[Any]) -> Tensor:
        if by == "tree":
            forest, labels = from_nltk(trees)
        else:
            sequences = [written(tree) for tree in trees]
            forest, labels = chain([len(s) for s in sequences]), [token for s in sequences for token in s]
        x_NI = embedding(torch.tensor([TOKENS.index(label) for label in labels]))
        logits: Tensor = head(encoder.roots(encoder.nodes(x_NI, forest), forest))
        return logits

    for _ in range(steps):
        trees = [expression(draw, draw.randint(1, 8)) for _ in range(64)]
        optimizer.zero_grad()
        F.cross_entropy(logits_of(trees), torch.tensor([int(value(tree)) for tree in trees])).backward()
        optimizer.step()
    trees = [expression(draw, draw.randint(10, 16)) for _ in range(500)]
    with torch.no_grad():
        guesses = logits_of(trees).argmax(-1)
    return float((guesses == torch.tensor([int(value(tree)) for tree in trees])).float().mean())


@pytest.mark.slow
def test_a_tree_evaluates_expressions_that_a_chain_of_its_size_does_not() -> None:
    """Boolean expressions of up to 8 leaves, then of up to 16. The chain has as many weights (a few more),
    and reads the expressions with their brackets."""
    assert learns_expressions("tree", steps=100) > 0.97
    assert learns_expressions("chain", steps=100) < 0.8


@pytest.mark.slow
def test_the_grid_reads_digits() -> None:
    """scikit-learn's 8 x 8 digits: more than 95 in 100 right, of those not learnt from."""
    digits = load_digits()
    x_BHWI = torch.tensor(digits.images, dtype=torch.float32)[..., None] / 16
    digit_B = torch.tensor(digits.target)
    generator = torch.Generator().manual_seed(0)
    order_B = torch.randperm(len(x_BHWI), generator=generator)
    train_B, test_B = order_B[:1400], order_B[1400:]
    encoder = GridEncoder(16, input_width=1, generator=generator)
    torch.manual_seed(0)
    head = nn.Linear(encoder.output_width, 10)
    optimizer = torch.optim.AdamW([*encoder.parameters(), *head.parameters()])
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-2, epochs=6, steps_per_epoch=28)
    for _ in range(6):
        for some_B in train_B[torch.randperm(len(train_B), generator=generator)].split(50):
            optimizer.zero_grad()
            F.cross_entropy(head(corners(encoder(x_BHWI[some_B]))), digit_B[some_B]).backward()
            optimizer.step()
            schedule.step()
    with torch.no_grad():
        guesses = head(corners(encoder(x_BHWI[test_B]))).argmax(-1)
    assert float((guesses == digit_B[test_B]).float().mean()) > 0.95


def corners(y_BHWC: Tensor) -> Tensor:
    """Each reading where it ends: there it has seen the whole picture."""
    upper_left, upper_right, lower_left, lower_right = y_BHWC.chunk(4, dim=-1)
    ends = [upper_left[:, -1, -1], upper_right[:, -1, 0], lower_left[:, 0, -1], lower_right[:, 0, 0]]
    return torch.cat(ends, dim=-1)
