"""Tokens in shards: the same stream as in memory, whatever was interrupted, and nothing damaged is read."""

import hashlib
import json
import os
import random
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statewise.data import Batches, Corpus, build_shards, open_corpus, token_counts
from statewise.data.shards import Index, ShardedTokens, open_shards, read_index, write_index
from statewise.specs import DataSpec, UserError

TEXT = "".join(f"line {number}: the cat sat on mat {number * 7919 % 101}\n" for number in range(300))
SHARD = 100


@pytest.fixture(autouse=True)
def _many_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small pieces and groups: a shard ends inside a block, and a block inside a shard."""
    monkeypatch.setattr(
        "statewise.data.source.Source.pieces.__kwdefaults__", {"start": 0, "stop": 1 << 40, "piece": 170}
    )
    monkeypatch.setattr("statewise.data.token_stream._GROUP", 120)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "text.txt").write_text(TEXT)
    return tmp_path / "text.txt"


@pytest.fixture
def built(path: Path, tmp_path: Path) -> Path:
    build_shards(DataSpec(text=str(path)), tmp_path / "built", shard_tokens=SHARD)
    return tmp_path / "built"


def same_tokens(one: Corpus, other: Corpus) -> bool:
    return one.tokenizer.sha256 == other.tokenizer.sha256 and all(
        np.array_equal(np.asarray(a.tokens), np.asarray(b.tokens)) and a[1:] == b[1:] for a, b in zip(one[:2], other)
    )


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.startswith(".")}


@pytest.mark.parametrize("kind", ["char", "bpe"])
@pytest.mark.parametrize("more", [{}, {"direction": "reverse"}, {"validation": True}, {"separator": "9\n"}])
def test_a_folder_holds_the_same_stream_as_the_text(kind: str, more: dict, path: Path, tmp_path: Path) -> None:
    if more.get("validation"):
        (tmp_path / "held.txt").write_text("the cat sat on mat 7\n" * 9)
        more = {"validation": str(tmp_path / "held.txt")}
    spec = DataSpec(text=str(path), tokenizer=kind, **more)
    build_shards(spec, tmp_path / "built", shard_tokens=SHARD)
    opened = open_corpus(spec.model_copy(update={"text": (str(tmp_path / "built"),)}))
    text = open_corpus(spec)
    assert same_tokens(opened, text)
    vocab = text.tokenizer.vocab
    assert token_counts(opened.train.tokens, vocab).tolist() == token_counts(text.train.tokens, vocab).tolist()


def test_a_run_on_the_folder_has_the_weights_of_one_on_the_text(path: Path, built: Path, tmp_path: Path) -> None:
    import statewise as sw

    settings = {"model.width": 8, "train.steps": 4, "train.batch": 4, "train.window": 16, "train.evaluate_every": 2}
    runs = [sw.train("gru", data=data, out=tmp_path / f"run-{data.stem}", settings=settings) for data in (path, built)]
    assert len({run.outcome.weights_sha256 for run in runs}) == 1
    resumed = sw.train(out=tmp_path / "run-built", resume=True, settings={"train.steps": 6})
    assert resumed.outcome.step == 6


def test_a_run_on_the_folder_reads_other_texts_as_the_folder_was_made(path: Path, tmp_path: Path) -> None:
    import statewise as sw

    made = {"direction": "reverse", "separator": "9\n"}
    build_shards(DataSpec.model_validate({"text": str(path), **made}), tmp_path / "built", shard_tokens=SHARD)
    settings = {"model.width": 8, "train.steps": 4, "train.batch": 4, "train.window": 16, "train.evaluate_every": 2}
    of_text = sw.train(
        "gru", data=path, out=tmp_path / "of-text", settings=settings | {f"data.{name}": made[name] for name in made}
    )
    of_folder = sw.train("gru", data=tmp_path / "built", out=tmp_path / "of-folder", settings=settings)
    assert of_folder.outcome.weights_sha256 == of_text.outcome.weights_sha256
    runs = [trained.load() for trained in (of_text, of_folder)]
    assert {(run.spec.data.direction, run.spec.data.separator) for run in runs} == {("reverse", "9\n")}
    assert runs[0].evaluate(data=path) == runs[1].evaluate(data=path)
    assert runs[0].generate("cat", tokens=8) == runs[1].generate("cat", tokens=8)


@pytest.mark.slow
def test_several_processes_write_the_same_folder(path: Path, built: Path, tmp_path: Path) -> None:
    build_shards(DataSpec(text=str(path)), tmp_path / "other", shard_tokens=SHARD, workers=2)
    assert files(tmp_path / "other") == files(built)


class Interrupted(Exception):
    pass


@pytest.mark.parametrize("calls", [1, 9, 21, 40, 58])
def test_an_interrupted_build_goes_on(calls: int, path: Path, built: Path, tmp_path: Path) -> None:
    spec, out, left = DataSpec(text=str(path)), tmp_path / "other", [calls]
    heard: list[str] = []

    def stop(what: str, done: int, total: int) -> None:
        left[0] -= what.startswith("tokenising")
        if left[0] == 0:
            raise Interrupted

    with pytest.raises(Interrupted):
        build_shards(spec, out, shard_tokens=SHARD, progress=stop)
    kept = {name: path.stat().st_mtime_ns for name in files(out) if (path := out / name).suffix == ".tokens"}
    build_shards(spec, out, shard_tokens=SHARD, progress=lambda what, done, total: heard.append(what))
    assert files(out) == files(built)
    assert "reading" not in heard or not kept
    whole = [name for name in kept if (out / name).stat().st_mtime_ns == kept[name]]
    assert len(whole) >= len(kept) - 1


@pytest.mark.parametrize("name", ["tokenizer.json", "unfinished.json", "train-00000.tokens", "index.json"])
def test_a_build_that_ends_after_any_file_goes_on(
    name: str, path: Path, built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between this file and the next, which may be the journal that knows of it."""
    replace = os.replace

    def last(source: Path, target: Path) -> None:
        replace(source, target)
        if Path(target).name == name:
            raise Interrupted

    monkeypatch.setattr("os.replace", last)
    with pytest.raises(Interrupted):
        build_shards(DataSpec(text=str(path)), tmp_path / "other", shard_tokens=SHARD)
    monkeypatch.setattr("os.replace", replace)
    build_shards(DataSpec(text=str(path)), tmp_path / "other", shard_tokens=SHARD)
    assert files(tmp_path / "other") == files(built)


@pytest.fixture
def interrupted(path: Path, tmp_path: Path) -> Path:
    """A build that stopped after some shards."""
    left = [21]

    def stop(what: str, done: int, total: int) -> None:
        left[0] -= what.startswith("tokenising")
        if left[0] == 0:
            raise Interrupted

    with pytest.raises(Interrupted):
        build_shards(DataSpec(text=str(path)), tmp_path / "other", shard_tokens=SHARD, progress=stop)
    assert (tmp_path / "other" / "train-00002.tokens").exists()
    return tmp_path / "other"


def test_a_damaged_shard_of_an_interrupted_build_is_written_again(path: Path, built: Path, interrupted: Path) -> None:
    _flip(interrupted / "train-00001.tokens")
    build_shards(DataSpec(text=str(path)), interrupted, shard_tokens=SHARD)
    assert files(interrupted) == files(built)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"journal": 3, "sha256": ""}', "[" * 100_000, "\0"])
def test_a_journal_that_is_none_is_begun_anew(content: str, path: Path, built: Path, interrupted: Path) -> None:
    (interrupted / "unfinished.json").write_text(content)
    build_shards(DataSpec(text=str(path)), interrupted, shard_tokens=SHARD)
    assert files(interrupted) == files(built)


@pytest.mark.parametrize("name", ["blocks", "tokens", "bytes", "unknown"])
def test_a_changed_number_in_a_journal_does_not_reach_the_tokens(
    name: str, path: Path, built: Path, interrupted: Path
) -> None:
    """With a token more or less in it, all that follows was another stream."""
    journal = interrupted / "unfinished.json"
    text, count = re.subn(
        rf'({name}\\?":)(\d+)', lambda match: f"{match[1]}{int(match[2]) + 1}", journal.read_text(), count=1
    )
    assert count == 1
    journal.write_text(text)
    build_shards(DataSpec(text=str(path)), interrupted, shard_tokens=SHARD)
    assert files(interrupted) == files(built)


def test_what_a_killed_build_left_behind_is_removed(path: Path, interrupted: Path) -> None:
    (interrupted / ".tmp-train-00003.tokens-0123abcd").write_bytes(b"x" * 99)
    build_shards(DataSpec(text=str(path)), interrupted, shard_tokens=SHARD)
    assert not list(interrupted.glob(".tmp-*"))


def test_a_finished_folder_is_left_as_it_is(path: Path, built: Path) -> None:
    before = {name: (built / name).stat().st_mtime_ns for name in files(built)}
    build_shards(DataSpec(text=str(path)), built, shard_tokens=SHARD)
    assert {name: (built / name).stat().st_mtime_ns for name in files(built)} == before
    with pytest.raises(UserError, match="tokens of another text"):
        build_shards(DataSpec(text=str(path), tokenizer="byte"), built, shard_tokens=SHARD)


def test_a_folder_with_other_files_is_refused(path: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"holds other files: text\.txt"):
        build_shards(DataSpec(text=str(path)), tmp_path)


def test_a_full_disk_keeps_what_is_finished(
    path: Path, built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import resource

    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    out = tmp_path / "other"
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, limit[1]))  # the journal outgrows it
    try:
        with pytest.raises(OSError, match="File too large") as caught:
            build_shards(DataSpec(text=str(path)), out, shard_tokens=SHARD)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert "goes on from there" in caught.value.__notes__[0]
    assert len(list(out.glob("train-*.tokens"))) > 5
    assert not list(out.glob(".tmp-*"))
    build_shards(DataSpec(text=str(path)), out, shard_tokens=SHARD)
    assert files(out) == files(built)


@pytest.fixture(scope="module")
def built_once(tmp_path_factory: pytest.TempPathFactory) -> tuple[ShardedTokens, np.ndarray]:
    folder = tmp_path_factory.mktemp("once")
    (folder / "t").write_text(TEXT)
    sharded = build_shards(DataSpec(text=str(folder / "t")), folder / "built", shard_tokens=SHARD).train
    return sharded, np.asarray(sharded)


class TestReading:
    @pytest.fixture
    def tokens(self, built: Path) -> ShardedTokens:
        return open_shards(built).train

    @given(data=st.data())
    def test_any_slice_and_any_positions(
        self, data: st.DataObject, built_once: tuple[ShardedTokens, np.ndarray]
    ) -> None:
        sharded, array = built_once
        ends = st.integers(-len(array) - 5, len(array) + 5)
        part = slice(data.draw(st.none() | ends), data.draw(st.none() | ends))
        assert np.array_equal(sharded[part], array[part])
        rows = data.draw(st.lists(st.lists(st.integers(-len(array), len(array) - 1), min_size=3, max_size=3)))
        positions = np.array(rows, dtype=np.int64).reshape(-1, 3)
        assert np.array_equal(sharded[positions], array[positions])

    @pytest.mark.parametrize("order", ["sequential", "random"])
    def test_batches_are_those_of_the_array(self, tokens: ShardedTokens, order: str) -> None:
        for array in (tokens, np.asarray(tokens)):
            made = [Batches(array, end_id=0, batch=4, window=30, order=order, seed=3).at(step) for step in range(40)]  # type: ignore[arg-type]
            if array is tokens:
                first = made
        for one, other in zip(first, made):
            assert one.inputs_BT.equal(other.inputs_BT)
            assert one.targets_BT.equal(other.targets_BT)

    def test_a_shard_is_checked_once_when_it_is_touched(self, built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        import statewise.data.shards as module

        read: list[str] = []
        check = module.file_sha256
        monkeypatch.setattr(module, "file_sha256", lambda path: read.append(path.name) or check(path))
        tokens = open_shards(built).train
        assert not read
        for _ in range(3):
            tokens[150:260]
        assert read == ["train-00001.tokens", "train-00002.tokens"]

    def test_few_shards_are_mapped_at_a_time(self, tokens: ShardedTokens, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("statewise.data.shards._MOST_MAPPED", 2)
        whole = np.asarray(tokens)
        assert len(tokens._mapped) == 2
        assert np.array_equal(tokens[0:450], whole[:450])


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def _shorten(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 2)


DAMAGE: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "flipped shard": ("train-00001.tokens", _flip, r"train-00001\.tokens' is damaged: its sha256"),
    "short shard": ("train-00001.tokens", _shorten, r"train-00001\.tokens' has 198 bytes, and the index says 200"),
    "missing shard": ("train-00001.tokens", Path.unlink, r"train-00001\.tokens' is missing"),
    "short index": ("index.json", _shorten, r"index\.json' is damaged"),
    "flipped counts": ("train.counts", _flip, r"train\.counts' is damaged"),
    "missing counts": ("train.counts", Path.unlink, r"train\.counts' is missing"),
    "missing tokenizer": ("tokenizer.json", Path.unlink, r"tokenizer\.json' cannot be read"),
    "other tokenizer": (
        "tokenizer.json",
        lambda path: path.write_text(path.read_text().replace('"c"', '"C"')),
        "is not the tokenizer that the tokens were made by",
    ),
}


def read_through(folder: Path) -> None:
    corpus = open_corpus(DataSpec(text=str(folder)))
    np.asarray(corpus.train.tokens)
    token_counts(corpus.train.tokens, corpus.tokenizer.vocab)


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_refused(name: str, built: Path) -> None:
    file, damage, message = DAMAGE[name]
    damage(built / file)
    with pytest.raises(UserError, match=message):
        read_through(built)


def test_an_index_that_was_changed_is_refused(built: Path) -> None:
    path = built / "index.json"
    path.write_text(path.read_text().replace('"unknown": 0', '"unknown": 1'))
    with pytest.raises(UserError, match="its sha256 is another"):
        read_index(built)


def _reindexed(folder: Path, part: str, **change: object) -> None:
    """Change the index as somebody does who knows how its sum is made."""
    index = read_index(folder).model_dump()
    index[part] |= change
    write_index(folder, Index.model_validate(index))


@pytest.mark.parametrize("part", ["train", "validation"])
@pytest.mark.parametrize("tokens", [1, 2])
def test_a_part_without_a_token_is_refused(part: str, tokens: int, built: Path) -> None:
    """One token would be divided by their number less one, and evaluated text by its bytes."""
    shard = np.fromfile(built / f"{part}-00000.tokens", "<u2")[:tokens].tobytes()
    (built / f"{part}-00000.tokens").write_bytes(shard)
    _reindexed(built, part, tokens=tokens, shards=[hashlib.sha256(shard).hexdigest()])
    with pytest.raises(UserError, match="a part of it holds no token"):
        open_shards(built)


@pytest.mark.parametrize(
    ("change", "message"), [({"bytes": 0}, "holds no token"), ({"bytes": 10**30}, r"train\.bytes")]
)
def test_impossible_sizes_of_a_text_are_refused(change: dict[str, int], message: str, built: Path) -> None:
    content = json.loads((built / "index.json").read_text())["index"]
    content["train"] |= change
    sha256 = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    (built / "index.json").write_text(json.dumps({"index": content, "sha256": sha256}))
    with pytest.raises(UserError, match=message):
        open_shards(built)


@pytest.mark.parametrize("change", [lambda n: -n, lambda n: n * 0, lambda n: n * 0 + 2**62, lambda n: n + 1])
def test_counts_that_cannot_be_are_refused(change: Callable[[np.ndarray], np.ndarray], built: Path) -> None:
    """Logarithms of these would be no numbers."""
    counts = change(np.fromfile(built / "train.counts", "<i8")).tobytes()
    (built / "train.counts").write_bytes(counts)
    _reindexed(built, "train", counts=hashlib.sha256(counts).hexdigest())
    with pytest.raises(UserError, match="is not how often tokens occur"):
        read_through(built)


def test_two_builds_of_one_folder_do_not_mix(path: Path, tmp_path: Path) -> None:
    out, refused = tmp_path / "out", []

    def second(what: str, done: int, total: int) -> None:
        if not refused:
            with pytest.raises(UserError, match="another process is at work") as caught:
                build_shards(DataSpec(text=str(path)), out, shard_tokens=SHARD)
            refused.append(caught)

    build_shards(DataSpec(text=str(path)), out, shard_tokens=SHARD, progress=second)
    assert refused
    np.asarray(open_shards(out).train)


def test_other_settings_than_the_folders_are_refused(built: Path, tmp_path: Path) -> None:
    (tmp_path / "more.txt").write_text(TEXT)
    for settings, message in (
        ({"separator": "|"}, r"data\.separator is '\|'"),
        ({"held_out": 0.5}, r"data\.held_out is 0\.5"),
        ({"direction": "reverse"}, "data.direction is 'reverse'"),
        ({"text": [str(built), str(tmp_path / "more.txt")]}, "is trained on alone"),
        ({"text": [str(tmp_path / "more.txt")], "validation": [str(built)]}, "is trained on alone"),
    ):
        with pytest.raises(UserError, match=message):
            open_corpus(DataSpec.model_validate({"text": [str(built)], **settings}))
    build_shards(DataSpec(text=str(tmp_path / "more.txt"), tokenizer="byte"), tmp_path / "bytes")
    with pytest.raises(UserError, match="made by another tokenizer"):
        open_corpus(DataSpec(text=str(built), tokenizer=str(tmp_path / "bytes" / "tokenizer.json")))


def _mutants(content: dict, chance: random.Random) -> Iterator[object]:
    """The index with one of its values replaced, at any depth."""
    strange = [None, -1, 0, 1 << 62, 10**400, 1.5, "", "../../x", "0" * 64, [], {}, [[]], True, "é\ud800"]
    while True:
        made = json.loads(json.dumps(content))
        inside = made
        while True:
            key = chance.choice(list(inside) if isinstance(inside, dict) else range(len(inside)))
            if not isinstance(inside[key], dict | list) or not inside[key] or chance.random() < 0.3:
                inside[key] = chance.choice(strange)
                break
            inside = inside[key]
        yield made


def test_no_index_crashes_the_reader_or_makes_it_large(built: Path) -> None:
    import resource

    import statewise.data.shards as module

    chance, path = random.Random(0), built / "index.json"
    content, text = json.loads(path.read_text()), path.read_text()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refused = 0
    mutants = _mutants(content, chance)
    for number in range(300):
        if number % 3:
            made = next(mutants)
            if number % 3 == 1 and isinstance(made.get("index"), dict):  # type: ignore[attr-defined]
                with suppress(ValueError):  # by somebody who knows how the sum is made
                    made["sha256"] = module.Index.model_validate(made["index"]).sha256  # type: ignore[index]
            path.write_text(json.dumps(made))
        else:
            start = chance.randrange(len(text))
            path.write_bytes(text[:start].encode() + chance.randbytes(3) + text[start + 3 :].encode())
        try:
            open_shards(built)
        except UserError:
            refused += 1
    path.write_text("[" * 100_000)
    with pytest.raises(UserError, match="damaged"):
        read_index(built)
    with path.open("wb") as file:
        file.truncate((1 << 26) + 1)
    with pytest.raises(UserError, match="more than"):
        read_index(built)
    assert refused > 200
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # kilobytes
