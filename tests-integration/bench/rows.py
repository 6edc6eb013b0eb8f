"""What is measured: attention problems in bfloat16, and how many operations they take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Direction = Literal["forward", "backward"]
DIRECTIONS: tuple[Direction, ...] = ("forward", "backward")

#: Matrix products of the backward pass over those of the forward pass: five and two.
_BACKWARD = 2.5


@dataclass(frozen=True, slots=True)
class Row:
    """Self-attention of ``batch`` sequences of ``tokens`` tokens.

    Attributes:
        batch, heads, heads_kv, tokens, head_dim: B, Hq, Hkv, Sq = Skv, D = Dv.
        causal: each query sees the keys up to its own position.
    """

    batch: int
    heads: int
    heads_kv: int
    tokens: int
    head_dim: int
    causal: bool

    @property
    def name(self) -> str:
        """``1,32,8,4096,128,causal``: B, Hq, Hkv, S, D."""
        sizes = (self.batch, self.heads, self.heads_kv, self.tokens, self.head_dim)
        return ",".join([*map(str, sizes), "causal" if self.causal else "full"])

    @property
    def scale(self) -> float:
        return self.head_dim**-0.5

    def flops(self, direction: Direction) -> float:
        """Multiplications and additions of the matrix products; a causal mask halves them."""
        products = 4 * self.batch * self.heads * self.tokens**2 * self.head_dim
        return (
            products
            * (0.5 if self.causal else 1.0)
            * (_BACKWARD if direction == "backward" else 1.0)
        )

    def tflops(self, direction: Direction, milliseconds: float) -> float:
        """TFLOP/s of a call that took so long."""
        return self.flops(direction) / (milliseconds * 1e9)


ROWS = (
    Row(1, 32, 8, 4096, 128, causal=True),
    Row(1, 32, 8, 16384, 128, causal=True),
    Row(1, 64, 8, 32768, 128, causal=True),
    Row(2, 32, 32, 8192, 128, causal=True),
    Row(2, 32, 32, 8192, 128, causal=False),
    Row(4, 16, 16, 4096, 64, causal=True),
    Row(1, 16, 16, 8192, 256, causal=True),
    Row(8, 32, 8, 512, 128, causal=True),
)

#: So small that the host takes longer than the device.
HOST_ROW = Row(1, 8, 8, 128, 64, causal=False)


def chosen(names: list[str]) -> tuple[Row, ...]:
    """The rows whose names contain one of these texts; all if there are none.

    Raises:
        ValueError: a text that no row's name contains.
    """
    for name in names:
        if not any(name in row.name for row in ROWS):
            raise ValueError(
                f"no row matches {name!r}; there are {', '.join(r.name for r in ROWS)}"
            )
    return tuple(row for row in ROWS if not names or any(name in row.name for name in names))
