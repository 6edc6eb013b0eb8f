"""Options of an operation from the values of a problem."""

from __future__ import annotations

from ..mask import Alignment, Band


def band_options(band: Band) -> dict[str, object]:
    """cuDNN's spelling of a band.

    Its right bound counts as ours; its left bound counts the query's own position too, hence + 1
    (TransformerEngine fused_attn_f16_arbitrary_seqlen.cu passes left + 1).
    """
    if band.is_full:
        return {}
    options: dict[str, object] = {"diagonal_alignment": Alignment(band.alignment)}
    if band.right is not None:
        options["diagonal_band_right_bound"] = band.right
    if band.left is not None:
        options["diagonal_band_left_bound"] = band.left + 1
    return options
