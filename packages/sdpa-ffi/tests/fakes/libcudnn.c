/* A cuDNN 9.19.0 whose plans need 256 bytes of workspace and run nothing. It reports, one line each
   on stdout, the calls that a test wants to see. A uid of 100 and more is a host float. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORKSPACE_SIZE = 402, UNIQUE_IDS = 1000, DATA_POINTERS = 1001, WORKSPACE = 1003 };

struct descriptor {
  int64_t count;
  int64_t uids[128];
  void *pointers[128];
  void *workspace;
};

size_t cudnnGetVersion(void) { return 91900; }
size_t cudnnGetCudartVersion(void) { return 12090; }
const char *cudnnGetErrorString(int status) { return status ? "fake failure" : "success"; }
void cudnnGetLastErrorString(char *text, size_t size) { snprintf(text, size, "fake details"); }

static int64_t handles;
static void *streams[64]; /* by handle */

int cudnnCreate(void **handle) {
  *handle = (void *)__atomic_add_fetch(&handles, 1, __ATOMIC_SEQ_CST);
  dprintf(1, "create handle %ld\n", (long)*handle);
  return 0;
}
int cudnnSetStream(void *handle, void *stream) {
  dprintf(1, "handle %ld stream=%p\n", (long)handle, stream);
  streams[(long)handle] = stream;
  return 0;
}
int cudnnGetStream(void *handle, void **stream) {
  *stream = streams[(long)handle];
  return 0;
}

int cudnnBackendCreateDescriptor(int type, void **descriptor) {
  *descriptor = calloc(1, sizeof(struct descriptor));
  return type * 0;
}
int cudnnBackendDestroyDescriptor(void *descriptor) { free(descriptor); return 0; }
int cudnnBackendFinalize(void *descriptor) { return descriptor == 0; }
int cudnnBackendSetAttribute(struct descriptor *descriptor, int name, int type, int64_t count,
                             const void *values) {
  if (name == UNIQUE_IDS) {
    descriptor->count = count;
    memcpy(descriptor->uids, values, count * sizeof(int64_t));
  } else if (name == DATA_POINTERS) {
    memcpy(descriptor->pointers, values, count * sizeof(void *));
  } else if (name == WORKSPACE) {
    memcpy(&descriptor->workspace, values, sizeof(void *));
  }
  return type * 0;
}
int cudnnBackendGetAttribute(void *descriptor, int name, int type, int64_t requested,
                             int64_t *count, void *values) {
  const int known = name == WORKSPACE_SIZE && requested > 0;
  if (known) *(int64_t *)values = 256;
  if (count) *count = known;
  return (descriptor == 0) + type * 0;
}
int cudnnBackendExecute(void *handle, void *plan, struct descriptor *pack) {
  char line[4096];
  int end = snprintf(line, sizeof line, "execute handle=%ld", (long)handle);
  for (int64_t i = 0; i < pack->count; ++i) {
    const long uid = (long)pack->uids[i];
    end += uid < 100 ? snprintf(line + end, sizeof line - end, " %ld=%p", uid, pack->pointers[i])
                     : snprintf(line + end, sizeof line - end, " %ld=%g", uid,
                                *(float *)pack->pointers[i]);
  }
  dprintf(1, "%s workspace=%p\n", line, pack->workspace);
  /* This first pointer asks for a failure. */
  return plan == 0 || pack->pointers[0] == (void *)0xbad0 ? 5000 : 0;
}
