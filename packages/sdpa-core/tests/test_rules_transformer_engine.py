"""TransformerEngine's selection of cuDNN for 16-bit attention, as a second opinion.

Each row is one statement of ``nvte_get_fused_attn_backend`` (TransformerEngine d0067d0, August
2026) or of the filters of its PyTorch layer, for cuDNN 9.10.2 and later. Where we differ, the row
says why; a row that no longer differs fails.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from sdpa_core import Alignment, AttentionProblem, Band, DeviceSpec, Direction, DType, TensorSpec
from sdpa_core.cudnn import rules
from sdpa_core.problem import Softmax
from sdpa_core.ragged import Packed, packed_spec

MakeProblem = Callable[..., AttentionProblem]
FORWARD, BACKWARD = Direction
CAUSAL = Band.causal()
BOTTOM_RIGHT = Band.causal(Alignment.BOTTOM_RIGHT)
BIAS = TensorSpec.dense((1, 4, 128, 128), DType.BFLOAT16)
KEY_BIAS = TensorSpec.dense((1, 1, 1, 128), DType.BFLOAT16)
LENGTHS = {"seq_lens_q": True, "seq_lens_kv": True}
SINK = {"softmax": Softmax.LEARNABLE, "sink_grad": True}


@dataclass(frozen=True)
class Row:
    """What TransformerEngine says of a problem on a compute capability, with a cuDNN.

    Attributes:
        topic: the letter of its condition.
        accepted: its answer.
        why: why ours is another one; empty: it is the same.
        packed: in packed sequences.
    """

    topic: str
    sm: int
    cudnn: int
    direction: Direction
    accepted: bool
    problem: dict[str, Any] = field(default_factory=dict)
    why: str = ""
    packed: bool = False

    def __str__(self) -> str:
        given = "_".join(self.problem)
        return f"{self.topic}-sm{self.sm}-{self.cudnn}-{self.direction}-{given or 'plain'}"


#: Why we accept what it refuses.
BUILDS = "cuDNN 9.19 and 9.28 build it"
MEASURED = "on an H200 with cuDNN 9.19 it is right for seven such pairs"
FULL_LENGTHS = "cuDNN is given the full lengths then (known_bad)"
#: Why we refuse what it accepts.
REFUSED = "cuDNN 9.19 and 9.28 refuse it, and TransformerEngine's comments say so too"

ROWS = (
    # A, C, K: architectures and broken releases
    *(Row("A", sm, 91900, way, True) for sm in (80, 90, 100, 120) for way in Direction),
    Row("A", 75, 91900, FORWARD, False),
    Row("C", 80, 91900, BACKWARD, True, {"heads_kv": 2}),
    Row("K", 90, 91000, FORWARD, False),
    Row("K", 90, 91001, FORWARD, False),
    # D: head dims
    Row("D", 90, 91900, FORWARD, False, {"d": 68}),
    Row("D1", 80, 91900, BACKWARD, True, {"d": 128, "dv": 64}),
    Row("D2", 90, 91900, BACKWARD, True, {"d": 256, "dv": 256}),
    Row("D2", 80, 91900, BACKWARD, False, {"d": 256, "dv": 256}),
    Row("D4", 80, 91002, FORWARD, True, {"d": 512, "dv": 512, "training": False}),
    Row("D4", 80, 91002, FORWARD, True, {"d": 512, "dv": 512, "sq": 1, "training": False}),
    Row(
        "D4",
        80,
        91900,
        FORWARD,
        False,
        {"d": 256, "dv": 256, "sq": 1, "band": CAUSAL, "training": False},
        BUILDS,
    ),
    Row("D5", 100, 91100, BACKWARD, True, {"d": 192, "dv": 128}),
    Row("D5", 100, 91002, BACKWARD, False, {"d": 192, "dv": 128}),
    Row("D5", 120, 91900, BACKWARD, False, {"d": 192, "dv": 128}),
    Row("D6", 100, 92300, BACKWARD, True, {"d": 256, "dv": 256}),
    Row("D6", 100, 92200, BACKWARD, False, {"d": 256, "dv": 256}),
    Row("D6", 100, 92400, BACKWARD, False, {"d": 256, "dv": 256}, packed=True),
    Row("D6", 100, 92500, BACKWARD, True, {"d": 256, "dv": 256}, packed=True),
    Row("D6", 100, 92801, BACKWARD, False, {"d": 256, "dv": 256, "dropout_p": 0.1}),
    Row(
        "D6",
        100,
        92801,
        BACKWARD,
        False,
        {"d": 256, "dv": 256, "bias": BIAS},
        "cuDNN 9.28 builds it",
    ),
    Row("D6", 100, 92801, BACKWARD, False, {"d": 256, "dv": 256, **SINK}, "cuDNN 9.28 builds it"),
    Row("Dx", 90, 91900, BACKWARD, False, {"d": 256, "dv": 128}, MEASURED),
    Row("Dx", 90, 91900, BACKWARD, True, {"d": 192, "dv": 128}),
    # E, G: bias
    Row("E", 90, 91900, BACKWARD, True, {"bias": BIAS}),
    Row("E", 80, 91900, BACKWARD, True, {"bias": BIAS}),
    Row("E", 90, 91900, BACKWARD, True, {"alibi": True, "band": CAUSAL}),
    Row("E", 90, 91900, BACKWARD, False, {"alibi": True}),
    Row("E", 80, 91900, BACKWARD, False, {"alibi": True, "band": CAUSAL}, BUILDS),
    Row("G", 90, 91900, BACKWARD, False, {"bias": BIAS, **LENGTHS}, BUILDS),
    # F, the masks
    Row("F7", 90, 91900, BACKWARD, True, {"band": CAUSAL, **LENGTHS}),
    Row("F7", 90, 91900, BACKWARD, True, {"band": BOTTOM_RIGHT, **LENGTHS}),
    Row("F7", 90, 91900, BACKWARD, True, {"band": BOTTOM_RIGHT, "bias": BIAS, **LENGTHS}, REFUSED),
    Row(
        "F7",
        90,
        91900,
        BACKWARD,
        True,
        {"band": BOTTOM_RIGHT, "dropout_p": 0.1, **LENGTHS},
        REFUSED,
    ),
    Row("F7", 90, 91900, FORWARD, False, {"band": BOTTOM_RIGHT, "sq": 300}, FULL_LENGTHS),
    # H: packed sequences
    Row("H", 90, 91900, BACKWARD, True, packed=True),
    Row("H", 100, 91900, BACKWARD, True, packed=True),
    Row("H", 80, 91800, FORWARD, False, packed=True),
    Row("H", 80, 91900, BACKWARD, False, {}, BUILDS, packed=True),
    Row("H", 120, 91800, FORWARD, False, packed=True),
    Row("H", 120, 91801, FORWARD, True, packed=True),
    # I, the windows
    Row("I3", 90, 91900, BACKWARD, True, {"band": Band(64, 0)}),
    Row("I3", 90, 91900, BACKWARD, True, {"band": Band(64, 32)}),
    Row("I3", 90, 91900, BACKWARD, False, {"band": Band(64, 0), "bias": BIAS}, BUILDS),
    Row("I3", 90, 91900, BACKWARD, False, {"band": Band(64, 0), "dropout_p": 0.1}, BUILDS),
    Row("I3", 90, 91900, FORWARD, False, {"band": Band(64, 0), "sq": 300}, FULL_LENGTHS),
    Row("I3", 90, 91400, FORWARD, False, {"band": Band(64, 32), "skv": 2048}),
    Row("I3", 90, 91401, FORWARD, True, {"band": Band(64, 32), "skv": 2048}),
    # L, M: sinks, the largest logit
    Row("L", 90, 91300, FORWARD, False, SINK),
    Row("L", 90, 91301, FORWARD, True, SINK),
    Row("L", 90, 91701, FORWARD, False, SINK, packed=True),
    Row("L", 90, 91800, FORWARD, True, SINK, packed=True),
    Row("L", 90, 92500, BACKWARD, False, SINK, packed=True),
    Row("L", 90, 92600, BACKWARD, True, SINK, packed=True),
    Row("M", 90, 92000, FORWARD, False, {"return_max_logit": True}),
    Row("M", 90, 92100, FORWARD, True, {"return_max_logit": True}),
    # N: training on compute capability 10.x
    Row("N", 100, 91900, BACKWARD, True, {"dropout_p": 0.1}),
    Row("N", 100, 91900, BACKWARD, True, {"bias": BIAS, "bias_grad": True}),
    Row("N", 100, 91900, BACKWARD, False, {"bias": BIAS, "bias_grad": True, "dropout_p": 0.1}),
    Row(
        "N",
        100,
        91900,
        BACKWARD,
        False,
        {"bias": BIAS, "dropout_p": 0.1},
        f"without dBias {BUILDS}",
    ),
    Row("N", 100, 91800, BACKWARD, False, {"deterministic": True}, "cudnn-frontend: 9.18.0"),
    Row("N", 100, 91701, BACKWARD, False, {"deterministic": True}),
    Row("N", 100, 91900, BACKWARD, False, {"deterministic": True, "dropout_p": 0.1}),
    Row("N", 100, 91900, BACKWARD, False, {"deterministic": True, "bias": BIAS, "bias_grad": True}),
    Row(
        "N",
        100,
        92801,
        BACKWARD,
        False,
        {"deterministic": True, "bias": BIAS},
        "without dBias cuDNN 9.23 and newer build it",
    ),
    # What is taken out afterwards
    Row("after", 90, 91500, BACKWARD, False, {"sq": 100, "skv": 100}, FULL_LENGTHS),
    Row("after", 90, 91600, BACKWARD, True, {"sq": 100, "skv": 100}),
    Row("after", 120, 91800, FORWARD, False, {}, "the report is about packed sequences (PR 2693)"),
    Row("after", 120, 92801, BACKWARD, False, {"deterministic": True}, BUILDS),
    Row("after", 90, 91900, BACKWARD, False, {"bias": KEY_BIAS, "bias_grad": True}, BUILDS),
    Row("after", 90, 91900, BACKWARD, False, {"deterministic": True, **SINK}),
    Row("after", 80, 91900, BACKWARD, False, {"deterministic": True}, BUILDS),
)

_NAMES = {75: "a100", 80: "a100", 90: "h200", 100: "b200", 120: "rtx5090"}


def in_packed_rows(problem: AttentionProblem) -> AttentionProblem:
    specs = {}
    for name in ("query", "key", "value"):
        batch, heads, longest, width = getattr(problem, name).shape
        specs[name] = packed_spec(
            (200, heads, width),
            (heads * width, width, 1),
            problem.query.dtype,
            batch=batch,
            max_tokens=longest,
        )
    return replace(problem, packed_q=Packed(200), packed_kv=Packed(200), **specs)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_we_answer_as_transformer_engine_does_or_say_why(
    make_problem: MakeProblem, row: Row
) -> None:
    problem = make_problem(**row.problem)
    if row.packed:
        problem = in_packed_rows(problem)
    device = replace(DeviceSpec.named(_NAMES[row.sm]), sm=row.sm, cudnn_version=row.cudnn)
    reasons = rules.reasons(problem, device, row.direction)
    ours = "accepted" if not reasons else "; ".join(map(str, reasons))
    assert (not reasons) == (row.accepted if not row.why else not row.accepted), ours


def test_the_differences() -> None:
    """Two kinds: what only cuDNN's answer, or a measurement, allows; and one it overlooks."""
    differences = [row for row in ROWS if row.why]
    assert {row.topic for row in differences if row.accepted} == {"F7"}
    assert {row.topic for row in differences if not row.accepted} == {
        *("D4", "D6", "Dx", "E", "F7", "G", "H", "I3", "N", "after")
    }
