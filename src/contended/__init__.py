# SPDX-License-Identifier: MIT
"""Linux VFS scalability bugs you can reproduce, patch and measure on your own laptop."""

import sys
from importlib import import_module
from typing import Any

__version__ = "0.1.0"


def _table(measurement: Any) -> Any:
    # by name, and when one is shown: whoever imports the package does not depend on its figures
    return import_module("contended.show.report").measurement_table(measurement)._repr_html_()


# A measurement knows of no HTML, and a notebook shows it as a table all the same, whatever of the
# package it imports. There IPython is loaded already; nothing else needs it.
_ipython = sys.modules.get("IPython")
if _shell := _ipython and _ipython.get_ipython():
    _shell.display_formatter.formatters["text/html"].for_type_by_name(
        "contended.measure.results", "Measurement", _table
    )
