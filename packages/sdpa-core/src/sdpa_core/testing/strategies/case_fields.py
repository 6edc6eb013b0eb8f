"""Cases with data, of sizes small enough that thousands of them run in a minute."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from ...dtypes import DType
from ...problem import Softmax
from ..case import Case
from ..score_mods import AS_USED
from .common import AXES, DTYPES, HALF, Draw, bands

#: Around the tiles of kernels.
_RESIDUES = (15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129)
_tokens = st.one_of(
    st.integers(1, 9),
    st.integers(1, 40),
    st.integers(1, 40),
    st.sampled_from(_RESIDUES),
    st.sampled_from((1, 1, 0)),
)
_head_dims = st.one_of(st.integers(1, 72), st.sampled_from((8, 16, 64)))
_multiples = st.integers(1, 9).map(lambda n: 8 * n)
_scales = st.sampled_from((None, None, None, 1.0, 0.25, -0.25, 30.0, 0.0, 1e-30))
#: 0 in float32, where kernels hold the scale: of results in float64 this is more than rounding.
_SUBNORMAL = 1e-40

#: Layouts in which all three, key and value, or none share a buffer.
_TOGETHER = ("packed_qkv", "qkv_h3d")
_PAIRED = ("kv_packed", "kv_h2d")
_APART = ("bhsd", "bshd", "sbhd", "unaligned", "odd_rows", "expanded_kv")


@st.composite
def cases(draw: Draw[Any], *, for_cudnn: bool = False) -> Case:
    """A call that the public functions have, with its data.

    Packed and paged sequences take no bias, mask or score_mod, and paged ones no dropout.

    Args:
        for_cudnn: only element types and head dims that cuDNN takes; most cases then pass its
            rules.
    """
    kind = draw(st.sampled_from(("dense", "lengths", "packed", "paged")))
    layouts: tuple[str, ...] = (*_APART, *_PAIRED, *_TOGETHER)
    if kind == "paged":
        layouts = ("bhsd", "unaligned", "odd_rows")
    layout = draw(st.sampled_from(layouts))
    fields = draw(_sizes(layout, for_cudnn))
    fields |= draw(_sequences(kind, layout, fields))
    fields |= draw(_logits(fields))
    if kind in ("dense", "lengths"):
        fields |= draw(_biases(fields["dtype"]))
        # OPERATIONS jump (ceil) or have poles (tan): there a random logit's last bit decides.
        fields["score_mod"] = draw(st.sampled_from((None, None, None, *AS_USED)))
    if kind != "paged":
        fields["dropout_p"] = draw(st.sampled_from((0.0, 0.0, 0.0, 0.1, 0.5, 0.9)))
    return Case("random", layout=layout, seed=draw(st.integers(0, 99)), **fields)


@st.composite
def _sizes(draw: Draw[Any], layout: str, for_cudnn: bool) -> dict[str, Any]:
    heads_kv = draw(st.integers(1, 3))
    heads = heads_kv * draw(st.integers(1, 6 // heads_kv))
    tokens_q, tokens_kv = draw(_tokens), draw(_tokens)
    widths = _multiples if for_cudnn else _head_dims
    head_dim = draw(widths)
    head_dim_v = draw(st.just(head_dim) | widths)
    if layout in _TOGETHER:
        heads_kv, tokens_kv = heads, tokens_q
    if layout in (*_TOGETHER, *_PAIRED):
        head_dim_v = head_dim
    return {
        "batch": draw(st.sampled_from((1, 1, 2, 2, 2, 3, 3, 0))),
        "heads": heads,
        "heads_kv": heads_kv,
        "tokens_q": tokens_q,
        "tokens_kv": tokens_kv,
        "head_dim": head_dim,
        "head_dim_v": head_dim_v,
        "dtype": draw(st.sampled_from(HALF if for_cudnn else DTYPES)),
    }


@st.composite
def _sequences(draw: Draw[Any], kind: str, layout: str, sizes: Mapping[str, Any]) -> dict[str, Any]:
    """Lengths, and how sequences lie."""
    if kind == "dense":
        return {}
    batch = sizes["batch"]
    lengths = {name: _counts(batch, sizes[f"tokens_{name}"]) for name in ("q", "kv")}
    if kind == "lengths":
        given = {f"lengths_{name}": draw(st.none() | one) for name, one in lengths.items()}
    else:
        given = {f"lengths_{name}": draw(one) for name, one in lengths.items()}
    if kind == "packed":
        together = layout in _TOGETHER
        packed = "both" if together else draw(st.sampled_from(("both", "q", "kv")))
        given |= {"packed": packed, "packed_tail": draw(st.integers(0, 3))}
    if kind == "paged":
        given["page_size"] = draw(st.integers(1, 20))
        given["own_value_table"] = draw(st.booleans())
        given["packed"] = draw(st.sampled_from((None, "q")))
        if given["packed"] is None:
            given["lengths_q"] = draw(st.none() | st.just(given["lengths_q"]))
    gaps = st.none() | _counts(batch, 5)
    given["gaps_q"] = draw(gaps) if given.get("packed") in ("both", "q") else None
    given["gaps_kv"] = draw(gaps) if given.get("packed") in ("both", "kv") else None
    if layout in _TOGETHER:
        given |= {"lengths_kv": given["lengths_q"], "gaps_kv": given["gaps_q"]}
    return given


def _counts(batch: int, most: int) -> st.SearchStrategy[tuple[int, ...]]:
    """A number of tokens for each sequence; the extremes often."""
    one = st.sampled_from((0, most)) | st.integers(0, most)
    return st.tuples(*[one] * batch)


@st.composite
def _logits(draw: Draw[Any], sizes: Mapping[str, Any]) -> dict[str, Any]:
    """What else is done to the logits."""
    wide = sizes["dtype"] is DType.FLOAT64
    scale = draw(_scales if wide else _scales | st.just(_SUBNORMAL))
    kinds = ["normal", "normal", "zero_query"]
    if scale is None or abs(scale) > 1e-3:
        kinds += ["very_negative", "large_positive"]
    softmax = draw(st.sampled_from((Softmax.VANILLA, *Softmax)))
    sinks = st.sampled_from((None, 0.0, -100.0, 100.0))
    return {
        "band": draw(bands()),
        "scale": scale,
        "logits": draw(st.sampled_from(kinds)),
        "alibi": draw(st.sampled_from((None, None, "standard", "head", "batch_head"))),
        "softmax": softmax,
        "sink": draw(sinks) if softmax is Softmax.LEARNABLE else None,
        "softcap": draw(st.sampled_from((None, None, 0.5, 5.0, 50.0))),
    }


@st.composite
def _biases(draw: Draw[Any], dtype: DType) -> dict[str, Any]:
    """A bias or a mask, or none."""
    kind = draw(st.sampled_from((None, "mask", "bias", "bias")))
    if kind is None:
        return {}
    axes = draw(st.sampled_from(AXES))
    if kind == "mask":
        return {"mask": axes}
    return {
        "bias": axes,
        "bias_dtype": draw(st.sampled_from((None, DType.FLOAT32))),
        "bias_values": draw(st.sampled_from(("normal", "hides", "lowest", "very_negative"))),
        "bias_layout": draw(st.sampled_from(("dense", "transposed", "padded_rows"))),
        "bias_grad": draw(st.booleans()),
    }
