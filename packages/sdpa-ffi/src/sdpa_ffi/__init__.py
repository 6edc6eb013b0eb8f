"""Native executor of serialized cuDNN graphs, for PyTorch and JAX."""

from importlib.metadata import PackageNotFoundError, version

from sdpa_core.errors import SdpaEnvironmentError as ExecutorEnvironmentError

from ._executor import Binding as Binding
from ._executor import BindingKind as BindingKind
from ._executor import PlanDescription as PlanDescription
from ._executor import Verified as Verified
from ._executor import check_operands as check_operands
from ._executor import describe as describe
from ._executor import load as load
from ._executor import verify as verify
from ._loader import find_cudnn as find_cudnn
from ._native import EXECUTOR_ABI as _NATIVE_ABI
from ._native import LoadedPlan as LoadedPlan
from ._native import build_info as build_info
from ._native import counters as counters
from ._roles import provide_roles as _provide_roles
from ._xla import xla_targets as xla_targets
from ._xla import xla_types as xla_types

EXECUTOR_ABI: int = 1
"""Changes whenever callers must change with it; adapters compare it with the one they know."""

if _NATIVE_ABI != EXECUTOR_ABI:
    raise ExecutorEnvironmentError(
        f"sdpa_ffi is damaged: its Python half has executor ABI {EXECUTOR_ABI}, its native half "
        f"{_NATIVE_ABI}; run: pip install --force-reinstall --no-deps sdpa-ffi"
    )

_provide_roles()

try:
    __version__ = version("sdpa-ffi")
except PackageNotFoundError:  # run from a source tree
    __version__ = "0.0.0"
