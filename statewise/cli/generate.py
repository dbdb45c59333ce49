"""`statewise generate`: text from a trained model, token by token."""

from pathlib import Path
from typing import Annotated

from statewise.cli.option import Device, Json, MixerOption, RunFolder, open_run, option
from statewise.cli.output import print_json, put, tell


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

    sampling = Sampling(repetition, temperature, top_k, top_p, min_p, seed).check()
    if state is not None and not state.is_file():
        raise UserError(f"there is no state file {str(state)!r}", fix="make one with: statewise generate --save-state")
    if save_state is not None and (save_state.is_dir() or not save_state.parent.is_dir()):
        raise UserError(
            f"--save-state {str(save_state)!r} cannot be written", fix="name a file in a folder that exists"
        )
    opened = open_run(run, device=device, mixer=mixer)
    generation = opened.generation(
        prompt, tokens=tokens, sampling=sampling, stop=stop or (), state=state, save_state=save_state
    )
    if generation.unknown:
        unknown = ", ".join(map(repr, generation.unknown))
        tell(f"warning: parts of the prompt are not in the run's vocabulary: {unknown}", error=True)
    for piece in generation.pieces:
        if not json_:
            put(piece, end="")
    if json_:
        print_json(generation.facts())
    else:
        tell()
