"""The bidirectional Transformer encoder against torch.nn.TransformerEncoder, on full and on ragged rows."""

import pytest
import torch
from agreement import assert_same
from torch_layers import DEPTH, HEADS, WIDTH, copy_torch_layer, torch_encoder

from statewise.encoders import TransformerEncoder
from statewise.specs import UserError


@pytest.mark.parametrize("mlp", ["relu", "gelu"])
@pytest.mark.parametrize("norm_place", ["pre", "post"])
def test_encoder_against_torch_nn_on_ragged_rows(norm_place: str, mlp: str) -> None:
    theirs = torch_encoder(norm_place, mlp)
    ours = TransformerEncoder(
        WIDTH,
        depth=DEPTH,
        heads=HEADS,
        position="none",
        norm_place=norm_place,
        mlp=mlp,
    ).double()
    for layer, block in zip(theirs.layers, ours.layers, strict=True):
        copy_torch_layer(layer, block.mixer.heads, block.norm, block.mlp, block.mlp_norm)
    if theirs.norm is not None:
        ours.final_norm.load_state_dict(theirs.norm.state_dict())
    x = torch.randn(4, 7, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    assert_same(ours(x), theirs(x), tolerance=1e-10)
    lengths = torch.tensor([7, 3, 1, 5])
    padding = torch.arange(7) >= lengths[:, None]
    expected = theirs(x, src_key_padding_mask=padding).masked_fill(padding[:, :, None], 0.0)
    assert_same(ours(x, lengths), expected, tolerance=1e-10)
    for row, length in enumerate(lengths.tolist()):
        assert_same(ours(x, lengths)[row, :length], ours(x[row : row + 1, :length])[0], tolerance=1e-10)


@pytest.mark.parametrize("position", ["none", "learned", "sinusoidal", "rotary", "alibi"])
def test_rows_do_not_feel_their_padding(position: str) -> None:
    encoder = TransformerEncoder(WIDTH, depth=DEPTH, heads=HEADS, position=position, mlp="swiglu", norm="rms").double()
    x = torch.randn(3, 6, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    lengths = torch.tensor([6, 2, 0])
    broken = x.masked_fill((torch.arange(6) >= lengths[:, None])[:, :, None], torch.nan)
    y = encoder(broken, lengths)
    for row, length in ((0, 6), (1, 2)):
        assert_same(y[row, :length], encoder(x[row : row + 1, :length])[0])
        assert not y[row, length:].any()
    assert not y[2].any()


def test_an_input_longer_than_the_learned_positions_is_refused() -> None:
    encoder = TransformerEncoder(WIDTH, depth=1, heads=HEADS, position="learned", context=4)
    with pytest.raises(UserError, match="an input of 5 is longer than the 4 positions"):
        encoder(torch.zeros(1, 5, WIDTH))
