"""The output-recurrent network, as a layer and as a language model: its equations in NumPy, forced and free."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from agreement import assert_same, fill, noise, run_with_gradients
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from statewise.kernels import force
from statewise.mixers import Jordan, JordanState
from statewise.models import JordanLanguageModel, build
from statewise.specs import JordanSpec, UserError

BATCH, TIME, INPUT, WIDTH, OUTPUT = 3, 8, 4, 6, 5


def mixer(activation: str = "tanh") -> Jordan:
    made = Jordan(WIDTH, input_width=INPUT, output=OUTPUT, activation=activation).double()
    fill(made)
    return made


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_the_equations_in_numpy(activation: str) -> None:
    made = mixer(activation)
    x, o = noise(BATCH, TIME, INPUT, seed=1), noise(BATCH, OUTPUT, seed=2)
    y, after = made(x, JordanState(o))
    w, r, b, v, c = (p.detach().numpy() for p in (made.w_DI, made.r_DO, made.b_D, made.v_OD, made.c_O))
    phi = np.tanh if activation == "tanh" else lambda a: np.maximum(a, 0)
    last = o.numpy()
    for t in range(TIME):
        last = phi(x[:, t].numpy() @ w.T + last @ r.T + b) @ v.T + c
        assert_same(y[:, t].detach(), last)
    assert_same(after.o_BO.detach(), last)


def test_forced_is_stepping_with_a_teacher() -> None:
    """Values and all gradients, those of the truth included, since it is read."""
    made = mixer()
    x, start, truth = (
        noise(BATCH, TIME, INPUT, seed=1),
        noise(BATCH, OUTPUT, seed=2),
        noise(BATCH, TIME, OUTPUT, seed=3),
    )

    def parallel(x: Tensor, given: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        y, after = made.forced(x, given[1], JordanState(given[0]))
        return y, [after.o_BO]

    def stepped(x: Tensor, given: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        state, ys = JordanState(given[0]), []
        for t in range(TIME):
            y, _ = made.step(x[:, t], state)
            ys.append(y)
            state = JordanState(given[1][:, t])
        return torch.stack(ys, dim=1), [state.o_BO]

    got = run_with_gradients(parallel, made, x, [start, truth])
    expected = run_with_gradients(stepped, made, x, [start, truth])
    assert_same(got.y, expected.y)
    assert_same(got.after[0], expected.after[0])
    assert_same(got.x_gradient, expected.x_gradient)
    for ours, theirs in zip(got.state_gradients, expected.state_gradients, strict=True):
        assert_same(ours, theirs)
    for name, gradient in expected.weight_gradients.items():
        assert_same(got.weight_gradients[name], gradient)


def test_forced_with_its_own_outputs_is_running_freely() -> None:
    made = mixer()
    x, start = noise(BATCH, TIME, INPUT, seed=1), JordanState(noise(BATCH, OUTPUT, seed=2))
    free, after = made(x, start)
    forced, forced_after = made.forced(x, free, start)
    assert_same(forced.detach(), free.detach())
    assert_same(forced_after.o_BO.detach(), after.o_BO.detach())


def test_forced_in_two_parts() -> None:
    made = mixer()
    x, truth = noise(BATCH, TIME, INPUT, seed=1), noise(BATCH, TIME, OUTPUT, seed=3)
    whole, _ = made.forced(x, truth)
    first, state = made.forced(x[:, :3], truth[:, :3])
    second, _ = made.forced(x[:, 3:], truth[:, 3:], state)
    assert_same(torch.cat([first, second], dim=1).detach(), whole.detach())


def test_forced_sees_the_past_alone() -> None:
    made = mixer()
    x, truth = noise(BATCH, TIME, INPUT, seed=1), noise(BATCH, TIME, OUTPUT, seed=3).requires_grad_()
    y, _ = made.forced(x, truth)
    (gradient,) = torch.autograd.grad(y[:, :4].sum(), truth)
    assert gradient[:, :3].abs().min() > 0
    assert not gradient[:, 3:].any()


def test_truth_of_another_shape_is_refused() -> None:
    with pytest.raises(UserError, match=r"expected \[3, 8, 5\]"):
        mixer().forced(noise(BATCH, TIME, INPUT, seed=1), noise(BATCH, TIME, INPUT, seed=1))


# The language model: the output is over the vocabulary.

VOCAB = 11


def language_model(feedback: str, **options: object) -> JordanLanguageModel:
    made = build("jordan", vocab=VOCAB, width=WIDTH, embedding=INPUT, feedback=feedback, **options).double().eval()
    fill(made)
    assert isinstance(made, JordanLanguageModel)
    return made


@pytest.mark.parametrize("feedback", ["truth", "output"])
def test_the_language_model_in_numpy(feedback: str) -> None:
    """Forced, the vector of the last output is that of the token that is read; free, the mean over the distribution."""
    made = language_model(feedback)
    tokens_BT = torch.randint(VOCAB, (BATCH, TIME), generator=torch.Generator().manual_seed(0))
    p = noise(BATCH, VOCAB, seed=2).softmax(-1)
    logits, after = made(tokens_BT, JordanState(p))
    layer, head = made.stack.blocks[0].mixer, made.head
    e, r, w, b, v, c = (
        part.detach().numpy()
        for part in (made.embedding.weight, made.r_EE, layer.w_DI, layer.b_D, head.weight_VE, head.bias_V)
    )
    p = p.numpy()
    for t in range(TIME):
        x = e[tokens_BT[:, t].numpy()]
        o = np.tanh((x + (x if feedback == "truth" else p @ e) @ r.T) @ w.T + b) @ v.T + c
        p = np.exp(o) / np.exp(o).sum(1, keepdims=True)
        assert_same(logits[:, t].detach(), o)
    assert_same(after.o_BO.detach(), p)


def products(call: Callable[[], object]) -> int:
    """Matrix products that are run, forward and backward."""
    count = 0

    class Counter(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            nonlocal count
            count += func.overloadpacket in (torch.ops.aten.mm, torch.ops.aten.addmm, torch.ops.aten.bmm)
            return func(*args, **kwargs or {})

    with Counter():
        call()
    return count


def test_row_a5_teacher_forcing_is_the_default_and_takes_no_loop_over_time() -> None:
    """The number of products, of the gradients too, is the same for any length; through time it grows with it."""

    def trained(feedback: str | None, time: int) -> int:
        made = build("jordan", vocab=VOCAB, width=WIDTH, **({} if feedback is None else {"feedback": feedback}))
        tokens_BT = torch.zeros(2, time, dtype=torch.int64)
        return products(lambda: made(tokens_BT)[0].sum().backward())

    assert trained(None, 4) == trained(None, 40) == trained("truth", 40)
    assert trained("output", 40) - trained("output", 20) == trained("output", 60) - trained("output", 40) >= 20 * 6


def test_forced_at_once_is_forced_step_by_step() -> None:
    made = language_model("truth", depth=2)
    tokens_BT = torch.randint(VOCAB, (BATCH, TIME), generator=torch.Generator().manual_seed(0))
    at_once, after = made(tokens_BT)
    with force("naive"):
        by_steps, after_steps = made(tokens_BT)
    parameters = list(made.parameters())
    assert_same(at_once.detach(), by_steps.detach())
    assert_same(after.o_BO.detach(), after_steps.o_BO.detach())
    for ours, theirs in zip(
        torch.autograd.grad(at_once.square().sum(), parameters),
        torch.autograd.grad(by_steps.square().sum(), parameters),
        strict=True,
    ):
        assert_same(ours, theirs)


def test_only_the_output_comes_back() -> None:
    """Running freely, every path to an earlier token leads through the distribution: one that is cut leaves none."""
    made = language_model("output")
    x_BTE = noise(BATCH, TIME, INPUT, seed=1).requires_grad_()
    y_BTD, _ = made.read(x_BTE)
    assert torch.autograd.grad(y_BTD[:, -1].sum(), x_BTE, retain_graph=True)[0][:, 0].abs().min() > 0
    state, ys = made.init_state(BATCH), []
    for t in range(TIME):
        y_BD, state = made.read_one(x_BTE[:, t], JordanState(state.o_BO.detach()))
        ys.append(y_BD)
    assert_same(torch.stack(ys, 1).detach(), y_BTD.detach())
    assert not torch.autograd.grad(ys[-1].sum(), x_BTE)[0][:, :-1].any()
    forced_BTD, _ = language_model("truth").read(x_BTE)
    assert not torch.autograd.grad(forced_BTD[:, -1].sum(), x_BTE)[0][:, :-1].any()


def test_a_language_model_has_no_other_output() -> None:
    with pytest.raises(UserError, match="the output of a Jordan language model is the next token"):
        build("jordan", vocab=VOCAB, output=5)


@pytest.mark.parametrize("spec", [JordanSpec(width=5, embedding=3, depth=2), JordanSpec(width=5, feedback="output")])
def test_parameters_are_counted_by_hand(spec: JordanSpec) -> None:
    width = spec.embedding_width
    layers = 5 * (width + 1) + (spec.depth - 1) * 5 * (5 + 1)
    counted = sum(p.numel() for p in build(spec, vocab=VOCAB).parameters())
    assert counted == VOCAB * width + width * width + layers + VOCAB * (5 + 1)
