"""The effect of interventions: the loss of what follows, for texts and for rows, and what the model then generates.

P cuts (places where something is changed), N states side by side, T time steps, V vocabulary, Q questions, K classes.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from statewise.core import Machine, State, concat, leaves, lens
from statewise.decoding import Continuation, Sampling, extend
from statewise.display import Progress
from statewise.inspection.intervene.address import Address, Intervention, changed, put, silence, units_of
from statewise.specs import UserError, lens_setting
from statewise.tasks import Specimen, TextSpecimens

_CHUNK = 512  # tokens read at a time
_AHEAD = 48
_TEXTS_AT_ONCE = 64  # states that a text is read on from side by side
_ROWS_AT_ONCE = 32
_SHARES = (0.25, 0.5, 0.75)  # of a row that is read before the cut


def read_on(machine: Machine[Any], x_NT: Tensor, state: State, *, frozen: Address | None = None) -> Tensor:
    """Outputs from this state on. What is `frozen` is put back after every step, so it never changes."""
    if frozen is None:
        return machine(x_NT, state)[0]
    outputs = []
    for x_t in x_NT.unbind(1):
        y_t, after = machine.step(x_t, state)
        state = put(after, state, frozen)
        outputs.append(y_t)
    return torch.stack(outputs, dim=1)


# -------------------------------------------------------------------- a text


class Cut(NamedTuple):
    at: int  # the first token after the cut
    state: State  # of one row, after all tokens before it
    tokens_T: Tensor  # from there on: one more than is predicted


def cuts(text: TextSpecimens, *, places: int, ahead: int | None = None) -> list[Cut]:
    """At most so many cuts, evenly spread, each with `ahead` tokens to be predicted after it.

    The state is reset nowhere among those, and as many tokens were read before, where the text has them.
    """
    model, starts = text.model, text.fresh_starts
    stops = [*starts[1:], len(text.tokens_T)]
    longest = max(stop - start for start, stop in zip(starts, stops))
    ahead = ahead or min(_AHEAD, (longest - 1) // 3)
    possible = [
        at
        for start, stop in zip(starts, stops)
        for at in range(start + min(ahead, max(1, (stop - start) // 2)), stop - ahead)
    ]
    if not possible or ahead < 3:
        fewer = f", or {lens_setting('ahead', (longest - 1) // 2)}" if longest >= 9 else ""
        raise UserError(
            f"the model reads at most {longest} tokens of this text in one go: too few to read {ahead} after a cut",
            fix=f"give a longer text{fewer}",
        )
    chosen = []
    for number in np.unique(np.linspace(0, len(possible) - 1, places).astype(int)):
        at = possible[number]
        start = max(begin for begin in starts if begin <= at)
        tokens_T = text.tokens_T[at : at + ahead + 1].to(model.like.device)
        chosen.append(Cut(at, state_after(model, text.tokens_T[start:at]), tokens_T))
    return chosen


@torch.no_grad()
def state_after(model: Machine[Any], tokens_T: Tensor) -> State:
    """The state of one row that has read these tokens from the initial state."""
    state: State = model.init_state(1)
    for begin in range(0, len(tokens_T), _CHUNK):
        state = model.absorb(tokens_T[None, begin : begin + _CHUNK].to(model.like.device), state)
    return state


@torch.no_grad()
def cost(model: Machine[Any], state: State, tokens_NT: Tensor, *, frozen: Address | None = None) -> Tensor:
    """Nats of each token but the first of every row, read on from `state`: `[N, T - 1]`."""
    logits_NTV = read_on(model, tokens_NT[:, :-1], state, frozen=frozen)
    return F.cross_entropy(logits_NTV.flatten(0, 1), tokens_NT[:, 1:].flatten(), reduction="none").view(
        len(tokens_NT), -1
    )


@torch.no_grad()
def costs(model: Machine[Any], states: Sequence[State], tokens_T: Tensor) -> Tensor:
    """The same text read on from each of these states (of one row each), side by side: `[N, T - 1]`."""
    losses = []
    for begin in range(0, len(states), _TEXTS_AT_ONCE):
        some = list(states[begin : begin + _TEXTS_AT_ONCE])
        losses.append(cost(model, concat(some), tokens_T.expand(len(some), -1)))
    return torch.cat(losses)


@torch.no_grad()
def silenced(model: Machine[Any], state: State, tokens_NT: Tensor, address: Address) -> Tensor:
    """`cost` while an observed value (a gate, the weights of a head), or one entry along an axis of it, is 0."""
    with lens(address.path, edit=silence(address)):
        return cost(model, state, tokens_NT)


@torch.no_grad()
def observed_names(model: Machine[Any], state: State, token: Tensor) -> list[str]:
    """What can be silenced: every name that the model shows while it reads one token."""
    with lens() as seen:
        model.step(token, state)
    return seen.names


@torch.no_grad()
def base_costs(model: Machine[Any], cuts: Sequence[Cut]) -> Tensor:
    """Nats of what follows each cut without an intervention: `[P, T]`."""
    return torch.cat([cost(model, cut.state, cut.tokens_T[None]) for cut in cuts])


@torch.no_grad()
def added_costs(
    model: Machine[Any],
    cuts: Sequence[Cut],
    interventions: Sequence[Intervention],
    others: Sequence[State],
    progress: Progress,
) -> dict[Intervention, Tensor]:
    """What each adds to the loss of what follows, nats a token: `[P, T]`. `others` are the states of a swap."""
    base_PT = base_costs(model, cuts)
    at_once = [intervention for intervention in interventions if intervention.act not in ("freeze", "silence")]
    rows = []
    for cut, other in progress.over(list(zip(cuts, others, strict=True)), "changing states"):
        states = [
            changed(model, cut.state, intervention.address, intervention.act, other=other) for intervention in at_once
        ]
        rows.append(costs(model, states, cut.tokens_T) if states else base_PT.new_zeros(0, base_PT.shape[1]))
    added = {
        intervention: torch.stack([row_AT[number] for row_AT in rows]) - base_PT
        for number, intervention in enumerate(at_once)
    }
    later = [intervention for intervention in interventions if intervention not in at_once]
    together = concat([cut.state for cut in cuts])
    tokens_PT = torch.stack([cut.tokens_T for cut in cuts])
    for intervention in progress.over(later, "changing every token"):
        if intervention.act == "silence":
            added[intervention] = silenced(model, together, tokens_PT, intervention.address) - base_PT
        else:
            added[intervention] = cost(model, together, tokens_PT, frozen=intervention.address) - base_PT
    return {intervention: added[intervention] for intervention in interventions}


def unit_costs(
    model: Machine[Any], cuts: Sequence[Cut], path: str, *, most: int, progress: Progress
) -> tuple[dict[Address, Tensor], int]:
    """Each unit (or head) of a leaf set to 0 on its own: the mean added loss `[P]`; and how many units there are."""
    addresses, size = units_of(cuts[0].state, path, most=most)
    zeroes = [Intervention(address, "zero") for address in addresses]
    added = added_costs(model, cuts, zeroes, [cut.state for cut in cuts], progress)
    return {intervention.address: values_PT.mean(1) for intervention, values_PT in added.items()}, size


@torch.no_grad()
def fork_divergence(model: Machine[Any], cuts: Sequence[Cut]) -> Tensor:
    """Fork a state, let one copy read a wrong token, then both the same text: KL of their predictions, `[P, T]`.

    The wrong token is the model's first guess, or its second one where the first was right.
    """
    divergences = []
    for cut in cuts:
        true = cut.tokens_T[:1]
        logits_1V, read = model.step(true, cut.state)
        best = logits_1V[0].topk(2).indices
        wrong = best[:1] if int(best[0]) != int(cut.tokens_T[1]) else best[1:]
        _, original = model.step(cut.tokens_T[1:2], read)
        _, altered = model.step(wrong, read)
        divergences.append(divergence(model, original, altered, cut.tokens_T[2:]))
    return torch.stack(divergences)


@torch.no_grad()
def divergence(model: Machine[Any], state: State, other: State, tokens_T: Tensor) -> Tensor:
    """Of two states reading on the same text: KL(state‖other) of the next token, nats at each time step `[T]`."""
    both, _ = model(tokens_T.expand(2, -1), concat([state, other]))
    log_p, log_q = torch.log_softmax(both.double(), dim=-1)
    kl_T: Tensor = (log_p.exp() * (log_p - log_q)).sum(-1)
    return kl_T


@torch.no_grad()
def continued(
    model: Machine[Any],
    state: State,
    token: int,
    *,
    vocab: int,
    tokens: int,
    sampling: Sampling,
) -> list[int]:
    """The tokens generated after reading `token` from this state. Equal `sampling` draws equal random numbers."""
    device = model.like.device
    at = Continuation(
        state=state,
        token_B=torch.tensor([token], device=device),
        position_B=torch.zeros(1, dtype=torch.int64, device=device),
        seen_BV=torch.zeros(1, vocab, dtype=torch.bool, device=device),
        tail_BK=torch.full((1, 8), -1, dtype=torch.int64, device=device),
    )
    generated_BT, _ = extend(model, at, sampling, tokens=tokens)
    return [int(token) for token in generated_BT[0]]


# -------------------------------------------------------------------- rows


class RowCut(NamedTuple):
    """A row that was read up to a place, and the questions that are answered after it."""

    row: Specimen
    at: int
    state: State
    read_1TC: Tensor  # outputs before the cut
    asked: tuple[int, ...]
    gap_Q: Tensor  # places between the cut and each of these answers, the last one counted


class Effect(NamedTuple):
    """Of one intervention, on the questions of one cut."""

    added_Q: Tensor
    moved_Q: Tensor  # of classes: the probability that went elsewhere; of numbers: how far they moved
    flipped_Q: Tensor  # whether the argmax changed


class _Answers(NamedTuple):
    cost_NQ: Tensor
    answer_NQK: Tensor


@torch.no_grad()
def row_cuts(row: Specimen, machine: Machine[Any]) -> list[RowCut]:
    """A few places of a row with a question after them; the first one, too, where something was read before it."""
    last_Q = [_last_place(row.distance(query)) for query in range(len(row.questions))]
    z_1TI = row.enter(row.x_TE[None])
    length = len(row) - row.first
    offsets = {min(max(round(share * length), 1), length - 1) for share in _SHARES if length > 1}
    begun, chosen = row.begun(z_1TI), []
    for at in sorted(row.first + offset for offset in (offsets if row.begin is None else {0, *offsets})):
        asked = tuple(query for query, last in enumerate(last_Q) if last >= at)
        if asked:
            y_1TC, state = machine(z_1TI[:, row.first : max(at, row.first + 1)], begun)
            if at == row.first:
                y_1TC, state = y_1TC[:, :0], begun
            gap_Q = torch.tensor([last_Q[query] - at + 1 for query in asked])
            chosen.append(RowCut(row, at, state, y_1TC, asked, gap_Q))
    return chosen


def _last_place(distance_T: Any) -> int:
    """The place just before the answer."""
    before = np.flatnonzero(np.nan_to_num(distance_T, nan=-1.0) >= 0)
    return int(before[np.argmin(distance_T[before])]) if len(before) else -1


@torch.no_grad()
def row_effects(
    cut: RowCut, machine: Machine[Any], interventions: Sequence[Intervention], other: State
) -> dict[Intervention, Effect]:
    """Each intervention at this cut; `other` is the state of a swap."""
    z_1TI = cut.row.enter(cut.row.x_TE[None])[:, cut.at :]
    base = _answers_after(cut, machine(z_1TI, cut.state)[0])
    effects: dict[Intervention, Effect] = {}
    at_once = [intervention for intervention in interventions if intervention.act != "freeze"]
    for begin in range(0, len(at_once), _ROWS_AT_ONCE):
        some = at_once[begin : begin + _ROWS_AT_ONCE]
        states = [
            changed(machine, cut.state, intervention.address, intervention.act, other=other) for intervention in some
        ]
        # A list that grows may now be longer in one state than in another: those are read one by one.
        alike = len({tuple(leaf.shape for _, leaf in leaves(state)) for state in states}) == 1
        groups = (
            [(some, concat(states))]
            if alike
            else [([intervention], state) for intervention, state in zip(some, states)]
        )
        for group, state in groups:
            answers = _answers_after(cut, machine(z_1TI.expand(len(group), -1, -1), state)[0])
            effects |= {intervention: _effect(base, answers, row) for row, intervention in enumerate(group)}
    for intervention in interventions:
        if intervention.act == "freeze":
            effects[intervention] = _effect(
                base, _answers_after(cut, read_on(machine, z_1TI, cut.state, frozen=intervention.address)), 0
            )
    return {intervention: effects[intervention] for intervention in interventions}


@torch.no_grad()
def row_costs(cut: RowCut, machine: Machine[Any]) -> Tensor:
    """Losses of the questions after a cut, without an intervention."""
    y_1TC = machine(cut.row.enter(cut.row.x_TE[None])[:, cut.at :], cut.state)[0]
    return _answers_after(cut, y_1TC).cost_NQ[0]


@torch.no_grad()
def silenced_row(row: Specimen, addresses: Sequence[Address]) -> tuple[Tensor, dict[Address, Effect]]:
    """The loss of every question; and the effect of each observed name being 0 all along the row."""
    x_1TE = row.x_TE[None]
    z_1TI = row.enter(x_1TE)

    def answers(y: Tensor) -> _Answers:
        return _Answers(row.judge(y, x_1TE), row.answer(y, x_1TE))

    base, effects = answers(row.read(z_1TI)), {}
    for address in addresses:
        with lens(address.path, edit=silence(address), keep=False):
            y = row.read(z_1TI)
        effects[address] = _effect(base, answers(y), 0)
    return base.cost_NQ[0], effects


def _answers_after(cut: RowCut, y_NTC: Tensor) -> _Answers:
    x_NTE = cut.row.x_TE.expand(len(y_NTC), -1, -1)
    whole_NTC = torch.cat([cut.read_1TC.expand(len(y_NTC), -1, -1), y_NTC], dim=1)
    asked = torch.tensor(cut.asked, device=y_NTC.device)
    cost_NQ, answer_NQK = cut.row.judge(whole_NTC, x_NTE), cut.row.answer(whole_NTC, x_NTE)
    return _Answers(cost_NQ[:, asked], answer_NQK[:, asked])


def _effect(base: _Answers, now: _Answers, row: int) -> Effect:
    apart_QK = (now.answer_NQK[row] - base.answer_NQK[0]).double().cpu()
    return Effect(
        (now.cost_NQ[row] - base.cost_NQ[0]).double().cpu(),
        apart_QK.abs().sum(-1) / 2 if apart_QK.shape[-1] > 1 else apart_QK.abs().sum(-1),
        (now.answer_NQK[row].argmax(-1) != base.answer_NQK[0].argmax(-1)).double().cpu(),
    )
