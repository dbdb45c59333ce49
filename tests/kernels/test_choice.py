"""Which implementation runs: chosen in one place, able to say why, and open to being told."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from statewise.core import lens
from statewise.kernels import gru as gru_kernel
from statewise.kernels import recurrent, stepped
from statewise.kernels.choice import Choice, Variable, choose, force, is_asked, record
from statewise.kernels.gpu import H200, KNOWN
from statewise.kernels.persistent import stall
from statewise.kernels.recurrent import cached_choice
from statewise.mixers import GRU, LSTM, Elman
from statewise.specs import UserError


@pytest.fixture(autouse=True)
def _no_wish_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STATEWISE_KERNEL", raising=False)


def test_the_environment_is_read_as_it_is_now(monkeypatch: pytest.MonkeyPatch) -> None:
    variable = Variable("STATEWISE_SAYS")
    assert variable.read() == ""
    for said in ("naive", "Ωμέγα", ""):
        monkeypatch.setenv("STATEWISE_SAYS", said)
        assert variable.read() == said
    monkeypatch.delenv("STATEWISE_SAYS")
    assert variable.read() == ""


@pytest.mark.parametrize("said", ["", "auto", "naive"])
def test_whether_somebody_asked(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATEWISE_KERNEL", said)
    assert is_asked() is (said == "naive")
    assert is_asked("fused")
    with force("fused"):
        assert is_asked()
    with lens():
        assert is_asked()


def test_the_fastest_by_default_and_it_says_why() -> None:
    chosen = choose("LSTM", obstacles=[])
    assert chosen.implementation == "fused"
    assert "fastest" in chosen.reason


def test_an_obstacle_sends_it_to_the_equation_by_name() -> None:
    expected = "the fast LSTM has no peepholes and no zoneout"
    assert choose("LSTM", obstacles=["peepholes", "zoneout"]) == Choice("naive", expected)


def test_asked_for_by_the_module() -> None:
    assert choose("GRU", obstacles=[], wish="naive") == Choice("naive", "asked for by kernel=")
    assert choose("GRU", obstacles=[], wish="fused") == Choice("fused", "asked for by kernel=")


def test_asked_for_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATEWISE_KERNEL", "naive")
    assert choose("GRU", obstacles=[]) == Choice("naive", "asked for by STATEWISE_KERNEL")
    assert Elman(3).choice().implementation == "naive"
    monkeypatch.setenv("STATEWISE_KERNEL", "auto")
    assert choose("GRU", obstacles=[]).implementation == "fused"


def test_order_of_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lens above force(...) above kernel= above the environment."""
    monkeypatch.setenv("STATEWISE_KERNEL", "naive")
    assert choose("GRU", obstacles=[], wish="fused") == Choice("fused", "asked for by kernel=")
    with force("naive"):
        assert choose("GRU", obstacles=[], wish="fused") == Choice("naive", "asked for by force(...)")
        with force("fused"):
            assert choose("GRU", obstacles=[], wish="naive") == Choice("fused", "asked for by force(...)")
            with lens("nothing"):
                assert choose("GRU", obstacles=[], wish="fused").reason.startswith("a lens is open")
                assert choose("GRU", obstacles=["zoneout"], wish="fused").implementation == "naive"
        assert choose("GRU", obstacles=[]).implementation == "naive", "the outer wish is back"
    assert choose("GRU", obstacles=[], wish="fused").implementation == "fused"


def test_force_ends_with_its_block_even_after_an_error() -> None:
    with pytest.raises(RuntimeError), force("naive"):
        raise RuntimeError
    assert choose("GRU", obstacles=[]).implementation == "fused"


def test_an_unknown_wish_is_refused_wherever_it_comes_from(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"kernel=.*'quick'[^$]*valid: auto, batched, fused, naive"):
        choose("GRU", obstacles=[], wish="quick")
    with pytest.raises(UserError, match=r"force\(\.\.\.\).*'nave'[^$]*did you mean 'naive'"), force("nave"):
        choose("GRU", obstacles=[])
    monkeypatch.setenv("STATEWISE_KERNEL", "")  # set to nothing is not set
    assert choose("GRU", obstacles=[]).implementation == "fused"
    monkeypatch.setenv("STATEWISE_KERNEL", "fussed")
    with pytest.raises(UserError, match=r"STATEWISE_KERNEL.*'fussed'[^$]*did you mean 'fused'"):
        LSTM(4)(torch.zeros(1, 2, 4))


OBSTACLES = {
    "elman zoneout": (Elman(4, zoneout=0.1, kernel="fused"), "zoneout"),
    "lstm peepholes": (LSTM(4, peephole=True, kernel="fused"), "peepholes"),
    "lstm layer norm": (LSTM(4, layer_norm=True, kernel="fused"), "layer norm"),
    "lstm coupled gates": (LSTM(4, coupled=True, kernel="fused"), "coupled gates"),
    "lstm zoneout": (LSTM(4, zoneout=0.1, kernel="fused"), "zoneout"),
    "lstm projection": (LSTM(4, projection=2, kernel="fused"), "projection on a CPU"),
    "gru zoneout": (GRU(4, zoneout=0.1, kernel="fused"), "zoneout"),
    "gru reset": (GRU(4, reset="before", kernel="fused"), "reset before the product"),
}


@pytest.mark.parametrize(("mixer", "obstacle"), OBSTACLES.values(), ids=OBSTACLES.keys())
def test_what_fused_cannot_do_is_named(mixer: Elman | LSTM | GRU, obstacle: str) -> None:
    with pytest.raises(UserError, match=f"kernel= asks for the fused .* no {obstacle}"):
        mixer(torch.zeros(1, 2, 4))
    with force("naive"):
        mixer(torch.zeros(1, 2, 4))
    mixer.kernel = "auto"
    assert mixer.choice().implementation == "naive"
    assert obstacle in mixer.choice().reason
    mixer.kernel = "fused"


def test_an_implementation_that_the_op_lacks_is_refused() -> None:
    with pytest.raises(UserError, match="kernel= asks for the batched LSTM, but there is none"):
        LSTM(4, kernel="batched")(torch.zeros(1, 2, 4))


@pytest.mark.parametrize(("kernel", "runs"), [("naive",) * 2, ("fused",) * 2, ("batched",) * 2, ("auto", "batched")])
def test_what_was_chosen_is_what_runs(kernel: str, runs: str, monkeypatch: pytest.MonkeyPatch) -> None:
    called = []
    for name in ("naive", "fused", "batched"):
        real = gru_kernel.IMPLEMENTATIONS[name]
        noted = lambda *a, name=name, real=real: called.append(name) or real(*a)  # noqa: E731
        monkeypatch.setitem(gru_kernel.IMPLEMENTATIONS, name, noted)
    mixer = GRU(4, kernel=kernel)
    mixer(torch.zeros(1, 2, 4))
    assert called == [runs]
    with lens("*"):
        mixer(torch.zeros(1, 2, 4))
    assert called == [runs, "naive"], "an open lens sees the equation"


def test_a_call_of_the_same_kind_is_not_chosen_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a choice depends on makes another kind."""
    asked: list[str] = []

    def choose_one() -> Choice:
        asked.append("asked")
        return choose("GRU", obstacles=[], fast=["persistent", "fused"])

    monkeypatch.setattr(recurrent, "_cache", {})
    monkeypatch.setattr(recurrent, "gpu_of", lambda device: H200)
    weight: Any = SimpleNamespace(device=torch.device("cuda", 0), shape=(24, 8), dtype=torch.bfloat16)

    def ask(batch: int = 1, like: Any = weight, variant: object = ()) -> int:
        asked.clear()
        with record() as chosen:
            choice = cached_choice("GRU", choose_one, like, variant, batch=batch)
        assert chosen == {"GRU": choice}, "recorded each time"
        return len(asked)

    assert [ask(), ask(), ask(2), ask(2), ask()] == [1, 0, 1, 0, 0]
    assert ask(like=SimpleNamespace(**{**vars(weight), "dtype": torch.float16})) == 1
    assert ask(like=SimpleNamespace(**{**vars(weight), "shape": (24, 9)})) == 1
    with force("fused"):
        assert [ask(), ask()] == [1, 0]
    with lens("*"):
        assert [ask(), ask()] == [1, 0]
    for name, value in {"KERNEL": "naive", "UNPROVEN": "1"}.items():
        monkeypatch.setenv(f"STATEWISE_{name}", value)
        assert [ask(), ask()] == [1, 0]
        monkeypatch.delenv(f"STATEWISE_{name}")
    monkeypatch.setattr(recurrent, "gpu_of", lambda device: KNOWN["8.0"])
    assert ask() == 1
    monkeypatch.setattr(stall, "_retired", ["it stalled"])
    assert ask() == 1
    monkeypatch.setattr(stepped, "_retired", ["it was refused"])
    assert ask() == 1
    with force("triton"):
        for _ in range(2):
            with pytest.raises(UserError, match="triton GRU"):
                ask()
            assert asked == ["asked"], "an error is not cached"
    on_cpu, on_meta = torch.zeros(24, 8), torch.zeros(24, 8, device="meta")
    assert [ask(like=on_cpu), ask(like=on_cpu), ask(2, on_cpu)] == [1, 0, 0], "on a CPU the batch decides nothing"
    assert [ask(like=on_cpu, variant="zoneout"), ask(like=on_cpu, variant="zoneout"), ask(like=on_meta)] == [1, 0, 1]


@pytest.mark.parametrize("mixer", [LSTM(4), GRU(4), Elman(4)], ids=["lstm", "gru", "elman"])
def test_what_decides_is_seen_at_every_call_on_a_cpu(
    mixer: LSTM | GRU | Elman, monkeypatch: pytest.MonkeyPatch
) -> None:
    x_BTI = torch.zeros(1, 2, 4)

    def runs() -> str:
        with record() as chosen:
            mixer(x_BTI)
        (choice,) = chosen.values()
        return choice.implementation

    fastest = runs()
    assert [runs(), runs()] == [fastest, fastest] != ["naive", "naive"]
    with lens("*"):
        assert runs() == "naive"
    with force("naive"):
        assert runs() == "naive"
    assert runs() == fastest
    monkeypatch.setenv("STATEWISE_KERNEL", "naive")
    assert runs() == "naive"
    monkeypatch.delenv("STATEWISE_KERNEL")
    mixer.kernel = "naive"
    assert runs() == "naive"
    mixer.kernel = "auto"
    traced: list[str] = []
    torch.func.vmap(lambda x: (traced.append(runs()), x)[1])(torch.zeros(2, 1))
    assert traced == ["naive"], "torch.func follows plain ops alone"
    mixer.zoneout = 0.1
    assert runs() == "naive"
    mixer.zoneout = 0.0
    assert runs() == fastest
