"""The cross-entropy in chunks against the one written out: value, every gradient, and what it keeps in memory."""

from typing import Any

import pytest
import torch
from forms import noise
from torch import Tensor
from torch.nn import functional as F

from statewise.kernels.cross_entropy import choice, chunked, naive, token_nats, total_nats
from statewise.models import build
from statewise.models.head import CategoricalHead

TOKENS, WIDTH, VOCAB = 23, 6, 11
SHARES = {"all": None, "some": [0.0, 1.0, 0.25, 3.0]}


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of four tokens: several whole ones, and a rest."""
    monkeypatch.setattr(naive, "LOGITS", dict.fromkeys(naive.LOGITS, 4 * VOCAB))
    monkeypatch.setattr(naive, "ROWS", dict.fromkeys(naive.ROWS, 1))


def case(dtype: torch.dtype = torch.float64) -> tuple[list[Tensor], Tensor]:
    shapes = ((TOKENS, WIDTH), (VOCAB, WIDTH), (VOCAB,))
    inputs = [noise(*shape, seed=n).to(dtype).requires_grad_() for n, shape in enumerate(shapes)]
    return inputs, torch.randint(VOCAB, (TOKENS,), generator=torch.Generator().manual_seed(3))


def shares(kind: str) -> Tensor | None:
    given = SHARES[kind]
    return None if given is None else torch.tensor(given, dtype=torch.float64).repeat(TOKENS)[:TOKENS]


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "bare"])
def test_chunks_are_the_whole(smoothing: float, share: str, bias: bool) -> None:
    (y, w, c), target = case()
    share_N = shares(share)
    if share_N is not None:
        target = target.masked_fill(share_N == 0, -100)
    inputs = [y, w, c] if bias else [y, w]
    found = []
    for form in ("naive", "chunked"):
        total = total_nats(y, w, c if bias else None, target, share_N=share_N, smoothing=smoothing, form=form)
        found.append([total, *torch.autograd.grad(3 * total, inputs)])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-13)


def test_it_is_the_cross_entropy_of_torch() -> None:
    (y, w, c), target = case()
    ignored = target.masked_fill(torch.arange(TOKENS) % 5 == 0, -100)
    expected = F.cross_entropy(F.linear(y, w, c), ignored, reduction="sum", label_smoothing=0.2)
    total = total_nats(y, w, c, ignored, share_N=(ignored >= 0).double(), smoothing=0.2)
    torch.testing.assert_close(total, expected, rtol=1e-13, atol=0)
    for a, b in zip(*(torch.autograd.grad(value, [y, w, c]) for value in (total, expected)), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("form", ["naive", "chunked"])
def test_what_is_not_counted_is_not_read(form: str) -> None:
    (y, w, c), target = case()
    share_N = (torch.arange(TOKENS) < 7).double()
    dirty = y.detach().masked_fill(share_N[:, None] == 0, float("nan")).requires_grad_()
    total = total_nats(dirty, w, c, target, share_N=share_N, form=form)
    assert torch.equal(total, total_nats(y, w, c, target, share_N=share_N, form=form))
    gradients = torch.autograd.grad(total, [dirty, w, c])
    assert all(part.isfinite().all() for part in gradients)
    assert (gradients[0][7:] == 0).all()


def test_tokens_alone_add_up_and_ask_for_no_gradient() -> None:
    (y, w, c), target = case()
    nats_N = token_nats(y, w, c, target, smoothing=0.1)
    assert not nats_N.requires_grad
    torch.testing.assert_close(nats_N, naive.token_nats(y, w, c, target, 0.1).detach(), rtol=1e-13, atol=0)


def test_a_graph_that_is_kept_gives_its_gradients_again() -> None:
    inputs, target = case()
    total = chunked.total_nats(*inputs, target, None, 0.0)
    first = [part.clone() for part in torch.autograd.grad(2 * total, inputs, retain_graph=True)]
    again = torch.autograd.grad(2 * total, inputs)
    for a, b in zip(first, again, strict=True):
        assert torch.equal(a, b)


def test_it_can_be_differentiated_twice() -> None:
    (y, w, c), target = case()
    share_N = shares("some")
    assert torch.autograd.gradcheck(lambda *x: chunked.total_nats(*x, target, share_N, 0.1), (y, w, c))
    assert torch.autograd.gradgradcheck(lambda *x: chunked.total_nats(*x, target, share_N, 0.1), (y, w, c))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("how", ["autocast", "tensors"])
def test_half_precision_sums_in_float32(dtype: torch.dtype, how: str) -> None:
    """No worse against float64 than the logits written out in that precision, give or take a half."""
    exact, target = case()
    inputs = [part.detach().to(torch.float32 if how == "autocast" else dtype).requires_grad_() for part in exact]
    expected = naive.total_nats(*exact, target, None, 0.0)
    goal = [expected.detach(), *torch.autograd.grad(expected, exact)]
    errors = []
    for form in (naive, chunked):
        with torch.autocast("cpu", dtype, enabled=how == "autocast"):
            total = form.total_nats(*inputs, target, None, 0.0)
        assert total.dtype == torch.float32
        found = [total.detach(), *torch.autograd.grad(total, inputs)]
        assert [part.dtype for part in found[1:]] == [part.dtype for part in inputs]
        errors.append([float((a.double() - b).norm() / b.norm()) for a, b in zip(found, goal, strict=True)])
    for theirs, ours in zip(*errors, strict=True):
        assert ours <= 1.5 * theirs + 1e-3
        assert ours <= 0.02


def test_a_float16_sum_that_leaves_its_range() -> None:
    tokens = 4000
    y = torch.full((tokens, 1), 60.0, dtype=torch.float16, requires_grad=True)
    w = torch.zeros(2, 1, dtype=torch.float16)
    w[0] = -1
    w.requires_grad_()
    total = chunked.total_nats(y, w, None, torch.zeros(tokens, dtype=torch.int64), None, 0.0)
    gradient = torch.autograd.grad(total / tokens, [w])[0]
    torch.testing.assert_close(gradient, torch.tensor([[-60.0], [60.0]], dtype=torch.float16))


def largest_tensor(form: object, tokens: int, vocab: int) -> int:
    """Numbers in the largest tensor that any op makes on the way there and back."""
    largest = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            nonlocal largest
            result = func(*args, **(kwargs or {}))
            for part in result if isinstance(result, (tuple, list)) else [result]:
                if isinstance(part, Tensor):
                    largest = max(largest, part.numel())
            return result

    y, w = noise(tokens, 2, seed=0).requires_grad_(), noise(vocab, 2, seed=1).requires_grad_()
    target = torch.zeros(tokens, dtype=torch.int64)
    with Watch():
        torch.autograd.grad(form.total_nats(y, w, None, target, None, 0.0), [y, w])
    return largest


def test_no_tensor_holds_all_logits() -> None:
    assert largest_tensor(naive, 1000, 50) == 50_000
    assert largest_tensor(chunked, 1000, 50) == 2000, "the features; a chunk of logits is smaller"


def test_the_choice_goes_by_size_and_says_so() -> None:
    device = torch.device("cpu")
    assert choice(tokens=4, vocab=VOCAB, device=device).form == "naive"
    found = choice(tokens=5, vocab=VOCAB, device=device)
    assert found.form == "chunked"
    assert "5 tokens x 11 logits" in found.reason


@pytest.mark.parametrize("tied", [False, True])
def test_a_head_gives_the_same_from_features_as_from_logits(tied: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    embedding = build("lstm", vocab=VOCAB, width=4, depth=1).embedding if tied else None
    head = CategoricalHead(WIDTH, VOCAB, tie=embedding, generator=generator).double()
    y_BTD, target_BT = noise(3, 9, WIDTH, seed=1), torch.randint(VOCAB, (3, 9), generator=generator)
    expected = head.nats(head(y_BTD), target_BT)
    torch.testing.assert_close(head.token_nats(y_BTD, target_BT), expected.detach())
    total = head.total_nats(y_BTD, target_BT)
    torch.testing.assert_close(total, expected.sum())
    parameters = list(head.parameters())
    for a, b in zip(*(torch.autograd.grad(value, parameters) for value in (total, expected.sum())), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


def test_whoever_only_looks_pays_for_no_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parameters could want one; inside `no_grad` nobody will ask."""
    asked = []
    walk = chunked._walk

    def watched(*given: Any, wanted: tuple[bool, ...]) -> Any:
        asked.append(wanted)
        return walk(*given, wanted=wanted)

    monkeypatch.setattr(chunked, "_walk", watched)
    y_ND, target_N = noise(5, 3, seed=0), torch.arange(5)
    weight_VD, bias_V = noise(7, 3, seed=1).requires_grad_(), noise(7, seed=2).requires_grad_()
    with torch.no_grad():
        looked = chunked.total_nats(y_ND, weight_VD, bias_V, target_N, None, 0.0)
    learned = chunked.total_nats(y_ND, weight_VD, bias_V, target_N, None, 0.0)
    assert asked == [(False, False, False), (False, True, True)]
    assert torch.equal(looked, learned)
    assert learned.requires_grad
    assert not looked.requires_grad
