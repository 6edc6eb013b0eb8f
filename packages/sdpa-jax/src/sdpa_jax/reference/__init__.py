"""The reference backend: plain ``jax.numpy``, blocked over queries.

Memory grows with the number of tokens, not with its square. Everything is accumulated in
float32 (float64 for float64 inputs) and rounded once at the end. It runs wherever JAX does and
mirrors ``sdpa_torch.reference`` step by step. There must be at least one query and one key;
``calls`` answers empty problems itself.
"""

from .backward import backward as backward
from .blocks import BLOCK as BLOCK
from .forward import forward as forward
