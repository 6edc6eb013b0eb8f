"""Side-by-side measurements on a GPU: ours, the frameworks' own, and cuDNN's frontend alone.

``python -m bench --out bench.json`` with this folder's parent on ``PYTHONPATH``;
``docs/benchmarks/README.md`` says what is measured and how.
"""
