"""Faults of packed sequences."""

from __future__ import annotations

import torch
from torch import Tensor

from .. import oracle
from ..attention import Attended, Attention
from ..compare import Count, any_wrong, words, wrong
from ..fault import Shown, against, fault
from ..functions import Function, passed_on
from ..graph import packed
from ..inputs import Numbers
from ..machine import Machine
from .functions import before_the_length

_SCALE = 0.125
_LENGTHS = (130, 17, 64, 5)


def lengths_of(cu_seqlens: Tensor) -> Tensor:
    return cu_seqlens.diff().reshape(-1, 1, 1, 1)


@fault(
    "log-sum-exp of packed single queries: heads unwritten",
    held="sdpa_core.cudnn.dimensions",
    remedy="they are declared as two tokens",
)
def single_queries(machine: Machine, remedied: bool) -> Shown:
    numbers, heads, heads_kv = Numbers(machine), 8, 2
    queries, keys = (1, 1, 1), (300, 17, 64)
    cu_q, cu_kv = numbers.cu_seqlens(*queries), numbers.cu_seqlens(*keys)
    query = numbers.normal(sum(queries), heads, 64)
    key, value = (numbers.normal(sum(keys), heads_kv, 64) for _ in range(2))
    given = Attention(
        packed(query, cu_q, 2 if remedied else 1),
        packed(key, cu_kv, max(keys)),
        packed(value, cu_kv, max(keys)),
        query,
        _SCALE,
        inputs={"seq_len_q": lengths_of(cu_q), "seq_len_kv": lengths_of(cu_kv)},
        options={"use_padding_mask": True},
    )
    attended = Attended(machine, given)
    attended.forward()
    want = _each_sequence((query, key, value, query), cu_q, cu_kv)
    counts = dict(wrong(attended.results, {name: want[name] for name in ("O", "LSE")}))
    near = (attended.stats.double() - want["LSE"]).abs() <= 0.01
    counts["heads"] = Count(int((~near).any(0).sum()), heads)
    return Shown(any_wrong(counts), words(counts))


@fault(
    "functions of the logits of packed sequences: illegal memory access",
    held="softcap, score_mod or slopes of packed sequences access memory of no tensor",
    remedy=None,
    breaks_cuda=True,
)
def functions(machine: Machine, remedied: bool) -> Shown:
    """Forward, with room behind all tensors."""
    numbers = Numbers(machine)
    cu_seqlens, tokens, room = numbers.cu_seqlens(*_LENGTHS), sum(_LENGTHS), 1024
    query, key, value = (numbers.normal(tokens + room, 4, 64)[:tokens] for _ in range(3))
    lengths, longest = lengths_of(cu_seqlens), max(_LENGTHS)
    given = Attention(
        *(packed(one, cu_seqlens, longest) for one in (query, key, value, query)),
        _SCALE,
        function=Function(before_the_length, passed_on),
        read=(lengths.expand(len(_LENGTHS), 1, 1, longest),),
    )
    attended = Attended(machine, given)
    attended.forward()
    want = _each_sequence((query, key, value, query), cu_seqlens, cu_seqlens)
    return against(attended.results, {name: want[name] for name in ("O", "LSE")})


def _each_sequence(operands: tuple[Tensor, ...], cu_q: Tensor, cu_kv: Tensor) -> dict[str, Tensor]:
    """The oracle's results of every sequence, packed again."""
    query, key, value, grad = operands
    found: dict[str, list[Tensor]] = {}
    for i in range(len(cu_q) - 1):
        rows, columns = slice(*cu_q[i : i + 2].tolist()), slice(*cu_kv[i : i + 2].tolist())
        taken = (query[rows], key[columns], value[columns], grad[rows])
        one = oracle.attention(*(part.transpose(0, 1)[None] for part in taken), _SCALE)
        for name, result in one.items():
            found.setdefault(name, []).append(result[0].transpose(0, 1))
    return {name: torch.cat(results) for name, results in found.items()}
