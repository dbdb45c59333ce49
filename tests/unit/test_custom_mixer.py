"""A mixer class of the user's own: found, checked against the contract, built, measured and bound to its spec."""

import json
import sys
import types
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from own_mixer import FADING, fading, write_fading
from torch import Tensor, nn

import statewise as sw
from statewise.core import Mixer, unroll
from statewise.models import build_mixer, cost_of, custom_spec, own_mixer, own_mixers
from statewise.models.custom import from_source
from statewise.specs import CustomSpec, UserError, make_spec, mixers_of, parse_spec

LIST = """
class List(Mixer[Tensor]):
    def __init__(self, width: int, *, input_width: int | None = None, generator=None) -> None:
        super().__init__()
        self.input_width, self.output_width = input_width or width, width
        self.w_DI = nn.Parameter(torch.empty(width, self.input_width))
        nn.init.xavier_uniform_(self.w_DI, generator=generator)

    def init_state(self, batch):
        return self.like.new_zeros(batch, 0, self.input_width)

    def forward(self, x_BTI, state=None, lengths_B=None):
        return unroll(self.step, x_BTI, self.init_state(len(x_BTI)) if state is None else state, lengths_B)

    def step(self, x_BI, state):
        state = torch.cat([state, x_BI[:, None]], dim=1)
        return (state @ self.w_DI.T).mean(1), state
"""


def spec_of(folder: Path, **options: Any) -> CustomSpec:
    return custom_spec(fading(folder), {"width": 8, **options})


def test_sizes_are_those_of_the_model(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, depth=2, embedding=5, mlp="gelu", norm="rms")
    model = sw.build(spec, vocab=11)
    cost = cost_of(partial(sw.build, spec, vocab=11), context=1024)
    assert cost.parameters == sum(p.numel() for p in model.parameters())
    _, state = model(torch.zeros(1, 3, dtype=torch.long))
    assert cost.state_bytes == sw.state_bytes(state) == 2 * (8 * 4 + 8)
    assert cost_of(partial(build_mixer, spec, input_width=5)).flops == 2 * 5 * 8
    assert spec.small().mixer_output() == 12


def test_a_list_is_measured_after_so_many_tokens(tmp_path: Path) -> None:
    own = own_mixer(f"{write_fading(tmp_path, more=LIST)}:List")
    spec = custom_spec(own, {"width": 8, "embedding": 4})
    make = partial(build_mixer, spec, input_width=4)
    assert [cost_of(make, context=tokens).state_bytes for tokens in (0, 1, 100)] == [0, 4 * 4, 400 * 4]
    # One more vector is compared, and each that is there is multiplied.
    assert [cost_of(make, context=tokens).flops for tokens in (0, 9)] == [2 * 4 * 8, 10 * 2 * 4 * 8]
    parsed = parse_spec({"model": {"kind": "custom"}}, mixers=[own])
    assert parsed.step_grows


def test_weights_are_a_function_of_the_seed(tmp_path: Path) -> None:
    """Whether or not the class takes a generator, and without a trace in what is drawn elsewhere."""
    for own in own_mixers(write_fading(tmp_path, more=LIST)):
        spec = custom_spec(own, {"width": 6} | ({"start": "spread"} if own.name == "FadingSum" else {}))
        torch.manual_seed(1)
        before = torch.get_rng_state()
        first = sw.build(spec, vocab=5, seed=3)
        assert torch.equal(torch.get_rng_state(), before)
        torch.manual_seed(2)
        again, other = sw.build(spec, vocab=5, seed=3), sw.build(spec, vocab=5, seed=4)
        assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
        of_mixer = [dict(one.named_parameters())["stack.blocks.0.mixer." + _some(own.name)] for one in (first, other)]
        assert not torch.equal(*of_mixer)


def _some(name: str) -> str:
    return {"FadingSum": "logit_D", "List": "w_DI"}[name]


def test_a_file_gives_the_same_class_twice(tmp_path: Path) -> None:
    path = write_fading(tmp_path)
    one, two = own_mixer(path), own_mixer(f"{path}:FadingSum")
    assert one == two
    assert one.cls is two.cls
    assert from_source(one.source, "FadingSum") == one
    path.write_text(FADING + "# changed\n")
    assert own_mixer(path) != one


def test_what_lies_beside_the_file_can_be_imported(tmp_path: Path) -> None:
    (tmp_path / "beside_it.py").write_text("KEEP = 0.25\n")
    old, new = "import torch\n", "import torch\nfrom beside_it import KEEP\n"
    own = own_mixer(write_fading(tmp_path, old=old, new=new, more="\nassert KEEP == 0.25\n"))
    assert own.name == "FadingSum"
    assert str(tmp_path) not in sys.path


def test_a_spec_keeps_its_class_and_leaves_it_out_of_the_data(tmp_path: Path) -> None:
    own = fading(tmp_path)
    spec = custom_spec(own, {"width": 8, "keep": 0.5})
    assert spec.known_as == "fading_sum"
    dumped = spec.model_dump(mode="json")
    assert json.loads(json.dumps(dumped))["options"] == {"keep": 0.5, "start": "equal"}
    assert (dumped["mixer"], dumped["file"], dumped["sha256"]) == ("FadingSum", "fading.py", own.sha256)
    assert spec.model_copy(update={"width": 3}).own == own
    run = parse_spec({"model": dumped}, mixers=[own])
    assert run.model == spec
    assert mixers_of(run) == (own,)
    assert run.name == "fading_sum"


def test_what_a_recipe_records_of_the_source_is_what_was_passed_in(tmp_path: Path) -> None:
    own = fading(tmp_path)
    table = {"model": {"kind": "custom", "mixer": "FadingSum", "file": "/etc/x.py", "sha256": "0" * 64}}
    run = parse_spec(table, mixers=[own])
    assert isinstance(run.model, CustomSpec)
    assert (run.model.file, run.model.sha256) == ("fading.py", own.sha256)
    assert table["model"]["sha256"] == "0" * 64


def test_a_class_takes_the_place_of_a_recipes_model(tmp_path: Path) -> None:
    own = fading(tmp_path)
    table = {"model": {"kind": "lstm", "width": 7, "peephole": True}}
    run = make_spec(table, ["model.options.keep=0.5"], mixers=[own])
    assert isinstance(run.model, CustomSpec)
    assert (run.model.width, run.model.options["keep"]) == (7, 0.5)
    both = make_spec(
        {"task": "translation"}, ["model.encoder.kind=custom", "model.encoder.options.start=spread"], mixers=[own]
    )
    assert both.model.kind == "seq2seq"
    assert both.model.encoder.options["start"] == "spread"
    assert both.name == "fading_sum-gru-translation"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"keap": 0.5}, "did you mean 'keep'"),
        ({"wdth": 8}, "did you mean 'width'"),
        ({"keep": "long"}, "model.options: keep = 'long': input should be a valid number"),
        ({"keep": 1.5}, "keep = 1.5: input should be less than 1"),
        ({"start": "up"}, "start = 'up': input should be 'equal' or 'spread'"),
        ({"residual": True, "embedding": 4}, "residual adds"),
    ],
)
def test_wrong_options_are_explained(tmp_path: Path, options: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError) as error:
        sw.build(fading(tmp_path).cls, vocab=5, **options)
    assert told in str(error.value)


def test_an_option_of_a_recipe_that_the_class_lacks(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"model\.options: FadingSum has no option 'keap'; did you mean 'keep'"):
        make_spec({}, ["model.options.keap=1"], mixers=[fading(tmp_path)])


def test_a_class_that_was_not_passed_in_is_asked_for(tmp_path: Path) -> None:
    table = {"model": {"kind": "custom", "mixer": "Other", "file": "other.py"}}
    with pytest.raises(UserError, match=r"the recipe needs the mixer class 'Other' \(from other.py\)") as error:
        parse_spec(table, mixers=[fading(tmp_path)])
    assert "given: FadingSum" in str(error.value)
    assert "--mixer other.py" in error.value.on_command_line()
    with pytest.raises(UserError, match="does not say which mixer class"):
        parse_spec({"model": {"kind": "custom"}})
    with pytest.raises(UserError, match="valid: FadingSum, List"):
        make_spec({}, mixers=own_mixers(write_fading(tmp_path, more=LIST)))


def test_two_classes_of_one_name_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "two").mkdir()
    with pytest.raises(UserError, match="two mixer classes are called 'FadingSum'"):
        parse_spec({}, mixers=[fading(tmp_path), own_mixer(write_fading(tmp_path / "two", more="# other\n"))])


# ------------------------------------------------------------------------- what is no mixer

WITHOUT = {"step": "def step", "init_state": "def init_state", "forward": "def forward"}


@pytest.mark.parametrize("method", WITHOUT)
def test_a_method_that_is_missing_is_named(tmp_path: Path, method: str) -> None:
    path = write_fading(tmp_path, old=WITHOUT[method], new=f"def other_{method}")
    with pytest.raises(UserError, match=f"FadingSum does not keep the contract: it lacks {method}"):
        own_mixer(path)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("state=None, lengths_B=None", "state=None", r"forward does not keep the contract: expected forward\("),
        ("def step(self, x_BI, state)", "def step(self, x_BI)", r"step does not keep the contract: expected step\("),
        ("input_width: int | None = None,", "", "the constructor of FadingSum lacks input_width"),
        ('start: Literal["equal", "spread"] = "equal"', "start=1", "the option 'start' of FadingSum has no type"),
        ('= "equal",\n    )', ",\n    )", "the option 'start' of FadingSum has no default"),
        ('start: Literal["equal", "spread"] = "equal"', "dropout: float = 0.1", "a setting that every model has"),
        ('start: Literal["equal", "spread"] = "equal"', 'init: str = "mine"', "gets model.init, which is 'orthogonal'"),
        ('start: Literal["equal", "spread"] = "equal"', "start: Tensor = None", "a type that a recipe cannot hold"),
        ("class FadingSum(Mixer[FadingState])", "class FadingSum(nn.Module)", "fading.py defines no mixer"),
        ("import torch\n", "import torch\nimport no_such_thing\n", r"fading.py, line 5: ModuleNotFoundError"),
        ("class FadingSum", "clas FadingSum", r"fading.py, line 16: SyntaxError"),
    ],
)
def test_what_is_no_mixer_is_explained(tmp_path: Path, old: str, new: str, told: str) -> None:
    with pytest.raises(UserError, match=told):
        own_mixer(write_fading(tmp_path, old=old, new=new))


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("self.output_width = width", "pass", "has input_width 8 and output_width None"),
        ("self.input_width = input_width or width", "self.input_width = 3", "has input_width 3"),
        ("super().__init__()", 'raise ValueError("width must be even")', "width must be even"),
    ],
)
def test_what_cannot_be_built_is_explained(tmp_path: Path, old: str, new: str, told: str) -> None:
    with pytest.raises(UserError, match=told):
        sw.build(own_mixer(write_fading(tmp_path, old=old, new=new)).cls, vocab=5, width=8)


def test_names_of_files_that_lead_nowhere(tmp_path: Path) -> None:
    write_fading(tmp_path)
    with pytest.raises(UserError, match="did you mean"):
        own_mixer(tmp_path / "fadin.py")
    with pytest.raises(UserError, match=r"fading.py defines no class 'Fading'"):
        own_mixer(f"{tmp_path}/fading.py:Fading")
    with pytest.raises(UserError, match="FadingSum, List"):
        own_mixer(write_fading(tmp_path, more=LIST))
    with pytest.raises(UserError, match="not a file of Python"):
        own_mixer("statewise.mixers")


def test_a_class_is_passed_and_not_an_object(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="pass the class: mixer=Looks"):
        sw.load(tmp_path, mixer=Looks(4))  # type: ignore[arg-type]  # what a newcomer may do


def test_what_ships_goes_by_its_name() -> None:
    with pytest.raises(UserError, match="LSTM is part of statewise"):
        sw.build(sw.LSTM, vocab=5)


class Seen(NamedTuple):
    x_BI: Tensor


class Looks(Mixer[Seen]):
    """Its code looks at numbers, which a model without memory does not have."""

    def __init__(self, width: int, *, input_width: int | None = None) -> None:
        super().__init__()
        self.input_width, self.output_width = input_width or width, width
        self.linear = nn.Linear(self.input_width, width)

    def init_state(self, batch: int) -> Seen:
        return Seen(self.like.new_zeros(batch, self.input_width))

    def forward(self, x: Tensor, state: Seen | None = None, lengths_B: Tensor | None = None) -> tuple[Tensor, Seen]:
        return unroll(self.step, x, state or self.init_state(len(x)), lengths_B)

    def step(self, x: Tensor, state: Seen) -> tuple[Tensor, Seen]:
        if bool(state.x_BI.isnan().any()):
            raise ValueError("a number is missing")
        return self.linear(x - state.x_BI), Seen(x)


def test_a_class_that_looks_at_numbers_is_measured_too() -> None:
    spec = custom_spec(own_mixer(Looks), {"width": 6})
    assert cost_of(partial(build_mixer, spec, input_width=4)).flops == 2 * 4 * 6
    assert isinstance(build_mixer(spec, input_width=4), Looks)


def test_a_class_without_a_file_can_be_built_but_not_sent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    module = types.ModuleType("typed_in_somewhere")
    monkeypatch.setitem(sys.modules, "typed_in_somewhere", module)
    exec(compile(FADING, "<cell>", "exec"), vars(module))
    own = own_mixer(module.FadingSum)
    assert (own.file, own.sha256, own.source) == ("", "", None)
    assert sw.build(module.FadingSum, vocab=5, width=4).init_state(1)
    with pytest.raises(UserError, match=r"FadingSum cannot be sent .*\n.*mixers=\['fading_sum.py'\]"):
        sw.compare(mixers=[module.FadingSum], out=tmp_path)
