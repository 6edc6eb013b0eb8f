"""An optional attention backend on CuTe DSL kernels, found by sdpa_core through its entry point."""

from __future__ import annotations

from .support import CuteDslBackend as CuteDslBackend
from .support import backend as backend
