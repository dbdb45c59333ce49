"""Markov models of characters: our counting and scoring against NLTK's.

    python benchmarks/ngram.py [--characters 10_000_000] [--order 5] [--text FILE] [--nltk 300_000]

Without a text, characters are drawn from a random chain of order 3. NLTK counts and scores only the beginning
of the text; its times are per character, extrapolated to the whole, which is to its advantage: it slows down as it
grows. To score is to compute the probability of the actual character; ours include the whole distribution. Memory is
the peak of this process, before NLTK is imported. `difference` is the largest difference between NLTK's probabilities
and ours, both on that beginning; the grams before a full context, which NLTK does not get, make it slightly larger than
rounding.
"""

import resource
import time
from pathlib import Path

import numpy as np
import torch
from command_line import console, options, positive, readable, write
from numpy.typing import NDArray
from rich.table import Table

from statewise.models import Markov

_SCORED, _SCORED_BY_NLTK, _FEWEST = 200_000, 5, 100


def synthetic(count: int, *, vocab: int = 64, seed: int = 0) -> NDArray[np.int64]:
    """Many chains of order 3 side by side, one after the other: skewed and diverse, as text is."""
    generator = np.random.default_rng(seed)
    chains = 10_000
    choices = generator.integers(vocab, size=(vocab**3, 8))
    weights = np.cumsum(np.array([40, 20, 12, 10, 8, 5, 3, 2]) / 100)
    out = np.empty((chains, -(-count // chains)), dtype=np.int64)
    a, b, c = (generator.integers(vocab, size=chains) for _ in range(3))
    for t in range(out.shape[1]):
        pick = np.searchsorted(weights, generator.random(chains)).clip(max=7)
        a, b, c = b, c, choices[(a * vocab + b) * vocab + c, pick]
        out[:, t] = c
    return out.reshape(-1)[:count]


def read(path: Path, count: int) -> NDArray[np.int64]:
    """The characters of a file as ids, cropped or repeated."""
    points = np.frombuffer(path.read_text(encoding="utf-8").encode("utf-32-le"), dtype="<u4")
    _, ids = np.unique(points, return_inverse=True)
    return np.resize(ids, count)


def beside_nltk(tokens: NDArray[np.int64], order: int) -> tuple[float, float, float]:
    """NLTK's seconds a character to count and to score, and how far its probabilities are from ours."""
    from nltk.lm import KneserNeyInterpolated
    from nltk.util import everygrams

    text = [chr(32 + token) for token in tokens.tolist()]
    model = KneserNeyInterpolated(order + 1, discount=0.75)
    began = time.perf_counter()
    model.fit([everygrams(text, max_len=order + 1)], vocabulary_text=text)
    counted = time.perf_counter() - began
    began = time.perf_counter()
    first = len(text) // 2
    theirs = [model.score(text[at], tuple(text[at - order : at])) for at in range(first, first + _SCORED_BY_NLTK)]
    scored = (time.perf_counter() - began) / _SCORED_BY_NLTK
    ours = Markov(int(tokens.max()) + 1, order=order, lowest="counts")
    ours.count(tokens)
    read = torch.from_numpy(tokens[first - order : first + _SCORED_BY_NLTK])
    with torch.no_grad():
        probabilities_TV = ours(read[None, :-1])[0][0].softmax(-1)[order - 1 :]
    mine = probabilities_TV.gather(1, read[order:, None])[:, 0]
    difference = float((mine - torch.tensor(theirs)).abs().max())
    return counted / len(text), scored, difference


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--characters", type=positive, default=10_000_000)
    parser.add_argument("--order", type=positive, default=5)
    parser.add_argument("--text", type=readable)
    parser.add_argument("--nltk", type=int, default=300_000, help="characters that NLTK counts; 0 leaves it out")
    asked = parser.parse_args()
    if asked.nltk and min(asked.nltk, asked.characters) < _FEWEST:
        parser.error(f"NLTK is compared from {_FEWEST} characters on; 0 leaves it out")
    tokens = read(asked.text, asked.characters) if asked.text else synthetic(asked.characters)

    model = Markov(int(tokens.max()) + 1, order=asked.order)
    began = time.perf_counter()
    model.count(tokens)
    counted = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    held = sum(tensor.numel() * tensor.element_size() for tensor in model.state_dict().values()) / 2**20

    scored = torch.from_numpy(tokens[:_SCORED])
    began, state = time.perf_counter(), None
    with torch.no_grad():
        for piece in scored.split(4096):
            _, state = model(piece[None], state)
    score = (time.perf_counter() - began) / len(scored)

    source = asked.text.name if asked.text else "a synthetic chain"
    table = Table(title=f"{len(tokens):,} characters of {source}, order {asked.order}", title_justify="left")
    for heading in ("", "count, s", "score, µs a character", "counts held, MB", "peak memory, MB"):
        table.add_column(heading, justify="right" if heading else "left")
    held_text = f"{held:.1f} ({len(model.symbol_G):,} counts)"
    table.add_row("statewise", f"{counted:.2f}", f"{1e6 * score:.1f}", held_text, f"{peak:.0f}")
    rows = [{"by": "statewise", "count_s": counted, "score_us": 1e6 * score, "held_MB": held, "peak_MB": peak}]
    if asked.nltk:
        count_each, score_each, difference = beside_nltk(tokens[: asked.nltk], asked.order)
        theirs = count_each * len(tokens)
        table.add_row(f"NLTK, from {min(asked.nltk, len(tokens)):,}", f"{theirs:.0f}", f"{1e6 * score_each:.0f}")
        table.add_row("ratio", f"{theirs / counted:.0f}x", f"{score_each / score:,.0f}x")
        table.caption = f"difference {difference:.0e}"
        rows.append({"by": "NLTK", "count_s": theirs, "score_us": 1e6 * score_each, "difference": difference})
    console().print(table)
    write(asked.json, rows, characters=len(tokens), order=asked.order)


if __name__ == "__main__":
    main()
