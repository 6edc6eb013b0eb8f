"""Random attention for hypothesis: cases with data, problems for rules, and wrong calls.

Sizes of cases are small, so that thousands of them run in a minute; sizes of problems are those of
models, because nothing is computed. Needs hypothesis, hence it is not imported by ``testing``.

Use::

    @given(case=cases(), training=st.booleans())
    @settings(derandomize=True, deadline=None, print_blob=True)
    def test_it_is_right(case, training): ...
"""

from ..placement.function import traced as traced
from .case_fields import cases as cases
from .common import Draw as Draw
from .common import bands as bands
from .gpus import VERSIONS as VERSIONS
from .gpus import devices as devices
from .memory import specs as specs
from .problem_fields import problems as problems
from .right_calls import RIGHT_CALLS as RIGHT_CALLS
from .wrong_calls import WrongCall as WrongCall
from .wrong_calls import wrong_calls as wrong_calls
