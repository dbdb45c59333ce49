"""`swap` changes what a module computes with, and nothing else that anybody could hold on to."""

import copy
import pickle
from io import StringIO
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import Tensor, nn
from torch.nn.utils import parametrizations

import statewise.nn
from statewise.nn import swap, unswap
from statewise.specs import UserError


class Own(nn.LSTM):
    """Somebody's subclass."""


class Translator(nn.Module):
    """Hand-written as people do: a shared encoder, tied embeddings, a cell in a list, a question about the kind."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 6)
        self.encoder = nn.GRU(6, 6, 2, bidirectional=True, batch_first=True)
        self.also_encoder = self.encoder
        self.decoder = nn.LSTM(12, 6, batch_first=True)
        self.cells = nn.ModuleList([nn.LSTMCell(6, 6), nn.GRUCell(6, 6), nn.RNNCell(6, 6)])
        self.plain = nn.Sequential(nn.RNN(6, 6, batch_first=True))
        self.head = nn.Linear(6, 11, bias=False)
        self.head.weight = self.embedding.weight
        self.own = Own(6, 6)

    def forward(self, tokens_BT: Tensor) -> Tensor:
        x, _ = self.encoder(self.embedding(tokens_BT))
        x, state = self.decoder(x)
        h = state[0][-1] if isinstance(self.decoder, nn.LSTM) else state[-1]
        x, _ = self.plain(x)
        h, _ = self.cells[0](h)
        return self.head(x + self.cells[2](self.cells[1](h))[:, None])


def make() -> Translator:
    torch.manual_seed(0)
    return Translator().double()


TOKENS = torch.arange(40).view(2, 20) % 11


def test_every_kind_is_replaced_in_place() -> None:
    model = make()
    expected = model(TOKENS)
    held = dict(model.named_modules(remove_duplicate=False))
    parameters = dict(model.named_parameters(remove_duplicate=False))
    report = swap(model)
    for name, module in model.named_modules(remove_duplicate=False):
        assert module is held[name]
    for name, parameter in model.named_parameters(remove_duplicate=False):
        assert parameter is parameters[name]
    kinds = {one.names: (one.module, one.reason) for one in report.replaced}
    assert kinds == {
        ("encoder", "also_encoder"): ("torch.nn.GRU", "statewise.nn.GRU"),
        ("decoder",): ("torch.nn.LSTM", "statewise.nn.LSTM"),
        ("cells.0",): ("torch.nn.LSTMCell", "statewise.nn.LSTMCell"),
        ("cells.1",): ("torch.nn.GRUCell", "statewise.nn.GRUCell"),
        ("cells.2",): ("torch.nn.RNNCell", "statewise.nn.RNNCell"),
        ("plain.0",): ("torch.nn.RNN", "statewise.nn.RNN"),
    }
    assert type(model.encoder) is statewise.nn.GRU
    torch.testing.assert_close(model(TOKENS), expected, rtol=1e-10, atol=1e-12)


def test_a_subclass_is_left_and_the_report_says_why() -> None:
    model = make()
    (left,) = swap(model).left
    assert left.names == ("own",)
    assert "a subclass of torch.nn.LSTM" in left.reason
    assert type(model.own) is Own


def test_a_dry_run_changes_nothing() -> None:
    model = make()
    report = swap(model, dry_run=True)
    assert len(report.replaced) == 6
    assert type(model.encoder) is nn.GRU
    assert "would be replaced" in str(report)


def test_unswap_gives_torch_nn_back() -> None:
    model = make()
    before = {name: type(module) for name, module in model.named_modules()}
    swap(model)
    model.encoder.kernel = "naive"
    again = swap(model)
    assert {one.reason for one in again.left} >= {"it is statewise.nn.LSTM already"}
    assert not again.replaced
    assert len(unswap(model).replaced) == 6
    assert {name: type(module) for name, module in model.named_modules()} == before
    assert "kernel" not in vars(model.encoder)


def test_the_model_itself_may_be_the_module() -> None:
    module = nn.GRU(3, 4)
    assert "(the model itself)" in str(swap(module))
    assert type(module) is statewise.nn.GRU


def test_an_optimiser_goes_on() -> None:
    models = [make(), make()]
    optimisers = [torch.optim.Adam(model.parameters(), lr=0.01) for model in models]
    for step in range(4):
        if step == 2:
            swap(models[1])
        for model, optimiser in zip(models, optimisers, strict=True):
            optimiser.zero_grad()
            model(TOKENS).square().mean().backward()
            optimiser.step()
    for mine, theirs in zip(models[1].parameters(), models[0].parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-14)


def test_hooks_flags_and_frozen_weights_stay() -> None:
    model = make().eval()
    seen: list[str] = []
    model.encoder.register_forward_hook(lambda *_: seen.append("after"))
    model.encoder.register_forward_pre_hook(lambda *_: seen.append("before"))
    model.encoder.weight_ih_l0.register_hook(lambda _: seen.append("gradient"))
    model.decoder.requires_grad_(False)
    swap(model)
    model(TOKENS).sum().backward()
    assert seen == ["before", "after", "gradient"]
    assert not model.encoder.training
    assert all(not parameter.requires_grad for parameter in model.decoder.parameters())
    assert model.decoder.weight_ih_l0.grad is None


def test_checkpoints_go_both_ways() -> None:
    ours, theirs = make(), make()
    swap(ours)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.mul_(0.7)
    theirs.load_state_dict(ours.state_dict())
    torch.testing.assert_close(ours(TOKENS), theirs(TOKENS), rtol=1e-10, atol=1e-12)
    fresh = make()
    swap(fresh)
    fresh.load_state_dict(theirs.state_dict())
    assert torch.equal(fresh(TOKENS), ours(TOKENS))


@pytest.mark.parametrize("norm", [parametrizations.weight_norm, parametrizations.orthogonal])
def test_parametrised_modules_keep_their_parametrisation(norm: Any) -> None:
    model = nn.Sequential(norm(nn.GRU(3, 4).double(), "weight_hh_l0"))
    x = torch.randn(20, 2, 3, dtype=torch.float64)
    twin = copy.deepcopy(model)  # shares the class that PyTorch made for the parametrised module
    expected = model(x)[0]
    (one,) = swap(model).replaced
    assert one.reason == "statewise.nn.GRU"
    assert isinstance(model[0], statewise.nn.GRU)
    assert not isinstance(twin[0], statewise.nn.GRU)
    torch.testing.assert_close(model(x)[0], expected, rtol=1e-10, atol=1e-12)
    unswap(model)
    assert type(model[0]).__mro__[1] is nn.GRU
    torch.testing.assert_close(model(x)[0], expected, rtol=1e-10, atol=1e-12)
    swap(model)
    torch.nn.utils.parametrize.remove_parametrizations(model[0], "weight_hh_l0")
    assert type(model[0]) is statewise.nn.GRU
    torch.testing.assert_close(model(x)[0], expected, rtol=1e-10, atol=1e-12)


def test_a_wrapped_forward_is_left() -> None:
    model = nn.Sequential(nn.GRU(3, 4))
    before = model[0].forward
    model[0].forward = lambda *values: before(*values)
    (left,) = swap(model).left
    assert "swap before wrapping" in left.reason
    assert type(model[0]) is nn.GRU


def test_a_swapped_model_is_copied_and_pickled() -> None:
    model = make()
    swap(model)
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert type(twin.encoder) is statewise.nn.GRU
        assert twin.encoder is twin.also_encoder
        assert twin.head.weight is twin.embedding.weight
        assert torch.equal(twin(TOKENS), model(TOKENS))


def test_the_report_renders() -> None:
    report = swap(make())
    console = Console(width=100, record=True, file=StringIO())
    console.print(report)
    for text in (str(report), report._repr_html_(), console.export_text()):
        assert "6 of 7 recurrent modules replaced" in text
        assert "also_encoder" in text
        assert "statewise.nn.GRU" in text
    assert str(swap(nn.Linear(2, 2))) == "no recurrent module found"


def test_what_is_no_model() -> None:
    with pytest.raises(UserError, match=r"a dict is not a torch\.nn\.Module"):
        swap({})


@pytest.mark.filterwarnings("ignore:.*deprecated")  # PyTorch moves these tools to another package
def test_tools_that_look_for_torch_nn_find_it_again() -> None:
    model = nn.Sequential(nn.LSTM(3, 4))
    x = torch.randn(5, 2, 3)
    quantised = torch.ao.quantization.quantize_dynamic(model)
    swap(model)
    assert isinstance(torch.ao.quantization.quantize_dynamic(model)[0], statewise.nn.LSTM)
    unswap(model)
    again = torch.ao.quantization.quantize_dynamic(model)
    assert type(again[0]) is type(quantised[0]) is not nn.LSTM
    assert torch.equal(again(x)[0], quantised(x)[0])
    assert torch.equal(torch.jit.script(model)(x)[0], model(x)[0])
