// What happens once in a process: finding the libraries.

#include "container.h"
#include "fake.h"
#include "support.h"

namespace sdpa_ffi::testing {
namespace {

TEST_CASE("first use: a driver that does not start is an error of the environment, then retried") {
  fake::Reset();
  fake::Fail("cuInit", 1, 999);
  CheckRefused(Registry::Get().GetOrLoad(Container().ToPlan(), 0).status(),
               StatusCode::kEnvironment,
               "cuInit failed: fake error (999); check the driver and the visible devices with: "
               "nvidia-smi");
  Load(Container().ToPlan());
}

TEST_CASE("first use: a device that cannot be opened is told by the call, then retried") {
  fake::Reset();
  for (const char* function : {"cuDeviceGetCount", "cuDeviceGet", "cuDevicePrimaryCtxRetain"}) {
    fake::Fail(function, 1, 2);
    CheckRefused(Registry::Get().GetOrLoad(Container().ToPlan(), 0).status(), StatusCode::kRuntime,
                 std::string(function) + " failed: fake error (2)");
  }
  Load(Container().ToPlan());
}

TEST_CASE("first use: sixteen threads find the libraries once") {
  fake::Reset();
  OnThreads(16, [&](int i) {
    CHECK(CudaDriver::Get().ok());
    CHECK(CudnnLibrary::Get().ok());
    CHECK(CudaDriver::Get().value()->Device(i % 2).ok());
  });
  CHECK(fake::Count("cuInit") == 1);
  CHECK(fake::Count("cuDevicePrimaryCtxRetain") == 2);
}

TEST_CASE("first use: the cuDNN that is loaded is taken, whatever path was offered") {
  fake::Reset();
  CudnnLibrary::SetPathHint("/nowhere/libcudnn.so.9");
  CHECK(CudnnLibrary::Get().value()->version() == 91900);
}

}  // namespace
}  // namespace sdpa_ffi::testing
