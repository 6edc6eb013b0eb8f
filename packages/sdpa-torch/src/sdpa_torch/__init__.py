"""Scaled dot product attention for PyTorch on cuDNN; see ``scaled_dot_product_attention``."""

from importlib.metadata import PackageNotFoundError as _NotFound
from importlib.metadata import version as _version

from sdpa_core import Decision as Decision
from sdpa_core import DeviceSpec as DeviceSpec
from sdpa_core import NoBackendError as NoBackendError
from sdpa_core import SdpaEnvironmentError as SdpaEnvironmentError
from sdpa_core import SlowAttentionWarning as SlowAttentionWarning
from sdpa_core import backends as backends

from .explain import explain as explain
from .explain import explain_paged as explain_paged
from .explain import explain_varlen as explain_varlen
from .functional import scaled_dot_product_attention as scaled_dot_product_attention
from .packing import SequenceLayout as SequenceLayout
from .paged import paged_attention as paged_attention
from .varlen import varlen_attention as varlen_attention

try:
    __version__ = _version("sdpa-torch")
except _NotFound:
    __version__ = "0.0.0"
