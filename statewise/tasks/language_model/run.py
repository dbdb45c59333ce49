"""A trained language model, opened."""

import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, final

import numpy as np
import torch

from statewise.core import load_state, pack_state, state_problem, unpack_state
from statewise.data import Data, Split, Tokenizer, as_files, encode_files, open_corpus, source_name
from statewise.decoding import Continuation, Sampling, TextStream, begin, extend, generate, read
from statewise.disk import write as write_file
from statewise.models import CountingMachine, TokenMachine, build, longest_context
from statewise.runtime import STREAM
from statewise.specs import LanguageModelSpec, UserError, option
from statewise.tasks.answers import Answers, Sample, tokens_per_second
from statewise.tasks.folder import Opened, is_shipped
from statewise.tasks.language_model.documents import Documents, feed_within
from statewise.tasks.language_model.generation import text_generation
from statewise.tasks.language_model.job import LanguageModelEvaluation, evaluate, fresh_window
from statewise.tasks.language_model.sample import first_text, generated_pieces, text_pieces
from statewise.tasks.language_model.specimens import TextSpecimens
from statewise.tasks.language_model.stationarity import LONGEST_WHOLE, TokenStationarity, token_stationarity
from statewise.tasks.portable import Portable
from statewise.tasks.report import of_this_run
from statewise.tasks.run import OrderedRun, SelfReadingRun
from statewise.training import ExposureGap, exposure_gap, read_tensors, weights_sha256

_TOKENS = 200  # written unless another number is asked for
_LONGEST = 1 << 48  # tokens of a text that anybody continues
_LEAST = 16  # windows that an exposure gap is measured on
_SNIPPET = 240  # characters of held-out text whose surprise is shown
_PROMPT = 32  # of these, the prompt of a sample
_WARM, _TIMED = 8, 64  # tokens that are generated before the clock runs, and under it
_HELD_OUT = 20_000  # tokens of held-out text that are inspected where no text is given
_GENERATED = 2_000  # tokens that a run without its text generates, to be inspected


@final
class LanguageModelRun(SelfReadingRun, OrderedRun):
    """A trained language model: it generates text, and its state can be saved and continued from.

    >>> run = sw.load("runs/lstm")
    >>> text = run.generate("the cat", tokens=20, sampling=sw.Sampling(temperature=0.7))
    >>> run.evaluate().perplexity > 1
    True
    """

    _evaluation = LanguageModelEvaluation
    _changeable: ClassVar[Mapping[str, tuple[str, ...]]] = {"data": ("evaluate_state",)}

    spec: LanguageModelSpec
    model: TokenMachine[Any]

    def _open(self, opened: Opened) -> TokenMachine[Any]:
        spec = self.spec
        folder = opened.verified
        self.tokenizer = tokenizer = Tokenizer.load(folder / "tokenizer.json")
        self.begin_id = tokenizer.begin_id(spec.data.begin)
        self.begin_token = spec.data.begin or tokenizer.end_token
        counts = read_tensors(folder / "unigram.safetensors").get("counts_V")
        if counts is None or counts.shape != (tokenizer.vocab,) or counts.dtype != torch.int64:
            raise UserError(f"{str(folder)!r}: unigram.safetensors does not fit the tokenizer")
        self.train_counts_V: np.ndarray[Any, np.dtype[np.int64]] = counts.numpy()
        if spec.learns == "counting":  # how much it holds is known to the file alone
            model = build(spec.model, vocab=tokenizer.vocab, seed=spec.seed)
            assert isinstance(model, CountingMachine)
            model.adopt(read_tensors(opened.weights))
            model = model.to(opened.device)
        else:
            model = opened.model(lambda: build(spec.model, vocab=tokenizer.vocab, seed=spec.seed))
        return model

    def sizes(self) -> dict[str, Any]:
        return {**self.spec.model.sizes(), "vocabulary": self.tokenizer.vocab}

    @property
    def device(self) -> torch.device:
        return self.model.like.device

    @property
    def _never(self) -> tuple[int, ...]:
        """The unknown token stands for what cannot be written."""
        return () if self.tokenizer.unknown_id is None else (self.tokenizer.unknown_id,)

    @of_this_run
    def evaluate(self, data: Data | None = None) -> LanguageModelEvaluation:
        """Perplexity and bits per byte on `data` (a text, documents, files or folders), or on the held-out text.

        >>> evaluation = sw.load("runs/lstm").evaluate("text.txt")
        >>> evaluation.perplexity < evaluation.uniform_perplexity
        True
        """
        return evaluate(
            self.model,
            self._split(data),
            end_id=self.tokenizer.end_id,
            begin_id=self.begin_id,
            vocab=self.tokenizer.vocab,
            train_counts_V=self.train_counts_V,
            fresh=fresh_window(self.spec),
            beside=self.spec.train.window_tokens() if self.spec.data.evaluate_state == "both" else None,
        )

    def exposure_gap(
        self,
        data: Data | None = None,
        *,
        rows: int = 128,
        choice: Literal["sample", "best"] = "sample",
        seed: int = 0,
        prefix: int = 64,
        own: int = 64,
        after: int = 64,
    ) -> ExposureGap:
        """How much the loss rises when the model reads its own text, position by position, in nats.

        A window has `prefix` true tokens, then `own` tokens that the model generates, then `after` true ones. At most
        `rows` windows are spread evenly over the text; they are shorter where it is short. At the start of a document
        inside a window the state is reset.

        >>> gap = sw.load("runs/lstm").exposure_gap(rows=4, prefix=8, own=8, after=8)
        >>> len(gap.gap_T)
        24
        """
        if min(prefix, own) < 1 or after < 0 or rows < 1:
            raise UserError(
                f"rows = {rows}, prefix = {prefix}, own = {own}, after = {after}",
                fix="at least 1 of each, and 0 or more after them",
            )
        tokens = self._split(data).tokens
        positions = len(tokens) - 1
        if positions < 3:
            raise UserError(f"{positions} tokens to predict are too few to be continued", fix="give more text")
        time = min(prefix + own + after, positions)
        shrunk = time / (prefix + own + after)
        prefix, own = max(1, int(prefix * shrunk)), max(1, int(own * shrunk))
        count = min(rows, max(_LEAST, positions // time))  # of a short text they overlap
        begin_B = np.unique(np.linspace(0, positions - time, count).astype(np.int64))
        window_BT = tokens[begin_B[:, None] + np.arange(time + 1)].astype(np.int64)
        tokens_BT = torch.from_numpy(window_BT).to(self.device)
        end_id, begin_id = self.tokenizer.end_id, self.begin_id
        inputs_BT = tokens_BT[:, :-1]
        return exposure_gap(
            Documents(self.model, begin_id=begin_id),
            torch.where(inputs_BT == end_id, begin_id, inputs_BT),
            tokens_BT[:, 1:],
            prefix=prefix,
            own=own,
            feedback=feed_within(choice, begin_id=begin_id, end_id=end_id),
            seed=seed,
        )

    def stationarity(self, data: Data | None = None, *, block: int | None = None) -> TokenStationarity:
        """Whether tokens and pairs of tokens are distributed alike all along `data`, or along all of the run's text.

        `block` is the number of tokens up to which dependence does not count as change.

        >>> found = sw.load("runs/lstm").stationarity("text.txt", block=16)
        >>> 0 < found.tokens.p <= 1
        True
        """
        if data is not None:
            return token_stationarity(self._split(data).tokens, block=block)
        self._refuse_without_text()
        corpus = open_corpus(self.spec.data, tokenizer=self.tokenizer)
        parts = [corpus.train.tokens, corpus.validation.tokens[1:]]  # one end symbol between them
        tokens = np.concatenate(parts) if sum(map(len, parts)) <= LONGEST_WHOLE else parts[0]
        return token_stationarity(tokens, block=block)

    def specimens(self, data: Data | None = None, *, text: str | None = None) -> TextSpecimens:
        """Windows of a text for `sw.inspect`: of the held-out text, of `data`, or of `text`, which is one document.

        A run that comes with the package, without its text, generates one.

        >>> specimens = sw.load("runs/lstm").specimens(text="the cat sat")
        >>> specimens.at(0).pieces[1:4]
        ('t', 'h', 'e')
        """
        source, backwards = "the held-out text", self.spec.data.direction == "reverse"
        if text is not None:
            source = "the given text"
        elif data is None and is_shipped(self.path):
            text, source = self.generate(tokens=_GENERATED, sampling=Sampling(seed=0)), "a text that the model wrote"
        edge = self.tokenizer.end_id  # between the documents of a stream
        if text is not None:
            tokens_T, edge = self._tokens(text, first=True)[0].cpu(), self.begin_id
        else:
            tokens = self._split(data).tokens[: _HELD_OUT + 1 if data is None else None]
            tokens_T = torch.from_numpy(tokens.astype(np.int64))
            source = source if data is None else source_name(data)
        if len(tokens_T) < 3:
            raise UserError(f"{source} has {len(tokens_T) - 1} tokens", fix="give a longer text")
        return TextSpecimens(
            self.model,
            tokens_T,
            end_id=edge,
            decode=self.tokenizer.decode,
            source=source,
            backwards=backwards,
            window=fresh_window(self.spec),
        )

    def answers(self) -> Answers:
        data, tokenizer = self.spec.data, self.tokenizer
        backwards = data.direction == "reverse"
        held = open_corpus(data, tokenizer=tokenizer).validation.tokens[: 64 * _SNIPPET].tolist()
        text = first_text(held, tokenizer, characters=_SNIPPET, backwards=backwards)
        prompt = text[-_PROMPT:] if backwards else text[:_PROMPT]
        ids = self.write(prompt, sampling=Sampling(seed=0))
        sample = generated_pieces(self.model, tokenizer, prompt, ids, begin_id=self.begin_id, backwards=backwards)
        window = fresh_window(self.spec)
        surprise = text_pieces(self.model, tokenizer, text, begin_id=self.begin_id, window=window, backwards=backwards)
        return Answers(sample=Sample(prompt, sample, surprise))

    def portable(self) -> Portable:
        settings = {
            "vocab": self.tokenizer.vocab,
            "end_id": self.tokenizer.end_id,
            "never": list(self._never),
            "reverse": self.spec.data.direction == "reverse",
            "context": longest_context(self.model),
        }
        files: dict[str, str | bytes] = {"tokenizer.json": self.tokenizer.to_json()}
        if isinstance(self.model, CountingMachine):  # as a table too, for whoever wants no graph
            counts = io.BytesIO()
            np.savez(counts, **{name: value.cpu().numpy() for name, value in self.model.state_dict().items()})
            files |= {"counts.npz": counts.getvalue(), "counts.json": self.spec.model.model_dump_json(indent=1)}
        return Portable(settings, files, machine=self.model, start=self.begin(), weights=weights_sha256(self.model))

    def decode_speed(self) -> float | None:
        sampling = Sampling(seed=0)
        _, at = extend(self.model, self.begin(), sampling, tokens=_WARM)
        return tokens_per_second(lambda: extend(self.model, at, sampling, tokens=_TIMED)[0].shape[1], self.device)

    def _split(self, data: Data | None) -> Split:
        if data is None:
            self._refuse_without_text()
            return open_corpus(self.spec.data, tokenizer=self.tokenizer).validation
        with as_files(self.spec, data) as files:
            return encode_files(files.paths, self.tokenizer, spec=files.data)

    def _refuse_without_text(self) -> None:
        if is_shipped(self.path):
            name = Path(self.spec.data.text[0]).name
            raise UserError(
                f"{self.path.name} comes without the text it learned from ({name})",
                fix=f"give a text: {option('data', 'FILE')}",
            )

    def begin(self, prompt: str = "") -> Continuation:
        """Read a prompt as the start of a document. Returns a continuation: the state, and the last token.

        >>> run = sw.load("runs/lstm")
        >>> start = run.begin("the cat")
        >>> pieces = [piece for piece, at in run.stream(tokens=5, start=start)]
        """
        at = begin(self.model, self._tokens(prompt, first=True), vocab=self.tokenizer.vocab)
        at.seen_BV[:, self.begin_id] = False  # where a document begins: no word that could be repeated
        return at

    def read(self, at: Continuation, text: str) -> Continuation:
        """Read more text from a continuation. Returns the continuation after it.

        >>> run = sw.load("runs/lstm")
        >>> at = run.read(run.begin("the cat"), " sat on")
        >>> int(at.position_B)  # characters read
        14
        """
        return read(self.model, at, self._tokens(text, first=False)) if text else at

    def _tokens(self, text: str, *, first: bool) -> torch.Tensor:
        if not isinstance(text, str):
            raise UserError(f"the text is {text!r}, expected a string")
        ids = [int(token) for token in self.tokenizer.encode(text)]
        if self.spec.data.direction == "reverse":
            ids.reverse()
        return torch.tensor([[self.begin_id] * first + ids], device=self.device)

    def stream(
        self,
        prompt: str = "",
        *,
        tokens: int = _TOKENS,
        sampling: Sampling | None = None,
        stop: Sequence[str] = (),
        start: Continuation | None = None,
    ) -> Iterator[tuple[str, Continuation]]:
        """Generate text piece by piece; each comes with the continuation after it, which can be saved.

        Ends after `tokens` tokens, at the end of the document, or at a stop string. With `start`, the text goes on
        from a continuation. A model that reads in reverse yields the last piece first.

        >>> run = sw.load("runs/lstm")
        >>> for piece, at in run.stream("the ", tokens=3, stop=["."]):
        ...     assert isinstance(piece, str)
        """
        if tokens < 0:
            raise UserError(f"tokens = {tokens} is not valid, expected 0 or more")
        at = self.begin(prompt) if start is None else self.read(start, prompt)
        shown = [token for token in at.tail_BK[0].tolist() if token >= 0]
        text = TextStream(self.tokenizer.decode, before=shown, stop=stop, pieces=self.tokenizer.pieces)
        source = generate(self.model, at, sampling or Sampling(), never=self._never)
        for _ in range(tokens):
            token_B, at = next(source)
            if int(token_B) == self.tokenizer.end_id:
                break
            yield text.feed(int(token_B)), at
            if text.stopped:
                return
        yield text.finish(), at

    generation = text_generation

    def _generate(self, prompt: str, tokens: int | None, sampling: Sampling, stop: Sequence[str]) -> str:
        """The text that follows the prompt, or precedes it for a model that reads in reverse."""
        tokens = _TOKENS if tokens is None else tokens
        if self.spec.data.direction == "reverse":
            return self.tokenizer.decode(self.write(prompt, tokens=tokens, sampling=sampling)[::-1])
        return "".join(piece for piece, _ in self.stream(prompt, tokens=tokens, sampling=sampling, stop=stop))

    def write(self, prompt: str = "", *, tokens: int = _TOKENS, sampling: Sampling | None = None) -> list[int]:
        """The numbers of the tokens that follow the prompt, without the end of the document.

        >>> run = sw.load("runs/lstm")
        >>> text = run.tokenizer.decode(run.write("the cat", tokens=5))
        """
        ids: list[int] = []
        source = generate(self.model, self.begin(prompt), sampling or Sampling(), never=self._never)
        for _ in range(tokens):
            token_B, _ = next(source)
            if int(token_B) == self.tokenizer.end_id:
                break
            ids.append(int(token_B))
        return ids

    def save_state(self, at: Continuation, path: str | Path) -> None:
        """Write a continuation to a file, to go on with its text later.

        >>> run = sw.load("runs/lstm")
        >>> run.save_state(run.begin("the cat"), "later.safetensors")
        """
        write_file(Path(path), self.pack(at))

    def pack(self, at: Continuation, *, weights: str | None = None) -> bytes:
        """The content of the file that `save_state` writes; with the sha256 of the weights, where it is known.

        >>> run = sw.load("runs/lstm")
        >>> at = run.unpack(run.pack(run.begin("the cat")))
        """
        return pack_state(at, weights=weights or weights_sha256(self.model))

    def unpack(self, content: bytes, *, weights: str | None = None) -> Continuation:
        """A continuation out of the content of a file, which may come from anybody: refused if it does not fit.

        >>> run = sw.load("runs/lstm")
        >>> int(run.unpack(run.pack(run.begin("the cat"))).position_B)
        7
        """
        weights = weights or weights_sha256(self.model)
        at = unpack_state(content, like=self.begin(), weights=weights, strict=True)
        if problem := self._problem(at):
            raise UserError(f"the state does not fit: {problem}", fix="save it again, with the model that continues")
        return at

    def load_state(self, path: str | Path) -> Continuation:
        """Read a continuation that `save_state` wrote; the text goes on exactly as it would have.

        It belongs to the weights that it was saved with: another model's is refused.

        >>> run = sw.load("runs/lstm")
        >>> run.save_state(run.begin("the cat"), "later.safetensors")
        >>> later = run.load_state("later.safetensors")
        >>> [p for p, _ in run.stream(tokens=5, start=later)] == [p for p, _ in run.stream("the cat", tokens=5)]
        True
        """
        at = load_state(path, like=self.begin(), weights=weights_sha256(self.model))
        if problem := self._problem(at):
            raise UserError(f"{str(path)!r}: {problem}", fix="save it again, with the model that continues")
        return at

    def _problem(self, at: Continuation) -> str:
        """What no continuation of this model can hold; a file can hold anything."""
        if len(at.token_B) != 1:
            return f"it holds {len(at.token_B)} texts, expected 1"
        token, position, vocab = int(at.token_B), int(at.position_B), self.tokenizer.vocab
        if not 0 <= token < vocab:
            return f"token {token} is not in the vocabulary, expected 0 to {vocab - 1}"
        if not 0 <= position < _LONGEST:
            return f"position {position} is not valid, expected 0 or more"
        if not bool(((at.tail_BK >= -1) & (at.tail_BK < vocab)).all()):
            return f"its last tokens are not all in the vocabulary of {vocab}"
        return state_problem(at.state, initial=self.model.init_state(1), read=position % STREAM)
