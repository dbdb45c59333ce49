"""A model folder of another library, read as data and written as a run. Nothing in it is executed."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from safetensors import SafetensorError, safe_open
from torch import Tensor

import statewise
from statewise.data import Tokenizer
from statewise.disk import make_folder, write
from statewise.interop.families import FAMILIES, Config, Family, Known, Same
from statewise.models import build, on_meta
from statewise.specs import (
    DataSpec,
    ElmanSpec,
    GRUSpec,
    LanguageModelSpec,
    LSTMSpec,
    ModelSpec,
    UserError,
    dumps,
    from_json,
    parse_spec,
    read_small,
)
from statewise.tasks import Run, is_run, load, refuse_used
from statewise.training import model_tensors, write_files

_LARGEST_CONFIG = 1 << 20
_LARGEST_INDEX = 1 << 26
_PICKLED = (".bin", ".pt", ".pth", ".pkl", ".ckpt")
_FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
_HEAD = "lm_head.weight"


def from_pretrained(folder: str | Path, *, out: str | Path | None = None, device: str = "auto") -> Run:
    """A run made of a Hugging Face folder (`config.json`, `*.safetensors`, `tokenizer.json`), like any other run.

    It takes GPT-2, Llama, Mistral, Qwen2, Qwen3 (dense) and Mamba-2; and without a `config.json` the tensors of a
    `torch.nn.RNN`, `GRU` or `LSTM` between an embedding and a linear layer. `out` is the run's folder (default: a new
    one under `runs/`). Pickled weights are refused, and no code of the folder runs.

    >>> llama = {"model.norm": "rms", "model.mlp": "swiglu", "model.bias": False, "model.head_bias": False}
    >>> trained = sw.train("transformer", data="text.txt", steps=2, settings={**llama, "model.width": 32})
    >>> folder = sw.export_hugging_face(trained.load(), "small-llama")
    >>> sw.from_pretrained(folder).path
    PosixPath('runs/small-llama')
    """
    source = Path(folder)
    if not source.is_dir():
        raise UserError(
            f"{str(folder)!r} is not a folder",
            fix="name a folder with config.json, *.safetensors and tokenizer.json; `hf download NAME` gets one",
        )
    if is_run(source):
        raise UserError(f"{str(folder)!r} is a run already", fix="use it as it is, for example: statewise generate RUN")
    target = Path("runs") / source.resolve().name if out is None else Path(out)
    refuse_used(target, resumes=False)
    tokenizer = _tokenizer(source)
    with ExitStack() as held:
        tensors = _Tensors(source, held)
        if (source / "config.json").is_file():
            config = Config(_table(source / "config.json", _LARGEST_CONFIG), f"{source.name}/config.json")
            _refuse_vocabulary(tokenizer, config.whole("vocab_size"), source)
            spec: ModelSpec
            if config.table.get("model_type") == "statewise":
                spec, weights = _own(config, tensors, tokenizer.vocab)
            else:
                family = _family(config)
                spec = known = _spec(family, config)
                weights = _weights(known, family, tensors, tokenizer.vocab)
        else:
            spec, weights = _recurrent(tensors, tokenizer, source)
    run = LanguageModelSpec.model_validate(
        {
            "model": spec.model_dump(),
            "data": DataSpec(tokenizer="tokenizer.json", begin=tokenizer.own_begin).model_dump(),
        }
    )
    files: dict[str, Any] = {
        "run.toml": dumps(run.model_dump(mode="json")),
        "tokenizer.json": tokenizer.to_json(),
        "unigram.safetensors": {"counts_V": torch.zeros(tokenizer.vocab, dtype=torch.int64)},
        "model.safetensors": weights,
    }
    make_folder(target)
    write_files(target, files)
    template = _chat_template(source)
    if template is not None:
        write(target / "chat_template.jinja", template)
    origin = {"statewise": statewise.__version__, "imported": source.resolve().name, "torch": torch.__version__}
    write(target / "environment.json", json.dumps(origin, indent=1) + "\n")
    return load(target, device=device)


# -------------------------------------------------------------------- what lies in the folder


def _table(path: Path, largest: int) -> dict[str, Any]:
    try:
        table = from_json(read_small(path, largest=largest))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{str(path)!r} cannot be read: {error}") from None
    if not isinstance(table, dict):
        raise UserError(f"{str(path)!r} holds a {type(table).__name__}, expected a table")
    return table


def _tokenizer(source: Path) -> Tokenizer:
    path = source / "tokenizer.json"
    if not path.is_file():
        published = (source / "config.json").is_file()
        raise UserError(
            f"{str(source)!r} has no tokenizer.json",
            fix="save it there with transformers: AutoTokenizer.from_pretrained(...).save_pretrained(folder)"
            if published
            else "make one of your vocabulary with the library tokenizers, as docs/coming-from.md shows",
        )
    tokenizer = Tokenizer.load(path)
    if tokenizer.end_was_added:
        raise UserError(
            f"{str(path)!r} has no special token that ends a text, such as <|endoftext|> or </s>",
            fix="add one to the tokenizer, and a row of the embedding for it",
        )
    return tokenizer


def _chat_template(source: Path) -> str | None:
    """The text of the template; it is kept, never executed."""
    path = source / "chat_template.jinja"
    if path.is_file():
        try:
            return read_small(path, largest=_LARGEST_CONFIG)
        except (OSError, ValueError):
            return None
    settings = source / "tokenizer_config.json"
    template = _table(settings, _LARGEST_INDEX).get("chat_template") if settings.is_file() else None
    return template if isinstance(template, str) else None


class _Tensors(Mapping[str, Any]):
    """The tensors of all files of the folder, by name; none is read before it is asked for."""

    def __init__(self, source: Path, held: ExitStack) -> None:
        self.source = source
        self._file_of: dict[str, Any] = {}
        for path in _weight_files(source):
            try:
                file = held.enter_context(safe_open(path, framework="pt"))
                names = list(file.keys())
            except (SafetensorError, OSError, ValueError) as error:
                raise UserError(f"{str(path)!r} is not a whole safetensors file: {error}") from None
            for name in names:
                if name in self._file_of:
                    raise UserError(f"{name} is in two files of {str(source)!r}")
                self._file_of[name] = file

    def shape(self, name: str) -> list[int]:
        return list(self._file_of[name].get_slice(name).get_shape())

    def __getitem__(self, name: str) -> Tensor:
        value: Tensor = self._file_of[name].get_tensor(name)
        if value.dtype not in _FLOATS:
            raise UserError(
                f"{name} in {str(self.source)!r} is {str(value.dtype).removeprefix('torch.')}",
                fix="quantised weights cannot be read: save the model in float32, bfloat16 or float16",
            )
        return value.float()

    def __iter__(self) -> Iterator[str]:
        return iter(self._file_of)

    def __len__(self) -> int:
        return len(self._file_of)


def _weight_files(source: Path) -> list[Path]:
    index = source / "model.safetensors.index.json"
    if index.is_file():
        places = _table(index, _LARGEST_INDEX).get("weight_map")
        if not isinstance(places, dict) or not places:
            raise UserError(f"{str(index)!r} has no weight_map", fix="download the folder again")
        names = sorted({str(name) for name in places.values()})
        for name in names:
            if Path(name).name != name or not name.endswith(".safetensors"):
                raise UserError(f"{str(index)!r} names {name!r}, expected a .safetensors file in the same folder")
            if not (source / name).is_file():
                raise UserError(f"{str(source)!r} has no {name}, which its index names", fix="download it")
        return [source / name for name in names]
    files = sorted(path for path in source.glob("*.safetensors") if path.is_file())
    if len(files) > 1 and (source / "model.safetensors") in files:
        files = [source / "model.safetensors"]
    if not files:
        pickled = sorted(path.name for path in source.iterdir() if path.suffix in _PICKLED)
        if pickled:
            raise UserError(
                f"{str(source)!r} has its weights in {pickled[0]}: to open a pickle is to run what it says",
                fix="save it with safetensors: model.save_pretrained(folder)",
            )
        raise UserError(f"{str(source)!r} has no *.safetensors", fix="download the weights too")
    return files


# -------------------------------------------------------------------- from their tensors to ours


def _family(config: Config) -> Family:
    kind = config.table.get("model_type")
    if not isinstance(kind, str) or kind not in FAMILIES:
        raise UserError(
            f"{config.source}: model_type is {kind!r}, expected one of {', '.join([*FAMILIES, 'statewise'])}"
        )
    return FAMILIES[kind]


def _spec(family: Family, config: Config) -> Known:
    try:
        return family.spec(config)
    except ValidationError as error:
        first = error.errors()[0]
        raise UserError(f"{config.source}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None


def _own(config: Config, tensors: _Tensors, vocab: int) -> tuple[ModelSpec, dict[str, Tensor]]:
    """What `export_hugging_face` writes for models that no published architecture holds."""
    parsed = parse_spec({"model": config.table.get("spec")}, source=config.source)
    if not isinstance(parsed, LanguageModelSpec) or parsed.learns != "gradient":
        raise UserError(f"{config.source}: spec describes no language model with weights")
    if getattr(parsed.model, "depth", 0) > len(tensors):
        raise UserError(f"{config.source} has more layers than the files have tensors")
    with on_meta():
        described = {name: list(value.shape) for name, value in model_tensors(build(parsed.model, vocab=vocab)).items()}
    stored = {name.removeprefix("model."): tensors.shape(name) for name in tensors}
    if described != stored:
        odd = next(name for name in {**described, **stored} if described.get(name) != stored.get(name))
        raise UserError(
            f"{odd} has shape {stored.get(odd, 'none')}, where config.json needs {described.get(odd, 'none')}"
        )
    return parsed.model, {name: tensors[f"model.{name}"] for name in described}


def _refuse_vocabulary(tokenizer: Tokenizer, vocab: int, source: Path) -> None:
    if tokenizer.vocab > vocab:
        raise UserError(
            f"{str(source)!r}: the tokenizer has ids up to {tokenizer.vocab - 1:,}, the model a vocabulary of {vocab:,}"
        )


def _weights(spec: Known, family: Family, tensors: _Tensors, vocab: int) -> dict[str, Tensor]:
    prefix = family.prefix
    bare = not any(name.startswith(prefix) for name in tensors)  # as GPT-2's own files are

    def theirs(name: str) -> str:
        return name.removeprefix(prefix) if bare else name

    if spec.depth > len(tensors):
        raise UserError(f"config.json has {spec.depth:,} layers, and the files {len(tensors):,} tensors")
    every = [*family.tensors(spec)]
    if not spec.tie:
        every.append(Same(("head.weight_VE",), (_HEAD,)))
    with on_meta():
        described = {name: list(value.shape) for name, value in model_tensors(build(spec, vocab=vocab)).items()}
    used = {theirs(name) for same in every for name in same.theirs} | ({_HEAD} if spec.tie else set())
    odd = [name for name in tensors if name not in used and not name.endswith(family.ignored or ("\0",))]
    if odd:
        raise UserError(f"the files hold {odd[0]}, which a {family.architecture} of config.json does not have")
    weights: dict[str, Tensor] = {}
    for same in every:
        shapes = [described.pop(name) for name in same.ours]
        names = [theirs(name) for name in same.theirs]
        absent = [name for name in names if name not in tensors]
        if absent and (len(absent) < len(names) or not _may_be_absent(same)):
            raise UserError(f"the files have no {absent[0]}", fix="a part is missing: download the folder again")
        wide = same.ours[0] in ("embedding.weight", "head.weight_VE")
        value = _joined(same, names, shapes, tensors, wide=wide) if not absent else torch.zeros(sum_rows(shapes))
        for name, part in zip(same.ours, torch.split(value, [shape[0] for shape in shapes])):
            weights[name] = part.clone()
    assert not described, sorted(described)
    return weights


def _may_be_absent(same: Same) -> bool:
    """Ours has biases everywhere or nowhere; where theirs has none, it is 0."""
    return same.ours[0].endswith(("b_P", "b_D", ".bias"))


def sum_rows(shapes: list[list[int]]) -> list[int]:
    """The shape of tensors one below the other."""
    return [sum(shape[0] for shape in shapes), *shapes[0][1:]]


def _joined(same: Same, names: list[str], shapes: list[list[int]], tensors: _Tensors, *, wide: bool) -> Tensor:
    """Their tensors as one of ours. Shapes are compared before anything is read."""
    expected = sum_rows(shapes)
    rows = 0
    for name in names:
        shape = tensors.shape(name)
        shape = shape[::-1] if same.transposed else shape
        shape = [shape[0], *shape[2:]] if same.channel and len(shape) == 3 and shape[1] == 1 else shape
        rows += shape[0] if shape else 0
        if not shape or shape[1:] != expected[1:]:
            raise UserError(f"{name} has shape {tensors.shape(name)}, which config.json does not fit: {expected}")
    if rows != expected[0] and not (wide and rows > expected[0]):
        raise UserError(f"{', '.join(names)}: {rows} rows, where config.json needs {expected[0]}")
    parts = [tensors[name] for name in names]
    value = torch.cat([part.T if same.transposed else part.squeeze(1) if same.channel else part for part in parts])
    return value[: expected[0]].contiguous()


# -------------------------------------------------------------------- torch.nn's recurrent layers


def _recurrent(tensors: _Tensors, tokenizer: Tokenizer, source: Path) -> tuple[ModelSpec, dict[str, Tensor]]:
    """An embedding, an `nn.RNN`, `GRU` or `LSTM`, a linear layer: the sizes of the tensors say which."""
    first = [name for name in tensors if name.endswith("weight_ih_l0")]
    if len(first) != 1:
        raise UserError(
            f"{str(source)!r} has no config.json, and its tensors are not those of one torch.nn.RNN, GRU or LSTM",
            fix="name a Hugging Face folder, or a state dict with an embedding, a recurrent module and a linear layer",
        )
    prefix = first[0].removesuffix("weight_ih_l0")
    own = {name.removeprefix(prefix) for name in tensors if name.startswith(prefix) and _RECURRENT.search(name)}
    odd = [name for name in own if "reverse" in name or "weight_hr" in name]
    if odd:
        raise UserError(f"{prefix}{odd[0]}: bidirectional and projected layers cannot predict the next token here")
    depth = sum(name.startswith("weight_ih_l") for name in own)
    gates_width, embedding = tensors.shape(first[0])
    width = tensors.shape(f"{prefix}weight_hh_l0")[1]
    kinds = {4: LSTMSpec, 3: GRUSpec, 1: ElmanSpec}
    if gates_width % width or gates_width // width not in kinds:
        raise UserError(f"{first[0]} has {gates_width} rows for {width} units: neither an RNN, a GRU nor an LSTM")
    rest = [name for name in tensors if not (name.startswith(prefix) and _RECURRENT.search(name))]
    tables = [name for name in rest if len(tensors.shape(name)) == 2]
    biases = [name for name in rest if len(tensors.shape(name)) == 1]
    vectors = [name for name in tables if tensors.shape(name)[1] == embedding]
    heads = [name for name in tables if tensors.shape(name)[1] == width and (name != vectors[0] if vectors else True)]
    if len(vectors) == 2 and len(heads) == 1:  # equal widths: the one with a bias beside it is the head
        vectors = [name for name in vectors if name not in heads]
    if len(rest) > 3 or len(vectors) != 1 or len(heads) > 1 or len(biases) > 1:
        raise UserError(f"{str(source)!r}: expected an embedding, a linear layer and its bias beside the recurrent one")
    vocab = tensors.shape(vectors[0])[0]
    if tokenizer.vocab != vocab:
        raise UserError(f"{str(source)!r}: the tokenizer has {tokenizer.vocab:,} ids, the embedding {vocab:,} rows")
    spec = kinds[gates_width // width](width=width, depth=depth, embedding=embedding, tie=not heads)
    weights = {"embedding.weight": tensors[vectors[0]]}
    for layer in range(depth):
        its = [f"{prefix}{name}_l{layer}" for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
        w, u = tensors[its[0]], tensors[its[1]]
        zero = torch.zeros(len(w))
        b, c = (tensors.get(name, zero) for name in its[2:])
        at = f"stack.blocks.{layer}.mixer."
        match spec:
            case LSTMSpec():
                weights |= {f"{at}w_GI": w, f"{at}u_GP": u, f"{at}b_G": b + c}
            case GRUSpec():  # the candidate's recurrent bias stands inside the reset gate's product
                b = b + torch.cat([c[: 2 * width], torch.zeros(width)])
                weights |= {f"{at}w_GI": w, f"{at}u_GD": u, f"{at}b_G": b, f"{at}b_u_D": c[2 * width :].clone()}
            case ElmanSpec():
                weights |= {f"{at}w_DI": w, f"{at}u_DD": u, f"{at}b_D": b + c}
    if heads:
        weights["head.weight_VE"] = tensors[heads[0]]
    weights["head.bias_V"] = tensors[biases[0]] if biases else torch.zeros(vocab)
    with on_meta():
        described = {name: list(value.shape) for name, value in model_tensors(build(spec, vocab=vocab)).items()}
    if described != {name: list(value.shape) for name, value in weights.items()}:
        raise UserError(f"{str(source)!r}: the layers do not fit each other", fix="save one whole state dict")
    return spec, weights


_RECURRENT = re.compile(r"(weight|bias)_(ih|hh|hr)_l\d+(_reverse)?$")
