# SPDX-License-Identifier: MIT
"""How the book is made of the chapters: what runs again, how it runs, and what Sphinx shows."""
