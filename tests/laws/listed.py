"""Every machine the laws are tried on: the lineage table, and nothing named by hand."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch

from statewise.core import Machine
from statewise.models import LINEAGE, build_mixer, build_sample
from statewise.specs import ModelSpec

VOCAB = 11


def shaken(machine: Machine[Any], *, seed: int = 1) -> Machine[Any]:
    """In float64, evaluating, no parameter at 0 or 1: a bias that starts at 0 would hide its own mistakes."""
    machine = machine.double().eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in machine.parameters():
            parameter += 0.2 * torch.randn(parameter.shape, dtype=torch.float64, generator=generator)
    return machine


class Listed(NamedTuple):
    """A machine by name, made afresh for each test."""

    name: str
    make: Callable[[], Machine[Any]]
    slow: bool = False  # left to the nightly tests

    def __call__(self) -> Machine[Any]:
        return shaken(self.make())


def _mixer(spec: ModelSpec) -> Callable[[], Machine[Any]]:
    return lambda: build_mixer(spec, input_width=5, generator=torch.Generator().manual_seed(0))


def _model(spec: ModelSpec) -> Callable[[], Machine[Any]]:
    return lambda: build_sample(spec, vocab=VOCAB)


def _label(spec: ModelSpec, plain: ModelSpec) -> str:
    odd = {k: v for k, v in spec.model_dump().items() if k != "width" and v != getattr(plain, k)}
    return ",".join([spec.kind, *(f"{k}={v}" for k, v in odd.items())])


PLAIN: list[Listed] = []
LISTED: list[Listed] = []
for row in LINEAGE:
    if row.spec.learns == "counting":  # a whole model with no layer in it
        PLAIN.append(Listed(f"{row.name}-model", _model(row.spec)))
        LISTED += [Listed(f"{_label(spec, row.spec)}-model", _model(spec)) for spec in (row.spec, *row.variants)]
        continue
    plain = row.spec.model_copy(update={"width": 12})
    deep = plain.model_copy(update={"depth": 2, "residual": True, "norm": "layer"})
    PLAIN += [Listed(f"{row.name}-mixer", _mixer(plain)), Listed(f"{row.name}-model", _model(deep))]
    for spec in (plain, *row.variants):
        LISTED.append(Listed(f"{_label(spec, plain)}-mixer", _mixer(spec)))
    for spec in (
        plain,
        deep,
        *row.variants,
    ):  # variants are tried as mixers by day
        LISTED.append(Listed(f"{_label(spec, plain)}-model", _model(spec), slow=spec not in (plain, deep)))

_MIXERS = {listed.name for listed in PLAIN if listed.name.endswith("-mixer")}
# A model only stacks its mixer: the mixers, and the models that have none, with the other models left to the night.
MIXERS_FIRST = [m._replace(slow=m.name.replace("-model", "-mixer") in _MIXERS - {m.name}) for m in PLAIN]


def each(machines: list[Listed]) -> pytest.MarkDecorator:
    marks = {True: pytest.mark.slow, False: ()}
    return pytest.mark.parametrize("machine", [pytest.param(m, id=m.name, marks=marks[m.slow]) for m in machines])
