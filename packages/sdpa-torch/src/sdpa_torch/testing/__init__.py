"""The adapter under test: its conformance subject, and its cuDNN path without cuDNN."""

from ..rng import fixed as fixed_seed
from .fake import FakeRuntime as FakeRuntime
from .fake import fake_cudnn as fake_cudnn
from .subject import TorchSubject as TorchSubject

__all__ = ["FakeRuntime", "TorchSubject", "fake_cudnn", "fixed_seed"]
