"""From what a person names (a file, a shipped recipe, a model) to a table of settings."""

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from statewise.specs.error import UserError, either, nearest, option
from statewise.specs.model import KINDS
from statewise.specs.reproduction import ReproductionSpec
from statewise.specs.toml import read_toml


def shipped_folder(name: str, in_checkout: str = "") -> Path:
    """A folder that comes with the package: inside it where it is installed, next to it in a checkout."""
    package = Path(__file__).parents[1]
    installed = package / name
    return installed if installed.is_dir() else package.parent / (in_checkout or name)


def recipe_folder() -> Path:
    return shipped_folder("recipes")


def recipe_names() -> list[str]:
    return sorted(path.stem for path in recipe_folder().glob("*.toml"))


def published_names() -> list[str]:
    """Recipes of published results; each needs data that a user brings."""
    return sorted(path.stem for path in (recipe_folder() / "published").glob("*.toml"))


def load_published(name: str) -> tuple[dict[str, Any], ReproductionSpec]:
    """A published recipe by name or path: its settings, and what it should give."""
    if name not in published_names() and Path(name).suffix != ".toml":
        raise UserError(f"{name!r} is not a published recipe", fix=nearest(name, published_names()))
    path = Path(name) if Path(name).suffix == ".toml" else recipe_folder() / "published" / f"{name}.toml"
    table = _read(path)
    try:
        reproduction = ReproductionSpec.model_validate(table.pop("reproduction", {}))
    except ValidationError as error:
        lines = [f"  reproduction.{'.'.join(map(str, problem['loc']))}: {problem['msg']}" for problem in error.errors()]
        raise UserError(f"recipe {str(path)!r} is not a published one:\n" + "\n".join(lines)) from None
    return table, reproduction


def load_recipe(name: str) -> dict[str, Any]:
    """The table behind a path, a shipped recipe's name, or a bare model name; what it should give is left out."""
    table = _named(name)
    table.pop("reproduction", None)
    return table


def _named(name: str) -> dict[str, Any]:
    path = Path(name)
    if path.suffix == ".toml" or path.is_file():
        return _read(path)
    if name in recipe_names():
        return _read(recipe_folder() / f"{name}.toml")
    if name in published_names():
        return _read(recipe_folder() / "published" / f"{name}.toml")
    if name in KINDS:
        return {"model": {"kind": name}}
    known = nearest(name, {*KINDS, *recipe_names(), *published_names()})
    if path.is_dir():
        raise UserError(
            f"{name!r} is a folder, neither a run nor a recipe",
            fix=f"to train on its files: {option('data', name)}; {known}",
        )
    raise UserError(f"{name!r} is neither a recipe file, a shipped recipe, nor a model", fix=known)


def _read(path: Path, *, derived: tuple[Path, ...] = ()) -> dict[str, Any]:
    """A recipe's table, laid over the one it is `based_on`: a shipped recipe's name, or a file beside it."""
    table = _read_alone(path)
    base = table.pop("based_on", None)
    if base is None:
        return table
    if not isinstance(base, str):
        raise UserError(
            f"recipe {str(path)!r}: based_on is {base!r}, expected the name of a recipe", fix=_correct(path)
        )
    every = [path.parent / base, path.parent / f"{base}.toml"]
    every += [folder / f"{base}.toml" for folder in (recipe_folder(), recipe_folder() / "published")]
    known = [*recipe_names(), *published_names()]
    below = next((path for path in every if path.is_file()), None)
    if below is None:
        raise UserError(f"recipe {str(path)!r} is based on {base!r}, which does not exist", fix=nearest(base, known))
    if below.resolve() in (path.resolve(), *derived):
        raise UserError(f"recipe {str(path)!r} is based on itself, through {base!r}", fix="base it on another recipe")
    return _overlay(_read(below, derived=(*derived, path.resolve())), table)


def _overlay(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """One table over another: tables are merged, every other value is replaced."""
    merged = dict(below)
    for key, value in above.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _overlay(merged[key], value) if both else value
    return merged


def _read_alone(path: Path) -> dict[str, Any]:
    try:
        return read_toml(path)
    except FileNotFoundError:
        raise UserError(f"recipe {str(path)!r} does not exist", fix=nearest(path.stem, recipe_names())) from None
    except IsADirectoryError:
        raise UserError(f"{str(path)!r} is a folder, not a recipe", fix="name a .toml file") from None
    except UnicodeDecodeError:
        raise UserError(f"recipe {str(path)!r} is not UTF-8 text", fix=_correct(path)) from None
    except ValueError as error:
        raise UserError(f"recipe {str(path)!r} is not valid TOML: {error}", fix=_correct(path)) from None


def _correct(path: Path) -> str:
    if path.suffix == ".toml":
        return f"correct the file, or train a model by its name: {_training('lstm')}"
    return f"to train on it as a text: {_training('lstm', path)}"


def _training(model: str, data: Path | None = None) -> str:
    if data is None:
        return either(f"statewise train {model}", f'statewise.train("{model}")')
    return either(f"statewise train {model} --data {data}", f'statewise.train("{model}", data="{data}")')
