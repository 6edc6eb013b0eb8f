"""cuDNN's plans run on torch tensors: allocate the results, pack the operands, launch."""

from .backward import Backward as Backward
from .forward import Forward as Forward
from .runtime import Execute as Execute
from .runtime import NativeRuntime as NativeRuntime
from .runtime import Runtime as Runtime
from .setting import Setting as Setting
