"""What to register with XLA. Nothing here imports JAX; ``sdpa_jax`` does the registering."""

from __future__ import annotations

from . import _native
from ._loader import provide_libraries

# Exported programs hold these names: they are kept for good, and a new meaning gets a new name.
_TARGET = "sdpa_ffi.execute.v1"
_TYPE = "sdpa_ffi.plan.v1"


def xla_targets() -> dict[str, _native.XlaTarget]:
    """Custom-call targets by name, each a dict of stage to capsule for ``register_ffi_target``.

    Register them for platform ``"CUDA"``, after the types. A call to ``sdpa_ffi.execute.v1`` has

    * attributes ``plan``, the bytes of a container, and ``scalars``, a float32 array of the plan's
      host scalars in ascending uid;
    * arguments: the plan's device inputs, in ascending uid;
    * results: its device outputs, in ascending uid, then a workspace, uint8
      ``[max(1, workspace_bytes)]``.

    It may be recorded into a command buffer.
    """
    provide_libraries()  # the handlers load plans without passing through Python
    return {_TARGET: _native.xla_target()}


def xla_types() -> dict[str, _native.XlaType]:
    """State types by name, for ``register_ffi_type``; register them once the backend exists."""
    return {_TYPE: _native.xla_type()}
