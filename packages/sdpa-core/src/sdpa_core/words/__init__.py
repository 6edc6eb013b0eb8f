"""An attention problem in its caller's words: its tensors, its features, what lowering adds."""

from .of_features import features as features
from .of_features import summary as summary
from .of_notes import notes as notes
from .of_tensors import HIDDEN as HIDDEN
from .of_tensors import Seen as Seen
from .of_tensors import tensors as tensors
