#pragma once

#include <memory>

#include "cuda_driver.h"
#include "cudnn_library.h"
#include "graph.h"
#include "plan.h"
#include "status.h"

namespace sdpa_ffi {

// A plan ready to run on one device. Immutable, hence shared freely between threads.
struct LoadedPlan {
  PlanHeader header;
  const CudaDriver& driver;
  const CudnnLibrary& cudnn;
  const CudaDevice& device;
  std::unique_ptr<Graph> graph;
};

// ParsePlan, counted and timed as the first stage of loading.
Result<Plan> ParseForLoading(Span<const std::uint8_t> container);

// Loads `plan` for CUDA device `ordinal`. Legal while a stream is being
// captured: the thread's capture mode is relaxed meanwhile.
Result<std::unique_ptr<LoadedPlan>> LoadPlan(const Plan& plan, int ordinal);

// Loads `plan` for a described device, on a machine that need not have one, and checks that its
// header tells the truth about it.
Result<std::unique_ptr<Graph>> VerifyPlan(const Plan& plan, const std::string& device_properties);

}  // namespace sdpa_ffi
