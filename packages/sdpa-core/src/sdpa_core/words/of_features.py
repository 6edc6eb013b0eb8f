"""What was asked for besides the tensors, in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from typing import Any

from ..paged import Paged
from ..problem import AttentionProblem, Direction
from ..ragged import Packed
from ..tensor import TensorSpec
from .of_tensors import tensors


def features(problem: AttentionProblem) -> dict[str, str]:
    """Every field of the problem that is no tensor and not its default, in words.

    Taken from the fields of the class, so that a new one is told without being listed.
    """
    return {
        field.name: _WORDS.get(field.name, _plainly)(problem, value)
        for field in fields(problem)
        if not isinstance(value := getattr(problem, field.name), TensorSpec)
        and (field.default is MISSING or value != field.default)
    }


def _plainly(problem: AttentionProblem, value: object) -> str:
    del problem
    return "yes" if value is True else str(value)


def _packed_words(length: int, problem: AttentionProblem, packed: Packed) -> str:
    where = "with gaps between them" if packed.gaps else "one after another"
    return f"{problem.batch} sequences of at most {length} tokens, {where}, in {packed.tokens} rows"


def _paged_words(problem: AttentionProblem, paged: Paged) -> str:
    return f"pages of {problem.key.shape[2]} tokens, at most {paged.tokens} tokens in a sequence"


def _lengths_words(problem: AttentionProblem, value: object) -> str:
    del problem, value
    return "each sequence has a length of its own"


#: Fields whose value says too little by itself.
_WORDS: Mapping[str, Callable[[AttentionProblem, Any], str]] = {
    "seq_lens_q": _lengths_words,
    "seq_lens_kv": _lengths_words,
    "packed_q": lambda problem, packed: _packed_words(problem.tokens_q, problem, packed),
    "packed_kv": lambda problem, packed: _packed_words(problem.tokens_kv, problem, packed),
    "paged": _paged_words,
    "score_mod": lambda _, score_mod: (
        f"a function of the logits with {len(score_mod.tensors)} tensors and "
        f"{score_mod.scalars} numbers"
    ),
}


def summary(problem: AttentionProblem, direction: Direction) -> str:
    """A problem on one line, for logs: ``forward bfloat16 query[2, 8, 128, 64] ...``."""
    shapes = (f"{seen.name}{list(seen.spec.shape)}" for seen in tensors(problem))
    told = (f"{name}={text}" for name, text in features(problem).items())
    return " ".join((direction, problem.query.dtype, *shapes, *told))
