"""From a spec to a model: what is built, what is counted, what is shared, what is refused."""

from functools import partial
from typing import Any

import pytest
import torch
from covering import covered
from hypothesis import given, settings
from hypothesis import strategies as st

from statewise.core import leaves, state_bytes
from statewise.models import LINEAGE, build, num_parameters
from statewise.models.tree_classifier import build_node_classifier
from statewise.specs import ElmanSpec, GRUSpec, LSTMSpec, ModelSpec, ReaderSpec, UserError, parse_spec

NAMES = [row.name for row in LINEAGE if row.spec.learns == "gradient"]


def count(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@st.composite
def model_specs(draw: st.DrawFn) -> ModelSpec:
    """Any valid model of a small size, with every option that could change a count."""
    width = draw(st.integers(2, 9))
    options = {
        "width": width,
        "depth": draw(st.integers(1, 3)),
        "norm": draw(st.sampled_from(["none", "layer", "rms"])),
        "norm_place": draw(st.sampled_from(["pre", "post"])),
        "mlp": draw(st.sampled_from(["none", "relu", "gelu", "swiglu"])),
        "mlp_ratio": draw(st.sampled_from([0.5, 1.3, 2.0])),
        "bias": draw(st.booleans()),
        "tie": draw(st.booleans()),
        "init": draw(st.sampled_from(["orthogonal", "published", "torch"])),
    }
    kind = draw(st.sampled_from([ElmanSpec, LSTMSpec, GRUSpec]))
    out = width
    if kind is LSTMSpec:
        for flag in ("peephole", "layer_norm", "coupled"):
            options[flag] = draw(st.booleans())
        if draw(st.booleans()):
            options["projection"] = out = draw(st.integers(1, width - 1))
    elif kind is GRUSpec:
        options["reset"] = draw(st.sampled_from(["after", "before"]))
    else:
        options["activation"] = draw(st.sampled_from(["tanh", "relu"]))
    options["residual"] = draw(st.booleans())
    options["embedding"] = out if options["residual"] else draw(st.none() | st.integers(1, 9))
    return kind(**options)


@settings(deadline=None, max_examples=120)
@given(spec=model_specs(), vocab=st.integers(1, 20))
def test_a_model_without_memory_has_as_many_parameters(spec: ModelSpec, vocab: int) -> None:
    model = build(spec, vocab=vocab)
    assert num_parameters(partial(build, spec, vocab=vocab)) == count(model)
    assert model.vocab == vocab


@settings(deadline=None, max_examples=25)
@given(spec=model_specs(), vocab=st.integers(1, 20))
def test_every_parameter_is_used(spec: ModelSpec, vocab: int) -> None:
    """Counted weights that no gradient reaches would be dead weight. (A row of one unit is all mean to its norm.)"""
    model = build(spec, vocab=vocab).double()
    logits, _ = model(torch.randint(vocab, (2, 4)))
    logits.square().sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert logits.shape == (2, 4, vocab)
    assert logits.isfinite().all()


def test_counts_known_by_hand() -> None:
    assert count(build(ElmanSpec(width=3), vocab=5)) == 5 * 3 + (9 + 9 + 3) + (15 + 5)
    assert count(build(LSTMSpec(width=3), vocab=5)) == 5 * 3 + 4 * (9 + 9 + 3) + (15 + 5)
    assert count(build(GRUSpec(width=3), vocab=5)) == 5 * 3 + 3 * (9 + 9 + 3) + 3 + (15 + 5)
    tied = LSTMSpec(width=3, tie=True, embedding=2)
    assert count(build(tied, vocab=5)) == 10 + 4 * 3 * (2 + 3 + 1) + (5 + 3 * 2)


# The seed.


@covered("name, init", NAMES, ["orthogonal", "published", "torch"], strength=1)
def test_weights_are_a_function_of_the_seed_alone(name: str, init: str) -> None:
    options = {"vocab": 7, "width": 6, "depth": 2, "init": init}
    if name == "lstm":
        options |= {"projection": 3, "tie": True}
    torch.manual_seed(1)
    first = build(name, **options).state_dict()
    torch.manual_seed(2)
    before = torch.get_rng_state()
    second = build(name, **options).state_dict()
    assert torch.equal(torch.get_rng_state(), before), "nothing was drawn from the global generator"
    assert first.keys() == second.keys()
    assert all(torch.equal(first[key], second[key]) for key in first)
    other = build(name, seed=1, **options).state_dict()
    assert not torch.equal(first["embedding.weight"], other["embedding.weight"])
    layers = [build(name, **options).stack.blocks[n].mixer.state_dict() for n in (0, 1)]
    assert not layers[0] or not all(  # a mixer may have no parameters at all
        torch.equal(layers[0][key], layers[1][key]) for key in layers[0] if layers[0][key].shape == layers[1][key].shape
    )


# Tying.


def test_tied_weights_are_one_tensor() -> None:
    model = build("lstm", vocab=11, width=6, tie=True)
    assert model.head.weight_VE is model.embedding.weight
    assert model.head.narrow_ED is None
    assert count(model) == count(build("lstm", vocab=11, width=6)) - 11 * 6


def test_tied_weights_of_another_width_pass_through_a_map() -> None:
    model = build("gru", vocab=11, width=6, embedding=4, tie=True).double()
    assert model.head.weight_VE is model.embedding.weight
    tokens = torch.tensor([[1, 2, 3]])
    logits, _ = model(tokens)
    features, _ = model.stack(model.embedding(tokens))
    expected = features @ model.head.narrow_ED.T @ model.embedding.weight.T + model.head.bias_V
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("recipe", "vocab", "expected"),
    [
        ({"kind": "lstm"}, 10_000, 1.0),
        ({"kind": "lstm", "tie": True, "width": 64}, 10_000, 1 / 8),
        ({"kind": "lstm", "embedding_scale": 0.3}, 10_000, 0.3),
    ],
)
def test_the_size_of_token_vectors_at_the_start(recipe: dict[str, Any], vocab: int, expected: float) -> None:
    spec = parse_spec({"model": recipe})
    model = build(spec.model, vocab=vocab)
    assert model.embedding.weight.std().item() == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize(
    ("recipe", "vocab", "expected"),
    [
        ({"kind": "gru"}, 40_000, 0.05),  # words: most are rare
        ({"kind": "gru"}, 100, 1.0),  # symbols
        ({"kind": "gru", "embedding_scale": 0.3}, 40_000, 0.3),
        ({"kind": "transformer", "position": "sinusoidal"}, 40_000, 1.0),  # positions are added to them
        ({"kind": "nary"}, 40_000, 0.05),
        ({"kind": "nary", "embedding_scale": 0.3}, 100, 0.3),
    ],
)
def test_the_size_of_token_vectors_that_are_read_for_a_label(
    recipe: dict[str, Any], vocab: int, expected: float
) -> None:
    spec = parse_spec({"task": "tree", "model": {"width": 64, **recipe}})
    model = build_node_classifier(spec.model, ReaderSpec(), num_classes=2, vocab=vocab)
    entry = model.embedding if hasattr(model, "embedding") else model.reader.entry
    assert entry.weight.std().item() == pytest.approx(expected, rel=0.02)


def test_an_older_name_of_the_size_of_word_vectors_is_read() -> None:
    for model in ({"model": {"kind": "nary"}}, {"model": {"kind": "lstm"}}, {}):
        spec = parse_spec({"task": "tree", "words": {"scale": 0.3}, **model})
        assert spec.model.embedding_scale == 0.3
    with pytest.raises(UserError, match="words"):
        parse_spec({"task": "tree", "words": {"scales": 0.3}})


def test_a_tied_matrix_learns_from_both_ends() -> None:
    tied, loose = (build("elman", vocab=5, width=4, tie=tie).double() for tie in (True, False))
    loose.load_state_dict({**tied.state_dict(), "head.weight_VE": tied.embedding.weight.detach()})
    tokens = torch.tensor([[0, 3, 2]])
    for model in (tied, loose):
        model(tokens)[0].square().sum().backward()
    expected = loose.embedding.weight.grad + loose.head.weight_VE.grad
    torch.testing.assert_close(tied.embedding.weight.grad, expected, rtol=0, atol=1e-12)


# The stack.


def test_a_block_is_norm_mixer_residual() -> None:
    model = build("gru", vocab=7, width=4, depth=2, residual=True, norm="layer").double()
    tokens = torch.tensor([[1, 2, 3]])
    x = model.embedding(tokens)
    for block in model.stack.blocks:
        x = x + block.mixer(block.norm(x))[0]
    expected = model.head(model.stack.final_norm(x))
    torch.testing.assert_close(model(tokens)[0], expected, rtol=0, atol=1e-12)
    assert model.stack.final_norm.kind == "layer"


@covered("name, residual, norm", NAMES, [False, True], ["none", "layer", "rms"], strength=1)
def test_residual_and_norm_in_all_combinations(name: str, residual: bool, norm: str) -> None:
    model = build(name, vocab=7, width=4, depth=3, residual=residual, norm=norm, mlp="none").double()
    tokens = torch.tensor([[1, 2, 3], [4, 5, 6]])
    model(tokens)[0].sum().backward()
    x, again = model.embedding(tokens), []
    features, state = model.stack(x)
    for block, layer in zip(model.stack.blocks, model.stack.init_state(2).layers, strict=True):
        y, layer = block.mixer(block.norm(x), layer)
        x = x + y if residual else y
        again.append(layer)
    torch.testing.assert_close(features, model.stack.final_norm(x), rtol=0, atol=1e-12)
    assert all(torch.equal(a, b) for (_, a), (_, b) in zip(leaves(tuple(again)), leaves(state.layers), strict=True))


def test_dropout_stands_where_the_spec_says() -> None:
    """In training each kind changes the logits; evaluating, none does."""
    tokens = torch.randint(7, (2, 5), generator=torch.Generator().manual_seed(0))
    plain, _ = build("lstm", vocab=7, width=8).eval()(tokens)
    for option in ("dropout", "input_dropout", "embedding_dropout", "weight_drop", "zoneout"):
        model = build("lstm", vocab=7, width=8, **{option: 0.5})
        torch.manual_seed(0)
        assert not torch.equal(model(tokens)[0], model(tokens)[0]), option
        model.eval()
        assert torch.equal(model(tokens)[0], model(tokens)[0]), option
        if option != "zoneout":  # zoneout evaluates to its expectation, not to nothing
            assert torch.equal(model(tokens)[0], plain), option


def test_a_name_and_a_few_options_are_enough() -> None:
    model = build("lstm", vocab=65, width=32)
    logits, state = model(torch.randint(65, (2, 9)))
    assert logits.shape == (2, 9, 65)
    assert state_bytes(state) == 2 * 2 * 32 * 4
    assert count(model) == count(build(LSTMSpec(width=32), vocab=65))


def test_a_name_and_a_spec_build_the_same() -> None:
    by_name = build("gru", vocab=9, width=5, reset="before").state_dict()
    by_spec = build(GRUSpec(width=5, reset="before"), vocab=9).state_dict()
    assert all(torch.equal(by_name[key], by_spec[key]) for key in by_spec)
    by_recipe = build(parse_spec({"model": {"kind": "gru", "width": 5, "reset": "before"}}).model, vocab=9)
    assert all(torch.equal(by_name[key], value) for key, value in by_recipe.state_dict().items())


# What is refused.

REFUSALS = {
    "unknown model": (("lsmt",), {"vocab": 9}, r"'lsmt' is not known; did you mean 'lstm'\? valid: .*elman, .*lstm"),
    "unknown option": (("lstm",), {"vocab": 9, "widht": 3}, r"model\.widht: unknown key; did you mean 'width'\?"),
    "an option of another model": (("gru",), {"vocab": 9, "peephole": True}, r"model\.peephole: unknown key"),
    "no width": (("lstm",), {"vocab": 9, "width": 0}, r"model\.width = 0: .*greater than or equal to 1"),
    "no number": (("lstm",), {"vocab": 9, "width": "wide"}, r"model\.width = 'wide'"),
    "all dropped": (("lstm",), {"vocab": 9, "dropout": 1.0}, r"model\.dropout = 1\.0: .*less than 1"),
    "unknown kernel": (("lstm",), {"vocab": 9, "kernel": "fast"}, r"model\.kernel = 'fast': .*'naive'"),
    "wide projection": (
        ("lstm",),
        {"vocab": 9, "width": 4, "projection": 4},
        "projection 4 must be smaller than width 4",
    ),
    "unequal residual": (
        ("lstm",),
        {"vocab": 9, "width": 4, "embedding": 3, "residual": True},
        "embedding 3 is not the layer's output width 4",
    ),
    "options beside a spec": ((ElmanSpec(),), {"vocab": 9, "width": 3}, r"options \['width'\] go with a name"),
    "no vocabulary": (("lstm",), {"vocab": 0}, "vocab is 0, expected a whole number of at least 1"),
}


@pytest.mark.parametrize(("arguments", "options", "message"), REFUSALS.values(), ids=REFUSALS.keys())
def test_a_mistake_is_explained(arguments: tuple[object], options: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        build(*arguments, **options)


INPUTS = {
    "vectors for tokens": (torch.zeros(2, 3, 4, dtype=torch.int64), None, r"\[2, 3, 4\], expected .*\[batch, time\]"),
    "no time": (torch.zeros(2, 0, dtype=torch.int64), None, "expected a non-empty"),
    "no rows": (torch.zeros(0, 3, dtype=torch.int64), None, "expected a non-empty"),
    "lengths of another batch": (torch.zeros(2, 3, dtype=torch.int64), torch.tensor([1]), "2 whole numbers"),
    "broken lengths": (torch.zeros(2, 3, dtype=torch.int64), torch.tensor([1.0, 2.0]), "2 whole numbers"),
    "lengths of yes and no": (torch.zeros(2, 3, dtype=torch.int64), torch.tensor([True, False]), "got .*torch.bool"),
    "lengths in a list": (torch.zeros(2, 3, dtype=torch.int64), [1, 2], "a list, expected a tensor"),
    "a length below 0": (
        torch.zeros(2, 3, dtype=torch.int64),
        torch.tensor([3, -1]),
        "lengths hold -1, expected 0 to 3",
    ),
    "a length above T": (torch.zeros(2, 3, dtype=torch.int64), torch.tensor([4, 1]), "lengths hold 4, expected 0 to 3"),
    "lengths elsewhere": (
        torch.zeros(2, 3, dtype=torch.int64),
        torch.zeros(2, dtype=torch.int64, device="meta"),
        "lengths are on meta, expected cpu",
    ),
    "a token below 0": (torch.tensor([[0, 1], [-1, 2]]), None, "tokens hold -1, expected numbers from 0 to 8"),
    "a token above the vocabulary": (
        torch.tensor([[0, 9], [1, 2]]),
        None,
        "tokens hold 9, expected numbers from 0 to 8",
    ),
    "fractions of tokens": (torch.tensor([[0.0, 1.0]]), None, "tokens have type torch.float32, expected torch.int64"),
}


@pytest.mark.parametrize(("tokens", "lengths", "message"), INPUTS.values(), ids=INPUTS.keys())
def test_wrong_inputs_are_refused(tokens: torch.Tensor, lengths: torch.Tensor | None, message: str) -> None:
    for name in ("lstm", "transformer", "markov"):
        model = build(name, vocab=9, width=4) if name != "markov" else build(name, vocab=9)
        for read in (model, model.absorb):
            with pytest.raises(UserError, match=message):
                read(tokens, None, lengths)


def test_a_mixer_refuses_another_width() -> None:
    mixer = build("lstm", vocab=9, width=4).stack.blocks[0].mixer
    with pytest.raises(UserError, match="input has width 3, expected 4"):
        mixer(torch.zeros(1, 2, 3))
