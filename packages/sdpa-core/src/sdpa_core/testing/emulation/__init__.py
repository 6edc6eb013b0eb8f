"""A faultless kernel, emulated: what the suite must let pass.

Attention in float32, all heads at once, rounded where kernels with 16-bit matrix products round.
It reads operands from memory as they are placed, and hands results back as packed tensors would
lie. Subclasses plant faults at its methods, which is how the suite itself is tested.
"""

from .arithmetic import Floats as Floats
from .kernel import EmulatedKernel as EmulatedKernel
