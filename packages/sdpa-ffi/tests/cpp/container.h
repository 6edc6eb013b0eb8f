#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan.h"

namespace sdpa_ffi::testing {

// The 32 bytes of a binding, as the format's table in sdpa_core.plan has them.
struct BindingRecord {
  std::int64_t uid;
  std::uint64_t bytes;
  std::uint32_t kind;
  std::uint32_t flags;
  std::uint32_t dtype;
  std::uint32_t reserved = 0;
};

using Bytes = std::vector<std::uint8_t>;

// Numbers that a graph wants at an offset of its workspace before each run.
struct HostNumbers {
  std::int64_t uid;
  std::int64_t offset;
  std::vector<float> values;
};

// A blob that cudnn-frontend and the fake cuDNN load, of a graph with these operands.
Bytes Blob(const std::vector<std::int64_t>& uids, const std::vector<HostNumbers>& numbers = {});

// The fields of a container. The default is a plan of the fake cuDNN: one input, an output, an
// output to clear, and a scalar.
struct Container {
  std::vector<BindingRecord> bindings = {
      {1, 2048, 0, 0, 2},
      {4, 1024, 1, 0, 2},
      {9, 64, 1, 1, 3},
      {100, 0, 2, 0, 3},
  };
  Bytes blob = Blob({1, 4, 9, 100});
  std::uint64_t workspace_bytes = 256;
  std::uint32_t cudnn_version = 91900;
  std::uint32_t sm = 90;
  std::uint8_t fingerprint = 7;  // of all its bytes: another one makes another plan
  std::string engine = "eng9_k24=7";

  Bytes ToBytes() const;
  Plan ToPlan() const;
};

inline constexpr std::size_t kHeaderBytes = 152;
inline constexpr std::size_t kBindingBytes = 32;

// Overwrites a little-endian field.
void Put(Bytes* bytes, std::size_t at, std::uint64_t value, std::size_t width);

// Writes the hash of what follows the header into it.
void Seal(Bytes* container);

}  // namespace sdpa_ffi::testing
