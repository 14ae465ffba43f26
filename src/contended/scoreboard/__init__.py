# SPDX-License-Identifier: MIT
"""Every published number beside what this book measured, booted and simulated.

What speaks to which number stands with each case, in `contended.cases`; `board` reads it and
judges, `simulated` keeps what was simulated.
"""
