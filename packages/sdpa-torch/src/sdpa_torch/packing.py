"""Where packed sequences are, and what operands beside them must be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from .arguments import lengths, numbers


@dataclass(frozen=True, eq=False)
class SequenceLayout:
    """Where packed sequences are. Made once for a batch, it serves all layers.

    Sequence ``b`` is rows ``start[b]`` to ``start[b] + cu[b + 1] - cu[b] - 1`` of the packed
    tensor, with ``start = cu``, or the padded one if there are gaps. All arrays are int32 or int64
    ``[B + 1]`` on the operands' device and count tokens; their values are not looked at. They are
    kept as int32.

    Attributes:
        cu_seqlens_q, cu_seqlens_kv: cumulative lengths of either side; None: that side is dense.
        max_q, max_kv: tokens of the longest sequence of a packed side, or more. Less is not
            noticed, because lengths are on the device: results of longer sequences are undefined.
        cu_seqlens_q_padded, cu_seqlens_kv_padded: starts, where sequences lie with gaps.

    Raises:
        TypeError, ValueError: incomplete, or of the wrong type, shape or device.
    """

    cu_seqlens_q: Tensor | None = None
    cu_seqlens_kv: Tensor | None = None
    max_q: int | None = None
    max_kv: int | None = None
    cu_seqlens_q_padded: Tensor | None = None
    cu_seqlens_kv_padded: Tensor | None = None

    def __post_init__(self) -> None:
        _settle(self, _LAYOUT_NAMES)

    @property
    def batch(self) -> int:
        """Number of sequences."""
        given = self.cu_seqlens_kv if self.cu_seqlens_q is None else self.cu_seqlens_q
        assert given is not None
        return given.shape[0] - 1


#: How errors name each field: of the value, and of the functions' own arguments.
_LAYOUT_NAMES = {
    "cu_q": "cu_seqlens_q",
    "cu_kv": "cu_seqlens_kv",
    "max_q": "max_q",
    "max_kv": "max_kv",
    "gaps_q": "cu_seqlens_q_padded",
    "gaps_kv": "cu_seqlens_kv_padded",
}
_ARGUMENT_NAMES = {
    "cu_q": "cu_seq_q",
    "cu_kv": "cu_seq_k",
    "max_q": "max_q",
    "max_kv": "max_k",
    "gaps_q": "cu_seq_q_padded",
    "gaps_kv": "cu_seq_k_padded",
}


def _settle(layout: SequenceLayout, names: dict[str, str]) -> None:
    """Make arrays int32; raise unless each side is complete, and the sides agree.

    They agree in the number of sequences and in the device.
    """
    sides = (
        ("q", layout.cu_seqlens_q, layout.max_q, layout.cu_seqlens_q_padded),
        ("kv", layout.cu_seqlens_kv, layout.max_kv, layout.cu_seqlens_kv_padded),
    )
    known: tuple[str, Tensor] | None = None
    for side, cu_seqlens, longest, gaps in sides:
        name = names[f"cu_{side}"]
        if cu_seqlens is None:
            for part, value in (("max", longest), ("gaps", gaps)):
                if value is not None:
                    raise ValueError(
                        f"{names[f'{part}_{side}']} is given without {name}; packed sequences "
                        f"need both"
                    )
            continue
        if longest is None:
            raise ValueError(
                f"{name} is given without {names[f'max_{side}']}, the longest sequence in tokens"
            )
        tokens = numbers.count(names[f"max_{side}"], longest)
        object.__setattr__(layout, f"max_{side}", tokens)
        for part, tensor in ((f"cu_{side}", cu_seqlens), (f"gaps_{side}", gaps)):
            if tensor is None:
                continue
            called = names[part]
            given = lengths.cumulative(called, tensor)
            object.__setattr__(layout, _LAYOUT_NAMES[part], given)
            known = known or (called, given)
            if given.shape != known[1].shape or given.device != known[1].device:
                raise ValueError(
                    f"{called} has shape {list(given.shape)} on {given.device}, {known[0]} has "
                    f"{list(known[1].shape)} on {known[1].device}; they must be alike"
                )
    if known is None:
        raise ValueError(
            f"{names['cu_q']} and {names['cu_kv']} are both None; for dense sequences call "
            f"scaled_dot_product_attention with seq_lens_q and seq_lens_kv"
        )


def layout_from(
    layout: Any,
    cu_seq_q: Any,
    cu_seq_k: Any,
    max_q: Any,
    max_k: Any,
    cu_seq_q_padded: Any,
    cu_seq_k_padded: Any,
) -> SequenceLayout:
    """The layout, given as a value or as its parts."""
    parts = (cu_seq_q, cu_seq_k, max_q, max_k, cu_seq_q_padded, cu_seq_k_padded)
    if layout is None:
        found = object.__new__(SequenceLayout)
        fields = SequenceLayout.__dataclass_fields__
        for name, part in zip(fields, parts, strict=True):
            object.__setattr__(found, name, part)
        _settle(found, _ARGUMENT_NAMES)
        return found
    if not isinstance(layout, SequenceLayout):
        raise TypeError(f"layout is a {type(layout).__name__}; expected a SequenceLayout")
    if any(part is not None for part in parts):
        raise ValueError("layout is given beside cu_seq_q, cu_seq_k, max_q or max_k; drop one")
    return layout


def check_rank(name: str, tensor: Tensor, packed: bool, cu_seqlens: str) -> None:
    expected = 3 if packed else 4
    if tensor.dim() == expected:
        return
    axes = "[tokens, heads, head_dim]" if packed else "[B, heads, tokens, head_dim]"
    given = "given" if packed else "None"
    raise ValueError(
        f"{name} has shape {list(tensor.shape)}; with {cu_seqlens} {given} it is {axes}"
    )


def check_sides(
    query: Tensor, key: Tensor, value: Tensor, packed_q: bool, packed_kv: bool, batch: int
) -> None:
    """What shapes of packed operands must have in common, in their own words."""
    if packed_kv and value.shape[0] != key.shape[0]:
        raise ValueError(
            f"value has {value.shape[0]} tokens, key has {key.shape[0]}; they must be equal"
        )
    for name, tensor, packed in (("query", query, packed_q), ("key", key, packed_kv)):
        if not packed and tensor.shape[0] != batch:
            raise ValueError(
                f"{name} has batch size {tensor.shape[0]}, the packed side has {batch} sequences; "
                f"they must be equal"
            )


def dense_lengths(
    name: str, given: Any, operand: Tensor, packed: bool, batch: int
) -> Tensor | None:
    """The lengths of a dense side, which cuDNN wants beside packed sequences."""
    if packed:
        if given is not None:
            raise ValueError(f"{name} is given for packed sequences, whose lengths are in cu_seq")
        return None
    if given is None:
        return lengths.full_lengths(batch, operand.shape[2], operand)
    return lengths.lengths_of(name, given, operand, batch)
