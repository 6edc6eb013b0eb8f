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
    BIAS = 10
    GRAD_BIAS = 11
    SINK = 12
    GRAD_SINK = 13
    MAX_LOGIT = 14
    SEQ_LEN_Q = 20
    SEQ_LEN_KV = 21
    CU_SEQ_LEN_Q = 22
    CU_SEQ_LEN_KV = 23
    OFFSETS_QUERY = 30
    OFFSETS_KEY = 31
    OFFSETS_VALUE = 32
    OFFSETS_OUTPUT = 33
    OFFSETS_STATS = 34
    OFFSETS_GRAD_OUTPUT = 35
    OFFSETS_GRAD_QUERY = 36
    OFFSETS_GRAD_KEY = 37
    OFFSETS_GRAD_VALUE = 38
    OFFSETS_MAX_LOGIT = 39
    PAGE_TABLE_K = 40
    PAGE_TABLE_V = 41
    DROPOUT_SEED = 50
    DROPOUT_OFFSET = 51
    ALIBI_SLOPES = 60
    SCALE = 100

    @property
    def role(self) -> str:
        """The operand's name in messages: ``grad_query``."""
        return self.name.lower()


#: Operands of a score_mod graph that are counted: auxiliary tensor ``i`` has uid ``1000 + i``.
SCORE_MOD_TENSORS = 1000
#: The same for numbers that the caller gives at launch.
SCORE_MOD_SCALARS = 3000
