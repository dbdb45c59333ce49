"""A run folder whose manifest agrees with every byte, and whose settings or tables are to harm who opens it."""

import hashlib
import json
import os
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest
from limited import Limited
from task_runs import make_run

from statewise.specs.toml import dumps
from statewise.training.checkpoint import MANIFEST

if not hasattr(os, "fork") or not Path("/proc/self/statm").exists():
    pytest.skip("limits are set and measured as Linux does", allow_module_level=True)

DEEP = "[" * 100_000


def vouched(folder: Path, name: str, data: bytes) -> None:
    """Replace a file, and let the manifest agree."""
    (folder / name).write_bytes(data)
    manifest = json.loads((folder / MANIFEST).read_text())
    manifest["files"][name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    (folder / MANIFEST).write_text(json.dumps(manifest))


def copied(name: str, tasks: Path, to: Path) -> Path:
    return Path(shutil.copytree(make_run(name, tasks), to / "run", ignore=shutil.ignore_patterns("checkpoints")))


@pytest.mark.parametrize(
    ("run", "path", "value"),
    [
        ("translator", "model.encoder.width", 10**12),
        ("translator", "model.decoder.width", 2**63 - 1),
        ("translator", "model.decoder.width", 10**30),
        ("translator", "model.attention.heads", 3_000_000),
        ("translator", "model.attention.hops", 3_000_000),
        ("translator", "decoding.beam", 2**63),
        ("translator", "decoding.max_ratio", 1e300),
        ("translator", "decoding.extra", 2**63),
        ("translator", "decoding.draws", 2**31),
        ("direct", "forecast.horizon", 200_000_000),
        ("direct", "model.width", 2**31),
        ("direct", "model.depth", 10**7),
        ("direct", "model.mlp_ratio", 1e300),
        ("tree", "model.forget_bias", 1e300),
        ("tree", "model.arity", 10**9),
        ("classifier-transformer", "model.heads", 10**9),
        ("classifier-transformer", "model.context", 2**62),
    ],
)
def test_sizes_are_bounded_before_anything_is_built(
    run: str, path: str, value: Any, limited: Limited, tasks: Path, tmp_path: Path
) -> None:
    hostile = copied(run, tasks, tmp_path)
    table = tomllib.loads((hostile / "run.toml").read_text())
    inner = table
    for name in path.split(".")[:-1]:
        inner = inner.setdefault(name, {})
    inner[path.split(".")[-1]] = value
    vouched(hostile, "run.toml", dumps(table).encode())
    said = limited.call("evaluate", str(hostile), cwd=tmp_path)
    assert said.code == 2, said.output[-2_000:]
    assert path.split(".")[-1] in said.output
    assert said.megabytes < 500


@pytest.mark.parametrize("text", [DEEP, '{"labels": {"a": Infinity, "b": 1}}', '{"a": ' + "9" * 5_000 + "}"])
@pytest.mark.parametrize(
    ("run", "file"),
    [
        ("classifier", "labels.json"),
        ("tagger", "lexicon.json"),
        ("tagger", "labels.json"),
        ("tree", "roots.json"),
        ("direct", "series.json"),
        ("translator", "lengths.json"),
        ("translator", "frequent.json"),
        ("grids", "scaling.json"),
        ("classifier", "tokenizer.json"),
    ],
)
def test_tables_that_cannot_be_read(
    run: str, file: str, text: str, limited: Limited, tasks: Path, tmp_path: Path
) -> None:
    hostile = copied(run, tasks, tmp_path)
    assert (hostile / file).is_file()
    vouched(hostile, file, text.encode())
    said = limited.call("evaluate", str(hostile), cwd=tmp_path)
    assert said.code == 2, said.output[-2_000:]


def test_metrics_that_are_no_text(tasks: Path, tmp_path: Path) -> None:
    from statewise.specs import UserError
    from statewise.tasks import load

    hostile = copied("classifier", tasks, tmp_path)
    (hostile / "metrics.jsonl").write_bytes(b'{"step": 1, "\xfe": 2}\n')
    with pytest.raises(UserError, match=r"metrics\.jsonl' is not UTF-8 text"):
        _ = load(hostile).history


@pytest.mark.parametrize("line", ["[" * 5_000, "7", '{"step": "x"}', '{"step": 1, "loss": []}', "{}"])
def test_metrics_that_are_none(line: str, tasks: Path, tmp_path: Path) -> None:
    from statewise.specs import UserError
    from statewise.tasks import load

    hostile = copied("classifier", tasks, tmp_path)
    (hostile / "metrics.jsonl").write_text(line + "\n")
    with pytest.raises(UserError, match=r"metrics\.jsonl line 1 is not a record of metrics"):
        _ = load(hostile).history


def test_a_period_without_end(limited: Limited, tasks: Path, tmp_path: Path) -> None:
    hostile = copied("direct", tasks, tmp_path)
    table = json.loads((hostile / "series.json").read_text())
    vouched(hostile, "series.json", json.dumps({**table, "period": float("inf")}).encode())
    said = limited.call("evaluate", str(hostile), cwd=tmp_path)
    assert said.code == 2, said.output[-2_000:]
