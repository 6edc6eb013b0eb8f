#include "registry.h"

#include <cstring>

namespace sdpa_ffi {

Registry& Registry::Get() {
  static auto* registry = new Registry;  // leaked: threads may use it during shutdown
  return *registry;
}

std::size_t Registry::KeyHash::operator()(const Key& key) const {
  std::size_t hash;  // any bytes of a digest are well distributed
  std::memcpy(&hash, key.identity.data(), sizeof hash);
  return hash + static_cast<std::size_t>(key.device);
}

Registry::Slot& Registry::SlotFor(const Key& key) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto& slot = slots_[key];
  if (slot == nullptr) slot = std::make_unique<Slot>();
  return *slot;
}

const LoadedPlan* Registry::Find(const Digest& identity, int device) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = slots_.find({identity, device});
  return found == slots_.end() ? nullptr : found->second->plan.load(std::memory_order_acquire);
}

Result<const LoadedPlan*> Registry::GetOrLoad(const Plan& plan, int device) {
  Slot& slot = SlotFor({plan.header.identity, device});
  if (const LoadedPlan* loaded = slot.plan.load(std::memory_order_acquire)) return loaded;

  std::lock_guard<std::mutex> lock(slot.loading);
  if (const LoadedPlan* loaded = slot.plan.load(std::memory_order_acquire)) return loaded;
  SDPA_FFI_ASSIGN_OR_RETURN(auto loaded, LoadPlan(plan, device));
  slot.plan.store(loaded.get(), std::memory_order_release);
  return static_cast<const LoadedPlan*>(loaded.release());
}

}  // namespace sdpa_ffi
