"""A console whose text cannot control the terminal, whether it comes from a file, a model or a user."""

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from statewise.display.letter import safe


class SafeConsole(Console):
    """Rich's console. Its own control codes stay; those in the text that it is given are shown as signs."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=safe(segment.text))

    def render_str(self, text: str, **options: Any) -> Text:
        """Before its width is measured."""
        return super().render_str(safe(text), **options)

    def say(self, text: str, style: str = "") -> None:
        """A line as it is: nothing in it is markup, and a terminal wraps it."""
        self.print(text, style=style, highlight=False, markup=False, soft_wrap=True)

    def redraw(self, line: str = "") -> None:
        """Replace the line that the cursor is on."""
        self.file.write(f"\r\x1b[2K{safe(line)[: self.width - 1]}")
        self.file.flush()


def make_console(**options: Any) -> SafeConsole:
    """A console on standard output, or with `stderr=True` on standard error. All consoles are made here."""
    return SafeConsole(**options)
