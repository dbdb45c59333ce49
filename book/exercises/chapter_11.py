"""Checks of the exercises of chapter 11."""

import math
from types import ModuleType

import numpy as np
import torch

from statewise.models import build_seq2seq
from statewise.specs import ElmanSpec, LinearEncoderSpec, Seq2SeqSpec


def check_11_1(answers: ModuleType) -> None:
    spec = Seq2SeqSpec(encoder=LinearEncoderSpec(width=3), decoder=ElmanSpec(width=4), context="both")
    model = build_seq2seq(spec, source_vocab=2, target_vocab=5, seed=1).double()
    before = np.array([0, 4, 2, 2, 1])
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.3 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(2)))
        mixer, bridge = model.stack.blocks[0].mixer, model.bridge.maps[0]
        e_BTE = torch.cat([model.embedding.weight[before], model.reader.entry.weight[1].expand(5, -1)], dim=1)[None]
        start = mixer.init_state(1)._replace(h_BD=torch.tanh(bridge(model.reader.entry.weight[1:])))
        expected = mixer(e_BTE, start)[0][0].numpy()
        c, E = model.reader.entry.weight[1].numpy(), model.embedding.weight.numpy()
        W, R = mixer.w_DI[:, :4].numpy(), mixer.w_DI[:, 4:].numpy()
        rest = [weight.numpy() for weight in (mixer.u_DD, mixer.b_D, bridge.weight, bridge.bias)]
    found = np.asarray(answers.states(before, c, E, W, R, *rest))
    assert found.shape == (5, 4), f"the shape is {found.shape}, expected (5, 4)"
    assert np.allclose(found[0], expected[0]), "h_1 is tanh(W e_0 + U h_0 + R c + b) with h_0 = tanh(B c + b_0)"
    assert np.allclose(found, expected), "the first state is right, a later one is not"


def check_11_2(answers: ModuleType) -> None:
    same = np.array([[1, 2, 3]] * 4)
    assert abs(answers.least_nats(same)) < 1e-12, "rows that are all equal cost nothing"
    two = np.array([[1, 2, 3], [1, 3, 2]])
    found = answers.least_nats(two)
    assert abs(found - 2 * math.log(2)) < 1e-9, f"{found:.4f} for two places that differ, expected 2 log 2"
    skewed = np.array([[0], [0], [0], [5]])
    found, right = answers.least_nats(skewed), -0.75 * math.log(0.75) - 0.25 * math.log(0.25)
    assert abs(found - right) < 1e-9, f"{found:.4f} for shares of 3/4 and 1/4, expected {right:.4f}"


def check_11_3(answers: ModuleType) -> None:
    for names, expected in (
        (["abc"], 1),
        (["abc", "abd"], 2),
        (["seven..", "sieben."], 32),
        (["aa", "ab", "ba"], 4),
    ):
        found = answers.mixtures(names)
        assert found == expected, f"{names}: {found}, expected {expected}"


def check_11_4(answers: ModuleType) -> None:
    for order in ([0, 1, 2, 3], [3, 2, 1, 0], [4, 0, 1, 2, 3], [1, 2, 0]):
        expected = [place <= at for at, place in enumerate(order)]
        found = list(answers.known(order))
        assert found == expected, f"{order}: {found}, expected {expected}"


def check_11_5(answers: ModuleType) -> None:
    def countdown(token: int, state: int) -> tuple[int, int]:
        assert token == (9 if state == 4 else state), f"it reads {token}, but its last output was {state}"
        return state - 1, state - 1

    assert list(answers.write(countdown, 4, 9, 0, 10)) == [3, 2, 1], "for 4 it writes 3, 2, 1 and the end, 0"
    assert list(answers.write(countdown, 4, 9, 0, 2)) == [3, 2], "more than `most` tokens, or fewer than there are"
    assert list(answers.write(countdown, 4, 9, 3, 5)) == [], "the end at once: nothing is written"
