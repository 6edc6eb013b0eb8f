"""Graphs whose logits pass through a function: softcap, score_mod, ALiBi with given slopes.

cuDNN takes such a function alone, without its own masks (cudnn-frontend 1.32, sdpa.h), so the
band, the lengths and the bias become part of the function.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from .. import score_mod as of_score
from ..dtypes import DType
from ..mask import Alignment
from ..problem import AttentionProblem, Direction
from ..score_mod import Expression, Symbol, Trace
from ..tensor import TensorSpec
from . import operands
from .graph import Operand, OperandKind
from .uids import SCORE_MOD_SCALARS, SCORE_MOD_TENSORS, F16Uid


@dataclass(frozen=True, slots=True)
class Function:
    """A function of the logits.

    Attributes:
        expression: of the scaled logits.
        gradient: of the incoming gradient and the scaled logits; None in the forward pass.
        operands: what it reads besides.
        tensors: the role of the operand behind each auxiliary tensor of the expressions.
    """

    expression: Expression | None
    gradient: Expression | None = None
    operands: tuple[Operand, ...] = ()
    tensors: tuple[str, ...] = ()


NO_FUNCTION = Function(None)


def function(declared: AttentionProblem, tokens_q: int, direction: Direction) -> Function:
    """Everything between the scaled logits and the softmax, as one function.

    Args:
        tokens_q: of the caller's queries; what is declared may be more.
    """
    backward = direction is Direction.BACKWARD
    logits = _Logits(declared, tokens_q, backward)
    return Function(
        logits.forward(),
        logits.backward() if backward else None,
        tuple(logits.operands),
        tuple(logits.roles),
    )


@dataclass
class _Logits:
    """The function of a problem, and what it reads, numbered: first the caller's tensors."""

    problem: AttentionProblem
    tokens_q: int
    in_backward: bool
    trace: Trace = field(default_factory=Trace)
    operands: list[Operand] = field(default_factory=list)
    roles: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        problem, given = self.problem, self.problem.score_mod
        for i, spec in enumerate(given.tensors if given else ()):
            self._reads(_counted(SCORE_MOD_TENSORS + i, f"score_mod_{i}", spec, _INPUT))
        for i in range(given.scalars if given else 0):
            role = f"score_mod_scalar_{i}"
            self.operands.append(_counted(SCORE_MOD_SCALARS + i, role, _SCALAR, _HOST))
        if problem.bias is not None:
            self._reads(operands.tensor(F16Uid.BIAS, problem.bias))
        if problem.alibi_slopes is not None:
            self._reads(operands.tensor(F16Uid.ALIBI_SLOPES, problem.alibi_slopes))
        if problem.has_lengths:
            for operand in operands.lengths(problem, self.tokens_q):
                self._reads(operand)

    def _reads(self, operand: Operand) -> None:
        spec = operands.spread(operand.spec, self.problem.tokens_q, self.problem.tokens_kv)
        self.operands.append(replace(operand, shape=spec.shape, strides=spec.strides))
        self.roles.append(operand.role)

    def _tensor(self, role: str) -> Symbol:
        dtype = next(operand.dtype for operand in self.operands if operand.role == role)
        return self.trace.tensor(self.roles.index(role), dtype)

    def forward(self) -> Expression:
        score = self._capped()
        if self.problem.score_mod is not None:
            score = of_score.insert(self.trace, self.problem.score_mod.expression, score=score)
        if self.problem.bias is not None:
            score = score + self._tensor("bias")
        slopes = self._slopes()
        if slopes is not None:
            score = of_score.alibi(score, slopes, self._distance())
        return self.trace.expression(of_score.where_visible(self._visible(), score))

    def backward(self) -> Expression:
        """The gradient of the scaled logits, from that of what ``forward`` gives.

        Hidden logits have probability 0, so their gradient comes in as 0, and goes out as 0 where
        a derivative is infinite. Not by the masks once more: cuDNN 9.28 takes at most four
        operands that are broadcast over the keys on compute capability 9.0.
        """
        grad, given = self.trace.grad, self.problem.score_mod
        if given is not None:
            gradient = given.gradient or of_score.gradient(given.expression)
            inner = of_score.insert(self.trace, gradient, score=self._capped(), grad=grad)
            grad = of_score.select(grad == 0.0, 0.0, inner)
        if self.problem.softcap is not None:
            capped = self.trace.expression(self._capped())
            grad = of_score.insert(self.trace, of_score.gradient(capped), grad=grad)
        return self.trace.expression(grad)

    def _capped(self) -> Symbol:
        score, cap = self.trace.score, self.problem.softcap
        return score if cap is None else of_score.softcap(score, cap)

    def _slopes(self) -> float | Symbol | None:
        if self.problem.alibi_slopes is not None:
            return self._tensor("alibi_slopes")
        if self.problem.alibi:
            return of_score.standard_slopes(self.trace.head, self.problem.heads)
        return None

    def _distance(self) -> Symbol:
        """How far a key lies behind the query's diagonal, in tokens."""
        query, key, problem = self.trace.query, self.trace.key, self.problem
        if problem.band.alignment is Alignment.TOP_LEFT:
            return key - query
        if not problem.has_lengths:
            return key - query - (problem.tokens_kv - self.tokens_q)
        return self._from_end("kv") - self._from_end("q")

    def _from_end(self, side: str) -> Symbol:
        """Position relative to the end of the sequence: negative inside.

        The one form in which lengths occur: cuDNN 9.28 takes other sums for a bias, and refuses its
        strides.
        """
        position = self.trace.query if side == "q" else self.trace.key
        return position - self._tensor(f"seq_len_{side}")

    def _visible(self) -> Symbol | None:
        """Whether a query sees a key; None: always."""
        trace, conditions = self.trace, []
        if self.problem.has_lengths:
            conditions.append(self._from_end("q") < 0)
            conditions.append(self._from_end("kv") < 0)
        elif self.in_backward and self.problem.score_mod is not None:
            # cuDNN fills up the last tiles of rows and columns with -inf before it calls the
            # function, of which the function makes anything (H200, cuDNN 9.19: gradients are NaN
            # for ``1 - S``, whose exponential overflows there).
            conditions.append(trace.query < self.problem.tokens_q)
            conditions.append(trace.key < self.problem.tokens_kv)
        within = of_score.band(self._distance(), self.problem.band)
        return of_score.every(*conditions, *([] if within is None else [within]))


_SCALAR = TensorSpec.dense((1, 1, 1, 1), DType.FLOAT32)
_HOST, _INPUT = OperandKind.HOST_SCALAR, OperandKind.INPUT


def _counted(uid: int, role: str, spec: TensorSpec, kind: OperandKind) -> Operand:
    return Operand(uid, role, kind, spec.shape, spec.strides, spec.dtype)
