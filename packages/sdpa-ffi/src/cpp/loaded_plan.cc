#include "loaded_plan.h"

#include <algorithm>
#include <iterator>

#include "counters.h"
#include "handle_pool.h"
#include "operand_names.h"

namespace sdpa_ffi {
namespace {

std::string Joined(const std::vector<std::int64_t>& uids) {
  std::string text;
  for (const std::int64_t uid : uids) {
    text += Concat(text.empty() ? "" : ", ", OperandName(uid));
  }
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
    return InvalidArgument(
        "the plan's bindings do not match its graph; operands without a binding: ", Joined(missing),
        "; bindings unknown to the graph: ", Joined(extra));
  }
  if (header.workspace_bytes < graph.workspace_bytes()) {
    return InvalidArgument("the plan declares a workspace of ", header.workspace_bytes,
                           " bytes, its graph needs ", graph.workspace_bytes());
  }
  return Status();
}

// Where a plan will run, once everything it needs turned out to be there.
struct Place {
  const CudnnLibrary* cudnn;
  const CudaDriver* driver;
  const CudaDevice* device;
};

Result<Place> PlaceFor(const PlanHeader& header, int ordinal) {
  const StageTimer timer(counters.check_ns);
  SDPA_FFI_ASSIGN_OR_RETURN(const CudnnLibrary* cudnn, CudnnLibrary::Get());
  SDPA_FFI_RETURN_IF_ERROR(cudnn->CheckVersion(header.cudnn_version));
  SDPA_FFI_ASSIGN_OR_RETURN(const CudaDriver* driver, CudaDriver::Get());
  SDPA_FFI_ASSIGN_OR_RETURN(const CudaDevice* device, driver->Device(ordinal));
  if (static_cast<std::uint32_t>(device->sm) != header.sm) {
    return InvalidArgument("the plan was built for sm", header.sm, ", device ", ordinal, " is sm",
                           device->sm);
  }
  return Place{cudnn, driver, device};
}

Result<std::unique_ptr<LoadedPlan>> LoadAt(const Place& place, const Plan& plan) {
  const ContextScope context(*place.driver, *place.device);
  SDPA_FFI_RETURN_IF_ERROR(context.status());
  const RelaxedCaptureScope relaxed(*place.driver);
  SDPA_FFI_RETURN_IF_ERROR(relaxed.status());
  SDPA_FFI_ASSIGN_OR_RETURN(
      const CudnnHandle handle,
      HandleForThisThread(*place.cudnn, *place.driver, *place.device, /*stream=*/std::nullopt));
  auto graph = [&] {
    const StageTimer timer(counters.deserialize_ns);
    return Graph::Load(*place.cudnn, plan.blob, handle);
  }();
  SDPA_FFI_RETURN_IF_ERROR(graph.status());
  const StageTimer timer(counters.check_ns);
  SDPA_FFI_RETURN_IF_ERROR(CheckAgreement(plan.header, *graph.value()));
  return std::unique_ptr<LoadedPlan>(new LoadedPlan{plan.header, *place.driver, *place.cudnn,
                                                    *place.device, std::move(graph.value())});
}

}  // namespace

Result<Plan> ParseForLoading(Span<const std::uint8_t> container) {
  const StageTimer timer(counters.parse_ns);
  auto plan = ParsePlan(container);
  if (!plan.ok()) Add(counters.load_failures);
  return plan;
}

Result<std::unique_ptr<LoadedPlan>> LoadPlan(const Plan& plan, int ordinal) {
  auto loaded = [&]() -> Result<std::unique_ptr<LoadedPlan>> {
    SDPA_FFI_ASSIGN_OR_RETURN(const Place place, PlaceFor(plan.header, ordinal));
    return LoadAt(place, plan);
  }();
  Add(loaded.ok() ? counters.loads : counters.load_failures);
  return loaded;
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
