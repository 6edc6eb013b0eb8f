#include "loaded_plan.h"

#include <algorithm>
#include <iterator>

#include "handle_pool.h"

namespace sdpa_ffi {
namespace {

std::string Joined(const std::vector<std::int64_t>& uids) {
  std::string text;
  for (const std::int64_t uid : uids) text += Concat(text.empty() ? "" : ", ", uid);
  return text.empty() ? "none" : text;
}

// The header is what operands are checked against, so it must describe the graph that will run.
Status CheckAgreement(const PlanHeader& header, const Graph& graph) {
  std::vector<std::int64_t> declared;
  for (const Binding& binding : header.bindings) declared.push_back(binding.uid);
  if (declared != graph.uids()) {
    std::vector<std::int64_t> missing, extra;
    std::set_difference(graph.uids().begin(), graph.uids().end(), declared.begin(), declared.end(),
                        std::back_inserter(missing));
    std::set_difference(declared.begin(), declared.end(), graph.uids().begin(), graph.uids().end(),
                        std::back_inserter(extra));
    return InvalidArgument("the plan's bindings do not match its graph; uids without a binding: ",
                           Joined(missing), "; bindings unknown to the graph: ", Joined(extra));
  }
  if (header.workspace_bytes < graph.workspace_bytes()) {
    return InvalidArgument("the plan declares a workspace of ", header.workspace_bytes,
                           " bytes, its graph needs ", graph.workspace_bytes());
  }
  return Status();
}

}  // namespace

Result<std::unique_ptr<LoadedPlan>> LoadPlan(const Plan& plan, int ordinal) {
  SDPA_FFI_ASSIGN_OR_RETURN(const CudnnLibrary* cudnn, CudnnLibrary::Get());
  SDPA_FFI_RETURN_IF_ERROR(cudnn->CheckVersion(plan.header.cudnn_version));
  SDPA_FFI_ASSIGN_OR_RETURN(const CudaDriver* driver, CudaDriver::Get());
  SDPA_FFI_ASSIGN_OR_RETURN(const CudaDevice* device, driver->Device(ordinal));
  if (static_cast<std::uint32_t>(device->sm) != plan.header.sm) {
    return InvalidArgument("the plan was built for sm", plan.header.sm, ", device ", ordinal,
                           " is sm", device->sm);
  }

  const ContextScope context(*driver, *device);
  SDPA_FFI_RETURN_IF_ERROR(context.status());
  const RelaxedCaptureScope relaxed(*driver);
  SDPA_FFI_ASSIGN_OR_RETURN(const CudnnHandle handle,
                            HandleForThisThread(*cudnn, *driver, *device, /*stream=*/std::nullopt));
  SDPA_FFI_ASSIGN_OR_RETURN(auto graph, Graph::Load(*cudnn, plan.blob, handle));
  SDPA_FFI_RETURN_IF_ERROR(CheckAgreement(plan.header, *graph));
  return std::unique_ptr<LoadedPlan>(
      new LoadedPlan{plan.header, *driver, *cudnn, *device, std::move(graph)});
}

Result<std::unique_ptr<Graph>> VerifyPlan(const Plan& plan, const std::string& device_properties) {
  SDPA_FFI_ASSIGN_OR_RETURN(const CudnnLibrary* cudnn, CudnnLibrary::Get());
  SDPA_FFI_RETURN_IF_ERROR(cudnn->CheckVersion(plan.header.cudnn_version));
  SDPA_FFI_ASSIGN_OR_RETURN(auto graph,
                            Graph::LoadDeviceless(*cudnn, plan.blob, device_properties));
  SDPA_FFI_RETURN_IF_ERROR(CheckAgreement(plan.header, *graph));
  return graph;
}

}  // namespace sdpa_ffi
