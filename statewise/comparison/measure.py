"""What is said of a trained run besides its figures: what it took to learn, what it costs to remember and to write.

T time, V vocabulary.
"""

import math
import resource
import sys
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import torch
from torch.nn import functional as F

from statewise.comparison.record import read_lines
from statewise.comparison.trial import Point
from statewise.data import open_corpus
from statewise.decoding import Sampling, TextStream, extend
from statewise.specs import UserError
from statewise.tasks import LanguageModelRun, Run
from statewise.tasks.language_model import fresh_window
from statewise.training.journal import read_metrics

BACKWARD = 2  # what a gradient costs, in forward passes: one product gives two
_SNIPPET = 240  # characters of held-out text whose surprise is shown
_PROMPT = 32  # of these, what a sample goes on from
_SAMPLE = 200  # tokens
_WARM, _WRITTEN = 8, 64  # tokens that are written before the clock runs, and under it
_SEED = 0


class Session(NamedTuple):
    """One time that a trial was worked on: where it began."""

    step: int
    tokens: int


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


def clock(run: Path, sessions: Sequence[Session]) -> Clock:
    """From what the run wrote down. A speed in `timing.jsonl` is the mean since the session began."""
    speeds = {line["step"]: line["tokens_per_second"] for line in read_lines(run / "timing.jsonl")}
    known = [line for line in read_metrics(run) if "tokens" in line and line["step"] in speeds]
    found = Clock([], [], [])
    begun = [*(sessions or [Session(0, 0)]), Session(sys.maxsize, sys.maxsize)]
    seconds, speed = 0.0, 0.0  # when the session began; how fast the one before was
    for number, (session, following) in enumerate(pairwise(begun)):
        mine = [line for line in known if session.step < line["step"] <= following.step]
        for line in mine:
            found.steps.append(line["step"])
            found.tokens.append(line["tokens"])
            found.seconds.append(seconds + (line["tokens"] - session.tokens) / max(speeds[line["step"]], 1e-9))
        speed = speeds[mine[-1]["step"]] if mine else speed
        if number < len(begun) - 2 and speed > 0:  # what came after the checkpoint was done again, and counts once
            seconds += max(0, following.tokens - session.tokens) / speed
    return found


def curve(run: Path, *, metric: str, at: Clock, flops_per_token: float | None) -> list[Point]:
    """The validation figure along training. Without a formula for the products, `flops` is 0 all along."""
    points = []
    for line in read_metrics(run):
        figure = line.get(f"validation_{metric}")
        if isinstance(figure, float | int) and math.isfinite(figure):
            tokens, seconds = at.at(line["step"])
            flops = tokens * (flops_per_token or 0.0) * (1 + BACKWARD)
            points.append(Point(line["step"], tokens, seconds, flops, float(figure)))
    return points


def figures_of(run: Run, *, metric: str) -> dict[str, float]:
    """The evaluation's figures that are finite numbers; that of the study must be among them."""
    found = {
        name: float(value)
        for name, value in run.evaluate()._asdict().items()
        if isinstance(value, float | int) and not isinstance(value, bool) and math.isfinite(value)
    }
    if metric not in found:
        raise UserError(
            f"the metric {metric!r} is not among the finite figures of this {run.spec.task} run: {', '.join(found)}",
            fix="name one of them as the study's `metric`",
        )
    return found


def flops_of(run: Run) -> float | None:
    """Of one token of a language model, read in training: the mean over the window, by the spec's formula."""
    if not isinstance(run, LanguageModelRun):
        return None
    window = run.spec.train.window_tokens()
    vocab = run.tokenizer.vocab
    first, last = (run.spec.model.forward_flops(vocab, context) for context in (0, window - 1))
    return (first + last) / 2


def decode_speed(run: Run) -> float | None:
    """Tokens a second that one text is written at."""
    if not isinstance(run, LanguageModelRun):
        return None
    _, at = extend(run.model, run.begin(""), Sampling(seed=_SEED), tokens=_WARM)
    _wait_for(run.device)
    began = time.perf_counter()
    extend(run.model, at, Sampling(seed=_SEED), tokens=_WRITTEN)
    _wait_for(run.device)
    return _WRITTEN / max(time.perf_counter() - began, 1e-9)


class Shown(NamedTuple):
    """What a language model writes, and how surprised it is by a text it never saw."""

    sample: str
    surprise: list[tuple[str, float]]


def shown(run: Run) -> Shown | None:
    if not isinstance(run, LanguageModelRun):
        return None
    snippet = held_out_snippet(run)
    prompt = snippet[-_PROMPT:] if run.spec.data.direction == "reverse" else snippet[:_PROMPT]
    written = run.generate(prompt, tokens=_SAMPLE, sampling=Sampling(seed=_SEED))
    return Shown(written, surprise(run, snippet))


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
    """Pieces of the text in reading order, each with the nats it cost; half characters wait for their other half."""
    ids = [int(token) for token in run.tokenizer.encode(text)]
    if not ids:
        return []
    backwards = run.spec.data.direction == "reverse"
    tokens_T = torch.tensor([run.tokenizer.end_id, *(ids[::-1] if backwards else ids)], device=run.device)
    # As it is evaluated: who never learned beyond a window is not asked what lies beyond it.
    window = fresh_window(run.spec) or len(tokens_T)
    logits_TV = torch.cat([run.model(part_T[None], None)[0][0] for part_T in torch.split(tokens_T[:-1], window)])
    nats = F.cross_entropy(logits_TV.float(), tokens_T[1:], reduction="none").tolist()
    stream, pieces, pending = TextStream(run.tokenizer.decode), [], 0.0
    for token, cost in zip(ids, reversed(nats) if backwards else nats):
        piece, pending = stream.feed(token), pending + cost
        if piece:
            pieces.append((piece, pending))
            pending = 0.0
    if pending:
        pieces.append((stream.finish(), pending))
    return pieces


def peak_bytes(device: torch.device) -> int:
    """The most memory that was taken: on a GPU its tensors, otherwise all of the process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
