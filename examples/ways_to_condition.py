"""Every way to condition a decoder on its source, at equal size, on copying and reversing.

python examples/ways_to_condition.py [--steps N] [--parameters N] [--cases N]
"""

import argparse
import itertools
import time
from bisect import bisect_left
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from statewise.decoding import greedy
from statewise.models import ConditionalMachine, build_seq2seq, num_parameters
from statewise.specs import GRUSpec, Seq2SeqSpec

SYMBOLS, LONGEST = 8, 8
START, END = SYMBOLS, SYMBOLS + 1
VOCAB = SYMBOLS + 2
CONTEXTS = ("initial", "each_step", "both", "attention")


class Pairs(NamedTuple):
    source_BS: Tensor
    lengths_B: Tensor
    target_BT: Tensor  # the end symbol from its end on


def pairs(task: str, batch: int, generator: torch.Generator) -> Pairs:
    """Random sources of 4 to LONGEST symbols, and what is to be written of them."""
    lengths_B = torch.randint(4, LONGEST + 1, (batch,), generator=generator)
    source_BS = torch.randint(SYMBOLS, (batch, LONGEST), generator=generator)
    at_S = torch.arange(LONGEST)
    from_BS = (lengths_B[:, None] - 1 - at_S).clamp(min=0) if task == "reverse" else at_S.expand(batch, -1)
    target_BT = source_BS.gather(1, from_BS).masked_fill(at_S >= lengths_B[:, None], END)
    return Pairs(source_BS, lengths_B, F.pad(target_BT, (0, 1), value=END))


def of_size(parameters: int, **options: Any) -> Seq2SeqSpec:
    """The spec whose size comes nearest, encoder and decoder equally wide."""

    def spec(width: int) -> Seq2SeqSpec:
        side = GRUSpec(width=width, embedding=16)
        return Seq2SeqSpec(encoder=side, decoder=side, **options)

    widths = range(4, 200)
    above = bisect_left(widths, parameters, key=lambda width: size_of(spec(width)))  # sizes grow with the width
    near = widths[max(above - 1, 0) : above + 1]
    return min(map(spec, near), key=lambda one: abs(size_of(one) - parameters))


def size_of(spec: Seq2SeqSpec) -> int:
    return num_parameters(partial(build_seq2seq, spec, source_vocab=VOCAB, target_vocab=VOCAB))


def taught(spec: Seq2SeqSpec, task: str, *, steps: int, seed: int = 0) -> ConditionalMachine[Any]:
    model = build_seq2seq(spec, source_vocab=VOCAB, target_vocab=VOCAB, seed=seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-3)
    rate = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, total_iters=max(1, steps))
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        source_BS, lengths_B, target_BT = pairs(task, 64, generator)
        inputs_BT = F.pad(target_BT[:, :-1], (1, 0), value=START)
        logits_BTV, _ = model(inputs_BT, model.condition(source_BS, lengths_B))
        counts_BT = torch.arange(target_BT.shape[1]) <= lengths_B[:, None]  # what comes after the end teaches nothing
        loss = F.cross_entropy(logits_BTV[counts_BT], target_BT[counts_BT])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        rate.step()
    return model.eval()


@torch.no_grad()
def judged(model: ConditionalMachine[Any], task: str, *, cases: int = 500) -> tuple[float, float]:
    """Shares of tokens and of whole sequences that are right, on pairs it has not seen, written without help."""
    source_BS, lengths_B, target_BT = pairs(task, cases, torch.Generator().manual_seed(99))
    state = model.condition(source_BS, lengths_B)
    written = greedy(model, state, start_id=START, end_id=END, max_length=LONGEST, never=(START,))
    right, tokens, whole = 0, 0, 0
    for hypothesis, target, length in zip(written, target_BT.tolist(), lengths_B.tolist(), strict=True):
        said = [*hypothesis.tokens, *[END] * (LONGEST + 1)][: length + 1]
        hits = sum(a == b for a, b in zip(said, target, strict=False))
        right, tokens, whole = right + hits, tokens + length + 1, whole + (hits == length + 1)
    return right / tokens, whole / cases


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--steps", type=int, default=300, help="optimiser steps for each model")
    options.add_argument("--cases", type=int, default=500, help="pairs each model is judged on")
    options.add_argument("--parameters", type=int, default=20_000, help="size of each model, as near as widths allow")
    chosen = options.parse_args()
    began = time.monotonic()
    print("| context | source | output edges | parameters | copy: token | exact | reverse: token | exact |")
    print("|---|---|---|---|---|---|---|---|")
    for context, source, edges in itertools.product(CONTEXTS, ("last", "mean"), (True, False)):
        spec = of_size(chosen.parameters, context=context, source=source, output_edges=edges)
        figures = []
        for task in ("copy", "reverse"):
            figures += judged(taught(spec, task, steps=chosen.steps), task, cases=chosen.cases)
        cells = [context, source, "yes" if edges else "no", f"{size_of(spec):,}"]
        print("|", " | ".join(cells + [f"{figure:.3f}" for figure in figures]), "|", flush=True)
    print(f"\n{chosen.steps} steps each; {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
