"""A trained folder, opened: the one noun of the command line, as a Python object."""

import html
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from statewise.core import load_state, save_state
from statewise.data import Split, Tokenizer, encode_files, open_corpus
from statewise.decoding import Continuation, Sampling, TextStream, begin, generate, read
from statewise.models import CountingMachine, TokenMachine, build
from statewise.specs import RunSpec, UserError
from statewise.tasks.language_model import Evaluation, evaluate, fresh_window
from statewise.training.checkpoint import read_tensors, vouched_for
from statewise.training.device import pick_device
from statewise.training.folder import find_published, load_weights

NEEDS = ("run.toml", "tokenizer.json", "unigram.safetensors", "model.safetensors")


class Run:
    """`run = statewise.load("runs/lstm")`, then `run.generate(...)`, `run.evaluate()`, `run.model`."""

    def __init__(
        self,
        path: Path,
        *,
        spec: RunSpec,
        tokenizer: Tokenizer,
        model: TokenMachine[Any],
        train_counts_V: np.ndarray[Any, np.dtype[np.int64]],
        skipped: Sequence[str] = (),
    ) -> None:
        self.path = path
        self.spec = spec
        self.tokenizer = tokenizer
        self.model = model.eval()
        self.train_counts_V = train_counts_V
        self.skipped = list(skipped)  # damaged parts that were passed over

    @property
    def device(self) -> torch.device:
        return self.model.like.device

    @property
    def _never(self) -> tuple[int, ...]:
        """The unknown token stands for what cannot be written."""
        return () if self.tokenizer.unknown_id is None else (self.tokenizer.unknown_id,)

    def evaluate(self, text: str | Path | Sequence[str] | None = None) -> Evaluation:
        """On `text` (files or folders), or on the part of the corpus that was held out of training."""
        return evaluate(
            self.model,
            self._split(text),
            end_id=self.tokenizer.end_id,
            vocab=self.tokenizer.vocab,
            train_counts_V=self.train_counts_V,
            fresh=fresh_window(self.spec),
        )

    def _split(self, text: str | Path | Sequence[str] | None) -> Split:
        data = self.spec.data
        if text is None:
            return open_corpus(data, tokenizer=self.tokenizer).validation
        paths = [str(text)] if isinstance(text, str | Path) else [str(path) for path in text]
        return encode_files(paths, self.tokenizer, separator=data.separator, direction=data.direction)

    def begin(self, prompt: str = "") -> Continuation:
        """Read a prompt as the beginning of a document."""
        return begin(self.model, self._tokens(prompt, first=True), vocab=self.tokenizer.vocab)

    def read(self, at: Continuation, text: str) -> Continuation:
        """Go on from `at` with a given text."""
        return read(self.model, at, self._tokens(text, first=False)) if text else at

    def _tokens(self, text: str, *, first: bool) -> torch.Tensor:
        ids = [int(token) for token in self.tokenizer.encode(text)]
        if self.spec.data.direction == "reverse":
            ids.reverse()
        return torch.tensor([[self.tokenizer.end_id] * first + ids], device=self.device)

    def stream(
        self,
        prompt: str = "",
        *,
        tokens: int = 200,
        sampling: Sampling | None = None,
        stop: Sequence[str] = (),
        start: Continuation | None = None,
    ) -> Iterator[tuple[str, Continuation]]:
        """New text piece by piece, each with the continuation from which the text could go on.

        Ends after `tokens` tokens, at the end of the document, or at a stop string. The pieces of a
        model that reads in reverse come in the order it writes them: from the end.
        """
        if tokens < 0:
            raise UserError(f"tokens = {tokens} is not valid, expected 0 or more")
        at = self.begin(prompt) if start is None else self.read(start, prompt)
        shown = [token for token in at.tail_BK[0].tolist() if token >= 0]
        text = TextStream(self.tokenizer.decode, before=shown, stop=stop)
        source = generate(self.model, at, sampling or Sampling(), never=self._never)
        for _ in range(tokens):
            token_B, at = next(source)
            if int(token_B) == self.tokenizer.end_id:
                break
            yield text.feed(int(token_B)), at
            if text.stopped:
                return
        yield text.finish(), at

    def generate(
        self,
        prompt: str = "",
        *,
        tokens: int = 200,
        sampling: Sampling | None = None,
        stop: Sequence[str] = (),
    ) -> str:
        """The text that follows the prompt (before it, for a model that reads in reverse)."""
        if self.spec.data.direction == "reverse":
            return self._generate_backwards(prompt, tokens=tokens, sampling=sampling)
        return "".join(piece for piece, _ in self.stream(prompt, tokens=tokens, sampling=sampling, stop=stop))

    def _generate_backwards(self, prompt: str, *, tokens: int, sampling: Sampling | None) -> str:
        ids: list[int] = []
        source = generate(self.model, self.begin(prompt), sampling or Sampling(), never=self._never)
        for _ in range(tokens):
            token_B, _ = next(source)
            if int(token_B) == self.tokenizer.end_id:
                break
            ids.append(int(token_B))
        return self.tokenizer.decode(ids[::-1])

    def save_state(self, at: Continuation, path: str | Path) -> None:
        save_state(at, path)

    def load_state(self, path: str | Path) -> Continuation:
        return load_state(path, like=self.begin())

    def __repr__(self) -> str:
        model = self.spec.model
        sizes = "".join(f", {name} {size}" for name, size in model.sizes().items())
        return f"Run({str(self.path)!r}: {model.kind}{sizes})"

    def _repr_html_(self) -> str:
        model = self.spec.model
        cells = {
            "run": self.path,
            "model": model.kind,
            **model.sizes(),
            "vocabulary": self.tokenizer.vocab,
            "parameters": sum(p.numel() for p in self.model.parameters()),
        }
        head = "".join(f"<th>{html.escape(str(name))}</th>" for name in cells)
        body = "".join(f"<td>{html.escape(str(value))}</td>" for value in cells.values())
        return f"<table><tr>{head}</tr><tr>{body}</tr></table>"


def load(path: str | Path, *, device: str = "auto") -> Run:
    """Open a run folder. Every byte is checked first; a damaged top falls back to a verified checkpoint."""
    path = Path(path)
    found = find_published(path, needs=NEEDS)
    spec = read_spec(found.path)
    tokenizer = Tokenizer.load(found.path / "tokenizer.json")
    refuse_other_size(spec, tokenizer, found.path)
    model = build(spec.model, vocab=tokenizer.vocab, seed=spec.seed)
    averaged = vouched_for(found.path, "average.safetensors")
    weights = found.path / ("average.safetensors" if averaged else "model.safetensors")
    if isinstance(model, CountingMachine):  # how much it holds is known to the file alone
        model.adopt(read_tensors(weights))
    else:
        load_weights(model, weights)
    counts = read_tensors(found.path / "unigram.safetensors").get("counts_V")
    if counts is None or counts.shape != (tokenizer.vocab,) or counts.dtype != torch.int64:
        raise UserError(f"{str(found.path)!r}: unigram.safetensors does not fit the tokenizer")
    return Run(
        path,
        spec=spec,
        tokenizer=tokenizer,
        model=model.to(pick_device(device)),
        train_counts_V=counts.numpy(),
        skipped=found.skipped,
    )


def read_spec(folder: Path) -> RunSpec:
    path = folder / "run.toml"
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # ValueError: not TOML, not UTF-8, or a number without end
        raise UserError(f"{str(path)!r} is not valid TOML: {error}") from None
    return RunSpec.parse(table, source=str(path))


def refuse_other_size(spec: RunSpec, tokenizer: Tokenizer, folder: Path) -> None:
    """Before memory is taken: the weights file must be about as large as the model it claims to be."""
    if spec.model.learns == "counting":  # what was counted takes as much memory as the file that holds it
        return
    size = (folder / "model.safetensors").stat().st_size
    depth = spec.model.sizes()["depth"]
    if depth > size:  # counting the parameters of so many layers would itself take memory
        raise UserError(f"{str(folder)!r}: run.toml describes {depth:,} layers, the file has {size:,} bytes")
    parameters = spec.model.num_parameters(tokenizer.vocab)
    if not 4 * parameters <= size <= 4 * parameters + (1 << 20):
        raise UserError(
            f"{str(folder)!r}: run.toml describes a model of {parameters:,} parameters, "
            f"model.safetensors has {size:,} bytes"
        )
