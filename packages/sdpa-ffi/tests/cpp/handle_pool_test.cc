#include "handle_pool.h"

#include <set>

#include "fake.h"
#include "support.h"

namespace sdpa_ffi::testing {
namespace {

struct Libraries {
  Libraries() {
    fake::Reset();
    driver = CudaDriver::Get().value();
    cudnn = CudnnLibrary::Get().value();
  }

  Result<CudnnHandle> Handle(int ordinal, std::optional<CUstream> stream = std::nullopt) const {
    const CudaDevice& device = *driver->Device(ordinal).value();
    const ContextScope context(*driver, device);
    return HandleForThisThread(*cudnn, *driver, device, stream);
  }

  const CudaDriver* driver;
  const CudnnLibrary* cudnn;
};

CUstream Stream(std::uintptr_t number) { return static_cast<CUstream>(Address(number)); }

TEST_CASE("handles: a thread has one for each device and keeps it") {
  const Libraries libraries;
  const CudnnHandle first = libraries.Handle(0).value();
  const CudnnHandle second = libraries.Handle(1).value();
  CHECK(first != second);
  CHECK(libraries.Handle(0).value() == first);
  CHECK(libraries.Handle(1).value() == second);
  CHECK(reinterpret_cast<fake::Handle*>(first)->device == 0);
  CHECK(reinterpret_cast<fake::Handle*>(second)->device == 1);
}

TEST_CASE("handles: threads that live at once have different ones") {
  const Libraries libraries;
  std::mutex mutex;
  std::set<CudnnHandle> handles;
  std::atomic<int> inside{16};
  OnThreads(16, [&](int i) {
    const CudnnHandle handle = libraries.Handle(i % 2).value();
    {
      std::lock_guard<std::mutex> lock(mutex);
      handles.insert(handle);
    }
    --inside;
    while (inside > 0) std::this_thread::yield();  // none ends before all have theirs
  });
  CHECK(handles.size() == 16);
}

TEST_CASE("handles: a thread's pass to later threads when it ends, and are not destroyed") {
  const Libraries libraries;
  CudnnHandle handle[2] = {};
  for (CudnnHandle& mine : handle) {
    std::thread([&] { mine = libraries.Handle(0).value(); }).join();
  }
  CHECK(handle[0] == handle[1]);
  CHECK(fake::Count("cudnnCreate") == 1);
  // Not to a thread that wants another device.
  CudnnHandle other = nullptr;
  std::thread([&] { other = libraries.Handle(1).value(); }).join();
  CHECK(other != handle[0]);
  CHECK(fake::Count("cudnnDestroy") == 0);
}

TEST_CASE("handles: the stream is set when it changes, also after a handle changed threads") {
  const Libraries libraries;
  std::thread([&] { CHECK(libraries.Handle(0, Stream(0x70)).ok()); }).join();
  std::thread([&] {
    for (const std::uintptr_t stream : {0x70, 0x70, 0x80, 0x0, 0x0}) {
      const CudnnHandle handle = libraries.Handle(0, Stream(stream)).value();
      CHECK(reinterpret_cast<fake::Handle*>(handle)->stream == Address(stream));
    }
  }).join();
  CHECK(fake::Lines("handle") == std::vector<std::string>{"handle 1 stream=0x70",
                                                          "handle 1 stream=0x80",
                                                          "handle 1 stream=(nil)"});
}

TEST_CASE("handles: without a stream the one before stays") {
  const Libraries libraries;
  CHECK(libraries.Handle(0, Stream(0x70)).ok());
  const CudnnHandle handle = libraries.Handle(0).value();
  CHECK(reinterpret_cast<fake::Handle*>(handle)->stream == Address(0x70));
}

TEST_CASE("handles: a failure to set the stream is told, and the next call sets it again") {
  const Libraries libraries;
  CHECK(libraries.Handle(0, Stream(0x70)).ok());
  fake::Fail("cudnnSetStream", 1, 5000);
  CheckRefused(libraries.Handle(0, Stream(0x80)).status(), StatusCode::kRuntime,
               "cudnnSetStream failed: fake failure (5000)");
  const CudnnHandle handle = libraries.Handle(0, Stream(0x80)).value();
  CHECK(reinterpret_cast<fake::Handle*>(handle)->stream == Address(0x80));
}

TEST_CASE("handles: a failure to make one is told, and the next call makes one") {
  const Libraries libraries;
  fake::Fail("cudnnCreate", 1, 1);
  CheckRefused(libraries.Handle(0).status(), StatusCode::kRuntime, "cudnnCreate failed");
  CHECK(libraries.Handle(0).ok());
  CHECK(fake::Count("cudnnCreate") == 2);
}

}  // namespace
}  // namespace sdpa_ffi::testing
