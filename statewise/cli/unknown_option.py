"""An option that a verb does not have: which setting, or which other option, was probably meant."""

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from statewise.specs import Setting

# Settings that have an option of their own.
_PLAIN = {
    "train.steps": "--steps",
    "train.lr": "--lr",
    "train.batch": "--batch",
    "train.device": "--device",
    "seed": "--seed",
}
_CLOSE = 0.75  # two names that are this alike are one name and a slip


def explain_option(option: str, options: Sequence[str], arguments: Sequence[str]) -> str:
    """What to write in place of `option`. `options` are those of the verb, `arguments` what was given, verb first.

    `--width 32`: no option --width; it is a setting: --set model.width=32
    """
    from statewise.specs import likeness, meant

    verb, *given = arguments
    name = option.lstrip("-")
    other = max(options, key=lambda one: likeness(name, one.lstrip("-")), default="")
    settings, plain = _settings(verb, given)
    like, found = meant(name, settings)
    if like >= _CLOSE and like > likeness(name, other.lstrip("-")):
        value, steps = _value(option, given), ""
        if "epoch" in name:
            value, steps = "N", " (optimiser steps, not epochs)"
        if (own := plain.get(found[0].path)) in options:
            return f"no option {option}; did you mean {own} {shlex.quote(value or 'VALUE')}?{steps}"
        shown = [f"--set {_assigned(one, value)}" for one in found]
        return f"no option {option}; it is a setting: {' or '.join(shown)}{steps}"
    guess = f"; did you mean {other}?" if likeness(name, other.lstrip("-")) >= _CLOSE else ""
    return f"no option {option}{guess}"


def _assigned(one: "Setting", value: str | None) -> str:
    if value is None:
        return f"{one.path}={'|'.join(one.choices) or 'VALUE'}"
    return shlex.quote(f"{one.path}={value}")


def _value(option: str, given: Sequence[str]) -> str | None:
    """What was given to the option, as `--option VALUE` or `--option=VALUE`."""
    for word, after in zip(given, [*given[1:], ""]):
        if word.startswith(f"{option}="):
            return word.removeprefix(f"{option}=")
        if word == option:
            return None if not after or after.startswith("--") else after
    return None


def _settings(verb: str, given: Sequence[str]) -> "tuple[list[Setting], dict[str, str]]":
    """The settings of the recipe or the study that the verb was given, and which of them are options of their own."""
    from statewise.specs import UserError, load_recipe, make_spec, settings_of

    words = [word for word in given if not word.startswith("-")]
    if verb == "compare":
        from statewise.comparison import load_story

        for word in (*words, "lineage"):
            try:
                studies = [chapter.study for chapter in load_story(word).chapters]
            except UserError:
                continue
            found = {one.path: one for study in studies for one in settings_of(study)}
            every = [one for study in studies for one in settings_of(make_spec(study.base))]
            found |= {f"base.{one.path}": one._replace(path=f"base.{one.path}") for one in every}
            return list(found.values()), {}
    if verb in ("train", "reproduce", "settings"):
        for word in (*words, "lstm"):
            try:
                spec = make_spec(load_recipe(word))
                return list(settings_of(spec)), {**_PLAIN, spec.main_data: "--data"}
            except UserError:
                continue
    return [], {}
