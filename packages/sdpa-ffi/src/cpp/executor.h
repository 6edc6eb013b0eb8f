#pragma once

#include "loaded_plan.h"
#include "operands.h"
#include "span.h"
#include "status.h"

namespace sdpa_ffi {

// Checks the operands (see BindOperands), clears the outputs that the plan wants cleared, and
// enqueues the plan on `stream`. Nothing is enqueued if a check fails. Allocates no device memory
// and never synchronizes, so it may be captured.
Status Execute(const LoadedPlan& plan, Span<const Operand> operands, Span<const float> scalars,
               const Operand& workspace, CUstream stream);

}  // namespace sdpa_ffi
