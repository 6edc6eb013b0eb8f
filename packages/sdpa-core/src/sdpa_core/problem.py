"""The attention problem: everything that changes a plan or the choice of a backend."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from .dtypes import DType
from .mask import Band
from .tensor import TensorSpec


class Direction(StrEnum):
    FORWARD = "forward"
    BACKWARD = "backward"


@dataclass(frozen=True, slots=True)
class AttentionProblem:
    """``O = softmax(scale * Q K^T, masked by band) V`` for operands of these shapes.

    Frozen and hashable: it is the key of every cache. What can be given when the kernel is
    launched - addresses, contents, the scale - is not in it.

    Attributes:
        query: ``[B, Hq, Sq, D]``.
        key: ``[B, Hkv, Skv, D]``; ``Hq`` is a multiple of ``Hkv`` (grouped-query attention).
        value: ``[B, Hkv, Skv, Dv]``.
        output: ``[B, Hq, Sq, Dv]``, dense, stored in the query's order of axes.
        band: which keys a query sees.
        training: a backward pass follows, so the forward pass keeps its statistics.
        return_lse: the caller wants the log-sum-exp.
        deterministic: gradients must be bitwise equal from run to run.
        grad_output: the gradient of ``output`` as it arrives; None means stored like ``output``.
    """

    query: TensorSpec
    key: TensorSpec
    value: TensorSpec
    output: TensorSpec
    band: Band = Band()
    training: bool = False
    return_lse: bool = False
    deterministic: bool = False
    grad_output: TensorSpec | None = None

    @classmethod
    def of(
        cls,
        query: TensorSpec,
        key: TensorSpec,
        value: TensorSpec,
        *,
        band: Band | None = None,
        training: bool = False,
        return_lse: bool = False,
        deterministic: bool = False,
    ) -> AttentionProblem:
        """The normalized problem of these operands (checked by ``validate`` beforehand)."""
        batch, heads, tokens, _ = query.shape
        return cls(
            query=query.canonical(),
            key=key.canonical(),
            value=value.canonical(),
            output=query.like((batch, heads, tokens, value.shape[-1])),
            band=(band or Band()).normalized(tokens, key.shape[2]),
            training=training,
            return_lse=return_lse,
            deterministic=deterministic,
        )

    @property
    def stats(self) -> TensorSpec:
        """Log-sum-exp of each query's row: float32 ``[B, Hq, Sq, 1]``, natural logarithm, dense.

        Always row-major: cuDNN before 9.26 ignores other strides in some backward kernels
        (cudnn-frontend PR 304).
        """
        batch, heads, tokens, _ = self.query.shape
        return TensorSpec.dense((batch, heads, tokens, 1), DType.FLOAT32)

    @property
    def needs_stats(self) -> bool:
        return self.training or self.return_lse

    @property
    def is_empty(self) -> bool:
        """Nothing to compute: no row of the output, or no key to attend to."""
        return 0 in self.query.shape[:3] or self.key.shape[2] == 0

    def incoming_gradient(self) -> TensorSpec:
        return self.grad_output or self.output

    @property
    def is_decode(self) -> bool:
        """One query: the keys may then be split over blocks whose results are merged."""
        return self.query.shape[2] == 1

    def for_direction(self, direction: Direction) -> AttentionProblem:
        """This problem with the fields that cannot change ``direction``'s plan cleared."""
        if direction is Direction.FORWARD:
            return replace(
                self,
                training=False,
                return_lse=self.needs_stats,
                # Merging split keys is the one forward pass with an order to be fixed.
                deterministic=self.deterministic and self.is_decode and self.needs_stats,
                grad_output=None,
            )
        given = self.grad_output
        same = given is None or given.canonical() == self.output.canonical()
        return replace(
            self,
            training=True,
            return_lse=False,
            grad_output=None if given is None or same else given.canonical(),
        )
