"""Random calls of both adapters: right, or refused in words that name what is wrong.

Each case either gives the float64 oracle's values or is refused with the reasons that were
announced, by the reference and by the cuDNN path, where a fake executor compares every operand with
the described graph. Wrong calls raise the errors of the contract and nothing else.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import pytest
import torch
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

import sdpa_jax
import sdpa_jax.testing
import sdpa_torch
import sdpa_torch.testing
from sdpa_core import Alignment, Band, DeviceSpec, DType, NoBackendError, TensorSpec
from sdpa_core.problem import Softmax
from sdpa_core.testing import Case, Subject
from sdpa_core.testing.conformance import (
    RESULTS,
    assert_gaps,
    assert_matches,
    assert_only,
    results_of,
    run,
)
from sdpa_core.testing.strategies import WrongCall, cases, wrong_calls
from sdpa_jax.testing import JaxSubject
from sdpa_torch.testing import TorchSubject

#: The same cases in every run; what fails prints how to repeat it.
PROPERTY = settings(
    derandomize=True,
    deadline=None,
    print_blob=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
#: JAX compiles for each shape, so what fails is not made smaller.
IN_JAX = settings(PROPERTY, phases=[Phase.explicit, Phase.generate])
#: One GPU of each family, and cuDNN versions with different faults and abilities.
DEVICES = (("h200", 91900), ("h200", 92801), ("a100", 91900), ("b200", 92801), ("rtx5090", 92801))

devices = st.sampled_from(DEVICES)


def check(subject: Subject, case: Case, *, training: bool, lse: bool, max_logit: bool) -> None:
    """Raise unless the case is right in all that was asked for, or refused as announced."""
    result = run(subject, case, training=training, return_lse=lse, return_max_logit=max_logit)
    if result is None:
        return
    optional = {"lse": lse, "max_logit": max_logit}
    names = [name for name in results_of(case) if name in ("output", "lse") or training]
    names = [name for name in (*names, "max_logit") if optional.get(name, True)]
    assert_only(result, tuple(names))
    assert_matches(result, case, tuple(names))
    assert_gaps(result, case, tuple(name for name in names if name in RESULTS))


#: Cases that were wrong once, as small as they get.
FOUND = (
    # The corner of the diagonal was lost without a band.
    Case(
        "corner", 1, 2, 2, 5, 3, 8, 8, band=Band(alignment=Alignment.BOTTOM_RIGHT), alibi="standard"
    ),
    # The standard slopes were left out of a function of the logits.
    Case("slopes", 1, 2, 1, 1, 2, 8, 8, alibi="standard", score_mod="relative_position"),
    Case("slopes_and_band", 1, 2, 2, 4, 4, 8, 8, band=Band.causal(), alibi="standard", softcap=5.0),
    # The bias's gradient was asked of a function of the logits.
    Case("bias_in_function", 1, 2, 2, 4, 4, 8, 8, bias="11ss", softcap=5.0),
    # Without a key the log-sum-exp is that of the sink alone, which off-by-one has too.
    Case(
        "off_by_one",
        2,
        tokens_q=4,
        tokens_kv=4,
        softmax=Softmax.OFF_BY_ONE,
        lengths_q=(4, 2),
        lengths_kv=(0, 4),
    ),
    # Slopes of two sequences beside a batch that was declared as 32.
    Case(
        "slopes_by_sequence",
        2,
        tokens_q=4,
        tokens_kv=4,
        alibi="batch_head",
        softcap=5.0,
        lengths_q=(1, 4),
        lengths_kv=(4, 2),
        packed="both",
    ),
    # A function of the logits reads lengths of both sides, one of which is a constant.
    Case("one_sided_lengths", 2, tokens_q=4, tokens_kv=8, softcap=5.0, lengths_kv=(3, 0)),
    # Repeated key heads were described as copied, though only queries had lengths.
    Case("repeated_heads", 2, tokens_q=4, tokens_kv=4, layout="expanded_kv", lengths_q=(2, 0)),
    # The stride of a single packed row says nothing.
    Case(
        "one_packed_row",
        2,
        tokens_q=4,
        tokens_kv=1,
        layout="odd_rows",
        lengths_q=(3, 1),
        lengths_kv=(1, 0),
        packed="both",
    ),
    # The largest logit has the log-sum-exp's type, the sink's gradient the sink's.
    Case("float64", 1, tokens_q=2, tokens_kv=2, dtype=DType.FLOAT64, softmax=Softmax.LEARNABLE),
    # No sequences, no keys.
    Case("no_pages", 0, tokens_q=2, tokens_kv=2, lengths_kv=(), page_size=1),
    Case("no_mask", 0, tokens_q=2, tokens_kv=2, mask="bhss"),
    Case("no_keys", 1, tokens_q=2, tokens_kv=0, score_mod="bias"),
)

_Test = TypeVar("_Test", bound=Callable[..., None])


def found(**device: tuple[str, int]) -> Callable[[_Test], _Test]:
    """Also run what was wrong once, with everything asked for that the device gives."""

    def mark(test: _Test) -> _Test:
        for case in FOUND:
            options = {"training": case.page_size is None, "lse": True, "max_logit": not device}
            test = example(case=case, **options, **device)(test)
        return test

    return mark


asked = given(case=cases(), training=st.booleans(), lse=st.booleans(), max_logit=st.booleans())
asked_of_cudnn = given(
    case=cases(for_cudnn=True),
    device=devices,
    training=st.booleans(),
    lse=st.booleans(),
    max_logit=st.booleans(),
)


# ----------------------------------------------------------------------------------- torch


@settings(PROPERTY, max_examples=400)
@found()
@asked
def test_torch_reference(case: Case, **options: bool) -> None:
    check(TorchSubject("reference"), case, **options)


@settings(PROPERTY, max_examples=500)
@found(device=("h200", 91900))
@asked_of_cudnn
def test_torch_on_the_fake_cudnn(case: Case, device: tuple[str, int], **options: bool) -> None:
    name, version = device
    spec = DeviceSpec.named(name, cudnn_version=version)
    with sdpa_torch.testing.fake_cudnn(name, version):
        check(TorchSubject("fake cuDNN", backend="cudnn", spec=spec), case, **options)


# ------------------------------------------------------------------------------------- jax


@settings(IN_JAX, max_examples=30)
@found()
@asked
def test_jax_reference(case: Case, **options: bool) -> None:
    with wide(case):
        check(JaxSubject("reference", implementation="reference"), case, **options)


@settings(IN_JAX, max_examples=30)
@found(device=("h200", 91900))
@asked_of_cudnn
def test_jax_on_the_fake_cudnn(case: Case, device: tuple[str, int], **options: bool) -> None:
    name, version = device
    spec = DeviceSpec.named(name, cudnn_version=version)
    with sdpa_jax.testing.fake_cudnn(name, version), wide(case):
        check(JaxSubject("fake cuDNN", implementation="cudnn", spec=spec), case, **options)


@contextlib.contextmanager
def wide(case: Case) -> Iterator[None]:
    """JAX has float64 only if it is told so."""
    with jax.enable_x64(case.dtype is DType.FLOAT64):
        yield


# ----------------------------------------------------------------------------- wrong calls


def refused(call: Callable[[], Any], wrong: WrongCall, names: dict[str, str]) -> None:
    """Raise unless the call is refused by an error that names one of the arguments blamed."""
    with pytest.raises((ValueError, TypeError, NoBackendError)) as error:
        call()
    blamed = {name for one in wrong.wrong for name in names.get(one, one).split()}
    text = str(error.value)
    assert any(name in text for name in blamed), text


@settings(PROPERTY, max_examples=600)
@given(wrong=wrong_calls(devices=True))
def test_torch_names_what_is_wrong(wrong: WrongCall) -> None:
    functions = {
        "dense": sdpa_torch.scaled_dot_product_attention,
        "varlen": sdpa_torch.varlen_attention,
        "paged": sdpa_torch.paged_attention,
    }
    arguments = {
        name: _torch_tensor(value, "meta" if name == wrong.elsewhere else "cpu")
        for name, value in wrong.arguments.items()
    }
    if wrong.function == "dense":
        arguments["enable_gqa"] = True
    refused(lambda: functions[wrong.function](**arguments), wrong, {})


def _torch_tensor(value: Any, device: str) -> Any:
    if not isinstance(value, TensorSpec):
        return value
    return torch.zeros(value.shape, dtype=getattr(torch, value.dtype), device=device)


#: How JAX names what ``sdpa_torch`` has under another name: in all functions, and in one.
_NAMES = {"dropout_p": "dropout_rate", "backend": "implementation"}
_NAMES_OF_DENSE = {
    "attn_mask": "bias",
    "seq_lens_q": "query_seq_lengths",
    "seq_lens_kv": "key_value_seq_lengths",
    "window": "local_window_size",
    "return_lse": "return_residual",
}


@settings(PROPERTY, max_examples=300)
@given(wrong=wrong_calls())
def test_jax_names_what_is_wrong(wrong: WrongCall) -> None:
    functions = {
        "dense": sdpa_jax.dot_product_attention,
        "varlen": sdpa_jax.varlen_attention,
        "paged": sdpa_jax.paged_attention,
    }
    names = _NAMES | (_NAMES_OF_DENSE if wrong.function == "dense" else {})
    arguments = {
        names.get(name, name): _jax_array(name, value) for name, value in wrong.arguments.items()
    }
    if "dropout_rate" in arguments:
        arguments["dropout_key"] = jax.random.key(0)
    refused(lambda: functions[wrong.function](**arguments), wrong, names)


def _jax_array(name: str, value: Any) -> Any:
    if not isinstance(value, TensorSpec):
        return value
    array = jnp.zeros(value.shape, value.dtype.value)
    is_dense = name in ("query", "key", "value") and array.ndim == 4
    return array.swapaxes(1, 2) if is_dense else array
