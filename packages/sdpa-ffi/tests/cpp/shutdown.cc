// Ends a process in which threads have handles, some of them still running: neither static nor
// thread_local destructors may call cuDNN or the driver, which may be gone by then. The fakes end
// the process with an error at the first such call. With an argument, this program makes one.

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "container.h"
#include "cuda_driver.h"
#include "executor.h"
#include "fake.h"
#include "registry.h"

namespace {

using sdpa_ffi::Operand;

int Run(int device) {
  const auto plan = sdpa_ffi::testing::Container().ToPlan();
  auto loaded = sdpa_ffi::Registry::Get().GetOrLoad(plan, device);
  if (!loaded.ok()) return 1;
  Operand operands[3];
  for (Operand& operand : operands) operand.address = reinterpret_cast<void*>(0x1000);
  const float scalar = 0.5f;
  return sdpa_ffi::Execute(*loaded.value(), {operands, 3}, {&scalar, 1}, operands[0], nullptr).ok()
             ? 0
             : 1;
}

void CallTheDriver() {
  const sdpa_ffi::CudaDriver& driver = *sdpa_ffi::CudaDriver::Get().value();
  (void)driver.MemsetZero(nullptr, 0, nullptr);
}

}  // namespace

int main(int count, char**) {
  fake::Reset();
  std::atomic<int> failures{Run(0) + Run(1)};
  std::thread([&] { failures += Run(0); }).join();
  std::atomic<bool> ready{false};
  std::thread([&] {
    failures += Run(1);
    ready = true;
    for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
  }).detach();
  while (!ready) std::this_thread::yield();
  if (count > 1) std::atexit(CallTheDriver);
  fake::ForbidCalls();
  return failures;
}
