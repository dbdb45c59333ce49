"""Catalogs of translated programs, written here byte by byte as their format is published."""

import struct
from pathlib import Path

import pytest

from statewise.data.gettext_pairs import find_catalogs, read_catalogs
from statewise.specs import UserError

HEADER = "Content-Type: text/plain; charset=UTF-8\nPlural-Forms: nplurals=3; plural={};\n"
SLAVIC = "n%10==1 && n%100!=11 ? 0 : n%10>=2 && n%10<=4 && (n%100<10 || n%100>=20) ? 1 : 2"


def catalog(messages: dict[str, str], *, order: str = "<", plural: str = "n != 1") -> bytes:
    entries = sorted({"": HEADER.format(plural), **messages}.items())
    table = 28 + 16 * len(entries)
    body, places = b"", []
    for side in (0, 1):
        for entry in entries:
            text = entry[side].encode()
            places.append((len(text), table + len(body)))
            body += text + b"\0"
    head = struct.pack(f"{order}7I", 0x950412DE, 0, len(entries), 28, 28 + 8 * len(entries), 0, 0)
    return head + b"".join(struct.pack(f"{order}2I", *place) for place in places) + body


def put(folder: Path, language: str, data: bytes, name: str = "app.mo") -> Path:
    path = folder / language / "LC_MESSAGES" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("order", ["<", ">"])
def test_messages_contexts_and_plurals(tmp_path: Path, order: str) -> None:
    messages = {
        "Open\nfile": "Datei  öffnen",
        "menu\x04Save": "Speichern",
        "%d file\0%d files": "%d Datei\0%d Dateien",
        "menu\x04{n} day\0{n} days": "{n} Tag\0{n} Tage",
    }
    put(tmp_path, "de", catalog(messages, order=order))
    found = read_catalogs("de", tmp_path)
    assert sorted(pair[:2] for pair in found) == [
        ("%d file", "%d Datei"),
        ("%d files", "%d Dateien"),
        ("Open file", "Datei öffnen"),
        ("Save", "Speichern"),
        ("{n} day", "{n} Tag"),
        ("{n} days", "{n} Tage"),
    ]
    assert found[0].where.path.endswith("app.mo")


def test_of_several_plurals_the_general_one(tmp_path: Path) -> None:
    put(tmp_path, "ru", catalog({"%d file\0%d files": "%d файл\0%d файла\0%d файлов"}, plural=SLAVIC))
    assert [pair.target for pair in read_catalogs("ru", tmp_path)] == ["%d файл", "%d файлов"]


def test_what_is_left_out_is_counted(tmp_path: Path) -> None:
    put(tmp_path, "fr", catalog({"Yes": "Oui", "OK": "OK", "No": "", "Hi %s": "Salut", "{a} of {b}": "{b} de {a}"}))
    put(tmp_path, "fr", catalog({"Yes": "Si", "Bye": "Adieu"}), name="other.mo")
    (tmp_path / "de.mo").write_bytes(catalog({"Yes": "Ja"}))
    found = read_catalogs("fr", tmp_path)
    assert {pair[:2] for pair in found} == {("Yes", "Oui"), ("{a} of {b}", "{b} de {a}"), ("Bye", "Adieu")}
    assert found.counts == {"untranslated": 2, "placeholders differ": 1, "met before": 1}
    assert read_catalogs("de", tmp_path)[0].target == "Ja"
    assert {one.language for one in find_catalogs(tmp_path)} == {"fr", "de"}


@pytest.mark.parametrize("data", [b"", b"not a catalog at all", catalog({"a": "b"})[:40], catalog({"a": "b"})[:-30]])
def test_damaged_catalogs_are_named(tmp_path: Path, data: bytes) -> None:
    put(tmp_path, "de", data)
    with pytest.raises(UserError, match=r"app.mo' is not a gettext catalog"):
        read_catalogs("de", tmp_path)


def test_nothing_to_read(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no \.mo files"):
        read_catalogs("de", tmp_path)
    with pytest.raises(UserError, match="is not a folder"):
        find_catalogs(tmp_path / "absent")
    put(tmp_path, "de", catalog({"OK": "OK"}))
    with pytest.raises(UserError, match="holds no translated message"):
        read_catalogs("de", tmp_path)
    with pytest.raises(UserError, match=r"no catalog is in language 'dee'\ndid you mean 'de'"):
        read_catalogs("dee", tmp_path)
