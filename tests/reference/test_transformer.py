"""Whole Transformers against torch.nn and `transformers`, with copied weights: at once, and step by step."""

import warnings
from typing import Any

import pytest
import torch
from agreement import assert_same, fill
from torch import Tensor, nn
from torch_layers import DEPTH, HEADS, WIDTH, copy_torch_layer, torch_encoder

from statewise.core import unroll
from statewise.decoding import Sampling, begin, extend
from statewise.models import LanguageModel, build

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its imports are its own business
    import transformers

VOCAB = 13


def tokens(batch: int, time: int) -> Tensor:
    return torch.randint(VOCAB, (batch, time), generator=torch.Generator().manual_seed(0))


def read_in_three_ways(model: LanguageModel, tokens_BT: Tensor) -> list[Tensor]:
    """In one go, in two parts, and token by token."""
    whole, _ = model(tokens_BT)
    first, state = model(tokens_BT[:, :3])
    second, _ = model(tokens_BT[:, 3:], state)
    stepped, _ = unroll(model.step, tokens_BT, model.init_state(len(tokens_BT)))
    return [whole, torch.cat([first, second], dim=1), stepped]


@pytest.mark.parametrize("mlp", ["relu", "gelu"])
@pytest.mark.parametrize("norm_place", ["pre", "post"])
def test_decoder_against_torch_nn(norm_place: str, mlp: str) -> None:
    theirs = torch_encoder(norm_place, mlp)
    ours = build(
        "transformer",
        vocab=VOCAB,
        width=WIDTH,
        depth=DEPTH,
        heads=HEADS,
        position="none",
        norm_place=norm_place,
        mlp=mlp,
    ).double()
    fill(ours)
    for layer, block in zip(theirs.layers, ours.stack.blocks, strict=True):
        copy_torch_layer(layer, block.mixer.heads, block.norm, block.mlp, block.mlp_norm)
    if theirs.norm is not None:
        ours.stack.final_norm.load_state_dict(theirs.norm.state_dict())
    tokens_BT = tokens(2, 8)
    future = torch.ones(8, 8, dtype=torch.bool).triu(1)
    expected = ours.head(theirs(ours.embedding(tokens_BT), mask=future))
    for logits in read_in_three_ways(ours, tokens_BT):
        assert_same(logits, expected, tolerance=1e-10)


def test_gpt2() -> None:
    config = transformers.GPT2Config(
        vocab_size=VOCAB, n_positions=20, n_embd=WIDTH, n_layer=DEPTH, n_head=HEADS, bos_token_id=0, eos_token_id=0
    )
    theirs = transformers.GPT2LMHeadModel(config).double().eval()
    fill(theirs, scale=0.3)
    ours = build(
        "transformer",
        vocab=VOCAB,
        width=WIDTH,
        depth=DEPTH,
        heads=HEADS,
        position="learned",
        context=20,
        tie=True,
    ).double()
    with torch.no_grad():
        ours.embedding.weight.copy_(theirs.transformer.wte.weight)
        ours.stack.position.weight_PD.copy_(theirs.transformer.wpe.weight)
        for block, layer in zip(ours.stack.blocks, theirs.transformer.h, strict=True):
            heads: Any = block.mixer.heads
            # GPT-2 keeps its matrices transposed.
            heads.w_PI.copy_(layer.attn.c_attn.weight.T)
            heads.b_P.copy_(layer.attn.c_attn.bias)
            heads.o_DD.copy_(layer.attn.c_proj.weight.T)
            heads.b_D.copy_(layer.attn.c_proj.bias)
            block.norm.load_state_dict(layer.ln_1.state_dict())
            block.mlp_norm.load_state_dict(layer.ln_2.state_dict())
            mlp: Any = block.mlp
            mlp.up.weight.copy_(layer.mlp.c_fc.weight.T)
            mlp.up.bias.copy_(layer.mlp.c_fc.bias)
            mlp.down.weight.copy_(layer.mlp.c_proj.weight.T)
            mlp.down.bias.copy_(layer.mlp.c_proj.bias)
        ours.stack.final_norm.load_state_dict(theirs.transformer.ln_f.state_dict())
    tokens_BT = tokens(3, 9)
    expected = theirs(tokens_BT).logits
    for logits in read_in_three_ways(ours, tokens_BT):
        assert_same(logits, expected, tolerance=1e-10)


def llama_pair(dtype: torch.dtype, *, base: float = 1e4, epsilon: float = 1e-6) -> tuple[LanguageModel, Any]:
    config = transformers.LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=24,
        intermediate_size=40,
        num_hidden_layers=DEPTH,
        num_attention_heads=6,
        num_key_value_heads=2,
        max_position_embeddings=64,
        rope_parameters={"rope_type": "default", "rope_theta": base},
        rms_norm_eps=epsilon,
        bos_token_id=0,
        eos_token_id=0,
    )
    theirs = transformers.LlamaForCausalLM(config).to(dtype).eval()
    fill(theirs, scale=0.3)
    ours = build(
        "transformer",
        vocab=VOCAB,
        width=24,
        depth=DEPTH,
        heads=6,
        kv_heads=2,
        position="rotary",
        rotary_base=base,
        norm="rms",
        norm_epsilon=epsilon,
        mlp="swiglu",
        mlp_ratio=40 / 24,
        bias=False,
    ).to(dtype)
    with torch.no_grad():
        ours.embedding.weight.copy_(theirs.model.embed_tokens.weight)
        ours.head.weight_VE.copy_(theirs.lm_head.weight)
        for block, layer in zip(ours.stack.blocks, theirs.model.layers, strict=True):
            heads: Any = block.mixer.heads
            attn = layer.self_attn
            heads.w_PI.copy_(torch.cat([attn.q_proj.weight, attn.k_proj.weight, attn.v_proj.weight]))
            heads.o_DD.copy_(attn.o_proj.weight)
            block.norm.weight.copy_(layer.input_layernorm.weight)
            block.mlp_norm.weight.copy_(layer.post_attention_layernorm.weight)
            mlp: Any = block.mlp
            mlp.up.weight.copy_(torch.cat([layer.mlp.gate_proj.weight, layer.mlp.up_proj.weight]))
            mlp.down.weight.copy_(layer.mlp.down_proj.weight)
        ours.stack.final_norm.weight.copy_(theirs.model.norm.weight)
    return ours, theirs


@pytest.mark.parametrize(("base", "epsilon"), [(1e4, 1e-6), (5e5, 1e-2)], ids=["usual", "other base and epsilon"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-6)], ids=str)
def test_llama(dtype: torch.dtype, tolerance: float, base: float, epsilon: float) -> None:
    """In float64 the oracle still takes its cosines and norms in float32: hence no tighter."""
    ours, theirs = llama_pair(dtype, base=base, epsilon=epsilon)
    tokens_BT = tokens(3, 12)
    expected = theirs(tokens_BT).logits
    for logits in read_in_three_ways(ours, tokens_BT):
        assert_same(logits, expected, tolerance=tolerance)


def test_greedy_with_a_repetition_penalty() -> None:
    """Every token of the prompt counts as seen, the first one too."""
    ours, theirs = llama_pair(torch.float32)
    prompt_BT = torch.cat([torch.arange(36)[:, None] % VOCAB, tokens(36, 4)], dim=1)
    settings = {"do_sample": False, "repetition_penalty": 1.3, "max_new_tokens": 20, "eos_token_id": None}
    with torch.no_grad():
        expected_BT = theirs.generate(prompt_BT, attention_mask=torch.ones_like(prompt_BT), **settings)
    at = begin(ours.eval(), prompt_BT, vocab=VOCAB)
    written_BT, _ = extend(ours, at, Sampling(temperature=0, repetition=1.3), tokens=20)
    assert torch.equal(written_BT, expected_BT[:, 5:])


def test_llama_with_its_cosines_and_norms_in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = llama_pair(torch.float64)
    for norm in [m for m in theirs.modules() if type(m).__name__ == "LlamaRMSNorm"]:
        wide = nn.RMSNorm(24, eps=norm.variance_epsilon, dtype=torch.float64)
        wide.load_state_dict(norm.state_dict())
        monkeypatch.setattr(norm, "forward", wide.forward)

    def exact(x: Tensor, position_ids: Tensor, **_: Any) -> tuple[Tensor, Tensor]:
        theta = 10_000.0 ** (-torch.arange(0, 4, 2, dtype=torch.float64) / 4)
        angles = position_ids[:, :, None] * torch.cat([theta, theta])
        return angles.cos(), angles.sin()

    monkeypatch.setattr(theirs.model.rotary_emb, "forward", exact)
    tokens_BT = tokens(3, 12)
    expected = theirs(tokens_BT).logits
    for logits in read_in_three_ways(ours, tokens_BT):
        assert_same(logits, expected, tolerance=1e-10)
