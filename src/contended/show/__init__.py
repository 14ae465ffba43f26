# SPDX-License-Identifier: MIT
"""What a reader sees: figures, tables, boxes, claims."""
