#include "xla_handlers.h"

#include "container.h"
#include "counters.h"
#include "fake.h"
#include "support.h"
#include "xla_frame.h"

namespace sdpa_ffi::testing {
namespace {

using Lines = std::vector<std::string>;

std::string Text(const Container& container = Container()) {
  const Bytes bytes = container.ToBytes();
  return std::string(bytes.begin(), bytes.end());
}

const Buffer kInput = {XLA_FFI_DataType_BF16, 0x1000, 1024};
const Buffer kOutput = {XLA_FFI_DataType_BF16, 0x2000, 512};
const Buffer kCleared = {XLA_FFI_DataType_F32, 0x3000, 16};
const Buffer kWorkspace = {XLA_FFI_DataType_U8, 0x4000, 256};

Answer Execute(CallSite& site, int device = 0, std::uintptr_t stream = 0x70) {
  return site.Execute(device, stream, {kInput}, {kOutput, kCleared, kWorkspace});
}

void CheckAnswer(const Answer& answer, XLA_FFI_Error_Code code, const std::string& part) {
  CHECK(answer.code == code);
  CHECK_MESSAGE(Contains(answer.message, part), answer.message);
}

TEST_CASE("XLA: instantiate decodes, initialize loads, execute only executes") {
  fake::Reset();
  CallSite site;
  CHECK(site.Instantiate(Text(), {0.5f}).ok());
  CHECK(site.has_state());
  CHECK(fake::Lines().empty());
  CHECK(site.Initialize(0, 0x70).ok());
  CHECK(counters.loads == 1);
  fake::Reset();
  CHECK(Execute(site).ok());
  CHECK(fake::Lines() ==
        Lines{"memset 0x3000 0 64 stream=0x70 context=1",
              "execute handle=1 1=0x1000 4=0x2000 9=0x3000 100=0.5 workspace=0x4000"});
  CHECK(counters.loads == 1);
}

TEST_CASE("XLA: results between arguments are merged in the order of uids") {
  fake::Reset();
  Container container;
  container.bindings = {{1, 0, 1, 0, 2}, {2, 0, 0, 0, 2}, {3, 0, 1, 0, 2}, {4, 0, 0, 0, 2}};
  container.blob = Blob({1, 2, 3, 4});
  CallSite site;
  CHECK(site.Instantiate(Text(container), {}).ok());
  CHECK(site.Initialize(0, 0).ok());
  const auto at = [](std::uintptr_t address) { return Buffer{XLA_FFI_DataType_BF16, address, 8}; };
  CHECK(site.Execute(0, 0, {at(0x200), at(0x400)}, {at(0x100), at(0x300), kWorkspace}).ok());
  CHECK(fake::Lines("execute") ==
        Lines{"execute handle=1 1=0x100 2=0x200 3=0x300 4=0x400 workspace=0x4000"});
}

TEST_CASE("XLA: a damaged plan and wrong scalars are refused before anything runs") {
  fake::Reset();
  CallSite site;
  std::string damaged = Text();
  damaged.back() ^= 1;
  CheckAnswer(site.Instantiate(damaged, {0.5f}), XLA_FFI_Error_Code_INVALID_ARGUMENT,
              "malformed plan container");
  CheckAnswer(site.Instantiate(Text(), {}), XLA_FFI_Error_Code_INVALID_ARGUMENT,
              "1 host scalars, the attribute 'scalars' has 0");
  CHECK_FALSE(site.has_state());
  CHECK(counters.load_failures == 1);
}

TEST_CASE("XLA: another cuDNN is a failed precondition, a failure of cuDNN internal") {
  fake::Reset();
  Container container;
  container.cudnn_version = 91801;
  CallSite other;
  CHECK(other.Instantiate(Text(container), {0.5f}).ok());
  CheckAnswer(other.Initialize(0, 0), XLA_FFI_Error_Code_FAILED_PRECONDITION, "cuDNN 9.18.1");
  CallSite site;
  CHECK(site.Instantiate(Text(), {0.5f}).ok());
  fake::Fail("cudnnBackendFinalize", 1, 5000);
  CheckAnswer(site.Initialize(0, 0), XLA_FFI_Error_Code_INTERNAL, "cuDNN could not load the plan");
  CHECK(site.Initialize(0, 0).ok());  // a failed load is not remembered
  fake::Fail("cudnnBackendExecute", 1, 5000);
  CheckAnswer(Execute(site), XLA_FFI_Error_Code_INTERNAL, "cuDNN could not run the plan");
  CHECK(Execute(site).ok());
}

TEST_CASE("XLA: operands that do not fit are refused by uid") {
  fake::Reset();
  CallSite site;
  CHECK(site.Instantiate(Text(), {0.5f}).ok());
  CHECK(site.Initialize(0, 0).ok());
  Buffer small = kInput;
  small.size = 1;
  CheckAnswer(site.Execute(0, 0, {small}, {kOutput, kCleared, kWorkspace}),
              XLA_FFI_Error_Code_INVALID_ARGUMENT, "uid 1: 2 bytes are addressable");
  Buffer other = kOutput;
  other.dtype = XLA_FFI_DataType_F16;
  CheckAnswer(site.Execute(0, 0, {kInput}, {other, kCleared, kWorkspace}),
              XLA_FFI_Error_Code_INVALID_ARGUMENT, "uid 4: the operand is float16");
  CheckAnswer(site.Execute(0, 0, {}, {kOutput, kCleared, kWorkspace}),
              XLA_FFI_Error_Code_INVALID_ARGUMENT, "1 inputs and 3 results");
  CheckAnswer(site.Execute(0, 0, {kInput}, {kOutput, kWorkspace}),
              XLA_FFI_Error_Code_INVALID_ARGUMENT, "the call has 1 and 2");
  CheckAnswer(site.Execute(0, 0, {kInput, kInput}, {kOutput, kCleared, kWorkspace}),
              XLA_FFI_Error_Code_INVALID_ARGUMENT, "the call has 2 and 3");
  CHECK(fake::Lines("execute").empty());
}

TEST_CASE("XLA: a call site runs on every device, also where initialize was left out") {
  fake::Reset();
  CallSite site;
  CHECK(site.Instantiate(Text(), {0.5f}).ok());
  CHECK(site.Initialize(1, 0x70).ok());
  CHECK(Execute(site, 1).ok());
  CHECK(Execute(site, 0).ok());
  CHECK(fake::Lines("memset") == Lines{"memset 0x3000 0 64 stream=0x70 context=2",
                                       "memset 0x3000 0 64 stream=0x70 context=1"});
}

TEST_CASE("XLA: call sites of one plan share it and keep their scalars") {
  fake::Reset();
  CallSite first;
  CHECK(first.Instantiate(Text(), {0.5f}).ok());
  CHECK(first.Initialize(0, 0x70).ok());
  {
    CallSite second;
    CHECK(second.Instantiate(Text(), {0.25f}).ok());
    CHECK(second.Initialize(0, 0x70).ok());
    CHECK(Execute(second).ok());
  }
  CHECK(Execute(first).ok());
  CHECK(counters.loads == 1);
  const Lines executed = fake::Lines("execute");
  CHECK(Contains(executed.at(0), "100=0.25"));
  CHECK(Contains(executed.at(1), "100=0.5"));
}

TEST_CASE("XLA: initialize may come during a capture, execute is fit for one") {
  fake::Reset();
  CallSite site;
  CHECK(site.Instantiate(Text(), {0.5f}).ok());
  fake::BeginCapture();
  CHECK(site.Initialize(0, 0x70).ok());
  CHECK(Execute(site).ok());
  CHECK(fake::CaptureIsIntact());
}

TEST_CASE("XLA: many threads run one call site") {
  fake::Reset();
  CallSite site;
  CHECK(site.Instantiate(Text(), {0.5f}).ok());
  fake::Record(false);
  OnThreads(16, [&](int thread) {
    const auto stream = static_cast<std::uintptr_t>(0x70 + thread);
    for (int i = 0; i < 20; ++i) {
      CHECK(site.Initialize(thread % 2, stream).ok());
      CHECK(Execute(site, thread % 2, stream).ok());
    }
  });
  CHECK(counters.executes == 320);
  CHECK(counters.loads == 2);
}

TEST_CASE("XLA: a call site that was not instantiated is an error") {
  CallSite site;
  CheckAnswer(site.Initialize(0, 0), XLA_FFI_Error_Code_INVALID_ARGUMENT, "no state");
}

TEST_CASE("XLA: what handlers say about themselves") {
  const CallSite registers_the_type;
  const XlaHandlers handlers = GetXlaHandlers();
  for (void* handler : {handlers.instantiate, handlers.initialize, handlers.execute}) {
    const XLA_FFI_Metadata metadata = MetadataOf(handler);
    CHECK(metadata.api_version.major_version == 0);
    CHECK(metadata.api_version.minor_version == 2);
  }
  CHECK(MetadataOf(handlers.execute).traits == XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE);
  CHECK(MetadataOf(handlers.instantiate).state_type_id.type_id == 1);
}

}  // namespace
}  // namespace sdpa_ffi::testing
