#pragma once

#include <cstdint>
#include <vector>

#include "loaded_plan.h"
#include "py_support.h"

namespace sdpa_ffi::py {

// Adds the type LoadedPlan to `module`. False with a Python exception set.
bool AddLoadedPlanType(PyObject* module);

// A LoadedPlan object. `plan` is the registry's and lives until the process ends.
PyObject* NewLoadedPlan(const LoadedPlan* plan);

// (uid, ...)
PyObject* UidTuple(const std::vector<std::int64_t>& uids);

}  // namespace sdpa_ffi::py
