#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sha256.h"
#include "span.h"
#include "status.h"

namespace sdpa_ffi {

// The container format that this executor reads. The writer is sdpa_core.plan.
inline constexpr std::uint32_t kPlanFormat = 1;

// More operands than any attention graph has; it lets a call keep its pointers on the stack.
inline constexpr std::uint32_t kMaxBindings = 128;

enum class BindingKind : std::uint32_t { kDeviceInput = 0, kDeviceOutput = 1, kHostScalar = 2 };

enum class DataType : std::uint32_t {
  kFloat16 = 1,
  kBFloat16 = 2,
  kFloat32 = 3,
  kInt32 = 4,
  kInt64 = 5,
  kUInt8 = 6,
  kFloat8E4M3 = 7,
  kFloat8E5M2 = 8,
  kFloat8E8M0 = 9,
  kBool = 10,
  kFloat64 = 11,
};

const char* DataTypeName(DataType dtype);

struct Binding {
  std::int64_t uid;
  std::uint64_t bytes;  // the least that must be addressable from the operand's pointer
  BindingKind kind;
  bool zero_fill;  // cleared on the call's stream before cuDNN runs
  DataType dtype;

  bool on_device() const { return kind != BindingKind::kHostScalar; }
};

struct PlanHeader {
  std::uint64_t blob_bytes;
  std::uint64_t workspace_bytes;
  std::uint32_t cudnn_version;
  std::uint32_t frontend_version;
  std::uint32_t sm;
  std::uint32_t sm_count;
  Digest fingerprint;
  Digest payload_sha256;
  std::string engine;
  std::vector<Binding> bindings;  // strictly ascending uid

  // Digest of the fixed header. That holds the payload's digest, so this names the whole container.
  Digest identity;

  std::size_t CountOf(BindingKind kind) const;
  std::size_t device_operands() const {
    return bindings.size() - CountOf(BindingKind::kHostScalar);
  }
};

struct Plan {
  PlanHeader header;
  std::vector<std::uint8_t> blob;
};

// Parses and verifies a whole container. Every offset is checked: the bytes may come from a damaged
// file or from somebody else's compilation cache.
Result<Plan> ParsePlan(Span<const std::uint8_t> container);

}  // namespace sdpa_ffi
