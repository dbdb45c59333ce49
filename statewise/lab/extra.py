"""What the views without a live model show, measured by the package: costs, truncated gradients, attention by hand.

A hidden width of a score, K width of keys and queries, L source positions.
"""

from collections.abc import Sequence
from functools import partial
from importlib import resources
from typing import Any, get_args

import torch
from torch import Tensor

from statewise.inspection import block_gradients
from statewise.layers import make_alignment, make_score
from statewise.models import LINEAGE, build, cost_of, path, training_bytes
from statewise.specs import AlignmentKind, ScoreKind, from_json
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


# The phrase that is translated with attention.
KINDS = ("determiner", "adjective", "noun", "verb")
_WORDS = (
    (("the", "le"), ("a", "un"), ("my", "mon"), ("this", "ce")),
    (("black", "noir"), ("white", "blanc"), ("red", "rouge"), ("tired", "fatigué")),
    (("cat", "chat"), ("dog", "chien"), ("horse", "cheval"), ("robot", "robot")),
    (("sleeps", "dort"), ("drinks", "boit"), ("eats", "mange"), ("runs", "court")),
)
_WIDTH = 2 * len(KINDS)
_LONGEST = 4  # source words
_REACH = 1


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


def phrase() -> dict[str, Any]:
    """A phrase translated with attention, by vectors that are set by hand so that a reader can follow each number.

    A source word is two marks: its kind (determiner, adjective, noun, verb) and which word of that kind it is. The
    state of the decoder says which kind it wants next, so its query meets the keys of that kind. Scores and alignments
    are the package's own modules; the page gets their weights.
    """
    words = [
        {"source": source, "target": target, "kind": kind, "which": which}
        for kind, row in enumerate(_WORDS)
        for which, (source, target) in enumerate(row)
    ]
    # After each kind of word, which kinds French wants: determiner, adjective, noun, verb, end. An adjective after its
    # noun where there is one, otherwise the verb.
    wanted = [
        [0.0, 0.0, 1.0, 0.0, 0.0],
        [0.0, 0.0, 0.0, 1.0, 0.0],
        [0.0, 1.0, 0.0, 0.5, 0.0],
        [0.0, 0.0, 0.0, 0.0, 1.0],
    ]
    return {
        "words": words,
        "kinds": KINDS,
        "start": ["the", "black", "cat", "sleeps"],
        "wanted": wanted,
        "query": 4.0,  # a query's size
        "sharpness": 10.0,  # of the kind that a context is read as
        "output": 6.0,
        "end": 16.0,
        "reach": _REACH,
        "scores": {kind: _listed(score_weights(kind)) for kind in get_args(ScoreKind)},
        "alignments": {kind: _listed(alignment_weights(kind)) for kind in get_args(AlignmentKind)},
    }


def score_weights(kind: ScoreKind) -> dict[str, Tensor]:
    """Those of a score of the package that finds the kind of word that a query asks for."""
    score = make_score(kind, query_width=_WIDTH, key_width=_WIDTH, hidden=len(KINDS), longest=_LONGEST)
    marks_AK = torch.eye(len(KINDS), _WIDTH)  # the kinds alone
    set_to: dict[str, Tensor] = {}
    match kind:
        case "cosine":
            set_to = {"sharpness": torch.tensor(8.0)}
        case "general":
            set_to = {"w_QK": marks_AK.T @ marks_AK}
        case "additive":
            set_to = {
                "w_AQ": marks_AK / 2,
                "u_AK": 2 * marks_AK,
                "b_A": torch.full((4,), -3.0),
                "v_A": torch.full((4,), 3.0),
            }
        case "concat":
            # Without a bias a kind that is both asked for and there saturates, so it is the one that adds least.
            set_to = {"w_AQ": marks_AK / 2, "u_AK": 2 * marks_AK, "v_A": torch.full((4,), -4.0)}
        case "location":
            set_to = {"w_LQ": marks_AK}  # "determiner, adjective, noun, verb": right for a source in this order only
    return _set(score, set_to)


def alignment_weights(kind: AlignmentKind) -> dict[str, Tensor]:
    alignment = make_alignment(kind, query_width=_WIDTH, reach=_REACH)
    if kind != "local_predictive":
        return _set(alignment, {})
    places = torch.tensor([0.02, 1 / 3, 2 / 3, 0.98])  # of the four kinds, as shares of the source
    return _set(alignment, {"w_QQ": torch.eye(_WIDTH), "v_Q": torch.cat([places.logit(), torch.zeros(4)])})


def _set(module: torch.nn.Module, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    module.load_state_dict(weights)
    return dict(module.state_dict())


def _listed(weights: dict[str, Tensor]) -> dict[str, Any]:
    return {name: tensor.tolist() for name, tensor in weights.items()}
