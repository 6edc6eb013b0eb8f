"""Which probabilities cuDNN's dropout keeps, as a function of seed and offset alone.

The generator is Philox-4x32 with 7 rounds (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as
easy as 1, 2, 3", SC 2011). Query row ``i``, key column ``j``, head ``h`` of sequence ``b``, with
``n = b * heads + h`` and ``//`` rounding down::

    key      seed mod 2^32,  seed // 2^32
    counter  m mod 2^32,  m // 2^32,  i // 16 + ceil(tokens_q / 16) * (j // 16),  0
             where m = offset / 4 + 8 n + j % 8
    word     2 * ((i % 16) // 8) + (j % 16) // 8
    bits     the low 16 of that word where i is even, the high 16 where it is odd
    kept     bits <= floor((1 - dropout_p) * 65536), computed in float32

``b``, ``i`` and ``j`` count in the sequence, also of packed ones, and ``tokens_q`` is the length
that the plan declares. Rows ``i, i + 2, i + 4, i + 6`` of an aligned group of 8 share their
decisions. Found by comparison with cuDNN 9.19 on compute capability 9.0, where both directions and
all engines agree (``tests-integration/dropout_mapping`` repeats it). The same in arrays:
``testing.philox_bits`` (NumPy), ``sdpa_torch.philox``, ``sdpa_jax.philox``.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass

#: Rounds of the generator in cuDNN's kernels; 10 is the number elsewhere.
ROUNDS = 7
#: Factors of the first and the third counter word.
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
#: What each round adds to the key.
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)

MASK32 = 0xFFFFFFFF
#: First counter words that one head takes: one for each residue of the column modulo 8.
COUNTERS_PER_HEAD = 8
#: What the offset counts in one counter word: the four words that a counter gives.
OFFSETS_PER_COUNTER = 4
#: Offsets are held in int64.
OFFSET_LIMIT = 2**63

_RESOLUTION = 1 << 16  # a decision takes 16 bits

Counter = tuple[int, int, int, int]


def philox4x32(counter: Counter, key: tuple[int, int], rounds: int = ROUNDS) -> Counter:
    """Four words of 32 bits from four words of counter and two of key.

    One round, with ``m = MULTIPLIERS`` and ``hi``, ``lo`` the halves of a product of 64 bits::

        (c0, c1, c2, c3) -> (hi(m1 c2) ^ c1 ^ k0, lo(m1 c2), hi(m0 c0) ^ c3 ^ k1, lo(m0 c0))

    after which ``KEY_STEPS`` are added to the key, modulo 2^32.
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(rounds):
        first, third = MULTIPLIERS[0] * c0, MULTIPLIERS[1] * c2
        c0, c1 = (third >> 32) ^ c1 ^ k0, third & MASK32
        c2, c3 = (first >> 32) ^ c3 ^ k1, first & MASK32
        k0, k1 = (k0 + KEY_STEPS[0]) & MASK32, (k1 + KEY_STEPS[1]) & MASK32
    return c0, c1, c2, c3


@dataclass(frozen=True, slots=True)
class PhiloxState:
    """Seed and offset of one attention call.

    Attributes:
        seed: in ``[0, 2^64)``. A buffer of int64 holds it in two's complement, see ``signed_seed``.
        offset: a multiple of 4 in ``[0, 2^63)``. The mapping of others is not known.

    Raises:
        TypeError: a field is no int.
        ValueError: a field is out of range, or the offset is no multiple of 4.
    """

    seed: int
    offset: int = 0

    def __post_init__(self) -> None:
        _check_int("seed", self.seed)
        _check_int("offset", self.offset)
        if not 0 <= self.seed < 2**64:
            raise ValueError(
                f"seed is {self.seed}; expected 0 <= seed < 2**64 (add 2**64 to a negative int64)"
            )
        if not 0 <= self.offset < OFFSET_LIMIT:
            raise ValueError(f"offset is {self.offset}; expected 0 <= offset < 2**63")
        if self.offset % OFFSETS_PER_COUNTER:
            raise ValueError(f"offset is {self.offset}; expected a multiple of 4")

    @property
    def signed_seed(self) -> int:
        """The seed as an int64 buffer shows it."""
        return self.seed - 2**64 if self.seed >= 2**63 else self.seed

    @property
    def key(self) -> tuple[int, int]:
        """Philox' key: the seed's low and high 32 bits."""
        return self.seed & MASK32, self.seed >> 32

    def counter(self, n: int, i: int, j: int, tokens_q: int) -> Counter:
        """Philox' counter for row ``i`` and column ``j`` of head ``n = b * heads + h``."""
        first = self.offset // OFFSETS_PER_COUNTER + COUNTERS_PER_HEAD * n + j % 8
        return first & MASK32, first >> 32, (i // 16 + -(-tokens_q // 16) * (j // 16)) & MASK32, 0

    def bits(self, n: int, i: int, j: int, tokens_q: int) -> int:
        """The 16 bits that decide about row ``i``, column ``j`` of head ``n = b * heads + h``."""
        words = philox4x32(self.counter(n, i, j, tokens_q), self.key)
        return words[2 * (i % 16 // 8) + j % 16 // 8] >> 16 * (i % 2) & 0xFFFF

    def advance(self, batch: int, heads: int) -> PhiloxState:
        """The state for the call after one of ``batch`` sequences with ``heads`` query heads.

        A call of ``B * H`` heads takes the first counter words from ``offset / 4`` up to, but not
        including, ``offset / 4 + 8 B H``; those that follow are free, so the offset grows by
        ``4 * 8 * B * H = 32 B H``, whatever the lengths.

        TransformerEngine advances by 16, that is by 4 counter words. Its next call starts at
        ``offset / 4 + 4``: columns ``j % 8 = 0..3`` of head ``n`` repeat the bits that columns 4..7
        of head ``n`` had one call before, and columns 4..7 those of columns 0..3 of head ``n + 1``.

        Raises:
            TypeError: ``batch`` or ``heads`` is no int.
            ValueError: ``batch`` or ``heads`` is negative, or the offset reaches ``2^63``.
        """
        for name, count in (("batch", batch), ("heads", heads)):
            _check_int(name, count)
            if count < 0:
                raise ValueError(f"{name} is {count}; expected at least 0")
        offset = self.offset + OFFSETS_PER_COUNTER * COUNTERS_PER_HEAD * batch * heads
        if offset >= OFFSET_LIMIT:
            raise ValueError(
                f"offset {self.offset} has no {batch} x {heads} heads left below 2**63; "
                f"take another seed"
            )
        return PhiloxState(self.seed, offset)


def check_dropout_p(dropout_p: float) -> None:
    """Raise unless ``0 <= dropout_p < 1``; 1, which would keep nothing, is refused by cuDNN too.

    Raises:
        TypeError: ``dropout_p`` is no number.
        ValueError: it is out of range or NaN, or a float32 rounds it to 1.
    """
    if isinstance(dropout_p, bool) or not isinstance(dropout_p, (int, float)):
        raise TypeError(f"dropout_p is a {type(dropout_p).__name__}; expected a float")
    if not 0 <= dropout_p < 1:
        raise ValueError(f"dropout_p is {dropout_p}; expected 0 <= dropout_p < 1")
    if _float32(dropout_p) == 1:
        raise ValueError(f"dropout_p is {dropout_p}, which is 1 in float32; expected less")


def keep_threshold(dropout_p: float) -> int:
    """``floor((1 - p) * 65536)``: a probability is kept if its 16 bits are at most this.

    In float32, as cuDNN computes it in both directions (H200, cuDNN 9.19: seen where float64 gives
    another threshold, at ``p = 0.25 + 2^-25``).

    Raises:
        TypeError, ValueError: as ``check_dropout_p``.
    """
    check_dropout_p(dropout_p)
    return math.floor(_float32(1.0 - _float32(dropout_p)) * _RESOLUTION)


def keep_probability(dropout_p: float) -> float:
    """The exact probability of keeping: ``(keep_threshold + 1) / 65536``, at most 1.

    At most ``2^-16`` above ``1 - p``: a ``dropout_p`` of ``2^-16`` or less drops nothing.

    Raises:
        TypeError, ValueError: as ``check_dropout_p``.
    """
    return min(keep_threshold(dropout_p) + 1, _RESOLUTION) / _RESOLUTION


def keep_scale(dropout_p: float) -> float:
    """The factor of what is kept, ``1 / (1 - p)``, rounded to float32 after each operation.

    Raises:
        TypeError, ValueError: as ``check_dropout_p``.
    """
    check_dropout_p(dropout_p)
    # A quotient of float32 numbers that goes through float64 is the correctly rounded one.
    return _float32(1.0 / _float32(1.0 - _float32(dropout_p)))


def _float32(value: float) -> float:
    """The nearest float32."""
    nearest: float = struct.unpack("<f", struct.pack("<f", value))[0]
    return nearest


def _check_int(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} is a {type(value).__name__}; expected an int")
