"""Every act at every place of a state, at several moments of a text.

P moments (cuts), T tokens after each, A acts.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from statewise.core import Machine, State, concat, leaves
from statewise.inspection.intervene.address import Address, parse_address, places, refuse_half_a_list
from statewise.inspection.intervene.cut import Cut
from statewise.inspection.intervene.effect import Act, cost, costs, divergence, silenced, touched
from statewise.inspection.progress import Progress
from statewise.specs import UserError

MOST_PLACES = 24  # rows of a picture
ACTS: tuple[Act, ...] = ("zero", "forget", "swap", "freeze")
WORDS: Mapping[Act, str] = {
    "zero": "set to 0",
    "forget": "as at the beginning",
    "swap": "from elsewhere",
    "freeze": "held still",
    "silence": "silent",
}


class Deed(NamedTuple):
    address: Address
    act: Act


def possible(initial: State, addresses: Sequence[Address]) -> list[Deed]:
    """What can be done: half a list can only be zeroed, and what began with 0 is forgotten by that too."""
    found = []
    for address in addresses:
        try:
            refuse_half_a_list(initial, address)
            acts: tuple[Act, ...] = ACTS
        except UserError:
            acts = ("zero",)
        meant = [leaf for path, leaf in leaves(initial) if address.covers(path)]
        if address.path and all(leaf.is_floating_point() and leaf.numel() and not leaf.any() for leaf in meant):
            acts = tuple(act for act in acts if act != "forget")
        found += [Deed(address, act) for act in acts]
    return found


def asked_of_state(initial: State, state: State, asked: str | None, missing: list[str]) -> list[Deed] | None:
    """Everything that can be done to every place of a state, or to the one that is asked for; None: it has no such."""
    if asked is None:
        found = places(state)
        if len(found) > MOST_PLACES:
            left = len(found) - MOST_PLACES
            missing.append(f"{left} further places of the state; the setting address looks at one of them")
        return possible(initial, found[:MOST_PLACES])
    address, named = parse_address(asked), dict(leaves(state))
    meant = [path for path in named if address.covers(path)]
    for path in meant:
        address.part(path, named[path])
    if not meant:
        return None
    whole = Address("")
    return possible(initial, [whole] if address == whole else [whole, address])


@torch.no_grad()
def base_costs(model: Machine[Any], cuts: Sequence[Cut]) -> Tensor:
    """Nats of what follows each cut when nothing is touched: `[P, T]`."""
    return torch.cat([cost(model, cut.state, cut.tokens_T[None]) for cut in cuts])


@torch.no_grad()
def measured(
    model: Machine[Any], cuts: Sequence[Cut], deeds: Sequence[Deed], others: Sequence[State], progress: Progress
) -> dict[Deed, Tensor]:
    """What each deed adds to the cost of what follows, nats a token: `[P, T]`. `others` are what a swap brings in."""
    base_PT = base_costs(model, cuts)
    at_once = [deed for deed in deeds if deed.act not in ("freeze", "silence")]
    rows = []
    for cut, other in progress.over(list(zip(cuts, others, strict=True)), "touching states"):
        states = [touched(model, cut.state, deed.address, deed.act, other=other) for deed in at_once]
        rows.append(costs(model, states, cut.tokens_T) if states else base_PT.new_zeros(0, base_PT.shape[1]))
    found = {deed: torch.stack([row_AT[number] for row_AT in rows]) - base_PT for number, deed in enumerate(at_once)}
    later = [deed for deed in deeds if deed not in at_once]
    together = concat([cut.state for cut in cuts])
    tokens_PT = torch.stack([cut.tokens_T for cut in cuts])
    for deed in progress.over(later, "touching it at every token"):
        if deed.act == "silence":
            found[deed] = silenced(model, together, tokens_PT, deed.address) - base_PT
        else:
            found[deed] = cost(model, together, tokens_PT, frozen=deed.address) - base_PT
    return {deed: found[deed] for deed in deeds}


def one_by_one(state: State, path: str, *, most: int) -> tuple[list[Address], int]:
    """The units (or heads) of a leaf, at most so many of them, evenly spaced; and how many there are."""
    leaf = dict(leaves(state))[path]
    letters = path.rpartition(".")[2].rpartition("_")[2]
    named = letters if letters.isupper() and len(letters) == leaf.dim() else ""
    axis = next((letter for letter in named[1:] if letter in "HG"), named[-1:] or str(leaf.dim() - 1))
    size = leaf.shape[named.index(axis) if named else leaf.dim() - 1]
    chosen = np.unique(np.linspace(0, size - 1, min(size, most)).round().astype(int))
    return [Address(path, axis, int(one)) for one in chosen], size


@torch.no_grad()
def units(
    model: Machine[Any], cuts: Sequence[Cut], path: str, *, most: int, progress: Progress
) -> dict[Address, Tensor]:
    """Each unit (or head) of a leaf set to 0 on its own: what that adds, `[P]` in the mean over what follows."""
    deeds = [Deed(address, "zero") for address in one_by_one(cuts[0].state, path, most=most)[0]]
    found = measured(model, cuts, deeds, [cut.state for cut in cuts], progress)
    return {deed.address: values_PT.mean(1) for deed, values_PT in found.items()}


@torch.no_grad()
def remembered(model: Machine[Any], cuts: Sequence[Cut]) -> Tensor:
    """A state is forked, and one of the two reads one token that was not there; then both read the same text.

    KL of what they expect, `[P, T]`: how long one token makes a difference. The token is the model's own guess, or
    its second one where the first was right.
    """
    found = []
    for cut in cuts:
        true = cut.tokens_T[:1]
        logits_V = model.step(true.new_tensor([int(true)]), cut.state)[0][0]
        best = logits_V.topk(2).indices
        other = best[:1] if int(best[0]) != int(cut.tokens_T[1]) else best[1:]
        _, read = model.step(true, cut.state)
        _, as_it_was = model.step(cut.tokens_T[1:2], read)
        _, as_it_was_not = model.step(other, read)
        found.append(divergence(model, as_it_was, as_it_was_not, cut.tokens_T[2:]))
    return torch.stack(found)
