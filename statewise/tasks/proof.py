"""The laws, tried on a model by name or on a trained folder: one finding per model, law and dtype."""

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from pydantic import BaseModel
from torch import Tensor, nn

from statewise.core import Encoder, Machine, Mixer, laws
from statewise.encoders import laws as encoder_laws
from statewise.models import (
    ENCODER_DECODERS,
    ENCODERS,
    LINEAGE,
    Ancestor,
    AnyMixer,
    Conditional,
    ConditionalMachine,
    Encoded,
    Encoding,
    Reader,
    build_mixer,
    build_sample,
    names_a_file,
    own_mixer,
)
from statewise.specs import CustomSpec, ModelSpec, Seq2SeqSpec, UserError, make_spec, mixers_of, nearest
from statewise.tasks.dispatch import load
from statewise.tasks.folder import find_run, shipped_names
from statewise.tasks.run import Run
from statewise.training import pick_device

_VOCAB = 17
_WIDTH = 12  # of a user's class, if nothing else is said


class Finding(NamedTuple):
    model: str
    law: str
    dtype: str
    error: float
    passed: bool
    raised: str = ""  # what a user's class raised, where it could not be tried


def verify(
    target: str | type[Mixer[Any]] | None = None,
    *,
    device: str = "cpu",
    mixer: AnyMixer | None = None,
    settings: Sequence[str] = (),
) -> Iterator[Finding]:
    """Check the laws of the state on a model by name, a run, a mixer class of your own, or (None) on every model.

    A class may be named by its file (`ema.py`, or `ema.py:EMA`); `settings` are of its model, such as
    `model.options.decay=0.5`. `mixer` is the class that a run folder needs.
    Yields a finding for each model, law and dtype: the largest relative error, and whether it is within the bound.

    >>> all(finding.passed for finding in sw.verify("runs/lstm"))
    True
    """
    if isinstance(target, type) or (target is not None and names_a_file(target)):
        yield from _of_class(target, settings, pick_device(device))
        return
    if settings:
        raise UserError(f"{settings[0]!r}: settings are for a mixer class of your own", fix="leave them out")
    where = pick_device(device)
    rows = {row.name: row for row in _listed()}
    if target is None or target in rows:
        for row in rows.values() if target is None else [rows[target]]:
            for name, make in _forms(row):
                yield from _check_any(make().to(where), name=name)
    elif find_run(target).exists():
        yield from _of_run(load(target, device=device, mixer=mixer), str(target))
    else:
        raise UserError(
            f"{target!r} is neither a listed model, a run folder nor a mixer file",
            fix=nearest(target, [*rows, *shipped_names()]),
        )


def count_forms() -> int:
    """How many models `verify` checks when none is named: all that are listed, in every variant."""
    return sum(1 + len(row.variants) for row in _listed())


def _listed() -> list[Ancestor | Encoding | Conditional]:
    return [*LINEAGE, *ENCODERS, *ENCODER_DECODERS]


def _forms(row: Ancestor | Encoding | Conditional) -> Iterator[tuple[str, Callable[[], Machine[Any] | Encoder]]]:
    """The plain form of a listed model and its variants, small: their names, and how they are made."""
    if isinstance(row, Encoding):
        yield row.name, partial(_encoder, row.make)
        for name, make in row.variants.items():
            yield f"{row.name}[{name}]", partial(_encoder, make)
        return
    plain = row.spec.small()
    for spec in (plain, *row.variants):
        yield label(row.name, spec, plain), partial(build_sample, spec, vocab=_VOCAB)


def _encoder(make: Callable[[int], Encoder]) -> Encoder:
    """The same every time, and no weight at 0 or 1, which could hide a mistake."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        encoder = make(_WIDTH)
        for parameter in encoder.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return encoder


def _of_run(run: Run, name: str) -> Iterator[Finding]:
    """What carries the run's state; and what reads whole inputs, each by its place in the model."""
    own = bool(mixers_of(run.spec))
    if run.machine is not None:
        yield from check(run.machine, name=name, own=own)
    whole = list(_whole_readers(run.model))
    for path, part in whole:
        if isinstance(part, Reader):
            yield from check_reader(part, name=f"{name}: {path}", own=own)
        else:
            yield from check_encoder(part, name=f"{name}: {path}", own=own)
    if run.machine is None and not whole:
        raise UserError(
            f"{name!r} is a {run.spec.task} run whose model has neither a state nor an encoder: no law applies",
            fix="evaluate it instead",
        )


def _whole_readers(model: nn.Module) -> Iterator[tuple[str, Reader | Encoder]]:
    """Readers, and encoders that are no part of another encoder or of a layer with a state."""
    inside: list[str] = []
    for path, part in model.named_modules():
        if any(path.startswith(f"{other}.") for other in inside):
            continue
        if path and isinstance(part, Encoder | Machine):
            inside.append(path)
        if isinstance(part, Reader | Encoder):
            yield path, part


def _of_class(target: AnyMixer, settings: Sequence[str], device: torch.device) -> Iterator[Finding]:
    """The class by itself, where inputs have another width than outputs; and two layers of it in a language model."""
    own = own_mixer(target)
    small = {"model": {"kind": "custom", "width": _WIDTH, "depth": 2}}
    spec = make_spec(small, settings, source=own.name, mixers=[own]).model
    assert isinstance(spec, CustomSpec)
    generator = torch.Generator().manual_seed(0)
    yield from check(
        build_mixer(spec, input_width=spec.width // 2 or 1, generator=generator).to(device), name=own.name, own=True
    )
    yield from check(build_sample(spec, vocab=_VOCAB).to(device), name=f"a model of {own.name}", own=True)


def label(name: str, spec: ModelSpec | Seq2SeqSpec, plain: ModelSpec | Seq2SeqSpec) -> str:
    """`lstm` or `lstm[peephole]`: what differs from the plain form."""
    odd = [
        key if value is True else f"{key}={value}"
        for key, value in _differences(spec, plain)
        if key.replace(".", "_") not in plain.sizes()
    ]
    return f"{name}[{', '.join(odd)}]" if odd else name


def _differences(spec: BaseModel, plain: BaseModel, path: str = "") -> Iterator[tuple[str, Any]]:
    for key in type(spec).model_fields:
        value, usual = getattr(spec, key), getattr(plain, key)
        if not isinstance(value, BaseModel):
            if value != usual:
                yield f"{path}{key}", value
            continue
        if type(value) is not type(usual):  # another kind: from here on, what differs from its own defaults
            usual = type(value)()
            yield f"{path}{key}", usual.model_dump()["kind"]
        yield from _differences(value, usual, f"{path}{key}.")


def check(model: Machine[Any], *, name: str, own: bool = False) -> Iterator[Finding]:
    """All laws in float64 and float32, then how far the lower precisions stray.

    What a class of the user's `own` raises under a law is a finding. Elsewhere it is a bug of ours.
    """
    model = model.eval()
    start = given_a_source if isinstance(model, ConditionalMachine) else None
    for dtype in (torch.float64, torch.float32):
        machine = copy.deepcopy(model).to(dtype)
        case = laws.make_case(machine, start=start)
        for law, error_of in laws.EXACT.items():
            yield _finding(name, law, dtype, partial(error_of, machine, case), own=own)
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        yield _finding(name, "precision", dtype, partial(laws.precision, model, dtype, start=start), own=own)


def check_encoder(encoder: Encoder, *, name: str, own: bool = False) -> Iterator[Finding]:
    """The laws of what reads whole inputs: padding, directions, order, and the recurrent network it contains."""
    encoder = encoder.eval()
    for dtype in (torch.float64, torch.float32):
        model = copy.deepcopy(encoder).to(dtype)
        case = encoder_laws.case_of(model)
        for law, error_of in encoder_laws.laws_of(model).items():
            yield _finding(name, law, dtype, partial(error_of, model, case), own=own)
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        yield _finding(name, "precision", dtype, partial(encoder_laws.precision, encoder, dtype), own=own)


def check_reader(reader: Reader, *, name: str, own: bool = False) -> Iterator[Finding]:
    """All layers of a reader with their summary: rows do not meet, and padding changes nothing."""
    for dtype in (torch.float64, torch.float32):
        model = copy.deepcopy(reader).eval().to(dtype)
        weight = next(model.parameters())

        def read(x_BSE: Tensor, lengths_B: Tensor | None, model: Reader = model) -> tuple[Tensor, Tensor]:
            encoded = model.read(x_BSE, lengths_B)
            return encoded.outputs_BSC, encoded.summary_BC

        case = encoder_laws.make_case(model.admitted_width, weight)
        for law, error_of in (("rows", encoder_laws.rows_of), ("ragged", encoder_laws.ragged_of)):
            yield _finding(name, law, dtype, partial(error_of, model, read, case), own=own)


def _check_any(model: Machine[Any] | Encoder, *, name: str) -> Iterator[Finding]:
    return check_encoder(model, name=name) if isinstance(model, Encoder) else check(model, name=name)


def given_a_source(model: Machine[Any], batch: int, *, source: int | None = None) -> Any:
    """The initial states of a decoder: from encoded sources of different lengths, one of them empty."""
    assert isinstance(model, ConditionalMachine)
    source = source or batch
    generator = torch.Generator().manual_seed(0)
    outputs_BSC = torch.randn(batch, source, model.reader.width, generator=generator).to(model.like)
    length_B = torch.arange(batch, device=model.like.device).clamp(max=source)
    past_BS = torch.arange(source, device=model.like.device) >= length_B[:, None]
    outputs_BSC = outputs_BSC.masked_fill(past_BS[:, :, None], 0.0)
    return model.begin(Encoded(outputs_BSC, outputs_BSC.sum(1), length_B))


def _finding(name: str, law: str, dtype: torch.dtype, measure: Callable[[], float], *, own: bool) -> Finding:
    raised = ""
    try:
        error = measure()
    except Exception as problem:
        if not own:
            raise
        error, raised = math.inf, f"{type(problem).__name__}: {problem}"
    return Finding(name, law, str(dtype).removeprefix("torch."), error, error <= laws.BOUNDS[dtype], raised)
