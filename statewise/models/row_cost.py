"""What a row costs in every task: FLOPs by its length and bytes of state, measured on a model built without memory.

Padding does not count, nor what a parallel implementation computes and then masks.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from statewise.core import Composer, Machine, Mixer, map_state, state_bytes
from statewise.encoders import GridEncoder
from statewise.layers import Pool
from statewise.models.classifier import Classifier
from statewise.models.cost import context_bytes, counted, grows, step_input
from statewise.models.forecaster import DirectForecaster, RecursiveForecaster
from statewise.models.grid_classifier import GridClassifier
from statewise.models.reader import AllAtOnce, BothWays, Encoded, NoLayers, Reader
from statewise.models.tagger import Tagger, WordEntry
from statewise.models.termination import Terminating
from statewise.models.token_machine import ConditionalMachine
from statewise.models.tree_classifier import SpanClassifier, TreeClassifier


def row_bytes(model: nn.Module, context: int) -> int | None:
    """Bytes of one row's state after `context` tokens (of a translator: of the source).

    None where a whole input is read at once.
    """
    match model:
        case ConditionalMachine():
            return source_bytes(model, context)
        case Machine():
            return context_bytes(model, context)
        case RecursiveForecaster():
            return context_bytes(model.machine, context)
        case Classifier() | Tagger() | DirectForecaster():
            machine = model.reader.layers.machine
            return None if machine is None else context_bytes(machine, context)
        case _:
            return None


@torch.no_grad()
def source_bytes(model: ConditionalMachine[Any], tokens: int) -> int:
    """Bytes of one row's state after a source of `tokens` tokens, before the first target token.

    Every source position takes the same, so three lengths give the line.
    """
    none, one, two = (state_bytes(_begun(model, places)) for places in range(3))
    assert two - one == one - none
    return none + tokens * (one - none)


def _begun(model: ConditionalMachine[Any], places: int) -> Any:
    outputs_BSC = model.like.new_zeros(1, places, model.reader.width)
    length_B = torch.tensor([places], device=model.like.device)
    return model.begin(Encoded(outputs_BSC, outputs_BSC.sum(1), length_B))


class RowFlops(NamedTuple):
    """Forward FLOPs of one row as a polynomial of its length, which may be a mean."""

    once: float = 0.0
    each: float = 0.0
    square: float = 0.0

    def __call__(self, length: float) -> float:
        return self.once + length * (self.each + length * self.square)

    def plus(self, *, once: float = 0.0, each: float = 0.0) -> "RowFlops":
        return self._replace(once=self.once + once, each=self.each + each)


def row_flops(model: nn.Module) -> RowFlops:
    """Of a classifier, a tagger or a forecaster. A tagger's spelling is left out: a batch spells each word once.

    The length counts what is read: tokens, time steps, cells of a grid, words of a span, nodes of a given tree. A
    forecaster that reads a fixed context ignores it.
    """
    match model:
        case Classifier():
            return _reading(model.reader).plus(once=_applied(model.head, model.reader.width))
        case Tagger():
            return _reading(model.reader).plus(each=_applied(model.head.scores, model.reader.width))
        case RecursiveForecaster():
            machine = model.machine
            y_BD, _ = machine.step(step_input(machine), machine.init_state(1))
            return _along(machine).plus(each=counted(lambda: model.distribution(y_BD)))
        case DirectForecaster():
            return RowFlops(once=_direct_flops(model))
        case GridClassifier():
            encoders = [encoder for encoder in model.encoders if isinstance(encoder, GridEncoder)]
            cell = _zeros(1, 1, encoders[0].input_width)
            sizes_B2 = torch.ones(1, 2, dtype=torch.int64)
            head = _applied(model.head, encoders[-1].output_width)
            return RowFlops(once=head, each=counted(lambda: model.read(cell, sizes_B2)))
        case SpanClassifier() | TreeClassifier():
            return _tree_flops(model)
        case _:
            raise AssertionError(f"{type(model).__name__} reads no rows of one length")


def pair_flops(model: Machine[Any]) -> Callable[[float, float], float]:
    """Of reading a source and writing a target of so many tokens, which may be means.

    One machine reads the source without its head. What it tells itself of the steps to go is not counted.
    """
    if isinstance(model, Terminating):
        both = _along(model.body.machine)
        y_BD, state = _zeros(model.body.width), model.init_state(1)
        head = counted(lambda: model.outputs(y_BD, state))
        return lambda source, target: both(source + target) + target * head
    assert isinstance(model, ConditionalMachine)
    read = _reading(model.reader)
    begin, longer = counted(lambda: _begun(model, 1)), counted(lambda: _begun(model, 2))
    token_B = step_input(model)
    state, wider = _begun(model, 1), _begun(model, 2)
    first = counted(lambda: model.step(token_B, state))
    by_source = counted(lambda: model.step(token_B, wider)) - first
    by_target = counted(lambda: model.step(token_B, model.step(token_B, state)[1])) - 2 * first

    def flops(source: float, target: float) -> float:
        begun = begin + (source - 1) * (longer - begin)
        return read(source) + begun + target * (first + (source - 1) * by_source + (target - 1) / 2 * by_target)

    return flops


def spelling_flops(model: Tagger) -> RowFlops:
    """Of reading one word, by its number of characters."""
    entry = model.reader.entry
    assert isinstance(entry, WordEntry)
    return RowFlops() if entry.spelling is None else _reading(entry.spelling)


def _along(machine: Machine[Any]) -> RowFlops:
    """Of reading step by step: a step's cost is linear in what was read before."""
    x, state = step_input(machine), machine.init_state(1)
    first = counted(lambda: machine.step(x, state))
    if not grows(state):
        return RowFlops(each=first)
    more = counted(lambda: machine.step(x, machine.step(x, state)[1])) - 2 * first
    return RowFlops(each=first - more / 2, square=more / 2)


def _reading(reader: Reader) -> RowFlops:
    """Of a whole row, from the entry (a linear map where values are real) to the outputs of all positions.

    A summary by attention counts too: it is a look at each of them.
    """
    enter = 0 if reader.enter is None else _applied(reader.enter, reader.entry_width)
    read = _layers_flops(reader).plus(each=enter + _entry_flops(reader.entry))
    pool = reader.pool
    if pool is None:
        return read
    one, two = (_pool_flops(pool, reader.width, places) for places in (1, 2))
    return read.plus(once=2 * one - two, each=two - one)


def _pool_flops(pool: Pool, width: int, places: int) -> int:
    return counted(lambda: pool(_zeros(places, width), torch.tensor([places])))


def _entry_flops(entry: nn.Module) -> int:
    maps = () if isinstance(entry, WordEntry) else entry.modules()
    return sum(_applied(part, part.in_features) for part in maps if isinstance(part, nn.Linear))


def _layers_flops(reader: Reader) -> RowFlops:
    layers = reader.layers
    if layers.machine is not None:
        return _along(layers.machine)
    if isinstance(layers, NoLayers):
        return RowFlops()
    width = reader.entry_width if reader.enter is None else reader.enter.out_features

    def over(length: int) -> int:
        return counted(lambda: layers(_zeros(length, width), torch.tensor([length])))

    if isinstance(layers, AllAtOnce):
        square = (over(2) - 2 * over(1)) / 2  # every position sees all of them
        return RowFlops(each=over(1) - square, square=square)
    assert isinstance(layers, BothWays)
    square = sum(_along(mixer).square for mixer in layers.modules() if isinstance(mixer, Mixer))
    return RowFlops(each=over(1) - square, square=square)


def _direct_flops(model: DirectForecaster) -> float:
    """All outputs but the last serve nobody where the summary is the last one."""
    reader, context = model.reader, model.context
    read = _reading(reader)(context)
    machine = reader.layers.machine
    if machine is not None and reader.summary == "last":
        x, state = step_input(machine), machine.init_state(1)
        saved = counted(lambda: machine.step(x, state)) - counted(lambda: machine.absorb(x[:, None], state))
        read -= (context - 1) * saved
    skip = 0 if model.skip is None else model.channels * _applied(model.skip, context)
    return read + skip + _applied(model.head, model.head.project.weight_OD.shape[1])


def _tree_flops(model: SpanClassifier | TreeClassifier) -> RowFlops:
    """A node's cost is linear in its number of children; a tree of n nodes has n - 1 children."""
    composer: Composer[Any] = model.encoder.composer
    head = _applied(model.head, composer.output_width)

    def node(children: int) -> int:
        state = map_state(lambda part: part[:, None].expand(-1, children, -1), composer.absent())
        return counted(lambda: composer(_zeros(composer.input_width), state))

    if composer.arity is None:
        child = node(2) - node(1)
        alone = node(1) - child
    else:
        child, alone = 0, node(composer.arity)
    if isinstance(model, TreeClassifier):
        return RowFlops(once=-child, each=alone + child + head)
    per_word = 1 if model.encoder.shape == "chain" else 2  # nodes of a tree that is built over so many words
    once = head - child if per_word == 1 else head - alone - 2 * child
    return RowFlops(once=once, each=per_word * (alone + child))


def _applied(module: nn.Module, width: int) -> int:
    return counted(lambda: module(_zeros(width)))


def _zeros(*shape: int) -> Tensor:
    """For one row."""
    return torch.zeros(1, *shape)
