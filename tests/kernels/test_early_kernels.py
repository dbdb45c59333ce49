"""Kernels that begin while the one before them ends, compiled for a GPU that does so; none is needed for that."""

import importlib
from typing import Any

import pytest

from statewise.kernels.with_triton import FUSED

triton = pytest.importorskip("triton", reason="Triton is not installed here")
HOPPER = ("cuda", 90, 32)
NUMBERS = ["*bf16"] * 5

# Of each kernel: where it is, the types of what it is given, and what it is compiled for.
KERNELS: dict[str, tuple[str, list[str], dict[str, Any]]] = {
    "_vector": (
        "few_rows",
        [*NUMBERS, "i32", "i32"],
        {"BIASED": True, "ACTIVATION": "gelu", "ONTO": True, "OUTPUTS": 4, "INPUTS": 1024},
    ),
    "_rows": (
        "few_rows",
        [*NUMBERS, "i32", "i32", "i32"],
        {"BIASED": True, "ACTIVATION": "none", "ONTO": True, "ROWS": 64, "OUTPUTS": 32, "INPUTS": 128, "LINES": 16},
    ),
    "_attend": (
        "attention",
        [*NUMBERS, "*i64", "*fp32", "*bf16", "*i64", "*fp32", "i32", "fp32", *["i32"] * 9],
        {"H": 12, "SHARED": 1, "K": 64, "PARTS": 1, "SLOPED": True, "UNITS": 64, "SLOTS": 128},
    ),
    "_join": ("attention", ["*fp32", "*bf16"], {"K": 64, "PARTS": 3, "UNITS": 64, "PADDED": 4}),
    "_forward": (
        "layer_norm",
        [*NUMBERS, "*bf16", "*fp32", "*fp32", "i32", "i32", "fp32"],
        {"CENTRED": True, "BIASED": True, "SUM": True, "KEEP": False, "ROWS": 2, "BLOCK": 1024},
    ),
    "_of_parts": ("argmax", ["*bf16", "*fp32", "*i32", "i32", "i32"], {"PART": 2048}),
    "_of_all": ("argmax", ["*fp32", "*i32", "*i64", "i32"], {"PADDED": 32}),
}


def instructions(name: str, *, early: bool) -> str:
    """In NVIDIA's portable assembly, through the whole of Triton's compiler."""
    where, types, shape = KERNELS[name]
    kernel = getattr(importlib.import_module(f"statewise.kernels.{where}.triton"), name)
    constants = {**shape, "EARLY": early}
    assert kernel.arg_names[: len(types)] == [given for given in kernel.arg_names if given not in constants]
    signature = dict.fromkeys(kernel.arg_names, "constexpr") | dict(zip(kernel.arg_names, types, strict=False))
    source = triton.compiler.ASTSource(
        fn=kernel,
        signature=signature,
        constexprs={(kernel.arg_names.index(key),): value for key, value in constants.items()},
    )
    target = triton.backends.compiler.GPUTarget(*HOPPER)
    options = {"num_warps": 4, "num_stages": 2, "launch_pdl": early, **FUSED}
    made: str = triton.compile(source, target=target, options=options).asm["ptx"]
    return made


@pytest.mark.parametrize("name", KERNELS)
def test_nothing_is_written_before_the_wait(name: str) -> None:
    before, wait, after = instructions(name, early=True).partition("griddepcontrol.wait")
    assert wait, "it never waits"
    assert "griddepcontrol.launch_dependents" in before, "nobody may begin before this one has ended"
    assert "st.global" not in before, "whoever reads there may not have ended"
    assert "st.global" in after
    usual = instructions(name, early=False)
    assert "griddepcontrol" not in usual
    assert "prefetch" not in usual


@pytest.mark.parametrize(
    ("name", "reads"), [("_vector", "ld.global"), ("_rows", "prefetch.global"), ("_forward", "ld.global")]
)
def test_weights_are_asked_for_before_the_wait(name: str, reads: str) -> None:
    assert reads in instructions(name, early=True).partition("griddepcontrol.wait")[0]
