"""The script that shows cuDNN's faults: cuDNN checks every graph of it here, and nothing is run."""

from __future__ import annotations

import json
import sys
from importlib import import_module

import numpy as np
import pytest
import torch
from cudnn_faults import oracle, report
from cudnn_faults.__main__ import main
from cudnn_faults.compare import Count, any_wrong, differing, words, wrong
from cudnn_faults.fault import Fault, Finding, Outcome, Shown, State, found
from cudnn_faults.graph import RefusedError, packed
from cudnn_faults.kinds import FAULTS
from cudnn_faults.machine import Absent

from sdpa_core.cudnn.known_bad import ROWS
from sdpa_core.problem import Softmax
from sdpa_core.testing import attention, attention_backward

#: What cuDNN refuses without our remedy.
REFUSED = {"the gradient of a float32 bias, in float32"}
BUILT = Outcome(State.BUILT, "nothing was run")


@pytest.fixture(scope="module")
def h200() -> Absent:
    return Absent("h200", compiles=False)


class TestFaults:
    @pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
    def test_every_graph_is_built(self, h200, fault):
        finding = found(fault, h200)
        assert finding.remedied == (None if fault.remedy is None else BUILT)
        if fault.name in REFUSED:
            assert finding.as_it_is.state is State.REFUSED
        else:
            assert finding.as_it_is == BUILT

    def test_names_are_unique(self):
        assert len({fault.name for fault in FAULTS}) == len(FAULTS)

    def test_every_row_that_was_seen_on_the_gpu_is_shown(self):
        seen = {row.name for row in ROWS if "H200" in row.source}
        assert seen
        assert seen <= {fault.held for fault in FAULTS}

    def test_what_holds_a_fault_exists(self):
        rows = {row.name: row for row in ROWS}
        for fault in FAULTS:
            if fault.held in rows:
                assert (fault.remedy is None) == (rows[fault.held].remedy == "refuse")
            else:
                assert import_module(fault.held)


class Running:
    """A machine on which something runs."""

    runs = True
    device = torch.device("cpu")
    name = "NVIDIA A, of tests"


def faulty(machine, remedied):
    return Shown(not remedied, "nothing" if remedied else "dQ 3 of 4")


def refused(machine, remedied):
    raise RefusedError("no engine")


def failing(machine, remedied):
    raise RuntimeError("an illegal\nmemory access")


GIVEN = [
    Fault("faulty", "row [of] a table", "a remedy", faulty),
    Fault("fine", "module", None, lambda machine, remedied: Shown(False, "nothing")),
    Fault("refused", "module", None, refused),
    Fault("failing", "module", None, failing),
]


class TestFindings:
    def test_states(self):
        findings = [found(fault, Running()) for fault in GIVEN]
        assert findings == [
            Finding(Outcome(State.PRESENT, "dQ 3 of 4"), Outcome(State.GONE, "nothing")),
            Finding(Outcome(State.GONE, "nothing"), None),
            Finding(Outcome(State.REFUSED, "no engine"), None),
            Finding(Outcome(State.FAILED, "RuntimeError: an illegal memory access"), None),
        ]

    def test_json(self):
        told = json.loads(report.as_json(report.versions(Running()), self.findings()))
        assert set(told["versions"]) == {"cudnn", "frontend", "gpu"}
        assert told["faults"][0] == {
            "fault": "faulty",
            "held": "row [of] a table",
            "state": "present",
            "figure": "dQ 3 of 4",
            "remedy": "a remedy",
            "remedied": {"state": "gone", "figure": "nothing"},
        }
        assert told["faults"][1]["remedied"] is None

    @pytest.mark.parametrize("rich", [True, False])
    def test_table(self, capsys, monkeypatch, rich):
        if not rich:
            monkeypatch.setitem(sys.modules, "rich.console", None)
        report.print_table(report.versions(Running()), self.findings())
        text = capsys.readouterr().out
        for part in ("cuDNN 9.", "NVIDIA A, of tests", "row [of] a table", "dQ 3 of 4", "present"):
            assert part in text

    def findings(self):
        return [(fault, found(fault, Running())) for fault in GIVEN]


class TestCommandLine:
    def test_dry_run(self, capsys):
        assert main(["--dry-run", "--json", "--only", "negative scale"]) == 0
        (fault,) = json.loads(capsys.readouterr().out)["faults"]
        assert (fault["fault"], fault["state"]) == ("a negative scale: NaN", "built")

    def test_a_failure_is_the_exit_status(self, capsys, monkeypatch):
        monkeypatch.setattr("cudnn_faults.__main__.FAULTS", GIVEN)
        assert main(["--dry-run", "--only", "failing"]) == 1
        assert "not found out" in capsys.readouterr().out


class TestCounting:
    def test_nan_and_large_differences_are_wrong(self):
        want = {"dQ": torch.ones(4), "LSE": torch.tensor([-torch.inf, 5.0])}
        got = {
            "dQ": torch.tensor([1.02, 1.5, torch.nan, torch.inf]),
            "LSE": torch.tensor([-torch.inf, 5.1]),
        }
        counts = wrong(got, want)
        assert counts == {"dQ": Count(3, 4), "LSE": Count(1, 2)}
        assert words(counts) == "dQ 3 of 4, LSE 1 of 2"
        assert any_wrong(counts)
        assert not any_wrong(wrong(want, want))
        assert words(wrong(want, want)) == "nothing"

    def test_values_that_differ_in_any_run(self):
        tensor, runs = torch.zeros(3), iter(range(100))

        def run():
            tensor.copy_(torch.tensor([torch.nan, 0.0, float(next(runs) == 2)]))

        assert differing(run, {"LSE": tensor}, 5) == ({"LSE": Count(1, 3)}, 1)


class TestInputs:
    def test_packed_views_keep_their_strides(self):
        cu_seqlens = torch.tensor([0, 5, 7], dtype=torch.int32)
        view = torch.zeros(7, 3, 4, 8).unbind(1)[1]
        operand = packed(view, cu_seqlens, 6)
        assert operand.dim == (2, 4, 6, 8)
        assert operand.stride == (6 * 96, 8, 96, 1)
        assert operand.starts.memory.flatten().tolist() == [0, 5 * 96, 7 * 96]

    def test_the_oracle_is_that_of_the_library(self):
        generator = torch.Generator().manual_seed(0)
        shapes = ((2, 4, 5, 8), (2, 2, 7, 8), (2, 2, 7, 8), (2, 4, 5, 8))
        operands = [torch.randn(*shape, generator=generator) for shape in shapes]
        sink = torch.randn(1, 4, 1, 1, generator=generator)
        bias = torch.randn(2, 1, 1, 7, generator=generator)
        got = oracle.attention(*operands, 0.3, bias=bias, sink=sink)
        query, key, value, grad = (one.double().numpy() for one in operands)
        features = {
            "scale": 0.3,
            "bias": bias.double().numpy(),
            "softmax": Softmax.LEARNABLE,
            "sink": sink.double().numpy().reshape(-1),
        }
        forward = attention(query, key, value, **features)
        backward = attention_backward(query, key, value, grad, **features)
        want = {"O": forward.output, "LSE": forward.lse[..., None]}
        want |= dict(zip(("dQ", "dK", "dV", "dBias", "dSink"), backward, strict=True))
        assert set(want) == set(got)
        for name, one in want.items():
            same_shape = got[name].numpy().reshape(one.shape)
            np.testing.assert_allclose(same_shape, one, rtol=1e-9, atol=1e-12)
