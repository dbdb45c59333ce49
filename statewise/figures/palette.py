"""Colours of maps: from pale to deep, or from one colour through pale to another."""

import struct
import zlib
from collections.abc import Sequence

Colour = tuple[int, int, int]

# Lightness falls evenly along each half, so that a map keeps its order on paper and for the colour-blind.
DEEPENING: tuple[Colour, ...] = ((253, 246, 236), (248, 205, 140), (233, 122, 58), (168, 42, 76), (59, 15, 74))
DIVERGING: tuple[Colour, ...] = ((8, 64, 129), (98, 160, 214), (245, 245, 242), (232, 144, 88), (150, 52, 4))


def colour(depth: float, *, signed: bool = False) -> Colour:
    """Of a depth between 0 and 1."""
    stops = DIVERGING if signed else DEEPENING
    place = min(max(depth, 0.0), 1.0) * (len(stops) - 1)
    at = min(int(place), len(stops) - 2)
    part = place - at
    first, second = stops[at], stops[at + 1]
    red, green, blue = (round(a + (b - a) * part) for a, b in zip(first, second))
    return red, green, blue


def css(one: Colour) -> str:
    return "#{:02x}{:02x}{:02x}".format(*one)


def png(rows: Sequence[Sequence[Colour | None]]) -> bytes:
    """Pixels as a PNG file; None is transparent."""
    lines = [b"\0" + b"".join(bytes((*one, 255)) if one else b"\0\0\0\0" for one in row) for row in rows]
    size = struct.pack(">IIBBBBB", len(rows[0]), len(rows), 8, 6, 0, 0, 0)

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    body = chunk(b"IHDR", size) + chunk(b"IDAT", zlib.compress(b"".join(lines), 9)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body
