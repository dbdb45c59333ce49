"""Arguments of another kind than asked for are refused in words that name them."""

from typing import Any

import numpy as np
import pytest
import torch

import statewise as sw


@pytest.mark.parametrize("model", [3, None, ["lstm"]])
def test_what_is_no_model_is_named(model: Any) -> None:
    with pytest.raises(sw.UserError, match="expected a name, a spec or a mixer class"):
        sw.build(model, vocab=3)


@pytest.mark.parametrize("vocab", ["a", 2.5, True, None, 0, -1])
def test_what_is_no_vocabulary_is_named(vocab: Any) -> None:
    with pytest.raises(sw.UserError, match="expected a whole number of at least 1"):
        sw.build("elman", vocab=vocab, width=4)
    assert sw.build("elman", vocab=np.int64(5), width=4).init_state(1)


@pytest.mark.parametrize("prompt", [3, None, b"ROMEO", ["ROMEO"]])
def test_a_prompt_is_a_string(prompt: Any) -> None:
    with pytest.raises(sw.UserError, match="expected a string"):
        sw.load("shakespeare-markov").generate(prompt, tokens=2)


def test_a_markov_model_counts_tensors_too() -> None:
    by_tensor, by_array = sw.build("markov", vocab=5), sw.build("markov", vocab=5)
    tokens_T = torch.tensor([0, 1, 2, 1, 0, 3, 4, 0, 1])
    by_tensor.count(tokens_T)
    by_array.count(tokens_T.numpy())
    torch.testing.assert_close(by_tensor(tokens_T[None])[0], by_array(tokens_T[None])[0])
    for wrong, said in ((tokens_T + 1, "tokens hold 5"), (tokens_T.float(), "expected whole numbers")):
        with pytest.raises(sw.UserError, match=said):
            by_tensor.count(wrong)
