"""What the engine of a server delivers: texts at once, known prefixes, company, saved states; and its overhead.

    python benchmarks/serve.py                # every part, in minutes, on the CPU or the GPU that is there
    python benchmarks/serve.py --only sessions --streams 10000 --width 1024 --depth 2

- overhead: tokens a second of the engine at 32 texts, compared with a loop of bare steps of the same model.
- prefix: seconds to the first token of a prompt of 2,048 tokens, read and known.
- company: of each model, the share of tokens that are those of `generate`, alone and among 63 others.
- sessions: texts at once, tokens a second, the memory of their states; saving and continuing states.
- cycles: of each model, a text in 1,000 turns: each forks the saved state, deletes it, restores the copy, generates a
  token and saves. Whether all tokens and the last state are, bit for bit, those of a text without turns.
- million: 1,000,000 saved states of an LSTM in a folder: bytes, time to save, to open, to continue any one.

The HTTP side is measured by load generators that are not ours: docs/serving.md says how.
"""

import asyncio
import json
import os
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from command_line import device_of, need_gpu, options, positive, write
from safetensors.torch import load as from_safetensors

import statewise as sw
from statewise.core import state_bytes
from statewise.decoding import Sampling
from statewise.models import LINEAGE
from statewise.serving import Engine, Event, Job
from statewise.serving.memory import settle
from statewise.serving.pool import NewRow, Pool
from statewise.serving.store import New
from statewise.specs import ServingSpec
from statewise.training import make_display

TEXT = "the cat sat on the mat and the dog sat on the log, so the cat and the dog sat. " * 200
SMALL: dict[str, Any] = {"train.evaluate_tokens": 200, "train.batch": 4, "train.window": 32, "train.truncation": 32}


def made(name: str, folder: Path, device: str, **sizes: int) -> Any:
    """A run of this model, trained for one step: what it writes does not matter here."""
    settings = {**SMALL, **{f"model.{key}": value for key, value in sizes.items()}}
    if name in ("markov",):
        settings = {}
    path = folder / f"{name}-{'-'.join(map(str, sizes.values()))}"
    if not path.exists():
        steps = {} if name == "markov" else {"steps": 1}
        sw.train(name, data=TEXT, out=path, settings=settings, device="cpu", display=make_display(quiet=True), **steps)
    return sw.load(path, device=device)


class Asked:
    def __init__(self, engine: Engine, model: str, prompt: list[int], **options: Any) -> None:
        self.ids: list[int] = []
        self.first = 0.0
        self.over = asyncio.Event()
        self.error: Any = None
        self.state: Any = None
        self.job = Job(model, prompt, self._receive, **options)
        self.began = time.perf_counter()
        engine.submit([self.job])

    def _receive(self, event: Event) -> None:
        if event.ids and not self.ids:
            self.first = time.perf_counter() - self.began
        self.ids += event.ids
        if event.finish is not None:
            self.error, self.state = event.error, event.state
            self.over.set()


async def started(runs: dict[str, Any], **settings: Any) -> Engine:
    engine = Engine(runs, ServingSpec(**{"max_prompt": 1 << 20, "queue": 1 << 20, **settings}))
    engine.start(asyncio.get_running_loop())
    settle()
    return engine


async def finished(asked: list[Asked]) -> None:
    for each in asked:
        await each.over.wait()


async def overhead(folder: Path, device: str, streams: int = 32, tokens: int = 200) -> dict[str, Any]:
    """The engine compared with bare steps, interleaved."""
    found = {}
    for name, sizes in (("lstm", {"width": 256, "depth": 2}), ("transformer", {"width": 256, "depth": 4})):
        run = made(name, folder, device, **sizes)
        engine = await started({name: run}, slots=streams, threads=1)
        torch.set_num_threads(1)  # as many as the engine has
        bare, served = [], []
        for turn in range(4):
            pool = Pool(run.model)
            for seed in range(streams):
                pool.join([NewRow(1, 0, Sampling(seed=seed))], run.model.init_state(1))
            began = time.perf_counter()
            for _ in range(tokens):
                pool.step()
            if turn:
                bare.append(streams * tokens / (time.perf_counter() - began))
            began = time.perf_counter()
            asked = [
                Asked(engine, name, [1], max_tokens=tokens, sampling=Sampling(seed=seed), ignore_end=True)
                for seed in range(streams)
            ]
            await finished(asked)
            if turn:
                served.append(sum(len(each.ids) for each in asked) / (time.perf_counter() - began))
        engine.stop()
        loop, ours = statistics.median(bare), statistics.median(served)
        found[name] = {
            "bare tokens/s": round(loop),
            "engine tokens/s": round(ours),
            "overhead": f"{loop / ours - 1:.0%}",
        }
    return found


async def prefix(folder: Path, device: str, length: int = 2048) -> dict[str, Any]:
    """First token of a prompt that is read, and of the same with a known beginning; medians of seven prompts."""
    found = {}
    rng = random.Random(0)
    for name, sizes in (
        ("lstm", {"width": 256, "depth": 2}),
        ("lstm", {"width": 1024, "depth": 2}),
        ("transformer", {"width": 256, "depth": 4}),
    ):
        run = made(name, folder, device, **sizes)
        engine = await started({name: run}, prefix_bytes=1 << 32)
        vocab = run.tokenizer.vocab
        cold, warm, hits = [], [], 0
        for turn in range(8):
            system = [rng.randrange(1, vocab) for _ in range(length)]
            for question, times in (([1, 2, 3], cold), ([3, 2, 1, 4], []), ([2, 2], warm), ([5], warm)):
                asked = Asked(engine, name, system + question, max_tokens=1, ignore_end=True)
                await asked.over.wait()
                if turn:
                    times.append(asked.first)
                    hits += times is warm
        engine.stop()
        read, known = statistics.median(cold), statistics.median(warm)
        found[f"{name} {sizes['depth']}x{sizes['width']}"] = {
            "read ms": round(1000 * read, 2),
            "known ms": round(1000 * known, 2),
            "times faster": round(read / known),
        }
    return found


async def company(folder: Path, device: str, prompts: int = 64, tokens: int = 40) -> dict[str, Any]:
    """Tokens that are those of `generate`: of a text alone, among 63 others, and with each text in its own batch."""
    found = {}
    for row in LINEAGE:
        run = made(row.name, folder, device, **({} if row.name == "markov" else {"width": 32, "depth": 2}))
        rng = random.Random(1)
        texts = [TEXT[(at := rng.randrange(2000)) : at + rng.randrange(1, 40)] for _ in range(prompts)]
        ways = [Sampling(temperature=0.9, seed=seed) for seed in range(prompts)]
        ids = [[int(token) for token in run.tokenizer.encode(text)] for text in texts]
        wanted = [run.write(text, tokens=tokens, sampling=way) for text, way in zip(texts, ways)]
        shares = {}
        for label, settings, together in (
            ("alone", {}, 1),
            ("among 63", {"slots": 64}, prompts),
            ("batch-invariant", {"batch_invariant": True, "slots": 64}, prompts),
        ):
            engine = await started({row.name: run}, **settings)
            same = total = 0
            for begin in range(0, prompts, together):
                part = range(begin, begin + together)
                asked = [Asked(engine, row.name, ids[i], max_tokens=tokens, sampling=ways[i]) for i in part]
                await finished(asked)
                for i, each in zip(part, asked):
                    same += sum(a == b for a, b in zip(each.ids, wanted[i]))
                    total += max(len(each.ids), len(wanted[i]))
            engine.stop()
            shares[label] = f"{same / total:.2%}"
        found[row.name] = shares
    return found


async def sessions(folder: Path, device: str, streams: int, width: int, depth: int, tokens: int) -> dict[str, Any]:
    """Many texts at once; then saved states, continued in random order."""
    run = made("lstm", folder, device, width=width, depth=depth)
    engine = await started(
        {"lstm": run}, slots=streams, state_count=1 << 21, state_memory=64 << 30, queue_seconds=600, request_seconds=600
    )
    rng = random.Random(0)
    vocab = run.tokenizer.vocab

    def prompt() -> list[int]:
        return [rng.randrange(1, vocab) for _ in range(8)]

    warm = [Asked(engine, "lstm", prompt(), max_tokens=3, ignore_end=True) for _ in range(streams)]
    await finished(warm)
    began = time.perf_counter()
    asked = [
        Asked(engine, "lstm", prompt(), max_tokens=tokens, sampling=Sampling(seed=i), ignore_end=True, save=f"s{i}")
        for i in range(streams)
    ]
    most = 0.0
    waiting = asyncio.ensure_future(finished(asked))
    while not waiting.done():
        await asyncio.sleep(0.05)
        most = max(most, engine.gauges()["requests_running"])
    seconds = time.perf_counter() - began
    delivered = sum(len(each.ids) for each in asked)
    held = next(value for name, value in engine.gauges().items() if name.startswith("state_bytes"))
    one = state_bytes(run.model.init_state(1))
    resumed = []
    for _ in range(200):
        again = Asked(engine, "lstm", [1], max_tokens=1, ignore_end=True, start=f"s{rng.randrange(streams)}")
        await again.over.wait()
        resumed.append(again.first)
    size = engine.store.describe("s0", "")["bytes"]
    engine.stop()
    return {
        "texts at once": round(most),
        "errors": sum(each.error is not None for each in asked),
        "tokens/s": round(delivered / seconds),
        "bytes of a state": one,
        "MB of the states in use": round(streams * one / 1e6, 1),
        "MB held, known prompts included": round(held / 1e6, 1),
        "saved states": streams,
        "bytes of a saved state": size,
        "ms to the first token of a saved text (median, worst of 200)": [
            round(1000 * statistics.median(resumed), 2),
            round(1000 * max(resumed), 2),
        ],
    }


async def cycles(folder: Path, device: str, turns: int) -> dict[str, Any]:
    found = {}
    for row in LINEAGE:
        run = made(row.name, folder, device, **({} if row.name == "markov" else {"width": 32, "depth": 2}))
        way, prompt = Sampling(seed=7), [1, 2, 3]
        options: dict[str, Any] = {"sampling": way, "ignore_end": True}
        engine = await started({row.name: run}, batch_invariant=True)
        longest = (engine.models[row.name].max_context or turns + len(prompt)) - len(prompt)
        same = states = texts = 0
        left = turns
        while left:
            length = min(left, longest)
            whole = Asked(engine, row.name, prompt, max_tokens=length, save="whole", **options)
            await whole.over.wait()
            ids: list[int] = []
            first = Asked(engine, row.name, prompt, max_tokens=0, save="a", **options)
            await first.over.wait()
            for _ in range(length):
                engine.store.fork("a", "", "b")
                engine.store.delete("a", "")
                turn = Asked(engine, row.name, [], max_tokens=1, start="b", save="a", **options)
                await turn.over.wait()
                ids += turn.ids
            same += sum(a == b for a, b in zip(ids, whole.ids, strict=True))
            a, b = (bits_of(engine.store.get(name, "").content) for name in ("a", "whole"))
            states += a == b
            texts += 1
            left -= length
        engine.stop()
        found[row.name] = {"turns": turns, "equal tokens": same, "equal last states": f"{states} of {texts}"}
    return found


def bits_of(content: bytes) -> dict[str, tuple[Any, ...]]:
    """The tensors of a saved state; the order of names in the file may differ."""
    return {name: (t.dtype, t.shape, t.numpy().tobytes()) for name, t in from_safetensors(content).items()}


async def million(folder: Path, device: str, count: int, width: int, depth: int) -> dict[str, Any]:
    run = made("lstm", folder, device, width=width, depth=depth)
    kept, rng = folder / "million", random.Random(0)
    settings: dict[str, Any] = {"states": str(kept), "state_count": 2 * count}
    engine = await started({"lstm": run}, **settings)
    seed = Asked(engine, "lstm", [1, 2, 3], max_tokens=4, ignore_end=True, save="seed")
    await seed.over.wait()
    saved = engine.store.get("seed", "")
    began = time.perf_counter()
    for begin in range(0, count, 256):  # as the engine does while the disk is busy
        numbers = range(begin, min(begin + 256, count))
        engine.store.put_all([New(f"s{n}", "", "lstm", saved.content, saved.tokens) for n in numbers])
    saving = time.perf_counter() - began
    alone = []
    for number in range(100):
        began = time.perf_counter()
        engine.store.put(f"t{number}", "", "lstm", saved.content, saved.tokens)
        alone.append(time.perf_counter() - began)
    engine.stop()
    before = resident()
    began = time.perf_counter()
    engine = await started({"lstm": run}, **settings)
    opening = time.perf_counter() - began
    resumed, read = [], []
    for _ in range(1000):
        name = f"s{rng.randrange(count)}"
        began = time.perf_counter()
        engine.store.get(name, "")
        read.append(time.perf_counter() - began)
        again = Asked(engine, "lstm", [1], max_tokens=1, ignore_end=True, start=f"s{rng.randrange(count)}")
        await again.over.wait()
        assert again.error is None
        resumed.append(again.first)
    held = resident() - before
    engine.stop()
    size = sum(path.stat().st_size for path in kept.iterdir())
    return {
        "states": count,
        "bytes of a saved state": len(saved.content),
        "bytes on disk a state": round(size / count),
        "seconds to save all": round(saving, 1),
        "ms to save one, on disk (median)": round(1000 * statistics.median(alone), 2),
        "seconds to open": round(opening, 3),
        "MB of memory after opening and 2,000 reads": round(held / 1e6, 1),
        "ms to read one (median, 99 %, worst of 1,000)": _ms(read),
        "ms to its next token (median, 99 %, worst of 1,000)": _ms(resumed),
    }


def _ms(seconds: list[float]) -> list[float]:
    ordered = sorted(seconds)
    return [round(1000 * ordered[at], 2) for at in (len(ordered) // 2, len(ordered) * 99 // 100, -1)]


def resident() -> int:
    """Bytes of this process."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    parser = options(__doc__)
    parts = ("overhead", "prefix", "company", "sessions", "cycles", "million")
    parser.add_argument("--only", choices=parts, action="append")
    parser.add_argument("--device", type=device_of, default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--streams", type=positive, default=2000)
    parser.add_argument("--width", type=positive, default=256)
    parser.add_argument("--depth", type=positive, default=2)
    parser.add_argument("--tokens", type=positive, default=32)
    parser.add_argument("--turns", type=positive, default=1000)
    parser.add_argument("--count", type=positive, default=1_000_000, help="of saved states")
    asked = parser.parse_args()
    device, rows = str(asked.device), []
    need_gpu(device)
    with tempfile.TemporaryDirectory() as folder:
        for part in asked.only or parts:
            if part == "sessions":
                work = sessions(Path(folder), device, asked.streams, asked.width, asked.depth, asked.tokens)
            elif part == "cycles":
                work = cycles(Path(folder), device, asked.turns)
            elif part == "million":
                work = million(Path(folder), device, asked.count, asked.width, asked.depth)
            else:
                work = {"overhead": overhead, "prefix": prefix, "company": company}[part](Path(folder), device)
            print(part)
            for name, value in asyncio.run(work).items():
                print(f"  {name}: {json.dumps(value)}", flush=True)
                rows.append({"part": part, "name": name, "found": value})
    write(asked.json, rows, device=device)


if __name__ == "__main__":
    main()
