#include <string>

#include "container.h"
#include "fake.h"
#include "support.h"

namespace sdpa_ffi::testing {
namespace {

// Modes are exchanged in pairs; 0 is the one a thread starts with.
bool ModeIsRestored() {
  const auto lines = fake::Lines("capture mode");
  return !lines.empty() && lines.back() == "capture mode 0";
}

TEST_CASE("capture: a plan is loaded under the relaxed mode, which is then restored") {
  fake::Reset();
  fake::BeginCapture();
  Load(Container().ToPlan());
  CHECK(fake::CaptureIsIntact());
  CHECK(ModeIsRestored());
}

TEST_CASE("capture: the fake ends a capture that loads otherwise") {
  fake::Reset();
  const CudnnLibrary& cudnn = *CudnnLibrary::Get().value();
  fake::BeginCapture();
  CHECK_FALSE(cudnn.CreateHandle().ok());
  CHECK_FALSE(fake::CaptureIsIntact());
}

TEST_CASE("capture: the mode is restored after every failure of a load") {
  int attempts = 0;
  int failures = 0;
  for (const char* function :
       {"cudnnCreate", "cudnnBackendCreateDescriptor", "cudnnBackendSetAttribute",
        "cudnnBackendFinalize", "cudnnBackendGetAttribute", "cuCtxSetCurrent"}) {
    for (int nth = 1;; ++nth) {
      CAPTURE(function);
      CAPTURE(nth);
      Container container;  // another one each time, which is not loaded yet
      container.engine = std::to_string(++attempts);
      fake::Reset();
      fake::BeginCapture();
      fake::Fail(function, nth, 5000);
      bool loaded = false;
      // In a thread without a current device.
      std::thread([&] { loaded = Registry::Get().GetOrLoad(container.ToPlan(), 0).ok(); }).join();
      if (!fake::Lines("capture mode").empty()) CHECK(ModeIsRestored());
      CHECK(fake::CaptureIsIntact());
      if (fake::Count(function) < nth) break;  // it is not called that often
      failures += loaded ? 0 : 1;
    }
  }
  CHECK(failures >= 5);
}

TEST_CASE("capture: a plan that is refused leaves the capture intact") {
  fake::Reset();
  fake::BeginCapture();
  Container container;
  container.workspace_bytes = 1;  // seen only after cuDNN has loaded it
  CHECK_FALSE(Registry::Get().GetOrLoad(container.ToPlan(), 0).ok());
  CHECK(fake::CaptureIsIntact());
  CHECK(ModeIsRestored());
}

TEST_CASE("capture: without the relaxed mode nothing is loaded, and the warm-up call is named") {
  fake::Reset();
  fake::BeginCapture();
  fake::Fail("cuThreadExchangeStreamCaptureMode", 1, 1);
  CheckRefused(Registry::Get().GetOrLoad(Container().ToPlan(), 0).status(), StatusCode::kRuntime,
               "run the call once before the capture");
  CHECK(fake::CaptureIsIntact());
  CHECK(fake::Count("cudnnCreate") == 0);
}

TEST_CASE("capture: the first call of a thread makes its handle under the relaxed mode") {
  fake::Reset();
  const LoadedPlan& plan = Load(Container().ToPlan());
  fake::BeginCapture();
  std::thread([&] { CHECK(Call()(plan).ok()); }).join();
  CHECK(fake::CaptureIsIntact());
}

TEST_CASE("capture: a call does nothing that a capture forbids, and changes no mode") {
  fake::Reset();
  const LoadedPlan& plan = Load(Container().ToPlan());
  fake::Reset();
  fake::BeginCapture();
  CHECK(Call()(plan).ok());
  CHECK(fake::CaptureIsIntact());
  CHECK(fake::Lines("capture mode").empty());
}

}  // namespace
}  // namespace sdpa_ffi::testing
