#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

// Test doubles of libcuda.so.1 and libcudnn.so.9. They run nothing, record what they are asked, and
// fail where a test says so. The driver's double holds the state of both.
//
// Contexts: device + 1 is a device's primary context, device + 1001 another one of it.
namespace fake {

// ---------------------------------------------------------------------------- what a test sets

// Forgets calls and failures; two devices of compute capability 9.0.
void Reset();

// Compute capabilities, major * 10 + minor, one a device. Only before the executor opens a device.
void SetDevices(std::vector<int> capabilities);

// The nth call of `function` from now on (1 is the next) gives `status` and has no effect.
void Fail(const std::string& function, int nth, int status);

// Off: nothing is recorded and nothing can be made to fail. The lock that recording takes orders
// the threads, and would hide their races from ThreadSanitizer.
void Record(bool on);

// While a capture is active, a call that allocates fails and ends it, unless the calling thread's
// capture mode is relaxed. Real ones do so too.
void BeginCapture();
bool CaptureIsIntact();

// From now on any call ends the process with status 3: nothing may be called during shutdown.
void ForbidCalls();

struct Handle {
  long number;
  void* stream;
  int device;     // current when it was made
  long executes;  // plain on purpose: two threads that use one handle are a race
};

struct Execution {
  Handle* handle;
  std::size_t count;
  const std::int64_t* uids;
  void* const* pointers;
  void* workspace;
};

// What an execution does beyond being recorded; null for nothing.
void SetKernel(int (*kernel)(const Execution&));

// Whether memsets write, to memory of the host.
void SetMemsetWrites(bool writes);

// ---------------------------------------------------------------------------- what a test reads

// Everything recorded, one line a call.
std::vector<std::string> Lines();

// The recorded lines that start with `beginning`.
std::vector<std::string> Lines(const std::string& beginning);

// How often `function` was called while recording.
int Count(const std::string& function);

// ---------------------------------------------------------------------------- for the doubles

// At the start of every double: counts the call, and gives what it has to return.
int Enter(const char* function);
// As Enter, for a call that would end a capture.
int EnterUnsafe(const char* function, int status_if_refused);
[[gnu::format(printf, 1, 2)]] void Say(const char* format, ...);
bool IsRecording();
int CurrentDevice();
int RunKernel(const Execution& execution);

}  // namespace fake

// For Python. The first prints every recorded line at once as well, the second is Fail.
extern "C" void fake_echo(int on);
extern "C" void fake_fail(const char* function, int nth, int status);
