"""PyTorch's tools on every machine of the lineage: what `benchmarks/tracing.py` tries, cell by cell.

Those that take seconds a machine are tried on a few of them here, and on all of them nightly.
"""

import importlib
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import torch
from torch.export import Dim

import statewise as sw
from statewise.core import lens
from statewise.core.context import Switch
from statewise.kernels.choice import force, record

# Inside PyTorch: of its compiler, which looks for gradients, and of forward mode, which uses TorchScript.
pytestmark = [
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning"),
]
NAMES = [entry.name for entry in sw.LINEAGE]
QUICK = ("func", "jacobian", "meta", "fake")
LONG = ("export", "export state", "export ragged", "export step", "compile")
FEW = [
    *[("elman", "export"), ("transformer", "export step"), ("window", "export ragged")],
    pytest.param("basic_attention", "compile", marks=pytest.mark.slow),
]
ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "tracing.md").read_text(encoding="utf-8")
ROWS = [[cell.strip() for cell in line.split("|")[1:-1]] for line in PAGE.splitlines() if line.startswith("| ")]


@pytest.fixture(scope="module")
def tried() -> Iterator[Any]:
    """The benchmark as a module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        yield importlib.import_module("tracing")


@pytest.mark.parametrize("tool", QUICK)
@pytest.mark.parametrize("name", NAMES)
def test_quick(tried: Any, name: str, tool: str) -> None:
    tried.TOOLS[tool](tried.made(name))


@pytest.mark.parametrize("name", NAMES)
def test_traced(tried: Any, name: str) -> None:
    (said,) = [row[5] for row in ROWS if row[0] == name]
    assert tried.traced(tried.made(name)) == ("yes" if said.startswith("any length") else "yes, one length")


def test_the_page_has_every_model_in_order() -> None:
    assert [row[0] for row in ROWS[1:]] == NAMES


@pytest.mark.parametrize(("name", "tool"), FEW)
def test_few(tried: Any, name: str, tool: str) -> None:
    tried.TOOLS[tool](tried.made(name))


@pytest.mark.slow
@pytest.mark.parametrize("tool", LONG)
@pytest.mark.parametrize("name", NAMES)
def test_all(tried: Any, name: str, tool: str) -> None:
    tried.TOOLS[tool](tried.made(name))


def test_a_machine_that_follows_wrongly_is_found(tried: Any) -> None:
    class Wrong(torch.nn.Module):
        """What was traced is a constant: right for the rows that were traced, and for no others."""

        def forward(self, x_BT: torch.Tensor) -> Any:
            return x_BT.double() * float(x_BT.sum()), (torch.zeros(len(x_BT)),)

    with pytest.raises(AssertionError, match="not close"):
        tried.traced(Wrong())


def test_saved_and_loaded(tried: Any, tmp_path: Path) -> None:
    model = tried.made("lstm")
    token_B, state = tried.tokens(3, 1)[:, 0], tried.state_after(model, 3)
    shapes = ({0: Dim.DYNAMIC}, tried.free(model))
    program = torch.export.export(tried.Step(model), (token_B, state), dynamic_shapes=shapes)
    torch.export.save(program, tmp_path / "step.pt2")
    y_BV, after = torch.export.load(tmp_path / "step.pt2").module()(token_B, state)
    tried.same((y_BV, after), model.step(token_B, state))
    assert type(after) is type(state)


@pytest.mark.parametrize("name", ["elman", "gru", "lstm", "mingru"])
def test_the_choice_says_who_reads_along(name: str) -> None:
    model = sw.build(name, vocab=5, width=4)
    x_BT = torch.zeros(2, 3, dtype=torch.int64)
    for wish in ("auto", "fused", "batched"):
        with record() as chosen, force(wish):
            torch.func.vmap(lambda x_T: model(x_T[None])[0])(x_BT)
        assert [choice.implementation for choice in chosen.values()] == ["naive"]
        assert all("torch.func follows plain ops alone" in choice.reason for choice in chosen.values())


def test_a_lens_opened_later_is_seen() -> None:
    """What was compiled without one is not what runs under it."""
    torch._dynamo.reset()
    mixer = sw.mixers.Jordan(4).eval()
    x_BTD = torch.randn(2, 3, 4)
    run = torch.compile(mixer, backend="eager")
    expected, _ = run(x_BTD)
    with lens() as seen:
        found, _ = run(x_BTD)
    assert seen["jordan.output"].shape == (2, 3, 4)
    torch.testing.assert_close(found, expected)
    torch._dynamo.reset()


def test_a_switch_is_of_its_thread_and_says_whether_anybody_uses_it() -> None:
    switch = Switch("tried", "default")
    there = []
    with switch.set("outer"):
        with switch.set("inner"):
            assert (switch.get(), switch.used) == ("inner", 2)
        thread = Thread(target=lambda: there.append(switch.get()))
        thread.start()
        thread.join()
        assert (switch.get(), there) == ("outer", ["default"])
    assert (switch.get(), switch.used) == ("default", 0)
