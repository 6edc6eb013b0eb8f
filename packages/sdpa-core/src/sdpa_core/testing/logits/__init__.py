"""What the oracle attends with besides query, key and value; and the logits of one head.

Everything here is about one query head of one sequence, with the rows that the sequence has: what
lies past its length is cut off before anything is computed, so that it cannot matter.
"""

from .attended import Attended as Attended
from .attended import Head as Head
from .attended import visible_pairs as visible_pairs
from .features import Array as Array
from .features import At as At
from .features import Dropout as Dropout
from .features import Features as Features
from .features import Function as Function
from .features import Mask as Mask
from .of_head import Logits as Logits
