"""What the executor and the plan store cost and save, as ratios of one run on a GPU.

``python -m bench.executor --out executor.json``; ``docs/benchmarks/executor.md`` says what is
measured. Every part runs in a process of its own, so that one that fails leaves the others alone.
"""
