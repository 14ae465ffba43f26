# SPDX-License-Identifier: MIT
"""Simulators that take an operation past the machine at hand, up to 512 CPUs; they know no case.

A `program` is what CPUs do to words on shared lines, `caches` runs it, `locks` are such programs,
`machines` say what lines cost where. A `workload` has variants and rows, `sweep` runs many at once,
`curves` draws them, `predict` compares with what was published. Importing any of them imports
neither numba nor pandas.
"""
