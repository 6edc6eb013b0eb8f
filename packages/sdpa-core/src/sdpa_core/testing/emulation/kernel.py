"""The kernel: from operands as they are placed to results as they would lie."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import NoBackendError
from ...paged import INFERENCE_ONLY
from ...reasons import Unsupported
from ..case import Case, Inputs
from ..packing import Packing
from ..placement import Placed, place_all
from ..rounding import round_to
from ..subject import DropoutState, Result
from .arithmetic import Arithmetic, Floats
from .call import Call


class EmulatedKernel(Arithmetic):
    """A subject of the conformance suite."""

    name = "emulated kernel"

    def refusal(self, case: Case, *, training: bool, **options: bool) -> tuple[Unsupported, ...]:
        return (INFERENCE_ONLY,) if training and case.page_size is not None else ()

    def run(
        self,
        case: Case,
        inputs: Inputs,
        *,
        training: bool,
        return_lse: bool,
        return_max_logit: bool = False,
        deterministic: bool = False,
    ) -> Result:
        if training and case.page_size is not None:
            raise NoBackendError(f"paged attention is for inference: {INFERENCE_ONLY}")
        with np.errstate(all="ignore"):
            call = Call(self, case, self.read(case, inputs))
            arrays: dict[str, NDArray[Any]] = {"output": call.output}
            if return_lse:
                arrays["lse"] = self.lse(call.lse[..., 0])
            if return_max_logit:
                arrays["max_logit"] = self.max_logit(call)
            if training:
                arrays |= call.gradients(inputs)
            return self.result(arrays, case)

    def read(self, case: Case, inputs: Inputs) -> dict[str, NDArray[Any]]:
        """All operands from memory; query, key and value padded, with 0 past the lengths."""
        placed = place_all(case, inputs)
        found: dict[str, NDArray[Any]] = {name: x.read() for name, x in placed.items()}
        packings = {"query": case.packing_q, "key": case.packing_kv, "value": case.packing_kv}
        packings["grad_output"] = case.packing_q
        for name, packing in packings.items():
            found[name] = self.unpacked(placed[name], packing)
        if case.page_size is not None:
            for name, table in (("key", "page_table_k"), ("value", "page_table_v")):
                found[name] = self.gathered(found[name], found[table], case)
        for name in ("query", "grad_output"):
            found[name] = np.where(self.exists_q(case)[:, None, :, None], found[name], 0)
        for name in ("key", "value"):
            found[name] = np.where(self.exists_kv(case)[:, None, :, None], found[name], 0)
        return found

    def unpacked(self, placed: Placed, packing: Packing | None) -> NDArray[Any]:
        return placed.read() if packing is None else packing.unpack(placed.read())

    def gathered(self, pool: NDArray[Any], table: NDArray[Any], case: Case) -> NDArray[Any]:
        pages = pool[table.astype(np.int64)]
        batch, count, size, heads, head_dim = pages.shape
        rows = pages.reshape(batch, count * size, heads, head_dim)[:, : case.tokens_kv]
        return np.swapaxes(rows, 1, 2)

    def max_logit(self, call: Call) -> Floats:
        largest: Floats = call.logits.max(axis=(0, 2, 3), initial=-np.inf)
        return largest

    def state(self, case: Case) -> DropoutState | None:
        return DropoutState(self.seed) if case.dropout_p else None

    def packed(self, name: str, array: NDArray[Any], case: Case) -> NDArray[Any] | None:
        """A result as it lies packed, gaps included; None if it is not packed."""
        packing = case.packing_kv if name in {"grad_key", "grad_value"} else case.packing_q
        if packing is None or name in {"max_logit", "grad_bias", "grad_sink"}:
            return None
        return packing.pack(array, fill=-np.inf if name == "lse" else 0.0)

    def result(self, arrays: dict[str, NDArray[Any]], case: Case) -> Result:
        types = dict.fromkeys(arrays, case.dtype)
        types["grad_bias"] = case.effective_bias_dtype
        rounded, dtypes, gaps = {}, {}, {}
        for name, array in arrays.items():
            single = name in {"lse", "max_logit", "grad_sink"}
            dtypes[name] = "float32" if single else str(types[name])
            exact = array.astype(np.float64)
            rounded[name] = exact if single else round_to(exact, types[name])
            lying = self.packed(name, rounded[name], case)
            packing = case.packing_kv if name in {"grad_key", "grad_value"} else case.packing_q
            if lying is not None and packing is not None:
                gaps[name] = packing.gap_rows(lying)
        return Result(**rounded, dtypes=dtypes, gaps=gaps, dropout=self.state(case))
