#include "py_operands.h"

#include <unordered_map>

#include "dlpack_abi.h"
#include "operand_names.h"
#include "tensor_view.h"

namespace sdpa_ffi::py {
namespace {

// Walks to the table of the major version that dlpack_abi.h describes.
const dlpack::ExchangeApi* Compatible(const dlpack::ExchangeApi* api) {
  while (api != nullptr && api->version.major != dlpack::kMajorVersion) api = api->previous;
  return api != nullptr && api->tensor_from_py_object != nullptr ? api : nullptr;
}

const dlpack::ExchangeApi* QueryExchangeApi(PyObject* type) {
  const Ref capsule(PyObject_GetAttrString(type, dlpack::kExchangeApiAttribute));
  if (capsule == nullptr) {
    PyErr_Clear();
    return nullptr;
  }
  const void* table = PyCapsule_GetPointer(capsule.get(), dlpack::kExchangeApiCapsule);
  if (table == nullptr) PyErr_Clear();
  return Compatible(static_cast<const dlpack::ExchangeApi*>(table));
}

// The exchange table of a type, or null. Guarded by the GIL.
const dlpack::ExchangeApi* ExchangeApiOf(PyTypeObject* type) {
  static auto* known = new std::unordered_map<PyTypeObject*, const dlpack::ExchangeApi*>;
  if (const auto found = known->find(type); found != known->end()) return found->second;
  const auto* api = QueryExchangeApi(reinterpret_cast<PyObject*>(type));
  if (api != nullptr) {
    Py_INCREF(reinterpret_cast<PyObject*>(
        type));  // kept alive, so that no other type can come to have this address
    known->emplace(type, api);
  }
  return api;
}

bool ReadAddress(PyObject* number, Operand* operand) {
  operand->address = PyLong_AsVoidPtr(number);
  return operand->address != nullptr || PyErr_Occurred() == nullptr;
}

bool ReadAddressAndSize(PyObject* pair, Operand* operand) {
  unsigned long long address = 0;
  unsigned long long bytes = 0;
  if (!PyArg_ParseTuple(pair, "KK;an operand's tuple is (address, nbytes)", &address, &bytes)) {
    return false;
  }
  operand->address = reinterpret_cast<void*>(address);
  operand->bytes = bytes;
  return true;
}

// `name` is a function: names are only made for messages.
template <typename Name>
bool ReadTensor(const dlpack::ExchangeApi& api, PyObject* object, const Name& name,
                Operand* operand) {
  dlpack::Tensor tensor;
  if (api.tensor_from_py_object(object, &tensor) != 0) return false;
  auto read = OperandFromTensor(tensor);
  if (!read.ok()) {
    Raise(Status(read.status().code(), Concat(name(), ": ", read.status().message())));
    return false;
  }
  *operand = read.value();
  return true;
}

template <typename Name>
bool ReadOperand(PyObject* object, const Name& name, Operand* operand) {
  *operand = Operand();
  if (const auto* api = ExchangeApiOf(Py_TYPE(object))) {
    return ReadTensor(*api, object, name, operand);
  }
  if (PyLong_Check(object)) return ReadAddress(object, operand);
  if (PyTuple_Check(object)) return ReadAddressAndSize(object, operand);
  PyErr_Format(PyExc_TypeError,
               "%s: an operand is a tensor whose type has %s, an int address, or a tuple "
               "(address, nbytes); got %R",
               std::string(name()).c_str(), dlpack::kExchangeApiAttribute, Py_TYPE(object));
  return false;
}

// The length of a tuple argument, or -1 with a Python exception set.
Py_ssize_t TupleSize(PyObject* object, const char* name) {
  if (!PyTuple_Check(object)) {
    PyErr_Format(PyExc_TypeError, "%s must be a tuple, got %R", name, Py_TYPE(object));
    return -1;
  }
  const Py_ssize_t size = PyTuple_Size(object);
  if (size > Py_ssize_t{kMaxBindings}) {
    PyErr_Format(PyExc_ValueError, "%s has %zd entries, no plan has more than %d", name, size,
                 static_cast<int>(kMaxBindings));
    return -1;
  }
  return size;
}

// The name of the operand at `position` of a call.
std::string NameAt(const PlanHeader& header, Py_ssize_t position) {
  Py_ssize_t before = 0;
  for (const Binding& binding : header.bindings) {
    if (binding.on_device() && before++ == position) return OperandName(binding.uid);
  }
  return Concat("operands[", position, "]");
}

}  // namespace

bool CallArguments::ReadOperands(const PlanHeader& header, PyObject* operands) {
  const Py_ssize_t size = TupleSize(operands, "operands");
  for (Py_ssize_t i = 0; i < size; ++i) {
    const auto name = [&header, i] { return NameAt(header, i); };
    if (!ReadOperand(PyTuple_GetItem(operands, i), name, &operands_[i])) return false;
  }
  operand_count_ = static_cast<std::size_t>(size);
  return size >= 0;
}

bool CallArguments::ReadScalars(PyObject* scalars) {
  const Py_ssize_t size = TupleSize(scalars, "scalars");
  for (Py_ssize_t i = 0; i < size; ++i) {
    const double value = PyFloat_AsDouble(PyTuple_GetItem(scalars, i));
    if (value == -1.0 && PyErr_Occurred() != nullptr) return false;
    scalars_[i] = static_cast<float>(value);
  }
  scalar_count_ = static_cast<std::size_t>(size);
  return size >= 0;
}

bool CallArguments::Read(const PlanHeader& header, PyObject* operands, PyObject* scalars,
                         PyObject* workspace) {
  if (!ReadOperands(header, operands) || !ReadScalars(scalars)) return false;
  if (workspace != Py_None) {
    return ReadOperand(workspace, [] { return "workspace"; }, &workspace_);
  }
  workspace_.bytes = 0;
  return true;
}

}  // namespace sdpa_ffi::py
