"""A run's tokenizer for `static/tokenizer.js`: what kind it is, its tokens, and where it cuts a text."""

from typing import Any

from statewise.data import Tokenizer
from statewise.specs import UserError, from_json

_SCRIPTS = "".join(
    rf"\p{{Script={name}}}" for name in ("Han", "Hiragana", "Katakana", "Thai", "Lao", "Khmer", "Myanmar")
)
_LETTERS = r"\p{L}\p{M}\p{Nd}\p{Pc}"
# As in `statewise.data.tokenizer_training`, in the syntax of JavaScript.
_SPACES = r"\n|<(?=end>)|(?:(?!<end>)\S)+"
_PUNCTUATION = rf"[{_SCRIPTS}]|(?:(?![{_SCRIPTS}])[{_LETTERS}])+|[^{_LETTERS}\s]+|\n"
_UNSPACED = rf"[{_SCRIPTS}\u3000-\u303F\uFF01-\uFF0F\uFF1A-\uFF20\uFF3B-\uFF40\uFF5B-\uFF65]"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def tokenizer_record(tokenizer: Tokenizer) -> dict[str, Any]:
    table: dict[str, Any] = from_json(tokenizer.to_json())
    model, cut = table["model"], table.get("pre_tokenizer") or {}
    lower = table.get("normalizer") == {"type": "Lowercase"}
    of_bytes = cut.get("type") == "ByteLevel" and not cut.get("add_prefix_space")
    kind: dict[str, Any]
    match model["type"], bool(model.get("merges")):
        case "BPE", False if not cut:
            kind = {"kind": "char"}
        case "BPE", False if of_bytes and not cut.get("use_regex"):
            kind = {"kind": "byte"}
        case "BPE", _ if of_bytes and cut.get("use_regex"):
            kind = {"kind": "bpe", "split": _GPT2, "merges": [_pair(pair) for pair in model["merges"]]}
        case "WordLevel", _ if cut.get("type") == "Sequence":
            kind = {"kind": "word", "split": _SPACES}
        case "WordLevel", _ if cut.get("type") == "Split":
            kind = {"kind": "word", "split": _PUNCTUATION, "unspaced": _UNSPACED}
        case _:
            kind = {}
    if not kind or (table.get("normalizer") and not lower):
        raise UserError(
            "the lab cannot read texts with this run's tokenizer",
            fix="it knows the tokenizers char, byte, word, wordpunct and bpe; train the run with one of these",
        )
    tokens = [""] * tokenizer.vocab
    for token, number in model["vocab"].items():
        tokens[number] = token
    for added in table.get("added_tokens", ()):
        tokens[added["id"]] = added["content"]
    return {**kind, "tokens": tokens, "unknown": tokenizer.unknown_id, "end": tokenizer.end_id, "lower": lower}


def _pair(pair: Any) -> str:
    return pair if isinstance(pair, str) else " ".join(pair)
