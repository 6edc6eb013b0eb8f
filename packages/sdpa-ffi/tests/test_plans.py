"""Real cuDNN plans, read by the executor on a machine without a GPU."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

import sdpa_ffi


@pytest.mark.parametrize("sm", [80, 90, 100, 120])
def test_a_plan_of_every_architecture_verifies(planned, device_properties, sm):
    plan = planned(sm)
    verified = sdpa_ffi.verify(plan.to_bytes(), device_properties(sm))
    assert verified.workspace_bytes == plan.workspace_bytes
    assert verified.uids == (1, 2, 3, 4, 5, 10)  # the scale is passed by value at execute


def test_a_process_that_planned_nothing_verifies_a_stored_plan(
    planned, device_properties, tmp_path
):
    """Nothing has loaded a driver, or a stand-in for it, before cuDNN is asked."""
    Path(tmp_path, "plan").write_bytes(planned(90).to_bytes())
    Path(tmp_path, "device").write_text(device_properties(90))
    code = (
        "from pathlib import Path; import sdpa_ffi; "
        "found = sdpa_ffi.verify(Path('plan').read_bytes(), Path('device').read_text()); "
        "print(found.uids)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stdout.strip()) == (0, "(1, 2, 3, 4, 5, 10)"), ran.stderr


@pytest.fixture(scope="module")
def plan(planned):
    return planned(90)


@pytest.fixture
def verify(device_properties):
    return lambda plan: sdpa_ffi.verify(plan.to_bytes(), device_properties(90))


def test_missing_and_extra_bindings_are_named(plan, verify):
    bindings = [*plan.bindings[1:], (77, 0, 2, 0, 3, 0)]
    with pytest.raises(
        ValueError, match=r"without a binding: query \(uid 1\); .* unknown to the graph: uid 77"
    ):
        verify(dataclasses.replace(plan, bindings=bindings))


def test_a_workspace_that_is_too_small_is_refused(plan, verify):
    if plan.workspace_bytes == 0:
        pytest.fail("the plan is expected to need a workspace on sm90")
    with pytest.raises(ValueError, match=f"its graph needs {plan.workspace_bytes}"):
        verify(dataclasses.replace(plan, workspace_bytes=plan.workspace_bytes - 1))


def test_another_cudnn_is_an_environment_error_with_the_fix(plan, verify):
    with pytest.raises(sdpa_ffi.ExecutorEnvironmentError) as caught:
        verify(dataclasses.replace(plan, cudnn_version=91002))
    assert "the plan was built with cuDNN 9.10.2" in str(caught.value)
    assert str(caught.value).endswith("pip install nvidia-cudnn-cu13==9.10.2.*")


@pytest.mark.parametrize(
    ("blob", "match"),
    [
        (b"garbage", "malformed graph"),
        (b"{}", "lacks 'cudnn_backend_data'"),
        (b"CUDNN_FE_PYPLAN\0rest", "Python engine"),
        (b"[" * 3_000_000, "nested too deeply"),
        (b"{i\1a" * 100_000, "nested too deeply"),
        (b"[$Z#L" + (1 << 40).to_bytes(8, "big"), "larger than the blob"),
    ],
)
def test_a_blob_that_is_no_graph_is_refused(plan, verify, blob, match):
    with pytest.raises(ValueError, match=match):
        verify(dataclasses.replace(plan, blob=blob))


def test_a_truncated_graph_is_refused(plan, verify):
    with pytest.raises(ValueError, match="malformed graph"):
        verify(dataclasses.replace(plan, blob=plan.blob[: len(plan.blob) // 2]))


def test_loading_without_a_gpu_says_what_is_missing(plan):
    with pytest.raises(sdpa_ffi.ExecutorEnvironmentError, match=r"CUDA driver.*nvidia-smi$"):
        sdpa_ffi.load(plan.to_bytes(), device=0)


def test_loading_garbage_is_the_callers_mistake():
    with pytest.raises(ValueError, match="malformed plan container"):
        sdpa_ffi.load(b"SDPAPLAN", device=0)
