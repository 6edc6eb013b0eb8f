"""The benchmark's real peers and its command line, as far as they go without a GPU."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
from bench import suites
from bench.__main__ import main
from bench.compare import TOLERANCE
from bench.peers.jax_nn import JaxNn
from bench.peers.native import NativeExecutor
from bench.peers.ours import OursInJax, OursInTorch
from bench.peers.pygraph import Pygraph
from bench.peers.torch_sdpa import TorchSdpa
from bench.rows import HOST_ROW, Row
from bench.timing import Plan, Work
from fake_peers import TINY


def has_cuda():
    import torch

    return torch.cuda.is_available()


class TestPeers:
    @pytest.mark.parametrize(
        "peer",
        [
            OursInTorch(),
            OursInJax(),
            NativeExecutor(),
            TorchSdpa("CUDNN_ATTENTION"),
            TorchSdpa("FLASH_ATTENTION"),
            Pygraph(),
            JaxNn(),
        ],
        ids=lambda peer: peer.name,
    )
    @pytest.mark.skipif("has_cuda()", reason="there is a GPU")
    def test_without_a_gpu_every_peer_says_why(self, peer):
        reason = peer.unavailable()
        assert "no CUDA device" in reason or "not installed" in reason

    @pytest.mark.parametrize("layout", ["bhsd", "bshd"])
    def test_torch_peers_compute_attention(self, layout):
        """The same code as on a GPU, with the kernel that a CPU has."""
        import torch
        from bench.inputs import torch_difference, torch_inputs

        class Reference(OursInTorch):
            def attend(self, inputs, query, key, value):
                import sdpa_torch

                return sdpa_torch.scaled_dot_product_attention(
                    query, key, value, is_causal=True, enable_gqa=True, backend="reference"
                )

        inputs = torch_inputs(TINY, layout, device="cpu")
        assert inputs.query.is_contiguous() == (layout == "bhsd")
        ours, theirs = Reference(), TorchSdpa("MATH")
        for kind in ("forward", "backward", "training_step"):
            with theirs.scope():
                wanted = getattr(theirs, kind)(inputs)()
            found = getattr(ours, kind)(inputs)()
            assert len(found) == len(wanted) == (1 if kind == "forward" else 3)
            for a, b in zip(found, wanted, strict=True):
                assert isinstance(a, torch.Tensor)
                assert torch_difference(a, b) < TOLERANCE

    def test_jax_peers_compute_attention(self):
        from bench.inputs import jax_difference, jax_inputs

        class Ours(OursInJax):
            def attend(self, query, key, value, *, causal):
                import sdpa_jax

                return sdpa_jax.dot_product_attention(query, key, value, is_causal=causal)

        class Theirs(JaxNn):
            def attend(self, query, key, value, *, causal):
                import jax

                return jax.nn.dot_product_attention(query, key, value, is_causal=causal)

        inputs = jax_inputs(TINY)
        calls = {
            "forward": lambda peer: peer.forward(inputs),
            "backward": lambda peer: peer.backward(inputs),
            "chain": lambda peer: peer.chain(jax_inputs(HOST_ROW), 3),
        }
        for kind, call in calls.items():
            found, wanted = call(Ours())(), call(Theirs())()
            assert len(found) == (3 if kind == "backward" else 1)
            for a, b in zip(found, wanted, strict=True):
                assert jax_difference(a, b) < TOLERANCE

    def test_jax_clock(self):
        import jax.numpy as jnp

        clocks, method, launches = suites.jax_clocks({"a": Work(lambda: (jnp.ones(3),))}, Plan())
        assert clocks["a"]() > 0
        assert "wall clock" in method
        assert launches > 1

    @pytest.mark.skipif(find_spec("cudnn") is None, reason="no cuDNN frontend")
    def test_the_frontends_graphs_are_built(self):
        """On a description of a GPU: what the frontend's user writes is valid."""
        import cudnn
        import torch
        from bench.inputs import torch_inputs
        from bench.peers.pygraph import backward_graph, forward_graph

        from sdpa_core import DeviceSpec
        from sdpa_core.cudnn import deviceless

        deviceless.prepare()
        where = {
            "sm_version": 90,
            "device_property": cudnn.create_device_properties(DeviceSpec.named("h200").properties),
        }
        row = Row(2, 4, 2, 256, 64, causal=True)
        inputs = torch_inputs(row, device="meta")
        graph, nodes = forward_graph(cudnn, inputs, with_stats=True, **where)
        assert set(nodes) == {"query", "key", "value", "output", "stats"}
        assert graph.get_workspace_size() >= 0
        stats = torch.empty(2, 4, 256, 1, device="meta")
        tensors = inputs.by_role() | {"output": inputs.query, "stats": stats}
        graph, nodes = backward_graph(cudnn, inputs, tensors, **where)
        assert {"grad_query", "grad_key", "grad_value"} < set(nodes)


@pytest.mark.skipif("has_cuda()", reason="there is a GPU")
def test_the_command_line_without_a_gpu(tmp_path, capsys):
    """It says what is missing, and fails."""
    out = tmp_path / "bench.json"
    assert main(["--out", str(out), "--suites", "host", "--rounds", "1"]) == 1
    assert "suite 'host' did not run" in capsys.readouterr().out
