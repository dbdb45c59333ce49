"""The reference as pages of both sites: `docs/`, and every public name with its signature and docstring."""

import os
import re
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, get_origin

from chapter import ROOT

DOCS = ROOT / "docs"
FENCE = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)
FILE = {"en": "{} (`{}`)", "zh": "{}（`{}`）"}
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")
PACKAGES = (
    *("core", "mixers", "encoders", "layers", "nn", "models", "data", "tasks", "training", "decoding"),
    *(
        "inspection",
        "comparison",
        "export",
        "interop",
        "lab",
        "serving",
        "figures",
        "kernels",
        "display",
        "disk",
        "specs",
    ),
)
API = {
    "en": (
        "API",
        "Every public name, with its signature and its docstring. The examples are run by the tests. "
        "[From Python](../docs/python.md) introduces the names that most programs need; `help(name)` prints the same.",
    ),
    "zh": (
        "API",
        "所有公开的名字：签名和文档字符串（英文，与 `help(name)` 打印的相同），其中的例子由测试运行。"
        "多数程序只需要[从 Python 使用](../docs/python.md)里介绍的那些名字。",
    ),
}


def stage_docs(folder: Path, language: str) -> None:
    """`docs/`, each page in the site's language where it exists in it."""
    translations = {path.relative_to(DOCS / "zh"): path for path in sorted((DOCS / "zh").rglob("*.md"))}
    translations = {place: path for place, path in translations.items() if (DOCS / place).exists()}
    listed = []
    for path in sorted(set(DOCS.rglob("*")) - set(translations.values())):
        place = path.relative_to(DOCS)
        if language == "en" and place.parts[0] == "zh":
            continue  # a Chinese page whose English twin is no page of `docs/`: the README
        target = folder / place
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".md":
            listed.append(place.with_suffix("").as_posix())
            source = translations.get(place, path) if language == "zh" else path
            target.write_text(docs_page(source, place, language), encoding="utf-8")
        elif path.suffix in (".svg", ".png"):
            shutil.copy(path, target)
    with (folder / "index.md").open("a", encoding="utf-8") as index:
        index.write(contents([name for name in listed if name != "index"]))


def docs_page(path: Path, place: Path, language: str) -> str:
    """The page `path` for its place in the site. A link to what is no page becomes its text, with the file's name."""

    def link(found: re.Match[str]) -> str:
        text, target, anchor = found[1], found[2], found[3] or ""
        if re.match(r"\w+:", target):
            return found[0]
        inside = (path.parent / target).resolve()
        if inside.suffix != ".md" or not inside.is_relative_to(DOCS) or not inside.is_file():
            file = inside.relative_to(ROOT).as_posix()
            return text if file.startswith("book/") else FILE[language].format(text, file)
        to = inside.relative_to(DOCS)
        if language == "en" and to.parts[0] == "zh":
            return text
        if to.parts[0] == "zh" and (DOCS / Path(*to.parts[1:])).exists():
            to = Path(*to.parts[1:])  # where the translation stands in the site
        else:
            anchor = anchor_in(language, to, anchor)
        return f"[{text}]({Path(os.path.relpath(to, place.parent)).as_posix()}{anchor})"

    return outside_code(path.read_text(encoding="utf-8"), lambda text: LINK.sub(link, text))


def anchor_in(language: str, place: Path, anchor: str) -> str:
    """`#heading` of an English page of `docs/`, on the page that stands there in the site of a language."""
    translation = DOCS / "zh" / place
    if not anchor or language == "en" or not translation.exists():
        return anchor
    return "#" + dict(zip(anchors(DOCS / place), anchors(translation)))[anchor[1:]]


def anchors(path: Path) -> list[str]:
    """Of a page's headings, in order: a translated page has the same sections."""
    headings = re.findall(r"^#+ +(.+?)\s*$", FENCE.sub("", path.read_text(encoding="utf-8")), re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]


def outside_code(text: str, change: Callable[[str], str]) -> str:
    """A page whose prose is changed; fenced code stays."""
    parts = FENCE.split(text)
    return "".join(part if part.startswith("```") else change(part) for part in parts)


def stage_api(folder: Path, language: str) -> None:
    """A page for `statewise` itself and one for each package: Sphinx reads the names from the code."""
    folder.mkdir()
    names = ["statewise", *(f"statewise.{name}" for name in PACKAGES)]
    for name in names:
        directive = f".. automodule:: {name}\n   :members:\n   :imported-members:"
        directive += "\n   :no-index:" * (name == "statewise")  # its names have their place in the packages
        (folder / f"{name}.md").write_text(f"# {name}\n\n```{{eval-rst}}\n{directive}\n```\n", encoding="utf-8")
    title, introduction = API[language]
    (folder / "index.md").write_text(f"# {title}\n\n{introduction}\n{contents(names, depth=1)}", encoding="utf-8")


def contents(names: list[str], *, depth: int | None = None) -> str:
    shown = f":maxdepth: {depth}" if depth else ":hidden:"
    return "\n".join(["\n```{toctree}", shown, "", *names, "```\n"])


def mark_code(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """In a docstring, an indented block is code. What Python says of every field of a NamedTuple is left out."""
    if re.match(r"Alias for field number \d", lines[0] if lines else ""):
        lines.clear()
    lines[:] = re.sub(r"(?m)(^\S.*\n\n)(?=    \S)", r"\1::\n\n", "\n".join(lines)).split("\n")


def name_unions(app: Any, what: str, name: str, thing: Any, options: Any, signature: str | None, returned: str) -> Any:
    """In a signature, a union of specs by its name, not by its members and Pydantic's validators."""
    for union, short in unions().items():
        signature = signature and signature.replace(union, short)
    return signature, returned


@cache
def unions() -> dict[str, str]:
    """As Sphinx writes each union of specs: the name of it. The longest come first."""
    from sphinx.util.typing import stringify_annotation

    from statewise import specs

    named = {
        stringify_annotation(value, "smart"): name
        for part in [specs, *vars(specs).values()]
        if isinstance(part, ModuleType)
        for name, value in vars(part).items()
        if name.endswith("Spec") and get_origin(value) is Annotated
    }
    return dict(sorted(named.items(), key=lambda item: -len(item[0])))


def drop_unreadable(app: Any, doctree: Any) -> None:
    """A field whose type is Pydantic's way to write a union of specs: without a type it says more."""
    from sphinx.addnodes import desc_annotation

    for node in list(doctree.findall(desc_annotation)):
        if "PydanticUndefined" in node.astext():
            node.parent.remove(node)
