"""The lab's page where Python shows things: in a notebook, as a frame of its own."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any, final

from statewise.disk import write
from statewise.figures import html
from statewise.lab.bundle import VERSION, bundle, model_record
from statewise.lab.page import page, sources
from statewise.specs import UserError, optional
from statewise.tasks import Run

_LOWEST = 200  # pixels
_LARGEST = 1 << 17  # numbers of a model in a report, which all readers load
# Its own origin, so that it reads nothing of the notebook; scripts and saved pictures are all that it needs.
_SANDBOX = "allow-scripts allow-downloads"


@final
class Lab:
    """Models in one page. A notebook shows it under the cell; `save` writes it as a file.

    >>> shown = sw.load("runs/lstm").lab(view="hover")
    >>> shown
    Lab(lstm)
    >>> shown.save("lab.html").name
    'lab.html'
    """

    def __init__(self, data: dict[str, Any], *, view: str = "", height: int = 760) -> None:
        if height < _LOWEST:
            raise UserError(f"height {height} is too low for a view", fix=f"at least {_LOWEST} pixels, such as 760")
        self.data, self.height, self._view = data, height, view
        self.html  # noqa: B018  # so that an unknown view is refused here, not when a notebook draws it

    @property
    def names(self) -> list[str]:
        """The models in it.

        >>> sw.lab.show(sw.load("runs/lstm")).names
        ['lstm']
        """
        return [model["name"] for model in self.data["models"]]

    @cached_property
    def html(self) -> str:
        """The whole document."""
        return page(self.data, self.names[0] if len(self.names) == 1 else "The lab", view=self._view)

    def save(self, path: str | Path = "lab.html") -> Path:
        """Write the document, which opens from disk."""
        place = Path(path)
        write(place, self.html)
        return place

    def __repr__(self) -> str:
        return f"Lab({', '.join(self.names)})"

    def _repr_html_(self) -> str:
        style = f"width:100%;height:{self.height}px;border:1px solid #8886;border-radius:6px"
        asked = f'sandbox="{_SANDBOX}" allow="clipboard-write" title="{escape(repr(self))}" style="{style}"'
        return f'<iframe {asked} srcdoc="{escape(self.html)}"></iframe>'


def frame(runs: Mapping[str, Run]) -> html.Frame | None:
    """The models in a report, by their names there: those that read text and are small; None where there are none.

    >>> sw.lab.frame({"mine": sw.load("runs/lstm")}).element[:7]
    '<iframe'
    """
    optional("onnx", extra="onnx", needed_by="models in a report")
    models = []
    for name, run in runs.items():
        if sum(leaf.numel() for leaf in run.model.state_dict().values()) <= _LARGEST:
            with suppress(UserError):  # what the lab cannot show is in the report's table
                models.append(model_record(run, name=name))
    if not models:
        return None
    shown = Lab({"version": VERSION, "models": models, "extra": {}})
    return html.Frame(shown._repr_html_(), sources())


def show(runs: Run | Sequence[Run], *, view: str = "", height: int = 760, exact: bool = False) -> Lab:
    """Runs side by side, live: language models, and classifiers of texts that read forward.

    `view` is the one that is shown first (`step`, `touch`, `hover`, `clamp` ...). Weights are float16; with `exact`
    float32.

    >>> run = sw.load("runs/lstm")
    >>> sw.lab.show([run, run]).names
    ['lstm (1)', 'lstm (2)']
    """
    return Lab(bundle([runs] if isinstance(runs, Run) else runs, exact), view=view, height=height)
