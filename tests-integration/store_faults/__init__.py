"""Faults that a plan store meets, made on purpose."""
