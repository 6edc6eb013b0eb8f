/* A CUDA driver with two sm90 devices that runs nothing and reports, one line each on stdout, the
   calls that a test wants to see. Contexts: device + 1. */
#include <stdio.h>

static __thread long current;

int cuInit(unsigned flags) { return flags; }
int cuGetErrorString(int error, const char **text) { *text = "fake error"; return error * 0; }
int cuDeviceGetCount(int *count) { *count = 2; return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
  *value = attribute == 75 ? 9 : 0; /* compute capability: 75 is the major, 76 the minor number */
  return device * 0;
}
int cuDevicePrimaryCtxRetain(void **context, int device) {
  *context = (void *)(long)(device + 1);
  return 0;
}
int cuCtxGetCurrent(void **context) { *context = (void *)current; return 0; }
int cuCtxSetCurrent(void *context) { current = (long)context; return 0; }
int cuCtxGetDevice(int *device) { *device = (int)current - 1; return current ? 0 : 201; }
int cuMemsetD8Async(unsigned long address, unsigned char value, size_t bytes, void *stream) {
  dprintf(1, "memset %#lx %d %zu stream=%p context=%ld\n", address, value, bytes, stream, current);
  return 0;
}
int cuThreadExchangeStreamCaptureMode(int *mode) {
  static __thread int installed;
  const int previous = installed;
  installed = *mode;
  *mode = previous;
  dprintf(1, "capture mode %d\n", installed);
  return 0;
}
