"""What modules and states print: sizes, options that differ from the default, shapes and bytes; never numbers."""

import copy
import inspect
import pickle
import re
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

import statewise as sw
from statewise import mixers
from statewise.core import Mixer, leaves, state_bytes
from statewise.core.representation import describe_state
from statewise.models import ENCODER_DECODERS, LINEAGE, build_sample

VOCAB = 11
MACHINES = {
    f"{row.name}-{number}": spec
    for row in (*LINEAGE, *ENCODER_DECODERS)
    for number, spec in enumerate((row.spec.small(), *row.variants))
}
each_machine = pytest.mark.parametrize("spec", MACHINES.values(), ids=MACHINES)


def test_a_mixer_prints_its_sizes_and_what_is_not_default() -> None:
    assert repr(sw.LSTM(16)) == "LSTM(width=16, input_width=16)"
    assert repr(sw.LSTM(16, input_width=3, peephole=True, zoneout=0.1, projection=5, forget_bias=1.0)) == (
        "LSTM(width=16, input_width=3, peephole=True, projection=5, zoneout=0.1)"
    )
    assert repr(mixers.Mamba2(16, heads=4, generator=torch.Generator())) == "Mamba2(width=16, input_width=16, heads=4)"


def test_options_that_a_constructor_hands_on_are_in_its_signature() -> None:
    names = [*inspect.signature(sw.LSTM).parameters]
    assert names[:5] == ["width", "input_width", "init", "kernel", "generator"]
    assert {"peephole", "zoneout"} <= set(names)
    assert "options" not in names
    attention, sliding = (inspect.signature(cls).parameters for cls in (mixers.Attention, mixers.SlidingAttention))
    assert sliding.keys() - attention.keys() == {"window"}
    assert attention["heads"].default is inspect.Parameter.empty
    assert sliding["rotary_base"].default == attention["rotary_base"].default == 10_000.0
    for wrong in ("widht", "output_width"):  # the second is a parameter of what the constructor calls
        with pytest.raises(TypeError, match=rf"LSTM.__init__\(\) got an unexpected keyword argument '{wrong}'"):
            sw.LSTM(16, **{wrong: 3})  # type: ignore[arg-type]


@each_machine
def test_every_mixer_and_every_part_of_a_model_prints_its_sizes(spec: Any) -> None:
    model = build_sample(spec, vocab=VOCAB)
    bare = [
        name
        for name, part in model.named_modules()
        if type(part).__module__.startswith("statewise.") and not list(part.children()) and not part.extra_repr()
    ]
    # Score and alignment functions without options have no size.
    assert not [name for name in bare if not name.startswith("attend")], model
    for part in model.modules():
        if isinstance(part, Mixer):
            assert f"width={part.input_width}" in part.extra_repr()


@each_machine
def test_what_a_mixer_prints_makes_it_again(spec: Any) -> None:
    """So no option that changes the mixer is left out."""
    for part in build_sample(spec, vocab=VOCAB).modules():
        if isinstance(part, Mixer):
            kind = type(part)
            again = eval(f"{kind.__name__}({part.extra_repr()})", {}, {kind.__name__: kind})
            assert repr(again) == repr(part)
            sizes, expected = ({name: one.shape for name, one in mixer.state_dict().items()} for mixer in (again, part))
            assert sizes == expected
            plain = bool | int | float | str
            for name, value in vars(part).items():
                assert not isinstance(value, plain) or vars(again)[name] == value, name


def test_heads_and_embeddings_print_their_sizes() -> None:
    model = sw.build("transformer", vocab=65, width=32, depth=2, tie=True)
    printed = repr(model)
    assert "(embedding): Embedding(vocab=65, width=32, scale=0.1768)" in printed
    assert "(head): CategoricalHead(width=32, vocab=65, tie=Embedding)" in printed
    assert "residual=True" in printed


def test_copies_print_the_same_and_a_wrong_argument_is_still_the_constructors_error() -> None:
    model = sw.build("lstm", vocab=5, width=8, zoneout=0.2)
    assert "zoneout=0.2" in repr(model)
    assert repr(copy.deepcopy(model)) == repr(pickle.loads(pickle.dumps(model))) == repr(model)
    with pytest.raises(TypeError, match=re.escape("LSTM.__init__() got an unexpected keyword argument 'wide'")):
        sw.LSTM(8, wide=3)  # type: ignore[call-arg]  # what is tested


def test_a_module_handed_over_is_not_kept_twice() -> None:
    class Around(Mixer[Any]):
        def __init__(self, inner: nn.Module, *, width: int = 3) -> None:
            super().__init__()
            self.inner = inner

        init_state = forward = step = None  # type: ignore[assignment]  # never called

    made = Around(nn.Linear(2, 2), width=4)
    assert repr(made) == "Around(\n  width=4\n  (inner): Linear(in_features=2, out_features=2, bias=True)\n)"
    assert not any(isinstance(value, nn.Module) for value in made._arguments.values())


# ---------------------------------------------------------------- states


def test_a_state_prints_shapes_and_bytes() -> None:
    mixer = sw.LSTM(16)
    _, state = mixer(torch.randn(2, 7, 16))
    assert repr(state) == "LSTMState(h_BP=[2, 16] float32, c_BD=[2, 16] float32; 256 bytes)"
    assert f"{state}" == repr(state)


def test_a_nested_state_takes_a_line_for_each_part() -> None:
    state = sw.build("gru", vocab=5, width=8, depth=3).init_state(2)
    assert repr(state) == (
        "StackState(\n"
        "  layers=(\n"
        "    GRUState(h_BD=[2, 8] float32; 64 bytes)\n"
        "    GRUState(h_BD=[2, 8] float32; 64 bytes)\n"
        "    GRUState(h_BD=[2, 8] float32; 64 bytes)\n"
        "  )\n"
        "  position=()\n"
        "  192 bytes\n"
        ")"
    )


@each_machine
def test_every_state_type_of_the_lineage_prints_so(spec: Any) -> None:
    """All nested types, too: each is decorated, so that a part taken out of a state prints like the whole."""
    state = build_sample(spec, vocab=VOCAB).init_state(3)
    for part in nested(state):
        assert repr(part) == describe_state(part)
        assert "tensor(" not in repr(part)
        assert f"{state_bytes(part):,} bytes" in repr(part)
    for path, leaf in leaves(state):
        dtype = str(leaf.dtype).removeprefix("torch.")
        name = path.rsplit(".", 1)[-1]
        assert f"{'' if name.isdigit() else name + '='}{list(leaf.shape)} {dtype}" in repr(state)


def nested(state: Any) -> list[Any]:
    """The state and every NamedTuple inside it."""
    if isinstance(state, Tensor):
        return []
    inside = [one for part in state for one in nested(part)]
    return [state, *inside] if hasattr(state, "_fields") else inside


def test_a_continuation_prints_so() -> None:
    from statewise.decoding import begin

    model = sw.build("elman", vocab=5, width=8)
    shown = repr(begin(model, torch.tensor([[0, 1]]), vocab=5))
    assert shown.startswith("Continuation(\n  state=StackState(")
    assert "token_B=[1] int64" in shown


def test_an_undecorated_state_is_described_inside_others() -> None:
    class Mine(NamedTuple):
        h_BD: Tensor

    assert describe_state([torch.zeros(1, 2), torch.ones(3)]) == "([1, 2] float32, [3] float32)"
    assert describe_state((Mine(torch.zeros(1, 2)),)) == "(Mine(h_BD=[1, 2] float32; 8 bytes))"
    assert "meta" in describe_state(Mine(torch.zeros(1, 2, device="meta")))
