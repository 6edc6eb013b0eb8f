"""Scaled dot product attention for JAX: cuDNN on NVIDIA GPUs, a reference everywhere else."""

from sdpa_core import Decision as Decision
from sdpa_core import DeviceSpec as DeviceSpec
from sdpa_core import NoBackendError as NoBackendError
from sdpa_core import SdpaEnvironmentError as SdpaEnvironmentError
from sdpa_core import SlowAttentionWarning as SlowAttentionWarning

from .dispatch import backends as backends
from .dispatch import lowering_device as lowering_device
from .explain import explain as explain
from .explain import explain_paged as explain_paged
from .explain import explain_varlen as explain_varlen
from .functional import dot_product_attention as dot_product_attention
from .packing import SequenceLayout as SequenceLayout
from .paged import paged_attention as paged_attention
from .varlen import varlen_attention as varlen_attention
