# SPDX-License-Identifier: MIT
"""Linux VFS scalability bugs you can reproduce, patch and measure on your own laptop."""

__version__ = "0.1.0"
