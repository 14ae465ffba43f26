# SPDX-License-Identifier: MIT
"""The kernel lab: patches built into a real kernel, booted in QEMU, judged by their outcomes."""
