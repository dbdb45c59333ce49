"""What a model costs by formula is what PyTorch's own counter counts, and what its state really takes: exactly."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from statewise.core import state_bytes
from statewise.kernels import associative_memory
from statewise.kernels.choice import force
from statewise.kernels.gated_delta import naive as gated_delta
from statewise.kernels.linear_attention import naive as linear_attention
from statewise.kernels.ttt import naive as ttt
from statewise.models import LINEAGE, build, build_mixer
from statewise.models.lineage import Ancestor, ancestor
from statewise.specs import LSTMSpec, ModelSpec, TransformerSpec

VOCAB = 11
CONTEXTS = (0, 1, 5, 29)
PAGE = Path(__file__).parents[2] / "docs" / "cost.md"

# What stands around a mixer, in forms that no row of the lineage needs.
AROUND: tuple[ModelSpec, ...] = (
    LSTMSpec(width=12, embedding=5, depth=3, tie=True),
    LSTMSpec(width=12, embedding=5, projection=5, tie=True, mlp="relu", mlp_ratio=1.3),
    LSTMSpec(width=12, depth=2, mlp="swiglu", norm="layer", residual=True),
    TransformerSpec(width=12, depth=3, heads=2, tie=True, position="learned", context=64, mlp="none"),
)
SPECS = [*(spec for row in LINEAGE for spec in (row.spec.small(), *row.variants)), *AROUND]


def name(spec: ModelSpec) -> str:
    plain = type(spec)()
    odd = {key: value for key, value in spec.model_dump().items() if value != getattr(plain, key)}
    return ",".join([spec.kind, *(f"{key}={value}" for key, value in odd.items())])


each_spec = pytest.mark.parametrize("spec", SPECS, ids=name)


def outer(k: Tensor, v: Tensor) -> Tensor:
    return k[..., :, None] @ v[..., None, :]


def read(q: Tensor, s: Tensor) -> Tensor:
    return (q[..., None, :] @ s)[..., 0, :]


@pytest.fixture
def products(monkeypatch: pytest.MonkeyPatch) -> None:
    """One moment of a matrix memory is written out entry by entry, where the counter sees no product; so it is
    counted on the same two functions as products, which the next test proves equal."""
    for module in (linear_attention, gated_delta, ttt):
        monkeypatch.setattr(module, "outer", outer)
    for module in (linear_attention, gated_delta):
        monkeypatch.setattr(module, "read", read)


def test_the_products_that_are_counted_are_those_that_are_run() -> None:
    generator = torch.Generator().manual_seed(0)
    k, v, s = (torch.randn(2, 3, *shape, dtype=torch.float64, generator=generator) for shape in ((5,), (7,), (5, 7)))
    torch.testing.assert_close(associative_memory.outer(k, v), outer(k, v), rtol=0, atol=0)
    torch.testing.assert_close(associative_memory.read(k, s), read(k, s), rtol=0, atol=1e-14)


def after(model: Any, context: int) -> Any:
    if context == 0:
        return model.init_state(1)
    _, state = model(model.sample_input(1, context, generator=torch.Generator().manual_seed(0)))
    return state


@torch.no_grad()
def counted(model: Any, x: Tensor, state: Any) -> int:
    # The equation: what a fused kernel does inside, the counter may not see.
    with force("naive"), FlopCounterMode(display=False) as counter:
        model.step(x, state)
    return counter.get_total_flops()


@each_spec
def test_a_model(spec: ModelSpec, products: None) -> None:
    model = build(spec, vocab=VOCAB).eval()
    for context in CONTEXTS:
        state = after(model, context)
        assert spec.state_bytes(context) == state_bytes(state)
        assert spec.forward_flops(VOCAB, context) == counted(model, torch.zeros(1, dtype=torch.int64), state)


@each_spec
def test_a_mixer_with_an_input_of_another_width(spec: ModelSpec, products: None) -> None:
    if spec.kind == "markov":
        assert spec.forward_flops(VOCAB, 7) == 0, "it has no mixer: all of it is looked up"
        return
    width = spec.width if spec.kind == "basic_attention" else 5  # nothing maps the width there
    mixer = build_mixer(spec, input_width=width).double().eval()
    for context in CONTEXTS:
        state = after(mixer, context)
        assert spec.mixer_state(width, context).bytes(8) == state_bytes(state)
        assert spec.mixer_flops(width, context) == counted(mixer, torch.zeros(1, width, dtype=torch.float64), state)


@pytest.mark.parametrize("row", LINEAGE, ids=[row.name for row in LINEAGE])
def test_the_default_size_in_bfloat16(row: Ancestor) -> None:
    """Half the bytes, but for sums over time."""
    model = build(row.spec, vocab=VOCAB).bfloat16().eval()
    assert row.spec.state_bytes(3, itemsize=2) == state_bytes(after(model, 3))


# The page.


def formulas() -> dict[str, list[str]]:
    """Model to its formulas, as `docs/cost.md` prints them."""
    rows = re.findall(r"^\| \[?`?(\w+)`?\]?\S* \|(.*)\|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return {kind: re.findall(r"`([^`]+)`", cells) for kind, cells in rows if kind in {row.name for row in LINEAGE}}


def test_the_page_has_every_model() -> None:
    assert list(formulas()) == [row.name for row in LINEAGE]


@pytest.mark.parametrize("kind", [row.name for row in LINEAGE if row.spec.learns == "gradient"])
def test_the_page_prints_what_is_computed(kind: str) -> None:
    flops, parameters, state = formulas()[kind]
    for width, inputs, c in ((64, 64, 0), (96, 32, 100), (32, 160, 7)):
        inputs = width if kind == "basic_attention" else inputs
        spec: Any = ancestor(kind).spec.model_copy(update={"width": width})
        options = {key: value for key, value in spec.model_dump().items() if isinstance(value, int)}
        symbols = {**options, "d": width, "i": inputs, "c": c}
        assert eval(flops, {}, symbols) == spec.mixer_flops(inputs, c)
        assert eval(parameters, {}, symbols) == spec.mixer_parameters(inputs)
        assert eval(state, {}, symbols) == spec.mixer_state(inputs, c).bytes(4)
