#include "operands.h"

#include "operand_names.h"

namespace sdpa_ffi {
namespace {

// What every plan's tensors declare to cuDNN. Not all of its versions check: a misaligned pointer
// then faults or, worse, gives wrong numbers.
constexpr std::uintptr_t kAlignment = 16;

std::string DeviceName(int device) {
  return device == kHostDevice ? "host memory" : Concat("CUDA device ", device);
}

// `name` is a function: names are only made for messages.
template <typename Name>
Status CheckMemory(const Name& name, const Operand& operand, std::uint64_t bytes, int device) {
  if (operand.address == nullptr && bytes > 0) {
    return InvalidArgument(name(), ": the pointer is null, the plan needs ", bytes, " bytes");
  }
  if (const auto excess = reinterpret_cast<std::uintptr_t>(operand.address) % kAlignment) {
    return InvalidArgument(name(), ": the pointer is ", excess, " bytes past a multiple of ",
                           kAlignment, ", the plan needs ", kAlignment, "-byte alignment");
  }
  if (operand.device.has_value() && *operand.device != device) {
    return InvalidArgument(name(), ": the operand is in ", DeviceName(*operand.device),
                           ", the plan runs on ", DeviceName(device));
  }
  if (operand.bytes.has_value() && *operand.bytes < bytes) {
    return InvalidArgument(name(), ": ", *operand.bytes, " bytes are addressable, the plan needs ",
                           bytes);
  }
  return Status();
}

Status CheckOperand(const Binding& binding, const Operand& operand, int device) {
  const auto name = [&binding] { return OperandName(binding.uid); };
  SDPA_FFI_RETURN_IF_ERROR(CheckMemory(name, operand, binding.bytes, device));
  if (operand.dtype.has_value() && *operand.dtype != binding.dtype) {
    return InvalidArgument(name(), ": the operand is ", DataTypeName(*operand.dtype),
                           ", the plan needs ", DataTypeName(binding.dtype));
  }
  if (binding.zero_fill && operand.has_gaps) {
    return InvalidArgument(name(),
                           ": the plan zero-fills this output, so its memory must have no gaps, "
                           "but the operand is a strided view");
  }
  return Status();
}

// The names of the device operands, or of the host scalars, in the order of a call.
std::string Names(const PlanHeader& header, bool on_device) {
  std::string names;
  for (const Binding& binding : header.bindings) {
    if (binding.on_device() != on_device) continue;
    names += Concat(names.empty() ? "" : ", ", OperandName(binding.uid));
  }
  return names.empty() ? "none" : names;
}

Status CheckCounts(const PlanHeader& header, std::size_t operands, std::size_t scalars) {
  if (operands != header.device_operands()) {
    return InvalidArgument("the plan has ", header.device_operands(), " device operands, got ",
                           operands, "; it wants ", Names(header, /*on_device=*/true));
  }
  const std::size_t host_scalars = header.CountOf(BindingKind::kHostScalar);
  if (scalars != host_scalars) {
    return InvalidArgument("the plan has ", host_scalars, " host scalars, got ", scalars,
                           "; it wants ", Names(header, /*on_device=*/false));
  }
  return Status();
}

}  // namespace

Status BindOperands(const PlanHeader& header, int device, Span<const Operand> operands,
                    Span<const float> scalars, const Operand& workspace,
                    std::array<void*, kMaxBindings>* pointers) {
  SDPA_FFI_RETURN_IF_ERROR(CheckCounts(header, operands.size, scalars.size));
  const Operand* operand = operands.begin();
  const float* scalar = scalars.begin();
  void** pointer = pointers->data();
  for (const Binding& binding : header.bindings) {
    if (binding.on_device()) {
      SDPA_FFI_RETURN_IF_ERROR(CheckOperand(binding, *operand, device));
      *pointer++ = (operand++)->address;
    } else {
      *pointer++ = const_cast<float*>(scalar++);  // cuDNN's variant pack is not const-correct
    }
  }
  return CheckMemory([] { return "workspace"; }, workspace, header.workspace_bytes, device);
}

}  // namespace sdpa_ffi
