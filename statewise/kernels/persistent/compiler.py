"""CUDA C++ to machine code at run time, by the NVRTC that PyTorch brings along; no nvcc, nothing built at install.

What was compiled once is kept in the user's cache folder, under a name that holds the source, the options and the
compiler's version.
"""

import ctypes
import hashlib
import importlib.util
import os
from functools import cache
from pathlib import Path

from statewise.disk import write
from statewise.kernels.gpu import Gpu
from statewise.kernels.persistent.plan import Plan

OPTIONS = ["--std=c++17", "-w"]  # a tool that wants to name lines adds -lineinfo; the code stays the same


class Unavailable(RuntimeError):
    """Why the persistent kernels cannot run here; the choice then takes another implementation and says this."""


def source(plan: Plan) -> str:
    """The whole program of one kernel."""
    parts = [_part(name) for name in plan.sources]
    wide = plan.kind == "wide"
    if wide:
        parts.insert(1, _warpgroup_products(plan.rows))
    parts.append(
        f'extern "C" __global__ void __launch_bounds__({plan.threads}, 1)\n{plan.name}'
        f"(const __grid_constant__ Run p{', const __grid_constant__ Map map' if wide else ''}) {{\n"
        f"  extern __shared__ __align__({1024 if wide else 128}) unsigned char memory[];\n"
        f"  {plan.call}(p, {'map, ' if wide else ''}memory);\n}}\n"
    )
    return "\n".join(parts)


@cache
def _part(name: str) -> str:
    return f'#line 1 "{name}"\n' + (Path(__file__).parent / "source" / name).read_text()


def _warpgroup_products(rows: int) -> str:
    """The instruction names its width and lists every sum, so each width needs a function of its own."""
    count = rows // 2
    sums = ", ".join(f"%{n}" for n in range(count))
    outputs = ", ".join(f'"+f"(d[{n}])' for n in range(count))
    made = []
    for a, tail, inputs, kind in (
        (
            f"{{%{count}, %{count + 1}, %{count + 2}, %{count + 3}}}",
            "0",
            '"r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w)',
            "const uint4& a",
        ),
        (f"%{count}", "0, 0", '"l"(a)', "u64 a"),
    ):
        b = count + (4 if tail == "0" else 1)
        made.append(
            f"DI void product(float (&d)[{count}], {kind}, u64 b) {{\n"
            f'  asm volatile("{{ .reg .pred p; setp.eq.u32 p, 0, 0; wgmma.mma_async.sync.aligned.m64n{rows}k16.f32." '
            f'KIND "." KIND " {{{sums}}}, {a}, %{b}, p, 1, 1, {tail}; }}"\n'
            f'    : {outputs} : {inputs}, "l"(b));\n}}\n'
        )
    return "".join(made)


def machine_code(plan: Plan, *, half: bool, gpu: Gpu) -> bytes:
    """From the cache, or compiled now and kept there. `half`: float16 in place of bfloat16."""
    text = source(plan)
    options = [f"--gpu-architecture={architecture(gpu)}", *OPTIONS, f"-DHALF={int(half)}"]
    return cached_code(plan.name, text, options)


def cached_code(name: str, text: str, options: list[str]) -> bytes:
    """What `compile_source` gives, from the cache where it has been made before."""
    key = hashlib.sha256("\n".join([text, *options, version()]).encode()).hexdigest()
    path = cache_folder() / f"{name}-{key[:20]}.code"
    kept = _read(path)
    if kept is not None:
        return kept
    code = compile_source(text, options)
    _write(path, code)
    return code


def architecture(gpu: Gpu) -> str:
    """What the compiler is asked for: machine code of this very GPU, or else PTX, which the driver translates."""
    number = 10 * gpu.capability[0] + gpu.capability[1]
    if gpu.pretended:
        return f"compute_{number}"
    if gpu.measured:
        return "sm_90a"
    if number in supported():
        return f"sm_{number}"
    older = [known for known in supported() if known < number]
    if not older:
        raise Unavailable(f"NVRTC {version()} does not compile for compute capability {gpu.name}")
    return f"compute_{max(older)}"


def cache_folder() -> Path:
    """STATEWISE_CACHE, or the place the system has for such files."""
    own = os.environ.get("STATEWISE_CACHE")
    root = Path(own) if own else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "statewise"
    return root / "kernels"


def _read(path: Path) -> bytes | None:
    """None for what is not there, or not whole: a file begins with the digest of what follows."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    digest, code = content[:32], content[32:]
    return code if hashlib.sha256(code).digest() == digest else None


def _write(path: Path, code: bytes) -> None:
    """Whole or not at all. A folder that cannot be written costs a compilation in the next process, no more."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path, hashlib.sha256(code).digest() + code)
    except OSError:
        return


@cache
def _library() -> ctypes.CDLL:
    tried = []
    for name in [*_beside_torch(), *map(Path, ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"))]:
        try:
            for builtins in sorted(name.parent.glob("libnvrtc-builtins.so.*")):  # which it looks for by name alone
                ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)
            return ctypes.CDLL(str(name))
        except OSError as error:
            tried.append(str(error))
    raise Unavailable(f"NVRTC, the run-time compiler that comes with PyTorch for CUDA, was not found ({tried[-1]})")


def _beside_torch() -> list[Path]:
    libraries: list[Path] = []
    for package, pattern in (("nvidia", "*/lib/libnvrtc.so.*"), ("torch", "lib/libnvrtc*.so*")):
        spec = importlib.util.find_spec(package)
        for place in (spec.submodule_search_locations or []) if spec is not None else []:
            libraries += [path for path in sorted(Path(place).glob(pattern)) if "alt" not in path.name]
    return [path for path in libraries if "builtins" not in path.name]


@cache
def version() -> str:
    major, minor = ctypes.c_int(), ctypes.c_int()
    _check(_library().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)), "its version")
    return f"{major.value}.{minor.value}"


@cache
def supported() -> tuple[int, ...]:
    """The capabilities it knows, without their points."""
    count = ctypes.c_int()
    _check(_library().nvrtcGetNumSupportedArchs(ctypes.byref(count)), "its architectures")
    numbers = (ctypes.c_int * count.value)()
    _check(_library().nvrtcGetSupportedArchs(numbers), "its architectures")
    return tuple(numbers)


def _check(code: int, what: str) -> None:
    if code:
        raise Unavailable(f"NVRTC failed at {what} (error {code})")


def compile_source(text: str, options: list[str]) -> bytes:
    """Machine code, PTX where a compute_ architecture is asked for, or `Unavailable` with what the compiler said."""
    nvrtc = _library()
    program = ctypes.c_void_p()
    made = nvrtc.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"recurrence.cu", 0, None, None)
    _check(made, "reading the source")
    try:
        values = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
        if nvrtc.nvrtcCompileProgram(program, len(options), values):
            raise Unavailable(f"NVRTC {version()} refused the kernel: {_text(nvrtc, program, 'ProgramLog')[-2000:]}")
        return _bytes(nvrtc, program, "PTX" if any("=compute_" in option for option in options) else "CUBIN")
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def _bytes(nvrtc: ctypes.CDLL, program: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    _check(getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size)), what)
    buffer = ctypes.create_string_buffer(size.value)
    _check(getattr(nvrtc, f"nvrtcGet{what}")(program, buffer), what)
    return buffer.raw


def _text(nvrtc: ctypes.CDLL, program: ctypes.c_void_p, what: str) -> str:
    return _bytes(nvrtc, program, what).rstrip(b"\0").decode(errors="replace")
