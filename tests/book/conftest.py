"""The book's own modules can be imported (`chapter`, `run`, `stage`, `notebook`), and `page` of tests/docs."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[2] / "book"), str(Path(__file__).parents[1] / "docs")]
