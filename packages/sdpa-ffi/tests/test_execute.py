"""Loading and launching from Python, against a fake driver and a fake cuDNN (fakes/fake.h).

What needs no Python is tested in C++ (cpp/), under sanitizers.

Each test runs in its own interpreter: the fakes take the names of the real libraries.
"""

import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

FAKES = Path(__file__).parent / "fakes"

PRELUDE = """
import ctypes, os, threading, time
fakes = [ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL) for library in {libraries}]
fakes[0].fake_echo(1)
import sdpa_ffi

container = {container}
Q, O, Z, W = 0x1000, 0x2000, 0x3000, 0x4000

def say(*words):
    print(*words, flush=True)  # in order with the lines of the fakes

def run(plan, q=Q, o=O, z=Z, scalars=(0.5,), workspace=W, stream=0x70):
    plan.execute((q, o, z), scalars, workspace, stream)
"""


def ubjson(value):
    """Universal Binary JSON, as far as a plan's blob needs it."""
    if isinstance(value, dict):
        entries = (bytes([ord("U"), len(k)]) + k.encode() + ubjson(v) for k, v in value.items())
        return b"{" + b"".join(entries) + b"}"
    if isinstance(value, list):
        return b"[" + b"".join(map(ubjson, value)) + b"]"
    if isinstance(value, str):
        return bytes([ord("S"), ord("U"), len(value)]) + value.encode()
    return b"L" + struct.pack(">q", value)


BLOB = ubjson(
    {
        "json_version": "2.0",
        "cudnn_frontend_version": 13200,
        "cudnn_backend_data": "a plan",
        "behavior_notes": [[]],
        "variant_pack_uids": [100, 9, 1, 4],
        "variant_pack_replacements": [],
        "fe_workspace_size": 0,
    }
)


@pytest.fixture(scope="module")
def libraries(tmp_path_factory):
    compiler = shutil.which("c++")
    assert compiler, "the fakes need a C++ compiler"
    built = []
    for source, soname in (("libcuda.cc", "libcuda.so.1"), ("libcudnn.cc", "libcudnn.so.9")):
        built.append(str(tmp_path_factory.mktemp("fakes") / soname))
        options = ["-std=c++17", "-shared", "-fPIC", f"-Wl,-soname,{soname}", "-o", built[-1]]
        subprocess.run([compiler, *options, str(FAKES / source)], check=True)
    return built


@pytest.fixture
def lines_of(libraries, Container):
    bindings = [
        (1, 2048, 0, 0, 2, 0),
        (4, 1024, 1, 0, 2, 0),
        (9, 64, 1, 1, 3, 0),
        (100, 0, 2, 0, 3, 0),
    ]

    def run(body, **fields):
        container = Container(bindings=bindings, blob=BLOB, **fields).to_bytes()
        script = PRELUDE.format(libraries=libraries, container=container) + body
        result = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=False
        )
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout.splitlines()

    return run


def test_a_plan_knows_itself(lines_of):
    lines = lines_of("""
plan = sdpa_ffi.load(container, device=1)
say(plan.device, plan.workspace_bytes, plan.uids, plan.num_operands)
""")
    assert lines[-1] == "1 256 (1, 4, 9, 100) 3"


def test_loading_happens_once_and_under_relaxed_capture(lines_of):
    lines = lines_of("""
first = sdpa_ffi.load(container, device=0)
say("again")
second = sdpa_ffi.load(bytes(bytearray(container)), device=0)
""")
    # Mode 2 is relaxed, 0 what was there: once around the load, once around the handle inside it.
    assert lines == [
        "capture mode 2", "capture mode 2", "create handle 1", "capture mode 2", "capture mode 0",
        "again",
    ]  # fmt: skip


def test_execute_passes_operands_in_uid_order(lines_of):
    lines = lines_of("""
plan = sdpa_ffi.load(container, device=0)
say("execute")
run(plan)
""")
    assert lines[lines.index("execute") + 1 :] == [
        "handle 1 stream=0x70",
        "memset 0x3000 0 64 stream=0x70 context=1",
        "execute handle=1 1=0x1000 4=0x2000 9=0x3000 100=0.5 workspace=0x4000",
    ]


def test_zero_fill_covers_all_of_a_sized_operand(lines_of):
    lines = lines_of("run(sdpa_ffi.load(container, device=0), z=(Z, 4096))")
    assert "memset 0x3000 0 4096 stream=0x70 context=1" in lines


def test_the_stream_is_set_only_when_it_changes(lines_of):
    lines = lines_of("""
plan = sdpa_ffi.load(container, device=0)
for stream in (0x70, 0x70, 0x80, 0):
    run(plan, stream=stream)
""")
    set_streams = [line for line in lines if line.startswith("handle")]
    assert set_streams == [f"handle 1 stream={s}" for s in ("0x70", "0x80", "(nil)")]


def test_the_plans_device_is_current_during_the_call_only(lines_of):
    lines = lines_of("""
driver = fakes[0]
driver.cuCtxSetCurrent(ctypes.c_void_p(1))
run(sdpa_ffi.load(container, device=1))
device = ctypes.c_int()
driver.cuCtxGetDevice(ctypes.byref(device))
say("current device", device.value)
""")
    assert "memset 0x3000 0 64 stream=0x70 context=2" in lines
    assert lines[-1] == "current device 0"


def test_each_thread_and_device_has_a_handle_and_ended_threads_pass_theirs_on(lines_of):
    lines = lines_of("""
plans = [sdpa_ffi.load(container, device=d) for d in (0, 1)]
for _ in range(3):
    thread = threading.Thread(target=lambda: [run(plan) for plan in plans])
    thread.start()
    thread.join()
    while len(os.listdir("/proc/self/task")) > 1:  # join() returns before the thread has ended
        time.sleep(0.01)
run(plans[0])
""")
    assert sum(line.startswith("create handle") for line in lines) == 4
    used = [line.split()[1] for line in lines if line.startswith("execute")]
    assert used == [f"handle={h}" for h in (3, 4, 3, 4, 3, 4, 1)]


def test_threads_that_load_one_plan_share_one_load(lines_of):
    lines = lines_of("""
barrier = threading.Barrier(8)
def load():
    barrier.wait()
    sdpa_ffi.load(container, device=0)
threads = [threading.Thread(target=load) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
""")
    assert sum(line.startswith("create handle") for line in lines) == 1


def test_nothing_is_enqueued_when_a_check_fails(lines_of):
    lines = lines_of("""
plan = sdpa_ffi.load(container, device=0)
for wrong in ({"q": 0}, {"o": O + 4}, {"z": (Z, 63)}, {"scalars": ()}, {"workspace": (W, 255)}):
    try:
        run(plan, **wrong)
    except ValueError as error:
        say("refused:", error)
""")
    assert sum(line.startswith("refused:") for line in lines) == 5
    assert not [line for line in lines if line.startswith(("memset", "execute"))]


def test_a_failure_of_cudnn_is_a_runtime_error_with_its_text(lines_of):
    lines = lines_of("""
plan = sdpa_ffi.load(container, device=0)
fakes[0].fake_fail(b"cudnnBackendExecute", 1, 5000)
try:
    run(plan)
except RuntimeError as error:
    say(error)
""")
    assert lines[-1].startswith("cuDNN could not run the plan: ")
    assert "fake" in lines[-1]


REFUSED_LOADS = {
    "version": (
        {"cudnn_version": 91801},
        0,
        (
            "SdpaEnvironmentError the plan was built with cuDNN 9.18.1, the process has cuDNN "
            "9.19.0; rebuild the plan, or run: pip install nvidia-cudnn-cu12==9.18.1.*"
        ),
    ),
    "architecture": (
        {"sm": 100},
        0,
        "ValueError the plan was built for sm100, device 0 is sm90",
    ),
    "device": (
        {},
        2,
        "ValueError device 2 does not exist; the process sees 2 CUDA device(s)",
    ),
    "workspace": (
        {"workspace_bytes": 255},
        0,
        "ValueError the plan declares a workspace of 255 bytes, its graph needs 256",
    ),
}


@pytest.mark.parametrize("name", REFUSED_LOADS)
def test_what_cannot_be_loaded_is_refused(lines_of, name):
    fields, device, message = REFUSED_LOADS[name]
    lines = lines_of(
        f"""
for attempt in range(2):  # a failure is not remembered as a success
    try:
        sdpa_ffi.load(container, device={device})
    except Exception as error:
        say(type(error).__name__, error)
""",
        **fields,
    )
    assert [line for line in lines if line.split()[0].endswith("Error")] == [message] * 2


def test_operands_are_named_by_uid_and_role(lines_of):
    lines = lines_of("""
plan = sdpa_ffi.load(container, device=0)
for wrong in ({"q": 8}, {"o": (O, 1023)}, {"scalars": ()}, {"q": "text"}):
    try:
        run(plan, **wrong)
    except (TypeError, ValueError) as error:
        say("refused:", error)
try:
    plan.execute((Q, O), (0.5,), W, 0)
except ValueError as error:
    say("refused:", error)
""")
    refused = [line.removeprefix("refused: ") for line in lines if line.startswith("refused: ")]
    assert refused[0].startswith("query (uid 1): the pointer is 8 bytes past")
    assert refused[1].startswith("output (uid 4): 1023 bytes are addressable")
    assert refused[2] == "the plan has 1 host scalars, got 0; it wants scale (uid 100)"
    assert refused[3].startswith("query (uid 1): an operand is a tensor whose type has")
    assert refused[4] == (
        "the plan has 3 device operands, got 2; "
        "it wants query (uid 1), output (uid 4), grad_value (uid 9)"
    )


def test_counters_tell_what_was_done(lines_of):
    lines = lines_of("""
before = sdpa_ffi.counters()
say(sorted(set(before.values())))
plan = sdpa_ffi.load(container, device=0)
sdpa_ffi.load(container, device=0)
run(plan)
run(plan)
for call in (lambda: run(plan, q=0), lambda: sdpa_ffi.load(container[:-1], device=0)):
    try:
        call()
    except ValueError:
        pass
after = sdpa_ffi.counters()
say({name: count for name, count in after.items() if isinstance(count, int)})
say(all(after[f"{stage}_seconds"] > 0 for stage in ("parse", "handle", "deserialize", "check")))
""")
    assert lines[0] == "[0]"
    assert lines[-2] == str(
        {
            "loads": 1,
            "load_failures": 1,
            "executes": 2,
            "execute_failures": 1,
            "zero_fills": 2,
            "handles_created": 1,
        }
    )
    assert lines[-1] == "True"


def test_a_load_that_cannot_be_made_safe_for_a_capture_names_the_warm_up(lines_of):
    lines = lines_of("""
fakes[0].fake_fail(b"cuThreadExchangeStreamCaptureMode", 1, 1)
try:
    sdpa_ffi.load(container, device=0)
except RuntimeError as error:
    say(error)
""")
    assert lines == [
        (
            "cuThreadExchangeStreamCaptureMode failed: fake error (1); "
            "run the call once before the capture, which loads its plan"
        )
    ]


def test_the_doctor_sees_driver_devices_and_cudnn(lines_of):
    lines = lines_of("""
from sdpa_ffi.doctor.machine import gather
fakes[0].fake_echo(0)
found = gather()
say(found.driver)
say(found.cudnn.how, found.cudnn.version, found.cudnn.cuda)
fakes[0].fake_fail(b"cuInit", 1, 100)
say(gather().driver)
""")
    gpu = "Gpu(name='a fake GPU', sm=90, memory_bytes=85899345920)"
    assert lines == [
        f"Driver(cuda=12090, gpus=({gpu}, {gpu}), error='')",
        "loaded already 91900 12090",
        "Driver(cuda=12090, gpus=(), error='fake error (100)')",
    ]
