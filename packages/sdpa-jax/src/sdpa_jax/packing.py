"""Where the sequences of packed arrays lie, as a value and side by side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import jax
from jax import Array
from jax.typing import ArrayLike

from sdpa_core import TensorSpec

from . import convert
from .arguments import lengths, scalars


@dataclass(frozen=True)
class SequenceLayout:
    """Where the sequences of packed arrays lie: computed once, used by all layers.

    Sequence ``b`` is rows ``start[b]`` to ``start[b] + cu[b + 1] - cu[b] - 1`` of the packed array,
    with ``start = cu``, or the padded one if there are gaps. All arrays are int32 or int64
    ``[B + 1]`` and count tokens; their values are not looked at.

    A pytree: arrays are leaves, the longest lengths are static.

    Attributes:
        cu_seqlens_q, cu_seqlens_kv: cumulative lengths of either side; None: that side is dense.
        max_q, max_kv: tokens of the longest sequence of a packed side, or more, concrete. Less is
            not noticed, because lengths are on the device: results of longer sequences are
            undefined.
        cu_seqlens_q_padded, cu_seqlens_kv_padded: starts, where sequences lie with gaps.
    """

    cu_seqlens_q: ArrayLike | None = None
    cu_seqlens_kv: ArrayLike | None = None
    max_q: int | None = None
    max_kv: int | None = None
    cu_seqlens_q_padded: ArrayLike | None = None
    cu_seqlens_kv_padded: ArrayLike | None = None


_STATIC = ("max_q", "max_kv")
jax.tree_util.register_dataclass(
    SequenceLayout,
    data_fields=[field.name for field in fields(SequenceLayout) if field.name not in _STATIC],
    meta_fields=list(_STATIC),
)


class Names(NamedTuple):
    """What errors call the parts of one side."""

    cu: str
    longest: str
    padded: str


#: By side: names of the value's fields, and of the functions' own arguments.
_FIELDS = {
    "q": Names("cu_seqlens_q", "max_q", "cu_seqlens_q_padded"),
    "kv": Names("cu_seqlens_kv", "max_kv", "cu_seqlens_kv_padded"),
}
ARGUMENTS = {
    "q": Names("cu_seq_q", "max_q", "cu_seq_q_padded"),
    "kv": Names("cu_seq_k", "max_k", "cu_seq_k_padded"),
}


class Side(NamedTuple):
    """What is given of one side's sequences.

    Attributes:
        name: in names of roles, ``q`` or ``kv``.
        called: for errors.
        bounds, starts: cumulative lengths, and the padded ones.
        lengths: of a dense side.
        longest: of a packed side; 0 of a dense one.
    """

    name: str
    called: Names
    bounds: Any
    starts: Any
    lengths: Any
    longest: int

    @classmethod
    def of(cls, name: str, called: Names, where: SequenceLayout, seq_lens: Any, array: Any) -> Side:
        """One side of a layout, checked for being complete.

        Args:
            array: its query or key.

        Raises:
            TypeError, ValueError: it is not, or does not fit the rank of ``array``.
        """
        bounds, longest, starts = (getattr(where, field) for field in _FIELDS[name])
        operand = "query" if name == "q" else "key"
        rank = getattr(array, "ndim", None)
        if bounds is None:
            for wrong, value in ((called.padded, starts), (called.longest, longest)):
                if value is not None:
                    raise ValueError(f"{wrong} is given without {called.cu}")
            if rank == 3:
                raise ValueError(
                    f"{operand} has 3 axes, which are those of packed sequences, and {called.cu} "
                    f"is None; give it, or dense sequences [batch, tokens, heads, head_dim]"
                )
            return cls(name, called, None, None, seq_lens, 0)
        if longest is None:
            raise ValueError(f"{called.longest} is None; {called.cu} needs the longest length")
        if seq_lens is not None:
            raise ValueError(
                f"seq_lens_{name} is given beside {called.cu}, which tells the lengths"
            )
        if rank == 4:
            raise ValueError(
                f"{operand} has 4 axes, and {called.cu} is given; "
                f"packed sequences are [tokens, heads, head_dim]"
            )
        return cls(name, called, bounds, starts, None, scalars.count(called.longest, longest))

    @property
    def is_packed(self) -> bool:
        return self.bounds is not None

    def batch(self, array: Array) -> int:
        """Number of sequences."""
        if not self.is_packed:
            return array.shape[0]
        return lengths.cu_seqlens(self.called.cu, self.bounds).shape[0] - 1

    def spec(self, array: Array, batch: int) -> TensorSpec:
        if not self.is_packed:
            return convert.spec(array)
        return convert.packed(array, batch, self.longest)

    def arrays(self, array: Array, batch: int) -> Mapping[str, Array]:
        """Operands by role: what a backend needs of these sequences."""
        if not self.is_packed:
            given = self.lengths
            if given is None:  # beside packed sequences a dense side has lengths too
                given = jax.numpy.full(batch, array.shape[1], jax.numpy.int32)
            name = f"seq_lens_{self.name}"
            return {name: lengths.seq_lens(name, given, batch)}
        role = f"cu_seqlens_{self.name}"
        found = {role: lengths.cu_seqlens(self.called.cu, self.bounds, batch)}
        if self.starts is not None:
            found[f"{role}_padded"] = lengths.cu_seqlens(self.called.padded, self.starts, batch)
        return found


def layout_from(layout: Any, given: SequenceLayout) -> tuple[SequenceLayout, Mapping[str, Names]]:
    """What is said of sequences, as a value or as arguments, and how errors name its parts."""
    if layout is None:
        return given, ARGUMENTS
    if not isinstance(layout, SequenceLayout):
        raise TypeError(f"layout is a {type(layout).__name__}; expected a SequenceLayout")
    for side, names in _FIELDS.items():
        for field, argument in zip(names, ARGUMENTS[side], strict=True):
            if getattr(given, field) is not None:
                raise ValueError(f"{argument} is given beside layout, which holds it")
    return layout, _FIELDS
