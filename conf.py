# SPDX-License-Identifier: MIT
"""How Sphinx makes the book. `make book` is the way to run it; see docs/status.md for what it ran.

The pages must work offline, in a lecture hall or on a plane: nothing in them may come from another
host (tests/book/test_pages.py holds that).
"""

from contended import __version__

project = "Contended"
author = "the contributors"
release = __version__
copyright = "the contributors. Text CC-BY-4.0, code MIT"  # noqa: A001 - Sphinx's own name for it
language = "en"

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_design",
    "sphinxcontrib.bibtex",
    "contended.book.chapters",
    "contended.book.machines",
    "contended.book.mathml",
    "contended.book.plain",
    "contended.book.status",
    "contended.book.moving",
    "contended.book.scoreboard",
    "contended.book.quiz",
    "contended.book.site",
]

# What is part of the book; everything else in the tree is not looked at.
include_patterns = ["index.md", "docs/**.md", "notebooks/*.ipynb"]
exclude_patterns = [".venv", "_build", "notebooks/text", "**/.ipynb_checkpoints"]

# --- chapters -------------------------------------------------------------------------------------
# They run when the book is built, one after the other, and again only when something they rest on
# has changed: contended.book.chapters sees to it, and hands myst-nb their outputs.
nb_execution_mode = "off"
nb_merge_streams = True
# Sentences that cells say are Markdown like all others, with links to other pages.
nb_render_markdown_format = "myst"
# Interactive widgets would need scripts from another host: the book has none.
nb_ipywidgets_js: dict[str, dict[str, str]] = {}

myst_enable_extensions = ["amsmath", "attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
myst_links_external_new_tab = False

html_math_renderer = "mathml"
math_number_all = False

# --- references -----------------------------------------------------------------------------------
bibtex_bibfiles = ["docs/references.bib"]
bibtex_default_style = "unsrt"
bibtex_reference_style = "label"

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
# Types of packages that have no pages in this book: a link to them would need the network.
nitpick_ignore_regex = [
    ("py:.*", r"(argparse|cffi|collections|datetime|json|matplotlib|numpy|pathlib|typing)\..*"),
    ("py:.*", r"(pandas|subprocess|contended\.packages)\..*"),
    ("py:.*", r"contended\..*\._[A-Z]\w*"),  # type variables
    ("py:.*", r"(Any|Axes|Callable|Figure|Iterable|Iterator|Mapping|NDArray|Path|Sequence)"),
]

# --- looks ----------------------------------------------------------------------------------------
html_theme = "sphinx_book_theme"
html_title = "Contended"
html_favicon = "docs/_static/favicon.svg"
html_static_path = ["docs/_static"]
templates_path = ["docs/_templates"]
# The theme's own, but for the first.
html_sidebars = {"**": ["front-page.html", "search-button-field.html", "sbt-sidebar-nav.html"]}
html_css_files = ["book.css"]
html_js_files = ["element.js", "predict.js", "slider.js", "steps.js"]
html_show_sourcelink = False
# Light or dark as the reader's system says; unset, the theme logs an error in the console.
html_context = {"default_mode": "auto"}
html_theme_options = {
    "use_download_button": True,
    "use_fullscreen_button": False,
    "show_toc_level": 2,
    "navigation_with_keys": True,
}
