"""What a model costs without memory is what a real one costs, and what the page says: exactly."""

import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from statewise.core import state_bytes
from statewise.kernels import as_products, associative_memory, force
from statewise.models import LINEAGE, build, build_mixer, cost_of
from statewise.models.lineage import ancestor
from statewise.specs import LSTMSpec, ModelSpec, TransformerSpec

VOCAB = 11
CONTEXTS = (0, 1, 29)
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


def test_the_products_that_are_counted_are_those_that_are_run() -> None:
    """One step of a matrix memory is written out entry by entry, where the counter sees no product."""
    generator = torch.Generator().manual_seed(0)
    k, v, s = (torch.randn(2, 3, *shape, dtype=torch.float64, generator=generator) for shape in ((5,), (7,), (5, 7)))
    written, read = associative_memory.outer(k, v), associative_memory.read(k, s)
    with as_products(), FlopCounterMode(display=False) as counter:
        torch.testing.assert_close(associative_memory.outer(k, v), written, rtol=0, atol=0)
        torch.testing.assert_close(associative_memory.read(k, s), read, rtol=0, atol=1e-14)
    assert counter.get_total_flops() == 2 * 2 * 3 * 2 * 5 * 7


def after(model: Any, context: int) -> Any:
    if context == 0:
        return model.init_state(1)
    _, state = model(model.sample_input(1, context, generator=torch.Generator().manual_seed(0)))
    return state


@torch.no_grad()
def counted(model: Any, x: Tensor, state: Any) -> int:
    # The equation: what a fused kernel does inside, the counter may not see.
    with force("naive"), as_products(), FlopCounterMode(display=False) as counter:
        model.step(x, state)
    return counter.get_total_flops()


@each_spec
def test_a_model(spec: ModelSpec) -> None:
    """What is measured without memory is what a real model has, does and holds after reading."""
    model = build(spec, vocab=VOCAB).eval()
    for context in CONTEXTS:
        state = after(model, context)
        cost = cost_of(partial(build, spec, vocab=VOCAB), context=context)
        flops = counted(model, torch.zeros(1, dtype=torch.int64), state)
        assert cost == (sum(p.numel() for p in model.parameters()), flops, state_bytes(state))
    assert spec.step_grows == (cost.flops > cost_of(partial(build, spec, vocab=VOCAB)).flops)


def test_measuring_does_not_load_the_compiler() -> None:
    """A parameter count before training must not cost what loading PyTorch costs."""
    code = (
        "import sys; from functools import partial; from statewise.models import build, num_parameters\n"
        "for kind in ('lstm', 'transformer', 'mamba2', 'gated_delta', 'leaky'):\n"
        "    num_parameters(partial(build, kind, vocab=65))\n"
        "sys.exit('torch._dynamo' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# The page.


def formulas() -> dict[str, list[str]]:
    """Model to its formulas, as `docs/cost.md` prints them."""
    rows = re.findall(r"^\| \[?`?(\w+)`?\]?\S* \|(.*)\|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return {kind: re.findall(r"`([^`]+)`", cells) for kind, cells in rows if kind in {row.name for row in LINEAGE}}


def test_the_page_has_every_model() -> None:
    assert list(formulas()) == [row.name for row in LINEAGE]


@pytest.mark.parametrize("kind", [row.name for row in LINEAGE if row.spec.learns == "gradient"])
def test_the_page_prints_what_is_measured(kind: str) -> None:
    flops, parameters, state = formulas()[kind]
    for width, inputs, c in ((64, 64, 0), (96, 32, 100), (32, 160, 7)):
        inputs = width if kind == "basic_attention" else inputs
        spec: Any = ancestor(kind).spec.model_copy(update={"width": width})
        options = {key: value for key, value in spec.model_dump().items() if isinstance(value, int)}
        symbols = {**options, "d": width, "i": inputs, "c": c}
        cost = cost_of(partial(build_mixer, spec, input_width=inputs), context=c)
        assert cost == tuple(eval(formula, {}, symbols) for formula in (parameters, flops, state))
