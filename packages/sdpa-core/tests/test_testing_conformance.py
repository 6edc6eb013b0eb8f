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
from sdpa_core.testing import CASES, NEIGHBOURS, DropoutState, Packing, round_to
from sdpa_core.testing.conformance import ConformanceSuite
from sdpa_core.testing.emulation import EmulatedKernel
from sdpa_core.testing.logits import visible_pairs


class TestKernel(ConformanceSuite):
    @pytest.fixture
    def subject(self):
        return EmulatedKernel()


REASON = Unsupported("query.dtype", "float32", "float16 or bfloat16")


class HalfOnly(EmulatedKernel):
    """Refuses one element type, as GPU backends do."""

    def refusal(self, case, **options):
        return (REASON,) if case.dtype is DType.FLOAT32 else super().refusal(case, **options)

    def run(self, case, inputs, **options):
        if case.dtype is DType.FLOAT32:
            raise NoBackendError(f"no backend supports this attention problem\n  kernel: {REASON}")
        return super().run(case, inputs, **options)


REFUSABLE = ("scale_half", "causal_br_few_keys", "lengths_bfloat16", "dropout_rate")


class TestRefusals(ConformanceSuite):
    cases = tuple(case for case in CASES if case.name.startswith(REFUSABLE))

    @pytest.fixture
    def subject(self):
        return HalfOnly()


# ---------------------------------------------------------------------------- faulty kernels


class WrongAlignment(EmulatedKernel):
    def band(self, case):
        swapped = {
            Alignment.TOP_LEFT: Alignment.BOTTOM_RIGHT,
            Alignment.BOTTOM_RIGHT: Alignment.TOP_LEFT,
        }
        return replace(case.band, alignment=swapped[case.band.alignment])


class LooksAhead(EmulatedKernel):
    def band(self, case):
        return case.band if case.band.is_full else replace(case.band, right=1)


class NoMask(EmulatedKernel):
    def visible(self, case, mask):
        return np.ones((case.batch, case.heads, case.tokens_q, case.tokens_kv), dtype=bool)


class NoScale(EmulatedKernel):
    def scale(self, case):
        return 1.0


class IgnoresGivenScale(EmulatedKernel):
    def scale(self, case):
        return case.head_dim**-0.5


class ScaleOfValueDim(EmulatedKernel):
    def scale(self, case):
        return case.head_dim_v**-0.5 if case.scale is None else case.scale


class NoScaleInGradKey(EmulatedKernel):
    def scale_of_grad_key(self, case):
        return 1.0


class ScaleTwoPercentOff(EmulatedKernel):
    def scale(self, case):
        return 1.02 * case.effective_scale


class Base2Lse(EmulatedKernel):
    def lse(self, lse):
        return lse / np.log(2)


class HalfPrecisionLse(EmulatedKernel):
    def lse(self, lse):
        return round_to(lse, DType.BFLOAT16)


class FirstHeadOfGroupOnly(EmulatedKernel):
    def sum_group(self, gradient, case):
        return gradient[:, :: case.heads // case.heads_kv]


class InterleavedGroups(EmulatedKernel):
    """Key head ``h % Hkv`` instead of ``h // group``."""

    def sum_group(self, gradient, case):
        _, _, tokens, head_dim = gradient.shape
        shape = (case.batch, case.heads // case.heads_kv, case.heads_kv, tokens, head_dim)
        return gradient.reshape(shape).sum(1)


class NanInUnseenRows(EmulatedKernel):
    def divide(self, weights, total):
        return weights / total


class FiniteLseOfUnseenRows(EmulatedKernel):
    def lse(self, lse):
        return np.where(np.isneginf(lse), -1e30, lse)


class DropsPartialTile(EmulatedKernel):
    def visible(self, case, mask):
        whole = case.tokens_kv // 32 * 32 or case.tokens_kv
        return super().visible(case, mask) & (np.arange(case.tokens_kv) < whole)


class Float32Output(EmulatedKernel):
    def result(self, arrays, case):
        result = super().result(arrays, case)
        return replace(result, dtypes={**result.dtypes, "output": "float32"})


class ForgetsLse(EmulatedKernel):
    def result(self, arrays, case):
        return replace(super().result(arrays, case), lse=None)


class AlwaysReturnsLse(EmulatedKernel):
    def run(self, case, inputs, **options):
        return super().run(case, inputs, **{**options, "return_lse": True})


class ReadsRowMajor(EmulatedKernel):
    """Ignores strides, as a kernel does that is handed a pointer and shapes."""

    def unpacked(self, placed, packing):
        if placed.strides[1] != 0:
            _, h, n, d = placed.shape
            placed = replace(placed, strides=(h * n * d, n * d, d, 1))
        return super().unpacked(placed, packing)


class ReadsAlignedDown(EmulatedKernel):
    def unpacked(self, placed, packing):
        return super().unpacked(replace(placed, offset=0), packing)


class MixesSequences(EmulatedKernel):
    """Lets a masked sum over the batch in, times zero: invisible until something is not finite."""

    def read(self, case, inputs):
        found = super().read(case, inputs)
        return {**found, "key": found["key"] + 0 * found["key"].sum(axis=0, keepdims=True)}


class FirstSequenceForAll(EmulatedKernel):
    def read(self, case, inputs):
        found = super().read(case, inputs)
        return {**found, "key": np.broadcast_to(found["key"][:1], found["key"].shape)}


class Unrepeatable(EmulatedKernel):
    """Adds in another order at each run."""

    runs = itertools.count()

    def result(self, arrays, case):
        if "grad_query" in arrays:
            arrays["grad_query"] = arrays["grad_query"] * (1 + 2**-9 * (next(self.runs) % 2))
        return super().result(arrays, case)


class TrainingDiffers(EmulatedKernel):
    """Another kernel runs in training: right, but not the same bits."""

    def result(self, arrays, case):
        if "grad_query" in arrays:
            arrays["output"] = arrays["output"] * (1 + 2**-8)
        return super().result(arrays, case)


class WindowOffByOne(EmulatedKernel):
    """cuDNN's left bound handed on as ours."""

    def band(self, case):
        left = case.band.left
        return case.band if left is None else replace(case.band, left=max(left - 1, 0))


class IgnoresLeftBound(EmulatedKernel):
    def band(self, case):
        return replace(case.band, left=None)


class CausalWindow(EmulatedKernel):
    """A right bound of 0 by default (R34)."""

    def band(self, case):
        return replace(case.band, right=0)


class ForgetsLengths(EmulatedKernel):
    def lengths(self, case):
        return (case.tokens_q,) * case.batch, (case.tokens_kv,) * case.batch


class AlignsByLongest(EmulatedKernel):
    """Bottom-right from the padded lengths."""

    def visible(self, case, mask):
        visible = visible_pairs(case.band, case.tokens_q, case.tokens_kv)
        exist = case.exists_q()[:, :, None] & case.exists_kv()[:, None, :]
        shape = (case.batch, case.heads, case.tokens_q, case.tokens_kv)
        return np.broadcast_to((visible & exist)[:, None], shape)


class LengthsOfFirst(EmulatedKernel):
    def lengths(self, case):
        lengths_q, lengths_kv = super().lengths(case)
        return lengths_q, lengths_kv[:1] * case.batch


class ReadsSlack(EmulatedKernel):
    """Multiplies what lies past a length with zeros, as cuDNN does."""

    def exists_kv(self, case):
        return np.ones((case.batch, case.tokens_kv), dtype=bool)


class NoBias(EmulatedKernel):
    def added(self, logits, bias):
        return logits


class HalfPrecisionBias(EmulatedKernel):
    """Rounds the sum once more."""

    def added(self, logits, bias):
        return round_to(logits + bias, DType.BFLOAT16).astype(np.float32)


class ReadsFloat32BiasAsHalf(EmulatedKernel):
    """Another element type than the bias has (R44)."""

    def read(self, case, inputs):
        found = super().read(case, inputs)
        if case.bias_dtype is DType.FLOAT32:
            halves = found["bias"].astype(np.float32).view(np.float16)
            found["bias"] = np.nan_to_num(halves[..., : found["bias"].shape[-1]])
        return found


class FirstHeadOfBiasGradient(EmulatedKernel):
    def sum_bias(self, gradient, shape):
        kept = gradient[tuple(slice(n) for n in shape)]
        return np.broadcast_to(kept, shape)


class MeanOfBiasGradient(EmulatedKernel):
    def sum_bias(self, gradient, shape):
        repeated = np.prod(gradient.shape) / max(np.prod(shape), 1)
        return super().sum_bias(gradient, shape) / np.float32(repeated)


class AlibiFromTopLeft(EmulatedKernel):
    def distances(self, case):
        aligned = replace(case, band=replace(case.band, alignment=Alignment.TOP_LEFT))
        return super().distances(aligned)


class SlopesFromZero(EmulatedKernel):
    """``i`` counted from 0 instead of 1."""

    def slopes(self, case, given):
        slopes = super().slopes(case, given)
        return slopes if given is not None else slopes * 2 ** (8 / case.heads)


class NoSink(EmulatedKernel):
    def sink(self, case, given):
        return None


class SinkOutsideMaximum(EmulatedKernel):
    """Overflows where the sink is larger than all logits (R111)."""

    def maximum(self, logits, sink):
        return super().maximum(logits, None)


class SinkGradientOfOneSequence(EmulatedKernel):
    def result(self, arrays, case):
        if "grad_sink" in arrays:
            arrays["grad_sink"] = arrays["grad_sink"] / case.batch
        return super().result(arrays, case)


class TanhTimesScore(EmulatedKernel):
    """The formula of R112."""

    def softcapped(self, logits, cap):
        return logits * np.tanh(logits / np.float32(cap))


class NoSoftcapInBackward(EmulatedKernel):
    def softcap_slope(self, call):
        return np.float32(1)


class KeepsAll(EmulatedKernel):
    def keep(self, case):
        return None


class ForgetsToScaleKept(EmulatedKernel):
    def keep(self, case):
        keep = super().keep(case)
        return None if keep is None else (keep > 0).astype(np.float32)


class SeedOf32Bits(EmulatedKernel):
    """Cuts the seed, as an int32 would (R93)."""

    def state(self, case):
        return DropoutState(self.seed % 2**32) if case.dropout_p else None


class HidesItsSeed(EmulatedKernel):
    def state(self, case):
        return None


class SinkInMaxLogit(EmulatedKernel):
    def max_logit(self, call):
        return call.largest.max(axis=(0, 2, 3))


class MaxLogitOfFirstSequence(EmulatedKernel):
    def max_logit(self, call):
        return call.logits[:1].max(axis=(0, 2, 3), initial=-np.inf)


class MaxLogitOfUnmasked(EmulatedKernel):
    def max_logit(self, call):
        return call.scaled.max(axis=(0, 2, 3), initial=-np.inf)


class IgnoresPaddedStarts(EmulatedKernel):
    """Sequences one after another, whatever the gaps (R56)."""

    def unpacked(self, placed, packing):
        if packing is not None:
            tail = packing.tokens - sum(packing.lengths)
            packing = Packing(packing.lengths, packing.padded, None, tail)
        return super().unpacked(placed, packing)


class LeavesGaps(EmulatedKernel):
    def packed(self, name, array, case):
        packing = case.packing_q if name in {"output", "lse", "grad_query"} else case.packing_kv
        return None if packing is None else packing.pack(array)


class FollowsKeyTable(EmulatedKernel):
    """Values by the keys' page table."""

    def gathered(self, pool, table, case):
        self.first = table if not hasattr(self, "first") else self.first
        return super().gathered(pool, self.first, case)


class TableOneColumnShort(EmulatedKernel):
    """The pages of a sequence by floor division (R63)."""

    def gathered(self, pool, table, case):
        columns = case.tokens_kv // case.page_size
        short = table.reshape(-1)[: case.batch * columns].reshape(case.batch, columns)
        rows = super().gathered(pool, short, case)
        missing = case.tokens_kv - rows.shape[2]
        return np.pad(rows, ((0, 0), (0, 0), (0, missing), (0, 0)))


class RemembersScale(EmulatedKernel):
    """A cache whose key lacks the scale."""

    def __init__(self):
        self.known = None

    def scale(self, case):
        self.known = case.effective_scale if self.known is None else self.known
        return self.known


class RunsWhatItRefuses(EmulatedKernel):
    def refusal(self, case, **options):
        return (REASON,)


class RefusesWithoutReason(HalfOnly):
    def run(self, case, inputs, **options):
        if case.dtype is DType.FLOAT32:
            raise NoBackendError("unsupported")
        return super().run(case, inputs, **options)


class RefusesUnannounced(HalfOnly):
    def refusal(self, case, **options):
        return ()


class NanInGradQuery(EmulatedKernel):
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
    (WindowOffByOne, "window_5_0", "test_forward"),
    (WindowOffByOne, "window_4_2_br", "test_forward"),
    (WindowOffByOne, "packed_window_gaps", "test_forward"),
    (IgnoresLeftBound, "window_5_3", "test_forward"),
    (CausalWindow, "window_left_only", "test_forward"),
    (CausalWindow, "window_right_only", "test_forward"),
    (CausalWindow, "window_none_cross", "test_forward"),
    (ForgetsLengths, "lengths_kv", "test_forward"),
    (ForgetsLengths, "lengths_both_causal_br", "test_training"),
    (ForgetsLengths, "lengths_static_cache", "test_forward"),
    (ForgetsLengths, "lengths_no_keys", "test_rows_without_keys"),
    (LengthsOfFirst, "lengths_kv", "test_forward"),
    (LengthsOfFirst, "packed", "test_training"),
    (AlignsByLongest, "lengths_both_causal_br", "test_forward"),
    (AlignsByLongest, "packed_unlike_tokens_br", "test_forward"),
    (ReadsSlack, "lengths_kv", "test_what_lies_past_a_length_does_not_matter"),
    (NoMask, "mask_bhss", "test_rows_without_keys"),
    (NoMask, "mask_1h1s", "test_forward"),
    (NoBias, "bias_111s_float32", "test_forward"),
    (NoBias, "bias_lowest_float16", "test_forward"),
    (HalfPrecisionBias, "bias_bfloat16", "test_forward"),
    (ReadsFloat32BiasAsHalf, "bias_float32_float16", "test_forward"),
    (FirstHeadOfBiasGradient, "bias_11ss_float32", "test_training"),
    (FirstHeadOfBiasGradient, "bias_bh1s_float32", "test_training"),
    (MeanOfBiasGradient, "bias_1hss_float32", "test_training"),
    (AlibiFromTopLeft, "alibi_causal_br", "test_training"),
    (AlibiFromTopLeft, "lengths_alibi_br", "test_training"),
    (SlopesFromZero, "alibi", "test_forward"),
    (NoSink, "sink_float32", "test_forward"),
    (NoSink, "off_by_one", "test_forward"),
    (NoSink, "sink_no_keys", "test_forward"),
    (SinkOutsideMaximum, "sink_100", "test_forward"),
    (SinkOutsideMaximum, "packed_sink_100", "test_training"),
    (SinkGradientOfOneSequence, "sink_float32", "test_training"),
    (SinkGradientOfOneSequence, "packed_sink_head_dim_96_bfloat16", "test_training"),
    (TanhTimesScore, "softcap_float32", "test_forward"),
    (TanhTimesScore, "softcap_15", "test_forward"),
    (NoSoftcapInBackward, "softcap", "test_training"),
    (KeepsAll, "dropout_rate", "test_dropout_keeps_what_it_should"),
    (KeepsAll, "dropout", "test_forward"),
    (ForgetsToScaleKept, "dropout_rate", "test_dropout_keeps_what_it_should"),
    (SeedOf32Bits, "dropout", "test_forward"),
    (HidesItsSeed, "dropout", "test_forward"),
    (SinkInMaxLogit, "sink_100", "test_max_logit"),
    (MaxLogitOfFirstSequence, "gqa_4_bshd_float32", "test_max_logit"),
    (MaxLogitOfUnmasked, "causal_float32", "test_max_logit"),
    (IgnoresPaddedStarts, "packed_padded_starts", "test_forward"),
    (IgnoresPaddedStarts, "packed_padded_starts_bfloat16", "test_training"),
    (LeavesGaps, "packed_tail", "test_forward"),
    (LeavesGaps, "packed_gaps", "test_training"),
    (FollowsKeyTable, "paged_value_table", "test_forward"),
    (TableOneColumnShort, "paged_odd_tokens", "test_forward"),
]

CASE = {case.name: case for case in CASES}
PAIR = {pair[1].name: pair for pair in NEIGHBOURS}


def run_test(subject, case, test):
    getattr(ConformanceSuite(), test)(subject, case)


@pytest.mark.parametrize(("faulty", "case", "test"), FAULTS)
def test_the_suite_finds(faulty, case, test):
    applies = getattr(getattr(ConformanceSuite, test), "holds", lambda _: True)
    assert applies(CASE[case])
    run_test(EmulatedKernel(), CASE[case], test)
    with pytest.raises((AssertionError, NoBackendError)):
        run_test(faulty(), CASE[case], test)


def test_the_suite_finds_what_is_kept_from_call_to_call():
    for kernel in (EmulatedKernel(), RemembersScale()):
        ConformanceSuite().test_neighbours_do_not_matter(kernel, PAIR["plain_bshd"])
    with pytest.raises(AssertionError):
        ConformanceSuite().test_neighbours_do_not_matter(RemembersScale(), PAIR["plain_scale"])


def test_every_property_finds_something():
    properties = {name for name in vars(ConformanceSuite) if name.startswith("test_")}
    assert {test for _, _, test in FAULTS} == properties - {"test_neighbours_do_not_matter"}


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
