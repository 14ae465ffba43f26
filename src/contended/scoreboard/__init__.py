# SPDX-License-Identifier: MIT
"""Every published number beside what this book measured, booted and simulated."""
