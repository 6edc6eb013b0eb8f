#include "operands.h"

#include "container.h"
#include "operand_names.h"
#include "support.h"

namespace sdpa_ffi::testing {
namespace {

constexpr int kDevice = 0;

// The default plan's operands, complete in everything that can be known of them.
struct Offer : Call {
  Offer() {
    operands = {At(0x1000, 2048), At(0x2000, 1024), At(0x3000, 64)};
    workspace = At(0x4000, 256);
    const DataType dtypes[] = {DataType::kBFloat16, DataType::kBFloat16, DataType::kFloat32};
    for (std::size_t i = 0; i < operands.size(); ++i) {
      operands[i].dtype = dtypes[i];
      operands[i].device = kDevice;
    }
  }

  Status Bind() {
    return BindOperands(plan.header, kDevice, {operands.data(), operands.size()},
                        {scalars.data(), scalars.size()}, workspace, &pointers);
  }

  Plan plan = Container().ToPlan();
  std::array<void*, kMaxBindings> pointers;
};

TEST_CASE("operands: pointers are in the order of uids, scalars at the end of theirs") {
  Offer offer;
  CHECK(offer.Bind().ok());
  CHECK(offer.pointers[0] == Address(0x1000));
  CHECK(offer.pointers[1] == Address(0x2000));
  CHECK(offer.pointers[2] == Address(0x3000));
  CHECK(offer.pointers[3] == offer.scalars.data());
}

TEST_CASE("operands: what is not known is not checked") {
  Offer offer;
  offer.operands = {At(0x1000), At(0x2000), At(0x3000)};
  offer.workspace = At(0x4000);
  CHECK(offer.Bind().ok());
}

TEST_CASE("operands: scalars between device operands are taken in ascending uid") {
  Container container;
  container.bindings = {{1, 0, 2, 0, 3}, {2, 64, 0, 0, 2}, {3, 0, 2, 0, 3}};
  Offer offer;
  offer.plan = container.ToPlan();
  offer.operands = {At(0x1000)};
  offer.scalars = {1.5f, 2.5f};
  CHECK(offer.Bind().ok());
  CHECK(offer.pointers[0] == &offer.scalars[0]);
  CHECK(offer.pointers[1] == Address(0x1000));
  CHECK(offer.pointers[2] == &offer.scalars[1]);
}

struct Mistake {
  const char* refusal;
  std::function<void(Offer&)> make;
};

const Mistake kMistakes[] = {
    {"3 device operands, got 2; it wants uid 1, uid 4, uid 9",
     [](Offer& offer) { offer.operands.pop_back(); }},
    {"3 device operands, got 4", [](Offer& offer) { offer.operands.push_back(At(0x5000)); }},
    {"3 device operands, got 0", [](Offer& offer) { offer.operands.clear(); }},
    {"1 host scalars, got 0; it wants uid 100", [](Offer& offer) { offer.scalars.clear(); }},
    {"1 host scalars, got 2", [](Offer& offer) { offer.scalars.push_back(1); }},
    {"uid 1: the pointer is null, the plan needs 2048 bytes",
     [](Offer& offer) { offer.operands[0].address = nullptr; }},
    {"uid 4: the pointer is 8 bytes past a multiple of 16",
     [](Offer& offer) { offer.operands[1].address = Address(0x2008); }},
    {"uid 9: the pointer is 1 bytes past",
     [](Offer& offer) { offer.operands[2].address = Address(0x3001); }},
    {"uid 4: 1023 bytes are addressable, the plan needs 1024",
     [](Offer& offer) { offer.operands[1].bytes = 1023; }},
    {"uid 1: 0 bytes are addressable", [](Offer& offer) { offer.operands[0].bytes = 0; }},
    {"uid 1: the operand is in CUDA device 1, the plan runs on CUDA device 0",
     [](Offer& offer) { offer.operands[0].device = 1; }},
    {"uid 9: the operand is in host memory",
     [](Offer& offer) { offer.operands[2].device = kHostDevice; }},
    {"uid 1: the operand is float16, the plan needs bfloat16",
     [](Offer& offer) { offer.operands[0].dtype = DataType::kFloat16; }},
    {"uid 9: the plan zero-fills this output",
     [](Offer& offer) { offer.operands[2].has_gaps = true; }},
    {"workspace: the pointer is null, the plan needs 256 bytes",
     [](Offer& offer) { offer.workspace.address = nullptr; }},
    {"workspace: 255 bytes are addressable", [](Offer& offer) { offer.workspace.bytes = 255; }},
    {"workspace: the pointer is 4 bytes past",
     [](Offer& offer) { offer.workspace.address = Address(0x4004); }},
    {"workspace: the operand is in CUDA device 1",
     [](Offer& offer) { offer.workspace.device = 1; }},
};

TEST_CASE("operands: what does not fit is refused, by uid and with both numbers") {
  for (const Mistake& mistake : kMistakes) {
    CAPTURE(mistake.refusal);
    Offer offer;
    mistake.make(offer);
    CheckRefused(offer.Bind(), StatusCode::kInvalidArgument, mistake.refusal);
  }
}

TEST_CASE("operands: a role that is known is named with the uid") {
  SetOperandRoles({{1, "query"}, {4, "output"}, {100, "scale"}});
  Offer offer;
  offer.operands[1].bytes = 1;
  CheckRefused(offer.Bind(), StatusCode::kInvalidArgument, "output (uid 4): 1 bytes are");
  offer = Offer();
  offer.operands.clear();
  CheckRefused(offer.Bind(), StatusCode::kInvalidArgument,
               "it wants query (uid 1), output (uid 4), uid 9");
  offer = Offer();
  offer.scalars.clear();
  CheckRefused(offer.Bind(), StatusCode::kInvalidArgument, "it wants scale (uid 100)");
}

TEST_CASE("operands: an operand and a workspace of no bytes may be null") {
  Container container;
  container.bindings = {{1, 0, 0, 0, 2}};
  container.workspace_bytes = 0;
  Offer offer;
  offer.plan = container.ToPlan();
  offer.operands = {At(0, 0)};
  offer.scalars.clear();
  offer.workspace = At(0, 0);
  CHECK(offer.Bind().ok());
}

TEST_CASE("operands: a plan with as many operands as there may be") {
  Container container;
  container.bindings.clear();
  for (std::int64_t uid = 0; uid < kMaxBindings; ++uid) {
    container.bindings.push_back({uid, 16, 0, 0, 2});
  }
  Offer offer;
  offer.plan = container.ToPlan();
  offer.operands.assign(kMaxBindings, At(0x1000));
  offer.scalars.clear();
  CHECK(offer.Bind().ok());
  CHECK(offer.pointers[kMaxBindings - 1] == Address(0x1000));
}

}  // namespace
}  // namespace sdpa_ffi::testing
