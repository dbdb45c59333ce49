"""Replicas on a local Ray: the same texts as one engine; one that is killed costs neither a text nor a saved state."""

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from asking import Client, process

pytest.importorskip("ray", reason="needs the extra `ray`")
pytestmark = pytest.mark.slow

ASKED: dict[str, Any] = {"temperature": 1.0, "ignore_eos": True, "return_token_ids": True}


@pytest.fixture(scope="module")
def cluster(folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    words = ("--engine", "ray", "--replicas", "2", "--device", "cpu", "--batch-invariant")
    states = str(tmp_path_factory.mktemp("states"))
    with process(folders["lstm"], str(folders["tagger"]), *words, "--states", states) as (started, client):
        yield client
        started.send_signal(signal.SIGTERM)
        assert started.wait(30) == 143


@pytest.fixture(scope="module")
def single(folders: dict[str, Path]) -> Iterator[Client]:
    with process(folders["lstm"], str(folders["tagger"]), "--batch-invariant", "--device", "cpu") as (_, client):
        yield client


def pids(client: Client) -> list[int]:
    """The processes of the replicas."""
    lines = client.ask("GET", "/metrics").content.decode().splitlines()
    return [int(line.partition('pid="')[2].partition('"')[0]) for line in lines if "replica_up{" in line]


def ids_of(answer: Any) -> list[int]:
    found: list[int] = answer["choices"][0]["token_ids"]
    return found


def until_replaced(client: Client, killed: int) -> None:
    end = time.monotonic() + 60
    while len(pids(client)) < 2 or killed in pids(client):
        assert time.monotonic() < end, "the replica was not replaced"
        time.sleep(0.1)


def test_texts_and_predictions_are_those_of_one_engine(cluster: Client, single: Client) -> None:
    for seed in range(6):
        asked = {**ASKED, "prompt": "the cat", "max_tokens": 20, "seed": seed, "n": 2, "logprobs": 2}
        ours, theirs = (client.complete(**asked)["choices"] for client in (cluster, single))
        assert ours == theirs
    rows = {"model": "tagger", "input": [["the", "cat", "sees", "a", "fox"]]}
    assert cluster.ask("POST", "/v1/tag", rows).json == single.ask("POST", "/v1/tag", rows).json
    refused = cluster.ask("POST", "/v1/completions", {"model": "lstm", "state": "nothing"})
    assert refused.status == 404


def test_a_replica_is_killed_and_conversations_go_on_bit_for_bit(cluster: Client, single: Client) -> None:
    whole = [
        ids_of(single.complete(**ASKED, prompt="the cat", max_tokens=40, seed=seed, save_state=f"whole-{seed}"))
        for seed in range(8)
    ]
    for seed in range(8):
        first = cluster.complete(**ASKED, prompt="the cat", max_tokens=15, seed=seed, session_id=f"s{seed}")
        assert ids_of(first) == whole[seed][:15]
    killed = pids(cluster)[0]
    os.kill(killed, signal.SIGKILL)
    for seed in range(8):  # at once: sessions of the lost replica are continued by the other one
        rest = cluster.complete(**ASKED, max_tokens=25, seed=seed, session_id=f"s{seed}")
        assert ids_of(rest) == whole[seed][15:]
    until_replaced(cluster, killed)
    for seed in range(8):
        about = cluster.ask("GET", f"/v1/states/s{seed}").json
        assert about["tokens"] == single.ask("GET", f"/v1/states/whole-{seed}").json["tokens"]


def test_a_stream_does_not_notice_that_its_replica_is_killed(cluster: Client, single: Client) -> None:
    asked = {**ASKED, "prompt": "the cat", "max_tokens": 1500}
    wanted = [ids_of(single.complete(**asked, seed=seed)) for seed in range(4)]
    found: dict[int, list[int]] = {}

    def read(seed: int) -> None:
        *events, done = cluster.stream(**asked, seed=seed)
        assert done == "[DONE]"
        found[seed] = [token for event in events for token in json.loads(event)["choices"][0]["token_ids"]]

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(0.5)
    killed = pids(cluster)[1]
    os.kill(killed, signal.SIGKILL)
    for thread in threads:
        thread.join()
    assert [found.get(seed) for seed in range(4)] == wanted
    until_replaced(cluster, killed)


def test_both_replicas_are_killed(cluster: Client) -> None:
    first = cluster.complete(**ASKED, prompt="the cat", max_tokens=5, seed=9, session_id="both")
    for pid in pids(cluster):
        os.kill(pid, signal.SIGKILL)
    end = time.monotonic() + 60
    while True:
        said = cluster.ask("POST", "/v1/completions", {**ASKED, "model": "lstm", "seed": 9, "session_id": "both"})
        if said.status == 200:
            break
        assert said.status == 429, said.content
        assert time.monotonic() < end
        time.sleep(0.2)
    whole = cluster.complete(**ASKED, prompt="the cat", max_tokens=21, seed=9)
    assert ids_of(first) + ids_of(said.json) == ids_of(whole)
