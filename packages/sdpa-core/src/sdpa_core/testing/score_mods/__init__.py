"""Functions of the logits for cases: as users write them, and as the oracle computes them.

The two forms share nothing: the callback is written against ``score_mod.Graph``, the oracle's form
is NumPy with its derivative worked out by hand.
"""

from __future__ import annotations

from .case import Auxiliary as Auxiliary
from .case import ScoreModCase as ScoreModCase
from .case import ScoreModFunction as ScoreModFunction
from .case import part as part
from .operations import OPERATIONS as OPERATIONS
from .used import AS_USED as AS_USED

#: Functions of the logits by name.
SCORE_MODS: dict[str, ScoreModCase] = {**AS_USED, **OPERATIONS}
