"""Masks that are a band around the diagonal: none, causal, sliding windows."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Alignment(StrEnum):
    """Which corner of the ``[query tokens, key tokens]`` matrix the diagonal starts from."""

    TOP_LEFT = "top_left"
    BOTTOM_RIGHT = "bottom_right"


@dataclass(frozen=True, slots=True)
class Band:
    """Query ``i`` sees key ``j`` if ``i + shift - left <= j <= i + shift + right``.

    ``shift`` is 0 for ``TOP_LEFT`` and ``key tokens - query tokens`` for ``BOTTOM_RIGHT``. The
    bounds count tokens, inclusively; None is unbounded. Causal attention is ``right = 0``.

    Equivalent NumPy::

        i, j = np.arange(sq)[:, None], np.arange(skv)
        visible = (j >= i + shift - left) & (j <= i + shift + right)
    """

    left: int | None = None
    right: int | None = None
    alignment: Alignment = Alignment.TOP_LEFT

    @classmethod
    def causal(cls, alignment: Alignment = Alignment.TOP_LEFT) -> Band:
        return cls(None, 0, Alignment(alignment))

    @property
    def is_full(self) -> bool:
        """Whether every query sees every key."""
        return self.left is None and self.right is None

    def limits(self, sq: int, skv: int) -> tuple[int | None, int | None]:
        """``(left, right)`` measured from the top-left diagonal; either may then be negative."""
        shift = skv - sq if self.alignment is Alignment.BOTTOM_RIGHT else 0
        left = None if self.left is None else self.left - shift
        right = None if self.right is None else self.right + shift
        return left, right

    def normalized(self, sq: int, skv: int, *, same_lengths: bool = True) -> Band:
        """The one spelling of this band for these lengths.

        A bound that hides nothing is dropped, and a bottom-right band becomes a top-left one
        wherever its bounds stay non-negative (always, for ``sq <= skv``, up to the left bound):
        cuDNN combines top-left bands with more features.

        Args:
            same_lengths: every sequence has these lengths. Otherwise they are the longest, each
                sequence has its own bottom-right diagonal, and such a band stays as it is.
        """
        if not same_lengths and self.alignment is Alignment.BOTTOM_RIGHT:
            return Band() if self.is_full else self
        left, right = self.limits(sq, skv)
        if right is not None and right >= skv - 1:
            right = None
        if left is not None and left >= sq - 1:
            left = None
        if all(bound is None or bound >= 0 for bound in (left, right)):
            return Band(left, right)
        shift = skv - sq
        return Band(
            None if left is None else left + shift,
            None if right is None else right - shift,
            Alignment.BOTTOM_RIGHT,
        )

    def __str__(self) -> str:
        if self.is_full:
            return "none"
        if self.left is None and self.right == 0:
            return f"causal, {self.alignment}"
        bounds = ("inf" if b is None else str(b) for b in (self.left, self.right))
        return f"window ({', '.join(bounds)}), {self.alignment}"
