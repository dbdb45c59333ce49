"""`statewise generate`: text from a trained model, token by token."""

from pathlib import Path
from typing import Annotated, Any

from statewise.cli.option import Device, Json, MixerOption, RunFolder, open_run, option
from statewise.cli.output import print_json, put, tell

_TOKENS = 300  # default for language models


def generate(
    run: RunFolder,
    prompt: Annotated[str, option("--prompt -p TEXT", "The text to continue, or the input to answer.")] = "",
    tokens: Annotated[
        int | None,
        option(
            "--tokens -n N",
            "At most N new tokens, or time steps of a series. "
            "Default: 300 of a text, the horizon of a series, until it ends for a translation.",
        ),
    ] = None,
    temperature: Annotated[float, option("T", "0 is greedy; below 1 safer, above 1 bolder.")] = 0.8,
    top_k: Annotated[int | None, option("K", "Only the K most likely tokens.")] = None,
    top_p: Annotated[float | None, option("P", "Only the likeliest tokens that together reach probability P.")] = None,
    min_p: Annotated[float | None, option("P", "Only tokens at least P times as likely as the likeliest.")] = None,
    repetition: Annotated[
        float, option("F", "Repetition penalty: above 1, tokens that occurred before are less likely.")
    ] = 1.0,
    stop: Annotated[list[str] | None, option("TEXT", "End before this text. Can be repeated.")] = None,
    seed: Annotated[int, option("N", "The same seed generates the same text.")] = 0,
    state: Annotated[Path | None, option("FILE", "Continue from a saved state; --prompt is read after it.")] = None,
    save_state: Annotated[Path | None, option("FILE", "Save the state after the last token.")] = None,
    mixer: MixerOption = None,
    device: Device = None,
    json_: Json = False,
) -> None:
    """Continue a prompt, token by token. The state can be saved and continued from, exactly.

    A translation run samples a translation of the prompt, a forecasting run continues its values (or its own data);
    the other tasks answer it: a class, tags, the labels of a tree.

    Example: statewise generate runs/lstm --prompt "The " --temperature 0.7
    Example: statewise generate runs/translation --prompt "open the door !" --seed 3
    """
    from statewise.decoding import Sampling
    from statewise.specs import UserError
    from statewise.tasks import LanguageModelRun

    sampling = Sampling(repetition, temperature, top_k, top_p, min_p, seed).check()
    if state is not None and not state.is_file():
        raise UserError(f"there is no state file {str(state)!r}", fix="make one with: statewise generate --save-state")
    if save_state is not None and (save_state.is_dir() or not save_state.parent.is_dir()):
        raise UserError(
            f"--save-state {str(save_state)!r} cannot be written", fix="name a file in a folder that exists"
        )
    opened = open_run(run, device=device, mixer=mixer)
    if not isinstance(opened, LanguageModelRun):
        if state or save_state:
            raise UserError(
                f"a {opened.spec.task} run has no text to continue later", fix="leave out --state and --save-state"
            )
        text = opened.generate(prompt, tokens=tokens, sampling=sampling, stop=stop or ())
        _print({"prompt": prompt, "text": text}, text, json_=json_)
        return
    if unknown := opened.tokenizer.unknown_in(prompt):
        tell(
            f"warning: parts of the prompt are not in the run's vocabulary: {', '.join(map(repr, unknown))}",
            error=True,
        )
    tokens = _TOKENS if tokens is None else tokens
    if opened.spec.data.direction == "reverse":
        if state or save_state or stop:
            raise UserError("this run reads backwards; --state, --save-state and --stop do not apply")
        text = opened.generate(prompt, tokens=tokens, sampling=sampling)
        count = len(opened.tokenizer.encode(text)) + len(opened.tokenizer.encode(prompt))
        _print({"prompt": prompt, "text": text, "tokens": count}, text + prompt, json_=json_)
        return
    at = opened.load_state(state) if state is not None else opened.begin()
    pieces = []
    if not json_ and state is None:
        put(prompt, end="")
    for piece, after in opened.stream(prompt, tokens=tokens, sampling=sampling, stop=stop or (), start=at):
        at = after
        pieces.append(piece)
        if not json_:
            put(piece, end="")
    if save_state is not None:
        opened.save_state(at, save_state)
    if json_:
        print_json({"prompt": prompt, "text": "".join(pieces), "tokens": int(at.position_B)})
    else:
        tell()


def _print(result: dict[str, Any], text: str, *, json_: bool) -> None:
    if json_:
        print_json(result)
    else:
        put(text)
