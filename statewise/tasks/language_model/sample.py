"""The nats that each piece of a text costs a language model: of a held-out text, and of one that it generated.

T time, V vocabulary.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from statewise.data import Tokenizer
from statewise.decoding import TextStream
from statewise.models import TokenMachine

Pieces = list[tuple[str, float]]  # in reading order, each with its nats


@torch.no_grad()
def generated_pieces(
    model: TokenMachine[Any], tokenizer: Tokenizer, prompt: str, ids: Sequence[int], *, begin_id: int, backwards: bool
) -> Pieces:
    """Of tokens that the model generated after the prompt. The state is never reset: it was not while generating."""
    if not ids:
        return []
    before = [int(token) for token in tokenizer.encode(prompt)]
    tokens_T = _read_order(before, model, begin_id=begin_id, backwards=backwards, then=ids)
    logits_TV = model(tokens_T[None, :-1], None)[0][0, -len(ids) :]
    nats = _nats(logits_TV, tokens_T[-len(ids) :])
    if backwards:
        return _pieces(TextStream(tokenizer.decode), ids[::-1], nats[::-1])
    return _pieces(TextStream(tokenizer.decode, before=before), ids, nats)


@torch.no_grad()
def text_pieces(
    model: TokenMachine[Any], tokenizer: Tokenizer, text: str, *, begin_id: int, window: int | None, backwards: bool
) -> Pieces:
    """Of any text. As in evaluation, a model that learned from separate windows is reset after each."""
    ids = [int(token) for token in tokenizer.encode(text)]
    if not ids:
        return []
    tokens_T = _read_order(ids, model, begin_id=begin_id, backwards=backwards)
    parts = torch.split(tokens_T[:-1], window or len(tokens_T))
    nats = _nats(torch.cat([model(part_T[None], None)[0][0] for part_T in parts]), tokens_T[1:])
    return _pieces(TextStream(tokenizer.decode), ids, nats[::-1] if backwards else nats)


def first_text(tokens: Sequence[int], tokenizer: Tokenizer, *, characters: int, backwards: bool) -> str:
    """The beginning of the first document that is long enough, else the longest: the same for every tokenizer."""
    longest = ""
    document: list[int] = []
    for token in [*tokens, tokenizer.end_id]:
        if token != tokenizer.end_id:
            document.append(token)
            continue
        text = tokenizer.decode(document[::-1] if backwards else document)
        if len(text) > len(longest):
            longest = text
        if len(longest) >= characters:
            break
        document = []
    return longest[:characters]


def _read_order(
    ids: list[int], model: TokenMachine[Any], *, begin_id: int, backwards: bool, then: Sequence[int] = ()
) -> Tensor:
    ordered = ids[::-1] if backwards else ids
    return torch.tensor([begin_id, *ordered, *then], device=model.like.device)


def _nats(logits_TV: Tensor, target_T: Tensor) -> list[float]:
    nats: list[float] = F.cross_entropy(logits_TV.float(), target_T, reduction="none").tolist()
    return nats


def _pieces(stream: TextStream, ids: Sequence[int], nats: Sequence[float]) -> Pieces:
    """Half characters wait for their other half."""
    pieces, pending = [], 0.0
    for token, cost in zip(ids, nats, strict=True):
        piece, pending = stream.feed(token), pending + cost
        if piece:
            pieces.append((piece, pending))
            pending = 0.0
    if pending:
        pieces.append((stream.finish(), pending))
    return pieces
