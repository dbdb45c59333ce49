"""One HTML file out of the modules in `static/` and the data that they show.

A page that is opened from disk can load no module by its path, so all modules are joined into one script, each in a
function of its own. Only this script, the WebAssembly that it holds, and this stylesheet may run
(Content-Security-Policy by hash). Data is compressed and in base64, so that nothing in a label, a token or a name can
end its element.
"""

import base64
import gzip
import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from html import escape
from importlib import resources
from pathlib import PurePosixPath
from typing import Any

from statewise.figures import html
from statewise.lab.onnxruntime import Foreign
from statewise.specs import UserError, nearest

ENGINES = ("machine", "live", "ort")  # what computes the models: the interpreter, a server, or onnxruntime-web
_IMPORT = re.compile(r'^import \{([^}]*)\} from "([^"]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async function|function|const|class) (\w+))", re.MULTILINE)
_DARK = re.compile(r"@media screen and \(prefers-color-scheme: dark\) \{ :root \{(.*?)\} \}", re.DOTALL)


def page(
    bundle: Mapping[str, Any], title: str, *, view: str = "", live: bool = False, runtime: Foreign | None = None
) -> str:
    """The whole document. `bundle` is what `bundle()` returns: models, their tokenizers, and `extra`.

    `view`: the id of the view that is shown first; default: the first one. Models are computed by the page's
    interpreter; if `live`, by the server that sends the page; or by `runtime`, which is then a part of the page.
    """
    if view and view not in views():
        raise UserError(f"the lab has no view {view!r}", fix=nearest(view, views()))
    program, style = script("live" if live else "ort" if runtime else "machine"), stylesheet()
    scripts = [*sources(program), *([html.source_hash(runtime.module)] if runtime else [])]
    text = json.dumps(bundle, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    data = base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()
    policy = "; ".join(
        [
            "default-src 'none'",
            "img-src data: blob:",
            f"style-src {html.source_hash(style)}",
            f"script-src {' '.join(scripts)}",
            *(["connect-src 'self'"] if live else []),
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en" data-theme="light">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="generator" content="statewise">',
            '<link rel="icon" href="data:,">',
            f"<title>{escape(title)} · statewise</title>",
            f"<style>{style}</style>",
            "</head>",
            "<body>",
            f'<div id="lab" data-title="{escape(title)}" data-view="{view}">',
            "<noscript>This page needs JavaScript.</noscript></div>",
            f'<script type="application/octet-stream" id="data">{data}</script>',
            *(
                [
                    f'<script type="application/octet-stream" id="ort">{runtime.binary}</script>',
                    f'<script type="module">{runtime.module}</script>',
                ]
                if runtime
                else []
            ),
            f"<script>{program}</script>",
            "</body>",
            "</html>",
            "",
        ]
    )


def sources(program: str = "") -> tuple[str, ...]:
    """What the page's policy lets run: a program (default: that of the interpreter), and the WebAssembly in it."""
    return html.source_hash(program or script()), "'wasm-unsafe-eval'"


@cache
def views() -> tuple[str, ...]:
    """The ids of the views, in the order of the page."""
    return tuple(re.findall(r"(\w+)View", _source("views.js").partition("export const VIEWS")[2]))


@cache
def script(engine: str = "machine") -> str:
    """All modules of the page and of what computes its models, those that others import first."""
    paths = dict.fromkeys([*_ordered(f"{engine}.js"), *_ordered("shell.js")])
    parts = [f"const {_name(path)} = (() => {{\n{_body(path)}}})();\n" for path in paths]
    joined = '"use strict";\n(() => {\n' + "".join(parts) + f"$shell.start(${engine});\n}})();\n"
    assert not re.search(r"</script|<!--", joined, re.IGNORECASE), "a module holds text that would end its element"
    return joined


@cache
def stylesheet() -> str:
    """That of reports, with a theme that a button sets, and the lab's own rules after it."""
    shared, found = _DARK.subn(r':root[data-theme="dark"] {\1}', html.part("style.css"))
    assert found == 1
    return shared + _source("style.css") + _source("machines.css")


def _ordered(path: str, above: tuple[str, ...] = ()) -> list[str]:
    assert path not in above, f"{path} imports itself by {' → '.join(above)}"
    order: list[str] = []
    for _, imported in _imports(path):
        order += _ordered(imported, (*above, path))
    return list(dict.fromkeys([*order, path]))


def _imports(path: str) -> Iterator[tuple[str, str]]:
    """Names that a module imports, and from which."""
    for names, place in _IMPORT.findall(_source(path)):
        steps: list[str] = []
        for step in (PurePosixPath(path).parent / place).parts:
            steps = steps[:-1] if step == ".." else [*steps, step]
        yield names.strip().rstrip(",").replace(" as ", ": "), "/".join(steps)


def _body(path: str) -> str:
    """A module as the body of a function that returns its exports."""
    source = _source(path)
    names = _EXPORT.findall(source)
    body = _EXPORT.sub("", _IMPORT.sub("", source))
    assert not re.search(r"^(import|export)\b", body, re.MULTILINE), f"{path}: an import or export that is not joined"
    needed = "".join(f"const {{ {wanted} }} = {_name(place)};\n" for wanted, place in _imports(path))
    return f"{needed}{body}return {{ {', '.join(names)} }};\n"


def _name(path: str) -> str:
    return "$" + re.sub(r"\W", "_", path.removesuffix(".js"))


def _source(path: str) -> str:
    return resources.files("statewise.lab").joinpath("static", path).read_text(encoding="utf-8")
