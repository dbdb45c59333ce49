"""Text as it is written: never half a character, never a part of a stop string, and any cut is none."""

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from statewise.core import load_state, save_state
from statewise.data import Tokenizer
from statewise.decoding import Continuation, Sampling, TextStream, begin, generate, read
from statewise.models import LanguageModel, build

SAMPLE = "Crème brûlée 😀👩‍🚀 中文字符, naïve café — ½ of it.\nthe cat sat on the mat\n" * 3
TOKENIZERS = {kind: Tokenizer.train(kind, [SAMPLE], vocab=300) for kind in ("char", "byte", "word", "bpe")}
MARK = "\ufffd"


def streamed(tokenizer: Tokenizer, ids: list[int], *, stop: tuple[str, ...] = ()) -> list[str]:
    stream = TextStream(tokenizer.decode, stop=stop)
    return [*(stream.feed(i) for i in ids), stream.finish()]


@given(text=st.text(st.sampled_from("aé中😀👩\u200d🚀 \n"), max_size=120))
def test_bytes_come_as_whole_characters(text: str) -> None:
    pieces = streamed(TOKENIZERS["byte"], list(text.encode()))
    assert "".join(pieces) == text
    assert MARK not in "".join(pieces)
    assert all(len(piece) <= 1 for piece in pieces)  # nothing is held back longer than it must


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_pieces_are_the_text(kind: str) -> None:
    tokenizer = TOKENIZERS[kind]
    ids = tokenizer.encode(SAMPLE).tolist()
    assert "".join(streamed(tokenizer, ids)) == tokenizer.decode(ids)


@given(ids=st.lists(st.integers(0, 255), max_size=150))
def test_bytes_that_are_no_text_pass_as_marks(ids: list[int]) -> None:
    """All but an end that may yet become a character; what came is never taken back."""
    text = "".join(streamed(TOKENIZERS["byte"], ids))
    whole = bytes(ids).decode(errors="replace")
    assert text in (whole, whole.removesuffix(MARK))


@pytest.mark.parametrize("kind", ["char", "byte", "bpe"])
@given(stop=st.text(st.sampled_from("the cat😀中on"), min_size=1, max_size=6))
def test_a_stop_string_never_leaks(kind: str, stop: str) -> None:
    tokenizer = TOKENIZERS[kind]
    text = "on the mat 中 the cat 😀 sat on the other cat"
    ids = tokenizer.encode(text).tolist()
    shown = ""
    for piece in streamed(tokenizer, ids, stop=(stop,)):
        shown += piece
        assert text.startswith(shown)
        assert stop not in shown
    assert shown == text.partition(stop)[0]


def test_the_first_of_several_stops_counts_and_the_rest_is_silence() -> None:
    stream = TextStream(TOKENIZERS["char"].decode, stop=("sat", "cat", ""))
    ids = TOKENIZERS["char"].encode("the cat sat").tolist()
    assert "".join(stream.feed(i) for i in ids) == "the "
    assert stream.stopped
    assert stream.feed(ids[0]) == stream.finish() == ""


def test_what_was_held_for_a_stop_is_released_at_the_end() -> None:
    stream = TextStream(TOKENIZERS["char"].decode, stop=("cats",))
    pieces = [stream.feed(int(i)) for i in TOKENIZERS["char"].encode("a cat")]
    assert pieces == ["a", " ", "", "", ""]
    assert stream.finish() == "cat"


def model_for(tokenizer: Tokenizer) -> LanguageModel:
    return build("gru", vocab=tokenizer.vocab, width=8, seed=1).eval()


def start(model: LanguageModel, tokenizer: Tokenizer, prompt: str) -> Continuation:
    ids = [tokenizer.end_id, *tokenizer.encode(prompt).tolist()]
    return begin(model, torch.tensor([ids]), vocab=tokenizer.vocab)


def write(
    model: LanguageModel, tokenizer: Tokenizer, at: Continuation, count: int, sampling: Sampling
) -> tuple[str, list[int], Continuation]:
    stream = TextStream(tokenizer.decode, before=[i for i in at.tail_BK[0].tolist() if i >= 0])
    text, ids, source = "", [], generate(model, at, sampling)
    for _ in range(count):
        token_B, at = next(source)
        ids.append(int(token_B))
        text += stream.feed(int(token_B))
    return text + stream.finish(), ids, at


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_a_saved_state_continues_exactly_at_every_cut(kind: str, tmp_path: Path) -> None:
    tokenizer, count = TOKENIZERS[kind], 24
    model = model_for(tokenizer)
    sampling = Sampling(repetition=1.5, temperature=1.3, top_p=0.98, seed=4)
    origin = start(model, tokenizer, "the 中 cat")
    text, ids, last = write(model, tokenizer, origin, count, sampling)
    for cut in range(count + 1):
        first_text, first_ids, middle = write(model, tokenizer, origin, cut, sampling)
        save_state(middle, tmp_path / "state.safetensors")
        middle = load_state(tmp_path / "state.safetensors", like=start(model, tokenizer, ""))
        second_text, second_ids, end = write(model, tokenizer, middle, count - cut, sampling)
        assert first_ids + second_ids == ids
        assert first_text + second_text == text
        assert torch.equal(end.seen_BV, last.seen_BV)
        assert int(end.position_B) == int(last.position_B)


def test_reading_in_parts_is_reading_at_once() -> None:
    tokenizer = TOKENIZERS["char"]
    model = model_for(tokenizer).double()
    whole = start(model, tokenizer, "the cat sat on")
    parts = start(model, tokenizer, "the ")
    for text in ("", "cat s", "at on"):
        ids = torch.from_numpy(tokenizer.encode(text))[None]
        parts = read(model, parts, ids)
    torch.testing.assert_close(parts.state, whole.state, rtol=0, atol=1e-12)
    assert all(torch.equal(a, b) for a, b in zip(parts[1:], whole[1:], strict=True))


def test_rows_write_what_they_would_write_alone() -> None:
    tokenizer = TOKENIZERS["char"]
    model = model_for(tokenizer).double()
    sampling = Sampling(repetition=1.2, temperature=1.1, seed=6)
    prompts = torch.stack([torch.from_numpy(tokenizer.encode(text)) for text in ("the ", "cat ", "mat ")])
    together = generate(model, begin(model, prompts, vocab=tokenizer.vocab), sampling)
    found = torch.stack([next(together)[0] for _ in range(20)], dim=1)
    for i in range(3):
        alone = generate(model, begin(model, prompts[i : i + 1], vocab=tokenizer.vocab), sampling)
        assert [int(next(alone)[0]) for _ in range(20)] == found[i].tolist()


def test_repetition_remembers_the_prompt_and_what_was_written() -> None:
    tokenizer = TOKENIZERS["char"]
    at = start(model_for(tokenizer), tokenizer, "cat")
    seen = set(at.seen_BV[0].nonzero().flatten().tolist())
    assert seen == {tokenizer.end_id, *tokenizer.encode("cat").tolist()}
    _, ids, at = write(model_for(tokenizer), tokenizer, at, 5, Sampling())
    assert set(at.seen_BV[0].nonzero().flatten().tolist()) == seen | set(ids)
