"""Reading a prompt: milliseconds by its length, our Transformer compared with `transformers`, and the other families.

    python benchmarks/prefill.py --json prefill.json
    python benchmarks/prefill.py --device cpu --size char --lengths 64 256

Both Transformers have the same weights, in the shape of GPT-2, keep the keys and values of all tokens, and choose the
token after the prompt: ours as `generate` does, theirs from the logits of a forward pass, by PyTorch's attention and,
up to 8,192 tokens, by its own, written out. One row, bfloat16 on a GPU, medians of turns that alternate. The other
families have the Transformer's width and depth; of them the table says how the time of a token changes from the
shortest prompt to the longest.
"""

import statistics
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from command_line import console, device_of, need_gpu, options, positive, write
from decode import SIZES, Size, make_ours, make_theirs
from rich.table import Table
from torch import Tensor

from statewise.core import Machine
from statewise.decoding import Sampling, begin, extend, prefill
from statewise.models import LINEAGE, build
from statewise.specs import make_spec

FAMILIES = [row.name for row in LINEAGE if row.name not in ("markov", "transformer")]
CONSOLE = console()
WARM_UP = 3  # a repeated shape is captured


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--device", type=device_of, default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--size", choices=SIZES, default="gpt2")
    parser.add_argument("--lengths", type=positive, nargs="+", default=[1024, 8192, 32_768])
    parser.add_argument("--families", choices=FAMILIES, nargs="*", default=FAMILIES)
    parser.add_argument("--repeats", type=positive, default=7)
    asked = parser.parse_args()
    need_gpu(asked.device)
    size, lengths = SIZES[asked.size], sorted(asked.lengths)
    dtype = torch.bfloat16 if asked.device.type == "cuda" else torch.float32
    rows = [both_transformers(size, length, max(lengths), asked.device, dtype, asked.repeats) for length in lengths]
    CONSOLE.print(peer_table(rows, size, dtype))
    families = []
    for kind in asked.families:
        families.append(family(kind, size, lengths, asked.device, dtype, asked.repeats))
    if families:
        CONSOLE.print(family_table(families, lengths))
    write(asked.json, rows, families=families)


@torch.no_grad()
def both_transformers(
    size: Size, length: int, longest: int, device: torch.device, dtype: torch.dtype, repeats: int
) -> dict[str, Any]:
    theirs = make_theirs(size, context=longest)
    ours = make_ours(size, theirs, context=longest).to(device, dtype)
    theirs = theirs.to(device, dtype)
    prompt_BT = prompt(size, length, device)

    def read_by(attention: str) -> Callable[[], Tensor]:
        def run() -> Tensor:
            theirs.set_attn_implementation(attention)
            logits_BTV: Tensor = theirs(prompt_BT, use_cache=True, logits_to_keep=1).logits
            return logits_BTV[:, -1].argmax(-1)

        return run

    def read_ours() -> Tensor:
        return extend(ours, begin(ours, prompt_BT, vocab=size.vocab), Sampling(temperature=0.0), tokens=1)[0]

    ways: dict[str, Callable[[], Tensor]] = {"ours": read_ours}
    ways |= {attention: read_by(attention) for attention in ("sdpa", "eager") if attention == "sdpa" or length <= 8192}
    theirs_BV = theirs(prompt_BT, logits_to_keep=1).logits[:, -1]
    ours_BV, _ = ours.step(prompt_BT[:, -1], prefill(ours, prompt_BT[:, :-1], None))
    off = float((ours_BV - theirs_BV).norm() / theirs_BV.norm())
    times = alternating(ways, device, repeats)
    best = min(times[name] for name in times if name != "ours")
    return {"tokens": length, "milliseconds": times, "ratio": best / times["ours"], "off": off}


@torch.no_grad()
def family(
    kind: str, size: Size, lengths: list[int], device: torch.device, dtype: torch.dtype, repeats: int
) -> dict[str, Any]:
    heads = {"heads": size.heads} if "heads" in build_options(kind) else {}
    model: Machine[Any] = build(kind, vocab=size.vocab, width=size.width, depth=size.depth, **heads)
    model = model.to(device, dtype).eval()
    times = {}
    for length in lengths:
        prompt_BT = prompt(size, length, device)
        try:
            read = {kind: lambda prompt_BT=prompt_BT: prefill(model, prompt_BT, None)}
            times[length] = alternating(read, device, repeats)[kind]
        except torch.OutOfMemoryError:
            break
    return {"family": kind, "parameters": sum(p.numel() for p in model.parameters()), "milliseconds": times}


def build_options(kind: str) -> set[str]:
    return set(type(make_spec({"model": {"kind": kind}}).model).model_fields)


def prompt(size: Size, length: int, device: torch.device) -> Tensor:
    return torch.randint(size.vocab, (1, length), generator=torch.Generator().manual_seed(length)).to(device)


def alternating(ways: Mapping[str, Callable[[], object]], device: torch.device, repeats: int) -> dict[str, float]:
    """Median milliseconds of each, in turns."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(WARM_UP + repeats):
        for name, run in ways.items():
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            began = time.perf_counter()
            run()
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            if turn >= WARM_UP:
                times[name].append(1e3 * (time.perf_counter() - began))
    return {name: statistics.median(each) for name, each in times.items()}


def peer_table(rows: list[dict[str, Any]], size: Size, dtype: torch.dtype) -> Table:
    table = Table(
        title=f"From a prompt to the next token, {size.depth} layers of {size.width}, {str(dtype)[6:]}, milliseconds",
        title_justify="left",
        caption="Off: the logits after the prompt, ours against theirs, relative to their norm.",
        caption_justify="left",
    )
    for heading in ("tokens", "statewise", "transformers, sdpa", "transformers, eager", "ratio", "off"):
        table.add_column(heading, justify="right")
    for row in rows:
        times = row["milliseconds"]
        shown = [f"{times[name]:.2f}" if name in times else "–" for name in ("ours", "sdpa", "eager")]
        table.add_row(f"{row['tokens']:,}", *shown, f"{row['ratio']:.2f}", f"{row['off']:.1e}")
    return table


def family_table(families: list[dict[str, Any]], lengths: list[int]) -> Table:
    table = Table(
        title="Reading a prompt, all families, milliseconds",
        title_justify="left",
        caption="Growth: the time of a token in the longest prompt divided by that in the shortest; 1 is linear.",
        caption_justify="left",
    )
    table.add_column("family")
    for heading in ("parameters", *(f"{length:,}" for length in lengths), "growth"):
        table.add_column(heading, justify="right")
    for row in families:
        times = row["milliseconds"]
        shown = [f"{times[length]:.2f}" if length in times else "does not fit" for length in lengths]
        first, last = min(times, default=1), max(times, default=1)
        growth = f"{times[last] / last / (times[first] / first):.2f}" if times else "–"
        table.add_row(row["family"], f"{row['parameters']:,}", *shown, growth)
    return table


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of `transformers`
        main()
