"""`/v1/completions` as its clients use it: whole, streamed, scored, several at once."""

import json
import math
import socket
from pathlib import Path

import pytest
from asking import Client, Running

from statewise.decoding import Sampling
from statewise.tasks import LanguageModelRun, load


def test_an_answer_has_the_form_that_clients_read(client: Client) -> None:
    said = client.ask("POST", "/v1/completions", {"model": "lstm", "prompt": "the cat", "max_tokens": 5, "seed": 1})
    made = said.json
    assert made["object"] == "text_completion"
    assert made["model"] == "lstm"
    assert made["id"].startswith("cmpl-")
    assert isinstance(made["created"], int)
    (choice,) = made["choices"]
    assert choice["index"] == 0
    assert choice["logprobs"] is None
    assert choice["finish_reason"] in ("length", "stop")
    usage = made["usage"]
    assert usage["prompt_tokens"] == 7
    assert usage["total_tokens"] == 7 + usage["completion_tokens"]
    assert said.headers["cache-control"] == "no-store"
    assert said.headers["x-request-id"]


@pytest.mark.parametrize("name", ["lstm", "transformer", "bytes"])
def test_the_server_writes_what_the_run_writes(client: Client, folders: dict[str, Path], name: str) -> None:
    run = load(folders[name], device="cpu")
    assert isinstance(run, LanguageModelRun)
    for settings in ({"temperature": 0.0}, {"temperature": 0.8, "top_k": 5, "seed": 3}, {"top_p": 0.7, "seed": 4}):
        sampling = Sampling(**{"temperature": 1.0, **settings})
        made = client.complete(model=name, prompt="the cat", max_tokens=30, **settings)
        assert made["choices"][0]["text"] == run.generate("the cat", tokens=30, sampling=sampling)


def test_a_stream_is_the_same_text_and_ends_as_clients_expect(client: Client) -> None:
    asked = {"prompt": "the cat", "max_tokens": 30, "seed": 1}
    whole = client.complete(**asked)
    chunks = client.chunks(**asked, stream_options={"include_usage": True})
    *texts, usage = chunks
    assert usage["choices"] == []
    assert usage["usage"] == whole["usage"] | {"prompt_tokens_details": usage["usage"]["prompt_tokens_details"]}
    assert all(chunk["usage"] is None for chunk in texts)
    assert "".join(chunk["choices"][0]["text"] for chunk in texts) == whole["choices"][0]["text"]
    finishes = [chunk["choices"][0]["finish_reason"] for chunk in texts]
    assert finishes == [None] * (len(texts) - 1) + [whole["choices"][0]["finish_reason"]]
    assert all("usage" not in chunk for chunk in client.chunks(**asked))


def test_several_prompts_and_choices_come_in_order(client: Client) -> None:
    made = client.complete(prompt=["the cat", "the dog"], n=2, max_tokens=6, seed=5)
    assert [choice["index"] for choice in made["choices"]] == [0, 1, 2, 3]
    alone = [
        client.complete(prompt=prompt, max_tokens=6, seed=seed)["choices"][0]["text"]
        for prompt in ("the cat", "the dog")
        for seed in (5, 6)
    ]
    assert [choice["text"] for choice in made["choices"]] == alone
    texts = ["", "", "", ""]
    for chunk in client.chunks(prompt=["the cat", "the dog"], n=2, max_tokens=6, seed=5):
        texts[chunk["choices"][0]["index"]] += chunk["choices"][0]["text"]
    assert texts == alone


def test_token_ids_are_prompts_too(client: Client) -> None:
    ids = client.ask("POST", "/tokenize", {"model": "lstm", "prompt": "the cat"}).json["tokens"]
    asked = {"max_tokens": 8, "seed": 2}
    expected = client.complete(prompt="the cat", **asked)["choices"][0]["text"]
    for prompt in (ids, [ids]):
        assert client.complete(prompt=prompt, **asked)["choices"][0]["text"] == expected


def test_nulls_count_as_left_out(client: Client) -> None:
    fields = ("seed", "logprobs", "logit_bias", "stop", "best_of", "n", "temperature", "top_p", "stream", "suffix")
    made = client.complete(prompt=None, max_tokens=2, stream_options=None, **dict.fromkeys(fields))
    assert made["usage"]["prompt_tokens"] == 0


def test_echo_scores_the_prompt_and_exactly_one_token_follows(client: Client) -> None:
    """What lm-eval asks for, and reads."""
    asked = {"prompt": "the cat sat", "max_tokens": 1, "temperature": 0, "logprobs": 1, "echo": True, "seed": 1}
    (choice,) = client.complete(**asked)["choices"]
    logprobs = choice["logprobs"]
    assert logprobs["token_logprobs"][0] is None or logprobs["token_logprobs"][0] <= 0
    assert len(logprobs["tokens"]) == 12
    assert "".join(logprobs["tokens"][:11]) == "the cat sat"
    assert logprobs["text_offset"] == list(range(12))
    for own, top in list(zip(logprobs["token_logprobs"], logprobs["top_logprobs"]))[1:]:
        assert own <= max(top.values())
    assert logprobs["token_logprobs"][-1] == max(logprobs["top_logprobs"][-1].values())
    assert choice["text"].startswith("the cat sat")


def test_scores_of_a_prompt_are_those_of_an_evaluation(client: Client, folders: dict[str, Path]) -> None:
    """A document as token ids between two ends, as lm-eval sends it: nothing predicts the first."""
    text = "the dog sat on the mat"
    end = client.ask("GET", "/tokenizer_info?model=lstm").json["eos_token_id"]
    ids = [end, *client.ask("POST", "/tokenize", {"model": "lstm", "prompt": text}).json["tokens"], end]
    made = client.complete(prompt=ids, max_tokens=0, logprobs=0, echo=True)["choices"][0]["logprobs"]
    assert made["top_logprobs"][1:] == [{name: own} for name, own in zip(made["tokens"], made["token_logprobs"])][1:]
    first, *logprobs = made["token_logprobs"]
    assert first is None
    evaluation = load(folders["lstm"], device="cpu").evaluate([text])
    assert len(logprobs) == evaluation.tokens
    assert math.isclose(-sum(logprobs) / len(logprobs), evaluation.nats_per_token, abs_tol=1e-5)


def test_the_drawn_token_is_among_the_alternatives(client: Client) -> None:
    """Even if others are more probable: at most one more than was asked for."""
    asked = {"prompt": "the cat", "max_tokens": 20, "temperature": 5.0, "seed": 1}
    for count in (0, 1, 3):
        logprobs = client.complete(**asked, logprobs=count)["choices"][0]["logprobs"]
        for token, own, top in zip(logprobs["tokens"], logprobs["token_logprobs"], logprobs["top_logprobs"]):
            assert next(iter(top.items())) == (token, own)
            assert max(count, 1) <= len(top) <= count + 1


def test_tokens_are_ids_where_that_was_asked(client: Client) -> None:
    asked = {"prompt": "the cat", "max_tokens": 4, "seed": 1, "logprobs": 2, "return_token_ids": True}
    (plain,) = client.complete(**asked)["choices"]
    (named,) = client.complete(**asked, return_tokens_as_token_ids=True)["choices"]
    assert named["logprobs"]["tokens"] == [f"token_id:{token}" for token in plain["token_ids"]]
    assert named["logprobs"]["text_offset"] == plain["logprobs"]["text_offset"]
    for top, own in zip(named["logprobs"]["top_logprobs"], named["logprobs"]["tokens"]):
        assert own in top
        assert all(name.startswith("token_id:") for name in top)


def test_every_chunk_counts_tokens_where_that_was_asked(client: Client) -> None:
    asked = {"prompt": "the cat", "max_tokens": 6, "seed": 1, "ignore_eos": True}
    options = {"include_usage": True, "continuous_usage_stats": True}
    *chunks, last = client.chunks(**asked, stream_options=options, return_token_ids=True)
    seen = 0
    for chunk in chunks:
        seen += len(chunk["choices"][0]["token_ids"])
        assert chunk["usage"]["prompt_tokens"] == 7
        assert chunk["usage"]["completion_tokens"] >= seen
        assert chunk["usage"]["total_tokens"] == 7 + chunk["usage"]["completion_tokens"]
    assert chunks[-1]["usage"].items() <= last["usage"].items()
    assert all(
        "usage" not in chunk for chunk in client.chunks(**asked, stream_options={**options, "include_usage": False})
    )


def test_a_stream_has_the_same_scores(client: Client) -> None:
    asked = {"prompt": "the cat", "max_tokens": 9, "seed": 1, "logprobs": 2, "echo": True}
    whole = client.complete(**asked)["choices"][0]["logprobs"]
    parts = [chunk["choices"][0]["logprobs"] for chunk in client.chunks(**asked)]
    for name in ("tokens", "token_logprobs", "text_offset"):
        assert [item for part in parts for item in part[name]] == whole[name]


def test_best_of_returns_the_most_probable(client: Client) -> None:
    asked = {"prompt": "the cat", "max_tokens": 8, "seed": 1, "logprobs": 0}
    every = client.complete(**asked, n=4)["choices"]
    best = client.complete(**asked, n=1, best_of=4)
    means = [sum(one["logprobs"]["token_logprobs"]) / len(one["logprobs"]["tokens"]) for one in every]
    assert best["choices"][0]["text"] == every[means.index(max(means))]["text"]
    assert best["usage"]["completion_tokens"] == sum(len(one["logprobs"]["tokens"]) for one in every)


def test_a_stop_text_ends_it_and_is_left_out(client: Client) -> None:
    asked = {"prompt": "the cat", "max_tokens": 200, "seed": 1}
    text = client.complete(**asked)["choices"][0]["text"]
    stop = text[10:12]
    (choice,) = client.complete(**asked, stop=[stop])["choices"]
    assert choice["text"] == text[: text.index(stop)]
    assert choice["finish_reason"] == "stop"
    streamed = client.chunks(**asked, stop=stop)
    assert "".join(chunk["choices"][0]["text"] for chunk in streamed) == choice["text"]
    assert streamed[-1]["choices"][0]["finish_reason"] == "stop"


def test_a_bias_forces_and_forbids(client: Client) -> None:
    (token,) = client.ask("POST", "/tokenize", {"model": "lstm", "prompt": "c"}).json["tokens"]
    asked = {"prompt": "the ", "max_tokens": 6, "temperature": 0}
    assert client.complete(**asked, logit_bias={str(token): 100})["choices"][0]["text"] == "cccccc"
    assert "c" not in client.complete(**asked, logit_bias={str(token): -100})["choices"][0]["text"]


def test_a_stop_token_and_ids_are_as_asked(client: Client) -> None:
    made = client.complete(prompt="the ", max_tokens=20, seed=1, return_token_ids=True)["choices"][0]
    ids = made["token_ids"]
    assert client.ask("POST", "/detokenize", {"model": "lstm", "tokens": ids}).json["prompt"] == made["text"]
    assert len(made["prompt_token_ids"]) == 4
    (choice,) = client.complete(prompt="the ", max_tokens=20, seed=1, stop_token_ids=[ids[5]], return_token_ids=True)[
        "choices"
    ]
    assert choice["token_ids"] == ids[: ids.index(ids[5])]
    assert choice["finish_reason"] == "stop"


def test_characters_of_several_tokens_come_whole(client: Client) -> None:
    """The run `bytes` has one token for each byte."""
    ids = list("né 猫".encode())
    assert client.ask("POST", "/tokenize", {"model": "bytes", "prompt": "né 猫"}).json["tokens"] == ids
    made = client.complete(model="bytes", prompt="né 猫", max_tokens=0, echo=True, logprobs=0)["choices"][0]
    assert made["text"] == "né 猫"
    assert made["logprobs"]["text_offset"] == [0, 1, 1, 2, 3, 3, 3]
    assert made["logprobs"]["tokens"][1].startswith("token_id:")
    shown = client.ask("POST", "/tokenize", {"model": "bytes", "prompt": "né", "return_token_strs": True}).json
    assert shown["token_strs"] == ["n", "token_id:195", "token_id:169"]


def test_many_requests_at_once_are_each_as_alone(client: Client, live: Running) -> None:
    from concurrent.futures import ThreadPoolExecutor

    asked = [{"prompt": "the cat"[: 1 + i % 7], "max_tokens": 12, "seed": i} for i in range(12)]
    alone = [client.complete(**one)["choices"][0]["text"] for one in asked]
    with ThreadPoolExecutor(12) as pool:
        together = list(pool.map(lambda one: client.complete(**one)["choices"][0]["text"], asked))
    assert together == alone
    client.until_idle()


@pytest.mark.parametrize("parts", [1, 2])
def test_a_request_that_comes_during_a_stream_is_answered_after_it(client: Client, parts: int) -> None:
    """Whole, or its second half later: a stream gives its parser away, but not one that has read a part."""
    body = json.dumps({"model": "lstm", "prompt": "the", "max_tokens": 300, "ignore_eos": True, "stream": True})
    first = "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    first += f"content-length: {len(body)}\r\n\r\n{body}"
    second = "GET /version HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    with socket.create_connection(("127.0.0.1", client.port), timeout=30) as connection:
        connection.sendall((first + second[:20] * (parts == 2)).encode())
        said = connection.recv(1)
        connection.sendall(second[20 * (parts == 2) :].encode())
        while part := connection.recv(1 << 16):
            said += part
    stream, _, answer = said.partition(b"data: [DONE]")
    assert stream.count(b"data: ") > 1
    assert b'{"version":' in answer
    assert said.count(b"HTTP/1.1 200") == 2


def test_two_requests_of_one_connection(client: Client) -> None:
    connection = client.open("GET", "/v1/models")
    try:
        assert len(json.loads(connection.getresponse().read())["data"]) == 8
        connection.request("GET", "/version")
        assert json.loads(connection.getresponse().read())["version"]
    finally:
        connection.close()
