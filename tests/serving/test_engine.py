"""The engine: the text of a request is that of `generate`, alone or in company; states save, fork and go on exactly."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from covering import by_day, covered

import statewise as sw
from statewise.decoding import Sampling
from statewise.serving import Engine, Event, Job, Refused
from statewise.serving.pool import Pool
from statewise.serving.replica import Order, Replica, nobody
from statewise.serving.scheduler import Scheduler
from statewise.serving.store import StateStore
from statewise.specs import ServingSpec

LSTM, TRANSFORMER, MARKOV = "shakespeare-lstm", "shakespeare-transformer", "shakespeare-markov"
SHIPPED = [f"shakespeare-{name}" for name in ("markov", "elman", "lstm", "transformer", "ttt")]
WARM = Sampling(temperature=0.8)


@pytest.fixture(scope="module")
def runs() -> dict[str, Any]:
    return {name: sw.load(name, device="cpu") for name in SHIPPED}


@asynccontextmanager
async def serving(runs: dict[str, Any], **settings: Any) -> AsyncIterator[Engine]:
    engine = Engine(runs, ServingSpec(**{"slots": 16, "queue": 500, **settings}))
    engine.start(asyncio.get_running_loop())
    try:
        yield engine
    finally:
        engine.stop()


class Asked:
    """A job and what came of it."""

    def __init__(self, engine: Engine, model: str, text: str, **options: Any) -> None:
        self.events: list[Event] = []
        self.over = asyncio.Event()
        tokenizer = engine.models[model].tokenizer
        assert tokenizer is not None
        prompt = [int(token) for token in tokenizer.encode(text)]
        self.job = Job(model, prompt, self._receive, **options)

    def _receive(self, event: Event) -> None:
        assert not self.over.is_set(), "an event after the last"
        self.events.append(event)
        if event.finish is not None:
            self.over.set()

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.events)

    @property
    def ids(self) -> list[int]:
        return [token for event in self.events for token in event.ids]


async def ask(engine: Engine, model: str, text: str, **options: Any) -> Asked:
    asked = Asked(engine, model, text, **options)
    engine.submit([asked.job])
    await asyncio.wait_for(asked.over.wait(), 60)
    return asked


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 200))


PROMPTS = ["ROMEO:", "", "First Citizen:\nBefore we", "KING RICHARD II:\n" * 6, "O", "\n\nAll:", "Now is the winter"]


@covered("alone, model", {"together": False, "batch-invariant": True}, SHIPPED, strength=1)
def test_a_text_is_that_of_generate_in_any_company(model: str, alone: bool, runs: dict[str, Any]) -> None:
    async def main() -> None:
        async with serving(runs, batch_invariant=alone) as engine:
            ways = [
                {"sampling": WARM._replace(seed=i, top_k=(None, 5)[i % 2], repetition=(1.0, 1.2)[i % 3 == 0])}
                for i in range(2 * len(PROMPTS))
            ]
            options = {"max_tokens": 24, "stop": ("\n\n",)}
            jobs = [ask(engine, model, prompt, **way, **options) for prompt, way in zip(PROMPTS * 2, ways)]
            found = await asyncio.gather(*jobs)
            for prompt, way, asked in zip(PROMPTS * 2, ways, found):
                wanted = runs[model].generate(prompt, tokens=24, sampling=way["sampling"], stop=["\n\n"])
                assert asked.text == wanted

    run(main)


@pytest.mark.parametrize("model", by_day(SHIPPED, LSTM, TRANSFORMER))
def test_a_saved_state_goes_on_exactly_and_forks(model: str, runs: dict[str, Any], tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(runs, states=str(tmp_path / "states")) as engine:
            whole = await ask(engine, model, "ROMEO:", max_tokens=40, sampling=WARM)
            first = await ask(engine, model, "ROMEO:", max_tokens=15, sampling=WARM, save="a")
            assert first.events[-1].state == engine.store.describe("a", "")
            assert first.events[-1].state["tokens"] == 6 + 15
            engine.store.fork("a", "", "b")
            rest = await ask(engine, model, "", max_tokens=25, sampling=WARM, start="a", save="a")
            assert first.text + rest.text == whole.text
            twin = await ask(engine, model, "", max_tokens=25, sampling=WARM, start="b")
            assert twin.text == rest.text
            other = await ask(engine, model, "JULIET:", max_tokens=25, sampling=WARM, start="b")
            assert other.text != rest.text
            exported = engine.store.get("b", "").content
        # Another process with the same weights: the command line reads the file, and a new engine the folder.
        (tmp_path / "b.safetensors").write_bytes(exported)
        at = runs[model].load_state(tmp_path / "b.safetensors")
        pieces = [piece for piece, _ in runs[model].stream(tokens=25, sampling=WARM, start=at)]
        assert "".join(pieces) == rest.text
        async with serving(runs, states=str(tmp_path / "states")) as engine:
            again = await ask(engine, model, "", max_tokens=25, sampling=WARM, start="b")
            assert again.text == rest.text
            engine.store.import_(model, exported, "", "c")
            moved = await ask(engine, model, "", max_tokens=25, sampling=WARM, start="c")
            assert moved.text == rest.text

    run(main)


def test_a_state_of_another_model_is_refused(runs: dict[str, Any]) -> None:
    async def main() -> None:
        async with serving(runs) as engine:
            await ask(engine, LSTM, "ROMEO:", max_tokens=3, save="a")
            with pytest.raises(Refused, match="is of the model 'shakespeare-lstm'"):
                await ask(engine, TRANSFORMER, "", start="a")
            with pytest.raises(Refused, match="there is no saved state"):
                await ask(engine, LSTM, "", start="nothing")
            with pytest.raises(Refused, match="there is no saved state"):
                await ask(engine, LSTM, "", start="a", owner="somebody else")
            with pytest.raises(Refused, match="not a state of"):
                engine.store.import_("shakespeare-elman", engine.store.get("a", "").content, "", "e")

    run(main)


@pytest.mark.parametrize("model", [LSTM, TRANSFORMER])
def test_a_prompt_that_was_read_is_not_read_again(model: str, runs: dict[str, Any]) -> None:
    async def main() -> None:
        async with serving(runs) as engine:
            system = "ROMEO: what light through yonder window breaks? " * 5
            cold = await ask(engine, model, system + "It", max_tokens=10, sampling=WARM)
            assert cold.events[0].cached == 0
            same = await ask(engine, model, system + "It", max_tokens=10, sampling=WARM)
            assert same.events[0].cached == len(system) + 1
            await ask(engine, model, system + "And", max_tokens=10, sampling=WARM)
            third = await ask(engine, model, system + "But soft", max_tokens=10, sampling=WARM)
            assert third.events[0].cached == len(system)
            assert third.text == runs[model].generate(system + "But soft", tokens=10, sampling=WARM)
            stranger = await ask(engine, model, system + "It", max_tokens=10, sampling=WARM, owner="b")
            assert stranger.events[0].cached == 0
            assert cold.text == same.text == stranger.text

    run(main)


def test_samples_of_one_prompt_read_it_once(runs: dict[str, Any]) -> None:
    async def main() -> None:
        async with serving(runs) as engine:
            reads: list[int] = []
            absorb = runs[LSTM].model.absorb
            counted = lambda x, *rest: reads.append(len(x)) or absorb(x, *rest)  # noqa: E731
            object.__setattr__(runs[LSTM].model, "absorb", counted)
            try:
                asked = [
                    Asked(engine, LSTM, "ROMEO:", max_tokens=12, sampling=WARM._replace(seed=seed)) for seed in range(5)
                ]
                engine.submit([each.job for each in asked])
                for each in asked:
                    await each.over.wait()
            finally:
                object.__delattr__(runs[LSTM].model, "absorb")
            assert reads == [1]
            wanted = [runs[LSTM].generate("ROMEO:", tokens=12, sampling=WARM._replace(seed=seed)) for seed in range(5)]
            assert [each.text for each in asked] == wanted

    run(main)


@pytest.mark.parametrize("model", [LSTM, MARKOV])
def test_prompts_and_texts_are_scored_by_the_models_own_distribution(model: str, runs: dict[str, Any]) -> None:
    async def main() -> None:
        async with serving(runs) as engine:
            prompt = "ROMEO: is the day so young? " * 12
            options = {"logprobs": 3, "sampling": Sampling(temperature=0.3, top_k=2)}
            asked = await ask(engine, model, prompt, max_tokens=5, echo=True, **options)
            scored = [*asked.events[0].prompt, *(each for event in asked.events for each in event.scored)]
            ids = [each.id for each in scored]
            assert ids == [*asked.job.prompt, *asked.ids]
            tokens = torch.tensor([[runs[model].tokenizer.end_id, *ids]])
            with torch.no_grad():
                log_p_TV = runs[model].model(tokens[:, :-1])[0][0].float().log_softmax(-1)
            assert scored[0].logprob is None
            for place, each in enumerate(scored[1:], start=1):
                assert each.logprob == pytest.approx(float(log_p_TV[place, each.id]), abs=2e-5)
                best = log_p_TV[place].topk(3)
                assert [value for _, value in each.top] == pytest.approx(best.values.tolist(), abs=2e-5)
            only = await ask(engine, model, prompt, max_tokens=0, echo=True, logprobs=0)
            assert [each.id for each in only.events[0].prompt] == list(only.job.prompt)
            assert only.events[-1].finish == "length"
            assert only.ids == []

    run(main)


def test_where_a_text_ends(runs: dict[str, Any]) -> None:
    async def main() -> None:
        async with serving(runs) as engine:
            greedy = Sampling(temperature=0.0)
            whole = await ask(engine, LSTM, "ROMEO:", max_tokens=30, sampling=greedy)
            assert whole.events[-1].finish == "length"
            assert len(whole.ids) == 30
            stop = whole.text[10:13]
            stopped = await ask(engine, LSTM, "ROMEO:", max_tokens=30, sampling=greedy, stop=(stop,))
            assert stopped.events[-1].finish == "stop"
            assert stopped.text == whole.text[: whole.text.index(stop)]
            token = whole.ids[5]
            by_id = await ask(engine, LSTM, "ROMEO:", max_tokens=30, sampling=greedy, stop_ids=frozenset({token}))
            assert by_id.ids == whole.ids[: whole.ids.index(token)]
            assert by_id.events[-1].finish == "stop"
            later = await ask(
                engine, LSTM, "ROMEO:", max_tokens=30, sampling=greedy, stop_ids=frozenset({token}), min_tokens=12
            )
            assert len(later.ids) >= 12
            assert token not in later.ids[:12]

    run(main)


def test_a_cancelled_job_is_silent_and_its_row_free(runs: dict[str, Any]) -> None:
    async def main() -> None:
        async with serving(runs, slots=2) as engine:
            endless = [Asked(engine, LSTM, "O", max_tokens=10**6, ignore_end=True) for i in range(2)]
            for each in endless:
                engine.submit([each.job])
            waiting = Asked(engine, LSTM, "ROMEO:", max_tokens=5, sampling=WARM)
            engine.submit([waiting.job])
            while not endless[0].events:
                await asyncio.sleep(0.01)
            assert not waiting.events
            engine.cancel([endless[0].job])
            await asyncio.wait_for(waiting.over.wait(), 20)
            count = len(endless[0].events)
            await asyncio.sleep(0.1)
            assert len(endless[0].events) == count
            engine.cancel([endless[1].job])
            while engine.gauges()["requests_running"]:
                await asyncio.sleep(0.01)

    run(main)


def test_tokens_are_the_same_without_events(runs: dict[str, Any]) -> None:
    async def main() -> None:
        async with serving({LSTM: runs[LSTM]}) as engine:
            options: dict[str, Any] = {"max_tokens": 20, "sampling": WARM, "ignore_end": True}
            events = await ask(engine, LSTM, "ROMEO:", **options)
            tokens, plain = Asked(engine, LSTM, "ROMEO:", **options), []
            tokens.job.receive_token = lambda text, id: plain.append((text, id))
            engine.submit([tokens.job])
            await asyncio.wait_for(tokens.over.wait(), 60)
            first, last = tokens.events
            told = [(first.text, *first.ids), *plain, (last.text, *last.ids)]
            assert told == [(event.text, *event.ids) for event in events.events]
            assert "inter_token_latency_seconds_count 38\n" in engine.metrics.lines({})

    run(main)


def test_a_text_that_a_replica_gives_up_costs_the_others_nothing(runs: dict[str, Any]) -> None:
    async def main() -> None:
        threads = torch.get_num_threads()
        replica = Replica(lambda: {LSTM: runs[LSTM]}, {"slots": 4}, threads)
        await replica.start()
        jobs = [Job(LSTM, [1, 2], nobody, max_tokens=2000, ignore_end=True) for _ in range(2)]
        await replica.submit([Order(number, job, None) for number, job in enumerate(jobs)])
        came = await replica.events()
        await replica.cancel([0])
        replica._receive(0, Event("a", (1,)))  # one that was on its way
        while not any(each.event.finish for each in came):
            came += await replica.events()
        assert [each.event.finish for each in came if each.event.finish] == ["length"]
        assert sum(len(each.event.ids) for each in came if each.number == 1) == 2000
        replica._engine.stop()

    run(main)


def test_an_idle_engine_gives_the_memory_of_texts_back(runs: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("statewise.serving.memory._IDLE", 0.0)

    async def main() -> None:
        async with serving({TRANSFORMER: runs[TRANSFORMER]}, prefix_bytes=0) as engine:
            texts = []
            for _ in range(2):
                texts.append((await ask(engine, TRANSFORMER, "ROMEO:", max_tokens=12, sampling=WARM)).text)
                async with asyncio.timeout(10):
                    while engine.gauges()[f'state_bytes{{model="{TRANSFORMER}",family="transformer"}}']:
                        await asyncio.sleep(0.01)
            assert texts[0] == texts[1] != ""

    run(main)


def test_more_than_fits_is_refused_at_once_and_the_rest_is_served(runs: dict[str, Any]) -> None:
    async def main() -> None:
        async with serving({LSTM: runs[LSTM]}, slots=2, queue=3) as engine:
            accepted, reasons = [], []
            for seed in range(12):
                asked = Asked(engine, LSTM, "O", max_tokens=30, sampling=WARM._replace(seed=seed))
                try:
                    engine.submit([asked.job])
                    accepted.append(asked)
                except Refused as error:
                    reasons.append(error.reason)
            assert reasons == ["overloaded"] * 7
            for asked in accepted:
                await asyncio.wait_for(asked.over.wait(), 20)
                assert asked.events[-1].finish in ("stop", "length")

    run(main)


def test_what_takes_too_long_is_given_up(runs: dict[str, Any]) -> None:
    async def main() -> None:
        async with serving(runs, slots=1, queue_seconds=0.3) as engine:
            late = Asked(engine, LSTM, "O", max_tokens=10**6, ignore_end=True, deadline=time.monotonic() + 1.0)
            engine.submit([late.job])
            queued = Asked(engine, LSTM, "O", max_tokens=5)
            engine.submit([queued.job])
            for asked in (queued, late):
                await asyncio.wait_for(asked.over.wait(), 20)
                assert asked.events[-1].finish == "error"
                assert asked.events[-1].error is not None
                assert asked.events[-1].error.reason == "deadline"

    run(main)


def test_a_failure_ends_the_texts_of_that_model_and_the_engine_goes_on(
    runs: dict[str, Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with serving(runs) as engine:
            with monkeypatch.context() as patch:
                patch.setattr(Scheduler, "_step", lambda *_: 1 / 0)
                failed = await ask(engine, LSTM, "O", max_tokens=5)
            assert failed.events[-1].error is not None
            assert failed.events[-1].error.message == "the engine failed: ZeroDivisionError"
            assert engine.alive
            fine = await ask(engine, LSTM, "O", max_tokens=5)
            assert len(fine.ids) == 5

    run(main)
    assert "ZeroDivisionError" in caplog.text


def test_a_state_that_cannot_be_opened_or_saved_ends_its_text_alone(
    runs: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with serving(runs, states=str(tmp_path / "states")) as engine:
            room = engine.room
            await ask(engine, LSTM, "O", max_tokens=2, save="a")
            for owner, broken, options in (
                (Engine, "_unpacked", {"start": "a"}),
                (StateStore, "put_all", {"save": "b"}),
            ):
                with monkeypatch.context() as patch:
                    patch.setattr(owner, broken, lambda *_: 1 / 0)
                    failed = await ask(engine, LSTM, "O", max_tokens=2, **options)
                assert failed.events[-1].error is not None
                assert failed.events[-1].error.reason == "failed"
                assert "ZeroDivisionError" in failed.events[-1].error.message
                fine = await ask(engine, LSTM, "O", max_tokens=2, start="a", save="b")
                assert fine.events[-1].error is None
            assert (engine.alive, engine.room) == (True, room)

    run(main)
    assert caplog.text.count("ZeroDivisionError") == 2


def test_broken_outputs_end_their_text_alone(runs: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with serving(runs) as engine:
            step = Pool.step
            monkeypatch.setattr(
                Pool, "step", lambda *_, **how: (s := step(*_, **how))._replace(broken=s.tokens[1:] and [1])
            )
            asked = [Asked(engine, LSTM, "O", max_tokens=9, ignore_end=True) for _ in range(3)]
            engine.submit([each.job for each in asked])
            for each in asked:
                await asyncio.wait_for(each.over.wait(), 20)
            assert sorted(len(each.ids) for each in asked) == [0, 1, 9]
            assert [each.events[-1].finish for each in asked].count("error") == 2

    run(main)


def test_bad_jobs_are_refused_before_they_run(runs: dict[str, Any]) -> None:
    async def main() -> None:
        async with serving(runs) as engine:
            for options, message in (
                ({"prompt": [99999]}, "outside the vocabulary"),
                ({"prompt": [-1]}, "outside the vocabulary"),
                ({"model": "nobody"}, "no language model 'nobody'"),
                ({"sampling": Sampling(temperature=-1.0)}, "temperature = -1.0 is not valid"),
                ({"sampling": Sampling(bias=((999, 1.0),))}, "outside the vocabulary"),
                ({"stop_ids": frozenset({500})}, "outside the vocabulary"),
            ):
                job = Job(**{"model": LSTM, "prompt": [1], "receive": print, **options})
                with pytest.raises(Refused, match=message):
                    engine.submit([job])

    run(main)


def test_stopping_tells_those_who_wait_and_draining_lets_them_finish(runs: dict[str, Any]) -> None:
    async def main() -> None:
        async with serving(runs) as engine:
            short = Asked(engine, LSTM, "O", max_tokens=50)
            endless = Asked(engine, LSTM, "O", max_tokens=10**6, ignore_end=True)
            engine.submit([short.job])
            engine.submit([endless.job])
            await engine.drain(1.0)
            assert short.over.is_set()
            with pytest.raises(Refused, match="shutting down"):
                engine.submit([Asked(engine, LSTM, "O").job])
        await asyncio.wait_for(endless.over.wait(), 5)
        assert endless.events[-1].error is not None
        assert endless.events[-1].error.reason == "stopping"
        assert not engine.alive

    run(main)
