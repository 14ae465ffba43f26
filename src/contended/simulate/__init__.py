# SPDX-License-Identifier: MIT
"""Simulators that take the book's cases past the machine at hand, up to 512 CPUs.

`coherence` runs programs on CPUs that share cache lines, `locks` are such programs, `machines` say
what lines cost where, `cases` put a case's operation together, `predict` compares with what was
published, `sweep` runs many at once. Importing any of them imports neither numba nor pandas.
"""
