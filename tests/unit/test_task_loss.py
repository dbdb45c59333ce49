"""Losses as sums: equal to torch's means, whatever is masked, weighted, smoothed or split."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from statewise.data import Labels
from statewise.models.head import BernoulliHead
from statewise.models.real_head import StudentHead
from statewise.specs import UserError
from statewise.tasks.loss import categorical_loss, real_loss, within

NAMES = ["no", "yes", "maybe"]


def case() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(4, 6, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    return logits, torch.randint(0, 3, (4, 6), generator=generator), torch.tensor([6, 1, 3, 0])


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.6])
@pytest.mark.parametrize("weighted", [False, True])
def test_it_is_the_cross_entropy_of_torch_row_by_row(smoothing: float, weighted: bool) -> None:
    logits_BTK, targets_BT, lengths_B = case()
    weight_K = torch.tensor([0.5, 2.0, 1.25], dtype=torch.float64) if weighted else None
    alone = [slice(0, int(length)) for length in lengths_B]
    kept_NK = torch.cat([row[part] for row, part in zip(logits_BTK, alone)])
    kept_N = torch.cat([row[part] for row, part in zip(targets_BT, alone)])
    expected = F.cross_entropy(kept_NK, kept_N, weight=weight_K, label_smoothing=smoothing)
    dirty_BT = targets_BT.masked_fill(~within(lengths_B, 6), 77)
    total, weight = categorical_loss(
        logits_BTK, dirty_BT, counted=within(lengths_B, 6), class_weight_K=weight_K, smoothing=smoothing
    )
    torch.testing.assert_close(total / weight, expected, rtol=1e-13, atol=0)
    (mine,) = torch.autograd.grad(total / weight, logits_BTK, retain_graph=True)
    (theirs,) = torch.autograd.grad(expected, logits_BTK)
    torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-15)
    assert (mine[~within(lengths_B, 6)] == 0).all()


def test_smoothing_and_weights_by_their_definition() -> None:
    logits_BTK, targets_BT, _ = case()
    weight_K = torch.tensor([0.5, 2.0, 1.25], dtype=torch.float64)
    nats = -logits_BTK.log_softmax(-1) * weight_K
    hit = nats.gather(-1, targets_BT[..., None]).sum()
    total, weight = categorical_loss(logits_BTK, targets_BT, class_weight_K=weight_K, smoothing=0.2)
    torch.testing.assert_close(total, 0.8 * hit + 0.2 * nats.mean(-1).sum(), rtol=1e-13, atol=0)
    torch.testing.assert_close(weight, weight_K[targets_BT].sum())


def test_parts_add_up_to_the_whole() -> None:
    logits_BTK, targets_BT, lengths_B = case()
    weight_K = torch.from_numpy(Labels(NAMES, [3, 1, 6]).weights()).float()
    parts = [
        categorical_loss(
            logits_BTK[i : i + 1],
            targets_BT[i : i + 1],
            counted=within(lengths_B[i : i + 1], 6),
            class_weight_K=weight_K,
        )
        for i in range(4)
    ]
    whole = categorical_loss(logits_BTK, targets_BT, counted=within(lengths_B, 6), class_weight_K=weight_K)
    torch.testing.assert_close(sum(p.total for p in parts), whole.total)
    torch.testing.assert_close(sum(p.weight for p in parts), whole.weight)
    assert parts[3].total == parts[3].weight == 0, "an empty row is no division by zero"


def test_missing_targets_leave_loss_and_gradient_alone() -> None:
    head = StudentHead(2, 2)
    y = torch.randn(3, 4, 2, requires_grad=True)
    target = torch.randn(3, 4, 2)
    target[0, 1, 0] = float("nan")
    counted = within(torch.tensor([4, 2, 0]), 4)
    params = head(y)
    total, weight = real_loss(head, params, target, counted=counted)
    present = counted[..., None] & ~target.isnan()
    torch.testing.assert_close(total, head.nats(params, target)[present].sum())
    assert weight == present.sum() == 11
    (gradient,) = torch.autograd.grad(total, y)
    assert torch.isfinite(gradient).all()
    assert (gradient[2] == 0).all()


def test_a_frame_of_bits_counts_once() -> None:
    head = BernoulliHead(2, 5)
    target = torch.ones(2, 3, 5)
    target[0, 0, 4] = float("nan")
    total, weight = real_loss(head, torch.zeros(2, 3, 5), target)
    assert weight == 5
    torch.testing.assert_close(total, 25 * torch.tensor(2.0).log())


def test_balanced_weights_are_those_of_scikit_learn() -> None:
    sklearn = pytest.importorskip("sklearn.utils.class_weight", reason="the oracle is of the extra `tasks`")
    labels = [0] * 3 + [1] * 1 + [2] * 6
    expected = sklearn.compute_class_weight("balanced", classes=torch.arange(3).numpy(), y=labels)
    weight_K = torch.from_numpy(Labels(NAMES, [3, 1, 6]).weights()).float()
    torch.testing.assert_close(weight_K.double(), torch.tensor(expected), rtol=1e-6, atol=0)


def test_smoothing_has_its_range() -> None:
    with pytest.raises(UserError, match="smoothing = 1"):
        categorical_loss(torch.zeros(1, 2), torch.zeros(1, dtype=torch.long), smoothing=1.0)
