"""What the views without a live model show, measured by the package: costs, truncated gradients, attention by hand."""

from collections.abc import Sequence
from functools import partial
from importlib import resources
from typing import Any

from statewise.inspection import block_gradients
from statewise.lab.phrase import phrase
from statewise.models import LINEAGE, build, cost_of, path, training_bytes
from statewise.specs import from_json
from statewise.tasks import LanguageModelRun, Run

CONTEXTS = tuple(2**power for power in range(6, 18))
BLOCK, BLOCKS = 8, 12  # tokens between two places where the page lets a reader cut
_MEASURED = 2  # runs of a user's own
_VOCAB = 65  # characters of a small corpus
_DIGITS = 6  # of each inner product
_TEXT = (
    "To be, or not to be, that is the question:\nWhether 'tis nobler in the mind to suffer\nThe slings and arrows of "
    "outrageous fortune"
)


def extra(runs: Sequence[Run] = ()) -> dict[str, Any]:
    """By view. Up to two of `runs` are measured for the truncation view; if none can be, it shows shipped ones."""
    prepared = from_json(resources.files("statewise.lab").joinpath("prepared.json").read_bytes())
    texts = [run for run in runs if isinstance(run, LanguageModelRun) and _can_be_cut(run)]
    own = [truncation(run) for run in texts[:_MEASURED]]
    return {"attention": phrase(), "bill": prepared["bill"], "truncation": own or prepared["truncation"]}


def bill() -> dict[str, Any]:
    """What each model of the lineage costs at its default size, for each context."""
    rows = []
    for row in LINEAGE:
        costs = [cost_of(partial(build, row.spec, vocab=_VOCAB), context=context) for context in CONTEXTS]
        learns = row.spec.learns == "gradient"
        model = build(row.spec, vocab=_VOCAB)
        rows.append(
            {
                "name": row.name,
                "family": row.family,
                "year": row.year,
                "parameters": costs[0].parameters,
                "flops": [cost.flops for cost in costs],
                "state": [cost.state_bytes for cost in costs],
                "training": [training_bytes(model, context) for context in CONTEXTS] if learns else None,
                "path": path(build(row.spec.small(), vocab=_VOCAB)) if learns else "none",
            }
        )
    return {"vocab": _VOCAB, "contexts": CONTEXTS, "models": rows}


def _can_be_cut(run: LanguageModelRun) -> bool:
    """It learns by gradients, and reads as many tokens as the view shows."""
    window = run.specimens(text=_TEXT).window
    return run.spec.model.learns == "gradient" and (window is None or window >= BLOCK * BLOCKS)


def truncation(run: LanguageModelRun, text: str = _TEXT) -> dict[str, Any]:
    """A run's gradients of one text, for every choice of cuts. A text with too few tokens is repeated."""
    places = BLOCK * BLOCKS
    specimens = run.specimens(text=text)
    if len(specimens.tokens_T) <= places:
        specimens = run.specimens(text=f"{text}\n" * (1 + places // len(specimens.tokens_T)))
    tokens_T = specimens.tokens_T
    inputs_T, targets_T = tokens_T[:places].to(run.device), tokens_T[1 : places + 1].to(run.device)
    found = block_gradients(specimens.model, inputs_T, targets_T, block=BLOCK)
    upper = [[float(f"{value:.{_DIGITS}g}") for value in row[at:]] for at, row in enumerate(found.products_NN.tolist())]
    return {
        "name": run.path.name,
        "pieces": [run.tokenizer.decode([token]) for token in inputs_T.tolist()],
        "block": BLOCK,
        "products": upper,
        "held": list(found.held_bytes),
        "loss": found.loss,
    }
