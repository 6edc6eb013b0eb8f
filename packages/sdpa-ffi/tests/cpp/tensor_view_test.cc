#include "tensor_view.h"

#include <limits>

#include "support.h"

namespace sdpa_ffi::testing {
namespace {

constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();

// A bfloat16 tensor on CUDA device 1.
struct View {
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;  // empty for contiguous ones
  dlpack::ElementType dtype = {dlpack::kBfloat, 16, 1};
  dlpack::Device device = {dlpack::kCuda, 1};
  std::uint64_t byte_offset = 0;

  Result<Operand> Read() {
    return OperandFromTensor({Address(0x1000), device, static_cast<std::int32_t>(shape.size()),
                              dtype, shape.data(), strides.empty() ? nullptr : strides.data(),
                              byte_offset});
  }
};

TEST_CASE("tensors: the reach of a view, strides included") {
  const std::pair<View, std::uint64_t> views[] = {
      {{{2, 3}, {}}, 12},     {{{2, 3}, {3, 1}}, 12}, {{{3, 2}, {1, 3}}, 12},
      {{{2, 3}, {8, 1}}, 22}, {{{4, 3}, {0, 1}}, 6},  {{{}, {}}, 2},
      {{{0, kHuge}, {}}, 0},  {{{1}, {kHuge}}, 2},    {{{2, 0, 3}, {1, 1, 1}}, 0},
  };
  for (auto [view, bytes] : views) {
    const auto read = view.Read();
    REQUIRE(read.status().ok());
    CHECK(view.Read().value().bytes == bytes);
  }
}

TEST_CASE("tensors: gaps are those of the view, not of its order") {
  CHECK_FALSE(View{{3, 2}, {1, 3}}.Read().value().has_gaps);
  CHECK(View{{2, 3}, {8, 1}}.Read().value().has_gaps);
  CHECK_FALSE(View{{4, 3}, {0, 1}}.Read().value().has_gaps);
}

TEST_CASE("tensors: offset and device are taken over") {
  View view{{4}, {}};
  view.byte_offset = 32;
  const Operand operand = view.Read().value();
  CHECK(operand.address == Address(0x1020));
  CHECK(operand.device == 1);
  view.device = {dlpack::kCpu, 0};
  CHECK(view.Read().value().device == kHostDevice);
}

TEST_CASE("tensors: sizes that overflow, negative ones and other devices are refused") {
  View wrong[] = {
      {{kHuge, 2}, {}}, {{kHuge, kHuge}, {kHuge, 1}},
      {{3}, {kHuge}},   {{2, 2}, {kHuge, kHuge}},
      {{-1}, {}},       {{2}, {-1}},
      {{kHuge}, {}},    {{std::numeric_limits<std::int64_t>::min()}, {1}},
  };
  for (View& view : wrong) {
    CheckRefused(view.Read().status(), StatusCode::kInvalidArgument, "cannot be an operand");
  }
  View elsewhere{{4}, {}};
  elsewhere.device = {10, 0};  // ROCm
  CheckRefused(elsewhere.Read().status(), StatusCode::kInvalidArgument, "DLPack device type 10");
}

TEST_CASE("tensors: every code and width, and none that a plan does not know") {
  int known = 0;
  for (int code = 0; code < 256; ++code) {
    for (const int bits : {1, 4, 8, 16, 32, 64, 128}) {
      View view{{4}, {}};
      view.dtype = {static_cast<std::uint8_t>(code), static_cast<std::uint8_t>(bits), 1};
      known += view.Read().ok() ? 1 : 0;
      view.dtype.lanes = 2;
      CHECK_FALSE(view.Read().ok());
    }
  }
  CHECK(known == 11);  // as many as the format has
}

}  // namespace
}  // namespace sdpa_ffi::testing
