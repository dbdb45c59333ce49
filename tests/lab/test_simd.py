"""What WebAssembly computes for the page is `simd.wat`, and a page without it says the same."""

import base64
import re
import subprocess
from pathlib import Path
from typing import Any

from inspected_page import Watched
from machines_bundle import machines_bundle
from node import node, npm_package

from statewise.lab import page

STATIC = Path(__file__).parents[2] / "statewise/lab/static"
ASSEMBLE = """require(process.argv[1])().then((wabt) => {
  const source = require("fs").readFileSync(process.argv[2], "utf8");
  const made = wabt.parseWat("simd.wat", source, { simd: true, bulk_memory: true }).toBinary({});
  console.log(Buffer.from(made.buffer).toString("base64"));
});"""


def test_the_bytes_are_those_of_the_source() -> None:
    assemble = [node(), "-e", ASSEMBLE, str(npm_package("wabt")), str(STATIC / "simd.wat")]
    made = subprocess.run(assemble, capture_output=True, text=True, check=True, timeout=60).stdout.strip()
    held = re.search(r"const CODE = `([^`]*)`", (STATIC / "simd.js").read_text(encoding="utf-8"))
    assert held is not None
    assert "".join(held[1].split()) == made, f"simd.js has to hold\n{made}"
    assert base64.b64decode(made).startswith(b"\0asm")


def test_a_browser_without_webassembly_shows_the_same(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "lab.html"
    path.write_text(page(machines_bundle(), "The lab", view="step"), encoding="utf-8")
    said = []
    for without in (False, True):
        with Watched(browser, path) as seen:
            if without:
                seen.page.add_init_script("delete globalThis.WebAssembly")
                seen.page.reload()
            seen.page.wait_for_selector(".view[data-read=yes]")
            assert seen.page.evaluate("typeof WebAssembly") == ("undefined" if without else "object")
            said.append(seen.page.locator(".panels").inner_text())
            assert seen.wrong == []
    assert said[0] == said[1]
