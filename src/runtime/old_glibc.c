/* Functions that the library and its dependencies need and glibc 2.28 does not have, hidden inside what ships
 * (scripts/cmake/WeftOldGlibc.cmake links against libraries that end at 2.28). Linked into libweft.so and the program weft, never
 * into a layer: tests and sanitizers keep the system's. tests/runtime/old_glibc_test.cc reads it as C++ under other names. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <locale.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef WEFT_OLD_GLIBC
#define WEFT_OLD_GLIBC(name) name
#endif

/* 2.32. Never sure: reference counts of libstdc++ stay atomic. */
char WEFT_OLD_GLIBC(__libc_single_threaded) = 0;

/* 2.33; before, headers made calls of __xstat out of them. struct stat is the kernel's own. */
int WEFT_OLD_GLIBC(stat)(const char* path, struct stat* out) { return (int)syscall(SYS_newfstatat, AT_FDCWD, path, out, 0); }
int WEFT_OLD_GLIBC(lstat)(const char* path, struct stat* out) {
  return (int)syscall(SYS_newfstatat, AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW);
}
int WEFT_OLD_GLIBC(fstat)(int fd, struct stat* out) { return (int)syscall(SYS_fstat, fd, out); }
int WEFT_OLD_GLIBC(stat64)(const char* path, struct stat64* out) {
  return (int)syscall(SYS_newfstatat, AT_FDCWD, path, out, 0);
}
int WEFT_OLD_GLIBC(lstat64)(const char* path, struct stat64* out) {
  return (int)syscall(SYS_newfstatat, AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW);
}
int WEFT_OLD_GLIBC(fstat64)(int fd, struct stat64* out) { return (int)syscall(SYS_fstat, fd, out); }
int WEFT_OLD_GLIBC(mknod)(const char* path, mode_t mode, dev_t device) {
  return (int)syscall(SYS_mknodat, AT_FDCWD, path, mode, (unsigned int)device);
}

/* 2.36; names of temporary files, seeds. Where the kernel's generator is denied, clocks and an address have to do. */
uint32_t WEFT_OLD_GLIBC(arc4random)(void) {
  static uint32_t calls;
  uint32_t number = 0;
  long got;
  do {
    got = syscall(SYS_getrandom, &number, sizeof number, 0);
  } while (got < 0 && errno == EINTR);
  if (got != (long)sizeof number) {
    struct timespec now;
    uint64_t mixed;
    clock_gettime(CLOCK_MONOTONIC, &now);
    mixed = (uint64_t)now.tv_nsec ^ ((uint64_t)now.tv_sec << 30) ^ (uint64_t)(uintptr_t)&now;
    mixed = (mixed + __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED)) * UINT64_C(0x9E3779B97F4A7C15);
    number = (uint32_t)(mixed >> 32);
  }
  return number;
}

/* 2.33. The old one counts in int: above 2 GiB its numbers wrap. Only LLVM's memory reports ask. */
struct mallinfo2 WEFT_OLD_GLIBC(mallinfo2)(void) {
  struct mallinfo2 out;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  const struct mallinfo in = mallinfo();
#pragma GCC diagnostic pop
  out.arena = (unsigned)in.arena;
  out.ordblks = (unsigned)in.ordblks;
  out.smblks = (unsigned)in.smblks;
  out.hblks = (unsigned)in.hblks;
  out.hblkhd = (unsigned)in.hblkhd;
  out.usmblks = (unsigned)in.usmblks;
  out.fsmblks = (unsigned)in.fsmblks;
  out.uordblks = (unsigned)in.uordblks;
  out.fordblks = (unsigned)in.fordblks;
  out.keepcost = (unsigned)in.keepcost;
  return out;
}

/* A wait by another clock than the variable's own, for 2.28 and 2.29: at most a second at once, because the real-time clock may be
 * set meanwhile. To come back early for no reason is allowed. */
static int weft_clockwait_by_realtime(pthread_cond_t* changed, pthread_mutex_t* mutex, clockid_t clock, const struct timespec* until) {
  const int64_t second = 1000000000;
  struct timespec now, wall;
  int64_t left, end;
  int result;
  clock_gettime(clock, &now);
  left = (until->tv_sec - now.tv_sec) * second + (until->tv_nsec - now.tv_nsec);
  if (left <= 0) return ETIMEDOUT;
  clock_gettime(CLOCK_REALTIME, &wall);
  end = wall.tv_sec * second + wall.tv_nsec + (left < second ? left : second);
  wall.tv_sec = end / second;
  wall.tv_nsec = end % second;
  result = pthread_cond_timedwait(changed, mutex, &wall);
  return result == ETIMEDOUT && left > second ? 0 : result;
}

/* 2.30. Where glibc has it, it is looked up once. */
int WEFT_OLD_GLIBC(pthread_cond_clockwait)(pthread_cond_t* changed, pthread_mutex_t* mutex, clockid_t clock,
                                           const struct timespec* until) {
  typedef int (*Wait)(pthread_cond_t*, pthread_mutex_t*, clockid_t, const struct timespec*);
  static Wait chosen;
  Wait wait = __atomic_load_n(&chosen, __ATOMIC_RELAXED);
  if (wait == NULL) {
    void* const found = dlsym(RTLD_DEFAULT, "pthread_cond_clockwait");
    wait = weft_clockwait_by_realtime;
    if (found != NULL) memcpy(&wait, &found, sizeof wait);
    __atomic_store_n(&chosen, wait, __ATOMIC_RELAXED);
  }
  return wait(changed, mutex, clock, until);
}

/* 2.32. */
const char* WEFT_OLD_GLIBC(strerrordesc_np)(int error) {
  /* The C locale is a constant of glibc's; texts of numbers without a meaning would be made. */
  return error >= 0 && error <= EHWPOISON ? strerror_l(error, newlocale(LC_ALL_MASK, "C", (locale_t)0)) : NULL;
}
const char* WEFT_OLD_GLIBC(strerrorname_np)(int error) {
  switch (error) {
#define WEFT_NAME(name) \
  case name:            \
    return #name;
    WEFT_NAME(EPERM) WEFT_NAME(ENOENT) WEFT_NAME(EINTR) WEFT_NAME(EIO) WEFT_NAME(ENXIO)
    WEFT_NAME(E2BIG) WEFT_NAME(EBADF) WEFT_NAME(EAGAIN) WEFT_NAME(ENOMEM) WEFT_NAME(EACCES)
    WEFT_NAME(EFAULT) WEFT_NAME(EBUSY) WEFT_NAME(EEXIST) WEFT_NAME(EXDEV) WEFT_NAME(ENODEV)
    WEFT_NAME(ENOTDIR) WEFT_NAME(EISDIR) WEFT_NAME(EINVAL) WEFT_NAME(ENFILE) WEFT_NAME(EMFILE)
    WEFT_NAME(ENOTTY) WEFT_NAME(ETXTBSY) WEFT_NAME(EFBIG) WEFT_NAME(ENOSPC) WEFT_NAME(ESPIPE)
    WEFT_NAME(EROFS) WEFT_NAME(EMLINK) WEFT_NAME(EPIPE) WEFT_NAME(ERANGE) WEFT_NAME(EDEADLK)
    WEFT_NAME(ENAMETOOLONG) WEFT_NAME(ENOLCK) WEFT_NAME(ENOSYS) WEFT_NAME(ENOTEMPTY) WEFT_NAME(ELOOP)
    WEFT_NAME(ENODATA) WEFT_NAME(ETIME) WEFT_NAME(EPROTO) WEFT_NAME(EOVERFLOW) WEFT_NAME(EILSEQ)
    WEFT_NAME(EOPNOTSUPP) WEFT_NAME(ETIMEDOUT) WEFT_NAME(ESTALE) WEFT_NAME(EUCLEAN) WEFT_NAME(EREMOTEIO)
    WEFT_NAME(EDQUOT) WEFT_NAME(ENOMEDIUM) WEFT_NAME(ECANCELED) WEFT_NAME(ENOKEY) WEFT_NAME(EHOSTDOWN)
#undef WEFT_NAME
    default:
      return NULL;
  }
}

/* 2.35: the tables with which exceptions find the frame of an instruction. Nearly all are this object's own, whose headers lie in
 * memory, so that a throw asks the loader nothing; the others are looked up as libgcc did before. */
struct WeftFrameSearch {
  uintptr_t at;
  struct dl_find_object* out;
};
static int weft_find_frame(uintptr_t base, const ElfW(Phdr) * headers, size_t count, const struct WeftFrameSearch* search) {
  const ElfW(Phdr)* table = NULL;
  uintptr_t start = UINTPTR_MAX, end = 0;
  int inside = 0;
  size_t i;
  for (i = 0; i < count; ++i) {
    const uintptr_t first = base + headers[i].p_vaddr, last = first + headers[i].p_memsz;
    if (headers[i].p_type == PT_GNU_EH_FRAME) table = &headers[i];
    if (headers[i].p_type != PT_LOAD) continue;
    inside |= search->at >= first && search->at < last;
    if (first < start) start = first;
    if (last > end) end = last;
  }
  if (!inside || table == NULL) return 0;
  memset(search->out, 0, sizeof *search->out);
  search->out->dlfo_map_start = (void*)start;
  search->out->dlfo_map_end = (void*)end;
  search->out->dlfo_eh_frame = (void*)(base + table->p_vaddr);
  return 1;
}
static int weft_find_frame_of(struct dl_phdr_info* info, size_t size, void* search) {
  (void)size;
  return weft_find_frame(info->dlpi_addr, info->dlpi_phdr, info->dlpi_phnum, (const struct WeftFrameSearch*)search);
}
extern const char __ehdr_start[] __attribute__((visibility("hidden")));
int WEFT_OLD_GLIBC(_dl_find_object)(void* at, struct dl_find_object* out) {
  struct WeftFrameSearch search = {(uintptr_t)at, out};
  ElfW(Ehdr) own;
  const ElfW(Phdr)* headers;
  uintptr_t base = (uintptr_t)__ehdr_start;
  size_t i;
  memcpy(&own, __ehdr_start, sizeof own);
  headers = (const ElfW(Phdr)*)(const void*)(__ehdr_start + own.e_phoff);
  for (i = 0; i < own.e_phnum; ++i) {
    if (headers[i].p_type == PT_LOAD && headers[i].p_offset == 0) base -= headers[i].p_vaddr; /* not 0 in programs at a fixed place */
  }
  if (weft_find_frame(base, headers, own.e_phnum, &search)) return 0;
  return dl_iterate_phdr(weft_find_frame_of, &search) ? 0 : -1;
}
