"""Folders that are wrong, cut off or hostile: refused with a message that says what is wrong, in bounded memory."""

import json
import resource
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import statewise as sw
from statewise.specs import UserError
from statewise.training.progress import Silent

MOST = 200 << 10  # KiB more of memory than before, whatever the folder claims to hold
Spoil = Callable[[Path], None]
Cases = dict[str, tuple[Spoil, str]]
TEXT = "the cat sat on the mat and the dog sat on the log while the rain in spain fell mainly on the plain "
FOLDERS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": (
        "transformer",
        {"model.heads": 4, "model.kv_heads": 2, "model.norm": "rms", "model.mlp": "swiglu", "model.bias": False},
    ),
    "gpt2": ("transformer", {"model.heads": 4, "model.position": "learned", "model.tie": True, "model.context": 64}),
    "mamba2": ("mamba2", {"model.skip": "head", "model.norm_epsilon": 1e-5}),
    "statewise": ("lstm", {}),
}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A folder that can be imported, of each family."""
    made: dict[str, Path] = {}

    def make(name: str) -> Path:
        if name not in made:
            folder = tmp_path_factory.mktemp(name)
            recipe, settings = FOLDERS[name]
            small = {
                "model.width": 32, "model.head_bias": False, "model.depth": 2, "data.tokenizer": "bpe",
                "data.vocab": 290, "train.batch": 2, "train.window": 8, "train.evaluate_tokens": 50, **settings,
            }  # fmt: skip
            (folder / "text.txt").write_text(TEXT * 30)
            run = sw.train(
                recipe, data=folder / "text.txt", steps=1, settings=small, out=folder / "run", display=Silent()
            ).load()
            made[name] = sw.export_hugging_face(run, folder / "hf", native=name != "statewise")
            sw.from_pretrained(made[name], out=folder / "again", device="cpu")
        return made[name]

    return make


def _config(change: Callable[[dict[str, Any]], Any]) -> Spoil:
    def spoil(folder: Path) -> None:
        table = json.loads((folder / "config.json").read_text())
        change(table)
        (folder / "config.json").write_text(json.dumps(table))

    return spoil


def _tensors(change: Callable[[dict[str, torch.Tensor]], Any]) -> Spoil:
    def spoil(folder: Path) -> None:
        tensors = load_file(folder / "model.safetensors")
        change(tensors)
        save_file(tensors, folder / "model.safetensors")

    return spoil


def _sharded(index: Any, *, remove: bool = True) -> Spoil:
    def spoil(folder: Path) -> None:
        if remove:
            (folder / "model.safetensors").rename(folder / "part.safetensors")
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))

    return spoil


def _file(name: str, data: bytes | None) -> Spoil:
    def spoil(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        if data is not None:
            (folder / name).write_bytes(data)

    return spoil


def _pickled(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    torch.save({"a": torch.ones(2)}, folder / "pytorch_model.bin")


def _truncated(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def _set(**changes: Any) -> Spoil:
    return _config(lambda table: table.update(changes))


def _scaled(kind: Any, **more: Any) -> Spoil:
    return _set(rope_scaling={"rope_type": kind, "factor": 4, "original_max_position_embeddings": 16, **more})


def _folder(name: str) -> Spoil:
    def spoil(folder: Path) -> None:
        (folder / name).unlink()
        (folder / name).mkdir()

    return spoil


def _circle(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").symlink_to("model.safetensors")


def _header(text: bytes) -> Spoil:
    return _file("model.safetensors", len(text).to_bytes(8, "little") + text)


def _entry(offsets: list[int], shape: list[int], *, dtype: str = "F32") -> Spoil:
    text = json.dumps({"a": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}).encode()
    return _file("model.safetensors", len(text).to_bytes(8, "little") + text + bytes(8))


def _sparse(name: str, size: int) -> Spoil:
    def spoil(folder: Path) -> None:
        with (folder / name).open("wb") as file:
            file.truncate(size)

    return spoil


def _twice(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "model-1.safetensors")
    shutil.copy(folder / "model-1.safetensors", folder / "model-2.safetensors")


def _spelled(change: Callable[[dict[str, Any]], Any]) -> Spoil:
    def spoil(folder: Path) -> None:
        table = json.loads((folder / "tokenizer.json").read_text())
        change(table)
        (folder / "tokenizer.json").write_text(json.dumps(table))

    return spoil


def _no_end(table: dict[str, Any]) -> None:
    table["model"]["vocab"]["nothing"] = table["model"]["vocab"].pop("<end>")


_Q = "model.layers.0.self_attn.q_proj.weight"
LLAMA: Cases = {
    "no config, no layers": (_file("config.json", None), "no config.json, and its tensors are not those"),
    "config is not JSON": (_file("config.json", b"{"), "cannot be read"),
    "config is a list": (_file("config.json", b"[]"), "expected a table"),
    "config is deep": (_file("config.json", b"[" * 100_000), "cannot be read"),
    "config is large": (_file("config.json", b" " * (1 << 21)), "cannot be read"),
    "config is bytes": (_file("config.json", b"\xff\xfe\x00"), "cannot be read"),
    "no model_type": (_config(lambda c: c.pop("model_type")), "model_type is None"),
    "unknown model_type": (_config(lambda c: c.update(model_type="bert")), "model_type is 'bert'"),
    "model_type is a list": (_config(lambda c: c.update(model_type=["llama"])), r"model_type is \['llama'\]"),
    "no width": (_config(lambda c: c.pop("hidden_size")), "has no hidden_size"),
    "width is text": (_config(lambda c: c.update(hidden_size="32")), "hidden_size is '32', expected a number"),
    "width is 0": (_config(lambda c: c.update(hidden_size=0)), "hidden_size is 0, expected a number above 0"),
    "width is negative": (_config(lambda c: c.update(hidden_size=-32)), "hidden_size is -32"),
    "width is a fraction": (_config(lambda c: c.update(hidden_size=32.5)), "expected a whole number"),
    "width is true": (_config(lambda c: c.update(hidden_size=True)), "hidden_size is True"),
    "width is endless": (_config(lambda c: c.update(hidden_size=1e300)), "hidden_size is 1e"),
    "width is another": (_config(lambda c: c.update(hidden_size=64)), "config.json does not fit"),
    "width is huge": (_config(lambda c: c.update(hidden_size=1 << 20)), "config.json does not fit"),
    "too many layers": (_config(lambda c: c.update(num_hidden_layers=3)), "the files have no model.layers.2"),
    "a billion layers": (_config(lambda c: c.update(num_hidden_layers=10**9)), "num_hidden_layers|depth|layers"),
    "too few layers": (_config(lambda c: c.update(num_hidden_layers=1)), "the files hold model.layers.1"),
    "heads do not fit": (_config(lambda c: c.update(num_attention_heads=7, head_dim=None)), "has no head_dim"),
    "kv heads do not fit": (_config(lambda c: c.update(num_key_value_heads=3)), "kv_heads 3"),
    "other heads": (_config(lambda c: c.update(num_key_value_heads=4)), "rows, where config.json needs"),
    "other activation": (_config(lambda c: c.update(hidden_act="relu")), "hidden_act is 'relu'"),
    "scaled positions": (
        _config(lambda c: c.update(rope_parameters={"rope_type": "longrope", "rope_theta": 1e4})),
        "rotary positions of type 'longrope'",
    ),
    "positions are text": (_config(lambda c: c.update(rope_parameters="yarn")), "expected a table"),
    "tie is text": (_config(lambda c: c.update(tie_word_embeddings="yes")), "expected true or false"),
    "vocabulary too small": (_config(lambda c: c.update(vocab_size=100)), "a vocabulary of 100"),
    "no vocabulary": (_config(lambda c: c.pop("vocab_size")), "has no vocab_size"),
    "no weights": (_file("model.safetensors", None), "has no \\*.safetensors"),
    "weights are empty": (_file("model.safetensors", b""), "not a whole safetensors file"),
    "weights are noise": (_file("model.safetensors", bytes(range(256)) * 40), "not a whole safetensors file"),
    "weights are cut": (_truncated, "not a whole safetensors file"),
    "a header of 10 GB": (
        _file("model.safetensors", (10 << 30).to_bytes(8, "little") + b"{}"),
        "not a whole safetensors file",
    ),
    "weights are pickled": (_pickled, "to open a pickle is to run what it says"),
    "a missing tensor": (_tensors(lambda t: t.pop(_Q)), f"the files have no {_Q}"),
    "one more tensor": (_tensors(lambda t: t.update(extra=torch.ones(3))), "the files hold extra"),
    "another shape": (_tensors(lambda t: t.update({_Q: torch.ones(8, 8)})), "config.json does not fit"),
    "a scalar": (_tensors(lambda t: t.update({_Q: torch.tensor(1.0)})), "config.json does not fit"),
    "whole numbers": (_tensors(lambda t: t.update({_Q: torch.ones(32, 32, dtype=torch.int8)})), "is int8"),
    "a short embedding": (
        _tensors(lambda t: t.update({"model.embed_tokens.weight": torch.ones(10, 32)})),
        "10 rows, where config.json needs",
    ),
    "index without a map": (_sharded({}), "has no weight_map"),
    "index is a list": (_sharded([]), "expected a table"),
    "index leads outside": (_sharded({"weight_map": {"a": "../part.safetensors"}}), "in the same folder"),
    "index is absolute": (_sharded({"weight_map": {"a": "/etc/passwd"}}), "in the same folder"),
    "index names a pickle": (_sharded({"weight_map": {"a": "part.bin"}}), "expected a .safetensors file"),
    "a missing shard": (_sharded({"weight_map": {"a": "other.safetensors"}}), "has no other.safetensors"),
    "index names a number": (_sharded({"weight_map": {"a": 3}}), "names '3'"),
    "no tokenizer": (_file("tokenizer.json", None), "has no tokenizer.json"),
    "tokenizer is noise": (_file("tokenizer.json", b"\x00\x01"), "tokenizer"),
    "tokenizer is another table": (_file("tokenizer.json", b"{}"), "not a valid tokenizer.json"),
    "config is a folder": (_folder("config.json"), "no config.json|cannot be read"),
    "config is empty": (_file("config.json", b""), "cannot be read"),
    "config is null": (_file("config.json", b"null"), "expected a table"),
    "config is UTF-16": (_file("config.json", "{}".encode("utf-16")), "cannot be read"),
    "model_type is a number": (_set(model_type=7), "model_type is 7"),
    "vocabulary is text": (_set(vocab_size="300"), "vocab_size is '300', expected a number"),
    "vocabulary is negative": (_set(vocab_size=-300), "vocab_size is -300"),
    "vocabulary is a fraction": (_set(vocab_size=300.5), "expected a whole number"),
    "no layers": (_set(num_hidden_layers=0), "num_hidden_layers is 0"),
    "layers are text": (_set(num_hidden_layers="two"), "num_hidden_layers is 'two'"),
    "half a layer": (_set(num_hidden_layers=1.5), "expected a whole number"),
    "no heads": (_set(num_attention_heads=0), "num_attention_heads is 0"),
    "a billion heads": (_set(num_attention_heads=10**9), "heads|too large"),
    "no kv heads": (_set(num_key_value_heads=0), "num_key_value_heads is 0"),
    "no width of a head": (_set(head_dim=0), "head_dim is 0"),
    "other width of a head": (_set(head_dim=10), "rows, where config.json needs|does not fit"),
    "no width of the MLP": (_config(lambda c: c.pop("intermediate_size")), "has no intermediate_size"),
    "another width of the MLP": (_set(intermediate_size=64), "config.json"),
    "a huge MLP": (_set(intermediate_size=10**11), "mlp_ratio|too large"),
    "epsilon is negative": (_set(rms_norm_eps=-1e-6), "rms_norm_eps is -1e-06"),
    "epsilon is text": (_set(rms_norm_eps="1e-6"), "rms_norm_eps is '1e-6'"),
    "epsilon is large": (_set(rms_norm_eps=5), "norm_epsilon"),
    "base is 0": (_set(rope_theta=0), "rope_theta is 0, expected a number above 1"),
    "base is text": (_set(rope_theta="big"), "rope_theta is 'big'"),
    "base is endless": (_set(rope_theta=float("inf")), "cannot be read|rope_theta is inf"),
    "base is no number": (_set(rope_theta=float("nan")), "cannot be read|rope_theta is nan"),
    "scaling is a list": (_set(rope_scaling=[4]), "rope_scaling is \\[4\\], expected a table"),
    "scaling of a list": (_scaled(["yarn"]), "rotary positions of type \\['yarn'\\]"),
    "scaling without a factor": (_set(rope_scaling={"rope_type": "linear"}), "has no factor"),
    "scaling makes faster": (_scaled("linear", factor=0.5), "factor"),
    "scaling by a text": (_scaled("linear", factor="4"), "factor is '4'"),
    "scaling of half a context": (_scaled("llama3", original_max_position_embeddings=16.5), "a whole number"),
    "scaling upside down": (_scaled("yarn", beta_slow=32, beta_fast=1), "must be less than"),
    "scaling with its own factor": (_scaled("yarn", attention_factor=2.0), "attention_factor is 2.0"),
    "part of a head turns": (_scaled("llama3", partial_rotary_factor=0.5), "partial_rotary_factor is 0.5"),
    "tensors in parts": (_set(pretraining_tp=2), "pretraining_tp is 2"),
    "bias is text": (_set(mlp_bias="no"), "mlp_bias is 'no', expected true or false"),
    "window is text": (_set(model_type="mistral", sliding_window="5"), "sliding_window is '5'"),
    "a window in some layers": (
        _set(model_type="qwen2", use_sliding_window=True, sliding_window=4, max_window_layers=1),
        "max_window_layers is 1",
    ),
    "weights are a folder": (_folder("model.safetensors"), "has no \\*.safetensors"),
    "weights lead in a circle": (_circle, "has no \\*.safetensors"),
    "an empty header": (_header(b""), "not a whole safetensors file"),
    "a header that is no JSON": (_header(b"{x}"), "not a whole safetensors file"),
    "a header of a list": (_header(b"[]"), "not a whole safetensors file"),
    "a deep header": (_header(b'{"a":' * 50_000), "not a whole safetensors file"),
    "a header of 90 MB": (_header(b" " * 90_000_000), "not a whole safetensors file"),
    "offsets beyond the end": (_entry([0, 1 << 40], [1 << 38]), "not a whole safetensors file"),
    "offsets backwards": (_entry([8, 0], [2]), "not a whole safetensors file"),
    "a negative shape": (_entry([0, 8], [-2]), "not a whole safetensors file"),
    "a shape that overflows": (_entry([0, 8], [1 << 33, 1 << 33]), "not a whole safetensors file"),
    "an unknown number": (_entry([0, 8], [2], dtype="F7"), "not a whole safetensors file"),
    "eight bits": (_tensors(lambda t: t.update({_Q: torch.ones(32, 32).to(torch.float8_e4m3fn)})), "is float8_e4m3fn"),
    "truth values": (_tensors(lambda t: t.update({_Q: torch.ones(32, 32, dtype=torch.bool)})), "is bool"),
    "complex numbers": (_tensors(lambda t: t.update({_Q: torch.ones(32, 32, dtype=torch.complex64)})), "is complex64"),
    "three dimensions": (_tensors(lambda t: t.update({_Q: torch.ones(32, 32, 1)})), "config.json does not fit"),
    "an empty matrix": (_tensors(lambda t: t.update({_Q: torch.ones(0, 32)})), "rows, where config.json needs"),
    "no embedding": (_tensors(lambda t: t.pop("model.embed_tokens.weight")), "the files have no model.embed_tokens"),
    "no head": (_tensors(lambda t: t.pop("lm_head.weight")), "the files have no lm_head.weight"),
    "no last norm": (_tensors(lambda t: t.pop("model.norm.weight")), "the files have no model.norm.weight"),
    "two files with one name": (_twice, "is in two files"),
    "index is not JSON": (_file("model.safetensors.index.json", b"{"), "cannot be read"),
    "index is deep": (_file("model.safetensors.index.json", b"[" * 100_000), "cannot be read"),
    "index is large": (_sparse("model.safetensors.index.json", 1 << 27), "cannot be read"),
    "index with a list": (_sharded({"weight_map": ["part.safetensors"]}), "has no weight_map"),
    "index with an empty map": (_sharded({"weight_map": {}}), "has no weight_map"),
    "index leads inside": (_sharded({"weight_map": {"a": "sub/part.safetensors"}}), "in the same folder"),
    "index with an empty name": (_sharded({"weight_map": {"a": ""}}), "names ''"),
    "index with nothing": (_sharded({"weight_map": {"a": None}}), "names 'None'"),
    "index with a zero byte": (_sharded({"weight_map": {"a": "\0.safetensors"}}), "has no|cannot|zero"),
    "index names half": (_sharded({"weight_map": {"a": "part.safetensors", "b": "part2.safetensors"}}), "has no part2"),
    "tokenizer is empty": (_file("tokenizer.json", b""), "tokenizer"),
    "tokenizer is a list": (_file("tokenizer.json", b"[]"), "tokenizer"),
    "tokenizer is deep": (_file("tokenizer.json", b"[" * 100_000), "tokenizer"),
    "tokenizer is large": (_sparse("tokenizer.json", 1 << 27), "tokenizer"),
    "tokenizer of another kind": (_spelled(lambda t: t["model"].update(type="Magic")), "tokenizer"),
    "tokenizer without an end": (_spelled(_no_end), "has no special token that ends a text"),
    "tokenizer with one id twice": (_spelled(lambda t: t["model"]["vocab"].update({"twice": 5})), "ids|tokenizer"),
    "tokenizer with a far id": (_spelled(lambda t: t["model"]["vocab"].update({"far": 10**9})), "vocabulary|ids"),
    "tokenizer that is too large": (_spelled(lambda t: t["model"]["vocab"].update({"more": 290})), "a vocabulary of"),
    "tokenizer merges what is not there": (_spelled(lambda t: t["model"]["merges"].append(["qq", "zz"])), "tokenizer"),
}
GPT2: Cases = {
    "no width": (_config(lambda c: c.pop("n_embd")), "has no n_embd"),
    "another activation": (_set(activation_function="relu"), "activation_function is 'relu'"),
    "cross-attention": (_set(add_cross_attention=True), "add_cross_attention is True"),
    "other scores": (_set(scale_attn_by_inverse_layer_idx=True), "scale_attn_by_inverse_layer_idx is True"),
    "heads do not fit": (_set(n_head=5), "heads"),
    "more positions": (_set(n_positions=65), "wpe.weight: 64 rows|wpe"),
    "no positions": (_set(n_positions=0), "n_positions is 0"),
    "a wide MLP": (_set(n_inner=7), "config.json"),
    "tied with another head": (_tensors(lambda t: t.update({"head.weight": torch.ones(3, 3)})), "the files hold"),
}
MAMBA2: Cases = {
    "several groups": (_set(n_groups=2), "n_groups is 2"),
    "biases": (_set(use_bias=True), "use_bias is True"),
    "a limit of the step": (_set(time_step_limit=[0.1, 1.0]), "time_step_limit is"),
    "a limit that is text": (_set(time_step_limit="none"), "time_step_limit is 'none'"),
    "heads do not fit": (_set(num_heads=3), "heads of"),
    "another epsilon": (_set(layer_norm_epsilon=1e-3), "layer_norm_epsilon is 0.001"),
    "another state": (_set(state_size=7), "config.json"),
    "another convolution": (_set(conv_kernel=3), "config.json"),
    "a wide inside": (_set(expand=10**6), "heads of|too large"),
}
OWN: Cases = {
    "no settings": (_config(lambda c: c.pop("spec")), "not valid"),
    "settings are a list": (_set(spec=[1]), "not valid"),
    "an unknown kind": (_set(spec={"kind": "magic"}), "magic"),
    "counts": (_set(spec={"kind": "markov"}), "describes no language model with weights"),
    "a user's class": (_set(spec={"kind": "custom", "name": "os.system"}), "does not say which mixer class it needs"),
    "a billion layers": (_set(spec={"kind": "lstm", "depth": 10**9}), "depth|more layers"),
    "another width": (_set(spec={"kind": "lstm", "width": 16}), "has shape"),
    "an unknown setting": (_set(spec={"kind": "lstm", "import": "os"}), "import"),
    "a missing tensor": (_tensors(lambda t: t.pop("model.head.weight_VE")), "has shape none"),
}
CASES = {
    (family, name): case
    for family, cases in (("llama", LLAMA), ("gpt2", GPT2), ("mamba2", MAMBA2), ("statewise", OWN))
    for name, case in cases.items()
}


@pytest.mark.parametrize(("family", "case"), CASES)
def test_hostile_folders_are_refused(family: str, case: str, sound: Any, tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    shutil.copytree(sound(family), folder)
    spoil, message = CASES[family, case]
    spoil(folder)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(UserError, match=message):
        sw.from_pretrained(folder, out=tmp_path / "run", device="cpu")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MOST
    assert not (tmp_path / "run").exists()


def test_there_are_a_hundred_of_them() -> None:
    assert len(CASES) >= 100


def test_what_is_no_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("{}")
    for name, message in (("empty", "has no tokenizer.json"), ("file", "is not a folder"), ("none", "is not a folder")):
        with pytest.raises(UserError, match=message):
            sw.from_pretrained(tmp_path / name, out=tmp_path / "run")
