// A CUDA driver, and the state of both doubles; see fake.h.
#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>

#include "fake.h"

namespace fake {
namespace {

enum { kInvalidContext = 201, kCaptureUnsafe = 906, kRelaxed = 2 };

struct Failure {
  int calls_left;
  int status;
};

struct State {
  std::mutex mutex;
  std::vector<std::string> lines;  // guarded by mutex, as are the next two
  std::map<std::string, int> counts;
  std::map<std::string, Failure> failures;
  std::vector<int> capabilities = {90, 90};
  std::atomic<bool> record{true};
  std::atomic<bool> echo{false};
  std::atomic<bool> capturing{false};
  std::atomic<bool> capture_intact{true};
  std::atomic<bool> forbidden{false};
  std::atomic<bool> memset_writes{false};
  std::atomic<int (*)(const Execution&)> kernel{nullptr};
};

State& TheState() {
  static auto* state = new State;
  return *state;
}

thread_local long current = 0;      // this thread's context
thread_local int capture_mode = 0;  // 0 is the global mode, which forbids most

}  // namespace

void Reset() {
  State& state = TheState();
  std::lock_guard<std::mutex> lock(state.mutex);
  state.lines.clear();
  state.counts.clear();
  state.failures.clear();
  state.capabilities = {90, 90};
  state.record = true;
  state.capturing = false;
  state.capture_intact = true;
  state.memset_writes = false;
  state.kernel = nullptr;
}

void SetDevices(std::vector<int> capabilities) {
  TheState().capabilities = std::move(capabilities);
}

void Fail(const std::string& function, int nth, int status) {
  State& state = TheState();
  std::lock_guard<std::mutex> lock(state.mutex);
  state.failures[function] = {nth, status};
}

void Record(bool on) { TheState().record = on; }
void ForbidCalls() { TheState().forbidden = true; }
void SetKernel(int (*kernel)(const Execution&)) { TheState().kernel = kernel; }
void SetMemsetWrites(bool writes) { TheState().memset_writes = writes; }

void BeginCapture() {
  TheState().capturing = true;
  TheState().capture_intact = true;
}

bool CaptureIsIntact() { return TheState().capture_intact; }

std::vector<std::string> Lines() {
  State& state = TheState();
  std::lock_guard<std::mutex> lock(state.mutex);
  return state.lines;
}

std::vector<std::string> Lines(const std::string& beginning) {
  std::vector<std::string> found;
  for (const std::string& line : Lines()) {
    if (line.rfind(beginning, 0) == 0) found.push_back(line);
  }
  return found;
}

int Count(const std::string& function) {
  State& state = TheState();
  std::lock_guard<std::mutex> lock(state.mutex);
  return state.counts[function];
}

int Enter(const char* function) {
  State& state = TheState();
  if (state.forbidden) {
    dprintf(2, "%s was called during shutdown\n", function);
    _exit(3);
  }
  if (!state.record) return 0;
  std::lock_guard<std::mutex> lock(state.mutex);
  ++state.counts[function];
  const auto failure = state.failures.find(function);
  if (failure == state.failures.end() || --failure->second.calls_left > 0) return 0;
  const int status = failure->second.status;
  state.failures.erase(failure);
  return status;
}

int EnterUnsafe(const char* function, int status_if_refused) {
  if (const int status = Enter(function)) return status;
  State& state = TheState();
  if (!state.capturing || capture_mode == kRelaxed) return 0;
  state.capture_intact = false;
  return status_if_refused;
}

bool IsRecording() { return TheState().record; }
int CurrentDevice() { return static_cast<int>((current - 1) % 1000); }

void Say(const char* format, ...) {
  State& state = TheState();
  if (!state.record) return;
  char line[4096];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  std::lock_guard<std::mutex> lock(state.mutex);
  state.lines.emplace_back(line);
  if (state.echo) dprintf(1, "%s\n", line);
}

int RunKernel(const Execution& execution) {
  const auto kernel = TheState().kernel.load();
  return kernel == nullptr ? 0 : kernel(execution);
}

}  // namespace fake

extern "C" void fake_echo(int on) { fake::TheState().echo = on != 0; }

extern "C" void fake_fail(const char* function, int nth, int status) {
  fake::Fail(function, nth, status);
}

// ------------------------------------------------------------------------------- the driver itself

extern "C" int cuInit(unsigned) { return fake::Enter("cuInit"); }

extern "C" int cuGetErrorString(int error, const char** text) {
  *text =
      error == fake::kCaptureUnsafe ? "fake: not permitted when stream is capturing" : "fake error";
  return 0;
}

extern "C" int cuDeviceGetCount(int* count) {
  *count = static_cast<int>(fake::TheState().capabilities.size());
  return fake::Enter("cuDeviceGetCount");
}

extern "C" int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return fake::Enter("cuDeviceGet");
}

extern "C" int cuDriverGetVersion(int* version) {
  *version = 12090;
  return fake::Enter("cuDriverGetVersion");
}

extern "C" int cuDeviceGetName(char* name, int size, int) {
  snprintf(name, static_cast<std::size_t>(size), "a fake GPU");
  return fake::Enter("cuDeviceGetName");
}

extern "C" int cuDeviceTotalMem_v2(std::size_t* bytes, int) {
  *bytes = std::size_t{80} << 30;
  return fake::Enter("cuDeviceTotalMem_v2");
}

extern "C" int cuDeviceGetAttribute(int* value, int attribute, int device) {
  const int capability = fake::TheState().capabilities[static_cast<std::size_t>(device)];
  *value = attribute == 75 ? capability / 10 : attribute == 76 ? capability % 10 : 0;
  return fake::Enter("cuDeviceGetAttribute");
}

extern "C" int cuDevicePrimaryCtxRetain(void** context, int device) {
  *context = reinterpret_cast<void*>(static_cast<long>(device) + 1);
  return fake::Enter("cuDevicePrimaryCtxRetain");
}

extern "C" int cuCtxGetCurrent(void** context) {
  *context = reinterpret_cast<void*>(fake::current);
  return fake::Enter("cuCtxGetCurrent");
}

extern "C" int cuCtxSetCurrent(void* context) {
  if (const int status = fake::Enter("cuCtxSetCurrent")) return status;
  fake::current = reinterpret_cast<long>(context);
  return 0;
}

extern "C" int cuCtxGetDevice(int* device) {
  if (const int status = fake::Enter("cuCtxGetDevice")) return status;
  *device = fake::CurrentDevice();
  return fake::current != 0 ? 0 : static_cast<int>(fake::kInvalidContext);
}

extern "C" int cuMemsetD8Async(unsigned long address, unsigned char value, std::size_t bytes,
                               void* stream) {
  if (const int status = fake::Enter("cuMemsetD8Async")) return status;
  fake::Say("memset %#lx %d %zu stream=%p context=%ld", address, value, bytes, stream,
            fake::current);
  if (fake::TheState().memset_writes) std::memset(reinterpret_cast<void*>(address), value, bytes);
  return 0;
}

extern "C" int cuMemcpyHtoDAsync_v2(unsigned long address, const void* source, std::size_t bytes,
                                    void* stream) {
  if (const int status = fake::Enter("cuMemcpyHtoDAsync")) return status;
  fake::Say("copy %#lx first=%g %zu stream=%p context=%ld", address,
            *static_cast<const float*>(source), bytes, stream, fake::current);
  return 0;
}

extern "C" int cuThreadExchangeStreamCaptureMode(int* mode) {
  if (const int status = fake::Enter("cuThreadExchangeStreamCaptureMode")) return status;
  std::swap(*mode, fake::capture_mode);
  fake::Say("capture mode %d", fake::capture_mode);
  return 0;
}
