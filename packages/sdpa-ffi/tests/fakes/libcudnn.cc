// A cuDNN 9.19.0 whose plans need 256 bytes of workspace; see fake.h. In its lines, a uid of 100
// and more is a float in host memory.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "fake.h"

namespace {

enum { kWorkspaceSize = 402, kUniqueIds = 1000, kDataPointers = 1001, kWorkspace = 1003 };
enum { kNotSupported = 3000, kExecutionFailed = 5000 };

struct Descriptor {
  std::int64_t count;
  std::int64_t uids[128];
  void* pointers[128];
  void* workspace;
};

std::atomic<long> handles{0};

void SayExecution(const fake::Handle& handle, const Descriptor& pack) {
  char line[4096];
  int end = snprintf(line, sizeof line, "execute handle=%ld", handle.number);
  for (std::int64_t i = 0; i < pack.count; ++i) {
    const auto left = sizeof line - static_cast<std::size_t>(end);
    const long uid = pack.uids[i];
    end += uid < 100 ? snprintf(line + end, left, " %ld=%p", uid, pack.pointers[i])
                     : snprintf(line + end, left, " %ld=%g", uid,
                                static_cast<double>(*static_cast<float*>(pack.pointers[i])));
  }
  fake::Say("%s workspace=%p", line, pack.workspace);
}

}  // namespace

extern "C" std::size_t cudnnGetVersion() { return 91900; }
extern "C" std::size_t cudnnGetCudartVersion() { return 12090; }
extern "C" const char* cudnnGetErrorString(int status) {
  return status ? "fake failure" : "success";
}
extern "C" void cudnnGetLastErrorString(char* text, std::size_t size) {
  snprintf(text, size, "fake details");
}

extern "C" int cudnnCreate(fake::Handle** handle) {
  if (const int status = fake::EnterUnsafe("cudnnCreate", kExecutionFailed)) return status;
  *handle = new fake::Handle{handles.fetch_add(1, std::memory_order_relaxed) + 1, nullptr,
                             fake::CurrentDevice(), 0};
  fake::Say("create handle %ld", (*handle)->number);
  return 0;
}

extern "C" int cudnnDestroy(fake::Handle* handle) {
  if (const int status = fake::Enter("cudnnDestroy")) return status;
  fake::Say("destroy handle %ld", handle->number);
  delete handle;
  return 0;
}

extern "C" int cudnnSetStream(fake::Handle* handle, void* stream) {
  if (const int status = fake::Enter("cudnnSetStream")) return status;
  fake::Say("handle %ld stream=%p", handle->number, stream);
  handle->stream = stream;
  return 0;
}

extern "C" int cudnnGetStream(fake::Handle* handle, void** stream) {
  *stream = handle->stream;
  return fake::Enter("cudnnGetStream");
}

extern "C" int cudnnBackendCreateDescriptor(int, Descriptor** descriptor) {
  if (const int status = fake::Enter("cudnnBackendCreateDescriptor")) return status;
  *descriptor = static_cast<Descriptor*>(std::calloc(1, sizeof(Descriptor)));
  return 0;
}

extern "C" int cudnnBackendDestroyDescriptor(Descriptor* descriptor) {
  std::free(descriptor);
  return fake::Enter("cudnnBackendDestroyDescriptor");
}

// Of a plan this loads its kernels, which allocates. A variant pack has its uids by then.
extern "C" int cudnnBackendFinalize(Descriptor* descriptor) {
  if (descriptor == nullptr) return kNotSupported;
  return descriptor->count > 0 ? fake::Enter("cudnnBackendFinalize")
                               : fake::EnterUnsafe("cudnnBackendFinalize", kExecutionFailed);
}

extern "C" int cudnnBackendSetAttribute(Descriptor* descriptor, int name, int, std::int64_t count,
                                        const void* values) {
  if (const int status = fake::Enter("cudnnBackendSetAttribute")) return status;
  const auto size = static_cast<std::size_t>(count);
  if (name == kUniqueIds) {
    descriptor->count = count;
    std::memcpy(descriptor->uids, values, size * sizeof(std::int64_t));
  } else if (name == kDataPointers) {
    std::memcpy(descriptor->pointers, values, size * sizeof(void*));
  } else if (name == kWorkspace) {
    std::memcpy(&descriptor->workspace, values, sizeof(void*));
  }
  return 0;
}

extern "C" int cudnnBackendGetAttribute(Descriptor*, int name, int, std::int64_t requested,
                                        std::int64_t* count, void* values) {
  if (const int status = fake::Enter("cudnnBackendGetAttribute")) return status;
  const bool known = name == kWorkspaceSize && requested > 0;
  if (known) *static_cast<std::int64_t*>(values) = 256;
  if (count != nullptr) *count = known ? 1 : 0;
  return 0;
}

extern "C" int cudnnBackendExecute(fake::Handle* handle, void* plan, Descriptor* pack) {
  if (const int status = fake::Enter("cudnnBackendExecute")) return status;
  if (plan == nullptr) return kExecutionFailed;
  ++handle->executes;
  if (fake::IsRecording()) SayExecution(*handle, *pack);
  return fake::RunKernel(
      {handle, static_cast<std::size_t>(pack->count), pack->uids, pack->pointers, pack->workspace});
}
