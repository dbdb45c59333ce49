"""The page's modules have no type error: TypeScript reads their JSDoc comments."""

import subprocess

from node import HERE, node, npm_package


def test_modules_are_well_typed() -> None:
    compiler = npm_package("typescript") / "bin/tsc"
    done = subprocess.run(
        [node(), str(compiler), "--project", str(HERE / "jsconfig.json")], capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stdout + done.stderr
