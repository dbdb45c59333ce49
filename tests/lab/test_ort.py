"""`--runtime ort:DIR`: onnxruntime-web computes in the page from disk, and the page says what it says without it."""

from pathlib import Path
from typing import Any

import pytest
from inspected_page import Watched
from machines_bundle import SPECS, TEXT, record
from node import npm_package

from statewise.data import Tokenizer
from statewise.lab import foreign, page
from statewise.lab.bundle import machine_record
from statewise.lab.onnxruntime import onnx_record
from statewise.specs import UserError

SHOWN = "document.querySelector('section:not([hidden]) .view').innerText"


def settled(page: Any) -> str:
    page.wait_for_timeout(1500)
    return str(page.evaluate(SHOWN))


def bundle(computed: Any) -> dict[str, Any]:
    tokenizer = Tokenizer.train("char", [TEXT])
    made = [record(name, SPECS[name], tokenizer, computed) for name in SPECS if name != "markov"]
    return {"version": 1, "models": made, "extra": {}}


@pytest.mark.parametrize("view", ["step", "hover", "touch", "clamp"])
def test_onnxruntime_shows_what_the_interpreter_shows(view: str, browser: Any, tmp_path: Path) -> None:
    engine = foreign(npm_package("onnxruntime-web"))
    said = []
    for runtime, computed in (
        (None, lambda machine, state: machine_record(machine, state, exact=True)),
        (engine, onnx_record),
    ):
        path = tmp_path / "lab.html"
        path.write_text(page(bundle(computed), "ort", view=view, runtime=runtime), encoding="utf-8")
        with Watched(browser, path) as seen:
            seen.page.wait_for_selector("html[data-ready]")
            if view == "step":
                seen.page.locator("textarea").first.fill("he is a cat")
            if said:
                seen.page.wait_for_function(f"(wanted) => {SHOWN} === wanted", arg=said[0], timeout=60000)
            else:
                while settled(seen.page) != settled(seen.page):
                    pass
            said.append(seen.page.evaluate(SHOWN))
            assert seen.wrong == []
    assert said[0] == said[1]
    assert len(said[0]) > 200


def test_another_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"not the npm package(.|\n)*npm install onnxruntime-web"):
        foreign(tmp_path)
    (tmp_path / "ort.wasm.bundle.min.mjs").write_text("export{a as Tensor};")
    (tmp_path / "ort-wasm-simd-threaded.wasm").write_bytes(b"")
    with pytest.raises(UserError, match="version that this lab does not know"):
        foreign(tmp_path)
