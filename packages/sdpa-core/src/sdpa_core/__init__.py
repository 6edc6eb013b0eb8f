"""Attention problems, the choice of a backend, and cuDNN plans; for any framework.

Importing this package imports no framework, no numpy and no cuDNN.
"""

from .backend import Answer as Answer
from .backend import Backend as Backend
from .config import backends as backends
from .device import DeviceSpec as DeviceSpec
from .device import device_names as device_names
from .dtypes import DType as DType
from .errors import NoBackendError as NoBackendError
from .errors import SdpaEnvironmentError as SdpaEnvironmentError
from .errors import SlowAttentionWarning as SlowAttentionWarning
from .mask import Alignment as Alignment
from .mask import Band as Band
from .plan import Plan as Plan
from .policy import Choice as Choice
from .policy import Decision as Decision
from .policy import decide as decide
from .policy import require as require
from .problem import AttentionProblem as AttentionProblem
from .problem import Direction as Direction
from .reasons import Tier as Tier
from .reasons import Unsupported as Unsupported
from .reasons import Verdict as Verdict
from .tensor import TensorSpec as TensorSpec
from .validate import check_operands as check_operands
from .validate import default_scale as default_scale
from .validate import flag as flag
from .validate import positive_scale as positive_scale
