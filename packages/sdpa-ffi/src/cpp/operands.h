#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "plan.h"
#include "span.h"
#include "status.h"

namespace sdpa_ffi {

inline constexpr int kHostDevice = -1;

// Memory that a caller offers for a binding, with whatever is known about it. An absent fact is the
// caller's responsibility.
struct Operand {
  void* address = nullptr;
  std::optional<std::uint64_t> bytes;  // addressable from `address`
  std::optional<DataType> dtype;
  std::optional<int> device;  // CUDA ordinal, or kHostDevice
  bool has_gaps = false;      // a strided view that leaves out some of `bytes`
};

// Fills `pointers`, one per binding, after checking that every operand fits its binding: count,
// null, alignment, device, dtype, size. `operands` has the device bindings and `scalars` the host
// ones, each in ascending uid; both must outlive the use of `pointers`.
Status BindOperands(const PlanHeader& header, int device, Span<const Operand> operands,
                    Span<const float> scalars, const Operand& workspace,
                    std::array<void*, kMaxBindings>* pointers);

}  // namespace sdpa_ffi
