"""Saved states: kept, found, forked, bounded, and on disk whole or not at all."""

import os
from pathlib import Path

import pytest

from statewise.serving.job import Refused
from statewise.serving.store import StateStore
from statewise.specs import UserError


def check(content: bytes) -> int:
    if not content.startswith(b"fine"):
        raise UserError("it is not fine")
    return 7


def store(folder: Path | None = None, *, most: int = 10, most_bytes: int = 1000) -> StateStore:
    return StateStore(most=most, most_bytes=most_bytes, folder=folder, check={"m": check})


def test_what_is_put_is_got_forked_and_deleted() -> None:
    states = store()
    about = states.put("a", "me", "m", b"fine 1", 3)
    assert about == {**about, "id": "a", "model": "m", "tokens": 3, "bytes": 6, "object": "state"}
    copy = states.fork("a", "me", None)
    states.put("a", "me", "m", b"fine two", 4)
    assert states.export(copy["id"], "me") == b"fine 1"
    assert states.export("a", "me") == b"fine two"
    assert [each["id"] for each in states.list("me")] == [copy["id"], "a"]
    states.delete("a", "me")
    assert not states.has("a", "me")
    with pytest.raises(Refused, match="there is no saved state 'a'"):
        states.get("a", "me")


def test_owners_have_names_of_their_own() -> None:
    states = store()
    states.put("a", "me", "m", b"mine", 1)
    states.put("a", "you", "m", b"yours", 1)
    assert states.export("a", "me") == b"mine"
    assert len(states.list("you")) == 1
    with pytest.raises(Refused):
        states.describe("a", "")
    with pytest.raises(Refused):
        states.delete("a", "nobody")


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "a\\b", "a\n", "-" * 129, "é", ".hidden", "a b", "\0"])
def test_an_id_is_no_path(name: str, tmp_path: Path) -> None:
    states = store(tmp_path / "states")
    with pytest.raises(Refused, match="not a valid id"):
        states.put(name, "", "m", b"fine", 1)
    assert list((tmp_path / "states").iterdir()) == []


def test_what_does_not_fit_is_not_imported() -> None:
    states = store()
    with pytest.raises(Refused, match="it is not fine") as refused:
        states.import_("m", b"bad", "", "a")
    assert refused.value.reason == "invalid"
    with pytest.raises(Refused, match="no model 'x' is served"):
        states.import_("x", b"fine", "", "a")
    assert states.import_("m", b"fine", "", "a")["tokens"] == 7
    assert len(states) == 1


def test_number_and_bytes_are_bounded() -> None:
    states = store(most=3)
    for number in range(5):
        states.put(f"s{number}", "", "m", b"fine", 1)
    assert [each["id"] for each in states.list("")] == ["s2", "s3", "s4"]
    states = store(most_bytes=100)
    for number in range(4):
        states.put(f"s{number}", "", "m", b"x" * 40, 1)
        states.get("s0", "") if states.has("s0", "") else None
    assert states.held_bytes <= 100
    assert len(states) == 2


def test_a_folder_keeps_more_than_memory_and_outlives_the_process(tmp_path: Path) -> None:
    states = store(tmp_path, most_bytes=100)
    for number in range(6):
        states.put(f"s{number}", "me", "m", bytes([number]) * 40, number)
    assert states.held_bytes <= 100
    assert states.export("s0", "me") == bytes(40)
    again = store(tmp_path, most_bytes=100)
    assert {each["id"]: each["tokens"] for each in again.list("me")} == {f"s{n}": n for n in range(6)}
    assert all(again.export(f"s{n}", "me") == bytes([n]) * 40 for n in range(6))
    again.delete("s3", "me")
    assert len(store(tmp_path)) == 5


def test_damage_costs_that_state_alone(tmp_path: Path) -> None:
    states = store(tmp_path, most_bytes=0)
    for number in range(4):
        states.put(f"s{number}", "", "m", bytes([number]) * 500, number)
    files = sorted(tmp_path.iterdir())
    content = bytearray(files[0].read_bytes())
    content[-1] ^= 1
    files[0].write_bytes(content)
    files[1].write_bytes(files[1].read_bytes()[:40])
    (tmp_path / ".tmp-litter").write_bytes(b"x")
    (tmp_path / ("0" * 40)).symlink_to(files[2])
    again = store(tmp_path, most_bytes=0)
    found: list[object] = []
    for number in range(4):
        try:
            found.append(again.export(f"s{number}", "") == bytes([number]) * 500)
        except Refused as refused:
            found.append(refused.reason)
    assert sorted(map(str, found)) == ["True", "True", "not_found", "not_found"]


def test_a_full_disk_leaves_the_old_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    states = store(tmp_path)
    states.put("a", "", "m", b"old", 1)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        states.put("a", "", "m", b"new", 2)
    monkeypatch.undo()
    assert states.export("a", "") == b"old"
    assert store(tmp_path).export("a", "") == b"old"
