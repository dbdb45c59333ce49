"""Training throughput of whole models: tokens a second of every family at equal size, compared with nanoGPT.

    python benchmarks/throughput.py --size 125m --context 1024 8192 --peer NANOGPT_CHECKOUT
    python benchmarks/throughput.py --device cpu --size tiny --context 64

Every family has the number of parameters of the Transformer (nearest width), and trains through the product's own
pipeline, as one captured graph where it can be, on random windows of made-up words. Where a batch does not fit into
memory it is halved, and the table says how many rows were left. The share of the chip's rate counts three forward
passes of matrix products a token (`docs/cost.md`) against a product of two square matrices that is timed in the same
run. nanoGPT's model is compiled by torch.compile and trained by the loop of its train.py: autocast, fused AdamW,
clipping; it has GPT-2's architecture, and so does our Transformer here.
"""

import gc
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import torch
from command_line import console, device_of, need_gpu, options, positive, write
from rich.table import Table
from train_step import ours, wait

from statewise.models import LINEAGE, build, num_parameters
from statewise.specs import make_spec
from statewise.tasks.job import Opening
from statewise.tasks.language_model import LanguageModelJob
from statewise.training import Parallel

CONSOLE = console()
RECURRENT = ("latent", "jordan", "elman", "leaky", "reservoir", "lstm", "gru", "deep_rnn", "window")
WARM_UP = 8  # steps; the graph is captured and kernels are chosen in them


class Size(NamedTuple):
    vocab: int
    width: int  # of the Transformer
    depth: int
    recurrent_depth: int  # of the families whose layers read step by step
    head: int  # width of a head
    words: int  # of the made-up text


SIZES = {
    "tiny": Size(60, 32, 2, 1, 16, 20_000),
    "10m": Size(65, 384, 6, 2, 64, 2_000_000),
    "125m": Size(50_304, 768, 12, 3, 64, 1_000_000),
}


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--device", type=device_of, default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--size", choices=SIZES, default="125m")
    parser.add_argument("--context", type=positive, nargs="+", default=[1024, 8192])
    kinds = [row.name for row in LINEAGE if row.name != "markov"]
    parser.add_argument("--families", choices=kinds, nargs="+", default=kinds)
    parser.add_argument("--tokens", type=positive, help="a step reads; 65,536, on a CPU 512")
    parser.add_argument("--steps", type=positive, default=10, help="in a block")
    parser.add_argument("--repeats", type=positive, default=5, help="blocks")
    parser.add_argument("--peer", type=Path, help="a checkout of nanoGPT")
    asked = parser.parse_args()
    need_gpu(asked.device)
    if asked.peer is not None and not (asked.peer / "model.py").is_file():
        raise SystemExit(f"--peer {str(asked.peer)!r} is not a checkout of nanoGPT")
    size = SIZES[asked.size]
    tokens = asked.tokens or (65_536 if asked.device.type == "cuda" else 512)
    rate = product_rate(asked.device)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "text.txt"
        text.write_text(made_up(size))
        for context in asked.context:
            # The Transformer comes first: the others have its size, and its throughput is what theirs is divided by.
            for kind in sorted(asked.families, key=lambda kind: kind != "transformer"):
                job = job_of(kind, size, text, asked.device, context=context, batch=max(1, tokens // context))
                rows.append({"family": kind, "context": context, **measured(job, asked.steps, asked.repeats, rate)})
                CONSOLE.print(json.dumps(rows[-1]), soft_wrap=True)
                del job
                gc.collect()
            if asked.peer is not None:
                rows.append(peer(asked.peer, size, context, max(1, tokens // context), asked, rate))
    CONSOLE.print(table(rows, f"{asked.size}, {device_name(asked.device)}, {rate:.2e} FLOP/s in products"))
    write(asked.json, rows, rate=rate)


def made_up(size: Size) -> str:
    """Words that occur as often as in a language, so that the vocabulary is full and something can be learned."""
    chance = random.Random(0)
    names = [f"w{number}" for number in range(size.vocab - 3)]
    drawn = chance.choices(names, [1 / (10 + place) for place in range(len(names))], k=size.words)
    return " ".join([*names, *drawn])


def spec_options(kind: str, size: Size, width: int) -> dict[str, Any]:
    """GPT-2's architecture for the Transformer; depth and heads of the others."""
    depth = size.recurrent_depth if kind in RECURRENT else size.depth
    chosen: dict[str, Any] = {"width": width, "depth": depth}
    fields = type(make_spec({"model": {"kind": kind}}).model).model_fields
    if "heads" in fields:
        chosen["heads"] = width // size.head
    if "tie" in fields:
        chosen["tie"] = True
    return chosen


def job_of(kind: str, size: Size, text: Path, device: torch.device, *, context: int, batch: int) -> LanguageModelJob:
    gpt = {"position": "learned", "context": context} if kind == "transformer" else {}
    model = {"kind": kind, **gpt, **spec_options(kind, size, fitting_width(kind, size))}
    settings = {
        "train.device": str(device),
        "train.precision": "bfloat16" if device.type == "cuda" else "float32",
        "train.batch": batch,
        "train.window": context,
        "train.truncation": "full",
        "data.order": "random",
        "data.tokenizer": "word",
        "data.vocab": size.vocab,
        "data.text": [str(text)],
    }
    spec = make_spec({"model": model}, [f"{path}={json.dumps(value)}" for path, value in settings.items()])
    return LanguageModelJob.open(spec, Opening(text.parent / kind, Parallel(device=device)))


def fitting_width(kind: str, size: Size) -> int:
    """The width, in whole heads, whose number of parameters is nearest to the Transformer's."""
    if kind == "transformer":
        return size.width
    wanted = parameters("transformer", size, size.width)
    widths = range(size.head, 64 * size.head, size.head)
    best, off = size.head, float("inf")
    for width in widths:
        count = parameters(kind, size, width)
        if abs(count - wanted) < off:
            best, off = width, abs(count - wanted)
        if count > wanted:
            break
    return best


def parameters(kind: str, size: Size, width: int) -> int:
    chosen = spec_options(kind, size, width)
    return num_parameters(lambda: build(kind, vocab=size.vocab, **chosen))


def measured(job: LanguageModelJob, steps: int, repeats: int, rate: float) -> dict[str, Any]:
    """Tokens a second in the median block, with as many rows as fit into memory."""
    par = Parallel(device=torch.device(job.spec.train.device))
    while True:
        try:
            way = ours(job, par, graph="auto")
            tokens_per_second, spread = timed(
                way.steps, job.spec.train.batch * job.spec.train.window, par.device, steps, repeats
            )
            break
        except torch.OutOfMemoryError:
            batch = job.spec.train.batch // 2
            if batch == 0:
                return {"rows": 0, "parameters": job.num_parameters(), "tokens_per_second": None, "share": None}
            job = job.for_spec(
                job.spec.model_copy(update={"train": job.spec.train.model_copy(update={"batch": batch})})
            )
        gc.collect()
        torch.cuda.empty_cache()
    return {
        "rows": job.spec.train.batch,
        "parameters": job.num_parameters(),
        "width": job.spec.model.width,
        "tokens_per_second": tokens_per_second,
        "spread": spread,
        "share": 3 * job.flops_per_token() * tokens_per_second / rate,
        "not_captured": way.why() if par.device.type == "cuda" else "CPU",
    }


def timed(
    run: Callable[[int], None], tokens: int, device: torch.device, steps: int, repeats: int
) -> tuple[float, list[float]]:
    run(WARM_UP)
    speeds = []
    for _ in range(repeats):
        wait(device)
        began = time.perf_counter()
        run(steps)
        wait(device)
        speeds.append(steps * tokens / (time.perf_counter() - began))
    return statistics.median(speeds), [min(speeds), max(speeds)]


def product_rate(device: torch.device) -> float:
    """FLOPs a second of one large product, in the precision of training."""
    cuda = device.type == "cuda"
    side, dtype = (8192, torch.bfloat16) if cuda else (1024, torch.float32)
    a, b = (torch.randn(side, side, device=device, dtype=dtype) for _ in range(2))

    def multiply(times: int) -> None:
        for _ in range(times):
            a @ b

    return timed(multiply, 2 * side**3, device, 20, 5)[0]


def peer(checkout: Path, size: Size, context: int, batch: int, asked: Any, rate: float) -> dict[str, Any]:
    """A training step of nanoGPT's GPT, as its train.py makes it on one GPU."""
    sys.path.insert(0, str(checkout))
    module = import_module("model")
    device, heads = asked.device, size.width // size.head
    config = module.GPTConfig(
        block_size=context,
        vocab_size=size.vocab,
        n_layer=size.depth,
        n_head=heads,
        n_embd=size.width,
        dropout=0.0,
        bias=True,
    )
    torch.manual_seed(0)
    model = module.GPT(config).to(device)
    optimizer = model.configure_optimizers(0.1, 6e-4, (0.9, 0.95), device.type)
    compiled = torch.compile(model) if device.type == "cuda" else model
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    windows = [torch.randint(size.vocab, (batch, context + 1), device=device) for _ in range(16)]
    done = [0]

    def run(count: int) -> None:
        for _ in range(count):
            window = windows[done[0] % len(windows)]
            done[0] += 1
            with torch.autocast(device.type, dtype, enabled=device.type == "cuda"):
                _, loss = compiled(window[:, :-1].contiguous(), window[:, 1:].contiguous())
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    speed, spread = timed(run, batch * context, device, asked.steps, asked.repeats)
    count = sum(p.numel() for p in model.parameters())
    flops = 6 * (count - context * size.width) + 6 * size.depth * size.width * (
        context + 1
    )  # causal, as ours are counted
    row = {"family": "nanoGPT, torch.compile", "context": context, "rows": batch, "parameters": count}
    return {**row, "tokens_per_second": speed, "spread": spread, "share": flops * speed / rate}


def device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"


def table(rows: list[dict[str, Any]], title: str) -> Table:
    made = Table(
        title=f"Training throughput, {title}",
        title_justify="left",
        caption="Against the Transformer: tokens a second divided by those of our Transformer at the same context.",
        caption_justify="left",
    )
    for heading in (
        "family",
        "context",
        "rows",
        "parameters",
        "tokens/s",
        "of the chip's rate",
        "against the Transformer",
        "captured",
    ):
        made.add_column(heading, justify="left" if heading in ("family", "captured") else "right")
    base = {row["context"]: row["tokens_per_second"] for row in rows if row["family"] == "transformer"}
    for row in rows:
        speed, first = row["tokens_per_second"], base.get(row["context"])
        why = row.get("not_captured")
        made.add_row(
            row["family"],
            f"{row['context']:,}",
            str(row["rows"]),
            f"{row['parameters']:,}",
            "does not fit" if speed is None else f"{speed:,.0f}",
            "" if row["share"] is None else f"{row['share']:.1%}",
            "" if speed is None or first is None else f"{speed / first:.2f}",
            "" if why is None else (why or "yes"),
        )
    return made


if __name__ == "__main__":
    main()
