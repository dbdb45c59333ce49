"""Language modelling: predict the next token, and say how surprising a text was.

B rows, T time, V vocabulary.
"""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from statewise.core import Machine, State, onto, state_type
from statewise.data import (
    LARGEST_RESIDENT,
    Batches,
    Corpus,
    Place,
    ResidentTokens,
    Split,
    Tokenizer,
    as_built,
    evaluation_lanes,
    open_corpus,
    token_counts,
    unigram_nats,
)
from statewise.disk import make_folder
from statewise.models import CountingMachine, TokenMachine, build, cost_of
from statewise.specs import FreeRunning, LanguageModelSpec, PenaltySpec, ScheduledSampling, TeacherForcing, UserError
from statewise.tasks.folder import refuse_other_size
from statewise.tasks.job import Job, Opening, Trivial
from statewise.tasks.language_model.documents import Documents, feed_within, read_with_resets
from statewise.tasks.metric import directions, perplexity
from statewise.tasks.report import Report, shows_report, unknown_note, worse_than_trivial
from statewise.training import Better, Parallel, Payload, Window, forced_forward, read_tensors, truth_probability

_LANES, _WINDOW, _WARM = 16, 256, 256


@shows_report
class LanguageModelEvaluation(NamedTuple):
    """Loss per token and per byte, with reference values: 1 is a perfect perplexity, `uniform` an uninformed one."""

    nats_per_token: float
    perplexity: float
    bits_per_byte: float
    tokens: int
    bytes: int
    unigram_perplexity: float
    uniform_perplexity: float
    unknown: int  # tokens of the text that the tokenizer does not know; they make the text look easier
    bits_per_byte_reset: float | None = None  # with the state reset at each window; None: not asked for
    bits_per_byte_gained: float | None = None  # how much fewer they are with the state carried

    def report(self, name: str) -> Report:
        rows = (
            ("perfect", "1.000"),
            (name, f"{self.perplexity:.3f}"),
            ("unigram (frequencies alone)", f"{self.unigram_perplexity:.3f}"),
            ("uniform (knows nothing)", f"{self.uniform_perplexity:.3f}"),
        )
        least = "more than " if self.unknown else ""  # which unknown token it is, the model does not say
        note = (
            f"{self.nats_per_token:.4f} nats per token · {least}{self.bits_per_byte:.4f} bits per byte · "
            f"{self.tokens:,} tokens, {self.bytes:,} bytes{unknown_note(self.unknown / max(1, self.tokens))}"
        )
        trivial = {"the unigram baseline": self.unigram_perplexity, "a uniform guess": self.uniform_perplexity}
        warning = worse_than_trivial(name, "perplexity", self.perplexity, trivial)
        if self.bits_per_byte_reset is not None:
            reset, gained = self.bits_per_byte_reset, self.bits_per_byte_gained
            note += f" · with the state reset at each window {reset:.4f} bits per byte: carrying it gains {gained:.4f}"
        return Report(("perplexity",), rows, own=1, note=note, warning=warning)


@state_type
class Speaking(NamedTuple):
    """What is carried where a model may have to read itself: its state, and what it gave last."""

    inner: State
    given_BV: Tensor


class _Read(NamedTuple):
    """What the host has read."""

    inputs_BT: Tensor
    targets_BT: Tensor
    resets_BT: Tensor | None  # stays on the host, which has to know how many documents begin


class _Content(NamedTuple):
    tokens: _Read | Tensor  # or where each row begins in a stream that lies on the device
    step: int | None  # None: it makes no difference


@final
class LanguageModelJob(Job):
    """Binds a corpus to the training loop."""

    question = ("validation", "text", "held_out")
    tokens = ("tokenizer", "vocab")

    spec: LanguageModelSpec

    def __init__(self, corpus: Corpus, spec: LanguageModelSpec, *, par: Parallel) -> None:
        self.spec, self.corpus, self._par = spec, corpus, par
        self._end_id, self._begin_id = corpus.tokenizer.end_id, corpus.tokenizer.begin_id(spec.data.begin)
        self._train, self._validation = corpus.train, corpus.validation
        self.batches = Batches(
            corpus.train.tokens,
            end_id=self._end_id,
            # A counting model reads the text at once, so the text may be shorter than a batch.
            batch=spec.train.batch if spec.learns == "gradient" else par.world,
            window=spec.train.window_tokens(),
            order=spec.data.order,
            seed=spec.seed,
            rank=par.rank,
            world=par.world,
            begin_id=self._begin_id,
        )
        self._resident: ResidentTokens | None = None
        if par.device.type == "cuda" and spec.learns == "gradient" and corpus.train.tokens.nbytes <= LARGEST_RESIDENT:
            self._resident = ResidentTokens(corpus.train.tokens, end_id=self._end_id, device=par.device)

    @classmethod
    def open(cls, spec: LanguageModelSpec, opening: Opening) -> "LanguageModelJob":
        data, spool = as_built(spec.data), opening.folder / "stdin.txt"
        spec = spec.model_copy(update={"data": data})
        tokenizer = None if opening.kept is None else Tokenizer.load(opening.kept / "tokenizer.json")
        if tokenizer is not None and spec.learns == "gradient":
            assert opening.kept is not None
            refuse_other_size(lambda: build(spec.model, vocab=tokenizer.vocab), opening.kept)
        if "-" in (*data.text, *data.validation) and opening.par.leads:
            make_folder(opening.folder)  # standard input is kept there
        corpus = open_corpus(data, tokenizer=tokenizer, spool=spool, progress=opening.progress)
        if "-" in (*data.text, *data.validation):  # it is kept, so that resuming and evaluating can read it again
            spec = spec.with_files(lambda name: str(spool) if name == "-" else name)
        if opening.kept is not None:
            _refuse_other_text(opening.kept, corpus)
        return cls(corpus, spec, par=opening.par)

    @property
    def judges(self) -> Mapping[str, Better]:
        return directions("nats")

    @property
    def regular(self) -> bool:
        return isinstance(self.spec.forcing, TeacherForcing)

    def build(self) -> TokenMachine[Any]:
        return build(self.spec.model, vocab=self.corpus.tokenizer.vocab, seed=self.spec.seed)

    def flops_per_token(self) -> float:
        """In the mean over a window: it is linear in what was read before."""
        last = self.spec.train.window_tokens() - 1
        return sum(cost_of(self.build, context=context).flops for context in (0, last)) / 2

    def identity(self) -> dict[str, Payload]:
        counts_V = torch.from_numpy(token_counts(self.corpus.train.tokens, self.corpus.tokenizer.vocab))
        return {"tokenizer.json": self.corpus.tokenizer.to_json(), "unigram.safetensors": {"counts_V": counts_V}}

    def headline(self) -> str:
        model, corpus = self.spec.model, self.corpus
        counted = model.learns == "counting"
        size = "by counting" if counted else f"{self.num_parameters():,} parameters"
        return (
            f"{model.known_as}, {size}, on {corpus.name} ({len(corpus.train.tokens):,} tokens, "
            f"vocabulary {corpus.tokenizer.vocab}, sha256 {corpus.sha256[:12]})"
        )

    def facts(self) -> dict[str, Any]:
        corpus = self.corpus
        size = corpus.train.bytes + corpus.validation.bytes
        return {"corpus": {"name": corpus.name, "sha256": corpus.sha256, "bytes": size}}

    def trivial(self) -> Trivial:
        counts_V = token_counts(self.corpus.train.tokens, self.corpus.tokenizer.vocab)
        nats = unigram_nats(counts_V, self._validation.tokens)
        return Trivial("the unigram baseline", "perplexity", perplexity(nats))

    def begin(self, model: Any, rows: int) -> Any:
        state = model.init_state(rows)
        if isinstance(self.spec.forcing, TeacherForcing):
            return state
        return Speaking(state, model.like.new_zeros(rows, self.corpus.tokenizer.vocab))

    def window(self, step: int) -> Window:
        place = self.batches.place(step)
        tokens = self._tokens(step, place)
        told = isinstance(self.spec.forcing, TeacherForcing)
        obstacle = None
        if not told:
            obstacle = "the model may read itself, which is decided token by token"
        elif isinstance(tokens, _Read) and tokens.resets_BT is not None:
            obstacle = "a document begins in this window"
        elif place.length != self.batches.window:
            obstacle = "the last window of an epoch is shorter"
        read = place.length * self.batches.batch
        return Window(
            len(place.starts_B),
            place.length,
            place.fresh,
            _Content(tokens, None if told else step),
            weight=read / self._par.world,
            tokens=read,
            ends=place.ends,
            obstacle=obstacle,
        )

    def _tokens(self, step: int, place: Place) -> _Read | Tensor:
        if self._resident is not None and not self._resident.begins_documents(place):
            return self._resident.starts(place)
        batch = self.batches.at(step)
        inputs_BT, targets_BT = (onto(self._par.device, part) for part in (batch.inputs_BT, batch.targets_BT))
        return _Read(inputs_BT, targets_BT, batch.resets_BT)

    def read(self, window: Window, some: slice, times: slice) -> tuple[Tensor, Tensor, Tensor | None]:
        """Inputs, targets, and where documents begin, of some rows and times."""
        tokens: _Read | Tensor = window.content.tokens
        if isinstance(tokens, Tensor):
            assert self._resident is not None
            return *self._resident.read(tokens[some], times), None
        resets_BT = None if tokens.resets_BT is None else tokens.resets_BT[some, times]
        return tokens.inputs_BT[some, times], tokens.targets_BT[some, times], resets_BT

    def loss(self, model: Any, window: Window, some: slice, times: slice, state: Any) -> tuple[Tensor, Any]:
        inputs_BT, targets_BT, resets_BT = self.read(window, some, times)
        policy = self.spec.forcing
        if not isinstance(policy, TeacherForcing):
            logits_BTV, state = self._read_itself(policy, model, window, some, times, state)
            return model.head.nats(logits_BTV, targets_BT).sum(), state
        if resets_BT is None:
            begins = window.fresh and times.start == 0
            # None is the initial state, and says so without asking the device how much was read.
            y_BTD, state = model.features(inputs_BT, None if begins else state)
        else:
            y_BTD, state = read_with_resets(model.features, inputs_BT, state, resets_BT, initial=model.init_state(1))
        nats = model.head.total_nats(y_BTD, targets_BT)
        if self.spec.penalty.size or self.spec.penalty.change:
            nats = nats + penalty(self.spec.penalty, y_BTD, resets_BT)
        return nats, state

    def _read_itself(
        self,
        policy: FreeRunning | ScheduledSampling,
        model: Any,
        window: Window,
        some: slice,
        times: slice,
        state: Speaking,
    ) -> tuple[Tensor, Speaking]:
        step: int = window.content.step
        logits_BTV, inner = forced_forward(
            Documents(model, begin_id=self._begin_id),
            self.read(window, some, times)[0],
            state.inner,
            truth_probability=truth_probability(policy, step),
            key=(self.spec.seed, step),
            feedback=feed_within(policy.choice, begin_id=self._begin_id, end_id=self._end_id),
            before=None if window.fresh and times.start == 0 else state.given_BV,  # at first, nothing was given yet
            first_row=self.batches.first_row + some.start,
            first_time=times.start,
        )
        return logits_BTV, Speaking(inner, logits_BTV[:, -1].detach().to(state.given_BV))

    def count(self, model: CountingMachine[Any]) -> int:
        model.count(self._train.tokens, end_id=self._end_id)
        return len(self._train.tokens) - 1

    def evaluate(self, model: Any, poll: Callable[[], None]) -> dict[str, float]:
        limit = self.spec.train.evaluate_tokens
        fresh = fresh_window(self.spec)
        nats, count = measure(
            model, self._validation, end_id=self._end_id, begin_id=self._begin_id, limit=limit, fresh=fresh, poll=poll
        )
        share = count / (len(self._validation.tokens) - 1)
        bits_per_byte = nats / math.log(2) / (self._validation.bytes * share)
        return {"nats": nats / count, "perplexity": perplexity(nats / count), "bits_per_byte": bits_per_byte}


def fresh_window(spec: LanguageModelSpec) -> int | None:
    """Tokens after which an evaluation resets the state; None: it is carried. By default as in training."""
    state = spec.data.evaluate_state
    reset = spec.data.order != "sequential" if state == "as_trained" else state == "reset"
    return spec.train.window_tokens() if reset else None


@torch.no_grad()
def measure(
    model: Machine[Any],
    split: Split,
    *,
    end_id: int,
    begin_id: int,
    limit: int | None = None,
    lanes: int = _LANES,
    fresh: int | None = None,
    poll: Callable[[], None] = lambda: None,
) -> tuple[float, int]:
    """Total nats over a stream and the number of tokens predicted; every token counts once.

    The stream is read in lanes side by side; each lane first reads some text before its own part, so
    that it does not begin without memory. `lanes=1` reads it in one go. With `fresh`, every window of
    so many tokens begins without memory instead.
    """
    device = model.like.device
    total, count, state = torch.zeros((), dtype=torch.float64, device=device), 0, None
    window, warm = (_WINDOW, _WARM) if fresh is None else (fresh, 0)
    if fresh is not None:
        lanes = max(1, lanes * _WINDOW // fresh)  # as many tokens at a time, whatever the window
    for batch in evaluation_lanes(
        split.tokens, end_id=end_id, begin_id=begin_id, lanes=lanes, window=window, warm=warm, limit=limit
    ):
        poll()
        inputs_BT, targets_BT, counted_BT = (
            onto(device, part) for part in (batch.inputs_BT, batch.targets_BT, batch.counted_BT)
        )
        if state is None or fresh is not None:
            state = model.init_state(len(inputs_BT))
        logits_BTV, state = read_with_resets(model, inputs_BT, state, batch.resets_BT, initial=model.init_state(1))
        nats_BT = F.cross_entropy(logits_BTV.flatten(0, 1).float(), targets_BT.flatten(), reduction="none").view(
            inputs_BT.shape
        )
        total += nats_BT.double().masked_fill(~counted_BT, 0.0).sum()
        count += int(batch.counted_BT.sum())
    return float(total), count


def evaluate(
    model: Machine[Any],
    split: Split,
    *,
    end_id: int,
    begin_id: int,
    vocab: int,
    train_counts_V: NDArray[np.int64],
    fresh: int | None = None,
    beside: int | None = None,
) -> LanguageModelEvaluation:
    """A whole split, beside what knowing nothing and what letter frequencies alone would give.

    `beside`: measure it also with the state reset after so many tokens.
    """
    model.eval()
    nats, count = measure(model, split, end_id=end_id, begin_id=begin_id, fresh=fresh)
    bits_per_byte, reset = nats / math.log(2) / split.bytes, None
    if beside is not None:
        reset = measure(model, split, end_id=end_id, begin_id=begin_id, fresh=beside)[0] / math.log(2) / split.bytes
    return LanguageModelEvaluation(
        nats_per_token=nats / count,
        perplexity=perplexity(nats / count),
        bits_per_byte=bits_per_byte,
        tokens=count,
        bytes=split.bytes,
        unigram_perplexity=perplexity(unigram_nats(train_counts_V, split.tokens)),
        uniform_perplexity=float(vocab),
        unknown=split.unknown,
        bits_per_byte_reset=reset,
        bits_per_byte_gained=None if reset is None else reset - bits_per_byte,
    )


def _refuse_other_text(kept: Path, corpus: Corpus) -> None:
    """A file may have changed since the run began: then its tokens are counted differently."""
    before = read_tensors(kept / "unigram.safetensors").get("counts_V")
    if before is None or before.tolist() != token_counts(corpus.train.tokens, corpus.tokenizer.vocab).tolist():
        raise UserError(
            f"{corpus.name!r} is not the text that this run began with", fix="put that text back, or train again"
        )


def penalty(spec: PenaltySpec, y_BTD: Tensor, resets_BT: Tensor | None) -> Tensor | float:
    """Summed over tokens like the loss beside it; where a document begins, nothing moved."""
    total: Tensor | float = 0.0
    if spec.size:
        total = total + spec.size * y_BTD.float().square().mean(-1).sum()
    if spec.change:
        moved_BS = y_BTD.float().diff(dim=1).square().mean(-1)
        if resets_BT is not None:
            moved_BS = moved_BS.masked_fill(onto(y_BTD.device, resets_BT[:, 1:]), 0.0)
        total = total + spec.change * moved_BS.sum()
    return total
