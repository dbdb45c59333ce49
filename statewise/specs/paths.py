"""Names of files in a spec: one, or a list of them."""

from typing import Annotated, Any

from pydantic import BeforeValidator


def _one_or_many(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


Paths = Annotated[tuple[str, ...], BeforeValidator(_one_or_many)]
