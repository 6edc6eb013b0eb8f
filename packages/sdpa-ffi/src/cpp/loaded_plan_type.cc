#include "loaded_plan_type.h"

#include "executor.h"
#include "py_operands.h"

namespace sdpa_ffi::py {
namespace {

struct PlanObject {
  PyObject_HEAD const LoadedPlan* plan;
};

PyTypeObject* plan_type = nullptr;  // set once, when the module is created

const LoadedPlan& PlanOf(PyObject* self) { return *reinterpret_cast<PlanObject*>(self)->plan; }

void Dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(reinterpret_cast<PyObject*>(type));  // instances of heap types own a reference to them
}

PyObject* GetDevice(PyObject* self, void*) { return PyLong_FromLong(PlanOf(self).device.ordinal); }

PyObject* GetWorkspaceBytes(PyObject* self, void*) {
  return PyLong_FromUnsignedLongLong(PlanOf(self).header.workspace_bytes);
}

PyObject* GetUids(PyObject* self, void*) { return UidTuple(PlanOf(self).graph->uids()); }

PyObject* GetNumOperands(PyObject* self, void*) {
  return PyLong_FromSize_t(PlanOf(self).header.device_operands());
}

// The GIL stays held: enqueueing takes about ten microseconds, which a handover could exceed.
PyObject* ExecutePlan(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  return Guarded([&]() -> PyObject* {
    if (count != 4) {
      PyErr_Format(PyExc_TypeError,
                   "execute(operands, scalars, workspace, stream) takes 4 arguments, got %zd",
                   count);
      return nullptr;
    }
    CallArguments arguments;
    if (!arguments.Read(PlanOf(self).header, args[0], args[1], args[2])) return nullptr;
    const auto stream = static_cast<CUstream>(PyLong_AsVoidPtr(args[3]));
    if (stream == nullptr && PyErr_Occurred() != nullptr) return nullptr;
    const Status status = Execute(PlanOf(self), arguments.operands(), arguments.scalars(),
                                  arguments.workspace(), stream);
    return status.ok() ? Py_NewRef(Py_None) : Raise(status);
  });
}

PyMethodDef methods[] = {
    {"execute", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(ExecutePlan)),
     METH_FASTCALL,
     "execute(operands, scalars, workspace, stream, /)\n--\n\n"
     "Enqueue the plan on a CUDA stream; returns before it has run.\n\n"
     "operands: one per device binding, in ascending uid. Each is a tensor whose type has\n"
     "  __dlpack_c_exchange_api__ (torch.Tensor), an int device address, or (address, nbytes).\n"
     "scalars: tuple of floats, one per host scalar, in ascending uid.\n"
     "workspace: like an operand, workspace_bytes long; None if that is 0.\n"
     "stream: the cudaStream_t as an int.\n\n"
     "Raises ValueError if something does not fit the plan (nothing is enqueued then), and\n"
     "RuntimeError if cuDNN or CUDA fails."},
    {nullptr, nullptr, 0, nullptr},
};

PyGetSetDef properties[] = {
    {"device", GetDevice, nullptr, "Ordinal of the CUDA device.", nullptr},
    {"workspace_bytes", GetWorkspaceBytes, nullptr, "Bytes of device workspace a call needs.",
     nullptr},
    {"uids", GetUids, nullptr, "All uids of the plan, ascending, host scalars included.", nullptr},
    {"num_operands", GetNumOperands, nullptr, "How many device operands a call takes.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

char type_doc[] = "A plan loaded for one CUDA device; made by load().";

PyType_Slot slots[] = {
    {Py_tp_doc, type_doc},
    {Py_tp_dealloc, reinterpret_cast<void*>(Dealloc)},
    {Py_tp_methods, methods},
    {Py_tp_getset, properties},
    {0, nullptr},
};

PyType_Spec spec = {
    "sdpa_ffi._native.LoadedPlan", sizeof(PlanObject), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE, slots};

}  // namespace

bool AddLoadedPlanType(PyObject* module) {
  plan_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  return plan_type != nullptr && PyModule_AddType(module, plan_type) == 0;
}

PyObject* NewLoadedPlan(const LoadedPlan* plan) {
  PyObject* object = PyType_GenericAlloc(plan_type, 0);
  if (object != nullptr) reinterpret_cast<PlanObject*>(object)->plan = plan;
  return object;
}

PyObject* UidTuple(const std::vector<std::int64_t>& uids) {
  Ref tuple(PyTuple_New(static_cast<Py_ssize_t>(uids.size())));
  if (tuple == nullptr) return nullptr;
  for (std::size_t i = 0; i < uids.size(); ++i) {
    PyObject* uid = PyLong_FromLongLong(uids[i]);
    if (uid == nullptr) return nullptr;
    PyTuple_SetItem(tuple.get(), static_cast<Py_ssize_t>(i), uid);
  }
  return tuple.release();
}

}  // namespace sdpa_ffi::py
