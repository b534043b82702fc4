// LD_PRELOAD: refuses a process the profiler object of NVIDIA's kernel module, as a driver does that lets only
// administrators count (NVreg_RestrictProfilingToAdminUsers=1). Nothing reaches the driver, nothing is changed.
// Sources: open-gpu-kernel-modules, kern_profiler_v1.c profilerConstruct_IMPL; nvos.h NVOS64_PARAMETERS; nv_escape.h.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <stdint.h>

enum { NV_IOCTL_MAGIC = 'F', NV_ESC_RM_ALLOC = 0x2b, GF100_PROFILER = 0x90cc, NV_ERR_INSUFFICIENT_PERMISSIONS = 0x1b };

struct nvos64 {
  uint32_t root, parent, object, class_;
  uint64_t alloc_parameters, rights;
  uint32_t parameters_size, flags, status;
};

int ioctl(int fd, unsigned long request, ...) {
  va_list rest;
  va_start(rest, request);
  void *argument = va_arg(rest, void *);
  va_end(rest);
  unsigned type = request >> 8 & 255, number = request & 255, size = request >> 16 & 0x3fff;
  struct nvos64 *alloc = argument;
  if (type == NV_IOCTL_MAGIC && number == NV_ESC_RM_ALLOC && size == sizeof *alloc && alloc->class_ == GF100_PROFILER) {
    alloc->status = NV_ERR_INSUFFICIENT_PERMISSIONS;
    return 0;
  }
  int (*next)(int, unsigned long, ...) = (int (*)(int, unsigned long, ...))dlsym(RTLD_NEXT, "ioctl");
  return next(fd, request, argument);
}
