"""Where packed sequences start: the ragged offsets of a graph's operands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ..dtypes import DType
from ..problem import AttentionProblem
from ..tensor import TensorSpec
from .graph import Derived, Operand, OperandKind, Rule
from .memory import on_query_side
from .operands import derived
from .uids import F16Uid


@dataclass
class Offsets:
    """Gives packed operands their offsets; operands with equal offsets share them.

    Attributes:
        problem: with declared dimensions.
        in_tokens: the graph multiplies ``cu_seqlens`` itself (cuDNN >= 9.24, forward). Otherwise
            offsets count elements, in int64: ``cu_seqlens`` times a stride soon passes 2**31
            (TransformerEngine: int64 since cuDNN 9.5).
        packed_stats: statistics are packed like the query.
    """

    problem: AttentionProblem
    in_tokens: bool
    packed_stats: bool
    operands: list[Operand] = field(default_factory=list)

    def attach(self, tensors: Sequence[Operand]) -> list[Operand]:
        """The operands, those of packed sequences with their offsets."""
        return [self._attached(operand) for operand in tensors]

    def _attached(self, operand: Operand) -> Operand:
        query_side = on_query_side(operand.role)
        packed = self.problem.packed_q if query_side else self.problem.packed_kv
        statistics = operand.role in ("stats", "max_logit")
        if packed is None or (statistics and not self.packed_stats):
            return operand
        source = f"cu_seqlens_{'q' if query_side else 'kv'}{'_padded' if packed.gaps else ''}"
        per_token = operand.strides[2]
        uid = self._offset(operand.role, source, 1 if self.in_tokens else per_token)
        unit = per_token if self.in_tokens else 1
        # cuDNN writes the rows of sequences alone. What is in the gaps of statistics, nobody reads.
        gaps_show = operand.kind is OperandKind.OUTPUT and not statistics
        return replace(operand, ragged=uid, ragged_unit=unit, zero_fill=gaps_show)

    def _offset(self, role: str, source: str, elements: int) -> int:
        rule = Derived(Rule.LENGTHS if self.in_tokens else Rule.OFFSETS, source, elements)
        for known in self.operands:
            if known.derived == rule:
                return known.uid
        uid = F16Uid[f"OFFSETS_{role.upper()}"]
        # Next to a dense query cuDNN takes offsets of keys in int32 alone (9.19 and 9.28: "int64
        # ragged offset must have all ragged offsets as int64").
        short = self.in_tokens or self.problem.packed_q is None
        dtype = DType.INT32 if short else DType.INT64
        spec = TensorSpec.dense((self.problem.batch + 1, 1, 1, 1), dtype)
        self.operands.append(derived(uid, spec, rule))
        return uid
