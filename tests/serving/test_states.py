"""Saved states, sessions and responses: each continues exactly, forks, moves, and belongs to one key."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from asking import Client, Running, running

from statewise.core import leaves, map_state, pack_state
from statewise.decoding import Sampling
from statewise.serving.http.service import Kept
from statewise.serving.store import StateStore
from statewise.tasks import LanguageModelRun, load
from statewise.training import weights_sha256

STATES = "/v1/states"
OCTETS = "application/octet-stream"


def keep(client: Client, **asked: Any) -> dict[str, Any]:
    said = client.ask("POST", STATES, {"model": "lstm", **asked})
    assert said.status == 201, said.content
    made: dict[str, Any] = said.json
    return made


@pytest.mark.parametrize("model", ["lstm", "transformer"])
def test_a_completion_from_a_state_is_that_of_the_whole_text(client: Client, model: str) -> None:
    asked = {"model": model, "max_tokens": 20, "seed": 7}
    whole = client.complete(prompt="the cat sat on", **asked)["choices"][0]["text"]
    saved = keep(client, model=model, prompt="the cat", id=f"cat-{model}")
    assert saved["object"] == "state"
    assert saved["tokens"] == 7
    for _ in range(2):  # starting from a state leaves it as it is: twice is a fork
        made = client.complete(prompt=" sat on", state=f"cat-{model}", **asked)
        assert made["choices"][0]["text"] == whole
        assert made["usage"]["prompt_tokens"] == 7


def test_a_state_is_saved_after_a_text(client: Client) -> None:
    whole = client.complete(prompt="the cat", max_tokens=20, seed=3)["choices"][0]["text"]
    first = client.complete(prompt="the cat", max_tokens=8, seed=3, save_state=True)["choices"][0]
    rest = client.complete(state=first["state"]["id"], max_tokens=12, seed=3)["choices"][0]
    assert first["text"] + rest["text"] == whole
    chunks = client.chunks(prompt="the cat", max_tokens=8, seed=3, save_state="after-stream")
    assert chunks[-1]["choices"][0]["state"]["id"] == "after-stream"
    assert client.complete(state="after-stream", max_tokens=12, seed=3)["choices"][0]["text"] == rest["text"]
    many = client.complete(prompt="the", n=2, max_tokens=2, save_state=True)["choices"]
    assert len({choice["state"]["id"] for choice in many}) == 2


def test_a_session_goes_on_by_its_name(client: Client) -> None:
    whole = client.complete(prompt="the cat", max_tokens=18, seed=4)["choices"][0]["text"]
    first = client.complete(prompt="the cat", max_tokens=6, seed=4, session_id="talk")["choices"][0]["text"]
    second = client.complete(max_tokens=6, seed=4, session_id="talk")["choices"][0]["text"]
    said = client.ask("POST", "/v1/completions", {"model": "lstm", "max_tokens": 6, "seed": 4}, x_session_id="talk")
    assert first + second + said.json["choices"][0]["text"] == whole


@pytest.mark.parametrize("verb", ["fork", "delete"])
def test_a_slow_disk_holds_up_nobody_else(client: Client, verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(client, prompt="the cat", id="slow")
    begun, over, real = threading.Event(), threading.Event(), getattr(StateStore, verb)

    def slow(*args: Any) -> Any:
        begun.set()
        assert over.wait(20), "nobody else was answered"
        return real(*args)

    monkeypatch.setattr(StateStore, verb, slow)
    path = f"{STATES}/slow/fork" if verb == "fork" else f"{STATES}/slow"
    with ThreadPoolExecutor(1) as aside:
        asked = aside.submit(client.ask, "POST" if verb == "fork" else "DELETE", path)
        assert begun.wait(20)
        assert client.ask("GET", "/health").status == 200
        over.set()
        assert asked.result().status == (201 if verb == "fork" else 200)


def test_states_are_listed_forked_and_deleted(client: Client) -> None:
    keep(client, prompt="the dog", id="dog")
    forked = client.ask("POST", f"{STATES}/dog/fork", {"id": "dog-2"})
    assert forked.status == 201
    assert forked.json["id"] == "dog-2"
    made = client.ask("POST", f"{STATES}/dog/fork")
    assert made.status == 201
    named = {one["id"] for one in client.ask("GET", STATES).json["data"]}
    assert {"dog", "dog-2", made.json["id"]} <= named
    assert client.ask("GET", f"{STATES}/dog-2").json["tokens"] == 7
    assert client.ask("DELETE", f"{STATES}/dog-2").json["deleted"] is True
    assert client.ask("GET", f"{STATES}/dog-2").status == 404
    assert client.ask("POST", "/v1/completions", {"model": "lstm", "state": "dog-2"}).status == 404
    assert client.ask("GET", f"{STATES}/dog").status == 200


def test_a_state_moves_between_the_server_and_the_command_line(
    client: Client, folders: dict[str, Path], tmp_path: Path
) -> None:
    run = load(folders["lstm"], device="cpu")
    assert isinstance(run, LanguageModelRun)
    keep(client, prompt="the cat", id="moving")
    expected = client.complete(state="moving", max_tokens=12, seed=5)["choices"][0]["text"]
    content = client.ask("GET", f"{STATES}/moving/content")
    assert content.headers["content-type"] == "application/octet-stream"
    (tmp_path / "down.safetensors").write_bytes(content.content)
    at = run.load_state(tmp_path / "down.safetensors")
    sampling = Sampling(seed=5)
    assert "".join(piece for piece, _ in run.stream(tokens=12, sampling=sampling, start=at)) == expected

    run.save_state(run.begin("the cat"), tmp_path / "up.safetensors")
    data, path = (tmp_path / "up.safetensors").read_bytes(), f"{STATES}/up/content"
    assert client.ask("PUT", f"{path}?model=lstm", data, content_type=OCTETS).status == 201
    assert client.complete(state="up", max_tokens=12, seed=5)["choices"][0]["text"] == expected
    assert client.ask("PUT", f"{path}?model=transformer", data, content_type=OCTETS).status == 400
    assert client.ask("PUT", f"{path}?model=lstm", data[:-9], content_type=OCTETS).status == 400
    assert client.ask("PUT", f"{path}?model=lstm", b"\xff" * 64, content_type=OCTETS).status == 400
    assert client.ask("PUT", f"{path}?model=lstm", b"", content_type=OCTETS).status == 400
    wrong = client.ask("POST", "/v1/completions", {"model": "transformer", "state": "up"})
    assert wrong.status == 400
    assert wrong.error["param"] == "state"


def filled(state: Any, leaf: str, value: float) -> Any:
    names = iter([name for name, _ in leaves(state)])
    return map_state(lambda kept: kept.clone().fill_(value) if next(names) == leaf else kept, state)


@pytest.mark.parametrize(
    ("leaf", "values", "said"),
    [
        ("state.layers.0.length_B", [-1, 2**53, 2**63 - 1, 0], "holds a count of"),
        ("state.layers.0.values_BSGK", [float("inf"), float("-inf"), float("nan")], "not finite numbers"),
    ],
)
def test_what_no_state_holds_is_refused(
    client: Client, folders: dict[str, Path], leaf: str, values: list[Any], said: str
) -> None:
    run, path = load(folders["transformer"], device="cpu"), f"{STATES}/wrong/content?model=transformer"
    assert isinstance(run, LanguageModelRun)
    at = run.begin("the cat")
    weights = weights_sha256(run.model)
    assert client.ask("PUT", path, pack_state(at, weights=weights), content_type=OCTETS).status == 201
    for wrong in (filled(at, leaf, value) for value in values):
        refused = client.ask("PUT", path, pack_state(wrong, weights=weights), content_type=OCTETS)
        assert refused.status == 400
        assert said in refused.error["message"]


def test_a_header_without_metadata_is_refused(client: Client) -> None:
    header = b'{"__metadata__":null,"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}'
    content = len(header).to_bytes(8, "little") + header
    assert client.ask("PUT", f"{STATES}/bare/content?model=lstm", content, content_type=OCTETS).status == 400


def test_saved_states_survive_a_restart(text_runs: dict[str, Path], tmp_path: Path) -> None:
    with running(text_runs, states=str(tmp_path)) as first:
        keep(first.client, prompt="the cat", id="kept")
        expected = first.client.complete(state="kept", max_tokens=12, seed=5)["choices"][0]["text"]
    with running(text_runs, states=str(tmp_path)) as second:
        assert second.client.complete(state="kept", max_tokens=12, seed=5)["choices"][0]["text"] == expected


def test_states_of_one_key_are_invisible_to_another(text_runs: dict[str, Path]) -> None:
    with running(text_runs, keys=("first-key-1", "second-key-2")) as live:
        mine, other = live.client, Client(live.client.port, {"authorization": "Bearer second-key-2"})
        keep(mine, prompt="the cat", id="secret")
        made = mine.ask("POST", "/v1/responses", {"input": "the", "max_output_tokens": 2}).json
        for path in (f"{STATES}/secret", f"{STATES}/secret/content", f"/v1/responses/{made['id']}"):
            assert mine.ask("GET", path).status == 200
            assert other.ask("GET", path).status == 404
        assert other.ask("GET", STATES).json["data"] == []
        assert other.ask("DELETE", f"{STATES}/secret").status == 404
        assert other.ask("POST", f"{STATES}/secret/fork").status == 404
        assert other.ask("POST", "/v1/completions", {"state": "secret"}).status == 404
        later = {"input": "x", "previous_response_id": made["id"]}
        assert other.ask("POST", "/v1/responses", later).status == 404
        keep(other, prompt="a dog", id="secret")  # the same id is another state
        assert mine.ask("GET", f"{STATES}/secret").json["tokens"] == 7
        assert other.ask("GET", f"{STATES}/secret").json["tokens"] == 5


# ------------------------------------------------------------------ responses


def respond(client: Client, **asked: Any) -> dict[str, Any]:
    said = client.ask("POST", "/v1/responses", {"model": "lstm", **asked})
    assert said.status == 200, said.content
    made: dict[str, Any] = said.json
    return made


def text_of(response: dict[str, Any]) -> str:
    text: str = response["output"][0]["content"][0]["text"]
    return text


def test_a_response_continues_another_and_two_are_a_fork(client: Client) -> None:
    whole = client.complete(prompt="the cat", max_tokens=16, seed=9)["choices"][0]["text"]
    first = respond(client, input="the cat", max_output_tokens=8, seed=9)
    assert first["object"] == "response"
    assert first["status"] == "incomplete"
    assert first["incomplete_details"] == {"reason": "max_output_tokens"}
    assert first["usage"]["output_tokens"] == 8
    left, right = (respond(client, max_output_tokens=8, seed=9, previous_response_id=first["id"]) for _ in range(2))
    assert text_of(first) + text_of(left) == whole
    assert text_of(left) == text_of(right)
    assert left["id"] != right["id"]
    assert client.ask("GET", f"/v1/responses/{first['id']}").json == first
    assert client.ask("DELETE", f"/v1/responses/{first['id']}").json["deleted"] is True
    assert client.ask("GET", f"/v1/responses/{first['id']}").status == 404
    gone = client.ask("POST", "/v1/responses", {"model": "lstm", "previous_response_id": first["id"]})
    assert gone.status == 404
    assert gone.error["param"] == "previous_response_id"


def test_a_response_that_is_not_stored_cannot_be_continued(client: Client) -> None:
    made = respond(client, input=[{"role": "user", "content": [{"type": "input_text", "text": "the"}]}], store=False)
    assert client.ask("GET", f"/v1/responses/{made['id']}").status == 404
    later = {"model": "lstm", "previous_response_id": made["id"]}
    assert client.ask("POST", "/v1/responses", later).status == 404


def test_a_streamed_response_has_all_events_in_order(client: Client) -> None:
    asked = {"input": "the cat", "max_output_tokens": 8, "seed": 9}
    events = [json.loads(event) for event in client.stream("/v1/responses", **asked)]
    kinds = [event["type"].removeprefix("response.") for event in events]
    deltas = kinds.count("output_text.delta")
    begins = ["created", "in_progress", "output_item.added", "content_part.added"]
    ends = ["output_text.done", "content_part.done", "output_item.done", "incomplete"]
    assert kinds == [*begins, *["output_text.delta"] * deltas, *ends]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    text = "".join(event.get("delta", "") for event in events)
    assert text == text_of(events[-1]["response"]) == text_of(respond(client, **asked))
    stored = client.ask("GET", f"/v1/responses/{events[-1]['response']['id']}")
    assert stored.json == events[-1]["response"]


def test_answers_that_can_be_read_again_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("statewise.serving.http.service._MOST_KEPT", 3)
    monkeypatch.setattr("statewise.serving.http.service._MOST_KEPT_BYTES", 100)
    kept = Kept()
    for number in range(5):
        kept.put(f"r{number}", "me", b"x" * 10)
    assert [kept.get(f"r{number}", "me") is not None for number in range(5)] == [False, False, True, True, True]
    assert kept.get("r4", "you") is None
    kept.drop("r3")
    kept.put("long", "me", b"x" * 90)
    assert [kept.get(id, "me") is not None for id in ("r2", "r4", "long")] == [False, True, True]


# ------------------------------------------------------------------ other tasks and the rest


@pytest.mark.parametrize(
    ("verb", "model", "rows"),
    [
        ("classify", "classifier", ["a warm film", "a dull film of the year"]),
        ("tag", "tagger", [["the", "cat", "sees", "a", "fox"]]),
        ("translate", "translator", ["a b c", "d e f"]),
        ("forecast", "forecaster", [20.0 + i % 12 for i in range(48)]),
    ],
)
def test_predictions_are_those_of_the_run(
    client: Client, folders: dict[str, Path], verb: str, model: str, rows: list[Any]
) -> None:
    run: Any = load(folders[model], device="cpu")
    expected = json.loads(json.dumps(list(run.predict_rows(rows))))
    for path in (verb, "predict"):
        said = client.ask("POST", f"/v1/{path}", {"model": model, "input": rows})
        assert said.status == 200, said.content
        assert said.json["data"] == expected


def test_models_say_what_a_sequence_costs(client: Client) -> None:
    models = {model["id"]: model for model in client.ask("GET", "/v1/models").json["data"]}
    lstm, transformer = models["lstm"], models["transformer"]
    assert lstm["family"] == "lstm"
    assert lstm["max_context"] is None
    assert not lstm["state_grows"]
    assert transformer["state_grows"]
    assert lstm["sequences_per_gigabyte"] == 10**9 // lstm["state_bytes_per_sequence"]
    assert models["classifier"]["task"] == "classification"
    assert client.ask("GET", "/v1/models/lstm").json == lstm


def test_metrics_count(client: Client, live: Running) -> None:
    before = client.metric("generation_tokens_total")
    made = client.complete(prompt="the", max_tokens=9, seed=1)
    assert client.metric("generation_tokens_total") == before + made["usage"]["completion_tokens"]
    text = client.ask("GET", "/metrics")
    assert text.headers["content-type"].startswith("text/plain; version=0.0.4")
    names = {line.split(" ")[2] for line in text.content.decode().splitlines() if line.startswith("# TYPE")}
    assert {"statewise_requests_running", "statewise_time_to_first_token_seconds", "statewise_state_bytes"} <= names


def test_tokens_there_and_back(client: Client) -> None:
    made = client.ask("POST", "/tokenize", {"model": "lstm", "prompt": "the cat"}).json
    assert made["count"] == len(made["tokens"]) == 7
    assert client.ask("POST", "/detokenize", {"model": "lstm", "tokens": made["tokens"]}).json["prompt"] == "the cat"
    assert client.ask("POST", "/detokenize", {"model": "lstm", "tokens": [10**6]}).status == 400
    assert client.ask("GET", "/tokenizer_info?model=lstm").json["eos_token"]
    assert client.ask("GET", "/tokenizer_info").status == 400  # which of three?
