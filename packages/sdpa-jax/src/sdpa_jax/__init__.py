"""Scaled dot product attention for JAX: cuDNN on NVIDIA GPUs, a reference everywhere else."""

from sdpa_core import Decision as Decision
from sdpa_core import DeviceSpec as DeviceSpec
from sdpa_core import NoBackendError as NoBackendError
from sdpa_core import SdpaEnvironmentError as SdpaEnvironmentError
from sdpa_core import SlowAttentionWarning as SlowAttentionWarning

from .dispatch import backends as backends
from .dispatch import lowering_device as lowering_device
from .explain import explain as explain
from .functional import dot_product_attention as dot_product_attention
