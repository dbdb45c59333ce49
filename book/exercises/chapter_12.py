"""Checks of the exercises of chapter 12."""

from types import ModuleType

import numpy as np
import torch

from statewise.models import Seq2Seq, build_seq2seq
from statewise.specs import ElmanSpec, Seq2SeqSpec


def _model() -> Seq2Seq:
    """A contextualised decoder whose output layer reads everything, with biases that are not 0."""
    side = ElmanSpec(width=4)
    spec = Seq2SeqSpec(encoder=side, decoder=side, context="each_step", output="deep")
    model = build_seq2seq(spec, source_vocab=6, target_vocab=5, seed=1).double()
    assert isinstance(model, Seq2Seq)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.3 * torch.randn(weight.shape, generator=generator))
    return model


def check_12_1(answers: ModuleType) -> None:
    model, source = _model(), [5, 0, 3, 3]
    mixer = model.get_submodule("reader.layers.stack.blocks.0.mixer")
    with torch.no_grad():
        expected = model.reader(torch.tensor([source]), torch.tensor([4])).summary_BC[0].numpy()
        E = model.get_parameter("reader.entry.weight").numpy()
        W, U, b = (mixer.get_parameter(name).numpy() for name in ("w_DI", "u_DD", "b_D"))
    found = np.asarray(answers.encode(source, E, W, U, b))
    assert found.shape == (4,), f"the shape is {found.shape}, expected (4,): the last state alone"
    assert np.allclose(found, expected), "not h_N with h_t = tanh(W E[x_t] + U h_{t-1} + b)"
    assert np.allclose(answers.encode([], E, W, U, b), np.zeros(4)), "an empty source has the context 0"


def check_12_2(answers: ModuleType) -> None:
    model = _model()
    mixer = model.get_submodule("stack.blocks.0.mixer")
    with torch.no_grad():
        state = model.condition(torch.tensor([[5, 0, 3]]))
        _, state = model.step(torch.tensor([2]), state)
        logits_BV, after = model.step(torch.tensor([4]), state)
        c, s = state.context_BC[0].numpy(), state.mixer.layers[0].h_BD[0].numpy()
        W_all = mixer.get_parameter("w_DI").numpy()
        U, b = (mixer.get_parameter(name).numpy() for name in ("u_DD", "b_D"))
        names = ("combine.weight", "combine.bias", "head.weight_VE", "head.bias_V")
        C, b_C, V, v = (model.get_parameter(name).numpy() for name in names)
        E = model.get_parameter("embedding.weight").numpy()
    log_p, new = answers.decode_step(4, s, c, E, W_all[:, :4], W_all[:, 4:], U, b, C, b_C, V, v)
    assert np.allclose(new, after.mixer.layers[0].h_BD[0].numpy()), "the state is not tanh(W e + R c + U s + b)"
    expected = logits_BV.log_softmax(-1)[0].numpy()
    assert np.allclose(log_p, expected), "the output layer reads [s; c; e], with the new s; return log-probabilities"


def check_12_3(answers: ModuleType) -> None:
    log_p = np.log(np.array([[0.5, 0.25, 0.9], [0.1, 0.5, 0.5]]))
    found = answers.objective(log_p, np.array([2, 3]))
    expected = (np.log(0.125) + np.log(0.025)) / 2
    assert abs(found - expected) < 1e-9, f"{found:.4f}, expected {expected:.4f}: a sum over tokens, a mean over pairs"
    log_p[0, 2] = -np.inf
    assert abs(answers.objective(log_p, np.array([2, 3])) - expected) < 1e-9, "padding counts, which it must not"


def check_12_4(answers: ModuleType) -> None:
    end = 9
    for written, targets, expected in (
        ([[1, 2, 9]], [[1, 2, 9]], 1.0),
        ([[1, 2, 9, 4, 4]], [[1, 2, 9]], 1.0),
        ([[1, 2, 3, 9]], [[1, 2, 9]], 0.0),
        ([[1, 9, 2]], [[1, 2, 9]], 0.0),
        ([[1, 2]], [[1, 2, 9]], 0.0),
        ([[9, 1], [3, 9], [4, 9], [5, 9]], [[9], [3, 9], [4, 9], [6, 9]], 0.75),
    ):
        found = answers.exact_match(written, targets, end)
        assert abs(found - expected) < 1e-9, f"{written} for {targets}: {found}, expected {expected}"


def check_12_5(answers: ModuleType) -> None:
    for symbols, length in ((2, 32), (2, 33), (8, 8), (8, 11), (1, 10), (10, 1000), (2**32, 1000), (3, 500)):
        expected, told_apart = 0, 1
        while told_apart < symbols**length:
            expected, told_apart = expected + 1, told_apart * 2**32
        found = answers.least_numbers(symbols, length)
        assert found == expected, f"{symbols} symbols, length {length}: {found}, expected {expected}"
