"""Cost of one more token after a long context: time of a step, and bytes of state.

    python benchmarks/growth.py                    contexts of 256, 1,024, 4,096, 16,384 and 65,536 tokens
    python benchmarks/growth.py --longest 4096

One row, one layer. The context is read in pieces; then tokens are generated one by one, as `generate` does, into
reserved memory. Medians, in microseconds.
"""

import statistics
import time
from typing import Any

import torch
from command_line import console, options, positive, write
from rich.table import Table

from statewise.core import state_bytes
from statewise.models import build

CONTEXTS = (256, 1024, 4096, 16_384, 65_536)
PIECE, VOCAB = 512, 65
MODELS: dict[str, dict[str, Any]] = {
    "lstm": {"kind": "lstm"},
    "linear_attention": {"kind": "linear_attention"},
    "ttt_linear": {"kind": "ttt_linear"},
    "transformer, window 256": {"kind": "transformer", "window": 256},
    "transformer, 1 kv head": {"kind": "transformer", "heads": 4, "kv_heads": 1},
    "transformer": {"kind": "transformer", "heads": 4},
}


@torch.no_grad()
def measure(options: dict[str, Any], *, width: int, contexts: list[int], steps: int) -> list[tuple[float, int]]:
    """Microseconds of a step and bytes of state after each context."""
    options = dict(options)
    model = build(options.pop("kind"), vocab=VOCAB, width=width, depth=1, **options).eval()
    generator = torch.Generator().manual_seed(0)
    state, read, results = model.init_state(1), 0, []
    for context in contexts:
        while read < context:
            piece_BT = torch.randint(VOCAB, (1, min(PIECE, context - read)), generator=generator)
            _, state = model(piece_BT, state)
            read += piece_BT.shape[1]
        token_B = torch.zeros(1, dtype=torch.int64)
        written, _ = model.reserve(state, steps + 1)
        _, written = model.step_(token_B, written)
        times = []
        for _ in range(steps):
            began = time.perf_counter()
            _, written = model.step_(token_B, written)
            times.append(1e6 * (time.perf_counter() - began))
        results.append((statistics.median(times), state_bytes(state)))
    return results


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--width", type=positive, default=128)
    parser.add_argument("--longest", type=positive, default=CONTEXTS[-1])
    parser.add_argument("--steps", type=positive, default=30)
    asked = parser.parse_args()
    contexts = [context for context in CONTEXTS if context <= asked.longest]
    if not contexts:
        parser.error(f"--longest {asked.longest} is less than the shortest context, {CONTEXTS[0]}")
    title = f"One more token: µs and bytes, width {asked.width}, {torch.get_num_threads()} threads"
    table = Table(title=title, title_justify="left")
    table.add_column("model")
    for context in contexts:
        table.add_column(f"{context:,}", justify="right")
    rows = []
    for name, model in MODELS.items():
        found = measure(model, width=asked.width, contexts=contexts, steps=asked.steps)
        table.add_row(name, *(f"{micros:,.0f}\n{held:,}" for micros, held in found))
        pairs = zip(contexts, found, strict=True)
        rows += [{"model": name, "context": at, "us": micros, "bytes": held} for at, (micros, held) in pairs]
    console().print(table)
    write(asked.json, rows, width=asked.width)


if __name__ == "__main__":
    main()
