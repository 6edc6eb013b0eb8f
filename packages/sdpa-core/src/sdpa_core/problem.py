"""The attention problem: everything that changes a plan or the choice of a backend."""

from __future__ import annotations

from dataclasses import dataclass

from . import roles
from .direction import Direction, narrowed
from .layout import Shape
from .logits import ScoreMod
from .mask import Band
from .normal import normalized
from .paged import Paged
from .ragged import Packed, packed_like
from .softmax import Softmax
from .tensor import TensorSpec

__all__ = ("AttentionProblem", "Direction", "Softmax")


@dataclass(frozen=True, slots=True)
class AttentionProblem:
    """Attention for operands of these shapes, with these features.

    For each query ``i`` over the keys ``j`` that it sees::

        S = scale * Q K^T              then softcap * tanh(S / softcap), then score_mod(S)
        S = S + bias - slope * |i + shift - j|
        P = exp(S) / (sum_j exp(S) [+ 1, or + exp(sink)])
        O = dropout(P) V

    Frozen and hashable: it is the key of every cache. What can be given when the kernel is
    launched - addresses, contents, seeds, lengths, the scale - is not in it.

    Attributes:
        query: ``[B, Hq, Sq, D]``. Packed: ``B`` sequences of at most ``Sq`` tokens; the strides of
            heads and tokens are real, that of the batch is ``Sq`` times the tokens'.
        key: ``[B, Hkv, Skv, D]``; ``Hq`` is a multiple of ``Hkv`` (grouped-query attention).
            Paged: a pool ``[pages, Hkv, page size, D]``.
        value: ``[B, Hkv, Skv, Dv]``, or a pool.
        output: ``[B, Hq, Sq, Dv]``, dense, stored in the query's order of axes.
        band: which keys a query sees.
        bias: ``[1 or B, 1 or Hq, 1 or Sq, Skv]``, of the query's type or float32, added to the
            scaled logits. A boolean mask is a bias of 0 and -inf.
        alibi: subtract ``slope_h * |i + shift - j|`` with the standard slopes of ``Hq`` heads;
            ``shift`` is the band's.
        alibi_slopes: float32 ``[1 or B, Hq, 1, 1]``: the same with slopes that the caller gives.
        softmax: what else is in the denominator.
        softcap: bound of the logits.
        score_mod: a function of the logits.
        dropout_p: probability that an element of ``P`` is dropped; those kept are divided by
            ``1 - dropout_p``.
        seq_lens_q, seq_lens_kv: dense operands come with lengths int32 ``[B]`` in tokens; later
            tokens do not exist. Always true of pages, and of a dense operand beside a packed one.
        packed_q, packed_kv: the operand is packed; it comes with ``cu_seqlens``.
        paged: key and value are pools of pages.
        training: a backward pass follows, so the forward pass keeps its statistics.
        return_lse: the caller wants the log-sum-exp.
        return_max_logit: the caller wants the largest visible logit of each head.
        deterministic: gradients must be bitwise equal from run to run.
        bias_grad: the backward pass gives the bias's gradient.
        sink_grad: the backward pass gives the sink's gradient.
        grad_output: the gradient of ``output`` as it arrives; None means stored like ``output``.
    """

    query: TensorSpec
    key: TensorSpec
    value: TensorSpec
    output: TensorSpec
    band: Band = Band()
    bias: TensorSpec | None = None
    alibi: bool = False
    alibi_slopes: TensorSpec | None = None
    softmax: Softmax = Softmax.VANILLA
    softcap: float | None = None
    score_mod: ScoreMod | None = None
    dropout_p: float = 0.0
    seq_lens_q: bool = False
    seq_lens_kv: bool = False
    packed_q: Packed | None = None
    packed_kv: Packed | None = None
    paged: Paged | None = None
    training: bool = False
    return_lse: bool = False
    return_max_logit: bool = False
    deterministic: bool = False
    bias_grad: bool = False
    sink_grad: bool = False
    grad_output: TensorSpec | None = None

    @classmethod
    def of(
        cls,
        query: TensorSpec,
        key: TensorSpec,
        value: TensorSpec,
        *,
        band: Band | None = None,
        bias: TensorSpec | None = None,
        alibi: bool = False,
        alibi_slopes: TensorSpec | None = None,
        softmax: Softmax = Softmax.VANILLA,
        softcap: float | None = None,
        score_mod: ScoreMod | None = None,
        dropout_p: float = 0.0,
        seq_lens_q: bool = False,
        seq_lens_kv: bool = False,
        packed_q: Packed | None = None,
        packed_kv: Packed | None = None,
        paged: Paged | None = None,
        training: bool = False,
        return_lse: bool = False,
        return_max_logit: bool = False,
        deterministic: bool = False,
        bias_grad: bool = False,
        sink_grad: bool = False,
    ) -> AttentionProblem:
        """The normalized problem of these operands (checked by ``validate`` beforehand)."""
        shape = (*query.shape[:3], value.shape[-1])
        asked = cls(
            query,
            key,
            value,
            output=packed_like(query, shape) if packed_q else query.like(shape),
            band=band or Band(),
            bias=bias,
            alibi=alibi,
            alibi_slopes=alibi_slopes,
            softmax=softmax,
            softcap=softcap,
            score_mod=score_mod,
            dropout_p=dropout_p,
            seq_lens_q=seq_lens_q,
            seq_lens_kv=seq_lens_kv,
            packed_q=packed_q,
            packed_kv=packed_kv,
            paged=paged,
            training=training,
            return_lse=return_lse,
            return_max_logit=return_max_logit,
            deterministic=deterministic,
            bias_grad=bias_grad,
            sink_grad=sink_grad,
        )
        return normalized(asked)

    @property
    def batch(self) -> int:
        return self.query.shape[0]

    @property
    def heads(self) -> int:
        return self.query.shape[1]

    @property
    def heads_kv(self) -> int:
        return self.key.shape[1]

    @property
    def tokens_q(self) -> int:
        """Length of the longest query sequence, as far as it is known."""
        return self.query.shape[2]

    @property
    def tokens_kv(self) -> int:
        """Length of the longest key sequence, as far as it is known."""
        return self.paged.tokens if self.paged else self.key.shape[2]

    @property
    def has_lengths(self) -> bool:
        """Whether sequences have lengths of their own, which only the device knows."""
        return self.seq_lens_q or self.seq_lens_kv or self.is_packed

    @property
    def is_packed(self) -> bool:
        return self.packed_q is not None or self.packed_kv is not None

    @property
    def is_flex(self) -> bool:
        """Whether the logits pass through a function, which only score_mod graphs can hold."""
        modified = self.softcap is not None or self.score_mod is not None
        return modified or self.alibi_slopes is not None

    @property
    def stats_shape(self) -> Shape:
        """Of the log-sum-exp of dense queries, float32, natural logarithm: ``[B, Hq, Sq, 1]``."""
        return (*self.query.shape[:3], 1)

    @property
    def needs_stats(self) -> bool:
        return self.training or self.return_lse

    @property
    def is_empty(self) -> bool:
        """Nothing to compute: no row of the output, or no key to attend to."""
        packed = (self.packed_q, self.packed_kv)
        no_rows = any(side is not None and side.tokens == 0 for side in packed)
        return no_rows or 0 in self.query.shape[:3] or self.tokens_kv == 0

    def incoming_gradient(self) -> TensorSpec:
        return self.grad_output or self.output

    @property
    def is_decode(self) -> bool:
        """One query: the keys may then be split over blocks whose results are merged."""
        return self.query.shape[2] == 1

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the tensors that a forward pass takes, in the order in which they are passed."""
        return roles.inputs(self)

    @property
    def results(self) -> tuple[str, ...]:
        """Names of what a forward pass gives, in order."""
        return roles.results(self)

    @property
    def gradients(self) -> tuple[str, ...]:
        """Names of what a backward pass gives, in order."""
        return roles.gradients(self)

    def for_direction(self, direction: Direction) -> AttentionProblem:
        """This problem with the fields that cannot change ``direction``'s plan cleared."""
        return narrowed(self, direction)
