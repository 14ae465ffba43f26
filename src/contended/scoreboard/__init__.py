# SPDX-License-Identifier: MIT
"""Every published number beside what this book measured, booted and simulated.

`evidence` says which measurement speaks to which number, `board` reads them and judges, `commands`
prints, `page` is the table on the book's first page.
"""
