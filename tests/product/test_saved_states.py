"""A saved state belongs to the weights it was saved with; what a file cannot hold is refused in plain words."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from tiny_run import call, start, write_text

from statewise.specs import UserError
from statewise.tasks import LanguageModelRun, load


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("home")
    text = write_text(home)
    for seed in (0, 1):
        start("gru", text, home / f"run-{seed}", {"train.steps": 6, "seed": seed})
    said = call("generate", str(home / "run-0"), "-p", "the cat", "-n", "5", "--save-state", str(home / "state"))
    assert said.code == 0, said.err
    return home


def with_changed(home: Path, path: Path, metadata: dict[str, str] | None = None, **changes: Any) -> Path:
    """A copy of the state with other tensors or another header."""
    with safe_open(home / "state", framework="pt") as file:
        header = file.metadata() or {}
    save_file({**load_file(home / "state"), **changes}, path, metadata={**header, **(metadata or {})})
    return path


def test_the_state_of_another_model_is_refused(home: Path) -> None:
    said = call("generate", str(home / "run-1"), "--state", str(home / "state"))
    assert said.code == 2
    assert "belongs to a model with other weights (sha256 " in said.err
    assert call("generate", str(home / "run-0"), "--state", str(home / "state")).code == 0


def test_a_state_from_before_weights_were_named_is_read_with_a_warning(home: Path, tmp_path: Path) -> None:
    old, run = with_changed(home, tmp_path / "old", {"weights": ""}), load(home / "run-0")
    assert isinstance(run, LanguageModelRun)
    with pytest.warns(UserWarning, match="does not say which weights it belongs to"):
        run.load_state(old)


def rows(count: int, home: Path) -> dict[str, torch.Tensor]:
    return {name: leaf[:1].repeat(count, *[1] * (leaf.dim() - 1)) for name, leaf in load_file(home / "state").items()}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"token_B": torch.tensor([99])}, "token 99 is not in the vocabulary, expected 0 to 16"),
        ({"token_B": torch.tensor([-1])}, "token -1 is not in the vocabulary"),
        ({"position_B": torch.tensor([-1])}, "position -1 is not valid, expected 0 or more"),
        ({"position_B": torch.tensor([2**63 - 1])}, "is not valid, expected 0 or more"),
        ({"tail_BK": torch.full((1, 8), 99)}, "last tokens are not all in the vocabulary"),
        (0, "it holds 0 texts, expected 1"),
        (2, "it holds 2 texts, expected 1"),
        ("nan", "values that are not finite numbers"),
    ],
    ids=str,
)
def test_what_no_continuation_holds_is_refused(changes: Any, said: str, home: Path, tmp_path: Path) -> None:
    kept = load_file(home / "state")
    if isinstance(changes, int):
        changes = rows(changes, home)
    elif changes == "nan":
        changes = {name: leaf * torch.nan for name, leaf in kept.items() if leaf.is_floating_point()}
    elif "tail_BK" in changes:
        changes = {"tail_BK": torch.full_like(kept["tail_BK"], 99)}
    run = load(home / "run-0")
    assert isinstance(run, LanguageModelRun)
    with pytest.raises(UserError, match=said):
        run.load_state(with_changed(home, tmp_path / "state", **changes))


def test_a_header_without_end_is_refused(home: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a saved state"):
        load(home / "run-0").load_state(with_changed(home, tmp_path / "deep", {"state": "[" * 100_000}))  # type: ignore[attr-defined]  # a language model
