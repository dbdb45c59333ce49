"""A penalty on the features that the head reads: what it adds, where a document begins, who has none."""

import pytest
import torch

from statewise.specs import LanguageModelSpec, UserError, make_spec
from statewise.specs.objective import PenaltySpec
from statewise.tasks.language_model.job import penalty


def features() -> torch.Tensor:
    return torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64).float()


def test_both_terms_are_the_published_means() -> None:
    """Merity et al.: α times the mean of h², β times the mean of the squared differences; here times the tokens."""
    y_BTD = features()
    size = penalty(PenaltySpec(size=2.0), y_BTD, None)
    change = penalty(PenaltySpec(change=3.0), y_BTD, None)
    torch.testing.assert_close(torch.as_tensor(size), 2 * y_BTD.pow(2).mean() * 15)
    torch.testing.assert_close(torch.as_tensor(change), 3 * (y_BTD[:, 1:] - y_BTD[:, :-1]).pow(2).mean() * 12)
    both = penalty(PenaltySpec(size=2.0, change=3.0), y_BTD, None)
    torch.testing.assert_close(torch.as_tensor(both), torch.as_tensor(size) + torch.as_tensor(change))


def test_a_new_document_is_no_change() -> None:
    y_BTD = features()
    resets_BT = torch.zeros(3, 5, dtype=torch.bool)
    resets_BT[1, 2] = resets_BT[2, 0] = True
    kept = (y_BTD[:, 1:] - y_BTD[:, :-1]).pow(2).mean(-1)
    expected = kept.sum() - kept[1, 1]
    torch.testing.assert_close(torch.as_tensor(penalty(PenaltySpec(change=1.0), y_BTD, resets_BT)), expected)


def test_nothing_asked_nothing_added() -> None:
    assert penalty(PenaltySpec(), features(), None) == 0.0
    assert PenaltySpec().is_free
    assert not PenaltySpec(change=1.0).is_free


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"model": {"kind": "markov"}, "penalty": {"size": 1.0}}, "markov has no features"),
        ({"forcing": {"kind": "free"}, "penalty": {"change": 1.0}}, "penalty needs forcing = 'teacher'"),
    ],
)
def test_refused_where_it_means_nothing(settings: dict[str, object], words: str) -> None:
    with pytest.raises(UserError, match=words):
        make_spec(settings)


def test_read_from_settings() -> None:
    spec = make_spec({"penalty": {"size": 2.0, "change": 1.0}})
    assert isinstance(spec, LanguageModelSpec)
    assert (spec.penalty.size, spec.penalty.change) == (2.0, 1.0)
