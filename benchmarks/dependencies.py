"""What an installation of statewise includes: every distribution with its size and licence, and their number.

    python benchmarks/dependencies.py [--json FILE] [--add scikit-learn seqeval] [--licences FILE]

The requirements are those of pyproject.toml (or of the installed package, if there is none), resolved through the
metadata of the installed distributions. torch's own requirements are counted separately. Sizes are of installed files.
`--add`: what these distributions together would add. `--licences`: a Markdown table of the licence of every
distribution that constraints.txt pins, including those of the tests.
"""

import re
import tomllib
from importlib import metadata
from pathlib import Path

from command_line import console, options, write
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from rich.table import Table

PROJECT = Path(__file__).parents[1] / "pyproject.toml"
_NVIDIA = "with torch for CUDA; NVIDIA's own terms"
Closure = dict[str, metadata.Distribution | None]  # None: not installed here


def requirements() -> tuple[list[str], dict[str, list[str]]]:
    """Of statewise: its dependencies, and those of each extra that users install."""
    if PROJECT.is_file():
        project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
        core, extras = project["dependencies"], dict(project["optional-dependencies"])
    else:
        found = metadata.metadata("statewise")
        given = [Requirement(text) for text in found.get_all("Requires-Dist", [])]
        core = [f"{one.name}{one.specifier}" for one in given if one.marker is None]
        extras = {
            extra: [
                f"{one.name}{one.specifier}" for one in given if one.marker and one.marker.evaluate({"extra": extra})
            ]
            for extra in found.get_all("Provides-Extra", [])
        }
    return core, {extra: needs for extra, needs in extras.items() if extra != "dev"}


def closure(wanted: list[str]) -> Closure:
    """All distributions that the requirements need, by canonical name."""
    found: Closure = {}
    waiting, seen = [Requirement(text) for text in wanted], set()
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        try:
            found[name] = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            found[name] = None
            continue
        for extra in ("", *requirement.extras):
            if (name, extra) not in seen:
                seen.add((name, extra))
                given = map(Requirement, found[name].requires or ())
                waiting += [one for one in given if one.marker is None or one.marker.evaluate({"extra": extra})]
    return found


def beside_torch(core: list[str]) -> Closure:
    """What an installation has, without torch and what torch itself needs."""
    torch = closure(["torch"])
    return {name: found for name, found in closure(core).items() if name not in torch}


def megabytes(found: Closure) -> float:
    files = [file.locate() for one in found.values() if one is not None for file in one.files or ()]
    return sum(Path(str(file)).stat().st_size for file in files if Path(str(file)).is_file()) / 1e6


def licence(one: metadata.Distribution) -> str:
    about = one.metadata
    named = [text.rsplit(" :: ", 1)[-1] for text in about.get_all("Classifier", []) if text.startswith("License :: ")]
    short = (about.get("License") or "").strip()
    return about.get("License-Expression") or (named[0] if named else "") or short.partition("\n")[0]


def licences() -> str:
    """Of each that is pinned; what belongs to another platform is not installed, so nobody here can say."""
    pins = re.findall(r"^([\w.-]+)==", (PROJECT.parent / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    lines = []
    for name in sorted(set(pins)):
        try:
            one = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            lines.append(f"| {name} | | {_NVIDIA if name.startswith(('nvidia-', 'cuda-')) else 'not installed here'} |")
        else:
            files = [file for file in one.files or () if re.match(r"(?i)(licen[cs]e|copying|notice)", file.name)]
            lines.append(f"| {name} | {licence(one) or 'in its files'} | {len(files) or 'none'} |")
    head = (
        "# Licences\n\nOf every distribution that `constraints.txt` pins, as its metadata names it, and the number of"
    )
    return (
        f"{head}\nlicence files in it. Written by `make lock`.\n\n| distribution | licence | files |\n|---|---|---|\n"
        + ("\n".join(lines) + "\n")
    )


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--add", nargs="+", metavar="NAME", help="distributions to count as one more extra")
    parser.add_argument("--licences", type=Path, metavar="FILE", help="a Markdown file for the licences of all")
    asked = parser.parse_args()
    if asked.licences:
        asked.licences.write_text(licences(), encoding="utf-8")
        return
    core, extras = requirements()
    extras |= {"added": asked.add} if asked.add else {}
    ours, direct = beside_torch(core), {canonicalize_name(Requirement(text).name) for text in core}
    groups = [("torch", closure(["torch"])), ("core", ours)]
    groups += [
        (extra, {name: one for name, one in beside_torch(needs).items() if name not in ours})
        for extra, needs in extras.items()
    ]
    table, rows = Table("group", "distribution", "version", "MB", "licence"), []
    for group, found in groups:
        for name, one in sorted(found.items(), key=lambda pair: (pair[0] not in direct, pair[0])):
            version, size = (one.version, megabytes({name: one})) if one else ("not installed here", 0.0)
            terms = licence(one) if one else ""
            rows.append({"group": group, "distribution": name, "version": version, "MB": size, "licence": terms})
            table.add_row(group, name, version, f"{size:.1f}", terms)
        table.add_section()
    shown = console()
    shown.print(table)
    for group, found in groups:
        beside = " beside torch's own" if group == "core" else ""
        shown.print(f"{group}: {len(found)} distributions{beside}, {megabytes(found):.0f} MB", highlight=False)
    write(asked.json, rows, distributions=len(ours), megabytes=megabytes(ours))


if __name__ == "__main__":
    main()
