"""Which dropout decisions cuDNN makes where the mapping of ``sdpa_core.philox`` is not yet known.

    export PYTHONPATH=packages/sdpa-core/src:tests-integration
    python -m dropout_mapping [OUT]
    python -m dropout_mapping --dry-run [OUT]

Needs torch, NumPy and nvidia-cudnn-frontend; a CUDA device, but for ``--dry-run``, which only
builds every graph for an H200. Each question is observed in up to four ways (the dump of either
direction, and what one-hot values and gradients read back), and every hypothesis is the fraction of
observed decisions that it explains: about 0.5 is chance, and only 1.0 is an answer. "documented" is
the mapping of ``sdpa_core.philox`` at random places, "numpy" the same in
``sdpa_core.testing.philox_bits``, everywhere. Hypotheses that predict the same count as one, and
those that predict what "documented" does are not shown.

OUT/dropout_mapping.json gets {"question: way": {hypothesis: fraction}}; "error" holds the text of
what failed, "written" the fraction of visible decisions that were observed. OUT is $OUT, or the
working directory. Compiling takes most of the time; where it is too much, processes with another
``--only`` and OUT each share the work.
"""
