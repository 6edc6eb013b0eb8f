#pragma once

#include <cstdint>

// The part of the DLPack 1.x ABI (https://dmlc.github.io/dlpack) that reading a tensor needs, with
// the layout of DLPack 1.3. A type's `__dlpack_c_exchange_api__` is a capsule of ExchangeApi; minor
// versions only add enumerators and trailing fields, a new major version may change everything.

namespace sdpa_ffi::dlpack {

inline constexpr std::uint32_t kMajorVersion = 1;
inline constexpr std::uint32_t kMinorVersion = 3;

inline constexpr char kExchangeApiAttribute[] = "__dlpack_c_exchange_api__";
inline constexpr char kExchangeApiCapsule[] = "dlpack_exchange_api";

enum DeviceType : std::int32_t { kCpu = 1, kCuda = 2 };

enum TypeCode : std::uint8_t {
  kInt = 0,
  kUInt = 1,
  kFloat = 2,
  kBfloat = 4,
  kBool = 6,
  kFloat8E4M3FN = 10,
  kFloat8E5M2 = 12,
  kFloat8E8M0FNU = 14,
};

struct Device {
  std::int32_t type;
  std::int32_t ordinal;
};

struct ElementType {
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;
};

struct Tensor {
  void* data;
  Device device;
  std::int32_t rank;
  ElementType dtype;
  std::int64_t* shape;
  std::int64_t* strides;  // in elements; not null for rank > 0 since DLPack 1.2
  std::uint64_t byte_offset;
};

struct ExchangeApi {
  struct {
    std::uint32_t major;
    std::uint32_t minor;
  } version;
  const ExchangeApi* previous;  // an older major version, or null

  void* managed_tensor_allocator;
  void* managed_tensor_from_py_object;
  void* managed_tensor_to_py_object;
  // Borrows: shape and data stay the Python object's. Returns -1 with a Python exception set. The
  // producer may leave it null.
  int (*tensor_from_py_object)(void* object, Tensor* out);
  void* current_work_stream;
};

static_assert(sizeof(Tensor) == 48 && sizeof(ExchangeApi) == 56, "DLPack 1.x on a 64-bit machine");

}  // namespace sdpa_ffi::dlpack
