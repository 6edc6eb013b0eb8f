#pragma once

#include <array>

#include "operands.h"
#include "py_support.h"

namespace sdpa_ffi::py {

// The operands and scalars of one call, read from Python objects without allocating.
class CallArguments {
 public:
  // False with a Python exception set, which names operands as `header` does. The objects must stay
  // alive while this is used.
  bool Read(const PlanHeader& header, PyObject* operands, PyObject* scalars, PyObject* workspace);

  Span<const Operand> operands() const { return {operands_.data(), operand_count_}; }
  Span<const float> scalars() const { return {scalars_.data(), scalar_count_}; }
  const Operand& workspace() const { return workspace_; }

 private:
  bool ReadOperands(const PlanHeader& header, PyObject* operands);
  bool ReadScalars(PyObject* scalars);

  std::array<Operand, kMaxBindings> operands_;
  std::array<float, kMaxBindings> scalars_;
  std::size_t operand_count_ = 0;
  std::size_t scalar_count_ = 0;
  Operand workspace_;
};

}  // namespace sdpa_ffi::py
