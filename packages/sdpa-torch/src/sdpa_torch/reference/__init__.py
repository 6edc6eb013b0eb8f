"""The reference backend: plain tensor operations, blocked over queries.

Memory grows with the number of tokens, not with its square. Everything is accumulated in
float32 (float64 for float64 inputs) and rounded once at the end. It runs wherever torch does,
also under functorch transforms and tracing, and mirrors ``sdpa_jax.reference`` step by step.
There must be at least one query and one key; ``attend`` answers empty problems itself.
"""

from .backward import backward as backward
from .blocks import BLOCK as BLOCK
from .forward import forward as forward
