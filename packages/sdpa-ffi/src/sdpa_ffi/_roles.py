"""Names of operands for the native module's messages: it knows numbers only."""

from __future__ import annotations

from sdpa_core.cudnn.uids import SCORE_MOD_SCALARS, SCORE_MOD_TENSORS, F16Uid

from . import _native

#: More than a plan may have (``kMaxBindings`` in plan.h).
_AUXILIARY = 128


def roles() -> dict[int, str]:
    """The role of every operand that sdpa_core numbers, by its uid."""
    return {
        **{uid.value: uid.role for uid in F16Uid},
        **{SCORE_MOD_TENSORS + i: f"score_mod_{i}" for i in range(_AUXILIARY)},
        **{SCORE_MOD_SCALARS + i: f"score_mod_scalar_{i}" for i in range(_AUXILIARY)},
    }


def provide_roles() -> None:
    """Tell the native module; done once, when the package is imported."""
    _native.set_roles(roles())
