"""Files of shapes: the problems that ``plans build`` makes plans for.

A file has ``[[attention]]`` tables. A field with a list, or a range, stands for each of its values;
a table for all combinations of its fields.
"""

from __future__ import annotations

import itertools
import math
import re
import tomllib
from argparse import ArgumentTypeError, Namespace
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...dtypes import DType
from ...layout import dense_in_order
from ...problem import AttentionProblem
from ...tensor import TensorSpec
from .. import values
from ..options import LAYOUTS
from ..problem import problem as problem_of
from .fields import DEFAULTS, FIELDS, RANGES, SIZES, count
from .presets import presets

#: More rows of a table than this are a mistake.
_MOST_ROWS = 100_000

#: Gradients, which only rows that train have.
_GRADIENTS = ("bias_grad", "sink_grad", "grad_layout")

Row = dict[str, Any]


class _WrongError(ValueError):
    """A mistake in a table, without the words for file and table."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A problem that a file asks for, and where it does."""

    problem: AttentionProblem
    where: str


def read_shapes(path: Path) -> list[Shape]:
    """All problems of a file, each once.

    Raises:
        ValueError: the file is wrong; one line that names file, table and field.
    """
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from error
    except ValueError as error:  # of the syntax, or of UTF-8
        raise ValueError(f"{path}: {error}") from error
    tables = found.pop("attention", None)
    if found:
        raise ValueError(f"{path}: {next(iter(found))!r} is no table of it; expected [[attention]]")
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise ValueError(f"{path}: expected [[attention]] tables")
    shapes: dict[AttentionProblem, Shape] = {}
    for position, table in enumerate(tables, 1):
        where = f"{path}, [[attention]] {position}"
        try:
            for problem in _problems(table):
                shapes.setdefault(problem, Shape(problem, where))
        except _WrongError as error:
            raise ValueError(f"{where}, {error}") from error
    return list(shapes.values())


def _problems(table: Mapping[str, Any]) -> Iterator[AttentionProblem]:
    own = dict(table)
    kinds = [kind for name in _presets(own.pop("preset", None)) for kind in name]
    for kind in kinds or [{}]:
        yield from _of_kind(own, kind)


def _presets(given: object) -> Iterator[tuple[Mapping[str, Any], ...]]:
    names = given if isinstance(given, list) else [] if given is None else [given]
    for name in names:
        if not isinstance(name, str) or name not in presets():
            raise _WrongError(f"preset = {name!r}; expected one of {', '.join(presets())}")
        yield presets()[name]


def _of_kind(own: Mapping[str, Any], kind: Mapping[str, Any]) -> Iterator[AttentionProblem]:
    """The problems of a table with the fields of one kind of layer; the table's own come first."""
    fields = {**kind, **own}
    choices = {name: _choices(name, given) for name, given in fields.items()}
    if math.prod(map(len, choices.values())) > _MOST_ROWS:
        raise _WrongError(f"which has more than {_MOST_ROWS:,} combinations")
    trains = True in choices.get("training", ())
    varied = [name for name, options in choices.items() if len(options) > 1]
    for combination in itertools.product(*choices.values()):
        row = dict(zip(choices, combination, strict=True))
        if not row.get("training"):
            row = {n: v for n, v in row.items() if n not in _GRADIENTS or not (trains or n in kind)}
        try:
            yield _problem(row)
        except (TypeError, ValueError) as error:
            at = ", ".join(f"{name} = {_shown(row[name])}" for name in varied if name in row)
            text = re.sub(r"--([a-z][a-z-]*)", lambda found: found[1].replace("-", "_"), str(error))
            raise _WrongError(f"{f'with {at}: ' if at else ''}{text}") from error


def _choices(name: str, given: Any) -> tuple[Any, ...]:
    """The values of a field."""
    if name not in FIELDS:
        raise _WrongError(f"{name!r} is no field; expected among preset, {', '.join(FIELDS)}")
    if isinstance(given, dict):
        return _range(name, given)
    if given == []:
        raise _WrongError(f"{name} = []; expected at least one value")
    return tuple(_value(name, one) for one in (given if isinstance(given, list) else [given]))


def _value(name: str, given: Any) -> Any:
    try:
        return FIELDS[name](given)
    except (TypeError, ValueError) as error:
        raise _WrongError(f"{name} = {given!r}; {error}") from error


def _range(name: str, given: Mapping[str, Any]) -> tuple[int, ...]:
    """``{from = 128, to = 4096, factor = 2}``, or ``step``; both ends belong to it."""
    if name not in RANGES:
        raise _WrongError(f"{name} cannot be a range; expected a value or a list of values")
    if set(given) not in ({"from", "to", "step"}, {"from", "to", "factor"}):
        raise _WrongError(f"{name} = {dict(given)!r}; expected from, to, and step or factor")
    for end, value in given.items():
        try:
            count(value)
        except ValueError as error:
            raise _WrongError(f"{name}.{end} = {value!r}; {error}") from error
    first, last, factor = given["from"], given["to"], given.get("factor")
    if first > last:
        raise _WrongError(f"{name}.from = {first} is larger than {name}.to = {last}")
    if factor == 1:
        raise _WrongError(f"{name}.factor = 1; expected at least 2")
    if factor is None:
        # One more than allowed is enough to be refused.
        return tuple(itertools.islice(range(first, last + 1, given["step"]), _MOST_ROWS + 1))
    powers = (first * factor**exponent for exponent in itertools.count())
    return tuple(itertools.takewhile(lambda value: value <= last, powers))


def _problem(row: Row) -> AttentionProblem:
    q, kv = _sizes(row)
    if page := row.get("page_size"):  # a sequence has room for whole pages
        kv = (*kv[:2], -(-kv[2] // page) * page, *kv[3:])
    given = {**DEFAULTS, **{n: v for n, v in row.items() if n not in SIZES}, "q": q, "kv": kv}
    given["bias"] = _bias(given["bias"], q, kv)
    layout, pages = given.pop("grad_layout"), given.pop("pages")
    asked = problem_of(Namespace(**given))
    if asked.is_empty:
        raise ValueError("packed has 0 rows; there is nothing to plan")
    if pages is not None:
        asked = _with_pages(asked, pages)
    return asked if layout is None else _with_gradient(asked, layout)


def _sizes(row: Row) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shapes of query and key, from ``q`` and ``kv`` or from the single sizes."""
    single = [name for name in SIZES if name in row]
    if "q" in row:
        if single:
            raise ValueError(f"q and {single[0]} exclude each other")
        return _positive("q", row["q"]), _positive("kv", row["kv"] if "kv" in row else row["q"])
    if "kv" in row:
        raise ValueError("kv needs q")
    for name in ("heads", "tokens", "head_dim"):
        if name not in row:
            raise ValueError(f"{name} is missing")
    sizes = {"batch": 1, "heads_kv": row["heads"], "tokens_kv": row["tokens"], **row}
    q, kv = ("batch", "heads", "tokens"), ("batch", "heads_kv", "tokens_kv")
    width: int = row["head_dim"]
    return (*(sizes[name] for name in q), width), (*(sizes[name] for name in kv), width)


def _positive(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    if len(shape) != 4 or 0 in shape:
        raise ValueError(f"{name} has shape {list(shape)}; expected 4 positive lengths")
    return shape


def _bias(text: str | None, q: tuple[int, ...], kv: tuple[int, ...]) -> values.Bias | None:
    """``1,h,s,t:fp32``: lengths, or letters for batch, heads, tokens and the keys' tokens."""
    if text is None:
        return None
    lengths, colon, kind = text.partition(":")
    letters = {"b": q[0], "h": q[1], "s": q[2], "t": kv[2]}
    numbers = (str(letters.get(one.strip(), one)) for one in lengths.split(","))
    try:
        return values.bias(",".join(numbers) + colon + kind)
    except ArgumentTypeError as error:
        raise ValueError(f"bias = {text!r}; expected lengths such as 1,h,s,t ({error})") from error


def _with_pages(asked: AttentionProblem, pages: int) -> AttentionProblem:
    """Pools of so many pages, instead of as many as full sequences take."""
    if asked.paged is None:
        raise ValueError("pages needs page_size")
    key, value = (replace(s, shape=(pages, *s.shape[1:])) for s in (asked.key, asked.value))
    return replace(asked, key=key.canonical(), value=value.canonical())


def _with_gradient(asked: AttentionProblem, layout: str) -> AttentionProblem:
    """The gradient of the output in an order of axes of its own."""
    if not asked.training or asked.packed_q is not None:
        raise ValueError("grad_layout is for dense queries in training")
    shape = asked.output.shape
    spec = TensorSpec(shape, dense_in_order(shape, LAYOUTS[layout]), asked.output.dtype)
    return replace(asked, grad_output=spec)


def _shown(value: Any) -> str:
    return str(value) if isinstance(value, (int, float, DType)) else repr(value)
