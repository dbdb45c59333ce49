"""Tokens per second of greedy decoding: our GPT-2-shaped Transformer against `transformers`, with the same weights.

    python benchmarks/decode.py                          three sizes, batches of 1 and 64, on the CPU
    python benchmarks/decode.py --size gpt2 --batch 1
    python benchmarks/decode.py --device cuda            bfloat16; also without the captured graph

The weights are random and copied; the generated tokens are compared. Runs of the two are interleaved, so that other
load on the machine affects both; medians are printed. Prefill is part of the time on both sides. Each side generates
once as a warm-up, so that layouts, compiled kernels and captured graphs are ready.
"""

import argparse
import json
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from command_line import console, device_of, need_gpu
from rich import box
from rich.table import Table
from torch import Tensor

from statewise.decoding import Sampling, begin, extend, graph
from statewise.models import LanguageModel, build

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its imports are its own business
    import transformers


class Size(NamedTuple):
    vocab: int
    width: int
    depth: int
    heads: int


SIZES = {"char": Size(65, 128, 4, 4), "small": Size(5_000, 256, 6, 8), "gpt2": Size(50_257, 768, 12, 12)}
CONTEXT, PROMPT = 1024, 16


def make_theirs(size: Size, *, context: int = CONTEXT) -> Any:
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=size.vocab,
        n_positions=context,
        n_embd=size.width,
        n_layer=size.depth,
        n_head=size.heads,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
        initializer_range=0.1,  # as they come, the logits are so close that rounding would choose the tokens
    )
    return transformers.GPT2LMHeadModel(config).eval()


@torch.no_grad()
def make_ours(size: Size, theirs: Any, *, context: int = CONTEXT) -> LanguageModel:
    options = {"width": size.width, "depth": size.depth, "heads": size.heads}
    ours: Any = build("transformer", vocab=size.vocab, position="learned", context=context, tie=True, **options).eval()
    ours.embedding.weight.copy_(theirs.transformer.wte.weight)
    ours.stack.position.weight_PD.copy_(theirs.transformer.wpe.weight)
    for block, layer in zip(ours.stack.blocks, theirs.transformer.h, strict=True):
        heads, mlp = block.mixer.heads, block.mlp
        for ours_to, theirs_from in (
            ((heads.w_PI, heads.b_P), layer.attn.c_attn),
            ((heads.o_DD, heads.b_D), layer.attn.c_proj),
            ((mlp.up.weight, mlp.up.bias), layer.mlp.c_fc),
            ((mlp.down.weight, mlp.down.bias), layer.mlp.c_proj),
        ):
            ours_to[0].copy_(theirs_from.weight.T)  # GPT-2 keeps its matrices transposed
            ours_to[1].copy_(theirs_from.bias)
        block.norm.load_state_dict(layer.ln_1.state_dict())
        block.mlp_norm.load_state_dict(layer.ln_2.state_dict())
    ours.stack.final_norm.load_state_dict(theirs.transformer.ln_f.state_dict())
    return ours


def timed(run: Callable[[], Tensor], device: torch.device) -> tuple[Tensor, float]:
    if device.type == "cuda":
        torch.cuda.synchronize()
    began = time.perf_counter()
    result = run()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return result, time.perf_counter() - began


@torch.no_grad()
def measure(
    size: Size, *, batch: int, tokens: int, repeats: int, device: torch.device, dtype: torch.dtype
) -> dict[str, float]:
    """Tokens a second, ours and theirs, and the share of tokens on which the two agree."""
    theirs = make_theirs(size).to(device, dtype)
    ours = make_ours(size, theirs).to(device, dtype)
    generator = torch.Generator().manual_seed(1)
    prompt_BT = torch.randint(size.vocab, (batch, PROMPT), generator=generator).to(device)
    mask_BT = torch.ones_like(prompt_BT)
    length = {"max_new_tokens": tokens, "min_new_tokens": tokens}

    def run_ours() -> Tensor:
        return extend(ours, begin(ours, prompt_BT, vocab=size.vocab), Sampling(temperature=0), tokens=tokens)[0]

    def run_theirs() -> Tensor:
        found: Tensor = theirs.generate(prompt_BT, attention_mask=mask_BT, do_sample=False, use_cache=True, **length)
        return found[:, PROMPT:]

    def run_steps() -> Tensor:
        real, graph.obstacle = graph.obstacle, lambda model, device: "asked for"
        try:
            return run_ours()
        finally:
            graph.obstacle = real

    runs = {"ours": run_ours, "theirs": run_theirs}
    if device.type == "cuda":
        runs["steps"] = run_steps
    found = {name: run() for name, run in runs.items()}  # the first of each is for warming up
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            times[name].append(timed(run, device)[1])
    row = {name: batch * tokens / statistics.median(kept) for name, kept in times.items()}
    row["same"] = float((found["ours"] == found["theirs"]).double().mean())
    with torch.no_grad():  # one token that rounding decides, and two texts have nothing more in common
        text_BT = torch.cat([prompt_BT, found["ours"]], dim=1)[:, :-1]
        logits_BTV = theirs(text_BT, attention_mask=torch.ones_like(text_BT)).logits[:, PROMPT - 1 :]
    row["same_given"] = float((logits_BTV.argmax(-1) == found["ours"]).double().mean())
    if "steps" in found:
        row["same_as_steps"] = float((found["ours"] == found["steps"]).double().mean())
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description="Greedy decoding against transformers, tokens a second.")
    parser.add_argument("--size", choices=[*SIZES, "all"], default="all")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 64])
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--device", type=device_of, default="cpu")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"])
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    device = asked.device
    need_gpu(device)
    name_of_dtype = asked.dtype or ("float32" if device.type == "cpu" else "bfloat16")
    where = f"{torch.get_num_threads()} threads" if device.type == "cpu" else torch.cuda.get_device_name(device)
    table = Table(
        title=f"Greedy decoding, {PROMPT} tokens read and {asked.tokens} written, {name_of_dtype}, {where}",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,  # eight columns in the width of a terminal
    )
    for heading in (
        "size",
        "batch",
        "statewise",
        "transformers",
        "ratio",
        "same tokens",
        "given the text",
        "without a graph",
    ):
        table.add_column(heading, justify="left" if heading == "size" else "right", no_wrap=" " not in heading)
    rows = []
    for name in SIZES if asked.size == "all" else [asked.size]:
        for batch in asked.batch:
            row = measure(
                SIZES[name],
                batch=batch,
                tokens=asked.tokens,
                repeats=asked.repeats,
                device=device,
                dtype=getattr(torch, name_of_dtype),
            )
            rows.append({"size": name, "batch": batch, **row})
            table.add_row(
                name,
                str(batch),
                f"{row['ours']:,.0f}/s",
                f"{row['theirs']:,.0f}/s",
                f"{row['ours'] / row['theirs']:.2f}",
                f"{row['same']:.1%}",
                f"{row['same_given']:.1%}",
                f"{row['steps']:,.0f}/s" if "steps" in row else "–",
            )
    console().print(table)
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
