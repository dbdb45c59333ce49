"""`statewise lab RUN --live`: the page asks a server of this machine, and shows what the page from disk shows."""

import base64
import contextlib
import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from task_runs import STEPS

import statewise as sw
from statewise.specs import UserError
from statewise.tasks import train
from statewise.training.progress import Silent

pytest.importorskip("starlette", reason="the extra `serve` is not installed")

from statewise.lab.live.model import Change, Hold
from statewise.lab.live.session import Asked, FutureRequest, GradientRequest, Live, ReadRequest, TrainRequest

TEXT = "`it is a cat,' she said, and `so is he.' " * 40
KINDS = ("lstm", "transformer")


class Served(NamedTuple):
    address: str
    disk: Path  # the same runs as a page that opens from disk


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    world = tmp_path_factory.mktemp("live")
    (world / "text.txt").write_text(TEXT)
    size = {"train.window": 16, "train.truncation": 16, "model.width": 8, "train.evaluate_tokens": 100}
    for kind in KINDS:
        heads = {"model.heads": 2} if kind == "transformer" else {}
        given = {**STEPS, **size, **heads, "train.steps": 20}
        train(kind, settings=given, data=world / "text.txt", out=world / kind, display=Silent())
    return [sw.load(world / kind, device="cpu") for kind in KINDS]


@pytest.fixture(scope="module")
def served(runs: list[Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    disk = sw.lab.show(runs, exact=True).save(tmp_path_factory.mktemp("disk") / "lab.html")
    words = ["lab", *(str(run.path) for run in runs), "--live", "--port", "0", "--device", "cpu", "--json"]
    with subprocess.Popen([sys.executable, "-m", "statewise", *words], stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        said = ""
        while not said.rstrip().endswith("}"):
            line = started.stdout.readline()
            assert line, "the server ended"
            said += line
        yield Served(json.loads(said)["address"], disk)
        started.terminate()


def asked(served: Served, what: str, body: dict[str, Any], **headers: str) -> tuple[int, dict[str, Any]]:
    request = urllib.request.Request(
        f"{served.address}lab/{what}", json.dumps(body).encode(), {"content-type": "application/json", **headers}
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def sent(text: str) -> torch.Tensor:
    return torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.float32)


# -------------------------------------------------------------------- what the server computes


@pytest.fixture
def live(runs: list[Any]) -> Live:
    made = Live(runs)
    made.bundle()
    return made


@pytest.mark.parametrize("kind", KINDS)
def test_steps_from_a_kept_state_are_those_of_the_model(kind: str, live: Live, runs: list[Any]) -> None:
    (run,) = (run for run in runs if run.path.name == kind)
    tokens = run.tokenizer.encode("it is a cat").tolist()
    first = live.read(ReadRequest(model=kind, tokens=tokens[:5]))["steps"][-1]
    then = live.read(ReadRequest(model=kind, state=first["id"], tokens=tokens[5:]))["steps"]
    whole = live.read(ReadRequest(model=kind, tokens=tokens))["steps"]
    logits_BTV, _ = run.model(torch.tensor([tokens]), run.begin().state)
    for at, (one, other) in enumerate(zip(then, whole[5:]), 5):
        torch.testing.assert_close(sent(one["logits"]), sent(other["logits"]), atol=1e-6, rtol=0)
        torch.testing.assert_close(sent(one["logits"]), logits_BTV[0, at], atol=1e-5, rtol=0)
        assert [leaf["dims"] for leaf in one["state"].values()] == [leaf["dims"] for leaf in other["state"].values()]


def test_a_change_and_a_hold_are_those_of_a_lens(live: Live, runs: list[Any]) -> None:
    lstm = runs[0]
    state = lstm.begin().state
    asked = Asked(model="lstm", changes=[Change(leaf="layers.0.c_BD", begin=2, end=5, value=0.5)])
    layer = state.layers[0]
    changed = layer._replace(c_BD=layer.c_BD.index_fill(1, torch.tensor([2, 3, 4]), 0.5))
    hold = Hold(name="layers.0.lstm.forget_gate", value=0.25, part=1, parts=4)

    def held(_: str, gate: torch.Tensor) -> torch.Tensor:
        return gate.index_fill(1, torch.tensor([2, 3]), 0.25)

    with torch.no_grad(), sw.lens("layers.0.lstm.forget_gate", edit=held):
        logits_BV, _ = lstm.model.step(torch.tensor([3]), state._replace(layers=(changed,)))
    found = live.read(ReadRequest(**{**dict(asked), "holds": [hold]}, tokens=[3]))["steps"][0]
    assert torch.equal(sent(found["logits"]), logits_BV[0])


def test_states_that_are_too_many_are_given_up(runs: list[Any]) -> None:
    live = Live(runs[:1], kept_bytes=3 * sw.state_bytes(runs[0].begin().state))
    live.bundle()
    ids = [live.read(ReadRequest(model="lstm", tokens=[1]))["steps"][0]["id"] for _ in range(4)]
    live.read(ReadRequest(model="lstm", state=ids[-1], tokens=[1]))
    with pytest.raises(UserError, match="not kept any more"):
        live.read(ReadRequest(model="lstm", state=ids[0], tokens=[1]))


def test_a_copy_learns_and_the_run_stays(live: Live, runs: list[Any]) -> None:
    before = {name: value.clone() for name, value in runs[0].model.state_dict().items()}
    how = {"model": "lstm", "text": TEXT[:120], "updates": 20, "rate": 0.01, "clip": 1.0, "cut": 16}
    first = live.train(TrainRequest(**how, restart=True))
    second = live.train(TrainRequest(**how, restart=False))
    assert second["losses"][-1] < first["losses"][0] - 0.5
    assert first["written"][0] == second["written"][0]
    assert all(torch.equal(value, before[name]) for name, value in runs[0].model.state_dict().items())
    again = live.train(TrainRequest(**how, restart=True))
    assert again["losses"] == first["losses"]


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (lambda live: live.read(ReadRequest(model="gru", tokens=[1])), "no model 'gru'"),
        (lambda live: live.read(ReadRequest(model="lstm", tokens=[99999])), "token 99999"),
        (
            lambda live: live.read(
                ReadRequest(model="lstm", tokens=[1], holds=[Hold(name="x", value=1.0, part=0, parts=1)])
            ),
            "has no value 'x'",
        ),
        (
            lambda live: live.read(
                ReadRequest(
                    model="lstm", tokens=[1], changes=[Change(leaf="layers.0.c_BD", begin=0, end=99, value=1.0)]
                )
            ),
            "no numbers 0 to 99",
        ),
        (lambda live: live.future(FutureRequest(model="lstm", state="x", token=1, length=2)), "not kept"),
        (
            lambda live: live.train(
                TrainRequest(model="lstm", text="", updates=1, rate=0.1, clip=0.0, cut=1, restart=True)
            ),
            "nothing to learn",
        ),
    ],
)
def test_what_cannot_be_answered_is_refused(ask: Any, says: str, live: Live) -> None:
    with pytest.raises(UserError, match=says):
        ask(live)


@pytest.mark.parametrize("kind", KINDS)
def test_the_gradient_is_that_of_the_loss(kind: str, live: Live, runs: list[Any]) -> None:
    """Along a symbol's vector, the loss changes by the norm: a central difference."""
    (run,) = (run for run in runs if run.path.name == kind)
    tokens, target, at, by = [1, 2, 3, 4], 5, 1, 1e-3
    norm = live.gradient(GradientRequest(model=kind, tokens=tokens, target=target))["norms"][at]
    read: list[torch.Tensor] = []
    loss = torch.nn.functional.cross_entropy

    def after(move: torch.Tensor | None) -> torch.Tensor:
        def moved(_: Any, __: Any, x_BTE: torch.Tensor) -> torch.Tensor:
            if move is not None:
                x_BTE = x_BTE.index_add(1, torch.tensor([at]), move[None, None])
            read.append(x_BTE.requires_grad_() if move is None else x_BTE)
            return read[-1]

        hook = run.model.embedding.register_forward_hook(moved)
        logits_BTV, _ = run.model(torch.tensor([tokens]), run.begin().state)
        hook.remove()
        return loss(logits_BTV[0, -1:].double(), torch.tensor([target]))

    after(None).backward(inputs=(read[0],))
    way = read[0].grad[0, at]  # type: ignore[index]
    way = way / way.norm()
    slope = (after(by * way) - after(-by * way)) / (2 * by)
    assert norm == pytest.approx(float(slope.detach()), rel=0.02)


# -------------------------------------------------------------------- over HTTP


def test_other_pages_and_bad_requests_are_refused(served: Served) -> None:
    body = {"model": "lstm", "tokens": [1]}
    assert asked(served, "read", body)[0] == 200
    code, said = asked(served, "read", body, origin="http://elsewhere.example")
    assert (code, said["error"]["code"]) == (403, "origin")
    assert asked(served, "read", body, host="elsewhere.example")[0] == 400
    for wrong in ({"tokens": []}, {"tokens": [1] * 65}, {"tokens": "1"}, {"model": "gru"}, {"holds": [{"name": "x"}]}):
        assert asked(served, "read", {**body, **wrong})[0] == 400, wrong


def timed_out() -> type[Exception]:
    from playwright.sync_api import TimeoutError

    return TimeoutError


SAYS = "document.querySelector('section:not([hidden]) .view').innerText"


@pytest.mark.parametrize("view", ["step", "hover", "touch", "clamp"])
def test_the_live_page_shows_what_the_page_from_disk_shows(view: str, served: Served, browser: Any) -> None:
    said = ""
    for address in (served.disk.as_uri(), served.address):
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        page, wrong = context.new_page(), []
        page.on("console", lambda message, wrong=wrong: wrong.append(message.text))
        page.on("pageerror", lambda error, wrong=wrong: wrong.append(str(error)))
        page.goto(f"{address}#{view}")
        page.wait_for_selector("html[data-ready]")
        if view == "touch":
            page.locator(".units button").first.focus()
            for _ in range(12):
                page.keyboard.press("ArrowUp")
        elif view == "clamp":
            page.get_by_label("Held at").fill("0.2")
        elif view == "step":
            page.locator("textarea").first.fill("he is a cat")
        if said:
            with contextlib.suppress(timed_out()):  # then the comparison tells what differs
                page.wait_for_function(f"(wanted) => {SAYS} === wanted", arg=said)
            assert page.evaluate(SAYS) == said
        else:  # it computes at once, a frame at a time
            page.wait_for_timeout(1500)
            said = page.evaluate(SAYS)
            assert len(said) > 200
        assert wrong == []
        context.close()


def test_a_copy_is_trained_and_an_own_text_measured_in_the_page(served: Served, browser: Any) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{served.address}#train")
    page.locator(".own .act.main").click()
    page.locator(".own .finding:has-text('updates the loss is')").wait_for()
    page.locator(".own .act.main").click()
    assert page.locator(".own .futures").first.inner_text()
    page.goto(f"{served.address}#truncation")
    page.locator(".own:visible select").select_option("transformer")
    page.locator(".own:visible .act").click()
    page.locator("#truncation-parts .finding:has-text('transformer')").wait_for()
    context.close()
