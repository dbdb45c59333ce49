"""Runs as the data of a page: each model's step graph, weights, first state, tokenizer, and what a lens sees.

B batch, T time, V vocabulary or classes.
"""

import gzip
import io
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib import resources
from typing import Any, final

import torch
from torch import Tensor

from statewise.core import Machine, leaves, unroll
from statewise.data import Tokenizer
from statewise.decoding import Sampling
from statewise.export import step_graph
from statewise.lab.extra import extra as measured
from statewise.lab.graph import lens_of, record_of, state_record
from statewise.lab.onnxruntime import onnx_record
from statewise.models import LINEAGE, Classifier, Markov, TokenMachine, longest_context
from statewise.specs import UserError, from_json
from statewise.tasks import Answer, LanguageModelRun, Run
from statewise.tasks.classification import ClassificationRun

VERSION = 1
_PREPARED = "lineage.json.gz"
_LARGEST = 1 << 24  # bytes of what is prepared, unpacked
_SHOWN = 120  # tokens of a text that a model writes, where the page begins with one
_KNOWN = {row.name: row for row in LINEAGE}

_SCRIPTS = "".join(
    rf"\p{{Script={name}}}" for name in ("Han", "Hiragana", "Katakana", "Thai", "Lao", "Khmer", "Myanmar")
)
_LETTERS = r"\p{L}\p{M}\p{Nd}\p{Pc}"
# As in `statewise.data.tokenizer_training`, in the syntax of JavaScript.
_SPACES = r"\n|<(?=end>)|(?:(?!<end>)\S)+"
_PUNCTUATION = rf"[{_SCRIPTS}]|(?:(?![{_SCRIPTS}])[{_LETTERS}])+|[^{_LETTERS}\s]+|\n"
_UNSPACED = rf"[{_SCRIPTS}\u3000-\u303F\uFF01-\uFF0F\uFF1A-\uFF20\uFF3B-\uFF40\uFF5B-\uFF65]"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def bundle(
    runs: Sequence[Run], exact: bool = False, extra: Mapping[str, Any] | None = None, *, onnx: bool = False
) -> dict[str, Any]:
    """What `page` shows: language models, and classifiers that read a text token by token.

    Weights are float16, or float32 with `exact`, or those of an ONNX model, for a page with a `runtime`. `extra`: what
    other views show, by key; default: measured now.
    """
    models = [
        model_record(run, name=name, computed=onnx_record if onnx else partial(machine_record, exact=exact))
        for run, name in zip(runs, distinct_names(runs))
    ]
    return {"version": VERSION, "models": models, "extra": measured(runs) if extra is None else dict(extra)}


def distinct_names(runs: Sequence[Run]) -> list[str]:
    """Those of their folders; of one name, with their numbers."""
    names = [run.path.name for run in runs]
    twice = [name for name in names if names.count(name) > 1]
    return [f"{name} ({index})" if name in twice else name for index, name in enumerate(names, 1)]


def lineage() -> dict[str, Any]:
    """The bundle that comes with the package: all models of the lineage, trained on one text (`lineage.toml`)."""
    packed = resources.files("statewise.lab").joinpath(_PREPARED).read_bytes()
    with gzip.open(io.BytesIO(packed)) as file:
        prepared: dict[str, Any] = from_json(file.read(_LARGEST).decode())
    return {**prepared, "extra": {**measured(), **prepared["extra"]}}


def model_record(
    run: Run, *, name: str, computed: Callable[[TokenMachine[Any], Any], dict[str, Any]] | None = None
) -> dict[str, Any]:
    """One model of a page. `computed` tells how the page computes the machine; default: by its exported graph."""
    machine, tokenizer, labels = reader_of(run)
    if getattr(run.spec.data, "direction", "forward") == "reverse":
        raise UserError(f"{name!r} reads texts from their end, and the lab reads as one types", fix="leave it out")
    row = _KNOWN.get(run.spec.model.kind)
    first = tokenizer.end_id
    state = machine.init_state(1)
    if isinstance(run, LanguageModelRun):
        begun = run.begin()
        first, state = int(begun.token_B[0]), begun.state
    return {
        "name": name,
        "kind": run.spec.model.kind,
        "family": row.family if row else "your own",
        "year": row.year if row else None,
        "task": run.spec.task,
        "labels": labels,
        "parameters": sum(part.numel() for part in machine.parameters()),
        "tokenizer": tokenizer_record(tokenizer),
        "first": first,
        "context": longest_context(machine),
        "example": run.generate(tokens=_SHOWN, sampling=Sampling(seed=0)) if labels is None else _held_out(run),
        **(computed or machine_record)(machine, state),
    }


def _held_out(run: Run) -> str:
    """A text that a classifier has not learned from; none if its data is gone, for a page does without."""
    with suppress(UserError, OSError):
        return (run.answers().rows or [Answer("", "", "", "")])[0].given[:_SHOWN]
    return ""


def machine_record(machine: TokenMachine[Any], state: Any, *, exact: bool = False) -> dict[str, Any]:
    """What the interpreter computes: graph and weights, or a table; the first state; what can be observed."""
    states = state_record({path: leaf.detach().cpu().numpy() for path, leaf in leaves(state)})
    if isinstance(machine, Markov):
        return {"table": _table(machine), "states": states, "lens": ["markov.known", "markov.probabilities"]}
    made = record_of(step_graph(machine, taps=["*"], marked=True), exact=exact)
    return {**made, "states": states, "lens": lens_of(made["graph"])}


def _table(machine: Markov) -> dict[str, Any]:
    made = machine.tables()
    return {
        "vocab": machine.vocab,
        "order": machine.order,
        "add": machine.add if machine.smoothing == "add-k" else None,
        "discounts": [list(some) for some in machine.discounts],
        "keys": torch.diff(made.key_C, prepend=made.key_C.new_zeros(1)).tolist(),
        "sizes": made.start_C.diff().tolist(),
        "symbols": made.symbol_G.tolist(),
        "counts": made.count_G.tolist(),
    }


def reader_of(run: Run) -> tuple[TokenMachine[Any], Tokenizer, list[str] | None]:
    """The machine over tokens, the tokenizer, and the classes that it chooses from (None: the tokens)."""
    model = run.model
    tokenizer = getattr(run, "tokenizer", None) or getattr(getattr(run, "encoding", None), "tokenizer", None)
    if isinstance(model, TokenMachine) and isinstance(tokenizer, Tokenizer):
        return model, tokenizer, None
    if isinstance(run, ClassificationRun) and isinstance(model, Classifier) and isinstance(tokenizer, Tokenizer):
        forward = model.reader.layers.machine is not None and model.reader.summary == "last"
        if forward:
            return Reading(model, vocab=tokenizer.vocab).eval(), tokenizer, list(run.classes.names)
    raise UserError(
        f"{run.path.name!r} ({run.spec.task}) does not read a text token by token",
        fix="the lab shows language models, and classifiers of texts that read forward and answer at the end",
    )


def tokenizer_record(tokenizer: Tokenizer) -> dict[str, Any]:
    """What `static/tokenizer.js` reads: the kind, the tokens, and where a text is cut."""
    table: dict[str, Any] = from_json(tokenizer.to_json())
    model, cut = table["model"], table.get("pre_tokenizer") or {}
    lower = table.get("normalizer") == {"type": "Lowercase"}
    of_bytes = cut.get("type") == "ByteLevel" and not cut.get("add_prefix_space")
    kind: dict[str, Any]
    match model["type"], bool(model.get("merges")):
        case "BPE", False if not cut:
            kind = {"kind": "char"}
        case "BPE", False if of_bytes and not cut.get("use_regex"):
            kind = {"kind": "byte"}
        case "BPE", _ if of_bytes and cut.get("use_regex"):
            kind = {"kind": "bpe", "split": _GPT2, "merges": [_pair(pair) for pair in model["merges"]]}
        case "WordLevel", _ if cut.get("type") == "Sequence":
            kind = {"kind": "word", "split": _SPACES}
        case "WordLevel", _ if cut.get("type") == "Split":
            kind = {"kind": "word", "split": _PUNCTUATION, "unspaced": _UNSPACED}
        case _:
            kind = {}
    if not kind or (table.get("normalizer") and not lower):
        raise UserError(
            "the lab cannot read texts with this run's tokenizer",
            fix="it knows the tokenizers char, byte, word, wordpunct and bpe; train the run with one of these",
        )
    tokens = [""] * tokenizer.vocab
    for token, number in model["vocab"].items():
        tokens[number] = token
    for added in table.get("added_tokens", ()):
        tokens[added["id"]] = added["content"]
    return {**kind, "tokens": tokens, "unknown": tokenizer.unknown_id, "end": tokenizer.end_id, "lower": lower}


def _pair(pair: Any) -> str:
    return pair if isinstance(pair, str) else " ".join(pair)


@final
class Reading(TokenMachine[Any]):
    """A classifier, asked after every token: `[B, T]` tokens to `[B, T, V]` logits of the classes."""

    def __init__(self, classifier: Classifier, *, vocab: int) -> None:
        super().__init__()
        machine = classifier.reader.layers.machine
        assert machine is not None
        self.machine: Machine[Any] = machine
        self.reader, self.head, self._vocab = classifier.reader, classifier.head, vocab

    @property
    def vocab(self) -> int:
        return self._vocab

    def init_state(self, batch: int) -> Any:
        return self.machine.init_state(batch)

    def forward(self, x: Tensor, state: Any = None, lengths_B: Tensor | None = None) -> tuple[Tensor, Any]:
        return unroll(self.step, x, self.init_state(x.shape[0]) if state is None else state, lengths_B)

    def step(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        vector_BE = self.reader.admit(self.reader.entry(x[:, None]))[:, 0]
        y_BC, state = self.machine.step(vector_BE, state)
        return self.head(y_BC), state
