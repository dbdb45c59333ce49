"""Labelled texts, tables, pairs, tags, trees and arrays: read as meant, counted, and where they came from."""

import csv
import gzip
import io
from itertools import accumulate
from pathlib import Path

import nltk
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tree_batch import tree_batch

from statewise.data import (
    NO_LABEL,
    NO_WORD,
    LabelledTree,
    Labels,
    Layout,
    Tree,
    Where,
    limit_length,
    read_arrays,
    read_labelled,
    read_pairs,
    read_table,
    read_tagged,
    read_texts,
    read_trees,
    with_tags,
)
from statewise.data.lines import left_out_note, read_lines
from statewise.specs import UserError

CONLLU = (
    "# sent_id = 1\n# text = Don't go\n1-2\tDon't\t_\t_\t_\t_\t_\t_\t_\t_\n"
    "1\tDo\tdo\tAUX\tVB\t_\t3\taux\t_\t_\n2\tn't\tnot\tPART\tRB\t_\t3\tadvmod\t_\t_\n"
    "3\tgo\tgo\tVERB\tVB\t_\t0\troot\t_\t_\n3.1\tgone\tgo\tVERB\t_\t_\t_\t_\t0:root\t_\n\n"
    "1\tĐà Nẵng\t_\tPROPN\tNNP\t_\t0\troot\t_\tSpaceAfter=No\n"
)
BIO = "-DOCSTART- -X- O\n\nEU NNP I-ORG\nUK NNP B-ORG\nsaid VBD O\n\n\nBonn NNP I-LOC\nEU NNP I-ORG\n"


def written(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    data = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


@pytest.mark.parametrize("name", ["a.tsv", "a.tsv.gz"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("last", [True, False])
def test_a_file_is_the_same_however_it_is_stored(tmp_path: Path, name: str, end: str, mark: str, last: bool) -> None:
    content = mark + end.join(["label\ttext", 'a\tsays "so"', "", "b\tnaïve 日本"]) + end * last
    found = read_labelled(written(tmp_path, name, content))
    assert [(one.text, one.label, one.where.line) for one in found] == [('says "so"', "a", 2), ("naïve 日本", "b", 4)]
    assert str(found[0].where) == f"{tmp_path / name} line 2"
    assert found.counts == {"empty lines": 1}


@settings(deadline=None)
@given(st.lists(st.text(alphabet="a b\t\r\x0b\x0c\x1c\x85\u2028é", max_size=5), min_size=1, max_size=5))
def test_only_line_ends_end_lines(tmp_path_factory: pytest.TempPathFactory, lines: list[str]) -> None:
    path = written(tmp_path_factory.mktemp("lines"), "a", "".join(f"x{line}x\n" for line in lines))
    assert [line.text for line in read_lines(path)] == [f"x{line}x" for line in lines]
    assert [line.where.line for line in read_lines(path)] == list(range(1, len(lines) + 1))


def test_other_encodings_by_name(tmp_path: Path) -> None:
    for encoding in ("latin-1", "utf-16"):
        path = written(tmp_path, encoding, "0 naïve\n".encode(encoding))
        assert read_labelled(path, format="label-first", encoding=encoding)[0].text == "naïve"


@settings(deadline=None)
@given(st.lists(st.tuples(st.text(), st.text(min_size=1)), min_size=1, max_size=5))
def test_csv_is_what_the_csv_module_writes(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]]
) -> None:
    rows = [tuple(cell.replace("\0", "").replace("\r", "") + "." for cell in row) for row in rows]
    with io.StringIO(newline="") as file:
        csv.writer(file).writerows([("text", "label"), *rows])
        content = file.getvalue()
    try:
        path = written(tmp_path_factory.mktemp("csv"), "a.csv", content)
    except UnicodeEncodeError:
        return
    assert [(row.cell("text"), row.cell(1)) for row in read_table(path, columns=["text"])] == rows


def test_a_quoted_row_begins_where_it_begins(tmp_path: Path) -> None:
    path = written(tmp_path, "a.csv", 'text,label\n"one\n\ntwo, ""three""",a\nfour,b\n')
    found = read_labelled(path)
    assert [(one.text, one.where.line) for one in found] == [('one\n\ntwo, "three"', 2), ("four", 5)]


def test_columns_by_number_and_by_name(tmp_path: Path) -> None:
    path = written(tmp_path, "a.tsv", "0\tid\tbad film\n1\tid\tgood film\n")
    assert [one.label for one in read_labelled(path, text=2, label=0)] == ["0", "1"]
    assert [one.label for one in read_labelled(path, text="2", label="0")] == ["0", "1"]
    headed = written(tmp_path, "b.csv", "y;x\n1;a,b\n")
    assert read_labelled(headed, text="x", label="y", delimiter=";")[0].text == "a,b"
    assert read_labelled(headed, text=1, label=0, header="yes", delimiter=";")[0].label == "1"


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(gzip.compress(b"one\n\ntwo"))))
    found = read_texts("-")
    assert [one.text for one in found] == ["one", "", "two"]
    assert str(found[2].where) == "standard input line 3"


def test_json_lines(tmp_path: Path) -> None:
    path = written(tmp_path, "a.jsonl", '{"label": 3, "text": "x\\ny"}\n\n{"text": "z", "more": [1], "label": true}\n')
    found = read_labelled(path)
    assert [(one.text, one.label, one.where.line) for one in found] == [("x\ny", "3", 1), ("z", "true", 3)]


def test_label_first(tmp_path: Path) -> None:
    path = written(tmp_path, "a.txt", "0 How did\tit go ?\n\nNUM  Why\n")
    found = read_labelled(path, format="label-first")
    assert [(one.label, one.text) for one in found] == [("0", "How did\tit go ?"), ("NUM", "Why")]


def test_a_folder_of_labels(tmp_path: Path) -> None:
    written(tmp_path, "Czech.txt", "Novák\n\nČerný\n")
    written(tmp_path, "English.txt.gz", "Smith")
    written(tmp_path, ".hidden", b"\xff")
    found = read_labelled(tmp_path)
    assert [(one.text, one.label) for one in found] == [("Novák", "Czech"), ("Černý", "Czech"), ("Smith", "English")]
    assert found.counts == {"empty lines": 1}


def test_a_folder_of_folders(tmp_path: Path) -> None:
    for label in ("neg", "pos"):
        (tmp_path / label).mkdir()
        written(tmp_path / label, "1.txt", f"{label}\nfilm")
    assert [(one.text, one.label) for one in read_labelled(tmp_path)] == [("neg\nfilm", "neg"), ("pos\nfilm", "pos")]


def test_a_folder_of_folders_as_imdb_is_handed_out(tmp_path: Path) -> None:
    """Lists of addresses beside the folders, and a folder without labels: both are counted, the latter if asked for."""
    for label in ("neg", "pos", "unsup"):
        (tmp_path / label).mkdir()
        written(tmp_path / label, "0_9.txt", f"{label} film")
    written(tmp_path, "urls_pos.txt", "http://example.org")
    written(tmp_path, "labeledBow.feat", "9 0:9")
    assert [one.label for one in read_labelled(tmp_path)] == ["neg", "pos", "unsup"]
    found = read_labelled(tmp_path, leave_out=["unsup"])
    assert [one.label for one in found] == ["neg", "pos"]
    assert found.counts == {"files beside the folders of labels": 2, "of label 'unsup'": 1}
    assert left_out_note(found.counts) == ", 2 files beside the folders of labels and 1 of label 'unsup' left out"
    assert left_out_note({}) == ""


def test_several_files_and_empty_texts(tmp_path: Path) -> None:
    paths = [written(tmp_path, f"{i}.tsv", f"label\ttext\na\t{i}\nb\t \n") for i in range(2)]
    assert len(read_labelled(paths, empty="keep")) == 4
    skipped = read_labelled(paths, empty="skip")
    assert [one.text for one in skipped] == ["0", "1"]
    assert skipped.counts == {"empty texts": 2}


def test_texts_to_predict_on_keep_their_lines(tmp_path: Path) -> None:
    path = written(tmp_path, "a.txt", "one\n\ntwo words\n")
    assert [one.text for one in read_texts(path)] == ["one", "", "two words"]
    assert read_texts(written(tmp_path, "a.jsonl", '{"text": "t"}'))[0].text == "t"


def test_a_very_long_line_is_read(tmp_path: Path) -> None:
    text = " ".join(f"word{i}" for i in range(5000)) + "x" * 200_000
    assert read_labelled(written(tmp_path, "a.csv", f'text,label\n"{text}",1\n'))[0].text == text


def test_aligned_files(tmp_path: Path) -> None:
    sources = [written(tmp_path, "a.de", "eins\n\nzwei\n"), written(tmp_path, "b.de", "drei")]
    target = written(tmp_path, "a.en", "one\r\n\r\ntwo\u2028still\r\nthree")
    found = read_pairs(sources, target)
    assert [(pair.source, pair.target) for pair in found] == [
        ("eins", "one"),
        ("zwei", "two\u2028still"),
        ("drei", "three"),
    ]
    assert found[2].where == Where(str(tmp_path / "b.de"), 1)
    assert found.counts == {"empty lines": 1}


def test_pairs_of_tables_and_scan(tmp_path: Path) -> None:
    tsv = written(tmp_path, "fra.tsv", 'Go.\tVa !\tCC-BY\nHi.\tSalut "!\tCC-BY\n')
    assert [(p.source, p.target) for p in read_pairs(tsv)] == [("Go.", "Va !"), ("Hi.", 'Salut "!')]
    assert read_pairs(tsv, columns=(1, 0))[0].source == "Va !"
    scan = written(tmp_path, "scan.txt", "IN: jump OUT: I_JUMP\nIN: walk twice OUT: I_WALK I_WALK\n")
    assert read_pairs(scan, format="scan")[1][:2] == ("walk twice", "I_WALK I_WALK")
    one = written(tmp_path, "one.tsv", "a\t\nb\tc\n\t\n")
    assert len(read_pairs(one, empty="keep")) == 2
    assert read_pairs(one, empty="skip").counts == {"empty on one side": 1, "empty lines": 1}


def test_conllu(tmp_path: Path) -> None:
    path = written(tmp_path, "a.conllu", CONLLU)
    found = read_tagged(path)
    assert [(one.words, one.tags, one.where.line) for one in found] == [
        (("Do", "n't", "go"), ("AUX", "PART", "VERB"), 4),
        (("Đà Nẵng",), ("PROPN",), 9),
    ]
    assert found.counts == {"comments": 2, "multiword ranges": 1, "empty nodes": 1}
    assert read_tagged(path, layout=Layout(tag="xpos"))[0].tags == ("VB", "RB", "VB")


@pytest.mark.parametrize("separator", [" ", "\t"])
def test_columns(tmp_path: Path, separator: str) -> None:
    path = written(tmp_path, "a.bio", BIO.replace(" ", separator))
    found = read_tagged(path)
    assert [one.tags for one in found] == [("I-ORG", "B-ORG", "O"), ("I-LOC", "I-ORG")]
    assert found.counts == {"document starts": 1, "empty lines": 2}
    assert [one.tags for one in read_tagged(path, scheme="iob2")] == [("B-ORG", "B-ORG", "O"), ("B-LOC", "B-ORG")]
    assert read_tagged(path, layout=Layout(word=1, tag=0))[1] == (("NNP", "NNP"), ("Bonn", "EU"), found[1].where)
    assert read_tagged(path, tags=False)[0].tags == ()


@pytest.mark.parametrize(("name", "content"), [("a.conllu", CONLLU), ("a.bio", BIO), ("b.bio", BIO.replace(" ", "\t"))])
def test_tags_go_back_to_their_lines(tmp_path: Path, name: str, content: str) -> None:
    path = written(tmp_path, name, content)
    found = read_tagged(path)
    assert "".join(f"{line}\n" for line in with_tags(path, [one.tags for one in found])) == content
    new = [[f"T{i}{j}" for j in range(len(one.words))] for i, one in enumerate(found)]
    changed = written(tmp_path, f"new-{name}", "".join(f"{line}\n" for line in with_tags(path, new)))
    assert [list(one.tags) for one in read_tagged(changed)] == new
    assert [one.words for one in read_tagged(changed)] == [one.words for one in found]
    assert [line.text for line in read_lines(changed) if line.text.startswith(("#", "1-2", "-DOC"))] == [
        line.text for line in read_lines(path) if line.text.startswith(("#", "1-2", "-DOC"))
    ]


def test_tagged_sentences_as_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "tagged.jsonl"
    path.write_text('{"tokens": ["EU", "rejects"], "tags": ["B-ORG", "O"]}\n{"tokens": [], "tags": []}\n')
    found = read_tagged(path)
    assert [one[:2] for one in found] == [(("EU", "rejects"), ("B-ORG", "O"))]
    assert found.counts["empty sentences"] == 1
    assert list(with_tags(path, [["1", "2"], []])) == ["EU\t1", "rejects\t2", "", ""]
    path.write_text('{"words": ["EU", "rejects"], "ner": ["B-ORG"]}\n')
    with pytest.raises(UserError, match=r"line 1: 2 words in 'words', but 1 tags in 'ner'"):
        read_tagged(path, layout=Layout(word="words", tag="ner"))
    with pytest.raises(UserError, match="no columns 'tokens' and 'tags'"):
        read_tagged(path)


@pytest.mark.parametrize(
    ("scheme", "tags"),
    [
        ("iobes", ["S-A", "O", "B-B", "E-B", "S-B", "B-A", "I-A", "E-A"]),
        ("bilou", ["U-A", "O", "B-B", "L-B", "U-B", "B-A", "I-A", "L-A"]),
        ("iob1", ["I-A", "O", "I-B", "I-B", "B-B", "I-A", "I-A", "I-A"]),
    ],
)
def test_every_way_to_mark_spans_becomes_one(tmp_path: Path, scheme: str, tags: list[str]) -> None:
    path = written(tmp_path, f"{scheme}.txt", "".join(f"word {tag}\n" for tag in tags))
    expected = ("B-A", "O", "B-B", "I-B", "B-B", "B-A", "I-A", "I-A")
    assert read_tagged(path, scheme="iob2")[0].tags == expected


def test_spaces_that_part_no_columns_belong_to_words(tmp_path: Path) -> None:
    """A no-break space in a number, an ideographic one that is a word: treebanks have both."""
    columns = written(tmp_path, "a.txt", "10\u00a0000 _ NUM\n\u3000 _ SYM\n")
    assert read_tagged(columns)[0].words == ("10\u00a0000", "\u3000")
    assert list(with_tags(columns, [["X", "Y"]])) == ["10\u00a0000 _ X", "\u3000 _ Y"]
    row = "\t_\tSYM\t_\t_\t0\troot\t_\t_"
    conllu = written(tmp_path, "a.conllu", f"1\t\u3000{row}\n2\t10\u00a0000{row}\n")
    assert read_tagged(conllu)[0].words == ("\u3000", "10\u00a0000")


def test_words_alone_get_a_column_of_tags(tmp_path: Path) -> None:
    path = written(tmp_path, "a.txt", "one\ntwo\n\nthree")
    assert [one.words for one in read_tagged(path, tags=False)] == [("one", "two"), ("three",)]
    assert list(with_tags(path, [["A", "B"], ["C"]])) == ["one A", "two B", "", "three C"]


SST = "(3 (2 It) (4 (4 (2 's) (4 good)) (2 .)))"


def in_nltk(tree: Tree | str) -> nltk.Tree | str:
    return tree if isinstance(tree, str) else nltk.Tree(tree.label(), [in_nltk(child) for child in tree])


def test_trees(tmp_path: Path) -> None:
    path = written(tmp_path, "a.txt", f"{SST}\n\n(1 no) (0 bad)\n( (S (NP (DT the)\n  (NN cat)) (VP sat)) )\n")
    found = read_trees(path)
    assert [one.where.line for one in found] == [1, 3, 3, 4]
    theirs = nltk.Tree.fromstring(SST)
    assert in_nltk(found[0].tree) == theirs
    assert found[0].words() == theirs.leaves() == ["It", "'s", "good", "."]
    assert found[0].labels() == [str(node.label()) for node in theirs.subtrees()]
    assert found[1].tree == Tree("1", ["no"]) != Tree("0", ["no"])
    assert repr(found[1].tree) == "Tree('1', ['no'])"
    assert found[3].labels() == ["S", "NP", "DT", "NN", "VP"]
    assert found.counts == {"empty lines": 1}


def test_trees_as_tensors(tmp_path: Path) -> None:
    found = read_trees(written(tmp_path, "a.txt", f"{SST}\n(1 no)\n(MAX 3 (MIN 4 5))\n"))
    labels = Labels.of(name for one in found[:2] for name in one.labels())
    batch = tree_batch(found, word_ids=[[10, 11, 12, 13], [20], [30, 31, 32]], labels=labels)
    W, L = NO_WORD, NO_LABEL
    assert batch.word_N.tolist() == [W, 10, W, W, 11, 12, 13, 20, W, 30, W, 31, 32]
    names = [labels.names[i] if i != L else None for i in batch.label_N.tolist()]
    assert names == ["3", "2", "4", "4", "2", "4", "2", "1", None, None, None, None, None]
    assert batch.forest.root_B.tolist() == [0, 7, 8]
    assert batch.forest.children_NK[:4].tolist() == [[1, 2], [-1, -1], [3, 6], [4, 5]]


@settings(deadline=None)
@given(st.recursive(st.text("ab", min_size=1), lambda inside: st.lists(inside, min_size=1, max_size=3)))
def test_trees_are_written_as_nltk_reads_them(nested: object) -> None:
    def built(node: object) -> nltk.Tree | str:
        return nltk.Tree("x", [built(one) for one in node]) if isinstance(node, list) else str(node)

    one = LabelledTree(nltk.Tree("root", [built(nested)]), Where("a.txt", 1))
    assert nltk.Tree.fromstring(one.written_with(one.labels())) == one.tree
    numbers = [str(number) for number, _ in enumerate(one.labels())]
    other = nltk.Tree.fromstring(one.written_with(numbers))
    assert other.leaves() == one.tree.leaves()
    assert [node.label() for node in other.subtrees()] == numbers


@settings(deadline=None)
@given(st.lists(st.sampled_from(["(", ")", "a", "很好", "-LRB-", " ", "\n", "\t"]), max_size=24))
def test_trees_are_read_as_nltk_reads_them(tmp_path_factory: pytest.TempPathFactory, parts: list[str]) -> None:
    """Whatever stands inside the brackets; what NLTK takes without a label is refused."""
    depth = list(accumulate({"(": 1, ")": -1}.get(part, 0) for part in parts))
    assume(min(depth, default=0) >= 0)  # else there are several trees
    text = f"(top {''.join(parts)})"
    path = written(tmp_path_factory.mktemp("trees"), "a.txt", text)
    try:
        theirs = nltk.Tree.fromstring(text)
    except ValueError:
        theirs = None
    if theirs is None or any(not node.label() or not len(node) for node in theirs.subtrees()):
        with pytest.raises(UserError):
            read_trees(path)
    else:
        assert [in_nltk(one.tree) for one in read_trees(path)] == [theirs]


def test_a_deep_tree_is_no_trouble(tmp_path: Path) -> None:
    depth = 5000  # NLTK's own reader refuses deeper than 500, and Python's recursion ends at a thousand
    one = read_trees(written(tmp_path, "a.txt", "(x a " * depth + "b" + ")" * depth))[0]
    assert len(one.words()) == depth + 1
    assert tree_batch([one], word_ids=[[1] * (depth + 1)], labels=Labels.of("x")).forest.arity == 2
    assert one.written_with(["y"] * depth) == "(y a " * depth + "b" + ")" * depth


def test_a_space_inside_a_word_of_a_tree_stays(tmp_path: Path) -> None:
    assert read_trees(written(tmp_path, "a.txt", "(1 (2 10\u00a0000) (3 \u3000))"))[0].words() == [
        "10\u00a0000",
        "\u3000",
    ]


def test_archives_and_numeric_tables(tmp_path: Path) -> None:
    x = np.arange(12.0).reshape(3, 4)
    np.savez(tmp_path / "a.npz", x=x, y=np.array([2, 0, 1]), x_test=x[:1, :, None], y_test=np.array(["up"]))
    found = read_arrays(tmp_path / "a.npz")
    assert found.values_NTC.shape == (3, 4, 1)
    np.savez(tmp_path / "b.npz", x=1e9 + x, y=np.zeros(3, dtype=int))
    assert np.array_equal(read_arrays(tmp_path / "b.npz").values_NTC[..., 0] - 1e9, x), "in 32 bits all would be alike"
    assert found.labels == ["2", "0", "1"]
    assert read_arrays(tmp_path / "a.npz", values="x_test", label="y_test").labels == ["up"]
    table = written(tmp_path, "a.csv", "1,0.5,-2e3\n2,1,4\n")
    read = read_arrays(table, label=0)
    assert read.values_NTC[..., 0].tolist() == [[0.5, -2000.0], [1.0, 4.0]]
    assert read.labels == ["1", "2"]
    headed = written(tmp_path, "b.csv", "a,class,b\n1,up,3\n")
    assert read_arrays(headed, label="class").values_NTC.ravel().tolist() == [1, 3]


def test_a_bound_cuts_leaves_out_or_refuses() -> None:
    where = [Where("a.txt", line) for line in (1, 2, 3)]
    for longest, beyond, kept, too_long in (
        (5, "cut", [0, 1, 2], 1),
        (5, "leave-out", [0, 2], 1),
        (None, "refuse", [0, 1, 2], 0),
    ):
        found = limit_length([3, 9, 5], longest=longest, beyond=beyond, where=where)
        assert (found.kept.tolist(), found.beyond) == (kept, too_long)
    with pytest.raises(UserError, match=r"a.txt line 2: 9 tokens, more than the longest allowed, 5"):
        limit_length([3, 9, 5], longest=5, beyond="refuse", where=where)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.lists(st.sampled_from([b"\n", b"\r", b"\r\n", b"a", "ä".encode(), b"long line"]), max_size=12))
@pytest.mark.parametrize("block", [1, 3, 1 << 20])
def test_lines_are_those_of_the_whole_file(
    content: list[bytes], block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("statewise.data.lines._BLOCK", block)
    data = b"".join(content)
    (tmp_path / "a.txt").write_bytes(data)
    (tmp_path / "b.txt").write_bytes(data.decode().encode("utf-16"))
    whole = data if b"\n" in data else data.replace(b"\r", b"\n")
    lines = whole.removesuffix(b"\n").split(b"\n") if whole else []
    expected = [line.removesuffix(b"\r").decode() for line in lines]
    assert [line.text for line in read_lines(tmp_path / "a.txt")] == expected
    # UTF-16 is read in blocks too, which may end inside a character.
    assert [line.text for line in read_lines(tmp_path / "b.txt", encoding="utf-16")] == expected


def test_a_wrong_encoding_is_found_in_any_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("statewise.data.lines._BLOCK", 4)
    (tmp_path / "a.txt").write_bytes(b"one\ntwo\nthr\xff\xffe\n")
    with pytest.raises(UserError, match=r"a\.txt line 3: not ascii"):
        list(read_lines(tmp_path / "a.txt", encoding="ascii"))
    with pytest.raises(UserError, match="encoding 'rot13' is not known"):
        list(read_lines(tmp_path / "a.txt", encoding="rot13"))
