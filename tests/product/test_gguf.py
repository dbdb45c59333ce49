"""GGUF files of runs, read back by `gguf`; docs/interop.md has the comparison with llama.cpp itself."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import call

import statewise as sw
from statewise.interop import export_gguf
from statewise.training.progress import Silent

gguf = pytest.importorskip("gguf")
TEXT = "the cat sat on the mat, naïve café: 12 dogs sat on 345 logs.\n" * 60


def scaling(**table: Any) -> dict[str, Any]:
    return {f"model.rotary_scaling.{name}": value for name, value in table.items()}


LLAMA: dict[str, Any] = {
    "model.width": 32, "model.heads": 4, "model.kv_heads": 2, "model.norm": "rms", "model.mlp": "swiglu",
    "model.bias": False, "model.head_bias": False,
}  # fmt: skip
RECIPES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("transformer", LLAMA),
    "llama-llama3": (
        "transformer",
        {
            **LLAMA,
            "model.rotary_base": 100.0,
            **scaling(kind="llama3", factor=4, context=16, slow=0.2, fast=2),
        },
    ),
    "qwen3": ("transformer", {**LLAMA, "model.query_key_norm": True}),
    "gpt2": ("transformer", {"model.width": 32, "model.position": "learned", "model.tie": True,
                             "model.head_bias": False, "model.context": 64}),
    "mamba2": ("mamba2", {"model.width": 32, "model.skip": "head", "model.norm_epsilon": 1e-5,
                          "model.head_bias": False}),
}  # fmt: skip


def trained(folder: Path, name: str, tokenizer: str = "bpe") -> Any:
    recipe, settings = RECIPES[name]
    (folder / "text.txt").write_text(TEXT, encoding="utf-8")
    small = {"data.tokenizer": tokenizer, "train.batch": 2, "train.window": 16, "train.evaluate_tokens": 50, **settings}
    if tokenizer == "bpe":
        small["data.vocab"] = 290
    path = folder / "run"
    return sw.train(
        recipe, data=folder / "text.txt", steps=2, settings=small, out=path, display=Silent(), device="cpu"
    ).load()


def both(folder: Path, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The tensors of the file, and those of the run."""
    run = trained(folder, name)
    reader = gguf.GGUFReader(export_gguf(run, folder / "out"))
    assert reader.fields["general.architecture"].contents() == name.partition("-")[0]
    stored = {tensor.name: tensor.data for tensor in reader.tensors}
    weights = {key: value.detach().numpy() for key, value in run.model.state_dict().items()}
    assert np.array_equal(stored["token_embd.weight"], weights["embedding.weight"])
    return stored, weights


def fields(file: Path) -> dict[str, Any]:
    return {name: field.contents() for name, field in gguf.GGUFReader(file).fields.items()}


def test_tensors_of_a_llama(tmp_path: Path) -> None:
    """Rotary pairs stand side by side, and the slower turns of Llama 3.1 are a tensor."""
    stored, weights = both(tmp_path, "llama-llama3")
    stacked = weights["stack.blocks.1.mixer.heads.w_PI"]
    for name, heads, begin in (("q", 4, 0), ("k", 2, 32)):
        for head, pair, part in np.ndindex(heads, 4, 2):
            ours = stacked[begin + 8 * head + 4 * part + pair]
            assert np.array_equal(stored[f"blk.1.attn_{name}.weight"][8 * head + 2 * pair + part], ours)
    assert np.array_equal(stored["blk.1.attn_v.weight"], stacked[48:])
    gate, up = np.split(weights["stack.blocks.1.mlp.up.weight"], 2)
    assert np.array_equal(stored["blk.1.ffn_gate.weight"], gate)
    assert np.array_equal(stored["blk.1.ffn_up.weight"], up)
    assert np.array_equal(stored["output.weight"], weights["head.weight_VE"])
    turns = 16 * 100.0 ** (-np.arange(4) / 4) / (2 * np.pi)
    kept = np.clip((turns - 0.2) / 1.8, 0, 1)
    assert np.allclose(stored["rope_freqs.weight"], 1 / (kept + (1 - kept) / 4), atol=1e-6)


def test_tensors_of_a_qwen3_and_a_gpt2(tmp_path: Path) -> None:
    for name, matrix, rows in (("qwen3", "blk.1.attn_q.weight", 32), ("gpt2", "blk.1.attn_qkv.weight", 96)):
        folder = tmp_path / name
        folder.mkdir()
        stored, weights = both(folder, name)
        assert np.array_equal(stored[matrix], weights["stack.blocks.1.mixer.heads.w_PI"][:rows])
        assert ("output.weight" in stored) == (name == "qwen3")  # the other is tied
    assert np.array_equal(stored["position_embd.weight"], weights["stack.position.weight_PD"])
    assert np.array_equal(stored["blk.0.ffn_up.weight"], weights["stack.blocks.0.mlp.up.weight"])


def test_tensors_of_a_mamba2(tmp_path: Path) -> None:
    stored, weights = both(tmp_path, "mamba2")
    at = "stack.blocks.1.mixer."
    assert np.allclose(stored["blk.1.ssm_a"][:, 0], -np.exp(weights[f"{at}log_rate_H"]))
    assert np.array_equal(stored["blk.1.ssm_d"][:, 0], weights[f"{at}skip_H"])
    assert np.array_equal(stored["blk.1.ssm_conv1d.weight"], weights[f"{at}w_conv_CK"])
    assert not stored["blk.1.ssm_conv1d.bias"].any()
    parts = [weights[f"{at}{part}"] for part in ("w_gate_EI", "w_CI", "w_step_HI")]
    assert np.array_equal(stored["blk.1.ssm_in.weight"], np.concatenate(parts))


@pytest.mark.parametrize("kind", ["bpe", "byte", "char"])
def test_vocabularies(kind: str, tmp_path: Path) -> None:
    """Every token spells the bytes of its text; characters of several bytes are merged of them."""
    run = trained(tmp_path, "llama", kind)
    said = fields(export_gguf(run, tmp_path / "out"))
    assert (said["tokenizer.ggml.model"], said["tokenizer.ggml.pre"]) == ("gpt2", "gpt-2")
    tokens, types = said["tokenizer.ggml.tokens"], said["tokenizer.ggml.token_type"]
    assert said["tokenizer.ggml.bos_token_id"] == said["tokenizer.ggml.eos_token_id"] == run.tokenizer.end_id
    letters = {letter: byte for byte, letter in enumerate(sw.data.byte_characters())}
    for text in ("the cat", "naïve", "é: 12\n"):
        ids = run.tokenizer.encode(text)
        spelled = bytes(letters[letter] for i in ids for letter in tokens[i])
        assert spelled.decode() == text
    assert types[run.tokenizer.end_id] == gguf.TokenType.CONTROL
    merges = said["tokenizer.ggml.merges"]
    if kind == "char":
        first, second = (sw.data.byte_characters()[byte] for byte in "é".encode())
        assert f"{first} {second}" in merges
    if kind == "byte":
        assert merges == ["<end> <end>"]


def test_the_command(tmp_path: Path) -> None:
    run = trained(tmp_path, "llama")
    said = call("export", str(run.path), "--to", "gguf", "--out", str(tmp_path / "out"), "--json")
    assert said.code == 0, said.err
    assert json.loads(said.out)["bytes"] == (tmp_path / "out/model.gguf").stat().st_size


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"data.tokenizer": "word"}, "this tokenizer has no form in GGUF"),
        ({"model.window": 5}, "llama.cpp knows no window of it"),
        ({"model.head_bias": True}, r"model\.head_bias = false \(it is true\)"),
        (
            scaling(kind="yarn", factor=2, context=16, slow=2),
            "yarn with slow = 1 and fast = 32 only",
        ),
    ],
    ids=str,
)
def test_what_has_no_form_is_refused(
    settings: dict[str, Any], complaint: str, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setitem(RECIPES, "llama", ("transformer", {**LLAMA, **settings}))
    run = trained(tmp_path, "llama", settings.get("data.tokenizer", "bpe"))
    with pytest.raises(sw.UserError, match=complaint):
        export_gguf(run, tmp_path / "out")
    assert not (tmp_path / "out").exists()
