#include "tensor_view.h"

namespace sdpa_ffi {
namespace {

struct KnownType {
  dlpack::TypeCode code;
  int bits;
  DataType dtype;
};

constexpr KnownType kKnownTypes[] = {
    {dlpack::kFloat, 16, DataType::kFloat16},
    {dlpack::kBfloat, 16, DataType::kBFloat16},
    {dlpack::kFloat, 32, DataType::kFloat32},
    {dlpack::kFloat, 64, DataType::kFloat64},
    {dlpack::kInt, 32, DataType::kInt32},
    {dlpack::kInt, 64, DataType::kInt64},
    {dlpack::kUInt, 8, DataType::kUInt8},
    {dlpack::kBool, 8, DataType::kBool},
    {dlpack::kFloat8E4M3FN, 8, DataType::kFloat8E4M3},
    {dlpack::kFloat8E5M2, 8, DataType::kFloat8E5M2},
    {dlpack::kFloat8E8M0FNU, 8, DataType::kFloat8E8M0},
};

std::optional<DataType> FromDlpack(const dlpack::ElementType& type) {
  if (type.lanes != 1) return std::nullopt;
  for (const KnownType& known : kKnownTypes) {
    if (known.code == type.code && known.bits == type.bits) return known.dtype;
  }
  return std::nullopt;
}

struct Extent {
  std::int64_t elements = 1;  // how many there are
  std::int64_t reach = 1;     // from the first to the end of the last, in elements
};

// Fails on a negative stride, whose elements lie before the pointer, and on overflow.
Result<Extent> ExtentOf(const dlpack::Tensor& tensor) {
  Extent extent;
  for (std::int32_t i = 0; i < tensor.rank; ++i) {
    if (tensor.shape[i] == 0) return Extent{0, 0};
  }
  for (std::int32_t i = tensor.rank - 1; i >= 0; --i) {
    const std::int64_t size = tensor.shape[i];
    const std::int64_t stride = tensor.strides == nullptr ? extent.elements : tensor.strides[i];
    std::int64_t last = 0;
    if (size < 0 || stride < 0 || __builtin_mul_overflow(size - 1, stride, &last) ||
        __builtin_add_overflow(extent.reach, last, &extent.reach) ||
        __builtin_mul_overflow(extent.elements, size, &extent.elements)) {
      return InvalidArgument("a tensor with size ", size, " and stride ", stride, " in dimension ",
                             i, " cannot be an operand");
    }
  }
  return extent;
}

Result<int> DeviceOf(const dlpack::Device& device) {
  if (device.type == dlpack::kCuda) return static_cast<int>(device.ordinal);
  if (device.type == dlpack::kCpu) return kHostDevice;
  return InvalidArgument("a tensor on DLPack device type ", device.type,
                         " cannot be an operand; CUDA is needed");
}

}  // namespace

Result<Operand> OperandFromTensor(const dlpack::Tensor& tensor) {
  const auto dtype = FromDlpack(tensor.dtype);
  if (!dtype.has_value()) {
    return InvalidArgument("a tensor with DLPack type code ", int{tensor.dtype.code}, ", ",
                           int{tensor.dtype.bits}, " bits cannot be an operand");
  }
  SDPA_FFI_ASSIGN_OR_RETURN(const Extent extent, ExtentOf(tensor));
  SDPA_FFI_ASSIGN_OR_RETURN(const int device, DeviceOf(tensor.device));
  std::int64_t bytes = 0;
  if (__builtin_mul_overflow(extent.reach, std::int64_t{tensor.dtype.bits / 8}, &bytes)) {
    return InvalidArgument("a tensor that reaches over ", extent.reach,
                           " elements cannot be an operand");
  }
  Operand operand;
  operand.address = static_cast<char*>(tensor.data) + tensor.byte_offset;
  operand.bytes = static_cast<std::uint64_t>(bytes);
  operand.dtype = dtype;
  operand.device = device;
  operand.has_gaps = extent.reach > extent.elements;
  return operand;
}

}  // namespace sdpa_ffi
