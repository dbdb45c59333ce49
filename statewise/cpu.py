"""On some virtual machines a CPU advertises AMX, and the first bfloat16 product then dies with SIGILL.

oneDNN obeys ONEDNN_MAX_CPU_ISA if it is set before its first call. The cap costs float32 nothing; for bfloat16 it is
lifted where a probe in a child process survives.
"""

import os
from pathlib import Path


def cap_onednn_where_amx_may_fail(cpuinfo: Path = Path("/proc/cpuinfo")) -> None:
    if "ONEDNN_MAX_CPU_ISA" in os.environ:
        return
    try:
        with cpuinfo.open(encoding="ascii", errors="replace") as file:
            flags = next((line for line in file if line.startswith("flags")), "")
    except OSError:
        return
    if " amx_" in flags:
        os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE_FP16"
        os.environ["STATEWISE_AMX_CAPPED"] = "1"
