"""What the options of a problem cannot say together, and values out of range."""

from __future__ import annotations

import math
from argparse import Namespace

from ..dtypes import DType
from ..softmax import Softmax


def check(given: Namespace) -> None:
    """Raise ValueError, naming the options, unless they fit together."""
    sides = [name for side in given.packed for name in side.names]
    is_mask = given.bias is not None and given.bias.dtype is DType.BOOL
    mistakes = {
        "--bias-grad needs --bias and --training": given.bias_grad
        and not (given.bias and given.training),
        "--bias-grad needs a bias that is no boolean mask": given.bias_grad and is_mask,
        "--sink-grad needs --softmax learnable and --training": given.sink_grad
        and not (given.softmax is Softmax.LEARNABLE and given.training),
        "--alibi takes the standard slopes, --alibi-slopes others; give one of them": given.alibi
        and given.alibi_slopes,
        "--packed names a side twice": len(sides) > len(set(sides)),
        "--gaps needs --packed": given.gaps and not sides,
        "--packed says the lengths of the queries; --seq-lens-q is for dense ones": given.seq_lens_q
        and "q" in sides,
        "--packed says the lengths of the keys; --seq-lens-kv is for dense ones": given.seq_lens_kv
        and "kv" in sides,
        "--page-size and --packed kv exclude each other": given.page_size and "kv" in sides,
        "--layout is for dense operands, and all are packed": given.layout != "bhsd"
        and len(set(sides)) == 2,
        f"--v-dim = {given.v_dim}; expected 0 or more": (given.v_dim or 0) < 0,
        f"--dropout = {given.dropout}; expected a number in [0, 1)": not 0 <= given.dropout < 1,
        f"--softcap = {given.softcap}; expected a positive finite number": given.softcap is not None
        and not 0 < given.softcap < math.inf,
    }
    for text, made in mistakes.items():
        if made:
            raise ValueError(text)
