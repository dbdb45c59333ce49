"""Copy the code blocks and formulas of English chapters into their Chinese twins: `python book/blocks.py 04-state`.

A Chinese page is written with empty blocks, which this fills in order. What is prose stays.
"""

import sys

from chapter import BOOK, FENCE, FORMULA, read


def copied(english: str, chinese: str) -> str:
    for pattern in (FENCE, FORMULA):
        sources = [found[0] for found in pattern.finditer(english)]
        places = len(pattern.findall(chinese))
        if places != len(sources):
            raise SystemExit(f"{len(sources)} blocks or formulas in English, {places} places for them in Chinese")
        rest = iter(sources)
        chinese = pattern.sub(lambda _: next(rest), chinese)  # noqa: B023 (used within this round)
    return chinese


if __name__ == "__main__":
    for name in sys.argv[1:]:
        target = BOOK / "zh" / f"{name}.md"
        target.write_text(copied(read(BOOK / "en" / f"{name}.md").text, read(target).text), encoding="utf-8")
