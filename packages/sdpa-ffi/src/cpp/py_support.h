#pragma once

// The stable ABI of CPython 3.11: one binary serves it and every later version.
#define PY_SSIZE_T_CLEAN
#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030B0000
#endif
#include <Python.h>

#include <cstdint>
#include <exception>
#include <memory>
#include <new>
#include <utility>

#include "span.h"
#include "status.h"

namespace sdpa_ffi::py {

struct DecRef {
  void operator()(PyObject* object) const { Py_DECREF(object); }
};
// An owned reference, or null with a Python exception set.
using Ref = std::unique_ptr<PyObject, DecRef>;

// Sets the Python exception for a failed status, and returns null.
PyObject* Raise(const Status& status);

// A bytes-like argument, held for the scope.
class Bytes {
 public:
  Bytes() = default;
  ~Bytes() {
    if (view_.obj != nullptr) PyBuffer_Release(&view_);
  }
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;

  Py_buffer* view() { return &view_; }
  Span<const std::uint8_t> span() const {
    return {static_cast<const std::uint8_t*>(view_.buf), static_cast<std::size_t>(view_.len)};
  }

 private:
  Py_buffer view_ = {};
};

class GilRelease {
 public:
  GilRelease() : state_(PyEval_SaveThread()) {}
  ~GilRelease() { PyEval_RestoreThread(state_); }
  GilRelease(const GilRelease&) = delete;
  GilRelease& operator=(const GilRelease&) = delete;

 private:
  PyThreadState* state_;
};

// Runs a function's body; no C++ exception may cross into the interpreter.
template <typename Body>
PyObject* Guarded(Body body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return PyErr_NoMemory();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
    return nullptr;
  }
}

}  // namespace sdpa_ffi::py
