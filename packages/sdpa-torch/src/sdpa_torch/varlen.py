"""Attention for packed sequences ("THD"), and for packed beside dense ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sdpa_core import flag

from . import rng
from .arguments import lengths, logits, masks, numbers, operands
from .attend import attend
from .request import Request


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
        numbers.count(names[f"max_{side}"], longest)
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


def varlen_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seq_q: Tensor | None = None,
    cu_seq_k: Tensor | None = None,
    max_q: int | None = None,
    max_k: int | None = None,
    *,
    layout: SequenceLayout | None = None,
    cu_seq_q_padded: Tensor | None = None,
    cu_seq_k_padded: Tensor | None = None,
    seq_lens_q: Tensor | None = None,
    seq_lens_kv: Tensor | None = None,
    is_causal: bool = False,
    causal_alignment: str = "bottom_right",
    window: tuple[int | None, int | None] | None = None,
    scale: float | None = None,
    softmax: str = "vanilla",
    sink: Tensor | None = None,
    softcap: float | None = None,
    alibi: bool | Tensor = False,
    dropout_p: float = 0.0,
    return_lse: bool = False,
    return_max_logit: bool = False,
    deterministic: bool | None = None,
    slack_is_finite: bool = False,
    backend: str | None = None,
) -> Any:
    r"""Attention within sequences of different lengths, packed one after another.

    Each sequence's queries see its own keys alone, as if the sequences were attended one by one:
    ``softmax(scale * Q_b K_b^T) V_b``. Tokens are counted within the sequence. Lengths stay on the
    device; nothing waits for them. Whatever rows between and after the sequences hold does not
    matter; output and gradients there are exactly 0.

    Args:
        query: ``[Tq, Hq, D]`` packed, or ``[B, Hq, Sq, D]`` if ``cu_seq_q`` is None.
        key: ``[Tk, Hkv, D]`` packed, or ``[B, Hkv, Skv, D]`` if ``cu_seq_k`` is None; of the
            query's dtype and device. ``Hq`` is a multiple of ``Hkv``.
        value: ``[Tk, Hkv, Dv]`` or ``[B, Hkv, Skv, Dv]``, as the key.
        cu_seq_q, cu_seq_k: int32 or int64 ``[B + 1]``, cumulative lengths in tokens: sequence ``b``
            is rows ``cu[b]`` to ``cu[b + 1] - 1``.
        max_q, max_k: tokens of the longest sequence, or more; needed with ``cu_seq``. With less,
            results are undefined, see ``SequenceLayout``.
        cu_seq_q_padded, cu_seq_k_padded: int32 or int64 ``[B + 1]``, where sequences start if there
            are gaps between them; ``cu_seq`` then only says how long they are.
        layout: all of these as one value, instead.
        seq_lens_q, seq_lens_kv: int32 or int64 ``[B]``, lengths of a dense side; all full by
            default.
        is_causal: query ``i`` sees keys ``j <= i + shift``.
        causal_alignment: ``"bottom_right"``: ``shift`` is the sequence's number of keys less that
            of its queries; or ``"top_left"``: 0.
        window, scale, softmax, sink, softcap, dropout_p, deterministic, backend: as for
            ``scaled_dot_product_attention``.
        alibi: True, or slopes ``[Hq]`` or ``[B, Hq]``.
        return_lse: also return the log-sum-exp ``[Tq, Hq]`` (``[B, Hq, Sq]`` for dense queries);
            -inf in rows of no sequence.
        return_max_logit: also return the largest visible logit of each head, ``[Hq]``.
        slack_is_finite: promises that tokens of a dense side past their sequence's length hold
            neither NaN nor infinity, which saves copies of that side. Packed sides are never
            copied.

    Returns:
        ``[Tq, Hq, Dv]`` (``[B, Hq, Sq, Dv]``) in the query's dtype; then, if asked for, the
        log-sum-exp and the largest logits, as a tuple.

    Raises:
        TypeError, ValueError: a wrong argument, or packing that is told incompletely; the text
            names it.
        NoBackendError: valid, but unsupported; the text has every backend's reasons.

    Equivalent::

        for b in range(B):
            q, k = slice(cu_q[b], cu_q[b + 1]), slice(cu_k[b], cu_k[b + 1])
            output[q] = attention(query[q], key[k], value[k])    # of [tokens, heads, head_dim]
    """
    request = varlen(
        query,
        key,
        value,
        cu_seq_q,
        cu_seq_k,
        max_q,
        max_k,
        layout=layout,
        cu_seq_q_padded=cu_seq_q_padded,
        cu_seq_k_padded=cu_seq_k_padded,
        seq_lens_q=seq_lens_q,
        seq_lens_kv=seq_lens_kv,
        is_causal=is_causal,
        causal_alignment=causal_alignment,
        window=window,
        scale=scale,
        softmax=softmax,
        sink=sink,
        softcap=softcap,
        alibi=alibi,
        dropout_p=dropout_p,
        return_lse=return_lse,
        return_max_logit=return_max_logit,
        deterministic=deterministic,
        slack_is_finite=slack_is_finite,
    )
    return run(request, backend)


def run(request: Request, backend: Any) -> Any:
    """The results of a request that the caller asked for."""
    results = attend(*request.call(), numbers.backend_of(backend))
    asked: tuple[Tensor, ...] = results[:1]
    if request.return_lse:
        asked += (results[1].squeeze(-1),)
    if request.return_max_logit:
        asked += (results[-1],)
    return asked if len(asked) > 1 else asked[0]


def varlen(
    query: Any,
    key: Any,
    value: Any,
    cu_seq_q: Any = None,
    cu_seq_k: Any = None,
    max_q: Any = None,
    max_k: Any = None,
    *,
    layout: Any = None,
    cu_seq_q_padded: Any = None,
    cu_seq_k_padded: Any = None,
    seq_lens_q: Any = None,
    seq_lens_kv: Any = None,
    is_causal: Any = False,
    causal_alignment: Any = "bottom_right",
    window: Any = None,
    scale: Any = None,
    softmax: Any = "vanilla",
    sink: Any = None,
    softcap: Any = None,
    alibi: Any = False,
    dropout_p: Any = 0.0,
    return_lse: Any = False,
    return_max_logit: Any = False,
    deterministic: Any = None,
    slack_is_finite: Any = False,
    draw: Callable[[torch.device], tuple[Tensor, Tensor]] = rng.draw,
) -> Request:
    """Check and spell out a call of ``varlen_attention``."""
    query, key, value = operands.tensors(query, key, value)
    cumulative = (cu_seq_q, cu_seq_k, max_q, max_k, cu_seq_q_padded, cu_seq_k_padded)
    found = layout_from(layout, *cumulative)
    given = found.cu_seqlens_kv if found.cu_seqlens_q is None else found.cu_seqlens_q
    operands.tensor("cu_seq_q" if found.cu_seqlens_q is not None else "cu_seq_k", given, query)
    packed_q, packed_kv = found.cu_seqlens_q is not None, found.cu_seqlens_kv is not None
    _check_rank("query", query, packed_q, "cu_seq_q")
    _check_rank("key", key, packed_kv, "cu_seq_k")
    _check_rank("value", value, packed_kv, "cu_seq_k")
    batch = found.batch
    _check_sides(query, key, value, packed_q, packed_kv, batch)
    standard, slopes = masks.slopes_of(alibi, query, batch)
    kind, sink = logits.softmax_of(softmax, sink, query)
    dropout_p = numbers.dropout_of(dropout_p)
    seed, offset = draw(query.device) if dropout_p else (None, None)
    others = {
        "alibi_slopes": slopes,
        "sink": sink,
        "seq_lens_q": dense_lengths("seq_lens_q", seq_lens_q, query, packed_q, batch),
        "seq_lens_kv": dense_lengths("seq_lens_kv", seq_lens_kv, key, packed_kv, batch),
        "cu_seqlens_q": found.cu_seqlens_q,
        "cu_seqlens_kv": found.cu_seqlens_kv,
        "cu_seqlens_q_padded": found.cu_seqlens_q_padded,
        "cu_seqlens_kv_padded": found.cu_seqlens_kv_padded,
        "dropout_seed": seed,
        "dropout_offset": offset,
    }
    return Request(
        query,
        key,
        value,
        numbers.scale_of(scale, query.shape[-1]),
        others,
        band=masks.band_of(is_causal, causal_alignment, window),
        alibi=standard,
        softmax=kind,
        softcap=numbers.softcap_of(softcap),
        dropout_p=dropout_p,
        return_lse=flag("return_lse", return_lse),
        return_max_logit=flag("return_max_logit", return_max_logit),
        deterministic=numbers.is_deterministic(deterministic),
        slack_is_finite=flag("slack_is_finite", slack_is_finite),
        max_q=found.max_q,
        max_kv=found.max_kv,
    )


def _check_rank(name: str, tensor: Tensor, packed: bool, cu_seqlens: str) -> None:
    expected = 3 if packed else 4
    if tensor.dim() == expected:
        return
    axes = "[tokens, heads, head_dim]" if packed else "[B, heads, tokens, head_dim]"
    given = "given" if packed else "None"
    raise ValueError(
        f"{name} has shape {list(tensor.shape)}; with {cu_seqlens} {given} it is {axes}"
    )


def _check_sides(
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
