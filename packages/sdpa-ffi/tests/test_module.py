"""The package as a package: what it imports, what it says about itself, what it gives to JAX."""

import importlib.util
import subprocess
import sys

import pytest

import sdpa_ffi
from sdpa_ffi import _loader, _native


def in_clean_interpreter(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_importing_brings_in_no_framework():
    heavy = {"torch", "jax", "jaxlib", "cudnn", "numpy"}
    result = in_clean_interpreter(f"import sdpa_ffi, sys; print({heavy} & set(sys.modules))")
    assert result.stdout.strip() == "set()", result.stderr


def test_importing_loads_no_nvidia_library():
    result = in_clean_interpreter("import sdpa_ffi; print(open('/proc/self/maps').read())")
    assert "_native" in result.stdout
    assert not {"libcudnn", "libcuda.", "libcudart"} & set(result.stdout.split("/"))


def test_both_halves_have_one_abi():
    assert sdpa_ffi.EXECUTOR_ABI == _native.EXECUTOR_ABI == sdpa_ffi.build_info()["executor_abi"]


def test_xla_api_is_not_newer_than_the_oldest_supported_jaxlib():
    assert sdpa_ffi.build_info()["xla_ffi"] <= (0, 2)


def test_environment_errors_are_those_of_core():
    from sdpa_core.errors import SdpaEnvironmentError

    assert sdpa_ffi.ExecutorEnvironmentError is SdpaEnvironmentError


def test_loaded_plans_are_made_by_load_only():
    with pytest.raises(TypeError):
        sdpa_ffi.LoadedPlan()


def test_cudnn_is_looked_for_in_every_path_entry(tmp_path, monkeypatch):
    library = tmp_path / "second" / "nvidia" / "cudnn" / "lib" / "libcudnn.so.9"
    library.parent.mkdir(parents=True)
    library.touch()
    monkeypatch.setattr(_loader, "_already_loaded", lambda names: None)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "first"), str(tmp_path / "second")])
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    assert sdpa_ffi.find_cudnn() == str(library)
    library.unlink()
    assert sdpa_ffi.find_cudnn() is None


@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="jax is not installed")
def test_xla_accepts_types_and_targets():
    result = in_clean_interpreter("""
import jax, jax.numpy as jnp, sdpa_ffi
jax.devices()  # the backend must exist before types are registered
for name, registration in sdpa_ffi.xla_types().items():
    jax.ffi.register_ffi_type(name, registration, platform="CUDA")
for name, handlers in sdpa_ffi.xla_targets().items():
    jax.ffi.register_ffi_target(name, handlers, platform="CUDA")
print(jnp.ones(2).sum())
""")
    assert result.stdout.strip() == "2.0", result.stderr


@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="jax is not installed")
def test_instantiate_decodes_the_plan(Container):
    # Registered for the CPU, where nothing can run: instantiation comes first and its refusal is
    # what a user of a damaged exported program sees.
    result = in_clean_interpreter(f"""
import jax, numpy as np, sdpa_ffi
jax.devices()
for name, registration in sdpa_ffi.xla_types().items():
    jax.ffi.register_ffi_type(name, registration, platform="cpu")
for name, handlers in sdpa_ffi.xla_targets().items():
    jax.ffi.register_ffi_target(name, handlers, platform="cpu")

def message(container, scalars):
    call = jax.ffi.ffi_call("sdpa_ffi.execute.v1", jax.ShapeDtypeStruct((256,), np.uint8))
    try:
        jax.jit(lambda: call(plan=container, scalars=np.asarray(scalars, np.float32)))()
    except Exception as error:
        return str(error)

container = {Container().to_bytes()!r}
print(message(container[:-1], [0.5]))
print(message(container, []))
""")
    damaged, scalars = result.stdout.splitlines()
    assert "malformed plan container" in damaged, result.stdout + result.stderr
    assert "1 host scalars, the attribute 'scalars' has 0" in scalars
