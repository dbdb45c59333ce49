"""The recommender of the examples: it finds the planted vectors again, and predicts what was kept back."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

EXAMPLE = Path(__file__).parents[2] / "examples" / "recommender.py"


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("recommender", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("seed", [0, 1])
def test_planted_vectors_are_found_up_to_rotation(example: ModuleType, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    planted = example.plant(120, 90, 3, generator=generator)
    known, kept_back = example.ask(planted, share=0.2, noise=0.1, generator=generator)
    found = example.learn(known, users=120, movies=90, traits=3, generator=generator)
    assert example.error(found, kept_back) < 0.15
    assert example.error(found, kept_back) < 0.1 * float(kept_back.score_N.std())
    assert example.distance_up_to_rotation(found, planted) < 0.06
    by_chance = example.plant(120, 90, 3, generator=generator)
    assert example.distance_up_to_rotation(by_chance, planted) > 0.5


def test_a_rotation_is_no_distance_and_a_stretch_is(example: ModuleType) -> None:
    planted = example.plant(20, 15, 3, generator=torch.Generator().manual_seed(0))
    turn_KK, _ = torch.linalg.qr(torch.randn(3, 3, generator=torch.Generator().manual_seed(1)))
    turned = example.Factors(planted.user_UK @ turn_KK, planted.movie_MK @ turn_KK)
    torch.testing.assert_close(turned.scores(), planted.scores())
    assert example.distance_up_to_rotation(turned, planted) < 1e-5
    stretched = example.Factors(2 * planted.user_UK, planted.movie_MK / 2)
    torch.testing.assert_close(stretched.scores(), planted.scores())
    assert example.distance_up_to_rotation(stretched, planted) > 0.3
    assert example.distance_up_to_rotation(example.shared_fairly(stretched), planted) < 1e-5


def test_no_rating_is_both_known_and_kept_back(example: ModuleType) -> None:
    generator = torch.Generator().manual_seed(0)
    planted = example.plant(30, 20, 2, generator=generator)
    known, kept_back = example.ask(planted, share=0.3, noise=0.0, generator=generator)
    pairs = [set(zip(r.user_N.tolist(), r.movie_N.tolist(), strict=True)) for r in (known, kept_back)]
    assert len(pairs[0]) == len(pairs[1]) == 180
    assert not pairs[0] & pairs[1]
    assert example.error(planted, known) < 1e-6


def test_it_prints_what_it_found(
    example: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["recommender.py", "--users", "40", "--movies", "30", "--traits", "2"])
    example.main()
    said = capsys.readouterr().out
    assert "240 ratings known, of 1200" in said
    assert "up to rotation" in said
