"""The classifier of grids: what a summary holds, padding, and how large it is."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from statewise.data import read_arrays, read_grids
from statewise.data.embedded import digits
from statewise.models.grid_classifier import GridClassifier, build_grid_classifier, ends_of
from statewise.specs import GridSpec, UserError, make_spec


def classifier(**settings: Any) -> GridClassifier:
    return build_grid_classifier(GridSpec(width=5, **settings), channels=3, num_classes=4, seed=1).double()


@pytest.mark.parametrize("summary", ["mean", "max", "corners"])
@pytest.mark.parametrize("depth", [1, 2])
def test_a_grid_beside_larger_ones_is_read_as_if_alone(summary: str, depth: int) -> None:
    model = classifier(summary=summary, depth=depth)
    x_BHWI = torch.randn(3, 5, 6, 3, dtype=torch.float64)
    sizes = [(5, 6), (2, 6), (4, 1)]
    together_BK = model(x_BHWI, torch.tensor(sizes))
    for row, (height, width) in enumerate(sizes):
        alone_1K = model(x_BHWI[row : row + 1, :height, :width])
        torch.testing.assert_close(together_BK[row : row + 1], alone_1K, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("summary", ["mean", "max", "corners"])
def test_every_cell_has_a_say(summary: str) -> None:
    x_BHWI = torch.randn(1, 3, 4, 3, dtype=torch.float64, requires_grad=True)
    (slope_BHWI,) = torch.autograd.grad(classifier(summary=summary)(x_BHWI).square().sum(), x_BHWI)
    assert (slope_BHWI.abs().sum(-1) > 0).all()


def test_readings_end_across_from_where_they_begin() -> None:
    y_BHWC = torch.arange(2 * 3 * 4).view(2, 3, 1, 4).expand(2, 3, 5, 4) + 100 * torch.arange(5)[None, None, :, None]
    found_BC = ends_of(y_BHWC, torch.tensor([[3, 5], [2, 1]]))
    # upper left ends lower right, upper right lower left, lower left upper right, lower right upper left
    assert found_BC.tolist() == [[8 + 400, 9, 2 + 400, 3], [12 + 4, 12 + 5, 12 + 2, 12 + 3]]


def test_the_embedded_digits_are_scikit_learns() -> None:
    found, theirs = digits(), load_digits()
    np.testing.assert_array_equal(found.values_NHWC[..., 0], theirs.images)
    assert found.labels == [str(label) for label in theirs.target]


def test_grids_of_an_archive(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(
        path, x=np.arange(24).reshape(2, 3, 4), rgb=np.ones((2, 3, 4, 3)), y=np.array(["cat", "dog"]), bad=[np.inf]
    )
    found = read_grids(path)
    assert found.values_NHWC.shape == (2, 3, 4, 1)
    assert found.labels == ["cat", "dog"]
    assert read_grids(path, values="rgb").values_NHWC.shape == (2, 3, 4, 3)
    assert read_grids(path, label="absent", labelled=False).labels == ["", ""]
    with pytest.raises(UserError, match=r"shape \[1\] of float64\nexpected numbers of shape \[N, H, W\]"):
        read_grids(path, values="bad")
    with pytest.raises(UserError, match=r"but 'x' has 2 grids"):
        read_grids(path, label="bad")
    with pytest.raises(UserError, match=r"shape \[2, 3, 4, 3\].*\nexpected numbers of shape \[N, T\]"):
        read_arrays(path, values="rgb")


def test_values_without_labels(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n1,2\n3,4\n")
    (tmp_path / "b.csv").write_text("class,a,b\n9,1,2\n9,3,4\n")
    for name in ("a.csv", "b.csv"):
        found = read_arrays(tmp_path / name, label="class", labelled=False)
        assert found.values_NTC[..., 0].tolist() == [[1, 2], [3, 4]]
    with pytest.raises(UserError, match="no column 'class'"):
        read_arrays(tmp_path / "a.csv", label="class")


def table(**model: Any) -> dict[str, Any]:
    return {"task": "classification", "model": {"kind": "grid", **model}, "data": {"kind": "grid"}}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (["data.kind=text"], "model.kind = 'grid' reads grids, but data.kind is 'text'"),
        (["data.kind=values"], "set data.kind = 'grid'"),
        (["reader.bidirectional=true"], "read from its corners"),
        (["model.summary=last"], "'mean', 'max' or 'corners'"),
        (["model.heads=2"], "model.heads: unknown key"),
        (["data.validation=a.npz"], "name both"),
    ],
)
def test_settings_without_meaning_are_refused(changes: list[str], says: str) -> None:
    make_spec(table())
    with pytest.raises(UserError) as error:
        make_spec(table(), changes)
    assert says in str(error.value)
