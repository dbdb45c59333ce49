"""What a model costs without memory is what a real one costs, and what the page says: exactly."""

import re
import subprocess
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from statewise.comparison.measure import longest_path
from statewise.core import Mixer, state_bytes
from statewise.encoders import Composition, NaryTreeLSTM
from statewise.kernels import associative_memory, force, gated_delta, linear_attention, ttt
from statewise.models import (
    LINEAGE,
    build,
    build_mixer,
    build_sample,
    cost_of,
    growth,
    path,
    path_length,
    training_bytes,
    tree_path,
    tree_path_length,
)
from statewise.specs import LSTMSpec, ModelSpec, TransformerSpec, WindowSpec

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
ANCESTORS = {row.name: row for row in LINEAGE}
SPECS = [*(spec for row in LINEAGE for spec in (row.spec.small(), *row.variants)), *AROUND]


def name(spec: ModelSpec) -> str:
    plain = type(spec)()
    odd = {key: value for key, value in spec.model_dump().items() if value != getattr(plain, key)}
    return ",".join([spec.kind, *(f"{key}={value}" for key, value in odd.items())])


each_spec = pytest.mark.parametrize("spec", SPECS, ids=name)


def test_a_matrix_memory_is_counted_as_products() -> None:
    """One step of it is written out entry by entry, where the counter sees no product; without memory it is not."""
    k, v, s = (torch.randn(2, 3, *shape, device="meta") for shape in ((5,), (7,), (5, 7)))
    with FlopCounterMode(display=False) as counter:
        assert associative_memory.outer(k, v).shape == (2, 3, 5, 7)
        assert associative_memory.read(k, s).shape == (2, 3, 7)
    assert counter.get_total_flops() == 2 * 2 * 3 * 2 * 5 * 7


def as_products() -> ExitStack:
    """The memory of a real model as products, which agree with what is run."""

    def outer(k_K: Tensor, v_V: Tensor) -> Tensor:
        product = k_K[..., :, None] @ v_V[..., None, :]
        torch.testing.assert_close(associative_memory.outer(k_K, v_V), product)
        return product

    def read(q_K: Tensor, s_KV: Tensor) -> Tensor:
        product = (q_K[..., None, :] @ s_KV)[..., 0, :]
        torch.testing.assert_close(associative_memory.read(q_K, s_KV), product)
        return product

    stack = ExitStack()
    for kernel in (gated_delta, linear_attention):
        stack.enter_context(patch.object(kernel.naive, "read", read))
    for kernel in (gated_delta, linear_attention, ttt):
        stack.enter_context(patch.object(kernel.naive, "outer", outer))
    return stack


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
        spec: Any = ANCESTORS[kind].spec.model_copy(update={"width": width})
        options = {key: value for key, value in spec.model_dump().items() if isinstance(value, int)}
        symbols = {**options, "d": width, "i": inputs, "c": c}
        cost = cost_of(partial(build_mixer, spec, input_width=inputs), context=c)
        assert cost == tuple(eval(formula, {}, symbols) for formula in (parameters, flops, state))


# Training memory, and the path between two tokens.


class Squashed(Mixer[tuple[()]]):
    """`y = tanh(W x)`: its backward pass needs all x and all y, and nothing else."""

    def __init__(self) -> None:
        super().__init__()
        self.input_width = self.output_width = 8
        self.w_DD = nn.Parameter(torch.eye(8))

    def init_state(self, batch: int) -> tuple[()]:
        return ()

    def forward(self, x: Tensor, state: Any = None, lengths_B: Tensor | None = None) -> tuple[Tensor, tuple[()]]:
        return torch.tanh(x @ self.w_DD), ()

    def step(self, x: Tensor, state: Any) -> tuple[Tensor, tuple[()]]:
        return torch.tanh(x @ self.w_DD), ()


def test_row_d2_training_memory_is_what_the_backward_pass_needs() -> None:
    for tokens in (1, 100, 5000):
        assert training_bytes(Squashed(), tokens) == 2 * 4 * 8 * tokens
    assert training_bytes(build_sample(ANCESTORS["markov"].spec, vocab=VOCAB), 100) == 0


def small_model(kind: str) -> Any:
    return build(ANCESTORS[kind].spec.small(), vocab=VOCAB)


GRADIENT = [row.name for row in LINEAGE if row.spec.learns == "gradient"]
QUICK = ("elman", "lstm", "window", "transformer", "mingru")
each_gradient = pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=() if kind in QUICK else pytest.mark.slow) for kind in GRADIENT]
)


@each_gradient
def test_row_d2_extrapolated_training_memory_is_the_measured_one(kind: str) -> None:
    model = small_model(kind)
    extrapolated, measured = training_bytes(model, 1024), growth._kept(model, 1024)
    chunks_vary = kind in ("mingru", "minlstm")
    assert extrapolated == measured or (chunks_vary and abs(extrapolated / measured - 1) < 0.02)


def test_row_d2_written_out_attention_trains_in_quadratic_memory_and_fused_in_linear() -> None:
    model = small_model("transformer")
    fused = [training_bytes(model, tokens) for tokens in (256, 512, 65_536)]
    with force("naive"):
        written = [training_bytes(model, tokens) for tokens in (256, 512, 65_536)]
    assert fused[1] == 2 * fused[0]
    assert fused[2] == 256 * fused[0]
    heads, depth = ANCESTORS["transformer"].spec.small().num_heads, 2
    scores = 4 * heads * depth * 65_536**2
    assert scores < written[2] < 3 * scores


PATHS = {"jordan": "none", "window": "none", "basic_attention": "1", "transformer": "1"}


@each_gradient
def test_row_d2_the_longest_path_is_counted(kind: str) -> None:
    assert path(small_model(kind)) == PATHS.get(kind, "N")


def test_row_d2_paths_of_known_length() -> None:
    """Elman's network and a composition of two children: a product, a sum and tanh for each step or level."""
    elman = build("elman", vocab=VOCAB, width=5)
    assert [path_length(elman, n) for n in (1, 2, 3, 9)] == [3 * n for n in (1, 2, 3, 9)]
    assert [tree_path_length(Composition(5), 2**k) for k in (1, 2, 3, 4)] == [3 * (k + 1) for k in (1, 2, 3, 4)]
    assert tree_path(NaryTreeLSTM(5)) == "log N"
    assert path_length(build("window", vocab=VOCAB, width=5, order=3), 3) is not None
    assert path_length(build("window", vocab=VOCAB, width=5, order=3), 4) is None


@pytest.mark.parametrize("spec", [WindowSpec(width=4, depth=2, order=3), TransformerSpec(width=4, depth=2, window=3)])
def test_row_d2_beyond_a_window_there_is_no_path(spec: WindowSpec | TransformerSpec) -> None:
    model, reach = build(spec, vocab=VOCAB), spec.reach
    assert reach == 5
    assert path_length(model, reach) is not None
    assert path_length(model, reach + 1) is None
    assert longest_path(model, reach=reach) == "none"
    assert longest_path(build(TransformerSpec(width=4, depth=2), vocab=VOCAB), reach=None) == "1"


def test_row_d2_the_page_prints_the_paths() -> None:
    printed = dict(re.findall(r"^\| (\w+) \|.* \| (N|1|none) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    assert printed == {"markov": "none", **{kind: PATHS.get(kind, "N") for kind in GRADIENT}}


@each_gradient
def test_row_d2_the_page_prints_the_training_memory(kind: str) -> None:
    """Of PyTorch's LSTM it depends on the processor, by little."""
    (printed,) = re.findall(rf"^\| {kind} \|.* \| ([\d,]+) \| \S+ \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    found = training_bytes(build(ANCESTORS[kind].spec, vocab=65), 4096)
    assert abs(found / int(printed.replace(",", "")) - 1) < (0.1 if kind == "lstm" else 1e-12)
