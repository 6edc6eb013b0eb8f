"""The interface of a peer, and what those that PyTorch or JAX differentiate have in common."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from typing import Any, Protocol

#: Runs once and returns its results: ``(output,)`` or the three gradients.
Call = Callable[[], tuple[Any, ...]]


class Peer(Protocol):
    """An implementation of attention, ready to be timed."""

    @property
    def name(self) -> str: ...

    def unavailable(self) -> str | None:
        """Why it cannot run in this process, or None."""

    def scope(self) -> AbstractContextManager[object]:
        """What must be entered around its calls."""

    def forward(self, inputs: Any) -> Call:
        """The forward pass of inference, for these inputs."""

    def backward(self, inputs: Any) -> Call:
        """The backward pass alone; the forward pass has run."""


class TorchPeer:
    """Everything but ``attend``, for code that torch's autograd differentiates."""

    name = ""

    def unavailable(self) -> str | None:
        return missing("torch") or no_cuda_in_torch()

    def scope(self) -> AbstractContextManager[object]:
        return nullcontext()

    def attend(self, inputs: Any, query: Any, key: Any, value: Any) -> Any:
        raise NotImplementedError

    def forward(self, inputs: Any) -> Call:
        return lambda: (self.attend(inputs, *inputs.operands),)

    def backward(self, inputs: Any) -> Call:
        import torch

        leaves = inputs.leaves()
        output = self.attend(inputs, *leaves)
        incoming = inputs.grad_output
        return lambda: torch.autograd.grad(output, leaves, incoming, retain_graph=True)

    def training_step(self, inputs: Any) -> Call:
        """Forward and backward, as a training step issues them."""
        import torch

        leaves = inputs.leaves()
        incoming = inputs.grad_output
        return lambda: torch.autograd.grad(self.attend(inputs, *leaves), leaves, incoming)


class JaxPeer:
    """Everything but ``attend``, for a function that JAX compiles and differentiates."""

    name = ""

    def unavailable(self) -> str | None:
        return missing("jax") or no_cuda_in_jax()

    def scope(self) -> AbstractContextManager[object]:
        return nullcontext()

    def attend(self, query: Any, key: Any, value: Any, *, causal: bool) -> Any:
        raise NotImplementedError

    def forward(self, inputs: Any) -> Call:
        compiled = self._compiled(inputs)
        return lambda: (compiled(*inputs.operands),)

    def backward(self, inputs: Any) -> Call:
        import jax

        _, pull = jax.vjp(self._compiled(inputs), *inputs.operands)
        compiled = jax.jit(lambda pull, incoming: pull(incoming))
        return lambda: compiled(pull, inputs.grad_output)

    def chain(self, inputs: Any, length: int) -> Call:
        """``length`` attentions in one program, each on the output of the one before."""
        import jax

        def run(query: Any, key: Any, value: Any) -> Any:
            for _ in range(length):
                query = self.attend(query, key, value, causal=inputs.row.causal)
            return query

        compiled = jax.jit(run)
        return lambda: (compiled(*inputs.operands),)

    def _compiled(self, inputs: Any) -> Callable[..., Any]:
        import jax

        causal = inputs.row.causal
        return jax.jit(lambda q, k, v: self.attend(q, k, v, causal=causal))


def missing(*modules: str) -> str | None:
    """Which of these modules is not installed, in words."""
    absent = [module for module in modules if find_spec(module) is None]
    return f"{', '.join(absent)}: not installed" if absent else None


def no_cuda_in_torch() -> str | None:
    import torch

    return None if torch.cuda.is_available() else "torch finds no CUDA device"


def no_cuda_in_jax() -> str | None:
    import jax

    try:
        jax.local_devices(backend="cuda")
    except RuntimeError:
        return "JAX finds no CUDA device"
    return None
