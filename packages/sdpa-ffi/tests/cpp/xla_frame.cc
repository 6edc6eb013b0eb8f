#include "xla_frame.h"

#include <utility>

#include "xla_handlers.h"

// XLA's side of the interface: an error owns its text, an execution context is where a call runs.
struct XLA_FFI_Error {
  XLA_FFI_Error_Code code;
  std::string message;
};

struct XLA_FFI_ExecutionContext {
  void** state;
  int device;
  void* stream;
};

namespace sdpa_ffi::testing {
namespace {

XLA_FFI_Error* CreateError(XLA_FFI_Error_Create_Args* args) {
  return new XLA_FFI_Error{args->errc, args->message};
}

void GetMessage(XLA_FFI_Error_GetMessage_Args* args) {
  args->message = args->error->message.c_str();
}

void DestroyError(XLA_FFI_Error_Destroy_Args* args) { delete args->error; }

XLA_FFI_Error* SetState(XLA_FFI_State_Set_Args* args) {
  *args->ctx->state = args->state;
  return nullptr;
}

XLA_FFI_Error* GetState(XLA_FFI_State_Get_Args* args) {
  args->state = *args->ctx->state;
  if (args->state != nullptr) return nullptr;
  return new XLA_FFI_Error{XLA_FFI_Error_Code_NOT_FOUND, "no state"};
}

XLA_FFI_Error* GetStream(XLA_FFI_Stream_Get_Args* args) {
  args->stream = args->ctx->stream;
  return nullptr;
}

XLA_FFI_Error* GetDevice(XLA_FFI_DeviceOrdinal_Get_Args* args) {
  args->device_ordinal = args->ctx->device;
  return nullptr;
}

const XLA_FFI_Api& Api() {
  static const XLA_FFI_Api api = [] {
    XLA_FFI_Api table = {};
    table.struct_size = XLA_FFI_Api_STRUCT_SIZE;
    table.api_version = {XLA_FFI_Api_Version_STRUCT_SIZE, nullptr, XLA_FFI_API_MAJOR,
                         XLA_FFI_API_MINOR};
    table.XLA_FFI_Error_Create = CreateError;
    table.XLA_FFI_Error_GetMessage = GetMessage;
    table.XLA_FFI_Error_Destroy = DestroyError;
    table.XLA_FFI_State_Set = SetState;
    table.XLA_FFI_State_Get = GetState;
    table.XLA_FFI_Stream_Get = GetStream;
    table.XLA_FFI_DeviceOrdinal_Get = GetDevice;
    return table;
  }();
  return api;
}

XLA_FFI_CallFrame Frame(XLA_FFI_ExecutionStage stage) {
  XLA_FFI_CallFrame frame = {};
  frame.struct_size = XLA_FFI_CallFrame_STRUCT_SIZE;
  frame.api = &Api();
  frame.stage = stage;
  frame.args.struct_size = XLA_FFI_Args_STRUCT_SIZE;
  frame.rets.struct_size = XLA_FFI_Rets_STRUCT_SIZE;
  frame.attrs.struct_size = XLA_FFI_Attrs_STRUCT_SIZE;
  return frame;
}

// Buffers in the form in which a frame points to them.
struct Buffers {
  explicit Buffers(std::vector<Buffer> given) : buffers(std::move(given)) {
    for (Buffer& buffer : buffers) {
      wire.push_back({XLA_FFI_Buffer_STRUCT_SIZE, nullptr, buffer.dtype,
                      reinterpret_cast<void*>(buffer.address), 1, &buffer.size});
    }
    for (XLA_FFI_Buffer& buffer : wire) pointers.push_back(&buffer);
  }

  std::int64_t size() const { return static_cast<std::int64_t>(wire.size()); }

  std::vector<Buffer> buffers;
  std::vector<XLA_FFI_Buffer> wire;
  std::vector<void*> pointers;
};

}  // namespace

CallSite::CallSite() {
  // XLA gives a registered type its number.
  static_cast<XLA_FFI_TypeId*>(GetXlaStateType().type_id)->type_id = 1;
}

CallSite::~CallSite() {
  if (state_ == nullptr) return;
  static_cast<const XLA_FFI_TypeInfo*>(GetXlaStateType().type_info)->deleter(state_);
}

Answer CallSite::Call(void* handler, XLA_FFI_CallFrame* frame, int device, std::uintptr_t stream) {
  XLA_FFI_ExecutionContext context = {&state_, device, reinterpret_cast<void*>(stream)};
  frame->ctx = &context;
  const std::unique_ptr<XLA_FFI_Error> error(reinterpret_cast<XLA_FFI_Handler*>(handler)(frame));
  return error == nullptr ? Answer() : Answer{error->code, error->message};
}

Answer CallSite::Instantiate(const std::string& plan, std::vector<float> scalars) {
  XLA_FFI_ByteSpan names[] = {{"plan", 4}, {"scalars", 7}};
  XLA_FFI_ByteSpan* name_pointers[] = {&names[0], &names[1]};
  XLA_FFI_AttrType types[] = {XLA_FFI_AttrType_STRING, XLA_FFI_AttrType_ARRAY};
  XLA_FFI_ByteSpan bytes = {plan.data(), plan.size()};
  XLA_FFI_Array array = {XLA_FFI_DataType_F32, scalars.size(), scalars.data()};
  void* values[] = {&bytes, &array};
  XLA_FFI_CallFrame frame = Frame(XLA_FFI_ExecutionStage_INSTANTIATE);
  frame.attrs = {XLA_FFI_Attrs_STRUCT_SIZE, nullptr, 2, types, name_pointers, values};
  return Call(GetXlaHandlers().instantiate, &frame, 0, 0);
}

Answer CallSite::Initialize(int device, std::uintptr_t stream) {
  XLA_FFI_CallFrame frame = Frame(XLA_FFI_ExecutionStage_INITIALIZE);
  return Call(GetXlaHandlers().initialize, &frame, device, stream);
}

Answer CallSite::Execute(int device, std::uintptr_t stream, std::vector<Buffer> arguments,
                         std::vector<Buffer> results) {
  Buffers args(std::move(arguments));
  Buffers rets(std::move(results));
  std::vector<XLA_FFI_ArgType> arg_types(args.wire.size(), XLA_FFI_ArgType_BUFFER);
  std::vector<XLA_FFI_RetType> ret_types(rets.wire.size(), XLA_FFI_RetType_BUFFER);
  XLA_FFI_CallFrame frame = Frame(XLA_FFI_ExecutionStage_EXECUTE);
  frame.args = {XLA_FFI_Args_STRUCT_SIZE, nullptr, args.size(), arg_types.data(),
                args.pointers.data()};
  frame.rets = {XLA_FFI_Rets_STRUCT_SIZE, nullptr, rets.size(), ret_types.data(),
                rets.pointers.data()};
  return Call(GetXlaHandlers().execute, &frame, device, stream);
}

XLA_FFI_Metadata MetadataOf(void* handler) {
  XLA_FFI_Metadata metadata = {};
  metadata.struct_size = XLA_FFI_Metadata_STRUCT_SIZE;
  XLA_FFI_Metadata_Extension extension = {
      {XLA_FFI_Metadata_Extension_STRUCT_SIZE, XLA_FFI_Extension_Metadata, nullptr}, &metadata};
  XLA_FFI_CallFrame frame = Frame(XLA_FFI_ExecutionStage_EXECUTE);
  frame.extension_start = &extension.extension_base;
  delete reinterpret_cast<XLA_FFI_Handler*>(handler)(&frame);
  return metadata;
}

}  // namespace sdpa_ffi::testing
