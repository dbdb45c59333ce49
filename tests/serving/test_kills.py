"""kill -9 in the middle of everything, and a restart: what was acknowledged as saved goes on bit for bit."""

import http.client
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from asking import Client, process

SESSIONS = 4
TOKENS = 5  # of a turn of a conversation
ASKED: dict[str, Any] = {"max_tokens": TOKENS, "temperature": 1.0, "ignore_eos": True, "return_token_ids": True}


def talk(client: Client, session: int, acknowledged: dict[int, int]) -> None:
    """Turns of one conversation, until the server is gone."""
    while True:
        try:
            client.complete(**ASKED, seed=session, session_id=f"s{session}")
        except (OSError, http.client.HTTPException, AssertionError):
            return
        acknowledged[session] += TOKENS


@pytest.mark.parametrize("kills", [1, pytest.param(20, marks=pytest.mark.slow)])
def test_saved_conversations_survive_kills(text_runs: dict[str, Path], tmp_path: Path, kills: int) -> None:
    longest = 1000 + 200 * kills  # tokens; far more than are written before the last kill
    words = ("--states", str(tmp_path), "--batch-invariant", "--set", f"max_tokens={longest}")
    whole: list[list[int]] = []  # each conversation without any interruption
    acknowledged = dict.fromkeys(range(SESSIONS), 0)
    for kill in range(kills + 1):
        with process(text_runs["lstm"], *words) as (started, client):
            if not whole:
                for seed in range(SESSIONS):
                    asked = {**ASKED, "max_tokens": longest, "seed": seed, "prompt": "the cat"}
                    whole.append(client.complete(**asked)["choices"][0]["token_ids"])
                    client.ask("POST", "/v1/states", {"prompt": "the cat", "id": f"s{seed}"})
            for seed in range(SESSIONS):
                read = client.ask("GET", f"/v1/states/s{seed}").json["tokens"] - len(
                    "the cat"
                )  # whose characters are tokens
                # A turn may be saved although its answer never came; an answer never comes before its state is saved.
                assert read in (acknowledged[seed], acknowledged[seed] + TOKENS)
                acknowledged[seed] = read
                made = client.complete(**ASKED, seed=seed, state=f"s{seed}")["choices"][0]["token_ids"]
                assert made == whole[seed][read : read + TOKENS]
            if kill == kills:
                break
            threads = [threading.Thread(target=talk, args=(client, seed, acknowledged)) for seed in range(SESSIONS)]
            for thread in threads:
                thread.start()
            while min(acknowledged.values()) == 0:
                time.sleep(0.01)
            time.sleep(0.37 * kill % 0.3)
            started.kill()
            for thread in threads:
                thread.join()
    assert min(acknowledged.values()) > 0
    assert max(acknowledged.values()) < longest - TOKENS
