"""The checks made before every launch, and the reading of operands, on tensors in host memory."""

import ctypes
import importlib.util

import pytest

import sdpa_ffi

Q, O, Z, W = 0x1000, 0x2000, 0x3000, 0x4000  # noqa: E741  (looked at, never followed)
GOOD = (Q, O, Z)


@pytest.fixture
def check(Container):
    def call(operands=GOOD, scalars=(0.5,), workspace=W, device=0):
        sdpa_ffi.check_operands(Container().to_bytes(), operands, scalars, workspace, device=device)

    return call


def test_good_operands_pass(check):
    check()
    check(operands=((Q, 2048), (O, 1024), (Z, 64)), workspace=(W, 256))


WRONG = {
    "too few": ({"operands": (Q, O)}, "3 device operands, got 2"),
    "too many": ({"operands": (Q, O, Z, W)}, "3 device operands, got 4"),
    "no scalar": ({"scalars": ()}, "1 host scalars, got 0"),
    "null": (
        {"operands": (0, O, Z)},
        r"query \(uid 1\): the pointer is null, the plan needs 2048 bytes",
    ),
    "misaligned": (
        {"operands": (Q, O + 8, Z)},
        r"output \(uid 4\): the pointer is 8 bytes past a multiple of 16",
    ),
    "too small": (
        {"operands": (Q, (O, 1023), Z)},
        r"output \(uid 4\): 1023 bytes are addressable, .* needs 1024",
    ),
    "no workspace": ({"workspace": None}, "workspace: the pointer is null, the plan needs 256"),
    "small workspace": ({"workspace": (W, 255)}, "workspace: 255 bytes are addressable, .* 256"),
    "misaligned workspace": ({"workspace": W + 1}, "workspace: the pointer is 1 bytes past"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_fit_is_refused_with_both_numbers(check, name):
    arguments, match = WRONG[name]
    with pytest.raises(ValueError, match=match):
        check(**arguments)


def test_no_plan_has_more_operands_than_a_call_can_hold(check):
    with pytest.raises(ValueError, match="no plan has more than 128"):
        check(operands=(Q,) * 129)


@pytest.mark.parametrize(
    "arguments",
    [
        {"operands": [Q, O, Z]},
        {"operands": ("a", O, Z)},
        {"operands": ((Q,), O, Z)},
        {"scalars": ("x",)},
        {"scalars": [0.5]},
        {"workspace": 1.5},
    ],
)
def test_unreadable_arguments_are_type_errors(check, arguments):
    with pytest.raises(TypeError):
        check(**arguments)


def test_an_address_that_is_no_pointer_is_refused(check):
    with pytest.raises(OverflowError):
        check(operands=(2**65, O, Z))


class Producer:
    """A type with the exchange attribute but without a usable table behind it."""

    __dlpack_c_exchange_api__ = object()


def test_a_type_with_a_broken_exchange_api_is_a_type_error(check):
    with pytest.raises(TypeError, match="__dlpack_c_exchange_api__"):
        check(operands=(Producer(), O, Z))


def test_a_newer_dlpack_major_version_is_a_type_error(check):
    table = (ctypes.c_uint64 * 7)(2)  # version 2.0, everything else null
    name = b"dlpack_exchange_api"
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = (
        ctypes.py_object,
        [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p],
    )
    newer = type("Newer", (), {"__dlpack_c_exchange_api__": new(table, name, None)})
    with pytest.raises(TypeError, match="__dlpack_c_exchange_api__"):
        check(operands=(newer(), O, Z))


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
class TestTorch:
    @pytest.fixture
    def torch(self):
        return pytest.importorskip("torch")

    @pytest.fixture
    def tensors(self, torch):
        return {
            "q": torch.empty(1024, dtype=torch.bfloat16),
            "o": torch.empty(512, dtype=torch.bfloat16),
            "z": torch.empty(16, dtype=torch.float32),
        }

    def call(self, check, tensors, device=-1, **replaced):
        # 1-D tensors of 64 bytes and more are aligned to 64 by torch's CPU allocator.
        check(operands=tuple({**tensors, **replaced}.values()), device=device)

    def test_tensors_are_read(self, check, tensors):
        self.call(check, tensors)

    def test_parameters_and_tensors_that_require_grad_are_read(self, check, tensors, torch):
        self.call(check, tensors, q=torch.nn.Parameter(tensors["q"]))

    def test_any_layout_that_reaches_far_enough_will_do(self, check, tensors):
        self.call(check, tensors, q=tensors["q"].view(32, 32).t())
        self.call(check, tensors, o=tensors["q"].view(2, 512)[:, :256])  # reaches over 768 elements

    def test_the_reach_counts_not_the_storage(self, check, tensors):
        with pytest.raises(
            ValueError, match=r"query \(uid 1\): 2046 bytes are addressable, the plan needs 2048"
        ):
            self.call(check, tensors, q=tensors["q"][:-1])

    def test_an_expanded_tensor_reaches_over_one_copy(self, check, tensors):
        with pytest.raises(ValueError, match=r"query \(uid 1\): 2 bytes are addressable"):
            self.call(check, tensors, q=tensors["q"][:1].expand(1024))

    def test_an_empty_tensor_has_no_memory(self, check, tensors):
        with pytest.raises(ValueError, match=r"query \(uid 1\): (the pointer is null|0 bytes)"):
            self.call(check, tensors, q=tensors["q"][:0])

    def test_a_view_with_gaps_cannot_be_zero_filled(self, check, tensors, torch):
        with pytest.raises(ValueError, match=r"grad_value \(uid 9\): .* must have no gaps"):
            self.call(check, tensors, z=torch.empty(32, 2)[:, 0])

    def test_dtype_must_agree(self, check, tensors, torch):
        with pytest.raises(
            ValueError, match=r"query \(uid 1\): the operand is float16, the plan needs bfloat16"
        ):
            self.call(check, tensors, q=torch.empty(1024, dtype=torch.float16))

    def test_device_must_agree(self, check, tensors):
        with pytest.raises(
            ValueError, match=r"query \(uid 1\): .* in host memory, the plan runs on CUDA device 0"
        ):
            self.call(check, tensors, device=0)

    def test_every_dtype_of_the_format_is_read(self, torch, Container):
        codes = {
            "float16": 1, "bfloat16": 2, "float32": 3, "int32": 4, "int64": 5, "uint8": 6,
            "float8_e4m3fn": 7, "float8_e5m2": 8, "float8_e8m0fnu": 9, "bool": 10, "float64": 11,
        }  # fmt: skip
        for name, code in codes.items():
            tensor = torch.empty(64, dtype=getattr(torch, name))
            bindings = [(1, tensor.nbytes, 0, 0, code, 0)]
            container = Container(bindings=bindings, workspace_bytes=0).to_bytes()
            sdpa_ffi.check_operands(container, (tensor,))

    def test_other_dtypes_are_refused(self, check, tensors, torch):
        with pytest.raises(ValueError, match="cannot be an operand"):
            self.call(check, tensors, q=torch.empty(1024, dtype=torch.complex64))

    def test_a_tensor_that_cannot_be_read_is_named(self, check, tensors, torch):
        with pytest.raises(ValueError, match=r"output \(uid 4\): a tensor with DLPack type code"):
            self.call(check, tensors, o=torch.empty(512, dtype=torch.complex64))
