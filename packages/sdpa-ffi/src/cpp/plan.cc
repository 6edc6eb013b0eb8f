#include "plan.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace sdpa_ffi {
namespace {

constexpr char kMagic[8] = {'S', 'D', 'P', 'A', 'P', 'L', 'A', 'N'};
constexpr std::size_t kHeaderBytes = 152;
constexpr std::size_t kBindingBytes = 32;
constexpr std::size_t kEngineOffset = 120;
constexpr std::size_t kEngineBytes = 32;
constexpr std::uint32_t kZeroFillFlag = 1;

// Device sizes are handed on as signed 64-bit integers.
constexpr std::uint64_t kMaxBytes = std::numeric_limits<std::int64_t>::max();

// Reads little-endian fields at offsets that the caller has already checked.
class Fields {
 public:
  explicit Fields(const std::uint8_t* base) : base_(base) {}

  std::uint32_t U32(std::size_t at) const { return static_cast<std::uint32_t>(Unsigned(at, 4)); }
  std::uint64_t U64(std::size_t at) const { return Unsigned(at, 8); }
  std::int64_t I64(std::size_t at) const {
    const std::uint64_t bits = Unsigned(at, 8);
    std::int64_t value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }
  Digest Hash(std::size_t at) const {
    Digest digest;
    std::memcpy(digest.data(), base_ + at, digest.size());
    return digest;
  }

 private:
  std::uint64_t Unsigned(std::size_t at, int width) const {
    std::uint64_t value = 0;
    for (int i = 0; i < width; ++i) value |= std::uint64_t{base_[at + i]} << (8 * i);
    return value;
  }

  const std::uint8_t* base_;
};

template <typename... Parts>
Status Malformed(const Parts&... parts) {
  return InvalidArgument("malformed plan container: ", parts...);
}

Status CheckFormat(std::uint32_t format) {
  if (format == kPlanFormat) return Status();
  return InvalidArgument("the plan container has format ", format, ", this executor reads format ",
                         kPlanFormat, "; upgrade ",
                         format > kPlanFormat ? "sdpa-ffi (pip install -U sdpa-ffi)"
                                              : "sdpa-core (pip install -U sdpa-core)",
                         " and rebuild the plan");
}

Result<std::string> ParseEngine(const std::uint8_t* field) {
  const auto* end = field + kEngineBytes;
  const auto* nul = std::find(field, end, 0);
  if (std::any_of(nul, end, [](std::uint8_t byte) { return byte != 0; })) {
    return Malformed("the engine's name is not NUL padded");
  }
  return std::string(field, nul);
}

Result<Binding> ParseBinding(const std::uint8_t* record) {
  const Fields fields(record);
  const std::int64_t uid = fields.I64(0);
  const std::uint64_t bytes = fields.U64(8);
  const std::uint32_t kind = fields.U32(16);
  const std::uint32_t flags = fields.U32(20);
  const std::uint32_t dtype = fields.U32(24);
  if (kind > static_cast<std::uint32_t>(BindingKind::kHostScalar)) {
    return Malformed("uid ", uid, " has unknown kind ", kind);
  }
  if (dtype < static_cast<std::uint32_t>(DataType::kFloat16) ||
      dtype > static_cast<std::uint32_t>(DataType::kFloat64)) {
    return Malformed("uid ", uid, " has unknown dtype ", dtype);
  }
  if ((flags & ~kZeroFillFlag) != 0 || fields.U32(28) != 0) {
    return Malformed("uid ", uid, " has unknown flags or a nonzero reserved field");
  }
  if (bytes > kMaxBytes) return Malformed("uid ", uid, " claims ", bytes, " bytes");

  const Binding binding{uid, bytes, static_cast<BindingKind>(kind), flags == kZeroFillFlag,
                        static_cast<DataType>(dtype)};
  if (binding.zero_fill && binding.kind != BindingKind::kDeviceOutput) {
    return Malformed("uid ", uid, " is zero-filled but is no output");
  }
  if (!binding.on_device() && (bytes != 0 || binding.dtype != DataType::kFloat32)) {
    return Malformed("uid ", uid, " is a host scalar, which must be a float32 of 0 device bytes");
  }
  return binding;
}

Result<std::vector<Binding>> ParseBindings(const std::uint8_t* table, std::uint32_t count) {
  std::vector<Binding> bindings;
  bindings.reserve(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    SDPA_FFI_ASSIGN_OR_RETURN(const Binding binding, ParseBinding(table + i * kBindingBytes));
    if (!bindings.empty() && binding.uid <= bindings.back().uid) {
      return Malformed("uid ", binding.uid, " follows uid ", bindings.back().uid,
                       "; uids must ascend strictly");
    }
    bindings.push_back(binding);
  }
  return bindings;
}

}  // namespace

const char* DataTypeName(DataType dtype) {
  switch (dtype) {
    case DataType::kFloat16:
      return "float16";
    case DataType::kBFloat16:
      return "bfloat16";
    case DataType::kFloat32:
      return "float32";
    case DataType::kInt32:
      return "int32";
    case DataType::kInt64:
      return "int64";
    case DataType::kUInt8:
      return "uint8";
    case DataType::kFloat8E4M3:
      return "float8_e4m3";
    case DataType::kFloat8E5M2:
      return "float8_e5m2";
    case DataType::kFloat8E8M0:
      return "float8_e8m0";
    case DataType::kBool:
      return "bool";
    case DataType::kFloat64:
      return "float64";
  }
  return "unknown";
}

std::size_t PlanHeader::CountOf(BindingKind kind) const {
  return static_cast<std::size_t>(
      std::count_if(bindings.begin(), bindings.end(),
                    [kind](const Binding& binding) { return binding.kind == kind; }));
}

Result<Plan> ParsePlan(Span<const std::uint8_t> container) {
  if (container.size < kHeaderBytes) {
    return Malformed("it has ", container.size, " bytes, its header alone has ", kHeaderBytes);
  }
  if (!std::equal(std::begin(kMagic), std::end(kMagic), container.data)) {
    return Malformed("it does not start with SDPAPLAN");
  }
  const Fields fields(container.data);
  SDPA_FFI_RETURN_IF_ERROR(CheckFormat(fields.U32(8)));

  const std::uint32_t binding_count = fields.U32(48);
  if (binding_count == 0 || binding_count > kMaxBindings) {
    return Malformed("it has ", binding_count, " bindings, 1 to ", kMaxBindings, " are possible");
  }
  const std::size_t blob_offset = kHeaderBytes + kBindingBytes * binding_count;
  if (fields.U32(12) != blob_offset) {
    return Malformed("header_bytes is ", fields.U32(12), ", ", binding_count, " bindings need ",
                     blob_offset);
  }
  PlanHeader header{};
  header.blob_bytes = fields.U64(16);
  header.workspace_bytes = fields.U64(24);
  if (container.size < blob_offset || header.blob_bytes == 0 ||
      header.blob_bytes != container.size - blob_offset) {
    return Malformed("it has ", container.size, " bytes, header and blob need ", blob_offset, " + ",
                     header.blob_bytes);
  }
  if (header.workspace_bytes > kMaxBytes) {
    return Malformed("it claims a workspace of ", header.workspace_bytes, " bytes");
  }
  header.cudnn_version = fields.U32(32);
  header.frontend_version = fields.U32(36);
  header.sm = fields.U32(40);
  header.sm_count = fields.U32(44);
  if (fields.U32(52) != 0) return Malformed("the reserved field is not zero");
  header.fingerprint = fields.Hash(56);
  header.payload_sha256 = fields.Hash(88);
  if (Sha256({container.data + kHeaderBytes, container.size - kHeaderBytes}) !=
      header.payload_sha256) {
    return Malformed("the sha256 of its contents does not match; the plan is damaged, rebuild it");
  }
  SDPA_FFI_ASSIGN_OR_RETURN(header.engine, ParseEngine(container.data + kEngineOffset));
  SDPA_FFI_ASSIGN_OR_RETURN(header.bindings,
                            ParseBindings(container.data + kHeaderBytes, binding_count));
  header.identity = Sha256({container.data, kHeaderBytes});
  return Plan{std::move(header), {container.data + blob_offset, container.end()}};
}

}  // namespace sdpa_ffi
