"""The faults of the cuDNN that plays along."""

from __future__ import annotations

import numpy as np

from ..logits import Array
from .reading import Reading

#: The first cuDNN that handles sequences without keys (cudnn-frontend issue 943).
_EMPTY_SINCE = 92500


def spoil(results: dict[str, Array], given: Reading, version: int) -> None:
    """Do as cuDNN does: see h200 measurements named in ``cudnn.known_bad``.

    NaN in the rest of a sequence's last key tile reaches all results of the sequence, because
    weights of 0 are multiplied with it. A sequence without keys gives NaN before 9.25.
    """
    lengths = given.keys.lengths
    if lengths is None:
        return
    for b in range(len(lengths)):
        queries = given.queries.lengths
        if queries is not None and queries[b] == 0 and given.keys.starts is not None:
            continue  # nothing is launched for a sequence that only fills up the batch
        empty = lengths[b] == 0 and version < _EMPTY_SINCE
        if empty or _has_bad_slack(given, b):
            _spoil_sequence(results, given, b)


def _spoil_sequence(results: dict[str, Array], given: Reading, b: int) -> None:
    rows = slice(None) if given.queries.lengths is None else slice(int(given.queries.lengths[b]))
    for role in ("output", "stats", "max_logit", "grad_query"):
        if role in results:
            results[role][b, :, rows] = np.nan
    for role in ("grad_key", "grad_value"):
        if role in results:
            results[role][b] = np.nan


def _has_bad_slack(given: Reading, b: int) -> bool:
    if given.graph.has("page_table_k"):
        return any(given.keys.has_bad_slack(array, b) for array in given.operands[1:])
    return any(given.keys.has_bad_slack(given.values[role], b) for role in ("key", "value"))
