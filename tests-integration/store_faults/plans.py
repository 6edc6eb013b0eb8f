"""Plans to fill stores with: real descriptions, made-up blobs."""

from __future__ import annotations

import random
from dataclasses import replace
from hashlib import sha256

from sdpa_core import AttentionProblem, Band, DeviceSpec, Direction, DType, Plan, TensorSpec
from sdpa_core.testing.fake_cudnn import FakeCudnn

H200 = DeviceSpec.named("h200", cudnn_version=92801)


def problem() -> AttentionProblem:
    spec = TensorSpec.dense((2, 4, 256, 128), DType.BFLOAT16)
    return AttentionProblem.of(spec, spec, spec, band=Band.causal(), training=True)


def a_plan(blob_bytes: int = 2048) -> Plan:
    plan = FakeCudnn().plan(problem(), H200, Direction.FORWARD)
    return replace(plan, blob=random.Random(0).randbytes(blob_bytes), workspace_bytes=1 << 20)


def numbered(plan: Plan, *name: object) -> Plan:
    """The plan under another key, with a blob that the key decides."""
    key = sha256(repr(name).encode()).hexdigest()
    return with_blob_of(replace(plan, fingerprint=key), key)


def with_blob_of(plan: Plan, *name: object) -> Plan:
    seed = repr(name)
    return replace(plan, blob=random.Random(seed).randbytes(len(plan.blob)))
