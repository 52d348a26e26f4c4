// A job that marks its input with NVTX and calls a real libnccl without a GPU. NCCL marks each call as a range and then
// rejects it. Arguments: the path of NCCL, the number of steps.
#include <dlfcn.h>
#include <nvtx3/nvToolsExt.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef int (*all_reduce)(const void *, void *, size_t, int, int, void *, void *);

static void wait_millis(long millis) {
  struct timespec time = {0, millis * 1000000};
  nanosleep(&time, NULL);
}

int main(int argc, char **argv) {
  void *nccl = argc == 3 ? dlopen(argv[1], RTLD_NOW) : NULL;
  all_reduce call = nccl ? (all_reduce)dlsym(nccl, "ncclAllReduce") : NULL;
  if (!call) {
    fprintf(stderr, "usage: nvtx_job LIBNCCL STEPS: %s\n", argc == 3 ? dlerror() : "two arguments");
    return 1;
  }
  const size_t floats[] = {1 << 16, 1 << 18, 1 << 14};
  nvtxRangePushA("training");
  for (int step = 0; step < atoi(argv[2]); step++) {
    nvtxRangePushA("data");
    wait_millis(6);
    nvtxRangePop();
    wait_millis(8);
    for (int at = 0; at < 3; at++) {
      wait_millis(2);
      call(NULL, NULL, floats[at], 7, 0, NULL, NULL);
    }
  }
  nvtxRangePop();
  printf("%s steps\n", argv[2]);
  return 0;
}
