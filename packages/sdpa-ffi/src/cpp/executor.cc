#include "executor.h"

#include "counters.h"
#include "handle_pool.h"

namespace sdpa_ffi {
namespace {

Status ZeroFill(const LoadedPlan& plan, Span<const Operand> operands, CUstream stream) {
  const Operand* operand = operands.begin();
  for (const Binding& binding : plan.header.bindings) {
    if (!binding.on_device()) continue;
    // All of the operand: for ragged outputs the binding's extent is only a lower bound.
    if (const std::uint64_t bytes = operand->bytes.value_or(binding.bytes);
        binding.zero_fill && bytes > 0) {
      SDPA_FFI_RETURN_IF_ERROR(plan.driver.MemsetZero(operand->address, bytes, stream));
      Add(counters.zero_fills);
    }
    ++operand;
  }
  return Status();
}

// From memory of the plan, which is never unloaded: a captured graph reads it at each replay.
Status CopyToWorkspace(const LoadedPlan& plan, void* workspace, CUstream stream) {
  for (const Graph::HostCopy& copy : plan.graph->host_copies()) {
    SDPA_FFI_RETURN_IF_ERROR(plan.driver.CopyToDevice(static_cast<char*>(workspace) + copy.offset,
                                                      copy.values.data(),
                                                      copy.values.size() * sizeof(float), stream));
  }
  return Status();
}

Status CheckAndEnqueue(const LoadedPlan& plan, Span<const Operand> operands,
                       Span<const float> scalars, const Operand& workspace, CUstream stream) {
  std::array<void*, kMaxBindings> pointers;
  SDPA_FFI_RETURN_IF_ERROR(
      BindOperands(plan.header, plan.device.ordinal, operands, scalars, workspace, &pointers));
  const ContextScope context(plan.driver, plan.device);
  SDPA_FFI_RETURN_IF_ERROR(context.status());
  SDPA_FFI_ASSIGN_OR_RETURN(const CudnnHandle handle,
                            HandleForThisThread(plan.cudnn, plan.driver, plan.device, stream));
  SDPA_FFI_RETURN_IF_ERROR(ZeroFill(plan, operands, stream));
  SDPA_FFI_RETURN_IF_ERROR(CopyToWorkspace(plan, workspace.address, stream));
  return plan.graph->Execute(handle, {pointers.data(), plan.header.bindings.size()},
                             workspace.address);
}

}  // namespace

Status Execute(const LoadedPlan& plan, Span<const Operand> operands, Span<const float> scalars,
               const Operand& workspace, CUstream stream) {
  Status status = CheckAndEnqueue(plan, operands, scalars, workspace, stream);
  Add(status.ok() ? counters.executes : counters.execute_failures);
  return status;
}

}  // namespace sdpa_ffi
