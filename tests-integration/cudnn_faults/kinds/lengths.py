"""Faults of dense operands with a length for each sequence."""

from __future__ import annotations

import math
from collections.abc import Mapping

from torch import Tensor

from .. import oracle
from ..attention import Attended, Attention
from ..fault import Shown, against, fault
from ..inputs import Numbers, seen, within
from ..machine import Machine

_BATCH, _TOKENS_Q, _TOKENS_KV, _SCALE = 3, 100, 130, 0.125
_LENGTHS_Q, _LENGTHS_KV = (100, 37, 1), (130, 5, 64)


class _Padded:
    """Queries and keys with lengths, and what is right for them."""

    def __init__(self, machine: Machine, lengths_kv: tuple[int, ...] = _LENGTHS_KV) -> None:
        numbers = Numbers(machine)
        self._machine = machine
        self._operands = numbers.dense(_BATCH, 4, 2, _TOKENS_Q, _TOKENS_KV, 64)
        self._lengths_q = numbers.lengths(*_LENGTHS_Q)
        self._lengths_kv = numbers.lengths(*lengths_kv)
        visible = seen(self._lengths_q, _TOKENS_Q, self._lengths_kv, _TOKENS_KV)
        self.want = oracle.attention(*self._operands, _SCALE, visible=visible)

    def attended(self, slack: Mapping[str, float] = {}) -> Attended:
        """With one value in the slack of some of "query", "key", "value" and "grad_output"."""
        inside = {
            "query": within(self._lengths_q, _TOKENS_Q),
            "key": within(self._lengths_kv, _TOKENS_KV),
        }
        inside |= {"value": inside["key"], "grad_output": inside["query"]}
        filled: list[Tensor] = [
            one.masked_fill(~inside[name], slack[name]) if name in slack else one
            for name, one in zip(
                ("query", "key", "value", "grad_output"), self._operands, strict=True
            )
        ]
        lengths = {"seq_len_q": self._lengths_q, "seq_len_kv": self._lengths_kv}
        given = Attention(*filled, _SCALE, inputs=lengths, options={"use_padding_mask": True})
        return Attended(self._machine, given)


def _slack(machine: Machine, remedied: bool, *names: str) -> Shown:
    padded = _Padded(machine)
    attended = padded.attended(dict.fromkeys(names, 0.0 if remedied else math.nan))
    return against(attended.run(), padded.want)


_SLACK = {"held": "sdpa_torch.cudnn.slack", "remedy": "copies whose slack is 0"}


@fault("NaN in queries past a length reaches gradients", **_SLACK)
def slack_of_queries(machine: Machine, remedied: bool) -> Shown:
    return _slack(machine, remedied, "query")


@fault("NaN in the output's gradient past a length reaches gradients", **_SLACK)
def slack_of_incoming_gradients(machine: Machine, remedied: bool) -> Shown:
    return _slack(machine, remedied, "grad_output")


@fault("NaN in keys and values past a length reaches results", **_SLACK)
def slack_of_keys(machine: Machine, remedied: bool) -> Shown:
    return _slack(machine, remedied, "key", "value")


@fault(
    "a sequence without keys: NaN results",
    held="results of a sequence without keys are NaN",
    remedy="its results are written once more: 0, and -inf",
)
def keyless(machine: Machine, remedied: bool) -> Shown:
    padded = _Padded(machine, lengths_kv=(130, 0, 64))
    attended = padded.attended()
    attended.forward()
    if remedied:
        attended.output[1] = 0.0
        attended.stats[1] = -math.inf
    attended.backward()
    if remedied:
        for name in ("dQ", "dK", "dV"):
            attended.results[name][1] = 0.0
    return against(attended.results, padded.want)


@fault(
    "a half empty last key tile and LSE < -88.7: dQ is NaN",
    held="dQ is NaN where the last key tile of 128 is half empty and LSE < -88.7",
    remedy="full lengths for the backward pass",
)
def half_empty_key_tile(machine: Machine, remedied: bool) -> Shown:
    """Logits of about -136, each log-sum-exp below -100."""
    numbers = Numbers(machine)
    query, key, value, grad = numbers.dense(2, 2, 2, 192, 192, 64)
    operands = (query + 4.25, key - 4.0, value, grad)
    full = numbers.lengths(192, 192)
    given = Attention(
        *operands,
        _SCALE,
        backward_only={"seq_len_q": full, "seq_len_kv": full} if remedied else {},
        backward_options={"use_padding_mask": True} if remedied else {},
    )
    return against(Attended(machine, given).run(), oracle.attention(*operands, _SCALE))
