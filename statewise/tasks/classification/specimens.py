"""A classifier's rows under a lens.

N copies of a row, T places, H height, W width of a grid, E numbers at a place, K classes.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, assert_never, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from statewise.data import Labels as Classes
from statewise.decoding import TextStream
from statewise.encoders import CORNERS, seen_order
from statewise.models import AnyClassifier, Classifier, GridClassifier
from statewise.tasks.classification.examples import Encoding, TextEncoding
from statewise.tasks.classification.job import log_probabilities
from statewise.tasks.specimen import (
    UNKNOWN,
    Choices,
    Index,
    Poll,
    ReaderParts,
    Specimen,
    Specimens,
    Words,
    choices,
    chosen_nats,
    places_before_the_end,
    position,
)
from statewise.tasks.specimen import seen_order as seen_along

_TOKENS = Words("token", "row", "nats", "tokens before the end of the row", "token", text=True)
_VALUES = Words("time step", "row", "nats", "time steps before the end of the row", "time step")
_CELLS = Words("cell", "row", "nats", "")


@final
class ClassificationSpecimens(Specimens):
    model: AnyClassifier

    def __init__(
        self,
        model: AnyClassifier,
        content: Sequence[Any],
        label_N: Index,
        where: Sequence[str],
        *,
        encoding: Encoding,
        classes: Classes,
        source: str,
        device: torch.device,
    ) -> None:
        self.model, self.source, self.has_truth = model, source, bool((label_N >= 0).any())
        self._rows, self._label_N, self._where = encoding.encode(content), label_N, where
        self._encoding, self._classes, self._device = encoding, classes, device
        self._lengths = self._rows.lengths
        cells = isinstance(model, GridClassifier)
        self.words = _CELLS if cells else _TOKENS if isinstance(encoding, TextEncoding) else _VALUES

    def __len__(self) -> int:
        return len(self._rows)

    def length(self, number: int) -> int:
        return int(self._lengths[number])

    def at(self, number: int) -> Specimen:
        row = self._rows.sequences[number]
        named = partial(self._specimen, number)
        match self.model:
            case Classifier():
                return self._along(self.model, row, named)
            case GridClassifier():
                return self._over(self.model, row, named)
            case _:
                assert_never(self.model)

    def answers(self, poll: Poll) -> Choices:
        log_NK = log_probabilities(self.model, self._rows, device=self._device, poll=poll)
        count = len(self._rows)
        return choices(
            tuple(self._classes.names),
            log_NK,
            self._label_N,
            row_N=np.arange(count),
            place_N=np.full(count, UNKNOWN),
            along_N=np.array(self._lengths, dtype=np.float64),
            along=f"{self.words.place}s of the row",
        )

    # ---------------------------------------------------------------- one row

    def _specimen(
        self, number: int, x_TE: Tensor, logits: Callable[[Tensor], Tensor], enter: Any, read: Any, **more: Any
    ) -> Specimen:
        """`logits` makes `[N, K]` of what was read."""

        def answer(y: Tensor, x_NTE: Tensor) -> Tensor:
            return logits(y).softmax(-1)[:, None]

        label = int(self._label_N[number])
        if label < 0:
            with torch.no_grad():
                label = int(answer(read(enter(x_TE[None])), x_TE[None]).argmax())
        label_1 = torch.tensor([label], device=self._device)
        return Specimen(
            name=self._where[number],
            x_TE=x_TE,
            enter=enter,
            read=read,
            judge=lambda y, x_NTE: chosen_nats(answer(y, x_NTE), label_1),
            answer=answer,
            questions=(f"{self._classes.names[label]}",),
            **more,
        )

    def _along(self, model: Classifier, row: NDArray[Any], made: Callable[..., Specimen]) -> Specimen:
        parts = ReaderParts(model.reader)
        source = torch.from_numpy(np.asarray(row))[None].to(self._device)
        if source.is_floating_point():
            source = source.to(next(model.parameters()).dtype)
        with torch.no_grad():
            x_TE = model.reader.entry(source)[0]
        places = len(row)
        signals = {"position": position(places)}
        if not isinstance(self._encoding, TextEncoding):
            signals |= {f"value {at + 1}": row[:, at].astype(np.float32) for at in range(min(row.shape[1], 8))}
        return made(
            x_TE,
            lambda y_NTC: model.head(parts.encoded(y_NTC).summary_BC),
            parts.enter,
            parts.read,
            pieces=self._pieces(row),
            distance=places_before_the_end(places),
            machine=parts.machine,
            readers=parts.readers,
            signals=signals,
            seen_order=seen_along,
        )

    def _over(self, model: GridClassifier, row: NDArray[Any], made: Callable[..., Specimen]) -> Specimen:
        height, width = row.shape[:2]
        x_TE = torch.from_numpy(row).reshape(height * width, -1).to(self._device, next(model.parameters()).dtype)

        def sizes(count: int) -> Tensor:
            return torch.tensor([[height, width]], device=self._device).expand(count, 2)

        down_T, across_T = np.divmod(position(height * width), width)
        return made(
            x_TE,
            lambda y_NHWC: model.judge(y_NHWC, sizes(len(y_NHWC))),
            lambda x_NTE: x_NTE.unflatten(1, (height, width)),
            lambda z_NHWE: model.read(z_NHWE, sizes(len(z_NHWE))),
            pieces=tuple(f"{at // width},{at % width}" for at in range(height * width)),
            distance=lambda question: np.full(height * width, np.nan),
            signals={"row": down_T, "column": across_T, "value": row[..., 0].reshape(-1).astype(np.float32)},
            seen_order=partial(_from_a_corner, height, width),
        )

    def _pieces(self, row: NDArray[Any]) -> tuple[str, ...]:
        if not isinstance(self._encoding, TextEncoding):
            return tuple(str(at) for at in range(len(row)))
        stream = TextStream(self._encoding.tokenizer.decode)
        return tuple(stream.feed(int(token)) or "·" for token in row)


def _from_a_corner(height: int, width: int, name: str, places: int) -> Index:
    corner = next((part for part in name.split(".") if part in CORNERS), CORNERS[0])
    order: Index = seen_order(corner, height, width).numpy()
    return order
