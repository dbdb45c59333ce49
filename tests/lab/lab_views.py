"""The views of the lab, and how a test opens one."""

import re
from pathlib import Path
from typing import Any

from inspected_page import Watched

_LISTED = (Path(__file__).parents[2] / "statewise/lab/static/views.js").read_text(encoding="utf-8")
VIEWS = re.findall(r"(\w+)View", _LISTED.split("export const VIEWS")[1])


def opened(browser: Any, path: Path, view: str = "", **how: Any) -> Watched:
    seen = Watched(browser, path, **how)
    seen.page.goto(f"{path.as_uri()}#{view}")
    seen.page.wait_for_selector("html[data-ready]")
    return seen
