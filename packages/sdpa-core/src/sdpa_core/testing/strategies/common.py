"""What random cases and random problems share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from hypothesis import strategies as st

from ...dtypes import DType
from ...mask import Alignment, Band

_T = TypeVar("_T")
Draw = Callable[[st.SearchStrategy[_T]], _T]

#: Element types that cuDNN takes.
HALF = (DType.BFLOAT16, DType.FLOAT16)
DTYPES = (*HALF, DType.FLOAT32, DType.FLOAT64)

#: Ways to repeat a bias or mask, see ``case.Axes``.
AXES = ("bhss", "1hss", "b1ss", "11ss", "111s", "b11s", "bh1s", "1h1s")

_ALIGNMENTS = st.sampled_from(tuple(Alignment))


def bands(most: int = 45) -> st.SearchStrategy[Band]:
    """Every kind of band, with bounds of at most so many tokens."""
    bound = st.none() | st.integers(0, most)
    return st.one_of(
        st.just(Band()),
        st.builds(Band.causal, _ALIGNMENTS),
        st.builds(Band, bound, bound, _ALIGNMENTS),
    )
