"""How a recurrence is laid over the gpu: which kernel, how many blocks hold U, how many rows they take at once.

A plan is the list of a kernel template's parameters, so it is also the name of one compiled kernel.
"""

from typing import Literal, NamedTuple

from statewise.kernels.gpu import Gpu

Cell = Literal["tanh", "relu", "gru", "lstm"]
Direction = Literal["forward", "backward"]
Kind = Literal["cluster", "polled", "wide"]

GATES: dict[Cell, int] = {"tanh": 1, "relu": 1, "gru": 3, "lstm": 4}
_SLOTS = 4


class Plan(NamedTuple):
    kind: Kind
    cell: Cell
    direction: Direction
    width: int
    blocks: int  # in a cluster
    units: int  # that a cluster owns
    tiles: int  # of 8 batch rows
    warps: int
    kept: int  # steps of 16 along k whose weights stay in registers; the others lie in shared memory
    buffers: int = 2  # polled: for the sums of the warps, two save a barrier, one saves memory; wide: chunks in flight
    pieces: int = 1  # polled: in which values are fetched, more take fewer registers; wide: of `tiles` that take turns

    @property
    def threads(self) -> int:
        return 32 * self.warps

    @property
    def rows(self) -> int:
        return 8 * self.tiles

    @property
    def cooperative(self) -> bool:
        """Polled and wide kernels wait for blocks of other clusters, so all of them must be running."""
        return self.kind != "cluster"

    @property
    def marked(self) -> bool:
        """Polled kernels take values for their own flags: what they exchange through begins as "not there yet"."""
        return self.kind == "polled"

    @property
    def _summed(self) -> int:
        """Length of the product one block computes."""
        gates = GATES[self.cell]
        if self.kind == "cluster":
            return self.width if self.direction == "forward" else -(-gates * self.width // self.blocks // 32) * 32
        return (1 if self.direction == "forward" else gates) * self.width // self.blocks

    @property
    def steps(self) -> int:
        """Steps of 16 along k that one warp makes."""
        return self._summed // self.warps // 16 if self.kind == "polled" else self._summed // 16

    @property
    def matrix_tiles(self) -> int:
        """Tiles of 16 matrix rows that one warp holds."""
        gates = GATES[self.cell]
        if self.kind == "polled":
            return (gates if self.direction == "forward" else 1) * self.units // 16
        if self.direction == "backward":
            return self.width // 16 // self.warps
        return self.width // self.blocks // (16 if gates == 1 else 4) // self.warps

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory, in the order in which the kernels lay it out."""
        gates = GATES[self.cell]
        own = self.units // self.blocks
        if self.kind == "wide":
            stages, held = self.buffers * self.rows * 128, 128 * (self.steps - self.kept) * 32
            slots = self.pieces * 8 * self.tiles * 32 * 16 if self.blocks > 1 else 0
            return 1024 + slots + stages + held + (0 if self._results_over_stages else self._out_bytes)
        weights = self.warps * (self.steps - self.kept) * self.matrix_tiles * 32 * 16
        if self.kind == "polled":
            per_unit = gates if self.direction == "forward" else 1
            slots = _SLOTS * self.blocks * per_unit * own * self.rows * 4 if self.blocks > 1 else 0
            sums = self.buffers * self.warps * per_unit * self.units * self.rows * 4
            return 128 + slots + sums + weights
        staged = 2 * self.rows * row_bytes(self._summed)
        slots = 2 * self.blocks * own * self.rows * 4 if self.direction == "backward" else 0
        return 128 + slots + staged + weights

    @property
    def chunks_at_once(self) -> int:
        """Wide: chunks of 64 along k that one copy brings; whoever asks takes as long for one as for four.

        At least four copies are under way at a time, or the tensor cores wait for the next.
        """
        fitting = (n for n in (4, 3, 2) if self._summed // 64 % n == 0 and self.buffers % n == 0)
        return next((n for n in fitting if self.buffers >= 4 * n), 1)

    @property
    def _results_over_stages(self) -> bool:
        return self.blocks > 1 and self.pieces == 1

    @property
    def _out_bytes(self) -> int:
        values = (1 if self.direction == "forward" else GATES[self.cell]) * self.units // self.blocks
        return -(-self.rows * (2 * values + 16) // 1024) * 1024

    @property
    def valid(self) -> bool:
        """What the kernels assert; registers are the compiler's to count."""
        if self.units % self.blocks or self.kept > self.steps or self.threads > 1024:
            return False
        lawful = {"cluster": self._valid_cluster, "polled": self._valid_polled, "wide": self._valid_wide}
        return lawful[self.kind]()

    @property
    def portable(self) -> bool:
        """Without clusters and products of warpgroups, the instructions are those of every GPU since 8.0."""
        return self.blocks == 1 and self.kind != "wide"

    def fits(self, gpu: Gpu) -> bool:
        """Whether such a GPU can run it; how many blocks of it at once is the driver's to say."""
        return self.valid and (self.portable or gpu.measured) and self.shared_bytes <= gpu.shared_bytes

    def _valid_cluster(self) -> bool:
        own = self.units // self.blocks
        if self.units != self.width or own % 16 or self._summed % 32:
            return False
        if self.direction == "forward":
            return own % ((16 if GATES[self.cell] == 1 else 4) * self.warps) == 0
        items = own * self.rows // 4
        shared = 4 if self.threads >= 4 * items else 2 if self.threads >= 2 * items else 1
        return self.width % (16 * self.warps) == 0 and items * shared % self.threads == 0

    def _valid_polled(self) -> bool:
        gates, slice_ = GATES[self.cell], self._summed // self.warps
        rows, whole = (gates, 1) if self.direction == "forward" else (1, gates)
        if whole * self.width % (self.blocks * self.warps * 32) or slice_ // 32 % self.pieces:
            return False
        return self.width % self.units == 0 and self.units // self.blocks % 8 == 0 and rows * self.units % 16 == 0

    def _valid_wide(self) -> bool:
        gates = GATES[self.cell]
        mixed = self.direction == "forward" and gates > 1
        if self.units != (32 if mixed else 128) or self.width % self.units or self.warps != 12 or 8 % self.blocks:
            return False
        if self.width * (1 if self.direction == "forward" else gates) % (64 * self.blocks) or self.kept % 4:
            return False
        roomy = not self._results_over_stages or self._out_bytes <= self.buffers * self.rows * 128
        return roomy and self.units // self.blocks % 8 == 0

    @property
    def turns(self) -> int:
        """Of a block's rows within a step."""
        return self.pieces if self.kind == "wide" else 1

    def grid(self, batch: int) -> tuple[int, int]:
        slices = -(-batch // (self.rows * self.turns))
        if self.kind == "cluster":
            return slices * self.blocks, 1
        return self.width // self.units * self.blocks, slices

    @property
    def name(self) -> str:
        return "_".join(str(value) for value in self)

    @property
    def call(self) -> str:
        """The template with its parameters, as the source writes it."""
        if self.kind == "cluster":
            values = [self.cell.upper(), self.width, self.blocks, self.tiles, self.warps, self.kept]
        elif self.kind == "wide":
            values = [self.cell.upper(), self.direction.upper(), self.width, self.blocks]
            values += [self.rows, self.buffers // self.chunks_at_once, self.chunks_at_once, self.kept // 4, self.turns]
        else:
            values = [self.cell.upper(), self.direction.upper(), self.width, self.blocks, self.units]
            values += [self.tiles, self.warps, self.kept, self.buffers, self.pieces]
        template = f"cluster_{self.direction}" if self.kind == "cluster" else self.kind
        return f"{template}<{', '.join(map(str, values))}>"

    @property
    def sources(self) -> tuple[str, ...]:
        """The files its program is made of."""
        return (
            "ptx.cuh",
            "unit.cuh",
            "cell.cuh",
            f"cluster_{self.direction}.cuh" if self.kind == "cluster" else f"{self.kind}.cuh",
        )


def row_bytes(values: int) -> int:
    """Mirrors the kernels: rows 64 bytes off a multiple of 128 are read without bank conflicts."""
    return 2 * values if 2 * values % 128 == 64 else 2 * values + 64
