"""A conversation is one row of a batched state: rows join, take steps together, and leave without disturbing others.

The rows in use are the first ones; where one leaves, the last row moves into its place. Fixed-size leaves of the state
have their memory once. A list that grows has free slots, and each row writes at its own length. Nothing here knows
which architecture it holds: a list is an axis that is empty in the initial state.

B rows in use, C rows that there is memory for, S slots of a list, V vocabulary.
"""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from statewise.core import State, leaves, map_state, rows
from statewise.decoding import RowSampling, Sampling, draw, overwrite
from statewise.kernels import threads_for
from statewise.kernels.few_rows import LARGE, Product, packed_products, prepare_cpu, prepare_gpu
from statewise.models import TokenMachine
from statewise.runtime import STREAM as _STREAM
from statewise.runtime import random_bits
from statewise.serving.captured import CapturedStep, padded
from statewise.specs import UserError

_FIRST_ROWS, _FIRST_SLOTS = 4, 256
_BLOCKED, _MANY = 3, 65  # rows from which a product of matrices has another form: see `kernels.few_rows`

# Each setting of a row: its name in `Sampling`, its type, and the value that changes nothing.
_COLUMNS: dict[str, tuple[type[Any], float]] = {
    "temperature": (np.float32, 0.0),
    "repetition": (np.float32, 1.0),
    "presence": (np.float32, 0.0),
    "frequency": (np.float32, 0.0),
    "top_k": (np.int64, np.iinfo(np.int64).max),
    "top_p": (np.float64, 1.0),
    "min_p": (np.float32, 0.0),
}


class NewRow(NamedTuple):
    """Where a text goes on: what `Continuation` holds, but for the state."""

    token: int  # not yet read
    position: int  # tokens that the state has read, plus `STREAM` for each seed that the row is ahead
    sampling: Sampling
    seen: Sequence[int] | NDArray[np.int64] = ()  # tokens for the repetition penalty


class Step(NamedTuple):
    """What one step of all rows chose."""

    tokens: list[int]
    broken: list[int]  # rows whose outputs are not numbers; their tokens mean nothing
    chosen: dict[int, float]  # log probability of its token, for each row that was asked about
    top: dict[int, list[tuple[int, float]]]  # its most likely tokens


class Pool:
    """Rows of one model's state."""

    def __init__(
        self,
        model: TokenMachine[Any],
        *,
        never: Sequence[int] = (),
        context: int | None = None,
        graphs: bool | None = None,
    ) -> None:
        """`graphs`: whether steps are captured; by default on a GPU."""
        self.model, self.device, self.vocab = model, model.like.device, model.vocab
        self.count = 0
        self._never_N = torch.tensor(list(never), dtype=torch.int64, device=self.device)
        self._context = context
        self._initial: State = model.init_state(1)
        self._lists = [_list_axis(leaf) for _, leaf in leaves(self._initial)]
        self._used = dict.fromkeys(_COLUMNS, 0)  # rows that use a filter
        self._bias: dict[int, tuple[tuple[int, float], ...]] = {}
        self._on_device: dict[str, Tensor] = {}  # columns of settings
        self._without_memory()
        self._products: dict[int, dict[int, Product | None]] = {}
        captures = graphs if graphs is not None else self.device.type == "cuda"
        self._graphs: dict[object, CapturedStep] | None = {} if captures else None
        matrices = (p.numel() for p in model.parameters() if p.dim() == 2)
        self._largest = max(matrices, default=0)

    def _without_memory(self) -> None:
        self._slots = 0
        self._capacity = 0
        self._memory: State = self._initial
        self._view: State | None = None  # of the rows in use
        self._columns = {name: np.full(0, unused, dtype) for name, (dtype, unused) in _COLUMNS.items()}
        self._seed = np.zeros(0, np.int64)
        self._position = np.zeros(0, np.int64)
        self._ways: RowSampling | None = None
        self._token_C = torch.zeros(0, dtype=torch.int64, device=self.device)
        self._seen_CV: Tensor | None = None
        self._count_CV: Tensor | None = None
        self._bias_CV: Tensor | None = None

    # ---------------------------------------------------------------- rows

    @torch.no_grad()
    def give_back(self) -> None:
        """Free the memory of a pool without rows. What captured steps know is kept: to capture takes seconds."""
        assert not self.count
        if self._graphs is None and self._capacity:
            self._without_memory()
            # The machine holds on to the state that it returned last, which is a part of this memory: it gets another.
            self.model.step(torch.zeros(1, dtype=torch.int64, device=self.device), self._initial)

    @property
    def state_bytes(self) -> int:
        """Memory that is held for states, free rows and slots included."""
        return sum(leaf.numel() * leaf.element_size() for _, leaf in leaves(self._memory)) if self._capacity else 0

    def join(self, new: Sequence[NewRow], state: State) -> None:
        """Add rows behind those in use; row i of `state` is that of `new[i]`. Lists may have free slots."""
        first, self.count = self.count, self.count + len(new)
        longest = max((leaf.shape[axis] for leaf, axis in zip(_tensors(state), self._lists) if axis), default=0)
        self._make_room(max(longest, 1 + max(row.position % _STREAM for row in new)))
        place = slice(first, self.count)
        for into, leaf, axis in zip(self._leaves(), _tensors(state), self._lists, strict=True):
            into = into[place]
            (into if axis is None else into.narrow(axis, 0, leaf.shape[axis])).copy_(leaf)
        self._token_C[place] = torch.tensor([row.token for row in new])
        self._seed[place] = [row.sampling.seed for row in new]
        self._position[place] = [row.position for row in new]
        for index, row in enumerate(new, start=first):
            self._set(index, row)
        self._changed()

    def _set(self, index: int, row: NewRow) -> None:
        sampling = row.sampling
        for name, (_, unused) in _COLUMNS.items():
            value = getattr(sampling, name)
            value = unused if value is None else value
            self._columns[name][index] = value
            self._used[name] += value != unused
        if sampling.bias:
            self._bias[index] = sampling.bias
        if sampling.repetition != 1.0:
            self._seen_CV = self._table(self._seen_CV, torch.bool)
            self._seen_CV[index] = False
            self._seen_CV[index, torch.as_tensor(np.asarray(row.seen, dtype=np.int64), device=self.device)] = True
        if sampling.presence or sampling.frequency:
            self._count_CV = self._table(self._count_CV, torch.int32)
            self._count_CV[index] = 0

    @torch.no_grad()
    def leave(self, gone: Collection[int]) -> list[tuple[int, int]]:
        """Remove rows; the last ones take their places. Returns the new and the old index of each row that moves."""
        for name, (_, unused) in _COLUMNS.items():
            self._used[name] -= int((self._columns[name][list(gone)] != unused).sum())
        for index in gone:
            self._bias.pop(index, None)
        left = self.count - len(gone)
        into = sorted(index for index in gone if index < left)
        last = [index for index in range(left, self.count) if index not in gone]
        if into:
            used = int((self._position[last] % _STREAM).max()) + 1
            into_N, last_N = torch.tensor([into, last], device=self.device)
            for leaf, axis in zip(self._leaves(), self._lists, strict=True):
                part = leaf if axis is None else leaf.narrow(axis, 0, min(used, leaf.shape[axis]))
                part[into_N] = part[last_N]
            for column in (*self._columns.values(), self._seed, self._position):
                column[into] = column[last]
            for table in (self._token_C, self._seen_CV, self._count_CV):
                if table is not None:
                    table[into_N] = table[last_N]
            self._bias |= {to: self._bias.pop(at) for to, at in zip(into, last) if at in self._bias}
        self.count = left
        self._changed()
        return list(zip(into, last, strict=True))

    def row(self, index: int) -> State:
        """A copy of one row's state, its lists as long as what was read."""
        length = int(self._position[index]) % _STREAM
        return cut(rows(self._memory, slice(index, index + 1)), self._initial, length)

    def position(self, index: int) -> int:
        return int(self._position[index])

    def _changed(self) -> None:
        self._view = self._ways = None

    def _leaves(self) -> list[Tensor]:
        return _tensors(self._memory)

    def _table(self, table: Tensor | None, dtype: torch.dtype) -> Tensor:
        """A row of numbers for each token, made when the first row needs it."""
        if table is not None and len(table) >= self._capacity:
            return table
        larger = torch.zeros(self._capacity, self.vocab, dtype=dtype, device=self.device)
        if table is not None:
            larger[: len(table)] = table
        return larger

    def _make_room(self, slots: int) -> None:
        """Memory for the rows in use, and lists of so many slots."""
        if self._context is not None and slots > self._context:
            raise UserError(f"this model cannot read more than {self._context} tokens", fix="end the text earlier")
        grows = any(axis is not None for axis in self._lists)
        if self.count <= self._capacity and (slots <= self._slots or not grows):
            return
        held, old = min(self.count, self._capacity), self._memory
        while self._capacity < self.count:
            self._capacity = max(_FIRST_ROWS, 2 * self._capacity)
        if grows:
            self._slots = max(self._slots, _FIRST_SLOTS)
            while self._slots < slots:
                self._slots *= 2
            self._slots = min(self._slots, self._context or self._slots)
        self._changed()
        self._on_device.clear()
        if self._graphs:  # they know the old memory
            self._graphs.clear()
        fresh: State = self.model.init_state(self._capacity)
        self._memory = self.model.reserve(fresh, self._slots)[0] if grows else map_state(Tensor.clone, fresh)
        if held:
            for into, leaf, axis in zip(self._leaves(), _tensors(old), self._lists, strict=True):
                into = into[:held] if axis is None else into[:held].narrow(axis, 0, leaf.shape[axis])
                into.copy_(leaf[:held])
        for columns in (self._columns, self.__dict__):
            for name, column in list(columns.items()):
                if isinstance(column, np.ndarray):
                    columns[name] = np.concatenate([column, np.zeros(self._capacity - len(column), column.dtype)])
        token_C = self._token_C.new_zeros(self._capacity)
        token_C[: len(self._token_C)] = self._token_C
        self._token_C = token_C
        self._seen_CV = None if self._seen_CV is None else self._table(self._seen_CV, torch.bool)
        self._count_CV = None if self._count_CV is None else self._table(self._count_CV, torch.int32)

    # ---------------------------------------------------------------- a step

    @torch.no_grad()
    def step(self, *, forbid: Sequence[tuple[int, int]] = (), scored: Sequence[tuple[int, int]] = ()) -> Step:
        """One token for each row. `forbid` are (row, token); `scored` are (row, how many of the best to report)."""
        self._make_room(int((self._position[: self.count] % _STREAM).max()) + 1)
        captured = self._captured() if self._graphs is not None and not forbid else None
        if captured is not None:
            captured(self._noise(), self.count)
            own_BV, finite_B = captured.logits_BV[: self.count], captured.finite_B[: self.count]
        else:
            own_BV, finite_B = self._plain_step(forbid)
        self._position[: self.count] += 1
        tokens = self._token_C[: self.count].tolist()
        broken = [] if bool(finite_B.all()) else (~finite_B).nonzero()[:, 0].tolist()
        chosen, top = log_probabilities(own_BV, tokens, scored) if scored else ({}, {})
        return Step(tokens, broken, chosen, top)

    def _plain_step(self, forbid: Sequence[tuple[int, int]]) -> tuple[Tensor, Tensor]:
        """The logits of the step, and whether each row has a best token; the tokens are in their place."""
        if self._view is None:
            self._view = rows(self._memory, slice(0, self.count))
        prepare = prepare_gpu if self.device.type == "cuda" else prepare_cpu
        kind = self.count if self.count < _BLOCKED else (_BLOCKED if self.count < _MANY else _MANY)
        token_B = self._token_C[: self.count]
        with self._threads(), packed_products(self.count, self._products.setdefault(kind, {}), prepare):
            own_BV, after = self.model.step_(token_B, self._view)
        overwrite(self._view, after)
        logits_BV = own_BV
        if len(self._never_N):
            logits_BV = logits_BV.index_fill(1, self._never_N, -torch.inf)
        if forbid:
            logits_BV = logits_BV.clone() if logits_BV is own_BV else logits_BV
            row_F, token_F = torch.tensor(forbid, device=self.device).T
            logits_BV[row_F, token_F] = -torch.inf
        chosen_B = self._choose(logits_BV)
        token_B.copy_(chosen_B)
        if self._used["repetition"] and self._seen_CV is not None:
            self._seen_CV[: self.count].scatter_(1, chosen_B[:, None], True)
        if self._count_CV is not None:
            count_BV = self._count_CV[: self.count]
            count_BV.scatter_add_(1, chosen_B[:, None], torch.ones_like(count_BV[:, :1]))
        return own_BV, logits_BV.amax(-1).isfinite()

    def _captured(self) -> CapturedStep | None:
        """The graph for these rows and filters; None where the step cannot be captured."""
        assert self._graphs is not None
        count = min(padded(self.count), self._capacity)
        if self._ways is None:
            self._ways = self._rows_sampling(count)
        key = (count, *(part is None for part in self._ways), self._seen_CV is None, self._count_CV is None)
        if key not in self._graphs:
            try:
                self._graphs[key] = CapturedStep(
                    self.model,
                    count,
                    memory=self._memory,
                    token_C=self._token_C,
                    ways=self._ways,
                    seen_CV=self._seen_CV,
                    count_CV=self._count_CV,
                    never_N=self._never_N,
                    lists=self._lists,
                )
            except RuntimeError:  # CUDA's message about a step that waits for the host
                self._graphs = None
                self._changed()
                return None
        return self._graphs[key]

    def _noise(self) -> NDArray[np.float64] | None:
        """A random number for each row's next token."""
        if not self._used["temperature"]:
            return None
        noise: NDArray[np.float64] = random_bits(self._seed[: self.count], self._position[: self.count]) * 2.0**-53
        return noise

    def _choose(self, logits_BV: Tensor) -> Tensor:
        if self._ways is None or len(self._ways.seed_B) != self.count:
            self._ways = self._rows_sampling(self.count)
        noise = self._noise()
        below_B1 = None if noise is None else torch.from_numpy(noise)[:, None].to(self.device)
        seen_BV = self._seen_CV[: self.count] if self._seen_CV is not None else self._token_C
        count_BV = None if self._count_CV is None else self._count_CV[: self.count]
        return draw(logits_BV, self._ways, below_B1=below_B1, seen_BV=seen_BV, count_BV=count_BV)

    def _rows_sampling(self, count: int) -> RowSampling:
        """The settings of the first `count` rows, in memory that stays the same as long as the capacity does."""

        def column(name: str) -> Tensor | None:
            if not self._used[name]:
                return None
            values_C1 = torch.from_numpy(self._columns[name][:, None])
            if self.device.type == "cpu":
                return values_C1[:count]
            if name not in self._on_device:
                self._on_device[name] = values_C1.to(self.device)
            self._on_device[name][: self.count].copy_(values_C1[: self.count])
            return self._on_device[name][:count]

        bias_BV = None
        if self._bias:
            self._bias_CV = self._table(self._bias_CV, torch.float32)
            bias_BV = self._bias_CV[:count].zero_()
            for index, biases in self._bias.items():
                token_N, add_N = zip(*biases)
                bias_BV[index, torch.tensor(token_N, device=self.device)] = torch.tensor(add_N, device=self.device)
        return RowSampling(
            seed_B=self._token_C[:count],  # not used: random numbers are made on the host
            temperature_B1=column("temperature"),
            any_greedy=self._graphs is not None or self._used["temperature"] < self.count,
            repetition_B1=column("repetition"),
            presence_B1=column("presence"),
            frequency_B1=column("frequency"),
            bias_BV=bias_BV,
            top_k_B1=column("top_k"),
            top_p_B1=column("top_p"),
            min_p_B1=column("min_p"),
        )

    def _threads(self) -> Any:
        return threads_for(self.count * self._largest if self.device.type == "cpu" else LARGE, enough=LARGE)


def cut(state: State, initial: State, length: int) -> State:
    """A copy of the state with its lists cut to `length` slots."""

    def narrowed(leaf: Tensor, like: Tensor) -> Tensor:
        axis = _list_axis(like)
        return (leaf if axis is None else leaf.narrow(axis, 0, min(length, leaf.shape[axis]))).clone()

    return map_state(narrowed, state, initial)


def log_probabilities(
    logits_BV: Tensor, tokens: Sequence[int], scored: Sequence[tuple[int, int]]
) -> tuple[dict[int, float], dict[int, list[tuple[int, float]]]]:
    """Of the token of each row that is asked about, and of its best ones."""
    at = [row for row, _ in scored]
    log_p_RV = logits_BV[at].float().log_softmax(-1)
    own = log_p_RV.gather(1, torch.tensor([[tokens[row]] for row in at], device=log_p_RV.device))[:, 0].tolist()
    most = max(number for _, number in scored)
    top: dict[int, list[tuple[int, float]]] = {}
    if most:
        best = log_p_RV.topk(min(most, log_p_RV.shape[-1]), dim=-1)
        for (row, number), ids, values in zip(scored, best.indices.tolist(), best.values.tolist()):
            top[row] = list(zip(ids, values))[:number]
    return dict(zip(at, own)), top


def _list_axis(initial: Tensor) -> int | None:
    """The axis along which a leaf grows: it is empty at the beginning."""
    return next((axis for axis, size in enumerate(initial.shape) if axis and size == 0), None)


def _tensors(state: State) -> list[Tensor]:
    return [leaf for _, leaf in leaves(state)]
