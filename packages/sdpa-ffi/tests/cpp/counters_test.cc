#include "counters.h"

#include "container.h"
#include "fake.h"
#include "support.h"

namespace sdpa_ffi::testing {
namespace {

TEST_CASE("counters: loads and failed loads, a plan that is there already is neither") {
  fake::Reset();
  const Bytes bytes = Container().ToBytes();
  const auto plan = ParseForLoading({bytes.data(), bytes.size()});
  CHECK(plan.ok());
  Load(Container().ToPlan());
  Load(Container().ToPlan());
  CHECK(counters.loads == 1);
  CHECK(counters.load_failures == 0);
  CHECK_FALSE(ParseForLoading({bytes.data(), bytes.size() - 1}).ok());
  CHECK_FALSE(Registry::Get().GetOrLoad(Container().ToPlan(), 7).ok());
  CHECK(counters.load_failures == 2);
  CHECK(counters.handles_created == 1);
}

TEST_CASE("counters: calls, failed calls and cleared outputs") {
  fake::Reset();
  const LoadedPlan& plan = Load(Container().ToPlan());
  for (int i = 0; i < 3; ++i) CHECK(Call()(plan).ok());
  Call wrong;
  wrong.scalars.clear();
  CHECK_FALSE(wrong(plan).ok());
  fake::Fail("cudnnBackendExecute", 1, 5000);
  CHECK_FALSE(Call()(plan).ok());
  CHECK(counters.executes == 3);
  CHECK(counters.execute_failures == 2);
  CHECK(counters.zero_fills == 4);  // that of the failed execution was enqueued
}

TEST_CASE("counters: every stage of a load takes time") {
  fake::Reset();
  const Bytes bytes = Container().ToBytes();
  auto plan = ParseForLoading({bytes.data(), bytes.size()});
  Load(plan.value());
  for (const auto* stage :
       {&counters.parse_ns, &counters.handle_ns, &counters.deserialize_ns, &counters.check_ns}) {
    CHECK(*stage > 0);
    CHECK(*stage < 60'000'000'000);
  }
}

TEST_CASE("counters: of many threads nothing is lost") {
  fake::Reset();
  const LoadedPlan& plan = Load(Container().ToPlan());
  fake::Record(false);
  OnThreads(16, [&](int) {
    for (int i = 0; i < 50; ++i) CHECK(Call()(plan).ok());
  });
  CHECK(counters.executes == 800);
  CHECK(counters.zero_fills == 800);
}

}  // namespace
}  // namespace sdpa_ffi::testing
