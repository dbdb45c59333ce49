"""The commands of docs/serving.md, in order, with a server on a free port."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```text\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@pytest.mark.slow  # eight processes; what they answer is tested by day without them
@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_commands_of_the_page_run(tmp_path: Path) -> None:
    blocks = BLOCK.findall((ROOT / "docs/serving.md").read_text(encoding="utf-8"))
    assert len(blocks) >= 7
    with socket.create_server(("127.0.0.1", 0)) as free, socket.create_server(("127.0.0.1", 0)) as other:
        port, second = free.getsockname()[1], other.getsockname()[1]
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, words in {"statewise": "-m statewise", "python": ""}.items():
        (commands / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
        (commands / name).chmod(0o755)
    script = "set -euo pipefail\n" + "\necho; echo ----\n".join(blocks)
    script = script.replace("--states states &", f"--port {port} --states states &")
    script = script.replace("localhost:8000", f"localhost:{port}").replace("8001", str(second))
    variables = {**os.environ, "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        ["bash", "-c", f"{script}\nkill %1 %2; wait %1 || echo; wait %2 || echo; echo; echo ended"],
        cwd=tmp_path,
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            said, _ = process.communicate(timeout=120)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    assert "ended" in said, said
    assert '"error"' not in said.replace('"error":{"message":"the runs are being loaded', ""), said
    _, complete, *_, cost = said.split("----")
    assert '"text":' in complete
    assert "shakespeare-transformer" in cost
    moved = said.split("----")[5]
    (generated,) = re.findall(r"^(?!\{)(.*?)(?=\{\"(?:id|error|status)\")", moved, re.DOTALL)
    completed, _ = re.findall(r'"text":"(.*?)","logprobs"', moved)  # by the second server
    assert generated.strip().replace("\n", "\\n").startswith(completed.strip()), moved
