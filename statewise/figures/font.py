"""Which fonts of this machine have the letters of a picture, for matplotlib, which looks for none by itself."""

from functools import cache

_FAMILIAR = ("Noto Sans", "Noto", "Arial Unicode", "PingFang", "Hiragino", "Microsoft", "WenQuanYi", "Source Han")


def fallbacks(text: str, own: str) -> list[str]:
    """Families that have what the first lacks, as few as do."""
    lacking = _lacking(text, own)
    found = []
    for name, path in _installed() if lacking else ():
        if new := lacking & _letters(path):
            found.append(name)
            lacking -= new
        if not lacking:
            break
    return found


def without_font(text: str, own: str) -> set[str]:
    """Letters that no font here has."""
    lacking = _lacking(text, own)
    for _, path in _installed() if lacking else ():
        lacking -= _letters(path)
    return {chr(code) for code in lacking}


def _lacking(text: str, own: str) -> set[int]:
    from matplotlib.font_manager import findfont

    return {ord(one) for one in set(text) if not one.isascii()} - _letters(findfont(own))


@cache
def _installed() -> tuple[tuple[str, str], ...]:
    """Upright ones of ordinary weight; those made for many scripts first."""
    from matplotlib.font_manager import fontManager

    plain = {
        (one.name, one.fname)
        for one in fontManager.ttflist
        if one.style == "normal" and one.weight == 400 and not one.name.startswith("Last Resort")  # has boxes for all
    }

    def rank(one: tuple[str, str]) -> tuple[int, str]:
        return next((at for at, name in enumerate(_FAMILIAR) if one[0].startswith(name)), len(_FAMILIAR)), one[0]

    return tuple(sorted(plain, key=rank))


@cache
def _letters(path: str) -> frozenset[int]:
    from matplotlib.ft2font import FT2Font

    font = FT2Font(path)
    # Pictures of one size, as of coloured emoji, cannot be drawn.
    return frozenset(font.get_charmap()) if font.scalable else frozenset()
