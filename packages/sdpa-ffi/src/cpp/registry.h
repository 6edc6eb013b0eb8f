#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "loaded_plan.h"

namespace sdpa_ffi {

// The process's loaded plans, by container and device; PyTorch and JAX share them.
//
// Plans stay loaded until the process ends. A captured CUDA graph holds on to a plan's kernels and
// can outlive every reference to the plan that the executor can see, so there is no moment at which
// unloading is known to be safe.
class Registry {
 public:
  static Registry& Get();

  // The plan, loading it if needed. Threads that ask for the same one at once wait for one load; a
  // failed load is not remembered.
  Result<const LoadedPlan*> GetOrLoad(const Plan& plan, int device);

  // The plan if it is loaded, else nullptr. Cheap: for the hot path.
  const LoadedPlan* Find(const Digest& identity, int device);

 private:
  struct Key {
    Digest identity;
    int device;
    bool operator==(const Key& other) const {
      return device == other.device && identity == other.identity;
    }
  };
  struct KeyHash {
    std::size_t operator()(const Key& key) const;
  };
  struct Slot {
    std::mutex loading;
    std::atomic<const LoadedPlan*> plan{nullptr};  // owned; never freed, see above
  };

  Slot& SlotFor(const Key& key);

  std::mutex mutex_;
  std::unordered_map<Key, std::unique_ptr<Slot>, KeyHash> slots_;  // guarded by mutex_
};

}  // namespace sdpa_ffi
