"""An attention problem in its caller's words: its tensors, its features, what lowering adds."""

from .features import features as features
from .features import summary as summary
from .notes import notes as notes
from .tensors import HIDDEN as HIDDEN
from .tensors import Seen as Seen
from .tensors import tensors as tensors
