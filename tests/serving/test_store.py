"""Saved states: kept, found, forked, bounded, and on disk whole or not at all."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from statewise.serving.job import Refused
from statewise.serving.store import New, StateStore
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
    assert states.get(copy["id"], "me").content == b"fine 1"
    assert states.get("a", "me").content == b"fine two"
    assert [each["id"] for each in states.list("me")] == [copy["id"], "a"]
    states.delete("a", "me")
    with pytest.raises(Refused, match="there is no saved state 'a'"):
        states.get("a", "me")


def test_owners_have_names_of_their_own() -> None:
    states = store()
    states.put("a", "me", "m", b"mine", 1)
    states.put("a", "you", "m", b"yours", 1)
    assert states.get("a", "me").content == b"mine"
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
    assert len(states) == 0


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
        states.get("s0", "")  # what is used stays
    assert states.held_bytes == 80
    assert [each["id"] for each in states.list("")] == ["s0", "s3"]


def test_what_was_read_counts_as_used_though_nothing_is_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("statewise.serving.store._MOST_TOUCHED", 1)
    states = store()
    for name in "abc":
        states.put(name, "me", "m", b"fine", 1)
    states.get("b", "me")
    states.get("a", "me")
    assert [each["id"] for each in states.list("me")] == ["c", "b", "a"]


def test_a_part_of_the_list_follows_another() -> None:
    states = store()
    for number in range(5):
        states.put(f"s{number}", "me", "m", b"fine", 1)
    assert [each["id"] for each in states.list("me", limit=2)] == ["s0", "s1"]
    assert [each["id"] for each in states.list("me", limit=2, after="s1")] == ["s2", "s3"]
    with pytest.raises(Refused, match="'x'"):
        states.list("me", after="x")


def test_several_are_saved_together_or_not_at_all() -> None:
    states = store()
    fine = New("a", "", "m", b"fine", 1)
    with pytest.raises(Refused, match="not a valid id"):
        states.put_all([fine, fine._replace(id="../b")])
    assert len(states) == 0
    assert [about["id"] for about in states.put_all([fine, fine._replace(id="b")])] == ["a", "b"]
    assert (len(states), states.held_bytes) == (2, 8)


def test_a_folder_outlives_the_process(tmp_path: Path) -> None:
    states = store(tmp_path, most_bytes=100)
    for number in range(6):
        states.put(f"s{number}", "me", "m", bytes([number]) * 40, number)
    again = store(tmp_path, most_bytes=100)  # the first is not even closed
    assert again.held_bytes == 240
    assert {each["id"]: each["tokens"] for each in again.list("me")} == {f"s{n}": n for n in range(6)}
    assert all(again.get(f"s{n}", "me").content == bytes([n]) * 40 for n in range(6))
    again.delete("s3", "me")
    assert len(store(tmp_path)) == 5
    with pytest.raises(Refused):
        states.get("s3", "me")


def test_damage_costs_that_state_alone(tmp_path: Path) -> None:
    states = store(tmp_path)
    for number in range(4):
        states.put(f"s{number}", "", "m", bytes([65 + number]) * 500, number)
    states.close()
    path = tmp_path / "states.sqlite"
    path.write_bytes(path.read_bytes().replace(b"B" * 500, b"B" * 499 + b"C"))
    again = store(tmp_path)
    with pytest.raises(Refused, match="'s1' is damaged") as refused:
        again.get("s1", "")
    assert refused.value.reason == "not_found"
    assert [again.get(f"s{n}", "").content for n in (0, 2, 3)] == [bytes([65 + n]) * 500 for n in (0, 2, 3)]
    assert len(again) == 3


def test_a_file_that_is_no_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/states.sqlite").write_bytes(b"something else " * 100)
    with pytest.raises(UserError, match="not a database"):
        store(tmp_path / "a")
    (tmp_path / "b").mkdir()
    (tmp_path / "b/states.sqlite").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="not a plain file"):
        store(tmp_path / "b")
    newer = store(tmp_path / "c")
    newer._db.execute("PRAGMA user_version = 99")
    newer.close()
    with pytest.raises(UserError, match="format 99, expected 1"):
        store(tmp_path / "c")


def test_a_full_disk_leaves_the_old_state(tmp_path: Path) -> None:
    states = store(tmp_path)
    states.put("a", "", "m", b"old", 1)
    (pages,) = states._db.execute("PRAGMA page_count").fetchone()
    states._db.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(Refused, match="full"):
        states.put("a", "", "m", b"new" * 100_000, 2)
    assert states.get("a", "").content == b"old"
    assert (len(states), states.held_bytes) == (1, 3)
    assert store(tmp_path).get("a", "").content == b"old"


@pytest.mark.parametrize(
    "script",
    [
        "CREATE TRIGGER t AFTER INSERT ON states BEGIN DELETE FROM states; END",
        "CREATE VIEW v AS SELECT * FROM states",
        "UPDATE states SET bytes = x'00'",
        "UPDATE states SET bytes = -1",
    ],
)
def test_tables_of_somebody_else_are_refused_at_the_start(script: str, tmp_path: Path) -> None:
    made = store(tmp_path)
    made.put("a", "me", "m", b"fine", 1)
    made.close()
    with closing(sqlite3.connect(tmp_path / "states.sqlite")) as db:
        db.executescript(script)
    with pytest.raises(UserError, match="saved states"):
        store(tmp_path)


@pytest.mark.parametrize("change", ["content = 'fine'", "content = 5", "content = 1.5"])
def test_a_content_that_is_not_bytes_is_damage(change: str, tmp_path: Path) -> None:
    made = store(tmp_path)
    made.put("a", "me", "m", b"fine", 1)
    with closing(sqlite3.connect(tmp_path / "states.sqlite")) as db, db:
        db.execute(f"UPDATE contents SET {change}")
    with pytest.raises(Refused, match="damaged"):
        made.get("a", "me")


@pytest.mark.parametrize("end", ["", "-wal", "-shm", "-journal"])
def test_no_link_is_followed(end: str, tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("precious")
    (tmp_path / "states").mkdir()
    (tmp_path / "states" / f"states.sqlite{end}").symlink_to(tmp_path / "outside")
    with pytest.raises(UserError, match="not a plain file"):
        store(tmp_path / "states")
    assert (tmp_path / "outside").read_text() == "precious"
