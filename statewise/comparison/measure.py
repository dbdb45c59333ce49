"""What is said of a trained run besides its figures: what it took to learn, what it costs to remember and to write.

T time, V vocabulary.
"""

import math
import resource
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

import torch
from torch import nn
from torch.nn import functional as F

from statewise.comparison.record import read_lines
from statewise.comparison.trial import COSTS, TRAINING_FLOPS, Point
from statewise.data import open_corpus
from statewise.decoding import Sampling, TextStream, extend
from statewise.specs import UserError
from statewise.tasks import LanguageModelRun, Run
from statewise.tasks.language_model import fresh_window
from statewise.tasks.translation import TranslationRun, read_split
from statewise.training import read_metrics

_SNIPPET = 240  # characters of held-out text whose surprise is shown
_PROMPT = 32  # of these, what a sample goes on from
_SAMPLE = 200  # tokens
_WARM, _WRITTEN = 8, 64  # tokens that are written before the clock runs, and under it
_SEED = 0
_WRITTEN_TEXTS = 8  # of a translator, under the clock
_PER_TOKEN = ("nats", "nats_per_token", "perplexity", "bits_per_byte")  # one figure, said in four ways
_SHARES = ("accuracy", "root_accuracy", "node_accuracy")
_KNOWS_LITTLE = {
    "uniform": "blind guess",
    "majority": "most frequent class",
    "unigram": "token frequencies",
    "lexicon": "tag by word alone",
}
_WRITES_LITTLE = {"copy": "source copied", "frequent": "one fixed target"}


class Clock(NamedTuple):
    """Seconds of training at steps where they are known, without evaluation and saving."""

    steps: list[int]
    tokens: list[int]
    seconds: list[float]

    def at(self, step: int) -> tuple[int, float]:
        """Tokens and seconds after so many steps; between two known places, on the line."""
        places = [(0, 0, 0.0), *zip(self.steps, self.tokens, self.seconds)]
        before = max((place for place in places if place[0] <= step), key=lambda place: place[0])
        after = min((place for place in places if place[0] >= step), key=lambda place: place[0], default=before)
        share = 0.0 if after[0] == before[0] else (step - before[0]) / (after[0] - before[0])
        tokens = round(before[1] + share * (after[1] - before[1]))
        return tokens, before[2] + share * (after[2] - before[2])


def clock(run: Path) -> Clock:
    """From what the run wrote down: `metrics.jsonl` has the tokens, `timing.jsonl` the seconds over all sessions."""
    taken = {line["step"]: line["seconds"] for line in read_lines(run / "timing.jsonl") if "seconds" in line}
    known = [line for line in read_metrics(run) if "tokens" in line and line["step"] in taken]
    steps = [line["step"] for line in known]
    return Clock(steps, [line["tokens"] for line in known], [taken[step] for step in steps])


def curve(run: Path, *, metric: str, at: Clock, flops_per_token: float) -> list[Point]:
    """The validation figure along training. Whoever counts does no products: `flops` is 0 all along."""
    points = []
    for line in read_metrics(run):
        figure = line.get(f"validation_{metric}")
        if isinstance(figure, float | int) and math.isfinite(figure):
            tokens, seconds = at.at(line["step"])
            flops = tokens * flops_per_token * TRAINING_FLOPS
            points.append(Point(line["step"], tokens, seconds, flops, float(figure)))
    return points


def watched(run: Path, *, metric: str, at: Clock, flops_per_token: float) -> dict[str, list[Point]]:
    """The other validation figures, each as a curve; what is the metric's own under another name is left out."""
    own = curve(run, metric=metric, at=at, flops_per_token=flops_per_token)
    names = {name.removeprefix("validation_") for line in read_metrics(run) for name in line if _is_validation(name)}
    same = _PER_TOKEN if metric in _PER_TOKEN else ()
    found = {
        name: curve(run, metric=name, at=at, flops_per_token=flops_per_token)
        for name in sorted(names - {metric, *same})
    }
    return {name: points for name, points in found.items() if points and points != own}


def _is_validation(name: str) -> bool:
    return name.startswith("validation_")


def figures_of(evaluation: Mapping[str, Any]) -> dict[str, float]:
    """The evaluation's figures that are finite numbers."""
    return {name: float(value) for name, value in evaluation.items() if _finite(value)}


def anchors(evaluation: Mapping[str, Any], metric: str) -> dict[str, float]:
    """What has learned next to nothing gets of a metric: the evaluation has it beside the model's own."""
    found: dict[str, Any] = {}
    for name, words in _KNOWS_LITTLE.items():
        plain = evaluation.get(f"{name}_{metric}")
        found[words] = evaluation.get(f"{name}_accuracy") if plain is None and metric in _SHARES else plain
    for name, words in _WRITES_LITTLE.items():
        found[words] = (evaluation.get(name) or {}).get(metric)
    for name, table in (evaluation.get("baselines") or {}).items():
        found[name] = table.get(metric)
    if metric == "bits_per_byte":
        tokens = evaluation["tokens"] / evaluation["bytes"]
        found |= {
            words: math.log2(evaluation[f"{name}_perplexity"]) * tokens
            for name, words in _KNOWS_LITTLE.items()
            if _finite(evaluation.get(f"{name}_perplexity"))
        }
    return {words: float(value) for words, value in found.items() if _finite(value)}


def _finite(value: object) -> TypeGuard[float]:
    return isinstance(value, float | int) and not isinstance(value, bool) and math.isfinite(value)


def costs(state_bytes: Mapping[int, int], seconds: Mapping[int, float] | None, *, context: int) -> dict[str, float]:
    """The figures that any run has, after so many tokens; what was not measured there is left out."""
    found = {"state_bytes": state_bytes.get(context), "milliseconds_per_token": (seconds or {}).get(context)}
    assert found.keys() == set(COSTS)
    each = {"state_bytes": 1.0, "milliseconds_per_token": 1e3}
    return {name: each[name] * value for name, value in found.items() if value is not None}


def refuse_without(metric: str, figures: Mapping[str, float], task: str) -> None:
    if metric not in figures:
        raise UserError(
            f"the metric {metric!r} is not among the finite metrics of this {task} run: {', '.join(figures)}",
            fix="name one of them as the study's `metric`",
        )


def decode_speed(run: Run) -> float | None:
    """Tokens a second that one text is written at."""
    if isinstance(run, TranslationRun):
        return _translation_speed(run)
    if not isinstance(run, LanguageModelRun):
        return None
    _, at = extend(run.model, run.begin(""), Sampling(seed=_SEED), tokens=_WARM)
    _wait_for(run.device)
    began = time.perf_counter()
    extend(run.model, at, Sampling(seed=_SEED), tokens=_WRITTEN)
    _wait_for(run.device)
    return _WRITTEN / max(time.perf_counter() - began, 1e-9)


def _translation_speed(run: TranslationRun) -> float | None:
    """One source after the other, as the study decodes."""
    sources = read_split(run.spec.data, seed=run.spec.seed)[1].sources[: _WRITTEN_TEXTS + 1]
    if len(sources) < 2:
        return None
    run.translate(sources[0])
    _wait_for(run.device)
    began = time.perf_counter()
    written = [next(run.hypotheses([source]))[0] for source in sources[1:]]
    _wait_for(run.device)
    tokens = sum(len(one.tokens) for one in written)
    return tokens / max(time.perf_counter() - began, 1e-9) if tokens else None


class Shown(NamedTuple):
    """What a language model writes, and how surprised it is by a text it never saw."""

    prompt: str
    sample: list[tuple[str, float]]  # pieces, each with the nats it cost when it was written
    surprise: list[tuple[str, float]]


def shown(run: Run) -> Shown | None:
    if not isinstance(run, LanguageModelRun):
        return None
    snippet = held_out_snippet(run)
    prompt = snippet[-_PROMPT:] if run.spec.data.direction == "reverse" else snippet[:_PROMPT]
    return Shown(prompt, sample(run, prompt), surprise(run, snippet))


@torch.no_grad()
def sample(run: LanguageModelRun, prompt: str) -> list[tuple[str, float]]:
    """What follows the prompt, in reading order. Nothing is cut here: it was written with all of it in mind."""
    backwards = run.spec.data.direction == "reverse"
    written = run.write(prompt, tokens=_SAMPLE, sampling=Sampling(seed=_SEED))
    if not written:
        return []
    before = [int(token) for token in run.tokenizer.encode(prompt)]
    ids = [run.tokenizer.end_id, *(before[::-1] if backwards else before), *written]
    tokens_T = torch.tensor(ids, device=run.device)
    logits_TV = run.model(tokens_T[None, :-1], None)[0][0, -len(written) :]
    nats = F.cross_entropy(logits_TV.float(), tokens_T[-len(written) :], reduction="none").tolist()
    if backwards:
        return _pieces(TextStream(run.tokenizer.decode), written[::-1], nats[::-1])
    return _pieces(TextStream(run.tokenizer.decode, before=before), written, nats)


def held_out_snippet(run: LanguageModelRun) -> str:
    """The beginning of the first held-out document that is long enough; the same text for every tokenizer."""
    tokens = open_corpus(run.spec.data, tokenizer=run.tokenizer).validation.tokens[: 64 * _SNIPPET]
    backwards = run.spec.data.direction == "reverse"
    longest = ""
    document: list[int] = []
    for token in [*tokens.tolist(), run.tokenizer.end_id]:
        if token != run.tokenizer.end_id:
            document.append(token)
            continue
        text = run.tokenizer.decode(document[::-1] if backwards else document)
        if len(text) > len(longest):
            longest = text
        if len(longest) >= _SNIPPET:
            break
        document = []
    return longest[:_SNIPPET]


@torch.no_grad()
def surprise(run: LanguageModelRun, text: str) -> list[tuple[str, float]]:
    """Pieces of the text in reading order, each with the nats it cost."""
    ids = [int(token) for token in run.tokenizer.encode(text)]
    if not ids:
        return []
    backwards = run.spec.data.direction == "reverse"
    tokens_T = torch.tensor([run.tokenizer.end_id, *(ids[::-1] if backwards else ids)], device=run.device)
    # As it is evaluated: who never learned beyond a window is not asked what lies beyond it.
    window = fresh_window(run.spec) or len(tokens_T)
    logits_TV = torch.cat([run.model(part_T[None], None)[0][0] for part_T in torch.split(tokens_T[:-1], window)])
    nats = F.cross_entropy(logits_TV.float(), tokens_T[1:], reduction="none").tolist()
    return _pieces(TextStream(run.tokenizer.decode), ids, nats[::-1] if backwards else nats)


def _pieces(stream: TextStream, ids: Sequence[int], nats: Sequence[float]) -> list[tuple[str, float]]:
    """Half characters wait for their other half."""
    pieces, pending = [], 0.0
    for token, cost in zip(ids, nats, strict=True):
        piece, pending = stream.feed(token), pending + cost
        if piece:
            pieces.append((piece, pending))
            pending = 0.0
    if pending:
        pieces.append((stream.finish(), pending))
    return pieces


def model_bytes(model: nn.Module) -> int:
    """Everything a model needs to predict: parameters and saved buffers, so a Markov model's count tables too.

    >>> model_bytes(nn.Linear(3, 2))
    32
    """
    return sum(tensor.numel() * tensor.element_size() for tensor in model.state_dict().values())


def peak_bytes(device: torch.device) -> int:
    """The most memory that was taken: on a GPU its tensors, otherwise all of the process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
