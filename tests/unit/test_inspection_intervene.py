"""Touching a state: what is meant changes and nothing else, and the effects are those that follow."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from statewise.core import Machine, State, fork, leaves
from statewise.inspection import apply_lens, live_subject
from statewise.inspection.intervene.address import Address, changed, parse_address, places, possible, zeroed
from statewise.inspection.intervene.effect import cost, costs, cuts, divergence, silenced, state_after
from statewise.models import LINEAGE, build, build_sample
from statewise.specs import UserError
from statewise.tasks import TextSpecimens

EVERYTHING = Address("")
VOCAB = 11


def tokens(length: int, seed: int) -> Tensor:
    return torch.randint(VOCAB, (length,), generator=torch.Generator().manual_seed(seed))


def machine(name: str) -> Machine:
    (row,) = [row for row in LINEAGE if row.name == name]
    return build_sample(row.spec.small(), vocab=VOCAB).double().eval()


every_family = pytest.mark.parametrize("name", [row.name for row in LINEAGE])
some = pytest.mark.parametrize("name", ["lstm", "transformer", "ttt_linear", "mamba2"])


def flat(state: State) -> dict[str, Tensor]:
    return dict(leaves(state))


# Addresses.


@pytest.mark.parametrize(
    ("written", "address"),
    [
        ("layers.0.c_BD", Address("layers.0.c_BD")),
        ("layers.0.c_BD[D=3]", Address("layers.0.c_BD", "D", 3)),
        ("layers.1.change.0[1=2]", Address("layers.1.change.0", "1", 2)),
        ("everything", Address("")),
        ("*.c_BD", Address("*.c_BD")),
    ],
)
def test_addresses_are_read(written: str, address: Address) -> None:
    assert parse_address(written) == address


@pytest.mark.parametrize("written", ["layers[", "layers.0.c_BD[D]", "layers.0.c_BD[D=-1]", "layers.0.c_BD[D=1][P=2]"])
def test_what_is_no_address_is_refused(written: str) -> None:
    with pytest.raises(UserError, match="not a place"):
        parse_address(written)


def test_one_unit_is_touched_and_nothing_else() -> None:
    model = machine("lstm")
    state = state_after(model, tokens(9, 0))
    before = fork(state)
    without = zeroed(state, parse_address("layers.0.c_BD[D=3]"))
    for path, leaf in flat(without).items():
        expected = flat(before)[path].clone()
        if path == "layers.0.c_BD":
            expected[:, 3] = 0
        assert torch.equal(leaf, expected)
        assert torch.equal(flat(state)[path], flat(before)[path]), "the state itself was written to"


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("layers.7", "nothing in the state"),
        ("layers.0.c_BD[H=1]", "no axis H"),
        ("layers.0.c_BD[D=99]", "there is no 99"),
        ("layers.0.c_BD[0=0]", "no axis 0"),
    ],
)
def test_places_that_are_not_there(written: str, says: str) -> None:
    state = state_after(machine("lstm"), tokens(4, 0))
    with pytest.raises(UserError, match=says):
        zeroed(state, parse_address(written))


@every_family
def test_every_place_of_every_state_can_be_touched(name: str) -> None:
    model = machine(name)
    state, other = state_after(model, tokens(9, 1)), state_after(model, tokens(6, 2))
    read_T = tokens(6, 3)
    for address, act in possible(model.init_state(1), places(state)):
        after = changed(model, state, address, act, other=other)
        frozen = address if act == "freeze" else None
        assert cost(model, after, read_T[None], frozen=frozen).isfinite().all(), (address, act)


def test_half_a_list_is_not_taken_away() -> None:
    model = machine("transformer")
    state = state_after(model, tokens(5, 0))
    keys = Address("layers.0.keys_BSGK")
    for act in ("forget", "freeze"):
        with pytest.raises(UserError, match="a part of a list"):
            changed(model, state, keys, act)
    assert flat(zeroed(state, keys))["layers.0.length_B"].tolist() == [5]


# Effects that follow from the definition.


@every_family
def test_with_all_of_anothers_state_it_is_the_other(name: str) -> None:
    model = machine(name)
    mine, other, read_T = state_after(model, tokens(9, 1)), state_after(model, tokens(13, 2)), tokens(8, 3)
    swapped = cost(model, changed(model, mine, EVERYTHING, "swap", other=other), read_T[None])
    torch.testing.assert_close(swapped, cost(model, other, read_T[None]), rtol=0, atol=1e-12)


@every_family
def test_who_forgets_everything_reads_as_if_for_the_first_time(name: str) -> None:
    model = machine(name)
    read_T = tokens(8, 3)
    forgotten = cost(model, changed(model, state_after(model, tokens(9, 1)), EVERYTHING, "forget"), read_T[None])
    logits_BTV, _ = model(read_T[None, :-1])
    expected = F.cross_entropy(logits_BTV[0], read_T[1:], reduction="none")[None]
    torch.testing.assert_close(forgotten, expected, rtol=0, atol=1e-12)


@every_family
def test_a_state_that_is_held_still_reads_every_token_as_the_first(name: str) -> None:
    model = machine(name)
    state, read_T = state_after(model, tokens(9, 1)), tokens(5, 3)
    held = cost(model, state, read_T[None], frozen=EVERYTHING)
    expected = [
        F.cross_entropy(model.step(read_T[t : t + 1], state)[0], read_T[t + 1 : t + 2]) for t in range(len(read_T) - 1)
    ]
    torch.testing.assert_close(held[0], torch.stack(expected), rtol=0, atol=1e-12)


@some
def test_states_side_by_side_cost_what_they_cost_alone(name: str) -> None:
    model = machine(name)
    states, read_T = [state_after(model, tokens(n, n)) for n in (3, 9, 6)], tokens(7, 0)
    alone = torch.cat([cost(model, state, read_T[None]) for state in states])
    torch.testing.assert_close(costs(model, states, read_T), alone, rtol=0, atol=1e-12)


def test_divergence_is_the_kl_of_pytorch() -> None:
    model = machine("gru")
    one, other, read_T = state_after(model, tokens(9, 1)), state_after(model, tokens(9, 2)), tokens(5, 3)
    p, q = (model(read_T[None], state)[0][0].log_softmax(-1) for state in (one, other))
    expected = F.kl_div(q, p, reduction="none", log_target=True).sum(-1)
    torch.testing.assert_close(divergence(model, one, other, read_T), expected, rtol=0, atol=1e-12)
    assert divergence(model, one, one, read_T).abs().max() < 1e-12


def test_a_head_without_weights_gives_nothing() -> None:
    """All heads' weights at 0 is attention that adds nothing, whatever was read before."""
    model = build("transformer", vocab=VOCAB, width=12, heads=2).double().eval()
    read_T = tokens(6, 3)
    weights = "*.attention.weights"
    none = [silenced(model, state_after(model, tokens(n, n)), read_T[None], Address(weights)) for n in (4, 9)]
    torch.testing.assert_close(none[0], none[1], rtol=0, atol=1e-12)
    one = silenced(model, state_after(model, tokens(4, 4)), read_T[None], Address(weights, "1", 0))
    assert not torch.allclose(one, none[0])


# Cuts, and the lens.


def test_cuts_have_room_and_the_state_of_their_document() -> None:
    model = machine("lstm")
    tokens_T = torch.cat([torch.tensor([10]), tokens(40, 0) % 10, torch.tensor([10]), tokens(60, 1) % 10])
    text = TextSpecimens(model, tokens_T, end_id=10, decode=None, source="here")
    found = cuts(text, places=9, ahead=12)
    assert len(found) == 9
    for cut in found:
        assert 10 not in cut.tokens_T.tolist()
        start = 0 if cut.at < 41 else 41
        for (_, mine), (_, right) in zip(leaves(cut.state), leaves(state_after(model, tokens_T[start : cut.at]))):
            torch.testing.assert_close(mine, right, rtol=0, atol=0)
    with pytest.raises(UserError, match="too few"):
        cuts(text, places=2, ahead=70)


@some
def test_the_finding(name: str) -> None:
    model = machine(name).float()
    subject = live_subject(model, tokens(200, 5))
    found = apply_lens(subject, "intervene", places=3, ahead=8, tokens=5)
    assert {figure.name for figure in found.figures} >= {"intervene-places", "intervene-recovery", "intervene-fork"}
    assert found.data["added"]["forget everything"] != 0
    assert len(found.data["written"]) >= 3
    found.to_json()


def test_one_address_alone_and_wrong_ones() -> None:
    subject = live_subject(machine("lstm").float(), tokens(120, 5))
    found = apply_lens(subject, "intervene", address="layers.1.c_BD", places=3, ahead=8, tokens=0)
    assert {key.split(" ", 1)[1] for key in found.data["added"]} == {"everything", "layers.1.c_BD"}
    assert len(found.data["units"]) == 12
    assert found.data["written"] == {}
    with pytest.raises(UserError, match="valid: layers"):
        apply_lens(subject, "intervene", address="layers.1.z")
    found = apply_lens(subject, "intervene", address="layers.0.lstm.forget_gate[1=3]", places=3, ahead=8, tokens=0)
    assert "silence layers.0.lstm.forget_gate[1=3]" in found.data["added"]
    with pytest.raises(UserError, match="there is no 99"):
        apply_lens(subject, "intervene", address="layers.0.lstm.forget_gate[1=99]", places=3, ahead=8)
    with pytest.raises(UserError, match="no tokenizer"):
        apply_lens(subject, "intervene", other="another text")
