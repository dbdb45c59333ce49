"""Forecasters as modules: what enters, what comes out, and that the short ways give what the long ones give.

B batch, L context, H horizon, C channels, X covariates.
"""

from typing import Any

import pytest
import torch

from statewise.core import laws
from statewise.models import LINEAGE
from statewise.models.build_forecaster import build_forecaster
from statewise.models.forecaster import DirectForecaster, Past, RecursiveForecaster
from statewise.specs import ForecastingSpec, UserError, parse_spec

KINDS = [row.spec.kind for row in LINEAGE if row.spec.learns == "gradient"]
LENGTH, HORIZON = 7, 4


def spec(kind: str = "gru", **tables: Any) -> ForecastingSpec:
    forecast = {"context": LENGTH, "horizon": HORIZON, **tables.pop("forecast", {})}
    made = parse_spec(
        {"task": "forecasting", "model": {"kind": kind, "width": 8, "depth": 1}, "forecast": forecast, **tables}
    )
    assert isinstance(made, ForecastingSpec)
    return made


def direct(kind: str = "gru", *, channels: int = 2, covariates: int = 0, gaps: bool = False, **tables: Any) -> Any:
    model = build_forecaster(spec(kind, **tables), channels=channels, covariates=covariates, gaps=gaps)
    assert isinstance(model, DirectForecaster)
    return model.double().eval()


def recursive(kind: str = "gru", *, channels: int = 2, covariates: int = 0, gaps: bool = False, **tables: Any) -> Any:
    tables["forecast"] = {"mode": "recursive", **tables.pop("forecast", {})}
    model = build_forecaster(spec(kind, **tables), channels=channels, covariates=covariates, gaps=gaps)
    assert isinstance(model, RecursiveForecaster)
    return model.double().eval()


def past(batch: int = 3, channels: int = 2, covariates: int = 0, horizon: int = HORIZON) -> Past:
    generator = torch.Generator().manual_seed(1)
    values_BLC = torch.randn(batch, LENGTH, channels, dtype=torch.float64, generator=generator)
    covariates_BTX = torch.randn(batch, LENGTH + horizon, covariates, dtype=torch.float64, generator=generator)
    return Past(values_BLC, torch.ones_like(values_BLC, dtype=torch.bool), covariates_BTX)


@pytest.mark.parametrize("kind", KINDS)
def test_only_the_last_moment_is_computed_and_it_is_the_same(kind: str) -> None:
    """`summarise` steps where `forward` reads all positions; gradients agree too."""
    reader = direct(kind).reader
    x_BLI = past().values_BLC.requires_grad_()
    short, whole = reader.summarise(x_BLI), reader(x_BLI).summary_BC
    torch.testing.assert_close(short, whole, rtol=1e-10, atol=1e-10)
    learnt = [x_BLI, *(p for p in reader.parameters() if p.requires_grad)]
    grads = [torch.autograd.grad(y.sin().sum(), learnt, allow_unused=True) for y in (short, whole)]
    for a, b in zip(*grads, strict=True):
        none = torch.zeros(())
        torch.testing.assert_close(none if a is None else a, none if b is None else b, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("anchor", ["none", "last"])
def test_the_machine_inside_keeps_the_laws(kind: str, anchor: str) -> None:
    machine = recursive(kind, channels=2, covariates=1, forecast={"anchor": anchor}).machine
    case = laws.make_case(machine)
    broken = {law: error_of(machine, case) for law, error_of in laws.EXACT.items()}
    assert max(broken.values()) <= 1e-10, broken


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_is_listed_forecasts_both_ways(kind: str) -> None:
    for model in (direct(kind, covariates=1), recursive(kind, covariates=1)):
        found = model.forecast(past(covariates=1), horizon=HORIZON)
        assert found.mean_BHC.shape == (3, HORIZON, 2)
        assert found.mean_BHC.isfinite().all()


def test_an_anchored_forecast_moves_with_the_series() -> None:
    """Add a constant to the context: the forecast is higher by it, exactly, and nothing else changes."""
    for model in (
        direct(objective={"kind": "quantile"}, forecast={"anchor": "last", "skip": True}),
        direct(objective={"kind": "gaussian"}, forecast={"anchor": "last"}),
    ):
        before = past()
        after = before._replace(values_BLC=before.values_BLC + torch.tensor([5.0, -3.0]))
        low, high = (model.forecast(one, horizon=HORIZON, levels=[0.1, 0.9]) for one in (before, after))
        by = torch.tensor([5.0, -3.0], dtype=torch.float64)
        torch.testing.assert_close(high.mean_BHC, low.mean_BHC + by)
        torch.testing.assert_close(high.quantile_BHCQ, low.quantile_BHCQ + by[:, None])
    loose = direct()
    assert not torch.allclose(
        loose.forecast(after, horizon=HORIZON).mean_BHC, loose.forecast(before, horizon=HORIZON).mean_BHC + by
    )


def test_a_skip_alone_is_a_linear_model() -> None:
    """With a head that says 0, what is left is the map from the context: NumPy's product."""
    model = direct(forecast={"skip": True, "anchor": "last"})
    with torch.no_grad():
        for p in model.head.parameters():
            p.zero_()
        model.skip.weight.normal_(generator=torch.Generator().manual_seed(3))
        model.skip.bias.fill_(0.25)
    given = past()
    last_B1C = given.values_BLC[:, -1:]
    expected = torch.einsum("hl,blc->bhc", model.skip.weight, given.values_BLC - last_B1C) + 0.25 + last_B1C
    # The shift is added in single precision.
    torch.testing.assert_close(model.forecast(given, horizon=HORIZON).mean_BHC, expected, rtol=1e-6, atol=1e-6)


def test_beyond_its_horizon_a_direct_model_reads_its_own_forecast() -> None:
    model = direct(covariates=1, objective={"kind": "gaussian"})
    given = past(covariates=1, horizon=HORIZON + 3)
    found = model.forecast(given, horizon=HORIZON + 3, levels=[0.5])
    first = model.forecast(given, horizon=HORIZON).mean_BHC
    torch.testing.assert_close(found.mean_BHC[:, :HORIZON], first)
    moved = Past(
        torch.cat([given.values_BLC, first], 1)[:, -LENGTH:], given.observed_BLC, given.covariates_BTX[:, HORIZON:]
    )
    torch.testing.assert_close(found.mean_BHC[:, HORIZON:], model.forecast(moved, horizon=3).mean_BHC)
    assert found.quantile_BHCQ[:, HORIZON:].isnan().all()
    assert found.quantile_BHCQ[:, :HORIZON].isfinite().all()


@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("anchor", ["none", "last"])
def test_a_closed_loop_is_the_open_one_over_its_own_forecasts(gaps: bool, anchor: str) -> None:
    """Append what was forecast, read it all from the beginning: the last answer is the roll-out's next."""
    model = recursive(gaps=gaps, covariates=1, forecast={"anchor": anchor})
    given = past(covariates=1)
    rolled = model.forecast(given, horizon=HORIZON).mean_BHC
    values_BTC = given.values_BLC
    for k in range(HORIZON):
        seen = torch.ones_like(values_BTC, dtype=torch.bool)
        inputs = model.inputs(values_BTC, seen, given.covariates_BTX[:, 1 : values_BTC.shape[1] + 1])
        params, shift = model.distribution(model.machine(inputs)[0][:, -1])
        torch.testing.assert_close(model.head.mean(params) + shift, rolled[:, k], rtol=1e-10, atol=1e-10)
        values_BTC = torch.cat([values_BTC, rolled[:, k : k + 1]], 1)


def test_sampled_paths_have_the_quantiles_of_the_head_one_step_ahead() -> None:
    model = recursive(objective={"kind": "gaussian"})
    given = past()
    found = model.forecast(given, horizon=3, levels=[0.1, 0.9], paths=4000)
    params, _ = model.distribution(model.machine(model.inputs(*given[:2], given.covariates_BTX[:, :LENGTH]))[0][:, -1])
    for i, q in enumerate((0.1, 0.9)):
        torch.testing.assert_close(found.quantile_BHCQ[:, 0, :, i], model.head.quantile(params, q), rtol=0, atol=0.12)
    torch.testing.assert_close(found.mean_BHC[:, 0], model.head.mean(params))


def test_a_future_depends_on_seed_number_and_row_alone() -> None:
    model, given = recursive(objective={"kind": "student"}), past()
    futures_SBHC = draws(model, given, horizon=3, paths=20)
    assert torch.equal(futures_SBHC, draws(model, given, horizon=3, paths=20))
    torch.testing.assert_close(futures_SBHC[:5, :, :2], draws(model, given, horizon=2, paths=5))
    alone = Past(*(part[1:] for part in given))
    torch.testing.assert_close(futures_SBHC[:, 1:], draws(model, alone, horizon=3, paths=20, first_row=1))
    for other in (draws(model, given, horizon=3, paths=20, seed=1), draws(model, alone, horizon=3, paths=20)):
        assert (futures_SBHC[:, -len(other[0]) :] - other).abs().min() > 0


def draws(model: RecursiveForecaster, given: Past, **asked: int) -> torch.Tensor:
    found = model.forecast(given, **asked).draws_SBHC
    assert found is not None
    return found


def test_what_was_not_observed_is_marked() -> None:
    model = direct(gaps=True)
    given = past()
    seen = given.observed_BLC.clone()
    seen[:, 2] = False
    known, unknown = (
        model.forecast(one, horizon=HORIZON).mean_BHC for one in (given, given._replace(observed_BLC=seen))
    )
    assert not torch.allclose(known, unknown)


def test_another_context_is_refused() -> None:
    with pytest.raises(UserError, match="a context of 5 and a horizon of 4; this model was made for 7 and 4"):
        direct()(Past(past().values_BLC[:, :5], past().observed_BLC[:, :5], past().covariates_BTX[:, :9]))
