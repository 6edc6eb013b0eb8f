#pragma once

#include <doctest/doctest.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "executor.h"
#include "registry.h"

namespace sdpa_ffi::testing {

inline bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Fails the test unless `status` is of this kind and says this.
inline void CheckRefused(const Status& status, StatusCode code, const std::string& part) {
  CHECK(status.code() == code);
  CHECK_MESSAGE(Contains(status.message(), part), status.message());
}

inline const LoadedPlan& Load(const Plan& plan, int device = 0) {
  auto loaded = Registry::Get().GetOrLoad(plan, device);
  REQUIRE_MESSAGE(loaded.ok(), loaded.status().message());
  return *loaded.value();
}

inline void* Address(std::uintptr_t number) { return reinterpret_cast<void*>(number); }

inline Operand At(std::uintptr_t address) {
  Operand operand;
  operand.address = Address(address);
  return operand;
}

inline Operand At(std::uintptr_t address, std::uint64_t bytes) {
  Operand operand = At(address);
  operand.bytes = bytes;
  return operand;
}

// A call of a container's default plan. Nothing follows its addresses.
struct Call {
  std::vector<Operand> operands = {At(0x1000), At(0x2000), At(0x3000)};
  std::vector<float> scalars = {0.5f};
  Operand workspace = At(0x4000);
  CUstream stream = static_cast<CUstream>(Address(0x70));

  Status operator()(const LoadedPlan& plan) const {
    return Execute(plan, {operands.data(), operands.size()}, {scalars.data(), scalars.size()},
                   workspace, stream);
  }
};

// Runs `body(i)` on `count` threads that start together, and waits for all.
inline void OnThreads(int count, const std::function<void(int)>& body) {
  std::atomic<int> waiting{count};
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) {
    threads.emplace_back([&, i] {
      --waiting;
      while (waiting > 0) std::this_thread::yield();
      body(i);
    });
  }
  for (auto& thread : threads) thread.join();
}

}  // namespace sdpa_ffi::testing
