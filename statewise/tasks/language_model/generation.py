"""A text for somebody who watches: piece by piece, from a saved state or into one."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from statewise.decoding import Sampling
from statewise.specs import UserError, option
from statewise.tasks.run import Generation

if TYPE_CHECKING:
    from statewise.tasks.language_model.run import LanguageModelRun

_TOKENS = 300  # generated unless another number is asked for


def text_generation(
    run: "LanguageModelRun",
    prompt: str = "",
    *,
    tokens: int | None = None,
    sampling: Sampling | None = None,
    stop: Sequence[str] = (),
    state: Path | None = None,
    save_state: Path | None = None,
) -> Generation:
    """The prompt and its text piece by piece, from the file `state` on, and into `save_state` at the end.

    A model that reads in reverse has the prompt behind the text.

    >>> generation = sw.load("runs/lstm").generation("the ", tokens=5)
    >>> "".join(generation.pieces).startswith("the ")
    True
    """
    tokens = _TOKENS if tokens is None else tokens
    unknown = run.tokenizer.unknown_in(prompt)
    if run.spec.data.direction == "reverse":
        if state or save_state or stop:
            names = f"{option('state')}, {option('save_state')} and {option('stop')}"
            raise UserError(f"this run reads backwards; {names} do not apply")
        text = run.generate(prompt, tokens=tokens, sampling=sampling)
        count = len(run.tokenizer.encode(text)) + len(run.tokenizer.encode(prompt))
        return Generation(iter([text, prompt]), lambda: {"prompt": prompt, "text": text, "tokens": count}, unknown)
    at = run.begin() if state is None else run.load_state(state)
    made: list[str] = []

    def pieces() -> Iterator[str]:
        nonlocal at
        if state is None:
            yield prompt
        for piece, after in run.stream(prompt, tokens=tokens, sampling=sampling, stop=stop, start=at):
            at = after
            made.append(piece)
            yield piece
        if save_state is not None:
            run.save_state(at, save_state)

    return Generation(
        pieces(), lambda: {"prompt": prompt, "text": "".join(made), "tokens": int(at.position_B)}, unknown
    )
