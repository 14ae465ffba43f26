# SPDX-License-Identifier: MIT
"""Run a model on this machine, and keep what it measured."""

from contended.measure.measurement import TooFewCpus, measure

__all__ = ["TooFewCpus", "measure"]
