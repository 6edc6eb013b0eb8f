// The extension module sdpa_ffi._native.

#include <map>
#include <string>

#include "counters.h"
#include "cudnn_library.h"
#include "dlpack_abi.h"
#include "graph.h"
#include "loaded_plan.h"
#include "loaded_plan_type.h"
#include "operand_names.h"
#include "py_operands.h"
#include "py_support.h"
#include "registry.h"
#include "xla_handlers.h"

namespace sdpa_ffi::py {
namespace {

// Raised whenever the meaning of a call into this module, or of the XLA target, changes.
constexpr int kExecutorAbi = 1;

// The name that jaxlib gives its own capsules. A capsule keeps the pointer, so it must be static.
constexpr char kXlaCapsule[] = "xla._CUSTOM_CALL_TARGET";

PyObject* Load(PyObject*, PyObject* args) {
  return Guarded([&]() -> PyObject* {
    Bytes container;
    int device = 0;
    if (!PyArg_ParseTuple(args, "y*i:load", container.view(), &device)) return nullptr;
    auto loaded = [&]() -> Result<const LoadedPlan*> {
      const GilRelease released;  // loading takes milliseconds and may wait for another thread's
      SDPA_FFI_ASSIGN_OR_RETURN(const Plan plan, ParseForLoading(container.span()));
      return Registry::Get().GetOrLoad(plan, device);
    }();
    return loaded.ok() ? NewLoadedPlan(loaded.value()) : Raise(loaded.status());
  });
}

PyObject* Verify(PyObject*, PyObject* args) {
  return Guarded([&]() -> PyObject* {
    Bytes container;
    const char* device_properties = nullptr;
    if (!PyArg_ParseTuple(args, "y*s:verify", container.view(), &device_properties)) return nullptr;
    auto graph = [&]() -> Result<std::unique_ptr<Graph>> {
      const GilRelease released;
      SDPA_FFI_ASSIGN_OR_RETURN(const Plan plan, ParsePlan(container.span()));
      return VerifyPlan(plan, device_properties);
    }();
    if (!graph.ok()) return Raise(graph.status());
    const Graph& verified = *graph.value();
    return Py_BuildValue("(KN)", static_cast<unsigned long long>(verified.workspace_bytes()),
                         UidTuple(verified.uids()));
  });
}

PyObject* BindingTuple(const Binding& binding) {
  return Py_BuildValue("(LKIOs)", static_cast<long long>(binding.uid),
                       static_cast<unsigned long long>(binding.bytes),
                       static_cast<unsigned int>(binding.kind),
                       binding.zero_fill ? Py_True : Py_False, DataTypeName(binding.dtype));
}

PyObject* BindingsTuple(const std::vector<Binding>& bindings) {
  Ref tuple(PyTuple_New(static_cast<Py_ssize_t>(bindings.size())));
  if (tuple == nullptr) return nullptr;
  for (std::size_t i = 0; i < bindings.size(); ++i) {
    PyObject* entry = BindingTuple(bindings[i]);
    if (entry == nullptr) return nullptr;
    PyTuple_SetItem(tuple.get(), static_cast<Py_ssize_t>(i), entry);
  }
  return tuple.release();
}

PyObject* DigestBytes(const Digest& digest) {
  return PyBytes_FromStringAndSize(reinterpret_cast<const char*>(digest.data()),
                                   static_cast<Py_ssize_t>(digest.size()));
}

// The fields of sdpa_ffi.PlanDescription in its order, and apart from them the bindings.
PyObject* Describe(PyObject*, PyObject* container) {
  return Guarded([&]() -> PyObject* {
    Bytes bytes;
    if (PyObject_GetBuffer(container, bytes.view(), PyBUF_SIMPLE) != 0) return nullptr;
    auto plan = ParsePlan(bytes.span());
    if (!plan.ok()) return Raise(plan.status());
    const PlanHeader& header = plan.value().header;
    return Py_BuildValue(
        "((IKKIIIINNN)N)", kPlanFormat, static_cast<unsigned long long>(header.blob_bytes),
        static_cast<unsigned long long>(header.workspace_bytes), header.cudnn_version,
        header.frontend_version, header.sm, header.sm_count, DigestBytes(header.fingerprint),
        DigestBytes(header.payload_sha256),
        // Provenance only: an odd name must not make a good plan unreadable.
        PyUnicode_DecodeUTF8(header.engine.data(), static_cast<Py_ssize_t>(header.engine.size()),
                             "replace"),
        BindingsTuple(header.bindings));
  });
}

PyObject* CheckOperands(PyObject*, PyObject* args) {
  return Guarded([&]() -> PyObject* {
    Bytes container;
    int device = kHostDevice;
    PyObject* operands = nullptr;
    PyObject* scalars = nullptr;
    PyObject* workspace = nullptr;
    if (!PyArg_ParseTuple(args, "y*iOOO:check_operands", container.view(), &device, &operands,
                          &scalars, &workspace)) {
      return nullptr;
    }
    auto plan = ParsePlan(container.span());
    if (!plan.ok()) return Raise(plan.status());
    CallArguments arguments;
    if (!arguments.Read(plan.value().header, operands, scalars, workspace)) return nullptr;
    std::array<void*, kMaxBindings> pointers;
    const Status status = BindOperands(plan.value().header, device, arguments.operands(),
                                       arguments.scalars(), arguments.workspace(), &pointers);
    return status.ok() ? Py_NewRef(Py_None) : Raise(status);
  });
}

PyObject* SetCudnnPath(PyObject*, PyObject* args) {
  return Guarded([&]() -> PyObject* {
    const char* path = nullptr;
    if (!PyArg_ParseTuple(args, "s:set_cudnn_path", &path)) return nullptr;
    CudnnLibrary::SetPathHint(path);
    return Py_NewRef(Py_None);
  });
}

// {uid: role}
PyObject* SetRoles(PyObject*, PyObject* roles) {
  return Guarded([&]() -> PyObject* {
    if (!PyDict_Check(roles)) {
      PyErr_Format(PyExc_TypeError, "roles must be a dict, got %R", Py_TYPE(roles));
      return nullptr;
    }
    std::map<std::int64_t, std::string> by_uid;
    PyObject* uid = nullptr;
    PyObject* role = nullptr;
    for (Py_ssize_t at = 0; PyDict_Next(roles, &at, &uid, &role) != 0;) {
      const long long number = PyLong_AsLongLong(uid);
      const char* text = PyUnicode_AsUTF8AndSize(role, nullptr);
      if (text == nullptr || (number == -1 && PyErr_Occurred() != nullptr)) return nullptr;
      by_uid[number] = text;
    }
    SetOperandRoles(std::move(by_uid));
    return Py_NewRef(Py_None);
  });
}

PyObject* Count(const Counters::Count& count) {
  return PyLong_FromUnsignedLongLong(count.load(std::memory_order_relaxed));
}

PyObject* Seconds(const Counters::Count& nanoseconds) {
  return PyFloat_FromDouble(1e-9 *
                            static_cast<double>(nanoseconds.load(std::memory_order_relaxed)));
}

PyObject* CountersDict(PyObject*, PyObject*) {
  return Py_BuildValue(
      "{s:N,s:N,s:N,s:N,s:N,s:N,s:N,s:N,s:N,s:N}", "loads", Count(counters.loads), "load_failures",
      Count(counters.load_failures), "executes", Count(counters.executes), "execute_failures",
      Count(counters.execute_failures), "zero_fills", Count(counters.zero_fills), "handles_created",
      Count(counters.handles_created), "parse_seconds", Seconds(counters.parse_ns),
      "handle_seconds", Seconds(counters.handle_ns), "deserialize_seconds",
      Seconds(counters.deserialize_ns), "check_seconds", Seconds(counters.check_ns));
}

PyObject* XlaTargetCapsules(PyObject*, PyObject*) {
  const XlaHandlers handlers = GetXlaHandlers();
  return Py_BuildValue("{s:N,s:N,s:N}", "instantiate",
                       PyCapsule_New(handlers.instantiate, kXlaCapsule, nullptr), "initialize",
                       PyCapsule_New(handlers.initialize, kXlaCapsule, nullptr), "execute",
                       PyCapsule_New(handlers.execute, kXlaCapsule, nullptr));
}

PyObject* XlaTypeCapsules(PyObject*, PyObject*) {
  const XlaStateType type = GetXlaStateType();
  return Py_BuildValue("{s:N,s:N}", "type_id", PyCapsule_New(type.type_id, nullptr, nullptr),
                       "type_info", PyCapsule_New(type.type_info, nullptr, nullptr));
}

PyObject* BuildInfo(PyObject*, PyObject*) {
  const XlaApiVersion xla = GetXlaApiVersion();
  return Py_BuildValue("{s:i,s:I,s:I,s:(ii),s:(II)}", "executor_abi", kExecutorAbi, "plan_format",
                       kPlanFormat, "cudnn_frontend", CompiledFrontendVersion(), "xla_ffi",
                       xla.major, xla.minor, "dlpack", dlpack::kMajorVersion,
                       dlpack::kMinorVersion);
}

PyMethodDef functions[] = {
    {"load", Load, METH_VARARGS, nullptr},
    {"verify", Verify, METH_VARARGS, nullptr},
    {"describe", Describe, METH_O, nullptr},
    {"check_operands", CheckOperands, METH_VARARGS, nullptr},
    {"set_cudnn_path", SetCudnnPath, METH_VARARGS, nullptr},
    {"set_roles", SetRoles, METH_O, nullptr},
    {"counters", CountersDict, METH_NOARGS,
     "counters()\n--\n\n"
     "What the executor has done in this process, as a dict; PyTorch and JAX count together.\n\n"
     "loads, load_failures: plans loaded, and attempts that were refused or failed.\n"
     "executes, execute_failures: calls enqueued, and calls that were refused or failed.\n"
     "zero_fills: outputs cleared. handles_created: cuDNN handles made.\n"
     "parse_seconds, handle_seconds, deserialize_seconds, check_seconds: time in the stages of\n"
     "  loading: reading containers, cudnnCreate, cuDNN reading plans, and comparing versions,\n"
     "  device and operands."},
    {"xla_target", XlaTargetCapsules, METH_NOARGS, nullptr},
    {"xla_type", XlaTypeCapsules, METH_NOARGS, nullptr},
    {"build_info", BuildInfo, METH_NOARGS,
     "build_info()\n--\n\n"
     "What the native module was compiled with, as a dict: executor_abi, plan_format,\n"
     "cudnn_frontend (major * 10000 + minor * 100 + patch), xla_ffi and dlpack (major, minor)."},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                          "sdpa_ffi._native",
                          "Native half of sdpa_ffi; use that.",
                          /*m_size=*/-1,  // one registry per process, so one interpreter
                          functions,
                          nullptr,
                          nullptr,
                          nullptr,
                          nullptr};

}  // namespace
}  // namespace sdpa_ffi::py

PyMODINIT_FUNC PyInit__native() {
  using namespace sdpa_ffi::py;
  Ref module(PyModule_Create(&definition));
  if (module == nullptr || !AddLoadedPlanType(module.get()) ||
      PyModule_AddIntConstant(module.get(), "EXECUTOR_ABI", kExecutorAbi) != 0) {
    return nullptr;
  }
  return module.release();
}
