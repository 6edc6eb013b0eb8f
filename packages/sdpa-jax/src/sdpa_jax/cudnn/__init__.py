"""cuDNN's plans called from JAX programs: operands in ascending uid, the workspace as a result."""

from .launch import Launch as Launch
from .runtime import TARGET as TARGET
from .runtime import NativeRuntime as NativeRuntime
from .runtime import Runtime as Runtime
from .runtime import register_executor as register_executor
