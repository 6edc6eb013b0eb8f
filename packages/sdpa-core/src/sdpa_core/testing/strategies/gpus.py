"""Devices with every cuDNN that rules tell apart."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from ...device import DeviceSpec, device_names

#: cuDNN versions on both sides of what rules ask for; None: not known.
VERSIONS = (
    None,
    90800,
    90900,
    91002,
    91100,
    91301,
    91400,
    91501,
    91800,
    91801,
    91900,
    92100,
    92200,
    92300,
    92400,
    92500,
    92600,
    92800,
    92801,
)

#: Compute capabilities that no device of the list has.
_UNLISTED = tuple(
    DeviceSpec("cuda", f"a GPU of compute capability {sm / 10}", sm=sm, sm_count=64)
    for sm in (75, 86, 89, 103, 110, 121)
)


def devices() -> st.SearchStrategy[DeviceSpec]:
    """Every GPU that the library knows, some that it does not, with every cuDNN; and the CPU."""
    known = st.builds(
        lambda name, version: DeviceSpec.named(name, cudnn_version=version),
        st.sampled_from(device_names()),
        st.sampled_from(VERSIONS),
    )
    others = st.builds(
        lambda device, version: replace(device, cudnn_version=version),
        st.sampled_from(_UNLISTED),
        st.sampled_from(VERSIONS),
    )
    return st.one_of(known, known, others, st.just(DeviceSpec.cpu()))
