# SPDX-License-Identifier: MIT
"""Something to move in JupyterLab, and what stands in its place elsewhere."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

BOOK = "CONTENDED_BOOK"
"""Set while the book is built: its pages have no server behind them that a widget could ask."""


def with_widget(still: dict[str, Any], make: Callable[[], Any]) -> dict[str, Any]:
    """A mimebundle of what stands still and, where there can be one, of the widget."""
    if os.environ.get(BOOK):
        return still
    try:
        bundle: dict[str, Any] = make()._repr_mimebundle_()
    except ImportError:  # ipywidgets is an extra
        return still
    # whoever cannot show the widget shows what stands still
    return {**still, **{kind: v for kind, v in bundle.items() if "widget" in kind}}
