"""What the environment says of kernels, asked at every call.

`os.environ` answers for a name that is not there by raising twice. Before a layer of a few moments that takes longer
than all other questions, so its own dictionary is asked first whether the name is there at all.
"""

import os
from typing import Any


class Variable:
    def __init__(self, name: str) -> None:
        environment: Any = os.environ
        self._name = name
        self._key = environment.encodekey(name)
        self._all = environment._data  # that of the process, whoever changes it

    def read(self) -> str:
        """As it is now; nothing where it is not there."""
        return os.environ.get(self._name, "") if self._key in self._all else ""


KERNEL = Variable("STATEWISE_KERNEL")
UNPROVEN = Variable("STATEWISE_UNPROVEN")
CAPABILITY = Variable("STATEWISE_CAPABILITY")
