"""The suite that every implementation of attention must pass, for pytest.

Write a subject, subclass the suite, and provide the subject as a fixture::

    from sdpa_core.testing import Result, place
    from sdpa_core.testing.conformance import ConformanceSuite

    class MySubject:
        name = "mine"

        def refusal(self, case, *, training, deterministic=False):
            return my_backend.unsupported_reasons(problem_of(case, training=training), device, ...)

        def run(self, case, inputs, *, training, return_lse, deterministic=False):
            query, key, value = (to_my_array(placed) for placed in place(case, inputs))
            output = my_attention(query, key, value, band=case.band, scale=case.scale)
            return Result(output.astype(float), dtypes={"output": str(output.dtype)})

    class TestMine(ConformanceSuite):
        cases = CASES + LARGE_CASES  # the default is CASES

        @pytest.fixture
        def subject(self):
            return MySubject()

Nothing is skipped: a case that the subject refuses must raise ``NoBackendError`` with every reason
that ``refusal`` gave.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from types import EllipsisType
from typing import ClassVar, TypeVar

import numpy as np
import pytest

from ..dtypes import DType
from ..errors import NoBackendError
from .cases import CASES, Case, Inputs
from .reference import Array, Mask, attention, attention_backward, visible_pairs
from .subject import Result, Subject
from .tolerances import assert_close, error_scales

#: Names of the results, in the order of the oracle's.
RESULTS = ("output", "lse", "grad_query", "grad_key", "grad_value")

#: An index of a part of a result.
Part = slice | tuple[slice, ...] | EllipsisType

_Test = TypeVar("_Test", bound=Callable[..., None])


def cases_where(holds: Callable[[Case], bool]) -> Callable[[_Test], _Test]:
    """Run a test of the suite on these cases only: on others its property says nothing."""

    def mark(test: _Test) -> _Test:
        test.holds = holds  # type: ignore[attr-defined]
        return test

    return mark


class ConformanceSuite:
    """Properties of attention; see the module's text. Subclasses provide ``subject``."""

    cases: ClassVar[tuple[Case, ...]] = CASES

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Give each test its cases, all tests of one case in a row."""
        holds = getattr(metafunc.function, "holds", lambda _: True)
        chosen = [case for case in self.cases if holds(case)]
        if "case" in metafunc.fixturenames:
            metafunc.parametrize("case", chosen, ids=lambda case: case.name, scope="class")

    def test_forward(self, subject: Subject, case: Case) -> None:
        """Output and log-sum-exp of inference match the oracle."""
        result = run(subject, case, training=False, return_lse=True)
        if result is not None:
            assert_only(result, ("output", "lse"))
            assert_matches(result, case, ("output", "lse"))

    def test_training(self, subject: Subject, case: Case) -> None:
        """Output, log-sum-exp and gradients match the oracle."""
        result = run(subject, case, training=True, return_lse=True)
        if result is not None:
            assert_matches(result, case, RESULTS)

    def test_inference_equals_training(self, subject: Subject, case: Case) -> None:
        """What is asked for besides the output does not change its bits."""
        plain = run(subject, case, training=False, return_lse=False)
        with_lse = run(subject, case, training=False, return_lse=True)
        training = run(subject, case, training=True, return_lse=True)
        if plain is not None and with_lse is not None:
            assert_only(plain, ("output",))
            assert_same_bits(plain, with_lse, ("output",))
        if with_lse is not None and training is not None:
            # A single query's statistics are merged from split keys, in any order.
            exact = ("output",) if "decode" in case.tags else ("output", "lse")
            assert_same_bits(with_lse, training, exact)

    def test_repeatable(self, subject: Subject, case: Case) -> None:
        """With ``deterministic``, two runs give the same bits."""
        first = run(subject, case, training=True, return_lse=True, deterministic=True)
        second = run(subject, case, training=True, return_lse=True, deterministic=True)
        if first is not None and second is not None:
            assert_same_bits(first, second, RESULTS)

    @cases_where(lambda case: "unseen_rows" in case.tags and 0 not in case.output_shape)
    def test_rows_without_keys(self, subject: Subject, case: Case) -> None:
        """A query that sees no key has output 0, log-sum-exp -inf and gradient 0, exactly."""
        result = run(subject, case, training=True, return_lse=True)
        if result is None:
            return
        unseen = ~visible_pairs(case.band, case.tokens_q, case.tokens_kv).any(axis=1)
        for name, expected in (("output", 0.0), ("lse", -np.inf), ("grad_query", 0.0)):
            rows = _named(result, name)[:, :, unseen]
            if not (rows == expected).all():
                raise AssertionError(f"{name} of a row that sees no key is not {expected}")

    @cases_where(lambda case: case.batch > 1 and "empty" not in case.tags)
    def test_sequences_are_independent(self, subject: Subject, case: Case) -> None:
        """Whatever the other sequences of the batch hold, NaN included, the first one is right."""
        inputs = Inputs(*(array.copy() for array in case.arrays()))
        for array in inputs:
            array[1:] = np.nan
        result = run(subject, case, inputs, training=True, return_lse=True)
        if result is not None:
            assert_matches(result, case, RESULTS, only=np.s_[:1])

    @cases_where(lambda case: bool(hidden_from_first_rows(case)[1].any()))
    def test_hidden_keys_do_not_matter(self, subject: Subject, case: Case) -> None:
        """Keys and values that the first queries do not see may change: these queries' rows stay.

        The changed values are large, so that the faintest look at them shows.
        """
        rows, hidden = hidden_from_first_rows(case)
        inputs = case.arrays()
        key, value = inputs.key.copy(), inputs.value.copy()
        key[:, :, hidden] *= -4.0
        value[:, :, hidden] *= 64.0
        changed = inputs._replace(key=key, value=value)
        result = run(subject, case, changed, training=True, return_lse=True)
        if result is not None:
            names = ("output", "lse", "grad_query")
            assert_matches(result, case, names, only=np.s_[:, :, :rows])


def run(
    subject: Subject,
    case: Case,
    inputs: Inputs | None = None,
    *,
    training: bool,
    return_lse: bool,
    deterministic: bool = False,
) -> Result | None:
    """The subject's result; None if the case is one it must refuse, and it did.

    Args:
        subject, case: what to run.
        inputs: None: the case's own.
        training, return_lse, deterministic: see ``Subject.run``.

    Raises:
        AssertionError: the subject ran a case that it should refuse, or left out a reason.
    """
    inputs = case.arrays() if inputs is None else inputs
    options = {"training": training, "return_lse": return_lse, "deterministic": deterministic}
    reasons = subject.refusal(case, training=training, deterministic=deterministic)
    if not reasons:
        return subject.run(case, inputs, **options)
    try:
        subject.run(case, inputs, **options)
    except NoBackendError as error:
        text = str(error)
    else:
        raise AssertionError(f"{subject.name} ran {case.name}, which it refuses: {reasons[0]}")
    missing = [str(reason) for reason in reasons if str(reason) not in text]
    if missing:
        raise AssertionError(f"the refusal of {case.name} lacks {missing}:\n{text}")
    return None


def assert_matches(result: Result, case: Case, names: tuple[str, ...], *, only: Part = ...) -> None:
    """Raise unless these results have the right type, and the oracle's values within tolerance.

    Args:
        result: of the case's own inputs, at least where ``only`` looks.
        case: what was run.
        names: which results.
        only: index of the part to compare.
    """
    exact, scales = expected(case)
    for name in names:
        array = _named(result, name)
        wanted = case.dtype
        if name == "lse" and wanted is not DType.FLOAT64:
            wanted = DType.FLOAT32
        if result.dtypes.get(name) != wanted:
            raise AssertionError(f"{name} has dtype {result.dtypes.get(name)}, expected {wanted}")
        if array.shape != exact[name].shape:
            shapes = f"{list(array.shape)}, expected {list(exact[name].shape)}"
            raise AssertionError(f"{name} has shape {shapes}")
        assert_close(name, array[only], exact[name][only], scales[name][only])


def assert_same_bits(first: Result, second: Result, names: tuple[str, ...]) -> None:
    """Raise unless these results are equal; NaN equals NaN."""
    for name in names:
        one, other = _named(first, name), _named(second, name)
        if not np.array_equal(one, other, equal_nan=True):
            count = np.count_nonzero((one != other) & ~(np.isnan(one) & np.isnan(other)))
            raise AssertionError(f"{name} differs in {count} of {one.size} elements")


def _named(result: Result, name: str) -> Array:
    array = result.arrays().get(name)
    if array is None:
        raise AssertionError(f"{name} is missing")
    return array


def assert_only(result: Result, names: tuple[str, ...]) -> None:
    """Raise if the result holds anything else: nothing is computed that was not asked for."""
    extra = result.arrays().keys() - set(names)
    if extra:
        raise AssertionError(f"the result also holds {sorted(extra)}")


@lru_cache(maxsize=8)
def expected(case: Case) -> tuple[dict[str, Array], dict[str, Array]]:
    """The oracle's results for a case, and their typical errors, by name."""
    query, key, value, grad_output = case.arrays()
    forward = attention(query, key, value, band=case.band, scale=case.scale)
    gradients = attention_backward(query, key, value, grad_output, band=case.band, scale=case.scale)
    scales = error_scales(
        query, key, value, grad_output, dtype=case.dtype, band=case.band, scale=case.scale
    )
    return {**forward._asdict(), **gradients._asdict()}, scales._asdict()


def hidden_from_first_rows(case: Case) -> tuple[int, Mask]:
    """Half of the queries, as a number of leading rows, and the keys that none of them sees."""
    rows = (case.tokens_q + 1) // 2
    visible = visible_pairs(case.band, case.tokens_q, case.tokens_kv)
    seen: Mask = np.logical_or.reduce(visible[:rows], axis=0)
    return rows, ~seen
