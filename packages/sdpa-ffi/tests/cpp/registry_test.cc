#include "registry.h"

#include <cstring>

#include "container.h"
#include "counters.h"
#include "fake.h"
#include "support.h"

namespace sdpa_ffi::testing {
namespace {

TEST_CASE("registry: sixteen threads that ask for one plan share one load") {
  fake::Reset();
  const Plan plan = Container().ToPlan();
  std::atomic<const LoadedPlan*> seen{nullptr};
  std::atomic<int> others{0};
  OnThreads(16, [&](int) {
    const LoadedPlan* loaded = &Load(plan);
    const LoadedPlan* expected = nullptr;
    if (!seen.compare_exchange_strong(expected, loaded) && expected != loaded) ++others;
  });
  CHECK(others == 0);
  CHECK(counters.loads == 1);
  CHECK(fake::Count("cudnnCreate") == 1);
}

TEST_CASE("registry: threads that ask for different plans load each once") {
  fake::Reset();
  std::vector<Plan> plans;
  for (std::uint8_t i = 0; i < 4; ++i) {
    Container container;
    container.fingerprint = i;
    plans.push_back(container.ToPlan());
  }
  OnThreads(16, [&](int i) { Load(plans[static_cast<std::size_t>(i) % 4], i / 4 % 2); });
  CHECK(counters.loads == 8);  // four plans on two devices
}

TEST_CASE("registry: equal containers are one plan, whoever read them") {
  fake::Reset();
  CHECK(&Load(Container().ToPlan()) == &Load(Container().ToPlan()));
}

TEST_CASE("registry: each device has its own") {
  fake::Reset();
  const Plan plan = Container().ToPlan();
  const LoadedPlan& first = Load(plan, 0);
  const LoadedPlan& second = Load(plan, 1);
  CHECK(&first != &second);
  CHECK(first.device.ordinal == 0);
  CHECK(second.device.ordinal == 1);
  CHECK(Registry::Get().Find(plan.header.identity, 0) == &first);
  CHECK(Registry::Get().Find(plan.header.identity, 1) == &second);
}

TEST_CASE("registry: what is not loaded is not found") {
  fake::Reset();
  const Plan plan = Container().ToPlan();
  CHECK(Registry::Get().Find(plan.header.identity, 0) == nullptr);
  Load(plan, 1);
  CHECK(Registry::Get().Find(plan.header.identity, 0) == nullptr);
}

TEST_CASE("registry: a failed load is not remembered") {
  fake::Reset();
  const Plan plan = Container().ToPlan();
  for (const char* function : {"cudnnCreate", "cudnnBackendCreateDescriptor",
                               "cudnnBackendFinalize", "cuCtxGetCurrent", "cuCtxSetCurrent"}) {
    CAPTURE(function);
    fake::Fail(function, 1, 5000);
    CHECK_FALSE(Registry::Get().GetOrLoad(plan, 0).ok());
    CHECK(Registry::Get().Find(plan.header.identity, 0) == nullptr);
  }
  Load(plan);
  CHECK(counters.loads == 1);
  CHECK(counters.load_failures == 5);
}

TEST_CASE("registry: of threads that ask at once, those after a failed load try again") {
  fake::Reset();
  const Plan plan = Container().ToPlan();
  fake::Fail("cudnnBackendFinalize", 1, 5000);
  std::atomic<int> failed{0};
  OnThreads(16, [&](int) { failed += Registry::Get().GetOrLoad(plan, 0).ok() ? 0 : 1; });
  CHECK(failed == 1);
  CHECK(counters.loads == 1);
}

TEST_CASE("registry: a plan for another architecture, cuDNN or workspace is refused by name") {
  fake::Reset();
  Container container;
  container.sm = 100;
  CheckRefused(Registry::Get().GetOrLoad(container.ToPlan(), 0).status(),
               StatusCode::kInvalidArgument, "built for sm100, device 0 is sm90");
  container = Container();
  container.cudnn_version = 91801;
  CheckRefused(Registry::Get().GetOrLoad(container.ToPlan(), 0).status(), StatusCode::kEnvironment,
               "pip install nvidia-cudnn-cu12==9.18.1.*");
  container = Container();
  container.workspace_bytes = 255;
  CheckRefused(Registry::Get().GetOrLoad(container.ToPlan(), 0).status(),
               StatusCode::kInvalidArgument, "its graph needs 256");
  CheckRefused(Registry::Get().GetOrLoad(Container().ToPlan(), 2).status(),
               StatusCode::kInvalidArgument, "device 2 does not exist");
  CheckRefused(Registry::Get().GetOrLoad(Container().ToPlan(), -1).status(),
               StatusCode::kInvalidArgument, "device -1 does not exist");
}

TEST_CASE("registry: two devices of different architectures take the plans of their own") {
  fake::Reset();
  fake::SetDevices({90, 100});
  Container container;
  container.sm = 100;
  CHECK(Load(container.ToPlan(), 1).device.sm == 100);
  CHECK_FALSE(Registry::Get().GetOrLoad(Container().ToPlan(), 1).ok());
  Load(Container().ToPlan(), 0);
}

TEST_CASE("registry: bindings that are not the graph's are named") {
  fake::Reset();
  Container container;
  container.blob = Blob({1, 2, 4, 9, 100});
  CheckRefused(Registry::Get().GetOrLoad(container.ToPlan(), 0).status(),
               StatusCode::kInvalidArgument,
               "operands without a binding: uid 2; bindings unknown to the graph: none");
  container.blob = Blob({4, 9, 100});
  CheckRefused(Registry::Get().GetOrLoad(container.ToPlan(), 0).status(),
               StatusCode::kInvalidArgument, "bindings unknown to the graph: uid 1");
}

TEST_CASE("registry: a blob that is no graph is refused") {
  fake::Reset();
  Container container;
  for (const char* blob : {"noise", "{}", "{i", "[[[[", "CUDNN_FE_PYPLAN"}) {
    CAPTURE(blob);
    container.blob = Bytes(blob, blob + std::strlen(blob));
    CHECK(Registry::Get().GetOrLoad(container.ToPlan(), 0).status().code() ==
          StatusCode::kInvalidArgument);
  }
  container.blob = Bytes(1'000'000, '[');
  CheckRefused(Registry::Get().GetOrLoad(container.ToPlan(), 0).status(),
               StatusCode::kInvalidArgument, "nested too deeply");
}

TEST_CASE("registry: every truncation of a graph is refused") {
  fake::Reset();
  const Bytes whole = Blob({1, 4, 9, 100});
  for (std::size_t size = 1; size < whole.size(); ++size) {
    CAPTURE(size);
    Container container;
    container.blob.assign(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    CHECK_FALSE(Registry::Get().GetOrLoad(container.ToPlan(), 0).ok());
  }
}

}  // namespace
}  // namespace sdpa_ffi::testing
