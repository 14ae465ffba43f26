# SPDX-License-Identifier: MIT
"""The command line: one file a command, parsing kept out of the engines."""
