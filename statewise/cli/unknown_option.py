"""Unknown options: suggest the setting or the option that was probably meant."""

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from statewise.specs import Setting

# Settings that also have an option.
_PLAIN = {
    "train.steps": "--steps",
    "train.lr": "--lr",
    "train.batch": "--batch",
    "train.device": "--device",
    "seed": "--seed",
}
_CLOSE = 0.75  # similarity of a name and its misspelling


def explain_option(option: str, options: Sequence[str], arguments: Sequence[str]) -> str:
    """The message for an unknown `option`. `options` are those of the verb, `arguments` the command line, verb first.

    `--width 32`: no option --width; it is a setting: --set model.width=32
    """
    from statewise.specs import likeness, meant

    verb, *words = arguments
    name = option.lstrip("-")
    other = max(options, key=lambda candidate: likeness(name, candidate.lstrip("-")), default="")
    settings, plain = _settings(verb, words)
    similarity, matches = meant(name, settings)
    if similarity >= _CLOSE and similarity > likeness(name, other.lstrip("-")):
        value, steps = _value(option, words), ""
        if "epoch" in name:
            value, steps = "N", " (optimiser steps, not epochs)"
        if (own := plain.get(matches[0].path)) in options:
            return f"no option {option}; did you mean {own} {shlex.quote(value or 'VALUE')}?{steps}"
        suggestions = [f"--set {_assigned(candidate, value)}" for candidate in matches]
        return f"no option {option}; it is a setting: {' or '.join(suggestions)}{steps}"
    guess = f"; did you mean {other}?" if likeness(name, other.lstrip("-")) >= _CLOSE else ""
    return f"no option {option}{guess}"


def _assigned(setting: "Setting", value: str | None) -> str:
    if value is None:
        return f"{setting.path}={'|'.join(setting.choices) or 'VALUE'}"
    return shlex.quote(f"{setting.path}={value}")


def _value(option: str, words: Sequence[str]) -> str | None:
    """The option's value, as `--option VALUE` or `--option=VALUE`."""
    for word, after in zip(words, [*words[1:], ""]):
        if word.startswith(f"{option}="):
            return word.removeprefix(f"{option}=")
        if word == option:
            return None if not after or after.startswith("--") else after
    return None


def _settings(verb: str, arguments: Sequence[str]) -> "tuple[list[Setting], dict[str, str]]":
    """The settings of the verb's recipe or study, and the options that some of them have."""
    from statewise.specs import UserError, load_recipe, make_spec, settings_of

    words = [word for word in arguments if not word.startswith("-")]
    if verb == "compare":
        from statewise.comparison import load_story

        for word in (*words, "lineage"):
            try:
                studies = [chapter.study for chapter in load_story(word).chapters]
            except UserError:
                continue
            settings = {setting.path: setting for study in studies for setting in settings_of(study)}
            every = [setting for study in studies for setting in settings_of(make_spec(study.base))]
            settings |= {f"base.{setting.path}": setting._replace(path=f"base.{setting.path}") for setting in every}
            return list(settings.values()), {}
    if verb in ("train", "reproduce", "settings"):
        for word in (*words, "lstm"):
            try:
                spec = make_spec(load_recipe(word))
                return list(settings_of(spec)), {**_PLAIN, spec.main_data: "--data"}
            except UserError:
                continue
    return [], {}
