"""A case: a description without faults, with its data."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ..logits import Mask
from ..packing import Pages, paged
from .description import Description
from .faults import faults_of
from .inputs import Inputs
from .tags import tags_of
from .visible import has_unseen_rows, keys_of, queries_of, visible_of


@dataclass(frozen=True)
class Case(Description):
    """One attention problem; the attributes are those of ``Description``."""

    def __post_init__(self) -> None:
        for fault in faults_of(self):
            raise ValueError(f"{self.name}: {fault}")

    @cached_property
    def tags(self) -> frozenset[str]:
        """What is special about the case, to choose cases by: ``"causal" in case.tags``.

        ``slice``: head dims that GPU backends take, multiples of 8 and at most 256. The others:
        ``alibi``, ``batch_of_one``, ``bias``, ``causal``, ``cross`` (Sq != Skv), ``decode``
        (Sq = 1), ``dropout``, ``empty``, ``empty_sequence`` (a length of 0), ``expanded``
        (stride 0), ``gaps`` (unused rows in packed tensors), ``gqa``, ``large``, ``lengths``,
        ``many_rows`` (1000 of all heads), ``mask``, ``mixed_head_dim`` (D != Dv),
        ``negative_lse`` (below -88.7), ``packed``, ``paged``, ``scale`` (given), ``score_mod``,
        ``sink`` (off-by-one included), ``slack`` (rows of dense operands past a length),
        ``softcap``, ``strided``, ``unaligned``, ``unseen_rows`` (queries that see no key),
        ``window``.
        """
        return tags_of(self, unseen_rows=has_unseen_rows(self, self._mask()))

    def pages(self, inputs: Inputs) -> Pages:
        """Key and value in pages."""
        if self.page_size is None or self.lengths_kv is None:
            raise ValueError(f"{self.name} is not paged")
        return paged(
            inputs.key,
            inputs.value,
            self.lengths_kv,
            self.page_size,
            own_value_table=self.own_value_table,
        )

    def arrays(self) -> Inputs:
        """The operands: the same at every call; sequences and heads differ from each other."""
        from ..case_data import arrays_of  # (it takes a Case)

        return arrays_of(self)

    def visible(self) -> Mask:
        """Boolean ``[B, 1 or Hq, Sq, Skv]``: what band, lengths and mask leave visible.

        A bias or score_mod that hides is not looked at.
        """
        return visible_of(self, self._mask())

    def exists_q(self) -> Mask:
        """Boolean ``[B, Sq]``: which queries there are."""
        return queries_of(self)

    def exists_kv(self) -> Mask:
        """Boolean ``[B, Skv]``: which keys there are."""
        return keys_of(self)

    def _mask(self) -> Mask | None:
        return None if self.mask is None else self.arrays().mask
