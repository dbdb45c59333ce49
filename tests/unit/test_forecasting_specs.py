"""What a forecasting recipe may say, and what it may not."""

from typing import Any

import pytest

from statewise.specs import ForecastingSpec, QuantileSpec, UserError, load_recipe, make_spec, parse_spec


def spec(**tables: Any) -> ForecastingSpec:
    made = parse_spec({"task": "forecasting", **tables})
    assert isinstance(made, ForecastingSpec)
    return made


def test_the_shipped_recipes_are_what_they_are_named_for() -> None:
    made = [make_spec(load_recipe(name)) for name in ("etth1-96-window", "etth1-96-lstm", "jsb-lstm", "forecasting")]
    assert [type(one) for one in made] == [ForecastingSpec] * 4
    window, lstm, chorales, _ = (one for one in made if isinstance(one, ForecastingSpec))
    assert window.model.kind == "window"
    assert window.model.order == window.forecast.context
    assert lstm.model.kind == "lstm"
    for one in (window, lstm):
        assert (one.data.split, one.forecast.horizon, one.forecast.stride) == ("8640/2880/2880", 96, 1)
        assert (one.data.scaling, one.data.targets) == ("standard", ())
    assert chorales.objective.kind == "bernoulli"


def test_one_name_is_a_list_of_one() -> None:
    made = spec(data={"targets": "load", "covariates": "wind", "time_features": "hour"})
    assert (made.data.targets, made.data.covariates, made.data.time_features) == (("load",), ("wind",), ("hour",))


def test_objectives_by_their_names() -> None:
    made = spec(objective={"kind": "quantile", "levels": [0.1, 0.5, 0.9]})
    assert made.objective == QuantileSpec(levels=(0.1, 0.5, 0.9))


@pytest.mark.parametrize(
    ("tables", "expected"),
    [
        ({"forecast": {"context": 0}}, "reads nothing"),
        ({"forecast": {"context": "some"}}, "forecast.context"),
        ({"forecast": {"context": "all"}}, "needs mode = recursive"),
        ({"forecast": {"forcing": "free"}}, "forcing has no meaning with mode = direct"),
        ({"forecast": {"mode": "recursive", "skip": True}}, "skip has no meaning"),
        ({"forecast": {"mode": "recursive"}, "reader": {"bidirectional": True}}, "reader has no meaning"),
        ({"forecast": {"mode": "recursive", "context": "all"}, "data": {"channels": "shared"}}, "channels = joint"),
        ({"objective": {"kind": "bernoulli"}}, "needs forecast.mode = recursive and forecast.context = all"),
        (
            {"objective": {"kind": "bernoulli"}, "forecast": {"mode": "recursive", "context": "all"}},
            "needs data.scaling = none",
        ),
        ({"objective": {"kind": "quantile", "levels": [0.9, 0.1]}}, "do not rise"),
        ({"objective": {"kind": "normal"}}, "objective.kind: 'normal' is not known"),
        ({"model": {"tie": True}}, "model.tie"),
        ({"train": {"window": 8}}, "train.window has no meaning here"),
        ({"data": {"columns": ["x"]}}, "data.columns: unknown key"),
    ],
    ids=str,
)
def test_mistakes_are_named(tables: dict[str, Any], expected: str) -> None:
    with pytest.raises(UserError, match=expected.replace("[", "\\[")):
        spec(**tables)
