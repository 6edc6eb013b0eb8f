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

from .assertions import Part as Part
from .assertions import assert_gaps as assert_gaps
from .assertions import assert_matches as assert_matches
from .assertions import assert_only as assert_only
from .assertions import assert_same_bits as assert_same_bits
from .changes import hidden_from_first_rows as hidden_from_first_rows
from .changes import with_slack as with_slack
from .results import RESULTS as RESULTS
from .results import exact_results as exact_results
from .results import results_of as results_of
from .running import run as run
from .suite import ConformanceSuite as ConformanceSuite
from .suite import cases_where as cases_where
