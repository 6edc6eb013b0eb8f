"""The faults, a module for each kind; importing one enters its faults into the table."""

from ..fault import FAULTS
from . import biases, functions, lengths, packing, repeats, scales, sinks

__all__ = ["FAULTS", "biases", "functions", "lengths", "packing", "repeats", "scales", "sinks"]
