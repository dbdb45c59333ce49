"""Whether data are those that a run began with."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from statewise.specs import UserError


def fingerprint(*columns: Iterable[str]) -> str:
    """sha256 of columns of text; what stands between two cells cannot be confused with what is in them."""
    digest = hashlib.sha256()
    for column in columns:
        for cell in column:
            data = cell.encode("utf-8", "surrogatepass")
            digest.update(b"%d:" % len(data))
            digest.update(data)
        digest.update(b"\n")
    return digest.hexdigest()


def refuse_other_data(kept: Path, found: str) -> None:
    """`kept` is a checkpoint whose `data.sha256` holds the fingerprint of its training data."""
    try:
        before = (kept / "data.sha256").read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        before = ""
    if before != found:
        raise UserError("these are not the data that this run began with", fix="put them back, or train again")
