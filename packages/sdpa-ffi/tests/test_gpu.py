"""On a GPU: the numbers are right, from PyTorch and from JAX, captured and not."""

import importlib.util

import numpy as np
import pytest

import sdpa_ffi

pytestmark = pytest.mark.gpu

SHAPE = B, H, S, D = 2, 4, 256, 64
SCALE = D**-0.5


@pytest.fixture(scope="module")
def container(planned):
    return planned(sm_of_device()).to_bytes()


def sm_of_device():
    import torch

    major, minor = torch.cuda.get_device_capability()
    return 10 * major + minor


@pytest.fixture(scope="module")
def qkv():
    import torch

    generator = torch.Generator().manual_seed(0)
    return [torch.randn(SHAPE, generator=generator).bfloat16().cuda() for _ in range(3)]


@pytest.fixture(scope="module")
def expected(qkv):
    import torch

    q, k, v = (x.double() for x in qkv)
    logits = SCALE * q @ k.transpose(-1, -2)
    return torch.softmax(logits, -1) @ v, torch.logsumexp(logits, -1, keepdim=True)


def outputs():
    import torch

    o = torch.full(SHAPE, float("nan"), dtype=torch.bfloat16, device="cuda")
    return o, torch.full((B, H, S, 1), float("nan"), device="cuda")


def assert_right(o, lse, expected):
    np.testing.assert_allclose(o.double().cpu(), expected[0].cpu(), atol=1e-2)
    np.testing.assert_allclose(lse.double().cpu(), expected[1].cpu(), atol=1e-3)


class TestTorch:
    @pytest.fixture
    def launch(self, container, qkv):
        import torch

        plan = sdpa_ffi.load(container, device=0)
        workspace = torch.empty(plan.workspace_bytes, dtype=torch.uint8, device="cuda")

        def call(*out):
            stream = torch.cuda.current_stream().cuda_stream
            plan.execute((*qkv, *out), (SCALE,), workspace if len(workspace) else None, stream)

        return call

    def test_eager(self, launch, expected):
        out = outputs()
        launch(*out)
        assert_right(*out, expected)

    def test_captured(self, launch, expected):
        import torch

        out = outputs()
        launch(*out)  # once, as CUDA graphs want
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            launch(*out)
        for tensor in out:
            tensor.fill_(float("nan"))
        graph.replay()
        assert_right(*out, expected)

    def test_loading_during_a_capture(self, planned, qkv, expected):
        import torch

        # Another blob of the same graph, so that nothing is loaded yet.
        fresh = planned(sm_of_device())
        fresh.fingerprint = b"another container".ljust(32)
        out, graph = outputs(), torch.cuda.CUDAGraph()
        workspace = torch.empty(max(16, fresh.workspace_bytes), dtype=torch.uint8, device="cuda")
        with torch.cuda.graph(graph):
            plan = sdpa_ffi.load(fresh.to_bytes(), device=0)
            stream = torch.cuda.current_stream().cuda_stream
            plan.execute((*qkv, *out), (SCALE,), workspace, stream)
        graph.replay()
        assert_right(*out, expected)

    def test_a_host_tensor_is_refused(self, launch):
        o, lse = outputs()
        with pytest.raises(ValueError, match=r"stats \(uid 5\): the operand is in host memory"):
            launch(o, lse.cpu())


@pytest.fixture(scope="module")
def attention(container):
    import jax

    jax.devices()
    for name, registration in sdpa_ffi.xla_types().items():
        jax.ffi.register_ffi_type(name, registration, platform="CUDA")
    for name, handlers in sdpa_ffi.xla_targets().items():
        jax.ffi.register_ffi_target(name, handlers, platform="CUDA")
    workspace = max(1, sdpa_ffi.describe(container).workspace_bytes)
    call = jax.ffi.ffi_call(
        "sdpa_ffi.execute.v1",
        (
            jax.ShapeDtypeStruct(SHAPE, jax.numpy.bfloat16),
            jax.ShapeDtypeStruct((B, H, S, 1), np.float32),
            jax.ShapeDtypeStruct((workspace,), np.uint8),
        ),
    )
    return lambda *args: call(*args, plan=container, scalars=np.float32([SCALE]))[:2]


@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="jax is not installed")
class TestJax:
    def test_jitted(self, attention, qkv, expected):
        import jax
        import torch

        args = [jax.numpy.asarray(x.float().cpu().numpy(), jax.numpy.bfloat16) for x in qkv]
        run = jax.jit(attention)
        for _ in range(3):  # later runs may replay a command buffer
            o, lse = (torch.tensor(np.asarray(x, np.float32)) for x in run(*args))
            assert_right(o, lse, expected)

    def test_a_chain_long_enough_for_a_command_buffer(self, attention, qkv):
        import jax

        args = [jax.numpy.asarray(x.float().cpu().numpy(), jax.numpy.bfloat16) for x in qkv]

        def chain(q, k, v):
            for _ in range(8):
                q = attention(q, k, v)[0]
            return q

        run = jax.jit(chain)
        first = np.asarray(run(*args), np.float32)
        assert np.isfinite(first).all()
        for _ in range(3):
            np.testing.assert_array_equal(np.asarray(run(*args), np.float32), first)

    def test_wrong_size_is_refused(self, attention):
        import jax

        small = jax.numpy.zeros((1,), jax.numpy.bfloat16)
        with pytest.raises(Exception, match=r"query \(uid 1\): 2 bytes are addressable"):
            jax.block_until_ready(jax.jit(attention)(small, small, small))
