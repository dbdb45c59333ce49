"""The CRF as a module: what it refuses, what BIO forbids, and that it learns what single tags cannot say."""

from itertools import pairwise, product

import pytest
import torch

from statewise.models import CRF, Forbidden, forbidden_in_bio
from statewise.models.head import CategoricalHead
from statewise.specs import UserError

NAMES = ["O", "B-A", "I-A", "B-B", "I-B"]


def test_probabilities_of_all_paths_sum_to_one() -> None:
    crf = CRF(3, generator=torch.Generator().manual_seed(0)).double()
    emissions_1TK = torch.randn(1, 4, 3, dtype=torch.float64)
    paths = torch.tensor(list(product(range(3), repeat=4)))
    nats_P = crf.nats_B(emissions_1TK.expand(len(paths), -1, -1), paths)
    assert (-nats_P).exp().sum().item() == pytest.approx(1, abs=1e-12)
    best_1T, score_1 = crf.decode(emissions_1TK)
    assert torch.equal(paths[nats_P.argmin()], best_1T[0])
    assert score_1.shape == (1,)


def test_the_same_generator_the_same_start() -> None:
    one, two = (CRF(4, generator=torch.Generator().manual_seed(5)) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters()))


def test_bio_forbids_exactly_what_it_should() -> None:
    rules = forbidden_in_bio(NAMES)
    allowed = {(a, b) for i, a in enumerate(NAMES) for j, b in enumerate(NAMES) if not rules.transition_KK[i, j]}
    expected = {(a, b) for a in NAMES for b in NAMES if not b.startswith("I-") or (a != "O" and a[2:] == b[2:])}
    assert allowed == expected
    assert [name for name, banned in zip(NAMES, rules.start_K) if banned] == ["I-A", "I-B"]
    assert not rules.end_K.any()


def test_decoding_obeys_the_constraint_whatever_the_emissions() -> None:
    crf = CRF(5, forbidden=forbidden_in_bio(NAMES))
    emissions_BTK = 100 * torch.randn(50, 7, 5, generator=torch.Generator().manual_seed(1))
    lengths_B = torch.arange(50) % 7 + 1
    tags_BT, _ = crf.decode(emissions_BTK, lengths_B)
    for row, length in zip(tags_BT.tolist(), lengths_B.tolist()):
        names = ["O", *(NAMES[tag] for tag in row[:length])]
        assert all(not b.startswith("I-") or (a != "O" and a[2:] == b[2:]) for a, b in pairwise(names))
    free_BT, _ = CRF(5).decode(emissions_BTK, lengths_B)
    assert not torch.equal(free_BT, tags_BT)


def test_forbidden_tags_to_learn_from_are_refused_by_row() -> None:
    crf = CRF(5, forbidden=forbidden_in_bio(NAMES))
    tags_BT = torch.tensor([[0, 1, 2], [0, 2, 2]])
    with pytest.raises(UserError, match=r"row 1 .*\[0, 2\]"):
        crf.nats_B(torch.zeros(2, 3, 5), tags_BT, torch.tensor([3, 2]))
    assert torch.isfinite(crf.nats_B(torch.zeros(2, 3, 5), tags_BT, torch.tensor([3, 1]))).all()


def test_mistakes_are_named() -> None:
    with pytest.raises(UserError, match="'S-A' is not of the BIO scheme"):
        forbidden_in_bio(["O", "S-A"])
    with pytest.raises(UserError, match="num_tags = 0"):
        CRF(0)
    with pytest.raises(UserError, match=r"forbidden\.start_K"):
        CRF(2, forbidden=Forbidden(torch.zeros(2, 2).bool(), torch.zeros(3).bool(), torch.zeros(2).bool()))
    with pytest.raises(UserError, match="no path of length 2 is allowed"):
        CRF(2, forbidden=Forbidden(torch.ones(2, 2).bool(), torch.zeros(2).bool(), torch.zeros(2).bool()))
    with pytest.raises(UserError, match="tags have shape"):
        CRF(2).nats_B(torch.zeros(1, 3, 2), torch.zeros(1, 2, dtype=torch.long))
    with pytest.raises(UserError, match="width 3, expected 2"):
        CRF(2).decode(torch.zeros(1, 3, 3))


def test_the_constraint_is_no_part_of_the_weights() -> None:
    assert set(CRF(5, forbidden=forbidden_in_bio(NAMES)).state_dict()) == {"transition_KK", "start_K", "end_K"}


def test_it_learns_that_tags_alternate() -> None:
    """The input says nothing: only the transitions can know that 0 and 1 take turns, and where they begin."""
    torch.manual_seed(0)
    head, crf = CategoricalHead(1, 2), CRF(2)
    optimizer = torch.optim.Adam([*head.parameters(), *crf.parameters()], lr=0.1)
    tags_BT = torch.tensor([[0, 1, 0, 1, 0, 1], [0, 1, 0, 0, 0, 0]])
    lengths_B = torch.tensor([6, 3])
    x_BTD = torch.ones(2, 6, 1)
    for _ in range(150):
        optimizer.zero_grad()
        loss = crf.nats_B(head(x_BTD), tags_BT, lengths_B).sum()
        loss.backward()
        optimizer.step()
    decoded_BT, _ = crf.decode(head(x_BTD), lengths_B)
    assert torch.equal(decoded_BT, tags_BT.masked_fill(torch.arange(6) >= lengths_B[:, None], 0))


def test_scores_that_are_no_numbers_have_no_path() -> None:
    crf, tags_BT = CRF(3), torch.zeros(2, 4, dtype=torch.int64)
    emissions_BTK = torch.randn(2, 4, 3)
    emissions_BTK[1, 2, 1] = torch.nan
    with pytest.raises(UserError, match="not numbers"):
        crf.decode(emissions_BTK)
    nats = crf.nats_B(emissions_BTK, tags_BT)
    assert nats.isnan().tolist() == [False, True]
    lengths_B = torch.tensor([4, 2])  # past a row's end it means nothing
    assert crf.nats_B(emissions_BTK, tags_BT, lengths_B).isfinite().all()
    crf.decode(emissions_BTK, lengths_B)
