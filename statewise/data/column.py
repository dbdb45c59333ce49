"""A column that a file does not have: which of its columns was probably meant, and the setting that names it."""

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from itertools import islice

from statewise.specs import UserError, setting

SAMPLE = 50  # rows by which a column is guessed
_PLACE_OF = "COLUMN"  # stands for a name where no guess can be made
_SEPARATORS = (";", "\t", "|", ",")
_FEW = 0.5  # distinct values of a column of labels, as a share of its rows, at most


def no_column(
    where: str, wanted: Mapping[str, str], columns: Mapping[str, Sequence[str]], *, headed: bool = True
) -> UserError:
    """The error for the settings of `wanted` whose columns a file lacks. `columns` are its columns with some cells.

    Where the first line may be data (not `headed`), it also says how columns are numbered.

    >>> print(no_column("x.csv", {"data.text": "text"}, {"id": ["1", "2"], "review": ["a good film", "dull"]}))
    there is no column 'text' in x.csv; it has: id, review
    if the text is in 'review': settings={"data.text": "review"}
    """
    missing = {path: name for path, name in wanted.items() if name not in columns}
    taken = {name for name in wanted.values() if name in columns}
    guesses: dict[str, str] = {}
    for path, name in missing.items():
        left = {one: cells for one, cells in columns.items() if one not in taken}
        guess = _guess(path.rpartition(".")[2], name, left)
        guesses[path] = guess or _PLACE_OF
        taken |= {guess} if guess else set()
    named = " and ".join(map(repr, missing.values()))
    verb = "is no column" if len(missing) == 1 else "are no columns"
    known = [f"the {_role(path)} is in {guess!r}" for path, guess in guesses.items() if guess != _PLACE_OF]
    fix = f"if {' and '.join(known)}: {setting(guesses)}" if known else f"name the column: {setting(guesses)}"
    if not headed:
        numbers = {path: number for number, path in enumerate(wanted)}
        fix += f"; if the file has no header, give columns by number: {setting(numbers)}"
    only = next(iter(columns), "")
    if len(columns) == 1 and (between := next((mark for mark in _SEPARATORS if mark in only), None)):
        fix = f"if {between!r} stands between columns: {setting('data.delimiter', between)}"
    return UserError(f"there {verb} {named} in {where}; it has: {_listed(columns)}", fix=fix)


def _listed(names: Iterable[str]) -> str:
    shown = [name if len(name) <= 80 else f"{name[:79]}…" for name in islice(names, 41)]
    return ", ".join(shown if len(shown) <= 40 else [*shown[:40], "…"])


def _role(path: str) -> str:
    return path.rpartition(".")[2].removesuffix("_column").removesuffix("s")


def _guess(role: str, name: str, columns: Mapping[str, Sequence[str]]) -> str | None:
    """The column of nearly the same name; else, for a text the longest cells, for a label few different ones."""
    spelled = {one.lower(): one for one in columns}
    if close := get_close_matches(name.lower(), spelled, n=1, cutoff=0.6):
        return spelled[close[0]]
    words = {one: cells for one, cells in columns.items() if cells and not all(map(_is_number, cells))}
    match role:
        case "text" | "source_column" | "target_column":
            longest = {one: sum(map(len, cells)) / len(cells) for one, cells in words.items()}
            return max(longest, key=lambda one: longest[one], default=None)
        case "label" | "id":
            few = {one: len(set(cells)) / len(cells) for one, cells in columns.items() if len(cells) > 1}
            best = min(few, key=lambda one: few[one], default=None)
            if best is not None and few[best] <= _FEW:
                return best
            return next(iter(columns)) if role == "label" and len(columns) == 1 else None
        case _:
            return None


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
