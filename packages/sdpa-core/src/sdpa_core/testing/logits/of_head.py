"""The logits of one head, and the gradient on its way back through them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .attended import Attended, Head
from .features import Array, Mask


@dataclass(frozen=True)
class Logits:
    """The logits of one head, and the way back from them.

    Attributes:
        scaled: ``scale * q.k``, ``[Sq, Skv]``.
        capped: after softcap.
        final: after all; -inf where hidden.
        visible: where not hidden.
    """

    scaled: Array
    capped: Array
    final: Array
    visible: Mask

    @classmethod
    def of(cls, head: Head, call: Attended) -> Logits:
        scaled = call.scale * (head.q @ head.k.T)
        cap = call.softcap
        capped = scaled if cap is None else cap * np.tanh(scaled / cap)
        changed = capped if call.function is None else call.function.value(capped, head.at)
        visible = head.visible & ~np.isneginf(changed)
        final = np.where(visible, changed + np.where(head.visible, head.added, 0.0), -np.inf)
        return cls(scaled, capped, final, visible)

    def pull_back(self, d_final: Array, head: Head, call: Attended) -> Array:
        """The gradient of ``scaled`` from that of ``final``."""
        d = d_final
        if call.function is not None:
            d = np.where(self.visible, call.function.pull_back(d, self.capped, head.at), 0.0)
        if call.softcap is not None:
            d = d * (1 - np.tanh(self.scaled / call.softcap) ** 2)
        return np.where(self.visible, d, 0.0)
