"""Where pairs come from: files, a folder of examples, or what is embedded."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from statewise.data import (
    AT_ONCE,
    FORMATS,
    ExampleWriter,
    HeldOut,
    Pair,
    hold_out,
    hub_name,
    names_examples,
    open_examples,
    pair_rows,
    read_catalogs,
    refuse_examples,
    some_at_once,
    suffix,
)
from statewise.data.embedded import Parts, kinds_of_phrases, oscillations, phrases, probe_pairs
from statewise.specs import PairDataSpec, UserError, either, option, setting
from statewise.tasks.translation.examples import Encoded, Languages, Pairs, most_frequent


def read_files(spec: PairDataSpec, paths: Sequence[str], targets: Sequence[str] = ()) -> Pairs:
    """All pairs of files, as lists."""
    counts: Counter[str] = Counter()
    return _pairs(list(pairs_of_files(spec, paths, targets, counts)), counts)


def pairs_of_files(
    spec: PairDataSpec, paths: Sequence[str], targets: Sequence[str], counts: Counter[str]
) -> Iterator[Pair]:
    """Pairs of files, one at a time. Without `targets`, plain text files are sources, then as many targets."""
    refuse_examples(paths)
    if spec.format == "gettext":
        assert spec.language is not None, "the spec saw to it"
        for folder in paths or (None,):
            yield from read_catalogs(spec.language, folder)
        return
    tables = spec.format != "auto" or all(hub_name(path) or suffix(Path(path)) in FORMATS for path in paths)
    if not targets and not tables:
        paths, targets = _halves(list(paths))
    yield from pair_rows(
        paths,
        targets or None,
        counts,
        columns=(spec.source_column, spec.target_column),
        numbers=spec.source_kind == "vector" or spec.target_kind == "series",
        **{**spec.subset(*spec.layout_of_table, "empty"), **({"format": "auto"} if targets else {})},
    )


def _halves(paths: list[str]) -> tuple[list[str], list[str]]:
    if len(paths) % 2:
        both = either("--data a.de --data a.en", 'data=["a.de", "a.en"]')
        raise UserError(
            f"{', '.join(paths)!r}: the file name does not say which format holds source and target",
            fix=f"name the sources and then as many targets ({both}), or the format: {setting('data.format', 'tsv')} "
            "(or csv, quoted-tsv, jsonl, scan)",
        )
    half = len(paths) // 2
    return paths[:half], paths[half:]


def _pairs(pairs: Sequence[Pair], left_out: Mapping[str, int] | None = None) -> Pairs:
    sources, targets = [pair.source for pair in pairs], [pair.target for pair in pairs]
    return Pairs(sources, targets, [pair.where for pair in pairs], left_out or {})


def read_split(spec: PairDataSpec, *, seed: int) -> tuple[Pairs, Pairs]:
    """What is learned from and what is held out.

    No source is on both sides of a split by share; but of every class there is that share on each.
    """
    if "-" in (*spec.train, *spec.target, *spec.validation, *spec.validation_target):
        raise UserError("pairs cannot be learned from standard input: they are read again later", fix="name files")
    if not spec.train and spec.format != "gettext":
        embedded = _embedded(spec, seed=seed)
        return _pairs(embedded.train), _pairs(embedded.held)
    if names_examples(spec.train):
        return stored_pairs(spec)
    pairs = read_files(spec, spec.train, spec.target)
    if spec.validation:
        return pairs, read_files(spec, spec.validation, spec.validation_target)
    split = held_out(spec, pairs.sources, seed=seed)
    return pairs.chosen(split.train_N), pairs.chosen(split.held_M)


def held_out(spec: PairDataSpec, sources: Sequence[str], *, seed: int) -> HeldOut:
    if spec.source_kind == "class":
        return hold_out(len(sources), share=spec.held_out, seed=seed, strata=sources)
    return hold_out(len(sources), share=spec.held_out, seed=seed, groups=sources)


# -------------------------------------------------------------------- on disk


def store_pairs(spec: PairDataSpec, writer: ExampleWriter, *, seed: int) -> None:
    """Pairs of any number in columns: their texts, and their ids by the vocabularies that are learned from them."""
    if spec.source_kind == "vector" or spec.target_kind == "series":
        raise UserError("pairs of numbers are not kept on disk: they are read into memory", fix="train on the files")
    left_out: Counter[str] = Counter()

    def put(pairs: Iterator[Pair]) -> int:
        for some in some_at_once(pairs):
            writer.texts("source", [pair.source for pair in some])
            writer.texts("target", [pair.target for pair in some])
            writer.places(pair.where for pair in some)
        return writer.rows("source")

    count = first = put(pairs_of_files(spec, spec.train, spec.target, left_out))
    if spec.validation:
        count = put(pairs_of_files(spec, spec.validation, spec.validation_target, Counter()))
    read = writer.read()
    whole = Pairs(read.texts("source"), read.texts("target"), read.places())
    if spec.validation:
        split = HeldOut(np.arange(first), np.arange(first, count))
    else:
        split = held_out(spec, whole.sources, seed=seed)
    writer.parts(*split)
    train = whole.chosen(split.train_N)
    languages = Languages.learn(spec, train)
    for begin in range(0, count, AT_ONCE):
        part = whole.chosen(range(begin, min(begin + AT_ONCE, count)))
        given = languages.source.encode(list(part.sources), part.where)
        writer.ids("source_ids", given, vocab=languages.source_vocab)
        writer.ids("target_ids", languages.encode_targets(list(part.targets)), vocab=languages.target.vocab)
        writer.encoded(begin + len(part), count)
    for name, content in languages.files().items():
        writer.file(name, str(content))
    writer.facts |= {
        "rows": count,
        "left_out": dict(left_out),
        "sha256": train.sha256,
        "frequent": most_frequent(train.targets),
    }


def stored_pairs(spec: PairDataSpec) -> tuple[Pairs, Pairs]:
    folder = open_examples(Path(spec.train[0]), "translation")
    languages = Languages.load(spec, folder.path)
    encoded = Encoded(
        folder.ids("source_ids", below=languages.source_vocab),
        folder.ids("target_ids", below=languages.target.vocab),
        languages.sha256,
        folder.fact("sha256", str),
        folder.fact("frequent", str),
    )
    texts = folder.texts("source"), folder.texts("target"), folder.places()
    whole = Pairs(*texts, folder.fact("left_out", dict), encoded)
    return whole.chosen(folder.part("train")), whole.chosen(folder.part("validation"))


def _embedded(spec: PairDataSpec, *, seed: int) -> Parts[Pair]:
    match spec.source_kind, spec.target_kind:
        case "text", "text" if spec.embedded != "phrases":
            long = 10 * spec.longer
            return probe_pairs(
                spec.embedded, count=20_000, held_lengths=(long, long) if spec.longer > 1 else None, seed=seed
            )
        case "text", "text":
            return phrases()
        case "class", "text":
            return kinds_of_phrases()
        case "vector", "series":
            return oscillations()
        case source, target:
            raise UserError(
                f"there are no embedded pairs of a {source} and a {target}",
                fix=f"name a file: {option('data', 'FILE')}",
            )
