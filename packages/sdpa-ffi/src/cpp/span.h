#pragma once

#include <cstddef>

namespace sdpa_ffi {

// A view of contiguous elements; std::span arrives with C++20.
template <typename T>
struct Span {
  T* data = nullptr;
  std::size_t size = 0;

  T* begin() const { return data; }
  T* end() const { return data + size; }
  T& operator[](std::size_t i) const { return data[i]; }
};

}  // namespace sdpa_ffi
