"""Readers: any model, one way or both, over any input; a row in a ragged batch is read as if it were alone."""

from typing import Any, get_args

import pytest
import torch
from covering import covered
from torch import Tensor, nn

from statewise.core import lens
from statewise.layers import Embedding
from statewise.models import Reader, build_reader
from statewise.specs import GRUSpec, LSTMSpec, MixerSpec, TransformerSpec, UserError
from statewise.specs.model import ShippedMixerSpec

VOCAB, WIDTH = 7, 8
LENGTHS = torch.tensor([5, 3, 0, 1])
DRESSED = {"residual": True, "norm": "layer", "mlp": "gelu"}

KINDS: dict[str, MixerSpec] = {
    spec.model_fields["kind"].default: spec(width=WIDTH, depth=2) for spec in get_args(ShippedMixerSpec)
}
VARIANTS: dict[str, MixerSpec] = {
    "dressed": GRUSpec(width=WIDTH, depth=2, **DRESSED),
    "dressed, post": GRUSpec(width=WIDTH, depth=2, norm_place="post", **DRESSED),
    "norm and mlp alone": GRUSpec(width=WIDTH, depth=2, norm="rms", mlp="swiglu"),
    "projected": LSTMSpec(width=WIDTH, depth=2, projection=3),
    "learned": TransformerSpec(width=WIDTH, heads=2, position="learned", context=6),
    "sinusoidal, post": TransformerSpec(width=WIDTH, heads=2, position="sinusoidal", norm_place="post"),
    "grouped": TransformerSpec(width=WIDTH, heads=2, kv_heads=1, position="alibi", norm="rms", bias=False),
    "bare": TransformerSpec(width=WIDTH, heads=2, residual=False, norm="none", mlp="none"),
}
SPECS = KINDS | VARIANTS
each_spec = pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
WAYS = {"one way": False, "both ways": True}
each_way = pytest.mark.parametrize("bidirectional", WAYS.values(), ids=WAYS.keys())


def over_tokens(spec: MixerSpec, **options: Any) -> Reader:
    generator = torch.Generator().manual_seed(0)
    entry = Embedding(VOCAB, spec.embedding_width, generator=generator)
    reader = build_reader(spec, entry=entry, entry_width=spec.embedding_width, generator=generator, **options)
    shake = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in reader.parameters():  # a bias at 0 would hide what it does past a row's end
            parameter += 0.1 * torch.randn(parameter.shape, generator=shake)
    return reader.double().eval()


def tokens(batch: int = 4, time: int = 5) -> Tensor:
    return torch.randint(VOCAB, (batch, time), generator=torch.Generator().manual_seed(2))


@covered("spec, bidirectional, summary", SPECS, WAYS, ["last", "mean", "max", "attention"])
def test_a_row_is_read_as_if_it_were_alone(spec: MixerSpec, bidirectional: bool, summary: str) -> None:
    """Outputs, summaries and the gradients of all parameters."""
    reader = over_tokens(spec, bidirectional=bidirectional, summary=summary)
    source_BS = tokens()
    parameters = [p for p in reader.parameters() if p.requires_grad]
    outputs_BSC, summary_BC, _ = reader(source_BS, LENGTHS)
    assert outputs_BSC.shape[-1] == summary_BC.shape[-1] == reader.width
    together = outputs_BSC.square().sum() + summary_BC.sin().sum()
    alone = together.new_zeros(())
    for row, length in enumerate(LENGTHS.tolist()):
        assert not outputs_BSC[row, length:].any()
        if length == 0:
            assert not summary_BC[row].any()
            continue
        one = reader(source_BS[row : row + 1, :length])
        torch.testing.assert_close(outputs_BSC[row : row + 1, :length], one.outputs_BSC, rtol=0, atol=1e-11)
        torch.testing.assert_close(summary_BC[row : row + 1], one.summary_BC, rtol=0, atol=1e-11)
        alone = alone + one.outputs_BSC.square().sum() + one.summary_BC.sin().sum()
    expected = torch.autograd.grad(alone, parameters, allow_unused=True)
    for got, wanted in zip(torch.autograd.grad(together, parameters, allow_unused=True), expected, strict=True):
        assert (got is None) == (wanted is None)
        if got is not None and wanted is not None:
            torch.testing.assert_close(got, wanted, rtol=1e-9, atol=1e-9)


@covered("spec, bidirectional", SPECS, WAYS, strength=1)
def test_its_width_is_that_of_its_spec(spec: MixerSpec, bidirectional: bool) -> None:
    for entry_width in (spec.embedding_width, 5):
        reader = build_reader(spec, entry=nn.Identity(), entry_width=entry_width, bidirectional=bidirectional)
        assert reader.width == spec.reader_output(bidirectional=bidirectional)
        assert reader(torch.zeros(2, 3, entry_width)).outputs_BSC.shape == (2, 3, reader.width)


class WordsAndCase(nn.Module):
    """A source of two tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.word, self.case = nn.Embedding(VOCAB, 5), nn.Embedding(2, 3)

    def forward(self, source: tuple[Tensor, Tensor]) -> Tensor:
        return torch.cat([self.word(source[0]), self.case(source[1])], dim=-1)


def test_anything_that_gives_vectors_can_enter() -> None:
    words = (tokens(), torch.randint(2, (4, 5)))
    tagged = build_reader(GRUSpec(width=6), entry=WordsAndCase(), entry_width=8, bidirectional=True)
    assert tagged(words, LENGTHS).outputs_BSC.shape == (4, 5, 12)
    series = build_reader(TransformerSpec(width=8, heads=2), entry=nn.Linear(2, 3), entry_width=3, bidirectional=True)
    assert series(torch.randn(4, 5, 2), LENGTHS).summary_BC.shape == (4, 8)


@each_way
def test_every_dropout_of_the_spec_is_there(bidirectional: bool) -> None:
    source_BS = tokens()
    for spec in (GRUSpec, TransformerSpec):
        for option in ("dropout", "input_dropout"):
            reader = over_tokens(spec(width=WIDTH, depth=1, **{option: 0.5}), bidirectional=bidirectional)
            plain = over_tokens(spec(width=WIDTH, depth=1), bidirectional=bidirectional)(source_BS).outputs_BSC
            assert torch.equal(reader(source_BS).outputs_BSC, plain)
            reader.train()
            torch.manual_seed(0)
            assert not torch.allclose(reader(source_BS).outputs_BSC, plain)


def test_a_lens_tells_its_reading_from_a_decoders_writing() -> None:
    for bidirectional in (False, True):
        reader = over_tokens(GRUSpec(width=4), bidirectional=bidirectional)
        with lens() as seen:
            reader(tokens())
        assert seen.names
        assert all(name.startswith("reader.") for name in seen.names)


def test_what_cannot_be_is_refused() -> None:
    spec = TransformerSpec(width=8, heads=2, window=3)
    with pytest.raises(UserError, match="window = 3 looks back only"):
        build_reader(spec, entry=nn.Identity(), entry_width=8, bidirectional=True)
    with pytest.raises(UserError, match="entry_width is 0"):
        build_reader(GRUSpec(), entry=nn.Identity(), entry_width=0)
    with pytest.raises(UserError, match="input has width 3, expected 4"):
        build_reader(GRUSpec(width=4), entry=nn.Identity(), entry_width=4)(torch.zeros(1, 2, 3))


@covered("spec, bidirectional", SPECS, WAYS, strength=1)
def test_what_padding_holds_does_not_matter(spec: MixerSpec, bidirectional: bool) -> None:
    """NaN among values: the same outputs, and gradients of the weights that enter."""
    entry = nn.Linear(3, spec.embedding_width)
    reader = build_reader(spec, entry=entry, entry_width=spec.embedding_width, bidirectional=bidirectional).eval()
    x_BSV = torch.randn(4, 5, 3)
    padded_BSV = x_BSV.masked_fill((torch.arange(5) >= LENGTHS[:, None])[..., None], torch.nan)
    found = []
    for source_BSV in (padded_BSV, x_BSV):
        outputs_BSC, summary_BC, _ = reader(source_BSV, LENGTHS)
        found.append([outputs_BSC, *torch.autograd.grad(summary_BC.square().sum(), entry.parameters())])
    torch.testing.assert_close(*found, rtol=0, atol=0)
