"""Tiny runs of several tasks, and one server for the tests that leave it as it is."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

for _library in ("starlette", "uvicorn", "httptools", "uvloop"):
    pytest.importorskip(_library, reason="the extra `serve` is not installed")

from asking import TEXT, Client, Running, running  # noqa: E402
from task_runs import STEPS, make_run  # noqa: E402

from statewise.tasks import train  # noqa: E402
from statewise.training.progress import Silent  # noqa: E402

CHAT = (
    "{{ bos_token }}{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
TASKS = {"classifier": "classifier", "tagger": "tagger", "translator": "translator", "forecaster": "direct"}


@pytest.fixture(scope="session")
def folders(tasks: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Run folders by the name they are served under."""
    world = tmp_path_factory.mktemp("served")
    (world / "text.txt").write_text(TEXT)
    made = {}
    kinds = {
        "lstm": ("lstm", {}),
        "transformer": ("transformer", {"model.heads": 2}),
        "bytes": ("gru", {"data.tokenizer": "byte"}),
    }
    for name, (kind, settings) in kinds.items():
        made[name] = world / "runs" / name
        steps = {**STEPS, "train.window": 8, "train.truncation": 8, "train.evaluate_tokens": 100, **settings}
        train(kind, settings=steps, data=world / "text.txt", out=made[name], display=Silent())
    made["chatty"] = world / "runs" / "chatty"
    shutil.copytree(made["bytes"], made["chatty"])
    (made["chatty"] / "chat_template.jinja").write_text(CHAT)
    return made | {name: make_run(kind, tasks) for name, kind in TASKS.items()}


@pytest.fixture(scope="session")
def live(folders: dict[str, Path]) -> Iterator[Running]:
    with running(folders, slots=8, queue=8) as made:
        yield made


@pytest.fixture
def client(live: Running) -> Client:
    return live.client


@pytest.fixture(scope="session")
def text_runs(folders: dict[str, Path]) -> dict[str, Path]:
    return {"lstm": folders["lstm"]}
