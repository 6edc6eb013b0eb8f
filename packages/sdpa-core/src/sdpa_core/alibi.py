"""Slopes of ALiBi (Press et al., "Train short, test long", arXiv:2108.12409, section 3)."""

from __future__ import annotations


def alibi_slopes(heads: int) -> tuple[float, ...]:
    """The standard slopes of ``heads`` heads, as Python floats.

    With ``n`` the largest power of two up to ``heads``, the first ``n`` slopes are
    ``(2 ** (-8 / n)) ** i`` for ``i = 1, ..., n``; the others are the first odd powers of
    ``2 ** (-4 / n)``. That is what TransformerEngine and cuDNN's own ALiBi take.

    >>> alibi_slopes(4)
    (0.25, 0.0625, 0.015625, 0.00390625)
    >>> alibi_slopes(3)
    (0.0625, 0.00390625, 0.25)
    """
    if heads <= 0:
        return ()
    n = 1 << (heads.bit_length() - 1)
    regular = [2.0 ** (-8 * i / n) for i in range(1, n + 1)]
    between = [2.0 ** (-4 * i / n) for i in range(1, 2 * (heads - n), 2)]
    return tuple(regular + between)
