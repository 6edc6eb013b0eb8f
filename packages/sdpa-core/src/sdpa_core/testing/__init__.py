"""The public test kit: a float64 oracle, cases, tolerances, and a conformance suite. Needs NumPy.

The suite itself needs pytest, so it is imported from ``testing.conformance``; the stand-in for
cuDNN from ``testing.fake_cudnn``.
"""

from .case import Case as Case
from .case import Inputs as Inputs
from .cases import CASES as CASES
from .cases import LARGE_CASES as LARGE_CASES
from .cases import NEIGHBOURS as NEIGHBOURS
from .cases import cases_by_report as cases_by_report
from .cases import covering as covering
from .cases import in_16_bits as in_16_bits
from .expected import decisions as decisions
from .expected import expected as expected
from .expected import features_of as features_of
from .logits import Dropout as Dropout
from .logits import Features as Features
from .packing import Packing as Packing
from .packing import Pages as Pages
from .placement import Placed as Placed
from .placement import place as place
from .placement import place_all as place_all
from .placement import problem_of as problem_of
from .reference import Forward as Forward
from .reference import Gradients as Gradients
from .reference import attention as attention
from .reference import attention_backward as attention_backward
from .rounding import decode as decode
from .rounding import encode as encode
from .rounding import round_to as round_to
from .score_mods import SCORE_MODS as SCORE_MODS
from .subject import DropoutState as DropoutState
from .subject import Result as Result
from .subject import Subject as Subject
from .tolerances import MARGIN as MARGIN
from .tolerances import ErrorScales as ErrorScales
from .tolerances import assert_close as assert_close
from .tolerances import error_scales as error_scales
