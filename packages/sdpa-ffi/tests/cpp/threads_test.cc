// Many threads, plans, devices and streams at once; meant for ThreadSanitizer.

#include <cstring>

#include "container.h"
#include "counters.h"
#include "fake.h"
#include "support.h"

namespace sdpa_ffi::testing {
namespace {

constexpr int kThreads = 16;
constexpr int kPlans = 4;
constexpr int kDevices = 2;
constexpr int kStreams = 3;
constexpr int kCalls = 60;

// The operands of one call, in host memory, which the kernel below reads and writes.
struct alignas(16) Memory {
  std::uint64_t input[256];   // uid 1
  std::uint64_t output[128];  // uid 4
  std::uint64_t cleared[8];   // uid 9
  std::uint64_t workspace[32];
};

// Adds up what it was given, its stream included; an output that was not cleared spoils the sum.
int Kernel(const fake::Execution& execution) {
  const auto* input = static_cast<const std::uint64_t*>(execution.pointers[0]);
  auto* output = static_cast<std::uint64_t*>(execution.pointers[1]);
  auto* cleared = static_cast<std::uint64_t*>(execution.pointers[2]);
  float scalar = 0;
  std::memcpy(&scalar, execution.pointers[3], sizeof scalar);
  output[0] = input[0] + cleared[0] + static_cast<std::uint64_t>(scalar) +
              reinterpret_cast<std::uintptr_t>(execution.handle->stream);
  cleared[0] = output[0];
  ++*static_cast<std::uint64_t*>(execution.workspace);
  return execution.handle->device == fake::CurrentDevice() ? 0 : 5000;
}

std::vector<Plan> Plans() {
  std::vector<Plan> plans;
  for (std::uint8_t i = 0; i < kPlans; ++i) {
    Container container;
    container.fingerprint = i;
    plans.push_back(container.ToPlan());
  }
  return plans;
}

// One call; what it gives, or 0 if it failed.
std::uint64_t Run(const Plan& plan, int device, int stream, std::uint64_t input, Memory* memory) {
  auto loaded = Registry::Get().GetOrLoad(plan, device);
  if (!loaded.ok()) return 0;
  memory->input[0] = input;
  Call call;
  const auto at = [](auto& field) {
    return At(reinterpret_cast<std::uintptr_t>(&field), sizeof field);
  };
  call.operands = {at(memory->input), at(memory->output), at(memory->cleared)};
  call.workspace = at(memory->workspace);
  call.scalars = {static_cast<float>(stream)};
  call.stream = static_cast<CUstream>(Address(0x100 + static_cast<std::uintptr_t>(stream)));
  return call(*loaded.value()).ok() ? memory->output[0] : 0;
}

TEST_CASE("threads: sixteen, with several plans, devices and streams, give what one gives") {
  fake::Reset();
  fake::Record(false);
  fake::SetKernel(Kernel);
  fake::SetMemsetWrites(true);
  const std::vector<Plan> plans = Plans();
  std::atomic<int> wrong{0};
  OnThreads(kThreads, [&](int thread) {
    auto memory = std::make_unique<Memory>();
    memory->workspace[0] = 0;
    for (int i = 0; i < kCalls; ++i) {
      const int turn = thread + i;
      const int stream = turn % kStreams;
      const auto input = static_cast<std::uint64_t>(1000 * thread + i);
      const auto& plan = plans[static_cast<std::size_t>(turn % kPlans)];
      const std::uint64_t got = Run(plan, turn / kPlans % kDevices, stream, input, memory.get());
      const std::uint64_t serial = input + 2 * static_cast<std::uint64_t>(stream) + 0x100;
      wrong += got == serial ? 0 : 1;
    }
    wrong += memory->workspace[0] == kCalls ? 0 : 1;
  });
  CHECK(wrong == 0);
  CHECK(counters.executes == kThreads * kCalls);
  CHECK(counters.loads == kPlans * kDevices);
  CHECK(counters.handles_created <= kThreads * kDevices);
}

TEST_CASE("threads: that come and go share few handles") {
  fake::Reset();
  fake::Record(false);
  fake::SetKernel(Kernel);
  fake::SetMemsetWrites(true);
  const std::vector<Plan> plans = Plans();
  for (int generation = 0; generation < 8; ++generation) {
    OnThreads(4, [&](int thread) {
      Memory memory = {};
      CHECK(Run(plans[static_cast<std::size_t>(thread)], thread % 2, 1, 5, &memory) == 263);
    });
  }
  CHECK(counters.executes == 32);
  CHECK(counters.handles_created <= 4);
}

}  // namespace
}  // namespace sdpa_ffi::testing
