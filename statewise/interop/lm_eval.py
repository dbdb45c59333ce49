"""A language-model run in EleutherAI's evaluation harness, in this process.

The state after a context is kept, so the choices of one question share it: a context is read once.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from statewise.decoding import Sampling
from statewise.specs import UserError
from statewise.tasks import LanguageModelRun, Run

try:
    from lm_eval import simple_evaluate
    from lm_eval.api.model import LM
    from lm_eval.tasks import TaskManager
except ImportError:
    raise UserError("lm_eval is not installed", fix="pip install lm-eval") from None

_PART = 2048  # tokens that are read at once


class StatewiseLM(LM):  # type: ignore[misc]  # it has no types
    """What the harness asks of a model: log-likelihoods of continuations and texts, and generation."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        if not isinstance(run, LanguageModelRun):
            raise UserError(f"the harness evaluates language models, and this is a {run.spec.task} run")
        self.run = run
        self._context: tuple[tuple[int, ...], Any, int] | None = None

    def loglikelihood(self, requests: Sequence[Any], **_: Any) -> list[tuple[float, bool]]:
        return [self._continuation(*request.args) for request in requests]

    def loglikelihood_rolling(self, requests: Sequence[Any], **_: Any) -> list[float]:
        texts = (request.args[0] for request in requests)
        return [self._score(None, [self.run.begin_id, *self.run.tokenizer.encode(text)])[0] for text in texts]

    def generate_until(self, requests: Sequence[Any], **_: Any) -> list[str]:
        return [self._generate(*request.args) for request in requests]

    def _continuation(self, context: str, text: str) -> tuple[float, bool]:
        """How likely the text is after the context, and whether it is what greedy decoding writes."""
        encode = self.run.tokenizer.encode
        ids, before = [int(token) for token in encode(context + text)], len(encode(context))
        *known, last = [self.run.begin_id, *ids[:before]]
        if self._context is None or self._context[0] != tuple(known):
            state = None if not known else self._read(None, known)
            self._context = tuple(known), state, last
        return self._score(self._context[1], [last, *ids[before:]])

    @torch.no_grad()
    def _read(self, state: Any, ids: Sequence[int]) -> Any:
        for start in range(0, len(ids), _PART):
            _, state = self.run.model(self._tensor(ids[start : start + _PART]), state)
        return state

    @torch.no_grad()
    def _score(self, state: Any, ids: Sequence[int]) -> tuple[float, bool]:
        """The nats of all ids but the first, negative; and whether each was the likeliest."""
        total, greedy = 0.0, True
        for start in range(0, len(ids) - 1, _PART):
            inputs, targets = ids[start : start + _PART], ids[start + 1 : start + _PART + 1]
            logits_1TV, state = self.run.model(self._tensor(inputs[: len(targets)]), state)
            nats_TV = logits_1TV[0].double().log_softmax(-1)
            at_T = torch.tensor(targets, device=nats_TV.device)
            total += float(nats_TV.gather(1, at_T[:, None]).sum())
            greedy = greedy and bool((nats_TV.argmax(-1) == at_T).all())
        return total, greedy

    def _tensor(self, ids: Sequence[int]) -> Tensor:
        return torch.tensor([list(ids)], device=self.run.device)

    def _generate(self, context: str, options: Mapping[str, Any]) -> str:
        until = options.get("until") or []
        stop = [until] if isinstance(until, str) else list(until)
        temperature = float(options.get("temperature", 0.0)) if options.get("do_sample") else 0.0
        tokens = int(options.get("max_gen_toks", 256))
        return self.run.generate(context, tokens=tokens, stop=stop, sampling=Sampling(temperature=temperature))


def evaluate_tasks(
    run: Run, tasks: Sequence[str], *, folder: str | Path | None = None, limit: int | None = None
) -> dict[str, dict[str, Any]]:
    """The harness's metrics by task. `folder` holds task files of your own; `limit` is the most rows of a task."""
    manager = TaskManager(include_path=None if folder is None else str(folder))
    unknown = [name for name in tasks if name not in manager.all_tasks]
    if unknown:
        raise UserError(f"{unknown[0]!r} is not a task of lm_eval", fix="lm_eval ls tasks lists them")
    evaluation = simple_evaluate(model=StatewiseLM(run), tasks=list(tasks), task_manager=manager, limit=limit)
    results: dict[str, dict[str, Any]] = evaluation["results"]
    return results
