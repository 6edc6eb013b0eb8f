"""Which dropout decisions cuDNN makes where the mapping of ``sdpa_core.philox`` is not yet known.

    PYTHONPATH=packages/sdpa-core/src python tests-integration/dropout_mapping.py [OUT]
    PYTHONPATH=packages/sdpa-core/src python tests-integration/dropout_mapping.py --dry-run [OUT]

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

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import cudnn
import numpy as np
import torch
from torch import Tensor

from sdpa_core import DeviceSpec
from sdpa_core.cudnn import deviceless
from sdpa_core.philox import KEY_STEPS, MASK32, MULTIPLIERS, ROUNDS, keep_threshold
from sdpa_core.testing.philox_bits import keep_mask

SAMPLES = 20_000
UNWRITTEN = -7.0
FIRST_PYTHON_ENGINE = 10_000
ROLES = (
    *("q", "k", "v", "o", "stats", "dO", "dQ", "dK", "dV", "bias", "seed", "offset", "dump"),
    *("seq_len_q", "seq_len_kv", "ragged_q", "ragged_k", "ragged_v", "ragged_o"),
)
UID = {role: 100 + index for index, role in enumerate(ROLES)}


@dataclass(frozen=True)
class Setup:
    """One attention call. Lengths: of the sequences that are there; None: all as declared."""

    batch: int = 2
    heads: int = 2
    heads_kv: int = 2
    sq: int = 256
    skv: int = 256
    d: int = 64
    dtype: torch.dtype = torch.bfloat16
    p: float = 0.5
    seed: int = 0x1234_5678_9ABC
    offset: int = 16
    left: int | None = None
    right: int | None = None
    bias: bool = False
    lengths: tuple[tuple[int, int], ...] | None = None
    packed: bool = False
    stats: bool = True
    deterministic: bool = False

    @property
    def group(self) -> int:
        return self.heads // self.heads_kv

    @property
    def real(self) -> tuple[tuple[int, int], ...]:
        return self.lengths or ((self.sq, self.skv),) * self.batch

    def starts(self, side: int) -> list[int]:
        """First token of each declared sequence and the end, in a pack."""
        counts = [pair[side] for pair in self.real]
        counts += [0] * (self.batch - len(counts))
        return [0, *itertools.accumulate(counts)]

    def visible(self, b: int, device: torch.device) -> Tensor:
        i = torch.arange(self.real[b][0], device=device)[:, None]
        j = torch.arange(self.real[b][1], device=device)
        seen = (i >= 0) & (j >= 0)
        if self.left is not None:
            seen = seen & (j > i - self.left)
        if self.right is not None:
            seen = seen & (j <= i + self.right)
        return seen


# ------------------------------------------------------------------------------------- graphs


@dataclass(frozen=True)
class Layout:
    dim: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    ragged: str | None = None


def contiguous(dim: tuple[int, ...], dtype: torch.dtype) -> Layout:
    return Layout(dim, torch.empty(dim, device="meta").stride(), dtype)


def layouts(s: Setup) -> dict[str, Layout]:
    """Of every tensor that a call may have, by role."""
    one = (1, 1, 1, 1)
    sides = {"q": (s.heads, s.sq), "k": (s.heads_kv, s.skv)}
    found = {}
    for role, side, ragged in (
        *(("q", "q", "ragged_q"), ("k", "k", "ragged_k"), ("v", "k", "ragged_v")),
        *(("o", "q", "ragged_o"), ("dO", "q", "ragged_o"), ("dQ", "q", "ragged_q")),
        *(("dK", "k", "ragged_k"), ("dV", "k", "ragged_v")),
    ):
        heads, tokens = sides[side]
        dim = (s.batch, heads, tokens, s.d)
        if s.packed:
            row = heads * s.d
            found[role] = Layout(dim, (tokens * row, s.d, row, 1), s.dtype, ragged)
        else:
            found[role] = contiguous(dim, s.dtype)
    return found | {
        "stats": contiguous((s.batch, s.heads, s.sq, 1), torch.float32),
        "bias": contiguous((1, s.heads, s.sq, s.skv), s.dtype),
        "dump": contiguous((s.batch, s.heads, s.sq, s.skv), torch.float32),
        "seed": contiguous(one, torch.int64),
        "offset": contiguous(one, torch.int64),
        "seq_len_q": contiguous((s.batch, 1, 1, 1), torch.int32),
        "seq_len_kv": contiguous((s.batch, 1, 1, 1), torch.int32),
        **{f"ragged_{x}": contiguous((s.batch + 1, 1, 1, 1), torch.int32) for x in "qkvo"},
    }


def data_type(dtype: torch.dtype) -> Any:
    names = {
        torch.float16: "HALF",
        torch.bfloat16: "BFLOAT16",
        torch.float32: "FLOAT",
        torch.int32: "INT32",
        torch.int64: "INT64",
    }
    return getattr(cudnn.data_type, names[dtype])


class Call:
    """A graph of one direction, with its tensors."""

    def __init__(self, target: dict[str, Any], setup: Setup, direction: str, dump: bool) -> None:
        self.setup, self.direction, self.dump = setup, direction, dump
        self.layouts = layouts(setup)
        self.graph = cudnn.pygraph(
            io_data_type=data_type(setup.dtype),
            intermediate_data_type=cudnn.data_type.FLOAT,
            compute_data_type=cudnn.data_type.FLOAT,
            **target,
        )
        self.made: dict[str, Any] = {}
        self.built: set[int] = set()
        forward = direction == "forward"
        operands = ("q", "k", "v") if forward else ("q", "k", "v", "o", "dO", "stats")
        options = self._options()
        options |= {role: self._tensor(role) for role in operands}
        if forward:
            results = self.graph.sdpa(generate_stats=setup.stats, **options)
            self._outputs(results, ("o", "stats") if setup.stats else ("o",))
        else:
            results = self.graph.sdpa_backward(
                use_deterministic_algorithm=setup.deterministic, **options
            )
            self._outputs(results, ("dQ", "dK", "dV"))
        self.graph.deselect_engines(["sdpa_fwd_", "sdpa_bwd_"])
        self.graph.validate()
        self.graph.build_operation_graph()
        self.graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
        self.graph.check_support()

    def plans(self) -> list[int]:
        """Indices of cuDNN's own plans."""
        count = self.graph.get_execution_plan_count()
        return [i for i in range(count) if self.graph.plans[i].engine_id < FIRST_PYTHON_ENGINE]

    def build(self, index: int | None = None) -> int:
        """Compile one plan, by default the first that compiles; its index."""
        refusal: Exception = RuntimeError("no plan")
        for candidate in self.plans() if index is None else [index]:
            if candidate in self.built:
                return candidate
            try:
                self.graph.build_plan_at_index(candidate)
            except cudnn.cudnnGraphNotSupportedError as error:
                refusal = error
                continue
            self.built.add(candidate)
            return candidate
        raise refusal

    def _options(self) -> dict[str, Any]:
        s = self.setup
        options: dict[str, Any] = {
            "attn_scale": 1.0,
            "dropout": (s.p, self._tensor("seed"), self._tensor("offset")),
        }
        if s.bias:
            options["bias"] = self._tensor("bias")
        if s.left is not None or s.right is not None:
            options["diagonal_alignment"] = cudnn.diagonal_alignment.TOP_LEFT
        if s.left is not None:
            options["diagonal_band_left_bound"] = s.left
        if s.right is not None:
            options["diagonal_band_right_bound"] = s.right
        if s.lengths is not None:
            options["use_padding_mask"] = True
            options |= {role: self._tensor(role) for role in ("seq_len_q", "seq_len_kv")}
        if self.dump:
            options["rng_dump"] = self._tensor("dump").set_output(True)
        return options

    def _tensor(self, role: str) -> Any:
        if role not in self.made:
            lay = self.layouts[role]
            self.made[role] = self.graph.tensor(
                name=role,
                uid=UID[role],
                dim=list(lay.dim),
                stride=list(lay.stride),
                data_type=data_type(lay.dtype),
                ragged_offset=self._tensor(lay.ragged) if lay.ragged else None,
            )
        return self.made[role]

    def _outputs(self, results: Any, roles: tuple[str, ...]) -> None:
        for role, result in zip(roles, results, strict=False):
            lay = self.layouts[role]
            result.set_uid(UID[role]).set_output(True)
            result.set_dim(list(lay.dim)).set_stride(list(lay.stride))
            result.set_data_type(data_type(lay.dtype))
            if lay.ragged:
                result.set_ragged_offset(self._tensor(lay.ragged))
            self.made[role] = result


# ---------------------------------------------------------------------------------- execution


class Memory:
    """The tensors of one setup: queries and keys 0, so that every visible key weighs the same."""

    def __init__(self, setup: Setup, device: torch.device) -> None:
        self.setup, self.device = setup, device
        self.tensors: dict[str, Tensor] = {}
        for role, lay in layouts(setup).items():
            dim = lay.dim
            if lay.ragged:
                batch, heads, tokens, d = lay.dim
                dim = (batch * tokens, heads, d)
            self.tensors[role] = torch.zeros(dim, dtype=lay.dtype, device=device)
        self["seed"].fill_(setup.seed)
        self["offset"].fill_(setup.offset)
        for side, name in ((0, "q"), (1, "kv")):
            starts = torch.tensor(setup.starts(side), dtype=torch.int32)
            self[f"seq_len_{name}"].copy_(starts.diff().reshape(-1, 1, 1, 1))
            for role in "qo" if side == 0 else "kv":
                heads = setup.heads if side == 0 else setup.heads_kv
                self[f"ragged_{role}"].copy_((starts * heads * setup.d).reshape(-1, 1, 1, 1))

    def __getitem__(self, role: str) -> Tensor:
        return self.tensors[role]

    def sequence(self, role: str, b: int) -> Tensor:
        """``[heads, tokens, D]`` of a sequence that is there; a view."""
        side = 0 if role in ("q", "o", "dO", "dQ") else 1
        tokens = self.setup.real[b][side]
        if not self.setup.packed:
            return self[role][b, :, :tokens]
        start = self.setup.starts(side)[b]
        return self[role][start : start + tokens].transpose(0, 1)

    def one_hot(self, role: str, first: int, heads: slice) -> None:
        """Token ``first + d`` of every sequence gets a 1 in column ``d``, all else 0."""
        self[role].zero_()
        for b in range(len(self.setup.real)):
            rows = self.sequence(role, b)[heads, first : first + self.setup.d]
            rows.diagonal(dim1=1, dim2=2).fill_(1)


class Runner:
    """Executes calls on this machine's GPU."""

    def __init__(self) -> None:
        self.device = torch.device("cuda")
        self.handle = cudnn.create_handle()
        stream = torch.cuda.current_stream().cuda_stream
        cudnn.set_stream(handle=self.handle, stream=stream)
        self.target = {"handle": self.handle}
        self.calls: dict[tuple[Any, ...], Call] = {}

    def call(self, setup: Setup, direction: str, dump: bool) -> Call:
        """A graph; seed and offset are operands of it, so that it serves them all."""
        key = (replace(setup, seed=0, offset=0), direction, dump)
        if key not in self.calls:
            self.calls[key] = Call(self.target, setup, direction, dump)
        return self.calls[key]

    def execute(self, call: Call, memory: Memory, plan: int) -> None:
        size = call.graph.get_workspace_size_plan_at_index(plan)
        workspace = torch.empty(max(size, 1), dtype=torch.uint8, device=self.device)
        pack = {UID[role]: memory[role] for role in call.made}
        call.graph.execute_plan_at_index(pack, workspace, index=plan, handle=self.handle)
        torch.cuda.synchronize()


# -------------------------------------------------------------------------------- observations

#: Of each sequence that is there, int8 [heads, Sq, Skv]: 1 kept, 0 dropped, -1 not seen.
Observed = list[Tensor]


def nothing_seen(setup: Setup, device: torch.device) -> Observed:
    return [torch.full((setup.heads, *n), -1, dtype=torch.int8, device=device) for n in setup.real]


def hide(setup: Setup, observed: Observed) -> Observed:
    return [torch.where(setup.visible(b, seen.device), seen, -1) for b, seen in enumerate(observed)]


def decisions(values: Tensor) -> Tensor:
    return torch.where(values.isnan(), -1, (values > 0).to(torch.int8)).to(torch.int8)


def from_dump(runner: Runner, setup: Setup, direction: str, plan: int | None) -> Observed:
    memory = Memory(setup, runner.device)
    if direction == "backward":
        forward(runner, setup, memory)
    memory["dump"].fill_(UNWRITTEN)
    call = runner.call(setup, direction, dump=True)
    runner.execute(call, memory, call.build(plan))
    observed = []
    for b, (sq, skv) in enumerate(setup.real):
        part = memory["dump"][b, :, :sq, :skv]
        observed.append(torch.where(part == UNWRITTEN, -1, decisions(part)))
    return hide(setup, observed)


def forward(runner: Runner, setup: Setup, memory: Memory) -> None:
    """Output and statistics for a backward pass."""
    call = runner.call(setup, "forward", dump=False)
    runner.execute(call, memory, call.build())


def from_output(runner: Runner, setup: Setup, direction: str, plan: int | None) -> Observed:
    """A column of the output shows one key: it is positive where the key was kept."""
    memory = Memory(setup, runner.device)
    call = runner.call(setup, direction, dump=False)
    plan = call.build(plan)
    observed = nothing_seen(setup, runner.device)
    for first in range(0, max(skv for _, skv in setup.real), setup.d):
        memory.one_hot("v", first, slice(None))
        runner.execute(call, memory, plan)
        for b, seen in enumerate(observed):
            part = seen[:, :, first : first + setup.d]
            part.copy_(decisions(memory.sequence("o", b)[:, :, : part.shape[2]]))
    return hide(setup, observed)


def from_gradient(runner: Runner, setup: Setup, direction: str, plan: int | None) -> Observed:
    """A column of dV shows one query of one head of each group."""
    memory = Memory(setup, runner.device)
    forward(runner, setup, memory)
    call = runner.call(setup, direction, dump=False)
    plan = call.build(plan)
    observed = nothing_seen(setup, runner.device)
    for member in range(setup.group):
        heads = slice(member, None, setup.group)
        for first in range(0, max(sq for sq, _ in setup.real), setup.d):
            memory.one_hot("dO", first, heads)
            runner.execute(call, memory, plan)
            for b, seen in enumerate(observed):
                part = seen[heads, first : first + setup.d]
                columns = memory.sequence("dV", b)[:, :, : part.shape[1]]
                part.copy_(decisions(columns.transpose(1, 2)))
    return hide(setup, observed)


Way = Callable[[Runner, Setup, str, int | None], Observed]
WAYS: dict[str, tuple[Way, str, bool]] = {
    "forward dump": (from_dump, "forward", True),
    "output": (from_output, "forward", False),
    "backward dump": (from_dump, "backward", True),
    "gradient": (from_gradient, "backward", False),
}


# ---------------------------------------------------------------------------------- hypotheses


@dataclass(frozen=True)
class Points:
    """Places where a decision was seen; each field one-dimensional."""

    setup: Setup
    b: Tensor
    h: Tensor
    i: Tensor
    j: Tensor
    kept: Tensor

    def of_sequence(self, values: list[int]) -> Tensor:
        return torch.tensor(values, device=self.b.device)[self.b]

    def length(self, side: int) -> Tensor:
        return self.of_sequence([pair[side] for pair in self.setup.real])

    def start(self, side: int) -> Tensor:
        return self.of_sequence(self.setup.starts(side))


def tiles(tokens: Any) -> Any:
    return (tokens + 15) // 16


def round_up(tokens: int, multiple: int) -> int:
    return -(-tokens // multiple) * multiple


HEADS: dict[str, Callable[[Points], Tensor]] = {
    "b H + h": lambda x: x.b * x.setup.heads + x.h,
    "h": lambda x: x.h,
    "h B + b": lambda x: x.h * x.setup.batch + x.b,
    "h real_B + b": lambda x: x.h * len(x.setup.real) + x.b,
    "b H + members first": lambda x: (
        x.b * x.setup.heads + x.h % x.setup.group * x.setup.heads_kv + x.h // x.setup.group
    ),
    "b Hkv + key head": lambda x: x.b * x.setup.heads_kv + x.h // x.setup.group,
}
TILES: dict[str, Callable[[Points], Any]] = {
    "declared Sq": lambda x: tiles(x.setup.sq),
    "sequence's Sq": lambda x: tiles(x.length(0)),
    "longest Sq": lambda x: tiles(max(sq for sq, _ in x.setup.real)),
    "all tokens": lambda x: tiles(x.setup.starts(0)[-1]),
    "declared Sq to 64": lambda x: tiles(round_up(x.setup.sq, 64)),
    "declared Sq to 128": lambda x: tiles(round_up(x.setup.sq, 128)),
    "sequence's Sq to 64": lambda x: tiles((x.length(0) + 63) // 64 * 64),
    "sequence's Sq to 128": lambda x: tiles((x.length(0) + 127) // 128 * 128),
    "declared Skv": lambda x: tiles(x.setup.skv),
}
ROWS: dict[str, Callable[[Points], Tensor]] = {
    "row in sequence": lambda x: x.i,
    "row in pack": lambda x: x.i + x.start(0),
    "row from the end": lambda x: x.i + x.setup.sq - x.length(0),
}
COLUMNS: dict[str, Callable[[Points], Tensor]] = {
    "column in sequence": lambda x: x.j,
    "column in pack": lambda x: x.j + x.start(1),
}
#: Of the offset and what is added to the counter: words 0 and 1, and a shift of the output words.
OFFSETS: dict[str, Callable[[int, Tensor], tuple[Any, Any, int]]] = {
    "offset / 4": lambda o, more: ((o >> 2) + more, 0, 0),
    "64 bits": lambda o, more: ((o >> 2) + more, ((o >> 2) + more) >> 32, 0),
    "high word in c1": lambda o, more: ((o >> 2) + more, o >> 34, 0),
    "offset's low word": lambda o, more: (((o & MASK32) >> 2) + more, 0, 0),
    "words": lambda o, more: ((o >> 2) + more, 0, o % 4),
    "rounded up": lambda o, more: (((o + 3) >> 2) + more, 0, 0),
    "undivided": lambda o, more: (o + more, 0, 0),
}
SEEDS: dict[str, Callable[[int], int]] = {
    "two's complement": lambda seed: seed % 2**64,
    "low word": lambda seed: seed & MASK32,
    "magnitude": abs,
}
#: 1 - p in float64 as the frontend's forward has it, and in float32 as its backward has it.
THRESHOLDS: dict[str, Callable[[float], int]] = {
    "1 - p in float64": keep_threshold,
    "1 - p in float32": lambda p: math.floor(float(np.float32(1) - np.float32(p)) * 65536),
    "rounded": lambda p: round((1 - float(np.float32(p))) * 65536),
}
AXES: dict[str, dict[str, Callable[..., Any]]] = {
    "head": HEADS,
    "tiles": TILES,
    "row": ROWS,
    "column": COLUMNS,
    "offset": OFFSETS,
    "seed": SEEDS,
    "threshold": THRESHOLDS,
}


def hypotheses(vary: tuple[str, ...]) -> Iterator[tuple[str, dict[str, Callable[..., Any]]]]:
    """Every combination of the alternatives of some axes; the documented mapping comes first."""
    documented = {axis: next(iter(choices.values())) for axis, choices in AXES.items()}
    yield "documented", documented
    for names in itertools.product(*(AXES[axis] for axis in vary)):
        chosen = dict(zip(vary, names, strict=True))
        unusual = [name for axis, name in chosen.items() if name != next(iter(AXES[axis]))]
        if unusual:
            changes = {axis: AXES[axis][name] for axis, name in chosen.items()}
            yield ", ".join(unusual), documented | changes


def bits(x: Points, by: dict[str, Callable[..., Any]]) -> Tensor:
    """The 16 bits that decide at each point."""
    i, j = by["row"](x), by["column"](x)
    first, second, shift = by["offset"](x.setup.offset, 8 * by["head"](x) + j % 8)
    word = 2 * (i % 16 // 8) + j % 16 // 8 + shift
    counter = (first + word // 4, second, i // 16 + by["tiles"](x) * (j // 16))
    words = torch.stack(philox(counter, by["seed"](x.setup.seed), i))
    return words.gather(0, (word % 4)[None])[0] >> 16 * (i % 2) & 0xFFFF


def philox(counter: tuple[Any, ...], seed: int, like: Tensor) -> list[Tensor]:
    c0, c1, c2 = (torch.zeros_like(like) + (c & MASK32) for c in counter)
    c3 = torch.zeros_like(like)
    k0, k1 = seed & MASK32, seed >> 32 & MASK32
    for _ in range(ROUNDS):
        p0, p2 = c0 * MULTIPLIERS[0], c2 * MULTIPLIERS[1]
        c0, c1, c2, c3 = (
            (p2 >> 32 & MASK32) ^ c1 ^ k0,
            p2 & MASK32,
            (p0 >> 32 & MASK32) ^ c3 ^ k1,
            p0 & MASK32,
        )
        k0, k1 = (k0 + KEY_STEPS[0]) & MASK32, (k1 + KEY_STEPS[1]) & MASK32
    return [c0, c1, c2, c3]


def sample(setup: Setup, observed: Observed) -> Points:
    """Random places among those that were seen, as many of each sequence."""
    parts = []
    generator = torch.Generator(observed[0].device).manual_seed(0)
    for b, seen in enumerate(observed):
        count = 4 * SAMPLES // len(observed)
        where = [
            torch.randint(size, (count,), generator=generator, device=seen.device)
            for size in seen.shape
        ]
        kept = seen[tuple(where)]
        parts.append(torch.stack([torch.full_like(where[0], b), *where, kept])[:, kept >= 0])
    return Points(setup, *torch.cat(parts, 1))


def telling(setup: Setup, observed: Observed, by: dict[str, Callable[..., Any]]) -> Points:
    """All places whose bits lie between the thresholds that are in question."""
    limits = [function(setup.p) for function in THRESHOLDS.values()]
    parts = []
    for b, seen in enumerate(observed):
        h, i, j = (seen >= 0).nonzero(as_tuple=True)
        x = Points(setup, torch.full_like(h, b), h, i, j, seen[h, i, j].long())
        value = bits(x, by)
        chosen = (value > min(limits)) & (value <= max(limits))
        parts.append(torch.stack([x.b, h, i, j, x.kept])[:, chosen])
    return Points(setup, *torch.cat(parts, 1))


def explain(setup: Setup, observed: Observed, vary: tuple[str, ...]) -> dict[str, Any]:
    """The fraction of decisions that each hypothesis explains: the documented and the best ones."""
    seen = sum(int((part >= 0).sum()) for part in observed)
    visible = sum(
        int(setup.visible(b, part.device).sum()) * setup.heads for b, part in enumerate(observed)
    )
    result: dict[str, Any] = {"written": round(seen / visible, 6)}
    if not seen:
        return result | {"error": "no decision was seen"}
    everything = dict(hypotheses(vary))
    points = (
        telling(setup, observed, everything["documented"])
        if "threshold" in vary
        else sample(setup, observed)
    )
    result["points"] = len(points.b)
    if setup.offset % 4 == 0 and setup.offset < 2**34:
        result["numpy"] = against_numpy(setup, observed)
    kept = points.kept > 0
    generator = torch.Generator(kept.device).manual_seed(0)
    weights = torch.rand(kept.shape, generator=generator, dtype=torch.float64, device=kept.device)
    fractions: dict[float, tuple[float, list[str]]] = {}
    for name, by in everything.items():
        guess = bits(points, by) <= by["threshold"](setup.p)
        right = (guess == kept).double().mean()
        # A sum of random weights tells predictions apart; one transfer brings both numbers.
        same, fraction = torch.stack([(weights * guess).sum(), right]).tolist()
        fractions.setdefault(same, (round(fraction, 6), []))[1].append(name)
    (documented, _), *others = fractions.values()
    best = sorted(others, key=lambda item: -item[0])[:4]
    return result | {"documented": documented} | {label(names): value for value, names in best}


def label(names: list[str]) -> str:
    """The simplest of hypotheses that cannot be told apart here, and how many others there are."""
    return names[0] if len(names) == 1 else f"{names[0]} (or {len(names) - 1} more)"


@lru_cache(maxsize=1)
def numpy_mask(*arguments: Any) -> Any:
    return keep_mask(*arguments)


def against_numpy(setup: Setup, observed: Observed) -> float:
    call = (setup.p, setup.batch, setup.heads, setup.sq, setup.skv)
    mask = numpy_mask(setup.seed, setup.offset, *call)
    agree = total = 0
    for b, part in enumerate(observed):
        seen = part.cpu().numpy()
        expected = mask[b, :, : seen.shape[1], : seen.shape[2]]
        agree += int(((seen == expected) & (seen >= 0)).sum())
        total += int((seen >= 0).sum())
    return round(agree / total, 8)


# ----------------------------------------------------------------------------------- questions


@dataclass(frozen=True)
class Question:
    name: str
    setup: Setup
    ways: tuple[str, ...]
    vary: tuple[str, ...] = ("head", "tiles")
    every_plan: bool = False


BASE = Setup()
MIXED = ((200, 130), (77, 256), (256, 16), (31, 190))
THD = ((300, 300), (77, 77), (16, 16), (131, 131), (1, 1))
CROSS = ((200, 130), (77, 256), (16, 33), (131, 190), (1, 5))
PLACES = ("head", "tiles", "row", "column")
ALL = tuple(WAYS)
FORWARD = ("forward dump", "output")
SHORT = ("forward dump", "gradient")
TINY = 2.0**-16 + 2.0**-30


@dataclass
class Questions:
    """In order of importance: what does not fit into the time is left out from the end."""

    items: list[Question] = field(default_factory=list)

    def add(self, name: str, ways: tuple[str, ...] = SHORT, **changes: Any) -> None:
        vary = changes.pop("vary", ("head", "tiles"))
        every_plan = changes.pop("every_plan", False)
        self.items.append(Question(name, replace(BASE, **changes), ways, vary, every_plan))


def questions() -> list[Question]:
    ask = Questions()
    wide = {"heads": 6, "heads_kv": 2}
    ask.add("a dense", ALL, sq=208, skv=272)
    ask.add("b GQA", ALL, **wide)
    ask.add("b MQA", heads=4, heads_kv=1, sq=100)
    padded = {"batch": 4, "sq": 272, "skv": 304, "lengths": MIXED, "vary": PLACES}
    ask.add("c padding", ALL, **padded)
    packed = {"batch": 5, "sq": 336, "skv": 352, "lengths": THD, "packed": True, "vary": PLACES}
    ask.add("d THD, true batch", ALL, **packed)
    bucketed = packed | {"batch": 32, "sq": 1024, "skv": 1024}
    ask.add("d THD, batch 32 and token bucket", ALL, **bucketed)
    ask.add("d THD, cross lengths", ALL, **packed | {"lengths": CROSS})
    ask.add("d THD, GQA, causal", ALL, **packed, **wide, right=0)
    ask.add("e every plan", ALL, every_plan=True, sq=200, skv=264, d=128, vary=("tiles",))
    ask.add("e every plan, causal", every_plan=True, sq=320, skv=320, right=0, vary=("tiles",))
    ask.add("e without statistics", FORWARD, every_plan=True, stats=False)
    for offset in (1, 2, 3, 18):
        ask.add(f"f offset {offset}", ("forward dump",), offset=offset, vary=("offset",))
    for name, offset in (
        *(("2^32", 2**32), ("2^32 + 16", 2**32 + 16), ("2^34 - 16", 2**34 - 16)),
        *(("2^34 + 16", 2**34 + 16), ("2^40 + 16", 2**40 + 16)),
    ):
        ask.add(f"f offset {name}", ("forward dump",), offset=offset, vary=("offset",))
    for seed in (-1, -(2**40) - 12345, 2**31 + 5, 2**63 - 1):
        ask.add(f"f seed {seed}", seed=seed, vary=("seed",))
    ask.add("g 128 heads", batch=4, heads=32, heads_kv=32, sq=512, skv=320, d=128)
    ask.add("g Sq 4608", batch=1, sq=4608, skv=320, d=128)
    ask.add("g Skv 4608", batch=1, sq=320, skv=4608, d=128)
    ask.add("g D 256", d=256)
    ask.add("g fp16, D 128", d=128, dtype=torch.float16, sq=200, skv=100)
    ask.add("g D 32, p 0.1", d=32, p=0.1)
    ask.add("h bias", bias=True)
    ask.add("h bias, causal", bias=True, right=0)
    ask.add("h causal", right=0)
    ask.add("h sliding window", left=65, right=0)
    ask.add("h padding, causal", **padded, right=0)
    ask.add("i deterministic", ("gradient", "backward dump"), deterministic=True)
    ask.add("i deterministic, THD", ("gradient",), deterministic=True, **packed)
    for p in (TINY, 0.25 + 2.0**-25):
        big = {"sq": 1024, "skv": 1024, "heads": 4, "heads_kv": 4, "vary": ("threshold",)}
        ask.add(f"j threshold of p = {p!r}", p=p, **big)
    return ask.items


def text_of(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def answer(runner: Runner, question: Question) -> Iterator[tuple[str, dict[str, Any]]]:
    """What every way, and where it is asked for every plan, shows."""
    setup = question.setup
    ways = list(question.ways)
    for name in ways:  # grows: where a dump is refused, what is read back has to do
        way, direction, dump = WAYS[name]
        label = f"{question.name}: {name}"
        try:
            plans: dict[int | None, str] = {None: ""}
            if question.every_plan:
                call = runner.call(setup, direction, dump)
                plans = {i: f" {call.graph.get_plan_name_at_index(i)}" for i in call.plans()}
        except Exception as error:  # noqa: BLE001 (one failure must not end the script)
            yield label, {"error": text_of(error)}
            plans = {}
        failed = not plans
        for plan, plan_name in plans.items():
            try:
                observed = way(runner, setup, direction, plan)
                result = explain(setup, observed, question.vary)
            except Exception as error:  # noqa: BLE001 (as above)
                result = {"error": text_of(error)}
            failed |= "error" in result
            yield label + plan_name, result
        instead = "output" if direction == "forward" else "gradient"
        if failed and instead not in ways:
            ways.append(instead)


def dry_answer(target: dict[str, Any], question: Question) -> Iterator[tuple[str, dict[str, Any]]]:
    """Whether every graph of a question is planned and compiles, without a device."""
    for name in question.ways:
        _, direction, dump = WAYS[name]
        label = f"{question.name}: {name}"
        try:
            call = Call(target, question.setup, direction, dump)
            built = [call.build(plan) for plan in (call.plans() if question.every_plan else [None])]
            plans = [call.graph.get_plan_name_at_index(i) for i in built]
            yield label, {"plans": ", ".join(plans), "offered": len(call.plans())}
        except Exception as error:  # noqa: BLE001 (as above)
            yield label, {"error": text_of(error)}


def dry_target() -> dict[str, Any]:
    deviceless.prepare()
    device = DeviceSpec.named("h200")
    return {
        "sm_version": device.sm,
        "device_property": cudnn.create_device_properties(device.properties),
    }


def show(label: str, result: dict[str, Any], seconds: float) -> None:
    shown = ", ".join(f"{name} = {value}" for name, value in result.items())
    print(f"{seconds:6.1f} s  {label:<48} {shown}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Find out cuDNN's mapping of dropout bits.")
    parser.add_argument("out", nargs="?", default=os.environ.get("OUT", "."), type=Path)
    parser.add_argument("--dry-run", action="store_true", help="build the graphs, run nothing")
    parser.add_argument("--only", default="", help="first letters of questions: a,c,d")
    parser.add_argument("--seconds", type=float, default=110, help="start no question later")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    file = arguments.out / "dropout_mapping.json"
    only = tuple(arguments.only.split(","))
    begin = time.monotonic()
    results: dict[str, dict[str, Any]] = {
        "versions": {"cudnn": cudnn.backend_version(), "frontend": cudnn.__version__}
    }
    runner = None if arguments.dry_run else Runner()
    target = dry_target() if arguments.dry_run else {}
    for question in questions():
        if not question.name.startswith(only):
            continue
        late = time.monotonic() - begin > arguments.seconds
        if late:
            results[question.name] = {"error": "left out: out of time"}
            file.write_text(json.dumps(results, indent=1) + "\n")
            show(question.name, results[question.name], time.monotonic() - begin)
            continue
        found = answer(runner, question) if runner else dry_answer(target, question)
        for label, result in found:
            results[label] = result
            file.write_text(json.dumps(results, indent=1) + "\n")
            show(label, result, time.monotonic() - begin)


if __name__ == "__main__":
    main()
