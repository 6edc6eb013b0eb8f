#include "executor.h"

#include "container.h"
#include "counters.h"
#include "fake.h"
#include "support.h"

namespace sdpa_ffi::testing {
namespace {

using Lines = std::vector<std::string>;

// A plan on a device, with what loading it recorded left behind.
const LoadedPlan& Loaded(const Container& container = Container(), int device = 0) {
  fake::Reset();
  const LoadedPlan& plan = Load(container.ToPlan(), device);
  fake::Reset();
  return plan;
}

Lines Launches() {
  Lines lines = fake::Lines("memset");
  for (const std::string& line : fake::Lines("execute")) lines.push_back(line);
  return lines;
}

TEST_CASE("executor: the stream is set, outputs are cleared on it, then cuDNN runs") {
  const LoadedPlan& plan = Loaded();
  CHECK(Call()(plan).ok());
  CHECK(fake::Lines() ==
        Lines{"handle 1 stream=0x70", "memset 0x3000 0 64 stream=0x70 context=1",
              "execute handle=1 1=0x1000 4=0x2000 9=0x3000 100=0.5 workspace=0x4000"});
}

TEST_CASE("executor: a cleared output is cleared as far as it is known to reach") {
  const LoadedPlan& plan = Loaded();
  Call call;
  call.operands[2] = At(0x3000, 4096);
  CHECK(call(plan).ok());
  CHECK(fake::Lines("memset") == Lines{"memset 0x3000 0 4096 stream=0x70 context=1"});
}

TEST_CASE("executor: numbers of the host go into the workspace, on the stream, before cuDNN runs") {
  Container container;
  container.blob = Blob({1, 4, 9, 100}, {{7, 64, {0.5f, 0.25f}}});
  const LoadedPlan& plan = Loaded(container);
  CHECK(Call()(plan).ok());
  const Lines lines = fake::Lines();
  CHECK(lines[lines.size() - 2] == "copy 0x4040 first=0.5 8 stream=0x70 context=1");
  CHECK(lines.back().find("execute") == 0);
  fake::Reset();
  fake::Fail("cuMemcpyHtoDAsync", 1, 719);
  CheckRefused(Call()(plan), StatusCode::kRuntime, "cuMemcpyHtoDAsync failed: fake error (719)");
  CHECK(fake::Count("cudnnBackendExecute") == 0);
}

TEST_CASE("executor: numbers that the workspace has no room for make no plan") {
  Container container;
  container.blob = Blob({1, 4, 9, 100}, {{7, 252, {0.5f, 0.25f}}});
  const auto refused = Registry::Get().GetOrLoad(container.ToPlan(), 0);
  CheckRefused(refused.status(), StatusCode::kInvalidArgument, "8 bytes at 252 of a workspace");
}

TEST_CASE("executor: an output of no bytes is not cleared") {
  Container container;
  container.bindings[2].bytes = 0;
  const LoadedPlan& plan = Loaded(container);
  Call call;
  call.operands[2] = At(0, 0);
  CHECK(call(plan).ok());
  CHECK(fake::Lines("memset").empty());
}

TEST_CASE("executor: the plan's device is current during a call only") {
  const LoadedPlan& plan = Loaded(Container(), 1);
  const ContextScope first(plan.driver, *plan.driver.Device(0).value());
  CHECK(Call()(plan).ok());
  CHECK(fake::Lines("memset") == Lines{"memset 0x3000 0 64 stream=0x70 context=2"});
  CHECK(fake::CurrentDevice() == 0);
}

TEST_CASE("executor: the device that was current is so again after a failure") {
  const LoadedPlan& plan = Loaded(Container(), 1);
  const ContextScope first(plan.driver, *plan.driver.Device(0).value());
  fake::Fail("cudnnBackendExecute", 1, 5000);
  CHECK_FALSE(Call()(plan).ok());
  CHECK(fake::CurrentDevice() == 0);
}

TEST_CASE("executor: another context of the plan's device is left alone") {
  const LoadedPlan& plan = Loaded(Container(), 1);
  const CudaDevice green = {1, 1, static_cast<CUcontext>(Address(1002)), 90};
  const ContextScope scope(plan.driver, green);
  CHECK(Call()(plan).ok());
  CHECK(fake::Lines("memset") == Lines{"memset 0x3000 0 64 stream=0x70 context=1002"});
}

TEST_CASE("executor: nothing is enqueued when a check fails") {
  const LoadedPlan& plan = Loaded();
  Call call;
  call.operands[1].address = nullptr;
  CheckRefused(call(plan), StatusCode::kInvalidArgument, "uid 4");
  call = Call();
  call.workspace.bytes = 255;
  CheckRefused(call(plan), StatusCode::kInvalidArgument, "workspace");
  CHECK(fake::Lines().empty());
}

TEST_CASE("executor: a failure of cuDNN or of the driver is told by name, and is not the last") {
  const LoadedPlan& plan = Loaded();
  const std::pair<const char*, const char*> failures[] = {
      {"cuCtxGetCurrent", "cuCtxGetCurrent failed: fake error (719)"},
      {"cuCtxSetCurrent", "cuCtxSetCurrent failed: fake error (719)"},
      {"cudnnSetStream", "cudnnSetStream failed: fake failure (719)"},
      {"cuMemsetD8Async", "cuMemsetD8Async failed: fake error (719)"},
      {"cudnnBackendCreateDescriptor", "cuDNN could not run the plan"},
      {"cudnnBackendSetAttribute", "cuDNN could not run the plan"},
      {"cudnnBackendFinalize", "cuDNN could not run the plan"},
      {"cudnnBackendExecute", "cuDNN could not run the plan"},
  };
  for (const auto& [function, message] : failures) {
    CAPTURE(function);
    fake::Reset();
    fake::Fail(function, 1, 719);
    CheckRefused(Call()(plan), StatusCode::kRuntime, message);
    CHECK(fake::Count("cudnnBackendExecute") == (std::string(function) == "cudnnBackendExecute"));
  }
  fake::Reset();
  CHECK(Call()(plan).ok());
  CHECK(Launches().size() == 2);
}

TEST_CASE("executor: every call of cuDNN during an execution may fail") {
  const LoadedPlan& plan = Loaded();
  int failures = 0;
  for (const char* function : {"cudnnBackendCreateDescriptor", "cudnnBackendSetAttribute",
                               "cudnnBackendFinalize", "cudnnBackendExecute"}) {
    for (int nth = 1;; ++nth) {
      CAPTURE(function);
      CAPTURE(nth);
      fake::Reset();
      fake::Fail(function, nth, 5000);
      const Status status = Call()(plan);
      if (fake::Count(function) < nth) break;  // it does not call it that often
      CHECK(status.code() == StatusCode::kRuntime);
      ++failures;
    }
  }
  CHECK(failures >= 4);
}

TEST_CASE("executor: a thread that never loaded the plan makes a handle of its own") {
  const LoadedPlan& plan = Loaded();
  std::thread([&] { CHECK(Call()(plan).ok()); }).join();
  CHECK(fake::Count("cudnnCreate") == 1);
}

}  // namespace
}  // namespace sdpa_ffi::testing
