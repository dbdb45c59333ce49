"""The page's tokenizers give the ids of the run's own, and the same text back."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from statewise.data import Tokenizer
from statewise.lab.tokenizer import tokenizer_record
from statewise.specs import TOKENIZERS

NODE = shutil.which("node")
SCRIPT = Path(__file__).parent / "js" / "tokens.js"
TEXTS = [
    "Alice was beginning to get very tired.\nShe said, `Oh dear!'",
    "it's  we'll\tI'd  3 cats, 14 dogs -- done!!  ",
    "naïve café — “quoted” 日本語 中文 ab_c 🙂",
    "a<end>b <end> <unk>",
    "",
    "\n\n x \n",
]


@pytest.mark.skipif(NODE is None, reason="node is not installed")
def test_every_kind_of_tokenizer_agrees(tmp_path: Path) -> None:
    trained = [Tokenizer.train(kind, TEXTS, vocab=300 if kind == "bpe" else None) for kind in _kinds()]
    trained.append(Tokenizer.train("word", TEXTS[:2], lower=True, min_count=1))
    cases = [{"record": tokenizer_record(one), "texts": TEXTS} for one in trained]
    path = tmp_path / "cases.json"
    path.write_text(json.dumps({"cases": cases}), encoding="utf-8")
    done = subprocess.run([str(NODE), str(SCRIPT), str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for tokenizer, found in zip(trained, json.loads(done.stdout), strict=True):
        for text, got in zip(TEXTS, found, strict=True):
            ids = tokenizer.encode(text).tolist()
            assert got["ids"] == ids, (tokenizer.to_json()[:300], text)
            assert got["text"] == tokenizer.decode(ids), text


def _kinds() -> list[str]:
    return [kind for kind in TOKENIZERS if kind != "word"]  # which refuses texts without spaces
