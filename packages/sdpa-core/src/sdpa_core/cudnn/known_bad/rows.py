"""The table of faults, as data: what is wrong, where it was seen, what we do.

A row stays until a newer cuDNN was shown or said by its makers to be right; that version then ends
it. Each row names its source.
"""

from __future__ import annotations

from . import when
from .row import KnownBad, Remedy

ROWS = (
    KnownBad(
        "softcap, score_mod or slopes of packed sequences access memory of no tensor",
        first=None,
        fixed=None,
        applies=when.packed_function,
        remedy=Remedy.REFUSE,
        source="H200, cuDNN 9.19, both sides packed: illegal memory access in the forward pass; "
        "beside a function of the logits cudnn-frontend takes no lengths (sdpa.h)",
        change="pad the sequences and call the dense function with their lengths",
    ),
    KnownBad(
        "the sink's gradient under dropout is too small by the factor 1 - dropout_p",
        first=None,
        fixed=None,
        applies=when.dropped_sink_grad,
        remedy=Remedy.REFUSE,
        source="H200, cuDNN 9.19: 0.800 of the right value for 0.2, 0.500 for 0.5",
        change="no dropout, or a sink without a gradient",
    ),
    KnownBad(
        "the gradient of a bias beside softcap, score_mod or slopes was not seen to be right",
        first=None,
        fixed=None,
        applies=when.bias_grad_of_function,
        remedy=Remedy.REFUSE,
        source="no plan for compute capability 9.0 in cuDNN 9.19; 9.28 has one, which was not run",
        change="a bias without a gradient",
    ),
    KnownBad(
        "the gradient of a sink differs from run to run, deterministic or not",
        first=None,
        fixed=None,
        applies=when.deterministic_sink_grad,
        remedy=Remedy.REFUSE,
        source="H200, cuDNN 9.19: six cases, of which the other gradients did not differ; refused "
        "by TransformerEngine too",
        change="deterministic=False, or a sink without a gradient",
    ),
    KnownBad(
        "dQ is NaN where the last key tile of 128 is half empty and LSE < -88.7",
        first=None,
        fixed=None,
        applies=when.half_empty_key_tile,
        remedy=Remedy.FULL_LENGTHS,
        source="pytorch issue 196678; H200, cuDNN 9.19: any query length, head_dim 64 to 256, "
        "only without a band or lengths",
    ),
    KnownBad(
        "illegal memory access in a captured backward pass with a partial key tile",
        first=None,
        fixed=91501,
        applies=when.partial_key_tile,
        remedy=Remedy.FULL_LENGTHS,
        source="TransformerEngine PR 2344, cuDNN <= 9.15.0",
    ),
    KnownBad(
        "log-sum-exp of a single query differs from run to run where its keys are split",
        first=None,
        fixed=None,
        applies=when.merged_statistics,
        remedy=Remedy.WHOLE_KEYS,
        source="H200, cuDNN 9.19, kernels with k24=35, with and without workspace: 12 of 128 "
        "values in 200 runs, the output never; the plan carries no note. Its sibling k24=6 repeats",
    ),
    KnownBad(
        "results of a sequence without keys are NaN",
        first=None,
        fixed=92500,
        applies=when.keyless_sequences,
        remedy=Remedy.FIX_EMPTY,
        source="cudnn-frontend issue 943; H200, cuDNN 9.19: output, log-sum-exp, dK and dV",
    ),
    KnownBad(
        "non-causal sliding window over more than 1024 keys gives NaN",
        first=91400,
        fixed=91401,
        applies=when.window,
        remedy=Remedy.REFUSE,
        source="TransformerEngine PR 2344; cudnn-frontend refuses it too",
    ),
    KnownBad(
        "gradients of packed sequences are NaN: a workspace is not initialized",
        first=None,
        fixed=91800,
        applies=when.packed_on_hopper,
        remedy=Remedy.REFUSE,
        source="TransformerEngine issue 2186",
    ),
    KnownBad(
        "the sink's gradient of packed sequences: the log-sum-exp is read as if dense",
        first=None,
        fixed=92600,
        applies=when.packed_sink_grad,
        remedy=Remedy.REFUSE,
        source="TransformerEngine issue 3249, cudnn-frontend PR 630; 1.28 does not refuse it",
    ),
    KnownBad(
        "causal attention with more keys than queries hangs",
        first=92100,
        fixed=92200,
        applies=when.causal_with_more_keys,
        remedy=Remedy.REFUSE,
        source="TransformerEngine issue 3285, cuDNN 9.21 on compute capability 10.3, long keys; "
        "from which length on is not said",
    ),
    KnownBad(
        "wrong results with a cache of keys on compute capability 8.9",
        first=None,
        fixed=None,
        applies=when.pages_on_ada,
        remedy=Remedy.REFUSE,
        source="TransformerEngine PR 1776, whose selection still leaves it out",
        change="gather the pages and call varlen_attention",
    ),
)
