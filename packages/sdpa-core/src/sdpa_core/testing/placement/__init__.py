"""A case's operands as they lie in memory, for any framework, and the problem they pose."""

from .operands import QueryKeyValue as QueryKeyValue
from .operands import in_memory as in_memory
from .operands import place as place
from .operands import place_all as place_all
from .placed import Placed as Placed
from .placed import dense as dense
from .problem import problem_of as problem_of
