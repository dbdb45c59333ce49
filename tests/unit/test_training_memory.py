"""What does not fit into memory is refused before anything is allocated."""

from pathlib import Path

import pytest
import torch
from tiny_task import TokenTask, spec, tiny
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from statewise.models import LINEAGE, build
from statewise.specs import TrainSpec, UserError
from statewise.tasks import train
from statewise.training import Parallel, fit
from statewise.training import device as memory
from statewise.training.parallel import _in_flight
from statewise.training.progress import Silent
from statewise.training.sharded import recompute

CPU = torch.device("cpu")


def test_a_model_that_does_not_fit_is_refused_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "memory_of", lambda device: 2**34)
    with pytest.raises(
        UserError, match=r"the model has [\d,]+ parameters: to train them takes [\d,]+ GiB, and there are"
    ):
        train("lstm", settings={"model.width": 2**20}, out=tmp_path / "run", display=Silent())
    assert not (tmp_path / "run").exists()


def test_what_an_optimiser_keeps_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "memory_of", lambda device: 1200)
    for optimizer, most in (("adamw", 75), ("muon", 100), ("asgd", 100), ("sgd", 150)):
        spec = TrainSpec(optimizer=optimizer)
        memory.refuse_what_does_not_fit(most, spec, CPU)
        with pytest.raises(UserError):
            memory.refuse_what_does_not_fit(most + 1, spec, CPU)


@pytest.mark.parametrize("kind", [entry.name for entry in LINEAGE if entry.name != "markov"])
def test_layers_that_are_computed_again_keep_less_and_learn_the_same(kind: str) -> None:
    inputs_BT, lengths_B = torch.arange(48).view(3, 16) % 11, torch.tensor([16, 5, 9])
    found = []
    for again in (False, True):
        model = build(kind, vocab=11, width=16, depth=2, seed=1).train()
        if again:
            recompute(model)
        kept: dict[int, int] = {}

        def pack(saved: Tensor) -> Tensor:
            kept[saved.untyped_storage().data_ptr()] = saved.untyped_storage().nbytes()  # noqa: B023
            return saved

        with saved_tensors_hooks(pack, lambda saved: saved):
            logits_BTV, _ = model(inputs_BT, model.init_state(3), lengths_B)
        logits_BTV.square().sum().backward()
        found.append((sum(kept.values()), [p.grad for p in model.parameters()]))
    (plain, gradients), (less, same) = found
    assert less < plain
    for one, other in zip(gradients, same, strict=True):
        assert (one is None and other is None) or torch.equal(one, other)


def test_an_optimiser_on_the_host_learns_the_same() -> None:
    for optimizer in ("adamw", "muon", "sgd"):
        plain, other = (tiny("lstm") for _ in range(2))
        fit(plain, TokenTask(nats=[3.0] * 8), spec(steps=6, optimizer=optimizer, average=0.9))
        fit(other, TokenTask(nats=[3.0] * 8), spec(steps=6, optimizer=optimizer, average=0.9, offload=True))
        for one, two in zip(plain.parameters(), other.parameters(), strict=True):
            assert torch.equal(one, two)


def test_weights_are_gathered_in_bfloat16_only_where_they_are_gathered() -> None:
    with pytest.raises(UserError, match="is for a model that is divided between processes"):
        fit(tiny("lstm"), TokenTask(), spec(precision="bfloat16-weights"))


def test_the_limit_of_a_container_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    whole = memory.memory_of(CPU)
    assert whole is None or whole > 2**28
    monkeypatch.setattr(memory, "_LIMIT", tmp_path / "memory.max")
    (tmp_path / "memory.max").write_text("4096\n")
    assert memory.memory_of(CPU) == 4096


def test_averaged_gradients_take_their_memory_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last exchanges are kept from being freed, which must not be so for whole gradients."""
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda tensor: tensor.mul_(4.0))
    par, model, flat = Parallel(0, 2), tiny("lstm"), None
    places = set()
    for step in range(3):
        for number, p in enumerate(model.parameters()):
            p.grad = None if number == step else torch.full_like(p, number + step)
        flat = par.average_gradients(model.parameters(), flat)
        places.add(flat.data_ptr())
        for number, p in enumerate(model.parameters()):
            expected = torch.zeros_like(p) if number == step else torch.full_like(p, 2.0 * (number + step))
            assert p.grad is not None
            assert torch.equal(p.grad, expected)
            assert p.grad.untyped_storage().data_ptr() == flat.data_ptr()
    assert len(places) == 1
    assert all(kept.numel() < flat.numel() for kept in _in_flight)
