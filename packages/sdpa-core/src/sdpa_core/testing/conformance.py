"""The suite that every implementation of attention must pass, for pytest.

Write a subject, subclass the suite, and provide the subject as a fixture::

    from sdpa_core.testing import Result, place_all
    from sdpa_core.testing.conformance import ConformanceSuite

    class MySubject:
        name = "mine"

        def refusal(self, case, **options):
            return my_backend.unsupported_reasons(problem_of(case, **options), device, ...)

        def run(self, case, inputs, *, training, return_lse, **options):
            operands = {name: to_my_array(x) for name, x in place_all(case, inputs).items()}
            output = my_attention(**operands, band=case.band, scale=case.scale)
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
from dataclasses import replace
from types import EllipsisType
from typing import ClassVar, TypeVar

import numpy as np
import pytest
from numpy.typing import NDArray

from ..dtypes import DType
from ..errors import NoBackendError
from ..problem import Softmax
from .case import Case, Inputs
from .cases import CASES, NEIGHBOURS
from .expected import expected
from .logits import Array, Mask
from .subject import Result, Subject
from .tolerances import assert_close

#: Names of the results that every case has in training, in the order of the oracle's.
RESULTS = ("output", "lse", "grad_query", "grad_key", "grad_value")

#: An index of a part of a result.
Part = slice | tuple[slice, ...] | EllipsisType | NDArray[np.bool_]

_Test = TypeVar("_Test", bound=Callable[..., None])


def results_of(case: Case) -> tuple[str, ...]:
    """Names of all that a training run of a case gives with its log-sum-exp."""
    wanted = {
        "grad_bias": case.bias is not None and case.bias_grad,
        "grad_sink": case.softmax is Softmax.LEARNABLE,
    }
    return (*RESULTS, *(name for name, asked in wanted.items() if asked))


def cases_where(holds: Callable[[Case], bool]) -> Callable[[_Test], _Test]:
    """Run a test of the suite on these cases only: on others its property says nothing."""

    def mark(test: _Test) -> _Test:
        test.holds = holds  # type: ignore[attr-defined]
        return test

    return mark


class ConformanceSuite:
    """Properties of attention; see the module's text. Subclasses provide ``subject``."""

    cases: ClassVar[tuple[Case, ...]] = CASES
    neighbours: ClassVar[tuple[tuple[Case, Case], ...]] = NEIGHBOURS

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Give each test its cases, all tests of one case in a row."""
        holds = getattr(metafunc.function, "holds", lambda _: True)
        chosen = [case for case in self.cases if holds(case)]
        if "case" in metafunc.fixturenames:
            metafunc.parametrize("case", chosen, ids=lambda case: case.name, scope="class")
        if "pair" in metafunc.fixturenames:
            metafunc.parametrize("pair", self.neighbours, ids=lambda pair: pair[1].name)

    def test_forward(self, subject: Subject, case: Case) -> None:
        """Output and log-sum-exp of inference match the oracle."""
        result = run(subject, case, training=False, return_lse=True)
        if result is not None:
            assert_only(result, ("output", "lse"))
            assert_matches(result, case, ("output", "lse"))
            assert_gaps(result, case, ("output", "lse"))

    def test_training(self, subject: Subject, case: Case) -> None:
        """Output, log-sum-exp and gradients match the oracle; gaps have none."""
        result = run(subject, case, training=True, return_lse=True)
        if result is not None:
            assert_only(result, results_of(case))
            assert_matches(result, case, results_of(case))
            assert_gaps(result, case, RESULTS)

    def test_max_logit(self, subject: Subject, case: Case) -> None:
        """The largest visible logit of each head matches the oracle, and changes nothing else."""
        asked = run(subject, case, training=False, return_lse=False, return_max_logit=True)
        if asked is None:
            return
        assert_only(asked, ("output", "max_logit"))
        assert_matches(asked, case, ("output", "max_logit"))
        assert_gaps(asked, case, ("output",))
        all_three = run(subject, case, training=False, return_lse=True, return_max_logit=True)
        if all_three is not None:
            assert_matches(all_three, case, ("output", "lse", "max_logit"))

    def test_inference_equals_training(self, subject: Subject, case: Case) -> None:
        """What is asked for besides the output does not change its bits."""
        plain = run(subject, case, training=False, return_lse=False)
        with_lse = run(subject, case, training=False, return_lse=True)
        training = run(subject, case, training=True, return_lse=True)
        if plain is not None and with_lse is not None:
            assert_only(plain, ("output",))
            assert_same_bits(plain, with_lse, ("output",))
        if with_lse is not None and training is not None:
            assert_same_bits(with_lse, training, exact_results(case))

    def test_repeatable(self, subject: Subject, case: Case) -> None:
        """With ``deterministic``, two runs give the same bits."""
        first = run(subject, case, training=True, return_lse=True, deterministic=True)
        second = run(subject, case, training=True, return_lse=True, deterministic=True)
        if first is not None and second is not None:
            assert_same_bits(first, second, results_of(case))

    @cases_where(lambda case: "unseen_rows" in case.tags and 0 not in case.output_shape)
    def test_rows_without_keys(self, subject: Subject, case: Case) -> None:
        """A query that sees no key has output 0 and gradient 0, exactly.

        Its log-sum-exp is -inf, or that of the sink alone.
        """
        result = run(subject, case, training="paged" not in case.tags, return_lse=True)
        if result is None:
            return
        expected_lse = -np.inf if case.softmax is Softmax.VANILLA else None
        for name, wanted in (("output", 0.0), ("lse", expected_lse), ("grad_query", 0.0)):
            if wanted is None or name not in result.arrays():
                continue
            array = _named(result, name)
            if not (array[_unseen(case)] == wanted).all():
                raise AssertionError(f"{name} of a row that sees no key is not {wanted}")
        assert_matches(result, case, ("lse",))

    @cases_where(lambda case: case.batch > 1 and "empty" not in case.tags)
    def test_sequences_are_independent(self, subject: Subject, case: Case) -> None:
        """Whatever the other sequences of the batch hold, the first one is right.

        They hold NaN where each sequence has memory of its own, also in a packed tensor; in pages,
        other numbers.
        """
        inputs = case.arrays()
        operands = [array.copy() for array in inputs.operands]
        shared = case.page_size is not None
        for array in operands:
            array[1:] = -7.0 * array[1:] if shared else np.nan
        query, key, value, grad_output = operands
        changed = inputs._replace(query=query, key=key, value=value, grad_output=grad_output)
        result = run(subject, case, changed, training="paged" not in case.tags, return_lse=True)
        if result is not None:
            names = tuple(name for name in RESULTS if name in result.arrays())
            assert_matches(result, case, names, only=np.s_[:1])

    @cases_where(lambda case: bool(hidden_from_first_rows(case)[1].any()))
    def test_hidden_keys_do_not_matter(self, subject: Subject, case: Case) -> None:
        """Keys and values that the first queries do not see may change: these queries' rows stay.

        The changed values are large, so that the faintest look at them shows.
        """
        rows, hidden = hidden_from_first_rows(case)
        inputs = case.arrays()
        pairs = np.broadcast_to(hidden[:, None, :, None], (*case.key_shape[:3], 1))
        key = np.where(pairs, -4.0 * inputs.key, inputs.key)
        value = np.where(pairs, 64.0 * inputs.value, inputs.value)
        changed = inputs._replace(key=key, value=value)
        result = run(subject, case, changed, training="paged" not in case.tags, return_lse=True)
        if result is not None:
            names = tuple(n for n in ("output", "lse", "grad_query") if n in result.arrays())
            assert_matches(result, case, names, only=np.s_[:, :, :rows])

    @cases_where(lambda case: "slack" in case.tags)
    def test_what_lies_past_a_length_does_not_matter(self, subject: Subject, case: Case) -> None:
        """Rows of dense operands past their sequence's length may hold NaN and infinities."""
        for slack in (np.nan, np.inf):
            inputs = with_slack(case, slack)
            result = run(subject, case, inputs, training="paged" not in case.tags, return_lse=True)
            if result is not None:
                names = tuple(name for name in results_of(case) if name in result.arrays())
                assert_matches(result, case, names)

    @cases_where(lambda case: {"dropout", "many_rows"} <= case.tags)
    def test_dropout_keeps_what_it_should(self, subject: Subject, case: Case) -> None:
        """Of equal weights and values of one, rows keep one on average: what is kept is scaled."""
        inputs = case.arrays()
        query, value = np.zeros_like(inputs.query), np.ones_like(inputs.value)
        even = inputs._replace(query=query, value=value)
        result = run(subject, case, even, training=False, return_lse=False)
        if result is None:
            return
        weights = case.batch * case.heads * case.tokens_q * case.tokens_kv
        # Four rows share their decisions (philox), hence a fourth of the weights are independent.
        deviation = (case.dropout_p / (1 - case.dropout_p) * 4 / weights) ** 0.5
        mean = float(np.mean(result.output))
        if not abs(mean - 1) < 6 * deviation:
            raise AssertionError(
                f"rows of ones are {mean:.4f} on average, not 1 by {deviation:.4f}"
            )
        if np.ptp(result.output) == 0:
            raise AssertionError("nothing was dropped")

    def test_neighbours_do_not_matter(self, subject: Subject, pair: tuple[Case, Case]) -> None:
        """A case gives the same after another that differs in one thing; in both orders."""
        for first, second in (pair, pair[::-1]):
            before = run(subject, first, training=False, return_lse=True)
            run(subject, second, training=False, return_lse=True)
            after = run(subject, first, training=False, return_lse=True)
            if before is not None and after is not None:
                assert_matches(before, first, ("output", "lse"))
                assert_same_bits(before, after, exact_results(first))
            run(subject, second, training=True, return_lse=True)
            trained = run(subject, first, training=True, return_lse=True)
            if trained is not None:
                assert_matches(trained, first, results_of(first))


def run(
    subject: Subject,
    case: Case,
    inputs: Inputs | None = None,
    *,
    training: bool,
    return_lse: bool,
    return_max_logit: bool = False,
    deterministic: bool = False,
) -> Result | None:
    """The subject's result; None if the case is one it must refuse, and it did.

    Args:
        subject, case: what to run.
        inputs: None: the case's own.
        training, return_lse, return_max_logit, deterministic: see ``Subject.run``.

    Raises:
        AssertionError: the subject ran a case that it should refuse, or left out a reason.
    """
    inputs = case.arrays() if inputs is None else inputs
    options = {
        "training": training,
        "return_lse": return_lse,
        "return_max_logit": return_max_logit,
        "deterministic": deterministic,
    }
    reasons = subject.refusal(case, **options)
    if not reasons:
        return subject.run(case, inputs, **options)
    try:
        subject.run(case, inputs, **options)
    except NoBackendError as error:
        text = str(error)
    else:
        raise AssertionError(f"{subject.name} ran {case.name}, which it refuses: {reasons[0]}")
    told = [str(replace(reason, hint="")) for reason in reasons]  # hints are collected at the end
    missing = [reason for reason in told if reason not in text]
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
    if "dropout" in case.tags and result.dropout is None:
        raise AssertionError("the result does not say what dropout was computed from")
    exact, scales = expected(case, result.dropout)
    for name in names:
        array = _named(result, name)
        wanted = _dtype(case, name)
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


def assert_gaps(result: Result, case: Case, names: tuple[str, ...]) -> None:
    """Raise unless the rows of packed results that belong to no sequence are 0, or -inf."""
    packings = dict.fromkeys(("output", "lse", "grad_query"), case.packing_q)
    packings |= dict.fromkeys(("grad_key", "grad_value"), case.packing_kv)
    for name in names:
        packing = packings[name]
        if packing is None:
            continue
        rows, wanted = result.gaps.get(name), -np.inf if name == "lse" else 0.0
        count = packing.tokens - sum(packing.lengths)
        if rows is None or len(rows) != count:
            raise AssertionError(f"gaps hold no {count} rows of {name}")
        if not (rows == wanted).all():
            raise AssertionError(f"{name} is not {wanted} in the rows of no sequence")


def exact_results(case: Case) -> tuple[str, ...]:
    """Names of the results of inference that no second run may change."""
    # A single query's statistics are merged from split keys, in any order.
    return ("output",) if "decode" in case.tags else ("output", "lse")


def with_slack(case: Case, slack: float) -> Inputs:
    """The case's inputs with another number past the lengths of dense operands."""
    inputs = case.arrays()
    beyond_q, beyond_kv = ~case.exists_q(), ~case.exists_kv()
    if case.page_size is not None:
        beyond_kv[...] = False
    return inputs._replace(
        query=_filled(inputs.query, beyond_q, slack),
        key=_filled(inputs.key, beyond_kv, slack),
        value=_filled(inputs.value, beyond_kv, slack),
        grad_output=_filled(inputs.grad_output, beyond_q, slack),
    )


def _filled(array: Array, rows: Mask, number: float) -> Array:
    """``[B, H, S, D]`` with ``number`` where ``rows [B, S]`` is True."""
    return np.where(rows[:, None, :, None], number, array)


def _dtype(case: Case, name: str) -> DType:
    if name == "grad_sink":
        return DType.FLOAT32  # the sink's own, see ``Inputs``
    if name in {"lse", "max_logit"}:
        return DType.FLOAT64 if case.dtype is DType.FLOAT64 else DType.FLOAT32
    return case.effective_bias_dtype if name == "grad_bias" else case.dtype


def _unseen(case: Case) -> Mask:
    """``[B, Hq, Sq]``: queries that exist and see nothing."""
    unseen = case.exists_q()[:, None] & ~case.visible().any(axis=-1)
    return np.broadcast_to(unseen, case.output_shape[:3])


def hidden_from_first_rows(case: Case) -> tuple[int, Mask]:
    """Half of the queries, as a number of leading rows, and the keys that none of them sees.

    The keys are boolean ``[B, Skv]``; only those that exist.
    """
    rows = (case.tokens_q + 1) // 2
    visible = case.visible()
    seen = np.any(visible[:, :, :rows], axis=(1, 2))
    return rows, case.exists_kv() & np.logical_not(seen)
