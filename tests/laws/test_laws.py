"""Every law, for everything the lineage lists. A new mixer is tested by being listed."""

import copy
from collections.abc import Callable

import pytest
import torch
from listed import LISTED, PLAIN, Listed, each

from statewise.core import laws, unroll


@each(LISTED)
@pytest.mark.parametrize("law", laws.EXACT)
def test_law(machine: Listed, law: str) -> None:
    made = machine()
    assert laws.EXACT[law](made, laws.make_case(made)) <= 1e-10


@each(LISTED)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_precision(machine: Listed, dtype: torch.dtype) -> None:
    assert laws.precision(machine(), dtype) <= laws.BOUNDS[dtype]


@each(PLAIN)
@pytest.mark.parametrize("law", [laws.split, laws.step], ids=["split", "step"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_law_in_half_precision(machine: Listed, law: Callable[..., float], dtype: torch.dtype) -> None:
    made = machine().to(dtype)
    assert law(made, laws.make_case(made)) <= laws.BOUNDS[dtype]


SUMS = ("linear_attention-mixer", "gru-mixer", "mingru-mixer", "mamba2-mixer")  # by day; seconds each for the others


@each([listed._replace(slow=listed.name not in SUMS) for listed in PLAIN if listed.name.endswith("-mixer")])
@pytest.mark.parametrize("dtype", [torch.bfloat16, pytest.param(torch.float16, marks=pytest.mark.slow)], ids=str)
def test_half_precision_holds_over_thousands_of_steps(machine: Listed, dtype: torch.dtype) -> None:
    """What is summed over time keeps its digits: after 6,000 steps the result is still near float64."""
    low = machine().to(dtype)
    exact = copy.deepcopy(low).double()
    x = low.sample_input(1, 6000, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        stepped, _ = unroll(low.step, x, low.init_state(1))
        wanted, _ = exact(x.double())
    error = (stepped - wanted)[:, -100:].norm() / wanted[:, -100:].norm()
    assert error <= laws.BOUNDS[dtype] / 4


def test_cases_start_from_states_without_zeros() -> None:
    """A law tried from the zero state would miss whatever the state is multiplied with."""
    for machine in LISTED:
        case = laws.make_case(made := machine())
        state = [leaf for _, leaf in laws.leaves(case.state) if leaf.is_floating_point()]
        assert state or not list(made.parameters()), machine.name
        assert all((leaf != 0).all() for leaf in state), machine.name
        assert all(parameter.abs().max() > 0 for parameter in made.parameters()), machine.name


@pytest.mark.gpu
@each(LISTED)
def test_laws_on_cuda(machine: Listed) -> None:
    made = machine().cuda()
    broken = {law: error_of(made, laws.make_case(made)) for law, error_of in laws.EXACT.items()}
    assert max(broken.values()) <= 1e-10, broken


@pytest.mark.gpu
@each(LISTED)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_precision_on_cuda(machine: Listed, dtype: torch.dtype) -> None:
    """cuDNN's own tanh and sigmoid cost float32 a digit; TF32, PyTorch's default there, would cost two more."""
    bound = 5e-5 if dtype == torch.float32 else laws.BOUNDS[dtype]
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        assert laws.precision(machine().cuda(), dtype) <= bound
