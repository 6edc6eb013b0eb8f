"""One small transformer, written once in PyTorch and once in JAX.

Read ``model_torch`` and ``model_jax`` side by side: they differ by the attention call and little
else. ``common`` is what both are given, ``report`` is what people see.
"""
