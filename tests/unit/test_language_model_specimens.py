"""A text as rows for a lens: what they cost is what evaluation says."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from statewise.tasks import Choices, LanguageModelRun, TextSpecimens, load, train
from statewise.training import Silent

TEXT = "the cat sat on the mat. " * 90


@pytest.fixture(scope="module", params=["lstm", "markov", "transformer"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LanguageModelRun:
    folder = tmp_path_factory.mktemp("text")
    (folder / "text.txt").write_text(TEXT)
    small = {} if request.param == "markov" else {"model.width": 8, "model.depth": 1, "train.steps": 2}
    train(request.param, settings=small, data=folder / "text.txt", out=folder / "run", display=Silent())
    opened = load(folder / "run", device="cpu")
    assert isinstance(opened, LanguageModelRun)
    return opened


def test_costs_are_those_of_the_answers(run: LanguageModelRun) -> None:
    specimens = run.specimens()
    found = specimens.answers(lambda: None)
    assert isinstance(found, Choices)
    row = specimens.precise().at(0)
    costs_Q = row.costs(row.x_TE[None])[0].detach().numpy()
    np.testing.assert_allclose(costs_Q, found.nats_N[found.row_N == 0], rtol=2e-4, atol=2e-5)
    assert row.questions == tuple(found.names[at] for at in found.truth_N[found.row_N == 0])


def test_every_token_is_asked_for_once(run: LanguageModelRun) -> None:
    specimens = run.specimens()
    found = specimens.answers(lambda: None)
    assert found.truth_N.tolist() == specimens.tokens_T[1:].tolist()
    if specimens.reach is None:  # a state of fixed size is carried through the whole text, as in evaluation
        with torch.no_grad():
            logits_1TV, _ = run.model(specimens.tokens_T[None, :-1])
        nats_T = F.cross_entropy(logits_1TV[0], specimens.tokens_T[1:], reduction="none")
        np.testing.assert_allclose(found.nats_N, nats_T.numpy(), rtol=1e-4, atol=1e-5)


def test_a_row_lies_within_a_document(run: LanguageModelRun) -> None:
    end = run.tokenizer.end_id
    tokens_T = torch.tensor([end, *[1] * 30, end, *[1] * 9, end, *[1] * 50])
    specimens = TextSpecimens(run.model, tokens_T, end_id=end, decode=run.tokenizer.decode, source="documents")
    assert [tuple(row) for row in specimens.rows] == [(0, 31), (31, 41), (41, 91)]
    for begin, last in specimens.windows(20, 5).rows:
        assert end not in tokens_T[begin + 1 : last + 1]
