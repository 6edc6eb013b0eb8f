"""Names of graph operands: one number each, shared by both frameworks and the executor.

Saved plans and exported programs hold these numbers. Never change or reuse one.
"""

from __future__ import annotations

from enum import IntEnum


class F16Uid(IntEnum):
    """Operands of the 16-bit family, forward and backward."""

    QUERY = 1
    KEY = 2
    VALUE = 3
    OUTPUT = 4
    STATS = 5
    GRAD_OUTPUT = 6
    GRAD_QUERY = 7
    GRAD_KEY = 8
    GRAD_VALUE = 9
    SEQ_LEN_Q = 20
    SEQ_LEN_KV = 21
    SCALE = 100

    @property
    def role(self) -> str:
        """The operand's name in messages: ``grad_query``."""
        return self.name.lower()
