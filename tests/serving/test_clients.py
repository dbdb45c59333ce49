"""Clients that were written elsewhere: OpenAI's, LangChain's, lm-eval. Each is skipped where it is not installed."""

import asyncio
import math
from pathlib import Path
from typing import Any

import pytest
from asking import TEXT, Running, running
from task_runs import STEPS

from statewise.models import LINEAGE
from statewise.tasks import load, train
from statewise.training.progress import Silent


@pytest.fixture(scope="module")
def address(live: Running) -> str:
    return f"http://127.0.0.1:{live.client.port}/v1"


@pytest.fixture(scope="module")
def openai(address: str) -> Any:
    library = pytest.importorskip("openai", reason="the client openai is not installed")
    with library.OpenAI(base_url=address, api_key="none", max_retries=0) as client:
        yield client


ASKED: dict[str, Any] = {"model": "lstm", "prompt": "the cat", "max_tokens": 12, "seed": 1}


def test_openai_completes_and_streams(openai: Any, live: Running) -> None:
    expected = live.client.complete(**ASKED)["choices"][0]["text"]
    made = openai.completions.create(**ASKED, logprobs=2)
    assert made.choices[0].text == expected
    assert made.usage.completion_tokens == len(made.choices[0].logprobs.tokens)
    parts = list(openai.completions.create(**ASKED, stream=True, stream_options={"include_usage": True}))
    assert "".join(part.choices[0].text for part in parts if part.choices) == expected
    assert parts[-1].usage.total_tokens == made.usage.total_tokens
    assert {model.id for model in openai.models.list()} >= {"lstm", "transformer"}
    assert openai.models.retrieve("lstm").id == "lstm"


def test_openai_at_once(openai: Any, address: str, live: Running) -> None:
    import openai as library

    async def several() -> list[str]:
        async with library.AsyncOpenAI(base_url=address, api_key="none") as client:
            made = await asyncio.gather(*(client.completions.create(**{**ASKED, "seed": seed}) for seed in range(8)))
        return [one.choices[0].text for one in made]

    alone = [live.client.complete(**{**ASKED, "seed": seed})["choices"][0]["text"] for seed in range(8)]
    assert asyncio.run(several()) == alone


def test_openai_continues_responses(openai: Any, live: Running) -> None:
    whole = live.client.complete(**ASKED)["choices"][0]["text"]
    asked = {"model": "lstm", "max_output_tokens": 6, "extra_body": {"seed": 1}}
    first = openai.responses.create(input="the cat", **asked)
    rest = openai.responses.create(input="", previous_response_id=first.id, **asked)
    assert first.output_text + rest.output_text == whole
    assert openai.responses.retrieve(first.id).output_text == first.output_text
    events = list(openai.responses.create(input="the cat", stream=True, **asked))
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == first.output_text
    openai.responses.delete(first.id)


def test_openai_chats(openai: Any, live: Running) -> None:
    asked: dict[str, Any] = {"model": "chatty", "messages": [{"role": "user", "content": "the cat"}], "seed": 1}
    letters = {str(letter): 50 for letter in b"abcdefghijklmnopqrstuvwxyz "}
    asked |= {"max_completion_tokens": 12, "logit_bias": letters, "extra_body": {"ignore_eos": True}}
    made = openai.chat.completions.create(**asked, n=2, logprobs=True, top_logprobs=2)
    expected = made.choices[0].message.content
    assert len(made.choices) == 2
    assert len(made.choices[0].logprobs.content[0].top_logprobs) == 2
    parts = list(openai.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
    assert "".join(part.choices[0].delta.content for part in parts if part.choices) == expected
    assert parts[-1].usage.prompt_tokens == made.usage.prompt_tokens
    session = {"session_id": "openai", "ignore_eos": True}
    first = openai.chat.completions.create(**{**asked, "extra_body": session}).choices[0].message.content
    assert first == expected
    more = {"role": "user", "content": "and?"}
    second = openai.chat.completions.create(**{**asked, "messages": [more], "extra_body": session})
    whole = [*asked["messages"], {"role": "assistant", "content": first}, more]
    again = openai.chat.completions.create(**{**asked, "messages": whole})
    assert second.choices[0].message.content == again.choices[0].message.content


def test_openai_has_its_own_errors(openai: Any, address: str) -> None:
    import openai as library

    with pytest.raises(library.NotFoundError, match="served here"):
        openai.completions.create(**{**ASKED, "model": "nope"})
    with pytest.raises(library.BadRequestError) as caught:
        openai.completions.create(**{**ASKED, "temperature": -1})
    assert caught.value.param == "temperature"
    with pytest.raises(library.BadRequestError, match="no chat format"):
        openai.chat.completions.create(model="lstm", messages=[{"role": "user", "content": "hello"}])


def test_langchain_invokes_streams_and_batches(address: str, live: Running) -> None:
    library = pytest.importorskip("langchain_openai", reason="the client langchain-openai is not installed")
    model = library.OpenAI(base_url=address, api_key="none", model="lstm", max_tokens=12, temperature=0)
    expected = live.client.complete(**{**ASKED, "temperature": 0})["choices"][0]["text"]
    assert model.invoke("the cat") == expected
    assert "".join(model.stream("the cat")) == expected
    assert model.batch(["the cat", "the cat"]) == [expected] * 2


SLOW = [pytest.param(row.name, marks=pytest.mark.slow) for row in LINEAGE if row.name not in ("lstm", "transformer")]


@pytest.fixture
def folder(request: pytest.FixtureRequest, folders: dict[str, Path], tmp_path: Path) -> Path:
    """A run of this name: of the folders that all tests use, or of the recipe, for a few steps."""
    if request.param in folders:
        return folders[request.param]
    few = {} if request.param == "markov" else {**STEPS, "train.window": 8, "train.truncation": 8, "model.width": 16}
    (tmp_path / "text.txt").write_text(TEXT)
    train(request.param, settings=few, data=tmp_path / "text.txt", out=tmp_path / request.param, display=Silent())
    return tmp_path / str(request.param)


@pytest.mark.parametrize("folder", ["lstm", "transformer", "bytes", *SLOW], indirect=True)
def test_lm_eval_measures_what_an_evaluation_does(folder: Path) -> None:
    """Bits per byte of whole documents, as its `loglikelihood_rolling` asks for them. Its tokenizer names no model."""
    models = pytest.importorskip("lm_eval.models.openai_completions", reason="lm-eval is not installed")
    from lm_eval.api.instance import Instance

    texts = ["the dog sat on the mat", "so the cat and the dog sat."]
    name = folder.name
    with running({name: folder}) as live:
        client = live.client
        model = models.LocalCompletionsAPI(
            model=name,
            base_url=f"http://127.0.0.1:{client.port}/v1/completions",
            tokenizer_backend="remote",
            max_length=2048,
            batch_size=2,
        )
        asked = [
            Instance(request_type="loglikelihood_rolling", doc={}, arguments=(text,), idx=number)
            for number, text in enumerate(texts)
        ]
        nats = -sum(model.loglikelihood_rolling(asked))
        end = client.ask("GET", "/tokenizer_info").json["eos_token_id"]
        assert model.eot_token_id == end
        for text in texts:  # an evaluation predicts the end of each document too, which lm-eval does not score
            ids = client.ask("POST", "/tokenize", {"prompt": text}).json["tokens"]
            made = client.complete(model=name, prompt=[*ids, end], max_tokens=0, echo=True, logprobs=0)
            nats -= made["choices"][0]["logprobs"]["token_logprobs"][-1]
        generated = Instance(
            request_type="generate_until",
            doc={},
            arguments=("the cat", {"until": ["zzz"], "max_gen_toks": 12, "temperature": 0}),
            idx=0,
        )
        (text,) = model.generate_until([generated])
        assert text == client.complete(model=name, prompt="the cat", max_tokens=12, temperature=0)["choices"][0]["text"]
    run = load(folder, device="cpu").with_settings(["data.evaluate_state=carried"])  # a whole document is read
    evaluation = run.evaluate(texts)
    bits = nats / math.log(2) / sum(len(text.encode()) for text in texts)
    assert bits == pytest.approx(evaluation.bits_per_byte, abs=1e-4)
    assert nats / evaluation.tokens == pytest.approx(evaluation.nats_per_token, abs=1e-4)
