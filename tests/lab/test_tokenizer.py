"""The page's tokenizers give the ids of the run's own, and the same text back."""

from pathlib import Path

from node import answered

from statewise.data import Tokenizer
from statewise.lab.bundle import tokenizer_record
from statewise.specs import TOKENIZERS

TEXTS = [
    "Alice was beginning to get very tired.\nShe said, `Oh dear!'",
    "it's  we'll\tI'd  3 cats, 14 dogs -- done!!  ",
    "naïve café — “quoted” 日本語 中文 ab_c 🙂",
    "a<end>b <end> <unk>",
    "",
    "\n\n x \n",
]


def test_every_kind_of_tokenizer_agrees(tmp_path: Path) -> None:
    trained = [Tokenizer.train(kind, TEXTS, vocab=300 if kind == "bpe" else None) for kind in _kinds()]
    trained.append(Tokenizer.train("word", TEXTS[:2], lower=True, min_count=1))
    cases = [{"record": tokenizer_record(one), "texts": TEXTS} for one in trained]
    answers = answered("tokens.js", {"cases": cases}, tmp_path)
    for tokenizer, found in zip(trained, answers, strict=True):
        for text, got in zip(TEXTS, found, strict=True):
            ids = tokenizer.encode(text).tolist()
            assert got["ids"] == ids, (tokenizer.to_json()[:300], text)
            assert got["text"] == tokenizer.decode(ids), text


def _kinds() -> list[str]:
    return [kind for kind in TOKENIZERS if kind != "word"]  # which refuses texts without spaces
