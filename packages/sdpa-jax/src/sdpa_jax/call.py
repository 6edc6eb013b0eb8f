"""All that JAX must know of a call besides its arrays."""

from __future__ import annotations

from dataclasses import dataclass

from sdpa_core import AttentionProblem, Band, TensorSpec
from sdpa_core.logits import ScoreMod
from sdpa_core.paged import Paged
from sdpa_core.problem import Softmax
from sdpa_core.ragged import Packed

from . import convert
from .convert import Shaped
from .dispatch import Selection


@dataclass(frozen=True, slots=True)
class Call:
    """The parameter of the primitives.

    Attributes:
        roles: of the operands, in order: ``AttentionProblem.inputs``.
        band: which keys a query sees.
        scalars: the scale, then the numbers that ``score_mod`` takes.
        selection: what decides between backends.
        softmax, softcap, score_mod, alibi, dropout_p: as in ``AttentionProblem``.
        longest_q, longest_kv: of packed sequences: tokens of the longest one.
        deterministic: gradients must be bitwise equal from run to run.
        return_lse, return_max_logit: the caller wants these.
        slack_is_finite: rows of no sequence hold finite numbers.
        training: a backward pass follows, so the log-sum-exp is kept.
        bias_grad, sink_grad: it gives these gradients too.
    """

    roles: tuple[str, ...]
    band: Band
    scalars: tuple[float, ...]
    selection: Selection
    softmax: Softmax = Softmax.VANILLA
    softcap: float | None = None
    score_mod: ScoreMod | None = None
    alibi: bool = False
    dropout_p: float = 0.0
    longest_q: int = 0
    longest_kv: int = 0
    deterministic: bool = False
    return_lse: bool = False
    return_max_logit: bool = False
    slack_is_finite: bool = False
    training: bool = False
    bias_grad: bool = False
    sink_grad: bool = False

    @property
    def is_packed_q(self) -> bool:
        return "cu_seqlens_q" in self.roles

    @property
    def is_packed_kv(self) -> bool:
        return "cu_seqlens_kv" in self.roles

    @property
    def is_paged(self) -> bool:
        return "page_table_k" in self.roles

    @property
    def results(self) -> tuple[str, ...]:
        """``AttentionProblem.results``."""
        wanted = {
            "stats": self.training or self.return_lse,
            "max_logit": self.return_max_logit,
        }
        return ("output", *(role for role, needed in wanted.items() if needed))

    @property
    def gradients(self) -> tuple[str, ...]:
        """``AttentionProblem.gradients``."""
        wanted = {"grad_bias": self.bias_grad, "grad_sink": self.sink_grad}
        own = ("grad_query", "grad_key", "grad_value")
        return (*own, *(role for role, needed in wanted.items() if needed))

    @property
    def backward_roles(self) -> tuple[str, ...]:
        """Roles of what the backward pass takes."""
        return (*self.roles, "output", "stats", "grad_output")

    @staticmethod
    def operand_of(gradient: str) -> str:
        """Whose gradient it is."""
        return gradient.removeprefix("grad_")

    def problem(self, *operands: Shaped) -> AttentionProblem:
        """The problem that this call poses for arrays of these shapes and types.

        Args:
            *operands: in the order of ``roles``; what a backward pass takes besides may follow.
        """
        given = dict(zip(self.roles, operands, strict=False))
        batch = self._batch(given)
        query = self._spec(given["query"], batch, self.longest_q if self.is_packed_q else None)
        longest_kv = self.longest_kv if self.is_packed_kv else None
        key, value = (self._spec(given[role], batch, longest_kv) for role in ("key", "value"))
        bias, slopes = given.get("bias"), given.get("alibi_slopes")
        problem = AttentionProblem.of(
            query,
            key,
            value,
            band=self.band,
            bias=None if bias is None else convert.dense(bias),
            alibi=self.alibi,
            alibi_slopes=None if slopes is None else convert.dense(slopes),
            softmax=self.softmax,
            softcap=self.softcap,
            score_mod=self.score_mod,
            dropout_p=self.dropout_p,
            seq_lens_q="seq_lens_q" in given,
            seq_lens_kv="seq_lens_kv" in given,
            packed_q=self._packed("q", given) if self.is_packed_q else None,
            packed_kv=self._packed("kv", given) if self.is_packed_kv else None,
            paged=self._paged(given) if self.is_paged else None,
            training=self.training,
            return_lse=self.return_lse,
            return_max_logit=self.return_max_logit,
            deterministic=self.deterministic,
            bias_grad=self.bias_grad,
            sink_grad=self.sink_grad,
        )
        assert problem.inputs == self.roles, (problem.inputs, self.roles)
        return problem

    def _batch(self, given: dict[str, Shaped]) -> int:
        if self.is_packed_q:
            return given["cu_seqlens_q"].shape[0] - 1
        return given["query"].shape[0]

    def _spec(self, operand: Shaped, batch: int, longest: int | None) -> TensorSpec:
        if longest is None:
            return convert.spec(operand)
        return convert.packed(operand, batch, longest)

    def _packed(self, side: str, given: dict[str, Shaped]) -> Packed:
        tokens = given["query" if side == "q" else "key"].shape[0]
        return Packed(tokens, f"cu_seqlens_{side}_padded" in given)

    def _paged(self, given: dict[str, Shaped]) -> Paged:
        keys, values = (convert.dense(given[f"page_table_{x}"]) for x in ("k", "v"))
        return Paged(keys, values, keys.shape[1] * given["key"].shape[1])
