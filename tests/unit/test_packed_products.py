"""Products by matrices in another layout are the same products, and follow the matrices when these change."""

import gc
import weakref

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from statewise.decoding import Sampling, begin, extend
from statewise.kernels.few_rows import linear, packed, packed_products
from statewise.models import build


@pytest.fixture(autouse=True)
def _any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "SMALLEST", 1)


def noise(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def made(width: int, input_width: int, *, bias: bool = True) -> nn.Linear:
    layer = nn.Linear(input_width, width, bias=bias)
    with torch.no_grad():
        for n, p in enumerate(layer.parameters()):
            p.copy_(noise(*p.shape, seed=n))
    return layer


@pytest.mark.parametrize("rows", [1, 2, 3, 16, 64, 65])
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "bare"])
@pytest.mark.parametrize(("width", "input_width"), [(48, 20), (20, 48)])
@torch.no_grad()
def test_the_product_is_the_same(rows: int, bias: bool, width: int, input_width: int) -> None:
    layer = made(width, input_width, bias=bias)
    for shape in ((rows, input_width), (rows, 1, input_width), (rows + 1, input_width)):
        x = noise(*shape, seed=9)
        expected = F.linear(x.double(), layer.weight.double(), layer.bias.double() if bias else None)
        with packed_products(rows, {}):
            found = linear(x, layer.weight, layer.bias)
        assert found.shape == expected.shape
        torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rows", [1, 3, 64])
@pytest.mark.parametrize("activation", ["none", "relu", "gelu"])
@pytest.mark.parametrize("added", [True, False], ids=["onto", "alone"])
@torch.no_grad()
def test_what_comes_after_the_product_is_the_same(rows: int, activation: packed.Activation, added: bool) -> None:
    layer, x = made(48, 20), noise(rows, 20, seed=9)
    onto = noise(rows, 48, seed=8) if added else None
    product = F.linear(x.double(), layer.weight.double(), layer.bias.double())
    activated = {"none": product, "relu": F.relu(product), "gelu": F.gelu(product, approximate="tanh")}[activation]
    with packed_products(rows, {}):
        found = linear(x, layer.weight, layer.bias, activation=activation, onto=onto)
    torch.testing.assert_close(
        found.double(), activated if onto is None else onto.double() + activated, rtol=1e-5, atol=1e-5
    )
    if onto is not None:
        assert torch.equal(onto, noise(rows, 48, seed=8)), "what is added to is somebody else's"


@pytest.mark.parametrize("threads", [2, 3, 4])
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "bare"])
@pytest.mark.parametrize(("width", "input_width"), [(48, 20), (49, 20), (20, 48), (21, 48), (24, 24)])
@torch.no_grad()
def test_one_vector_by_a_matrix_in_parts(
    threads: int, bias: bool, width: int, input_width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many as there are threads; a width that they do not divide is padded, or left to `F.linear`."""
    monkeypatch.setattr(packed, "LARGE", 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    layer = made(width, input_width, bias=bias)
    for shape in ((1, input_width), (1, 1, input_width)):
        x = noise(*shape, seed=9)
        ready: dict[int, packed.Finished | None] = {}
        expected = F.linear(x.double(), layer.weight.double(), layer.bias.double() if bias else None)
        with packed_products(1, ready):
            found = linear(x, layer.weight, layer.bias)
        assert found.shape == expected.shape
        torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)
        assert (ready[id(layer.weight)] is None) == (width < input_width and width % threads != 0)


def test_in_how_many_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    weight = torch.zeros(300, 300)
    assert packed.parts_of(weight, 1) == 1
    monkeypatch.setattr(packed, "LARGE", 90_000)
    assert [packed.parts_of(weight, rows) for rows in (1, 2)] == [2, 1]
    assert packed.layout(weight, 1) == "columns", "rows are read in parts from twice as many numbers on"
    monkeypatch.setattr(packed, "LARGE", 45_000)
    assert packed.layout(weight, 1) == "rows"
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    assert packed.layout(weight, 1) == "columns"


@pytest.mark.parametrize("rows", [1, 4])
@torch.no_grad()
def test_a_weight_that_changed_is_laid_out_anew(rows: int) -> None:
    """One number of many, too, written where PyTorch counts no version."""
    layer = made(700, 300)
    x = noise(rows, 300, seed=9)

    def one_number(p: Tensor) -> None:
        p.data[333, 101] += 100.0

    for change in (lambda p: p.mul_(2), one_number, lambda p: setattr(p, "data", 3 * p.data)):
        with packed_products(rows, {}):
            linear(x, layer.weight, layer.bias)
        change(layer.weight)
        with packed_products(rows, {}):
            found = linear(x, layer.weight, layer.bias)
        torch.testing.assert_close(found, F.linear(x, layer.weight, layer.bias), rtol=1e-4, atol=1e-3)


@torch.no_grad()
def test_layouts_go_with_their_weight() -> None:
    layer = made(32, 16)
    with packed_products(1, {}):
        linear(torch.zeros(1, 16), layer.weight)
    kept = weakref.ref(packed._kept[layer.weight])
    assert kept() is not None
    del layer
    gc.collect()
    assert kept() is None


def test_which_layout_for_how_many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    wide, narrow = torch.zeros(300, 200), torch.zeros(200, 300)
    assert [packed.layout(wide, rows) for rows in (1, 2)] == ["columns"] * 2
    assert packed.layout(narrow, 1) is None
    assert packed.layout(wide, 65) is None
    assert packed.layout(wide.double(), 1) is None
    monkeypatch.setattr(packed, "SMALLEST", 60_001)
    assert packed.layout(wide, 1) is None


@pytest.mark.parametrize("batch", [1, 5])
def test_a_text_is_written_with_them(batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model = build("transformer", vocab=40, width=32, depth=2, heads=2, seed=3).eval()
    prompt_BT = torch.randint(40, (batch, 5), generator=torch.Generator().manual_seed(0))
    tokens_BT, _ = extend(model, begin(model, prompt_BT, vocab=40), Sampling(temperature=0), tokens=8)
    assert any(p in packed._kept for p in model.parameters())
    monkeypatch.setattr(packed, "layout", lambda weight_OI, rows: None)
    plain_BT, _ = extend(model, begin(model, prompt_BT, vocab=40), Sampling(temperature=0), tokens=8)
    assert tokens_BT.tolist() == plain_BT.tolist()
