"""What the entries are: their models in order of years, what the state of each is, and the colours of the page."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from statewise.comparison.budget import Entry
from statewise.figures import HUES
from statewise.models import LINEAGE

# What the state is, and of which kinds of models.
_KINDS = {
    "window": "markov window",
    "vector": "latent jordan elman leaky reservoir deep_rnn gru mingru minlstm",
    "pair": "lstm",
    "matrix": "linear_attention mamba2 gated_delta",
    "list": "transformer basic_attention",
    "weights": "ttt_linear ttt_mlp",
}
FORMS = {kind: form for form, kinds in _KINDS.items() for kind in kinds.split()}
OTHER = "other"
_COLOURS = {"window": 5, "vector": 0, "pair": 6, "matrix": 4, "list": 1, "weights": 3, OTHER: 7}
_FEWEST = 3  # forms from which on colour means the form of the state, and not the entry
_ROWS = {row.name: row for row in LINEAGE}
_ARXIV = re.compile(r"arXiv (\d{4}\.\d{4,5})")
_DOI = re.compile(r"doi (10\.\S+)")


class Model(NamedTuple):
    """A model of the lineage that entries use: its description, and a link to its page."""

    year: int
    kind: str
    entries: tuple[str, ...]
    form: str
    state: str
    fixed: str
    cost: str
    paper: str
    link: str  # to the paper; empty where it has no permanent address
    page: str  # in the documentation


class Group(NamedTuple):
    """A colour of the legend: its meaning, and the entries that have it."""

    name: str  # empty where it means a single entry
    colour: int
    entries: tuple[str, ...]


def kinds(entries: Sequence[Entry], names: Iterable[str]) -> dict[str, str]:
    """The model kind of each entry; of one without a spec, its name where that is a kind."""
    named = {name: name for name in names if name in _ROWS}
    return named | {entry.name: entry.spec.model.kind for entry in entries}


def form_of(kind: str | None) -> str:
    return FORMS.get(kind or "", OTHER)


def models(kinds: Mapping[str, str]) -> list[Model]:
    """In order of years."""
    listed = []
    for row in LINEAGE:
        entries = tuple(name for name, kind in kinds.items() if kind == row.name)
        if entries:
            told = (form_of(row.name), row.state, row.fixed, row.cost, row.paper, link(row.paper))
            listed.append(Model(row.year, row.name, entries, *told, page=f"docs/models/{row.name}.md"))
    return sorted(listed, key=lambda model: model.year)


def link(paper: str) -> str:
    """The permanent address of a paper, where its reference has an arXiv number or a DOI.

    >>> link("Feng et al., Were RNNs All We Needed?, arXiv 2410.01201")
    'https://arxiv.org/abs/2410.01201'
    """
    if number := _ARXIV.search(paper):
        return f"https://arxiv.org/abs/{number[1]}"
    if number := _DOI.search(paper):
        return f"https://doi.org/{number[1]}"
    return ""


def groups(names: Sequence[str], kinds: Mapping[str, str]) -> list[Group]:
    """By the form of the state where the entries have several forms, else an entry each."""
    forms = {name: form_of(kinds.get(name)) for name in names}
    if len(set(forms.values()) - {OTHER}) < _FEWEST:
        return [Group("", at, (name,)) for at, name in enumerate(names)]
    known = {form: tuple(name for name in names if forms[name] == form) for form in _COLOURS}
    return [Group(form, _COLOURS[form], some) for form, some in known.items() if some]


def colours(some: Iterable[Group]) -> dict[str, int]:
    """Entries of one group share a colour and a mark, and differ in dash."""
    return {name: group.colour + HUES * at for group in some for at, name in enumerate(group.entries)}
