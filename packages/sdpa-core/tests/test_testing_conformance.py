"""The suite passes an implementation that rounds as 16-bit kernels do, and fails faulty ones."""

from __future__ import annotations

import itertools
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from sdpa_core.dtypes import DType
from sdpa_core.errors import NoBackendError
from sdpa_core.mask import Alignment
from sdpa_core.reasons import Unsupported
from sdpa_core.testing import CASES, Result, place, round_to
from sdpa_core.testing.conformance import ConformanceSuite
from sdpa_core.testing.reference import visible_pairs


class Kernel:
    """Attention in float32, rounded where kernels with 16-bit matrix products round.

    The methods are the seams at which the faulty kernels below differ.
    """

    name = "kernel"

    def refusal(self, case, *, training, deterministic=False):
        return ()

    def operands(self, case, inputs):
        return tuple(placed.read() for placed in place(case, inputs))

    def scale(self, case):
        return case.effective_scale

    def band(self, case):
        return case.band

    def visible(self, case):
        return visible_pairs(self.band(case), case.tokens_q, case.tokens_kv)

    def divide(self, weights, total):
        return weights / np.where(total == 0, 1, total)

    def lse(self, lse):
        return lse

    def sum_group(self, gradient, case):
        """Sum over the query heads that share a key head."""
        _, _, tokens, head_dim = gradient.shape
        group = case.heads // case.heads_kv
        return gradient.reshape(case.batch, case.heads_kv, group, tokens, head_dim).sum(2)

    def scale_of_grad_key(self, case):
        return self.scale(case)

    def result(self, arrays, case):
        rounded = {name: round_to(array, case.dtype) for name, array in arrays.items()}
        dtypes = dict.fromkeys(arrays, str(case.dtype))
        if "lse" in arrays:
            rounded["lse"], dtypes["lse"] = arrays["lse"].astype(np.float64), "float32"
        return Result(**rounded, dtypes=dtypes)

    def run(self, case, inputs, *, training, return_lse, deterministic=False):
        group = case.heads // case.heads_kv
        query, key, value = (x.astype(np.float32) for x in self.operands(case, inputs))
        key, value = key.repeat(group, axis=1), value.repeat(group, axis=1)
        scale = np.float32(self.scale(case))
        visible = self.visible(case)

        def to_io(array):
            return round_to(array, case.dtype).astype(np.float32)

        def transposed(array):
            return np.swapaxes(array, -1, -2)

        with np.errstate(all="ignore"):
            logits = np.where(visible, scale * (query @ transposed(key)), -np.inf)
            largest = logits.max(axis=-1, keepdims=True, initial=-np.inf)
            largest = np.where(np.isneginf(largest), 0, largest)
            weights = np.exp(logits - largest)
            total = weights.sum(axis=-1, keepdims=True)
            output = self.divide(to_io(weights) @ value, total)
            lse = np.where(total > 0, np.log(total) + largest, -np.inf)
            arrays = {"output": output}
            if return_lse:
                arrays["lse"] = self.lse(lse[..., 0])
            if training:
                grad = inputs.grad_output.astype(np.float32)
                p = np.where(visible, np.exp(logits - lse), 0)
                d_p = grad @ transposed(value)
                d = np.sum(grad * to_io(output), axis=-1, keepdims=True)
                d_s = to_io(np.where(visible, p * (d_p - d), 0))
                grad_key = self.scale_of_grad_key(case) * (transposed(d_s) @ query)
                grad_value = transposed(to_io(p)) @ grad
                arrays["grad_query"] = scale * (d_s @ key)
                arrays["grad_key"] = self.sum_group(grad_key, case)
                arrays["grad_value"] = self.sum_group(grad_value, case)
        return self.result(arrays, case)


class TestKernel(ConformanceSuite):
    @pytest.fixture
    def subject(self):
        return Kernel()


REASON = Unsupported("query.dtype", "float32", "float16 or bfloat16")


class HalfOnly(Kernel):
    """Refuses one element type, as GPU backends do."""

    def refusal(self, case, *, training, deterministic=False):
        return (REASON,) if case.dtype is DType.FLOAT32 else ()

    def run(self, case, inputs, *, training, return_lse, deterministic=False):
        if case.dtype is DType.FLOAT32:
            raise NoBackendError(f"no backend supports this attention problem\n  kernel: {REASON}")
        return super().run(case, inputs, training=training, return_lse=return_lse)


class TestRefusals(ConformanceSuite):
    cases = tuple(
        case for case in CASES if case.name.startswith(("scale_half", "causal_br_few_keys"))
    )

    @pytest.fixture
    def subject(self):
        return HalfOnly()


# ---------------------------------------------------------------------------- faulty kernels


class WrongAlignment(Kernel):
    def band(self, case):
        swapped = {
            Alignment.TOP_LEFT: Alignment.BOTTOM_RIGHT,
            Alignment.BOTTOM_RIGHT: Alignment.TOP_LEFT,
        }
        return replace(case.band, alignment=swapped[case.band.alignment])


class LooksAhead(Kernel):
    def band(self, case):
        return case.band if case.band.is_full else replace(case.band, right=1)


class NoMask(Kernel):
    def visible(self, case):
        return np.ones((case.tokens_q, case.tokens_kv), dtype=bool)


class NoScale(Kernel):
    def scale(self, case):
        return 1.0


class IgnoresGivenScale(Kernel):
    def scale(self, case):
        return case.head_dim**-0.5


class ScaleOfValueDim(Kernel):
    def scale(self, case):
        return case.head_dim_v**-0.5 if case.scale is None else case.scale


class NoScaleInGradKey(Kernel):
    def scale_of_grad_key(self, case):
        return 1.0


class ScaleTwoPercentOff(Kernel):
    def scale(self, case):
        return 1.02 * case.effective_scale


class Base2Lse(Kernel):
    def lse(self, lse):
        return lse / np.log(2)


class HalfPrecisionLse(Kernel):
    def lse(self, lse):
        return round_to(lse, DType.BFLOAT16)


class FirstHeadOfGroupOnly(Kernel):
    def sum_group(self, gradient, case):
        return gradient[:, :: case.heads // case.heads_kv]


class InterleavedGroups(Kernel):
    """Key head ``h % Hkv`` instead of ``h // group``."""

    def sum_group(self, gradient, case):
        _, _, tokens, head_dim = gradient.shape
        shape = (case.batch, case.heads // case.heads_kv, case.heads_kv, tokens, head_dim)
        return gradient.reshape(shape).sum(1)


class NanInUnseenRows(Kernel):
    def divide(self, weights, total):
        return weights / total


class FiniteLseOfUnseenRows(Kernel):
    def lse(self, lse):
        return np.where(np.isneginf(lse), -1e30, lse)


class DropsPartialTile(Kernel):
    def visible(self, case):
        whole = case.tokens_kv // 32 * 32 or case.tokens_kv
        return super().visible(case) & (np.arange(case.tokens_kv) < whole)


class Float32Output(Kernel):
    def result(self, arrays, case):
        result = super().result(arrays, case)
        return replace(result, dtypes={**result.dtypes, "output": "float32"})


class ForgetsLse(Kernel):
    def result(self, arrays, case):
        return replace(super().result(arrays, case), lse=None)


class AlwaysReturnsLse(Kernel):
    def run(self, case, inputs, **options):
        return super().run(case, inputs, **{**options, "return_lse": True})


class ReadsRowMajor(Kernel):
    """Ignores strides, as a kernel does that is handed a pointer and shapes."""

    def operands(self, case, inputs):
        return tuple(
            replace(placed, strides=(h * s * d, s * d, d, 1)).read()
            if placed.strides[1] != 0
            else placed.read()
            for placed in place(case, inputs)
            for _, h, s, d in [placed.shape]
        )


class ReadsAlignedDown(Kernel):
    def operands(self, case, inputs):
        return tuple(replace(placed, offset=0).read() for placed in place(case, inputs))


class MixesSequences(Kernel):
    """Lets a masked sum over the batch in, times zero: invisible until something is not finite."""

    def operands(self, case, inputs):
        query, key, value = super().operands(case, inputs)
        return query, key + 0 * key.sum(axis=0, keepdims=True), value


class FirstSequenceForAll(Kernel):
    def operands(self, case, inputs):
        query, key, value = super().operands(case, inputs)
        return query, np.broadcast_to(key[:1], key.shape), value


class Unrepeatable(Kernel):
    """Adds in another order at each run."""

    runs = itertools.count()

    def result(self, arrays, case):
        if "grad_query" in arrays:
            arrays["grad_query"] = arrays["grad_query"] * (1 + 2**-9 * (next(self.runs) % 2))
        return super().result(arrays, case)


class TrainingDiffers(Kernel):
    """Another kernel runs in training: right, but not the same bits."""

    def result(self, arrays, case):
        if "grad_query" in arrays:
            arrays["output"] = arrays["output"] * (1 + 2**-8)
        return super().result(arrays, case)


class RunsWhatItRefuses(Kernel):
    def refusal(self, case, *, training, deterministic=False):
        return (REASON,)


class RefusesWithoutReason(HalfOnly):
    def run(self, case, inputs, **options):
        if case.dtype is DType.FLOAT32:
            raise NoBackendError("unsupported")
        return super().run(case, inputs, **options)


class RefusesUnannounced(HalfOnly):
    def refusal(self, case, *, training, deterministic=False):
        return ()


class NanInGradQuery(Kernel):
    """What cuDNN 9.19 does on compute capability 9.0."""

    def result(self, arrays, case):
        half_empty_tile = case.tokens_kv % 128 == 64 and case.band.is_full
        if "grad_query" in arrays and half_empty_tile and "negative_lse" in case.tags:
            arrays["grad_query"] = np.full_like(arrays["grad_query"], np.nan)
        return super().result(arrays, case)


#: Each fault, a case that shows it, and a test that finds it there.
FAULTS = [
    (WrongAlignment, "causal_few_queries_bfloat16", "test_forward"),
    (WrongAlignment, "causal_br_few_keys_bfloat16", "test_forward"),
    (LooksAhead, "causal_bfloat16", "test_hidden_keys_do_not_matter"),
    (NoMask, "decode_top_left", "test_forward"),
    (NoScale, "bfloat16_bhsd", "test_forward"),
    (NoScale, "scale_zero", "test_forward"),
    (IgnoresGivenScale, "scale_half", "test_forward"),
    (ScaleOfValueDim, "head_dim_192_128", "test_forward"),
    (ScaleTwoPercentOff, "bfloat16_bhsd", "test_forward"),
    (NoScaleInGradKey, "bfloat16_bhsd", "test_training"),
    (Base2Lse, "bfloat16_bhsd", "test_forward"),
    (HalfPrecisionLse, "bfloat16_bhsd", "test_forward"),
    (FirstHeadOfGroupOnly, "gqa_2", "test_training"),
    (FirstHeadOfGroupOnly, "mqa", "test_training"),
    (InterleavedGroups, "gqa_2", "test_training"),
    (NanInUnseenRows, "causal_br_few_keys_float32", "test_rows_without_keys"),
    (NanInUnseenRows, "empty_keys", "test_forward"),
    (FiniteLseOfUnseenRows, "empty_keys", "test_forward"),
    (DropsPartialTile, "full_few_queries_bfloat16", "test_training"),
    (Float32Output, "bfloat16_bhsd", "test_forward"),
    (ForgetsLse, "bfloat16_bhsd", "test_forward"),
    (AlwaysReturnsLse, "bfloat16_bhsd", "test_inference_equals_training"),
    (ReadsRowMajor, "bfloat16_bshd", "test_forward"),
    (ReadsRowMajor, "packed_qkv", "test_forward"),
    (ReadsAlignedDown, "unaligned", "test_forward"),
    (MixesSequences, "bfloat16_bhsd", "test_sequences_are_independent"),
    (FirstSequenceForAll, "bfloat16_bhsd", "test_forward"),
    (Unrepeatable, "bfloat16_bhsd", "test_repeatable"),
    (TrainingDiffers, "bfloat16_bhsd", "test_inference_equals_training"),
    (RunsWhatItRefuses, "bfloat16_bhsd", "test_forward"),
    (RefusesWithoutReason, "float32_bhsd", "test_forward"),
    (RefusesUnannounced, "float32_bhsd", "test_forward"),
    (NanInGradQuery, "key_tiles_64", "test_training"),
    (NanInGradQuery, "key_tiles_192", "test_training"),
]

CASE = {case.name: case for case in CASES}


def run_test(subject, case, test):
    getattr(ConformanceSuite(), test)(subject, case)


@pytest.mark.parametrize(("faulty", "case", "test"), FAULTS)
def test_the_suite_finds(faulty, case, test):
    applies = getattr(getattr(ConformanceSuite, test), "holds", lambda _: True)
    assert applies(CASE[case])
    run_test(Kernel(), CASE[case], test)
    with pytest.raises((AssertionError, NoBackendError)):
        run_test(faulty(), CASE[case], test)


def test_every_property_finds_something():
    properties = {name for name in vars(ConformanceSuite) if name.startswith("test_")}
    assert {test for _, _, test in FAULTS} == properties


def test_a_failure_names_tensor_place_and_tolerance():
    with pytest.raises(AssertionError, match=r"grad_key\[\d, \d, \d+, \d+\] is .* the tolerance"):
        run_test(NoScaleInGradKey(), CASE["float32_bhsd"], "test_training")


def test_a_refusal_must_name_its_reasons():
    with pytest.raises(AssertionError, match=r"lacks \['query.dtype = float32"):
        run_test(RefusesWithoutReason(), CASE["float32_bhsd"], "test_forward")


@pytest.mark.parametrize(
    ("module", "brings"),
    [("testing", False), ("testing.fake_cudnn", False), ("testing.conformance", True)],
)
def test_only_the_suite_needs_pytest(module, brings):
    code = f"import sys, sdpa_core.{module}; print('pytest' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(brings)
