"""One attention problem with data."""

from .case import Case as Case
from .inputs import Inputs as Inputs
from .kinds import LARGE_LOGIT as LARGE_LOGIT
from .kinds import Axes as Axes
from .kinds import BiasLayout as BiasLayout
from .kinds import BiasValues as BiasValues
from .kinds import Layout as Layout
from .kinds import Logits as Logits
