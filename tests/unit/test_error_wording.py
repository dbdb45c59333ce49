"""One message, worded for the command line and for Python."""

import pickle

import pytest

from statewise.specs import UserError, either, lens_setting, option, setting


@pytest.mark.parametrize(
    ("marked", "flags", "arguments"),
    [
        (option("out"), "--out", "out"),
        (option("out", "my runs"), "--out 'my runs'", 'out="my runs"'),
        (option("resume", True), "--resume", "resume=True"),
        (option("save-state", "FILE"), "--save-state FILE", 'save_state="FILE"'),
        (setting("train.steps", 500), "--set train.steps=500", 'settings={"train.steps": 500}'),
        (setting("data.text", "review"), "--set data.text=review", 'settings={"data.text": "review"}'),
        (setting("data.text", "der Text"), "--set 'data.text=der Text'", 'settings={"data.text": "der Text"}'),
        (
            setting({"data.train": "FILE", "data.validation": []}),
            "--set data.train=FILE --set 'data.validation=[]'",
            'settings={"data.train": "FILE", "data.validation": []}',
        ),
        (setting("train.clip", None), "--set train.clip=none", 'settings={"train.clip": None}'),
        (lens_setting("window", 64), "--set window=64", "window=64"),
        (either("statewise train", "statewise.train()"), "statewise train", "statewise.train()"),
    ],
)
def test_both_wordings(marked: str, flags: str, arguments: str) -> None:
    error = UserError(f"wrong: {marked}!", fix=f"try {marked}, or {marked}")
    assert error.on_command_line() == f"wrong: {flags}!\ntry {flags}, or {flags}"
    assert str(error) == f"wrong: {arguments}!\ntry {arguments}, or {arguments}"
    assert (error.what, error.fix) == (f"wrong: {arguments}!", f"try {arguments}, or {arguments}")


def test_a_message_keeps_both_wordings_through_another_process_and_another_error() -> None:
    error = UserError("wrong", fix=f"choose {option('out', 'DIR')}")
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.on_command_line()) == (str(error), error.on_command_line())
    what, fix = again.marked
    outer = UserError(f"source: {what}", fix=fix)
    assert outer.on_command_line() == "source: wrong\nchoose --out DIR"
    assert str(UserError("wrong")) == UserError("wrong").on_command_line() == "wrong"
