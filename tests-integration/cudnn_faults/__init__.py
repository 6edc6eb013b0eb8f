"""Which faults of cuDNN are there: each is shown by graphs of the frontend, without this library.

``python -m cudnn_faults`` runs every fault on this machine's GPU, as cuDNN has it and with the
remedy that this library applies, and compares with a float64 oracle or with itself. With a new
cuDNN it tells which remedies have become needless. ``--dry-run`` builds every graph, for a GPU
that need not be there, and runs nothing.
"""
