"""What a described graph computes, by the oracle; with the faults of the cuDNN that plays along."""

from .execution import Execution as Execution
from .function import ExpressionFunction as ExpressionFunction
