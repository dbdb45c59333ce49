"""What training, evaluation and searching ask of a way to translate. They never ask which one it is.

B batch, T target time, V vocabulary.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from statewise.core import Machine, State
from statewise.decoding import Hypothesis, Sampling, beam_search, greedy
from statewise.models import TokenMachine
from statewise.specs import DecodingSpec, ForcingSpec, TeacherForcing, TranslationSpec
from statewise.tasks.translation.examples import Batch, Ids, Languages, Rows
from statewise.tasks.translation.sides import SourceRow
from statewise.training import ExposureGap, Feedback, Score, exposure_gap, forced_forward, truth_probability

TEACHER = TeacherForcing()


class Translator(ABC):
    """From pairs to losses and from sources to hypotheses, with one kind of model over two languages."""

    def __init__(
        self,
        spec: TranslationSpec,
        languages: Languages,
        device: torch.device,
        *,
        longest_learned: int | None = None,  # tokens of the longest target of training
    ) -> None:
        self.spec, self.languages, self.device, self._longest_learned = spec, languages, device, longest_learned

    @abstractmethod
    def build(self) -> Machine[Any]:
        """The model before training."""

    @property
    @abstractmethod
    def start_id(self) -> int:
        """What is read before a target."""

    @abstractmethod
    def never(self, decoding: DecodingSpec) -> list[int]:
        """What is not written."""

    @abstractmethod
    def most_written(self, source: int) -> int | None:
        """Tokens that can be written at all after a source of so many; None: any number."""

    @abstractmethod
    def begin(self, model: Any, batch: Batch) -> tuple[Tensor | None, State]:
        """The source's summary, if an end needs it, and the state from which the targets are read."""

    @abstractmethod
    def feedback(self, choice: Literal["sample", "best"]) -> Feedback:
        """How an own prediction is fed back in place of the truth."""

    @abstractmethod
    def total(
        self, model: Any, batch: Batch, summary_BD: Tensor | None, outputs_BTV: Tensor, smoothing: float
    ) -> Tensor:
        """The summed nats of the targets, from the model's outputs."""

    @abstractmethod
    def score(self, model: Any, batch: Batch, summary_BD: Tensor | None) -> Score:
        """Nats of each token, from the model's outputs."""

    def loss(
        self,
        model: Any,
        batch: Batch,
        *,
        forcing: ForcingSpec = TEACHER,
        step: int = 0,
        first_row: int = 0,
        smoothing: float = 0.0,
    ) -> Tensor:
        """The summed nats of what is read of the targets, ends included."""
        summary_BD, state = self.begin(model, batch)
        # What follows a row's end is passed over by the loss, so no state needs to be held there.
        outputs_BTV, _ = forced_forward(
            model,
            batch.input_BT,
            state,
            truth_probability=truth_probability(forcing, step),
            key=(self.spec.seed, step),
            feedback=None if isinstance(forcing, TeacherForcing) else self.feedback(forcing.choice),
            first_row=first_row,
        )
        return self.total(model, batch, summary_BD, outputs_BTV, smoothing)

    @abstractmethod
    def search(
        self, model: Any, sources: Sequence[SourceRow], decoding: DecodingSpec, *, align: bool
    ) -> list[list[Hypothesis]]:
        """For each source its best hypotheses, the best first."""

    @abstractmethod
    def draw(
        self, model: Any, source: SourceRow, decoding: DecodingSpec, sampling: Sampling, *, longest: int
    ) -> Hypothesis:
        """One translation by chance, of at most `longest` tokens."""

    @abstractmethod
    def draw_lengths(
        self, model: Any, sources: Sequence[SourceRow], decoding: DecodingSpec, *, first_row: int
    ) -> NDArray[np.int64]:
        """`[sources, decoding.draws]` lengths of outputs drawn from the model."""

    def exposure_gap(self, model: Any, batch: Batch, *, choice: Literal["sample", "best"], seed: int) -> ExposureGap:
        """What it costs, along the target, to have read its own output."""
        with torch.no_grad():
            summary_BD, state = self.begin(model, batch)
        return exposure_gap(
            model,
            batch.input_BT,
            batch.target_BT,
            state,
            lengths_B=batch.length_B,
            feedback=self.feedback(choice),
            score=self.score(model, batch, summary_BD),
            seed=seed,
        )

    def unknown(self, decoding: DecodingSpec) -> list[int]:
        """The unknown symbol, where it is not to be written."""
        unknown_id = self.languages.target.unknown_id
        return [] if decoding.unknown or unknown_id is None else [unknown_id]

    def batch(self, rows: Rows, index: Ids) -> Batch:
        return rows.batch(index, self.start_id).to(self.device)

    def longest(self, sources: Sequence[SourceRow], decoding: DecodingSpec) -> Tensor:
        """`[B]`: the most that is written for each source. Its end symbol is none of its words."""
        found = []
        for source in sources:
            # Of a class or a vector, the length of its target is not known: training had none that was longer.
            wanted = self._longest_learned or self.spec.data.longest
            if self.spec.data.source_kind == "text":
                wanted = math.ceil(decoding.max_ratio * (len(source) - 1))
            wanted += decoding.extra
            most = self.most_written(len(source))
            found.append(wanted if most is None else min(wanted, most))
        return torch.tensor(found, device=self.device)


def search_tokens(
    machine: TokenMachine[Any],
    state: Any,
    decoding: DecodingSpec,
    *,
    end_id: int,
    longest_B: Tensor,
    never: Sequence[int],
    align: bool,
    source_lengths_B: Tensor,
    decided_B: Tensor | None = None,
) -> list[list[Hypothesis]]:
    """Greedy or beam search: the one search of all translators and of all kinds of an end."""
    given: dict[str, Any] = {"start_id": end_id, "end_id": end_id, "max_length": longest_B}
    given |= {"min_length": decoding.min_length, "never": never, "align": align, "source_lengths_B": source_lengths_B}
    if decoding.beam == 1 and not decoding.coverage_penalty:
        return [[hypothesis] for hypothesis in greedy(machine, state, **given)]
    penalties = decoding.subset("beam", "length_penalty", "coverage_penalty", "n_best")
    return beam_search(machine, state, **given, **penalties, decided_B=decided_B)
