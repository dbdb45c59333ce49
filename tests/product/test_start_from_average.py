"""A new run that starts from another starts from the weights that its users see, whatever file holds them."""

from pathlib import Path

import pytest
import torch
from tiny_run import BASE, TEXT

import statewise as sw


@pytest.mark.parametrize("damaged", [False, True])
def test_a_run_with_an_average_is_a_start(damaged: bool, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text(TEXT)
    first = tmp_path / "first"
    sw.train("elman", data=text, out=first, settings={**BASE, "train.average": 0.9})
    if damaged:  # then the best checkpoint is opened, which keeps weights and average apart
        (first / "model.safetensors").write_bytes(b"damaged")
    seen = dict(sw.load(first).model.named_parameters())
    sw.train(first, data=text, out=tmp_path / "second", steps=0)
    for name, weights in sw.load(tmp_path / "second").model.named_parameters():
        torch.testing.assert_close(weights, seen[name], rtol=0, atol=0)
