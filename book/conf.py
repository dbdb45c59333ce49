"""Sphinx, for both languages: `book/build.py` gives the language and the sources."""

import os
import sys
from pathlib import Path

BOOK = Path(__file__).parent
sys.path.insert(0, str(BOOK))

language = {"en": "en", "zh": "zh_CN"}[os.environ.get("BOOK_LANGUAGE", "en")]
project = {"en": "Every sequence model is a state machine", "zh_CN": "序列模型都是状态机"}[language]
author = "statewise"
copyright = "statewise"
html_title = project
extensions = ["myst_parser", "sphinx.ext.autodoc", "directives"]
autodoc_inherit_docstrings = False
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
default_role = "code"  # as docstrings are written
myst_enable_extensions = ["colon_fence", "dollarmath", "attrs_inline", "deflist"]
myst_disable_syntax = ["myst_line_comment"]  # a line may begin with %, as on every Git host
myst_heading_anchors = 4
myst_dmath_double_inline = False
html_math_renderer = "katex"
html_theme = "furo"
pygments_dark_style = "github-dark"
html_theme_options = {"top_of_page_buttons": []}
html_static_path = [str(BOOK / "static"), str(BOOK / "_build" / "static")]
html_css_files = ["chart.css", "book.css"]
html_js_files = ["book.js"]
templates_path = [str(BOOK / "templates")]
html_additional_pages = {"search": "search.html"}
html_copy_source = False
html_show_sourcelink = False
html_use_index = html_domain_indices = False
html_show_sphinx = html_show_copyright = False
html_extra_path = [str(BOOK / "_build" / "source" / os.environ.get("BOOK_LANGUAGE", "en") / "extra")]
