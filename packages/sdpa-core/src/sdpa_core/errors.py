"""The error families. A caller's mistake is a ``ValueError`` or ``TypeError`` naming the argument.

| situation                                   | raised                                   |
|---------------------------------------------|------------------------------------------|
| wrong rank, dtype, head ratio, device, ...  | ``ValueError`` / ``TypeError``           |
| valid, but no backend may run it            | ``NoBackendError``, with every reason    |
| cuDNN missing, version mismatch, no driver  | ``SdpaEnvironmentError``, with the fix   |
| a slow path is taken on a GPU               | ``SlowAttentionWarning``, once per cause |
"""

from __future__ import annotations


class NoBackendError(NotImplementedError):
    """The problem is valid, but no admissible backend supports it; the text has all reasons."""


class SdpaEnvironmentError(RuntimeError):
    """The installation cannot do what was asked; the text ends with the command that mends it."""


class SlowAttentionWarning(UserWarning):
    """The reference backend runs on an accelerator because nothing faster supports the problem."""
