"""Random attention for hypothesis: cases with data, problems for rules, and wrong calls.

Sizes of cases are small, so that thousands of them run in a minute; sizes of problems are those of
models, because nothing is computed. Needs hypothesis, hence it is not imported by ``testing``.

Use::

    @given(case=cases(), training=st.booleans())
    @settings(derandomize=True, deadline=None, print_blob=True)
    def test_it_is_right(case, training): ...
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from hypothesis import strategies as st

from .. import score_mod
from ..device import DeviceSpec, device_names
from ..dtypes import DType
from ..layout import Shape
from ..logits import ScoreMod
from ..mask import Alignment, Band
from ..paged import Paged
from ..problem import AttentionProblem, Softmax
from ..ragged import Packed, packed_spec
from ..tensor import TensorSpec
from .case import Case
from .score_mods import SCORE_MODS, ScoreModCase

_T = TypeVar("_T")
Draw = Callable[[st.SearchStrategy[_T]], _T]

_HALF = (DType.BFLOAT16, DType.FLOAT16)
_DTYPES = (*_HALF, DType.FLOAT32, DType.FLOAT64)
_ALIGNMENTS = st.sampled_from(tuple(Alignment))

# ----------------------------------------------------------------------------------- cases

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
_AXES = ("bhss", "1hss", "b1ss", "11ss", "111s", "b11s", "bh1s", "1h1s")

_TOGETHER = ("packed_qkv", "qkv_h3d")
_PAIRED = ("kv_packed", "kv_h2d")
_APART = ("bhsd", "bshd", "sbhd", "unaligned", "odd_rows", "expanded_kv")


def bands(most: int = 45) -> st.SearchStrategy[Band]:
    """Every kind of band, with bounds of at most so many tokens."""
    bound = st.none() | st.integers(0, most)
    return st.one_of(
        st.just(Band()),
        st.builds(Band.causal, _ALIGNMENTS),
        st.builds(Band, bound, bound, _ALIGNMENTS),
    )


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
        fields["score_mod"] = draw(st.sampled_from((None, None, None, *SCORE_MODS)))
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
        "dtype": draw(st.sampled_from(_HALF if for_cudnn else _DTYPES)),
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
    axes = draw(st.sampled_from(_AXES))
    if kind == "mask":
        return {"mask": axes}
    return {
        "bias": axes,
        "bias_dtype": draw(st.sampled_from((None, DType.FLOAT32))),
        "bias_values": draw(st.sampled_from(("normal", "hides", "lowest", "very_negative"))),
        "bias_layout": draw(st.sampled_from(("dense", "transposed", "padded_rows"))),
        "bias_grad": draw(st.booleans()),
    }


# -------------------------------------------------------------------------------- problems

#: cuDNN versions on both sides of what rules ask for; None: not known.
VERSIONS = (
    None,
    90800,
    90900,
    91002,
    91100,
    91301,
    91400,
    91501,
    91800,
    91801,
    91900,
    92100,
    92200,
    92300,
    92400,
    92500,
    92600,
    92800,
    92801,
)

#: Compute capabilities that no device of the list has.
_UNLISTED = tuple(
    DeviceSpec("cuda", f"a GPU of compute capability {sm / 10}", sm=sm, sm_count=64)
    for sm in (75, 86, 89, 103, 110, 121)
)


def devices() -> st.SearchStrategy[DeviceSpec]:
    """Every GPU that the library knows, some that it does not, with every cuDNN; and the CPU."""
    known = st.builds(
        lambda name, version: DeviceSpec.named(name, cudnn_version=version),
        st.sampled_from(device_names()),
        st.sampled_from(VERSIONS),
    )
    others = st.builds(
        lambda device, version: replace(device, cudnn_version=version),
        st.sampled_from(_UNLISTED),
        st.sampled_from(VERSIONS),
    )
    return st.one_of(known, known, others, st.just(DeviceSpec.cpu()))


_WIDTHS = (8, 16, 64, 72, 128, 136, 192, 256, 264, 512)
_LENGTHS = (1, 2, 3, 63, 64, 65, 128, 192, 1000, 1025, 4096, 70000)


@st.composite
def specs(draw: Draw[Any], shape: Shape, dtype: DType, *, odd: bool = True) -> TensorSpec:
    """A tensor with its axes in any order in memory, with gaps, repeats, and any alignment.

    Args:
        odd: the last axis need not be the innermost, and strides and addresses may be of any
            multiple of the element. Otherwise cuDNN can read it in place.
    """
    rank = len(shape)
    order = draw(st.permutations(range(rank if odd else rank - 1)))
    if not odd:
        order = [*order, rank - 1]
    strides = [1] * rank
    step = 1
    for axis in reversed(order):
        strides[axis] = step
        step = step * max(shape[axis], 1) + draw(
            st.sampled_from((0, 0, 1, 8) if odd else (0, 0, 8))
        )
        step = step if odd else -(-step // 8) * 8
    for axis in draw(st.sets(st.integers(0, rank - 2), max_size=1)):
        strides[axis] = 0
    smallest = dtype.itemsize if odd else 16
    alignment = draw(st.sampled_from([n for n in (2, 4, 8, 16) if n >= smallest]))
    return TensorSpec(shape, tuple(strides), dtype, alignment)


@st.composite
def problems(draw: Draw[Any], *, odd: bool = True) -> AttentionProblem:
    """A problem as the adapters normalize it, of any size, with any features together.

    Args:
        odd: also element types, head dims, strides and addresses that cuDNN does not take.
    """
    dtype = draw(st.sampled_from(_DTYPES if odd else _HALF))
    batch = draw(st.sampled_from((1, 2, 3, 33, 600, *[0] * odd)))
    heads_kv = draw(st.sampled_from((1, 2, 4)))
    heads = heads_kv * draw(st.sampled_from((1, 2, 8)))
    lengths = st.sampled_from((*_LENGTHS, *[0] * odd))
    tokens_q, tokens_kv = draw(lengths), draw(lengths)
    widths = st.sampled_from((*_WIDTHS, *([1, 7, 40] if odd else [])))
    width, width_v = draw(widths), 0
    width_v = draw(st.just(width) | widths)
    where = draw(st.sampled_from(("dense", "dense", "q", "kv", "both", "paged", "paged q")))
    side_q = draw(_side(where in ("q", "both", "paged q"), batch, tokens_q))
    side_kv = draw(_side(where in ("kv", "both"), batch, tokens_kv))
    query = draw(_operand((batch, heads, tokens_q, width), dtype, side_q, odd))
    paged = draw(_pages(batch, tokens_kv)) if where.startswith("paged") else None
    if paged is None:
        key_shape, value_shape = ((batch, heads_kv, tokens_kv, w) for w in (width, width_v))
    else:
        pool = (draw(st.integers(1, 600)), heads_kv, draw(st.sampled_from((1, 16, 128))))
        key_shape, value_shape = (*pool, width), (*pool, width_v)
    key = draw(_operand(key_shape, dtype, side_kv, odd))
    value = draw(_operand(value_shape, dtype, side_kv, odd))
    full = (batch, heads, tokens_q, paged.tokens if paged else tokens_kv)
    is_flag = st.booleans()
    problem = AttentionProblem.of(
        query,
        key,
        value,
        **draw(_features(full, dtype, odd)),
        seq_lens_q=draw(is_flag),
        seq_lens_kv=draw(is_flag),
        packed_q=side_q,
        packed_kv=side_kv,
        paged=paged,
        training=draw(is_flag),
        return_lse=draw(is_flag),
        return_max_logit=draw(is_flag),
        deterministic=draw(is_flag),
        bias_grad=draw(is_flag),
        sink_grad=draw(is_flag),
    )
    if problem.training and side_q is None and draw(is_flag):
        incoming = draw(specs(problem.output.shape, dtype, odd=odd))
        problem = replace(problem, grad_output=incoming.canonical())
    return problem


@st.composite
def _side(draw: Draw[Any], packed: bool, batch: int, longest: int) -> Packed | None:
    if not packed:
        return None
    rows = st.sampled_from((batch * longest, longest, batch * longest // 2 + 7))
    return Packed(draw(rows), gaps=draw(st.booleans()))


@st.composite
def _operand(
    draw: Draw[Any], shape: Shape, dtype: DType, packed: Packed | None, odd: bool
) -> TensorSpec:
    if packed is None:
        found: TensorSpec = draw(specs(shape, dtype, odd=odd))
        return found
    batch, heads, longest, width = shape
    rows: TensorSpec = draw(specs((packed.tokens, heads, width), dtype, odd=odd))
    return packed_spec(
        rows.shape,
        rows.strides,
        dtype,
        batch=batch,
        max_tokens=longest,
        alignment=rows.alignment,
    )


@st.composite
def _pages(draw: Draw[Any], batch: int, tokens: int) -> Paged:
    shape = (batch, draw(st.integers(1, 40)))
    table, other = draw(specs(shape, DType.INT32)), draw(specs(shape, DType.INT32))
    return Paged(table, draw(st.sampled_from((table, other))), tokens)


@st.composite
def _features(draw: Draw[Any], full: Shape, dtype: DType, odd: bool) -> dict[str, Any]:
    batch, heads = full[:2]
    slopes = TensorSpec.dense((draw(st.sampled_from((1, batch))), heads, 1, 1), DType.FLOAT32)
    alibi = draw(st.sampled_from((None, None, None, "standard", "given")))
    bias = st.none() | st.sampled_from(_AXES).flatmap(
        lambda axes: st.sampled_from((dtype, DType.FLOAT32)).flatmap(
            lambda kind: specs(_broadcast(axes, full), kind, odd=odd)
        )
    )
    name = draw(st.sampled_from((None, None, None, *SCORE_MODS)))
    return {
        "band": draw(bands(most=2000)),
        "bias": draw(bias),
        "alibi": alibi == "standard",
        "alibi_slopes": slopes if alibi == "given" else None,
        "softmax": draw(st.sampled_from((Softmax.VANILLA, *Softmax))),
        "softcap": draw(st.sampled_from((None, None, 30.0))),
        "score_mod": None if name is None else traced(SCORE_MODS[name], full),
        "dropout_p": draw(st.sampled_from((0.0, 0.0, 0.1))),
    }


def _broadcast(axes: str, full: Shape) -> Shape:
    return tuple(1 if axis == "1" else n for axis, n in zip(axes, full, strict=True))


def traced(function: ScoreModCase, full: Shape) -> ScoreMod:
    """A function of logits of this shape, as a problem holds it."""
    shapes = [operand.shape(full) for operand in function.auxiliary]
    kinds = [
        score_mod.ScalarArg() if shape is None else score_mod.TensorArg(operand.dtype, shape)
        for operand, shape in zip(function.auxiliary, shapes, strict=True)
    ]
    found = score_mod.trace(function.callback, kinds)
    bprop = function.bprop and score_mod.trace_bprop(function.bprop, kinds)
    tensors = (
        TensorSpec.dense(shape, operand.dtype)
        for operand, shape in zip(function.auxiliary, shapes, strict=True)
        if shape is not None
    )
    gradient = bprop.expression if bprop else None
    return ScoreMod(found.expression, gradient, tuple(tensors), len(found.scalars))


# ----------------------------------------------------------------------------- wrong calls


@dataclass(frozen=True)
class WrongCall:
    """A call of a public function in which one thing is wrong.

    Attributes:
        function: ``dense``, ``varlen`` or ``paged``.
        arguments: by the names of ``sdpa_torch``; arrays, whose contents are zeros, as specs. Dense
            operands are ``[B, H, S, D]``.
        wrong: names of arguments, one of which the error must say.
        elsewhere: the argument that lies on another device.
    """

    function: str
    arguments: Mapping[str, Any] = field(repr=False)
    wrong: tuple[str, ...]
    elsewhere: str | None = None

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value}" for name, value in self.arguments.items())
        where = f", {self.elsewhere} elsewhere" if self.elsewhere else ""
        return f"{self.function}({given}){where}"


_F32, _BF16, _I32 = DType.FLOAT32, DType.BFLOAT16, DType.INT32

#: Two sequences of 6 queries and 9 keys, 4 heads, 2 of the keys, head dims 8 and 16.
_COMMON: dict[str, Any] = {
    "is_causal": False,
    "causal_alignment": "top_left",
    "window": None,
    "scale": None,
    "softmax": "vanilla",
    "sink": None,
    "softcap": None,
    "alibi": False,
    "return_lse": False,
    "return_max_logit": False,
    "deterministic": None,
    "backend": "reference",
}


def _dense(*shape: int, dtype: DType = _F32) -> TensorSpec:
    return TensorSpec.dense(shape, dtype)


RIGHT_CALLS: Mapping[str, Mapping[str, Any]] = {
    "dense": {
        "query": _dense(2, 4, 6, 8),
        "key": _dense(2, 2, 9, 8),
        "value": _dense(2, 2, 9, 16),
        "attn_mask": None,
        "dropout_p": 0.0,
        "seq_lens_q": None,
        "seq_lens_kv": None,
        **_COMMON,
    },
    "varlen": {
        "query": _dense(12, 4, 8),
        "key": _dense(18, 2, 8),
        "value": _dense(18, 2, 16),
        "cu_seq_q": _dense(3, dtype=_I32),
        "cu_seq_k": _dense(3, dtype=_I32),
        "max_q": 6,
        "max_k": 9,
        "dropout_p": 0.0,
        **_COMMON,
    },
    "paged": {
        "query": _dense(2, 4, 6, 8),
        "key_pages": _dense(7, 3, 2, 8),
        "value_pages": _dense(7, 3, 2, 16),
        "page_table": _dense(2, 3, dtype=_I32),
        "seq_lens_kv": _dense(2, dtype=_I32),
        **_COMMON,
    },
}

_NAN, _INF = float("nan"), float("inf")

#: Values of an argument of which each is wrong in all functions that have it.
_WRONG: Mapping[str, Sequence[Any]] = {
    "dropout_p": (1.0, 1, -0.25, _NAN, _INF, "0.5", None),
    "is_causal": ("no", 2, None, 0.5),
    "causal_alignment": ("middle", "", None, 1),
    "window": ((1, 2, 3), (), (-1, 0), (0, -1), (1.5, 0), ("1", 0), "12"),
    "scale": (_NAN, _INF, -_INF, 1e39, 10**400, "1", True),
    "softmax": ("plain", "", None, 1),
    "sink": (_dense(3), _dense(4, 1), _dense(2, 4), _dense(4, dtype=_I32), 0.5),
    "softcap": (0, 0.0, -1.0, _NAN, _INF, "30", True),
    "alibi": ("yes", 0.5, None, _dense(3), _dense(3, 4), _dense(4, 2), _dense(4, dtype=_I32)),
    "return_lse": ("yes", None, 2),
    "return_max_logit": ("yes", None, 2),
    "deterministic": ("yes", 2, 0.5),
    "backend": ("nonsense", "", 1),
    "attn_mask": (
        _dense(6, 8),
        _dense(5, 9),
        _dense(3, 1, 6, 9),
        _dense(1, 2, 6, 9),
        _dense(1, 1, 1, 1, 6, 9),
        _dense(6, 9, dtype=_BF16),
        _dense(6, 9, dtype=_I32),
        1.0,
    ),
    "seq_lens_q": (_dense(3, dtype=_I32), _dense(2, 1, dtype=_I32), _dense(2)),
    "seq_lens_kv": (
        _dense(1, dtype=_I32),
        _dense(2, 2, dtype=_I32),
        _dense(2),
        _dense(2, dtype=DType.BOOL),
    ),
    "cu_seq_q": (_dense(3, 1, dtype=_I32), _dense(3), [0, 6]),
    "cu_seq_k": (_dense(0, dtype=_I32), _dense(3), (0, 9, 18)),
    "max_q": (-1, 1.5, "6", None, True),
    "max_k": (-9, 0.5, "9", None, False),
    "page_table": (_dense(2, 3), _dense(2, dtype=_I32), _dense(3, 3, dtype=_I32), None),
    "value_page_table": (_dense(2, 4, dtype=_I32), _dense(2, 3), _dense(1, 3, dtype=_I32)),
    "query": (_dense(8), _dense(), None, 1.0),
    "key": (_dense(8), None, "key"),
    "value": (_dense(16), None, 3),
    "key_pages": (_dense(7, 3, 8), _dense(7, 3, 3, 8), _dense(7, 3, 2, 4), None),
    "value_pages": (_dense(7, 3, 16), _dense(7, 3, 1, 16), _dense(7, 4, 2, 16), None),
}

#: Pairs that are wrong together: what is changed, and which names may be blamed.
_CONTRADICTIONS: Sequence[tuple[tuple[str, ...], dict[str, Any], tuple[str, ...]]] = (
    (("dense", "varlen", "paged"), {"softmax": "off_by_one", "sink": _dense(4)}, ("sink",)),
    (("dense", "varlen", "paged"), {"softmax": "learnable"}, ("sink",)),
    (("varlen", "paged"), {"is_causal": True, "window": (2, 3)}, ("window", "is_causal")),
    (("dense",), {"key": _dense(3, 2, 9, 8), "value": _dense(3, 2, 9, 16)}, ("key", "query")),
    (("dense",), {"key": _dense(2, 2, 8, 8)}, ("key", "value")),
    (("dense",), {"key": _dense(2, 2, 9, 4)}, ("key", "query")),
    (("dense",), {"key": _dense(2, 3, 9, 8), "value": _dense(2, 3, 9, 16)}, ("key", "query")),
    (("dense",), {"value": _dense(2, 4, 9, 16)}, ("key", "value")),
    (("dense",), {"key": _dense(2, 2, 9, 8, dtype=_BF16)}, ("key",)),
    (("dense",), {"value": _dense(2, 2, 9, 16, dtype=DType.FLOAT16)}, ("value",)),
    (("dense",), {"query": _dense(2, 4, 6, 8, dtype=_I32)}, ("query",)),
    (("dense",), {"score_mod_args": (1.0,)}, ("score_mod",)),
    (("dense",), {"score_mod_bprop": abs}, ("score_mod",)),
    (("dense",), {"score_mod": 5}, ("score_mod",)),
    (("varlen",), {"query": _dense(2, 4, 6, 8)}, ("query",)),
    (("varlen",), {"key": _dense(18, 2, 4)}, ("key",)),
    (("varlen",), {"value": _dense(17, 2, 16)}, ("value",)),
    (("varlen",), {"cu_seq_q": None}, ("cu_seq_q",)),
    (("varlen",), {"cu_seq_q": _dense(4, dtype=_I32)}, ("cu_seq_q", "cu_seq_k")),
    (("varlen",), {"cu_seq_k": _dense(2, dtype=_I32)}, ("cu_seq_q", "cu_seq_k")),
    (
        ("varlen",),
        {"cu_seq_q": None, "cu_seq_k": None, "max_q": None, "max_k": None},
        ("cu_seq_q",),
    ),
    (("varlen",), {"seq_lens_q": _dense(2, dtype=_I32)}, ("seq_lens_q",)),
    (("varlen",), {"cu_seq_q_padded": _dense(4, dtype=_I32)}, ("cu_seq_q_padded",)),
    (("paged",), {"max_q": 6}, ("max_q",)),
    (("paged",), {"query": _dense(12, 4, 8)}, ("query",)),
    (("paged",), {"seq_lens_kv": None}, ("seq_lens_kv",)),
)


@st.composite
def wrong_calls(draw: Draw[Any], *, devices: bool = False) -> WrongCall:
    """A right call, with some of its harmless options changed, in which one thing is wrong.

    Args:
        devices: arrays may also lie on different devices.
    """
    function = draw(st.sampled_from(tuple(RIGHT_CALLS)))
    arguments = {**RIGHT_CALLS[function], **draw(_harmless())}
    kinds = ["value", "value", "together", *["elsewhere"] * devices]
    match draw(st.sampled_from(kinds)):
        case "value":
            extra = ("value_page_table",) if function == "paged" else ()
            names = [name for name in (*arguments, *extra) if name in _WRONG]
            name = draw(st.sampled_from(names))
            arguments[name] = draw(st.sampled_from(_WRONG[name]))
            return WrongCall(function, arguments, (name,))
        case "together":
            fitting = [pair for pair in _CONTRADICTIONS if function in pair[0]]
            _, changed, wrong = draw(st.sampled_from(fitting))
            return WrongCall(function, arguments | changed, wrong)
        case _:
            arrays = [name for name, value in arguments.items() if isinstance(value, TensorSpec)]
            name = draw(st.sampled_from([name for name in arrays if name != "query"]))
            return WrongCall(function, arguments, (name,), elsewhere=name)


@st.composite
def _harmless(draw: Draw[Any]) -> dict[str, Any]:
    return {
        "scale": draw(st.sampled_from((None, 0.5, -1.0, 0.0))),
        "softcap": draw(st.sampled_from((None, 20.0))),
        "alibi": draw(st.sampled_from((False, True, _dense(4)))),
        "return_lse": draw(st.booleans()),
        "deterministic": draw(st.sampled_from((None, True))),
    }
