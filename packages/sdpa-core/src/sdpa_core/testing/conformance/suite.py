"""The properties that are tested, each a method; see ``conformance`` for how to use them."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, TypeVar

import numpy as np
import pytest

from ...problem import Softmax
from ..case import Case
from ..cases import CASES, NEIGHBOURS
from ..subject import Subject
from .assertions import assert_gaps, assert_matches, assert_only, assert_same_bits, named
from .changes import hidden_from_first_rows, unseen_rows, with_slack
from .results import RESULTS, exact_results, results_of
from .running import run

_Test = TypeVar("_Test", bound=Callable[..., None])


def cases_where(holds: Callable[[Case], bool]) -> Callable[[_Test], _Test]:
    """Run a test of the suite on these cases only: on others its property says nothing."""

    def mark(test: _Test) -> _Test:
        test.holds = holds  # type: ignore[attr-defined]
        return test

    return mark


class ConformanceSuite:
    """Properties of attention; see the package's text. Subclasses provide ``subject``."""

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
            array = named(result, name)
            if not (array[unseen_rows(case)] == wanted).all():
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
