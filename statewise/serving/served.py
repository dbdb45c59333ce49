"""A run as it is served: its name in requests, and what `/v1/models` says of it."""

import time
from collections.abc import Mapping
from dataclasses import dataclass

import statewise
from statewise.core import State, leaves
from statewise.data import Tokenizer
from statewise.models import longest_context
from statewise.serving.chat import FILE, ChatFormat
from statewise.serving.job import Refused
from statewise.specs import UserError, read_small
from statewise.tasks import LanguageModelRun, Run
from statewise.training import weights_sha256

_LARGEST_TEMPLATE = 1 << 16  # bytes


@dataclass(frozen=True, slots=True)
class Served:
    """A run under the name that requests use."""

    name: str
    run: Run
    weights: str  # sha256
    created: int
    max_context: int | None  # tokens that the model can read; None: any number
    chat: ChatFormat | None  # None: the run has no chat format
    chat_problem: str = ""  # why it cannot be used, if it is there

    @property
    def task(self) -> str:
        return self.run.spec.task

    @property
    def family(self) -> str:
        """The name in the lineage, or the task."""
        return self.run.spec.name

    @property
    def tokenizer(self) -> Tokenizer | None:
        return self.run.tokenizer if isinstance(self.run, LanguageModelRun) else None

    @property
    def vocab(self) -> int | None:
        return self.run.tokenizer.vocab if isinstance(self.run, LanguageModelRun) else None

    @property
    def parameters(self) -> int:
        return sum(p.numel() for p in self.run.model.parameters())

    @property
    def fingerprint(self) -> str:
        return f"{self.weights[:12]}-{statewise.__version__}"

    def state_bytes(self, tokens: int) -> int | None:
        """Memory of one text's state after so many tokens; None for a run that has no state to keep."""
        if not isinstance(self.run, LanguageModelRun):
            return None
        return bytes_after(self.run.model.init_state(1), tokens)


def bytes_after(initial: State, tokens: int) -> int:
    """Of a state after so many tokens: an axis that is empty at the beginning grows by one a token."""
    total = 0
    for _, leaf in leaves(initial):
        numbers = 1
        for size in leaf.shape:
            numbers *= size or tokens
        total += numbers * leaf.element_size()
    return total


def served_runs(runs: Mapping[str, Run]) -> dict[str, Served]:
    """Runs by the name in requests; one that reads backwards is refused."""
    for name, run in runs.items():
        if isinstance(run, LanguageModelRun) and run.spec.data.direction == "reverse":
            raise UserError(f"{name} reads backwards, so it cannot continue a text", fix="serve another run")
    now = int(time.time())
    return {
        name: Served(name, run, weights_sha256(run.model), now, longest_context(run.model), *_chat_format(run))
        for name, run in runs.items()
    }


def _chat_format(run: Run) -> tuple[ChatFormat | None, str]:
    path = run.path / FILE
    if not isinstance(run, LanguageModelRun) or not path.is_file():
        return None, ""
    try:
        template = read_small(path, largest=_LARGEST_TEMPLATE)
        return ChatFormat(template, run.tokenizer, begin=run.spec.data.begin), ""
    except (OSError, ValueError, UserError, Refused) as error:
        return None, str(error)
