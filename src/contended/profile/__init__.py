# SPDX-License-Identifier: MIT
"""What cache lines do: the QEMU plugin, and names for the lines it saw."""
