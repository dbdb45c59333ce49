"""Pairs from translated programs: the gettext catalogs (`.mo`) of a folder, or of the installed packages."""

import gettext
import re
import struct
import sysconfig
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

from statewise.data.lines import Examples, Where, read_bytes, refuse_empty
from statewise.data.pairs import Pair
from statewise.specs import UserError, nearest

_MAGIC = 0x950412DE
_CONTEXT = "\x04"
_PLURAL = "\0"
_MANY = 1000  # numbers tried to find the plural forms
# %s, %d, %(name)s, %1$s, %%, {}, {0}, {name}
# Possessive quantifiers: linear time for any text.
_PLACEHOLDER = re.compile(r"%(?:\([^()]*+\)|\d++\$)?[-#0 +]*+[\d.*]*+[a-zA-Z%]|\{[^{}\s]*+\}")


class Catalog(NamedTuple):
    path: Path
    language: str


def find_catalogs(folder: str | Path | None = None) -> list[Catalog]:
    """All `.mo` files below a folder (default: the installed packages), each with the language its path names.

    That is the folder above `LC_MESSAGES`, else the name of the file.
    """
    root = Path(folder) if folder is not None else Path(sysconfig.get_path("purelib"))
    if not root.is_dir():
        raise UserError(f"{str(root)!r} is not a folder", fix="name one that holds .mo files")
    catalogs = []
    for path in sorted(root.rglob("*.mo")):
        above = path.parent.parent.name if path.parent.name == "LC_MESSAGES" else path.stem
        catalogs.append(Catalog(path, above))
    return catalogs


def read_catalogs(language: str, folder: str | Path | None = None) -> Examples[Pair]:
    """The messages of all catalogs of a language and their translations, each source once.

    The plural of a message is a separate pair. Messages that are untranslated, repeated, or whose translation has other
    placeholders (`%s`, `{name}`) are counted and left out. White space becomes single spaces.
    """
    catalogs = find_catalogs(folder)
    if not catalogs:
        raise UserError(f"there are no .mo files below {str(folder or 'the installed packages')!r}")
    chosen = [catalog.path for catalog in catalogs if catalog.language == language]
    if not chosen:
        raise UserError(
            f"no catalog is in language {language!r}", fix=nearest(language, {catalog.language for catalog in catalogs})
        )
    pairs: Examples[Pair] = Examples()
    seen: set[str] = set()
    for path in chosen:
        for source, target, where in _messages(path):
            pair = Pair(" ".join(source.split()), " ".join(target.split()), where)
            reason = _reason(pair, seen)
            if reason:
                pairs.counts[reason] += 1
            else:
                seen.add(pair.source)
                pairs.append(pair)
    refuse_empty(len(pairs), chosen, "translated message")
    return pairs


def _reason(pair: Pair, seen: set[str]) -> str:
    """Why a pair is left out, or nothing."""
    if not pair.target or pair.target == pair.source:
        return "untranslated"
    if pair.source in seen:
        return "met before"
    here, there = (Counter(_PLACEHOLDER.findall(text)) for text in (pair.source, pair.target))
    return "" if here == there else "placeholders differ"


def _messages(path: Path) -> Iterator[Pair]:
    """The translated messages, looked up as a program does; the empty message is the header."""
    data = read_bytes(path)
    try:
        _refuse_overlaps(data)
        catalog = gettext.GNUTranslations(BytesIO(data))
        keys = list(_keys(data, catalog.charset() or "utf-8"))
        forms = _forms(catalog)
    except (OSError, ValueError, LookupError, ArithmeticError, struct.error, RecursionError) as error:
        raise UserError(f"{str(path)!r} is not a gettext catalog: {error}", fix="remove it or make it again") from None
    for number, key in enumerate(keys):
        where = Where(str(path), number, "message")
        context, _, message = key.rpartition(_CONTEXT)
        singular, _, plural = message.partition(_PLURAL)
        if not singular:
            continue
        if not plural:
            yield Pair(singular, catalog.pgettext(context, singular) if context else catalog.gettext(singular), where)
            continue
        for source, n in ((singular, 1), (plural, _plural_number(catalog, singular, plural, forms))):
            yield Pair(source, _plural(catalog, context, singular, plural, n), where)


def _plural(catalog: gettext.GNUTranslations, context: str, singular: str, plural: str, n: int) -> str:
    return catalog.npgettext(context, singular, plural, n) if context else catalog.ngettext(singular, plural, n)


def _forms(catalog: gettext.GNUTranslations) -> Counter[int]:
    """The first number of each plural form, and how many numbers take that form."""
    rule: Callable[[int], int] = vars(catalog)["plural"]
    first: dict[int, int] = {}
    return Counter(first.setdefault(rule(n), n) for n in range(2, _MANY))


def _plural_number(catalog: gettext.GNUTranslations, singular: str, plural: str, forms: Mapping[int, int]) -> int:
    """A number that takes the most frequent plural form."""
    counts: Counter[str] = Counter()
    for n, count in forms.items():
        counts[catalog.ngettext(singular, plural, n)] += count
    general = counts.most_common(1)[0][0]
    return next(n for n in forms if catalog.ngettext(singular, plural, n) == general)


def _refuse_overlaps(data: bytes) -> None:
    """Refuse entries that share bytes: a small file could become large in memory."""
    order = "<" if struct.unpack_from("<I", data)[0] == _MAGIC else ">"
    _, count, *tables = struct.unpack_from(f"{order}4I", data, 4)
    lengths = (struct.unpack_from(f"{order}I", data, table + 8 * at)[0] for table in tables for at in range(count))
    if sum(lengths) > len(data):
        raise ValueError("its messages overlap")


def _keys(data: bytes, charset: str) -> Iterator[str]:
    """The messages: `gettext` looks up translations by them, but cannot list them."""
    order = "<" if struct.unpack_from("<I", data)[0] == _MAGIC else ">"
    _, count, table = struct.unpack_from(f"{order}3I", data, 4)
    for number in range(count):
        length, offset = struct.unpack_from(f"{order}2I", data, table + 8 * number)
        yield data[offset : offset + length].decode(charset)
