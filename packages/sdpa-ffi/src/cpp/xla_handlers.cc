// The custom call "sdpa_ffi.execute.v1".
//
//   attributes  plan     string: the bytes of a plan container
//               scalars  float32 array: host scalars in ascending uid
//   arguments   the plan's device inputs, in ascending uid
//   results     the plan's device outputs, in ascending uid, then a workspace, u8[max(1, bytes)].
//               The workspace is a result and not scratch memory because a command buffer keeps its
//               address after the call has returned.
//
// Instantiate decodes, once per call site. Initialize, which runs before every execution and before
// recording, loads the plan for its device. Execute only enqueues.

#include "xla_handlers.h"

#include <exception>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "executor.h"
#include "handle_pool.h"
#include "registry.h"
#include "xla/ffi/api/ffi.h"

namespace sdpa_ffi {
namespace {

namespace ffi = xla::ffi;

struct CallSite {
  static ffi::TypeId id;
  static const XLA_FFI_TypeInfo info;

  Plan plan;
  std::vector<float> scalars;
};

ffi::TypeId CallSite::id = {};
const XLA_FFI_TypeInfo CallSite::info = ffi::MakeTypeInfo<CallSite>();

ffi::Error ToXla(const Status& status) {
  switch (status.code()) {
    case StatusCode::kOk:
      return ffi::Error::Success();
    case StatusCode::kInvalidArgument:
      return ffi::Error(ffi::ErrorCode::kInvalidArgument, status.message());
    case StatusCode::kEnvironment:
      return ffi::Error(ffi::ErrorCode::kFailedPrecondition, status.message());
    case StatusCode::kRuntime:
      break;
  }
  return ffi::Error(ffi::ErrorCode::kInternal, status.message());
}

// No C++ exception may cross into XLA.
template <typename Body>
auto Guarded(Body body) -> decltype(body()) {
  try {
    return body();
  } catch (const std::exception& error) {
    return RuntimeFailure(error.what());
  }
}

Result<std::unique_ptr<CallSite>> Decode(std::string_view container,
                                         ffi::Span<const float> scalars) {
  SDPA_FFI_ASSIGN_OR_RETURN(
      Plan plan,
      ParseForLoading({reinterpret_cast<const std::uint8_t*>(container.data()), container.size()}));
  const std::size_t wanted = plan.header.CountOf(BindingKind::kHostScalar);
  if (scalars.size() != wanted) {
    return InvalidArgument("the plan has ", wanted, " host scalars, the attribute 'scalars' has ",
                           scalars.size());
  }
  return std::make_unique<CallSite>(
      CallSite{std::move(plan), std::vector<float>(scalars.begin(), scalars.end())});
}

ffi::ErrorOr<std::unique_ptr<CallSite>> Instantiate(std::string_view container,
                                                    ffi::Span<const float> scalars) {
  auto decoded = Guarded([&] { return Decode(container, scalars); });
  if (!decoded.ok()) return ffi::Unexpected(ToXla(decoded.status()));
  return std::move(decoded.value());
}

// The plan for `device`. Initialize has loaded it, unless a runtime leaves that stage out.
Result<const LoadedPlan*> PlanFor(const CallSite& site, int device) {
  if (const auto* loaded = Registry::Get().Find(site.plan.header.identity, device)) return loaded;
  return Registry::Get().GetOrLoad(site.plan, device);
}

Status Prepare(const CallSite& site, CUstream stream, int device) {
  SDPA_FFI_ASSIGN_OR_RETURN(const LoadedPlan* plan, PlanFor(site, device));
  const ContextScope context(plan->driver, plan->device);
  SDPA_FFI_RETURN_IF_ERROR(context.status());
  return HandleForThisThread(plan->cudnn, plan->driver, plan->device, stream).status();
}

ffi::Error Initialize(CallSite* site, CUstream stream, std::int32_t device) {
  return ToXla(Guarded([&] { return Prepare(*site, stream, device); }));
}

// None for types without a counterpart in a plan, u32 above all: JAX without 64-bit types passes an
// int64 as two of them. The size is still checked.
std::optional<DataType> FromXla(ffi::DataType type) {
  switch (type) {
    case ffi::DataType::F16:
      return DataType::kFloat16;
    case ffi::DataType::BF16:
      return DataType::kBFloat16;
    case ffi::DataType::F32:
      return DataType::kFloat32;
    case ffi::DataType::F64:
      return DataType::kFloat64;
    case ffi::DataType::S32:
      return DataType::kInt32;
    case ffi::DataType::S64:
      return DataType::kInt64;
    case ffi::DataType::U8:
      return DataType::kUInt8;
    case ffi::DataType::PRED:
      return DataType::kBool;
    case ffi::DataType::F8E4M3FN:
      return DataType::kFloat8E4M3;
    case ffi::DataType::F8E5M2:
      return DataType::kFloat8E5M2;
    case ffi::DataType::F8E8M0FNU:
      return DataType::kFloat8E8M0;
    default:
      return std::nullopt;
  }
}

Operand ToOperand(const ffi::AnyBuffer& buffer, int device) {
  Operand operand;
  operand.address = buffer.untyped_data();
  operand.bytes = buffer.size_bytes();
  operand.dtype = FromXla(buffer.element_type());
  operand.device = device;
  return operand;
}

struct Call {
  std::array<Operand, kMaxBindings> operands;
  std::size_t count = 0;
  Operand workspace;
};

Status CheckCounts(const PlanHeader& header, const ffi::RemainingArgs& args,
                   const ffi::RemainingRets& rets) {
  const std::size_t inputs = header.CountOf(BindingKind::kDeviceInput);
  const std::size_t results = header.CountOf(BindingKind::kDeviceOutput) + 1;
  if (args.size() == inputs && rets.size() == results) return Status();
  return InvalidArgument("the plan has ", inputs, " inputs and ", results,
                         " results including the workspace, the call has ", args.size(), " and ",
                         rets.size());
}

// Merges arguments and results into the order of the plan's uids. The counts are checked already.
void CollectOperands(const PlanHeader& header, int device, const ffi::RemainingArgs& args,
                     const ffi::RemainingRets& rets, Call* call) {
  std::size_t next_arg = 0;
  std::size_t next_ret = 0;
  for (const Binding& binding : header.bindings) {
    if (!binding.on_device()) continue;
    call->operands[call->count++] =
        binding.kind == BindingKind::kDeviceInput
            ? ToOperand(args.get<ffi::AnyBuffer>(next_arg++).value(), device)
            : ToOperand(*rets.get<ffi::AnyBuffer>(next_ret++).value(), device);
  }
  call->workspace = ToOperand(*rets.get<ffi::AnyBuffer>(next_ret).value(), device);
}

Status Run(const CallSite& site, CUstream stream, int device, const ffi::RemainingArgs& args,
           const ffi::RemainingRets& rets) {
  SDPA_FFI_ASSIGN_OR_RETURN(const LoadedPlan* plan, PlanFor(site, device));
  SDPA_FFI_RETURN_IF_ERROR(CheckCounts(plan->header, args, rets));
  Call call;
  CollectOperands(plan->header, device, args, rets, &call);
  return Execute(*plan, {call.operands.data(), call.count},
                 {site.scalars.data(), site.scalars.size()}, call.workspace, stream);
}

ffi::Error ExecuteCall(CallSite* site, CUstream stream, std::int32_t device,
                       ffi::RemainingArgs args, ffi::RemainingRets rets) {
  return ToXla(Guarded([&] { return Run(*site, stream, device, args, rets); }));
}

XLA_FFI_DEFINE_HANDLER(kInstantiate, Instantiate,
                       ffi::Ffi::BindInstantiate()
                           .Attr<std::string_view>("plan")
                           .Attr<ffi::Span<const float>>("scalars"));

XLA_FFI_DEFINE_HANDLER(kInitialize, Initialize,
                       ffi::Ffi::Bind<ffi::ExecutionStage::kInitialize>()
                           .Ctx<ffi::State<CallSite>>()
                           .Ctx<ffi::PlatformStream<CUstream>>()
                           .Ctx<ffi::DeviceOrdinal>());

// Command-buffer compatible: it uses only the memory passed in and enqueues the same work each
// time.
XLA_FFI_DEFINE_HANDLER(kExecute, ExecuteCall,
                       ffi::Ffi::Bind()
                           .Ctx<ffi::State<CallSite>>()
                           .Ctx<ffi::PlatformStream<CUstream>>()
                           .Ctx<ffi::DeviceOrdinal>()
                           .RemainingArgs()
                           .RemainingRets(),
                       {ffi::Traits::kCmdBufferCompatible});

}  // namespace

XlaHandlers GetXlaHandlers() {
  return {reinterpret_cast<void*>(kInstantiate), reinterpret_cast<void*>(kInitialize),
          reinterpret_cast<void*>(kExecute)};
}

XlaStateType GetXlaStateType() {
  return {&CallSite::id, const_cast<XLA_FFI_TypeInfo*>(&CallSite::info)};
}

XlaApiVersion GetXlaApiVersion() { return {XLA_FFI_API_MAJOR, XLA_FFI_API_MINOR}; }

}  // namespace sdpa_ffi
