// What the library waits for and allocates, seen where it asks the C library: this program's functions come before the C
// library's. Counts waits while a call of the fuzzer's runs on the thread, makes single allocations fail, and takes memory from
// the heap of guard.h where that is asked for. Sanitizers bring
// functions of their own in these places, and nothing is counted there; under AddressSanitizer C++ allocations fail.
#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <new>

#include "tests/fuzz/abi_fuzz/fuzz.h"
#include "tests/fuzz/abi_fuzz/guard.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WEFT_FUZZ_NEW 1
#endif
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define WEFT_FUZZ_NO_HOOKS 1
#endif
#endif
#if !defined(__GLIBC__)
#define WEFT_FUZZ_NO_HOOKS 1
#endif

namespace weft::fuzz {
constinit thread_local CallHooks t_hooks;
#if defined(WEFT_FUZZ_NO_HOOKS)
bool HooksWork() { return false; }
#else
bool HooksWork() { return true; }
#endif
#if !defined(WEFT_FUZZ_NO_HOOKS) || defined(WEFT_FUZZ_NEW)
bool AllocationsFail() { return true; }
#else
bool AllocationsFail() { return false; }
#endif
namespace {
[[maybe_unused]] bool FailsNow() {
  if (!t_hooks.counts || t_hooks.allocations_left < 0 || t_hooks.allocations_left-- > 0) return false;
  errno = ENOMEM;
  return true;
}
}  // namespace
}  // namespace weft::fuzz

#if defined(WEFT_FUZZ_NEW)
// All of C++'s in one place, so that each block ends as it began.
namespace {
void* New(size_t size, size_t align) {
  void* memory = nullptr;
  const bool failed = weft::fuzz::FailsNow() || posix_memalign(&memory, std::max(align, sizeof(void*)), std::max<size_t>(size, 1)) != 0;
  return failed ? nullptr : memory;
}
void* NewOrThrow(size_t size, size_t align) {
  void* const memory = New(size, align);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
}  // namespace

void* operator new(size_t size) { return NewOrThrow(size, 16); }
void* operator new[](size_t size) { return NewOrThrow(size, 16); }
void* operator new(size_t size, const std::nothrow_t&) noexcept { return New(size, 16); }
void* operator new[](size_t size, const std::nothrow_t&) noexcept { return New(size, 16); }
void* operator new(size_t size, std::align_val_t align) { return NewOrThrow(size, static_cast<size_t>(align)); }
void* operator new[](size_t size, std::align_val_t align) { return NewOrThrow(size, static_cast<size_t>(align)); }
void* operator new(size_t size, std::align_val_t align, const std::nothrow_t&) noexcept { return New(size, static_cast<size_t>(align)); }
void* operator new[](size_t size, std::align_val_t align, const std::nothrow_t&) noexcept { return New(size, static_cast<size_t>(align)); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t, const std::nothrow_t&) noexcept { std::free(memory); }
#endif

#if !defined(WEFT_FUZZ_NO_HOOKS)

#include <dlfcn.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace {

using weft::fuzz::FailsNow;
using weft::fuzz::Guarded;
using weft::fuzz::GuardGive;
using weft::fuzz::GuardSizeOf;
using weft::fuzz::GuardTake;
using weft::fuzz::t_hooks;
using weft::fuzz::Wait;

void Count(Wait wait) {
  if (t_hooks.counts) ++t_hooks.waits[static_cast<int>(wait)];
}

// The function that this one hides. Where the C library has an old one of the same name, the newer is meant.
template <typename F>
F* Hidden(const char* name, const char* version = nullptr) {
  void* found = version != nullptr ? dlvsym(RTLD_NEXT, name, version) : nullptr;
  if (found == nullptr) found = dlsym(RTLD_NEXT, name);
  return reinterpret_cast<F*>(found);
}

}  // namespace

extern "C" {

int pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* mutex) {
  static auto* const hidden = Hidden<int(pthread_cond_t*, pthread_mutex_t*)>("pthread_cond_wait", "GLIBC_2.3.2");
  Count(Wait::kCondition);
  return hidden(condition, mutex);
}
int pthread_cond_timedwait(pthread_cond_t* condition, pthread_mutex_t* mutex, const timespec* until) {
  static auto* const hidden = Hidden<int(pthread_cond_t*, pthread_mutex_t*, const timespec*)>("pthread_cond_timedwait", "GLIBC_2.3.2");
  Count(Wait::kCondition);
  return hidden(condition, mutex, until);
}
int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock, const timespec* until) {
  static auto* const hidden = Hidden<int(pthread_cond_t*, pthread_mutex_t*, clockid_t, const timespec*)>("pthread_cond_clockwait");
  Count(Wait::kCondition);
  return hidden(condition, mutex, clock, until);
}
// A lock that another thread has: not a wait that the description speaks of, for nobody waits for anything with it in hand.
int pthread_mutex_lock(pthread_mutex_t* mutex) {
  static auto* const hidden = Hidden<int(pthread_mutex_t*)>("pthread_mutex_lock");
  if (!t_hooks.counts || pthread_mutex_trylock(mutex) != 0) {
    if (!t_hooks.counts) return hidden(mutex);
    const int64_t from = weft::fuzz::NowNs();
    const int result = hidden(mutex);
    Count(Wait::kLock);
    t_hooks.lock_ns += weft::fuzz::NowNs() - from;
    return result;
  }
  return 0;
}
int pthread_join(pthread_t thread, void** result) {
  static auto* const hidden = Hidden<int(pthread_t, void**)>("pthread_join");
  Count(Wait::kJoin);
  return hidden(thread, result);
}
int poll(pollfd* fds, nfds_t count, int timeout) {
  static auto* const hidden = Hidden<int(pollfd*, nfds_t, int)>("poll");
  if (timeout != 0) Count(Wait::kPoll);
  return hidden(fds, count, timeout);
}
int nanosleep(const timespec* wanted, timespec* left) {
  static auto* const hidden = Hidden<int(const timespec*, timespec*)>("nanosleep");
  Count(Wait::kSleep);
  return hidden(wanted, left);
}
int fsync(int fd) {
  static auto* const hidden = Hidden<int(int)>("fsync");
  Count(Wait::kSync);
  return hidden(fd);
}
int fdatasync(int fd) {
  static auto* const hidden = Hidden<int(int)>("fdatasync");
  Count(Wait::kSync);
  return hidden(fd);
}
// std::atomic's waits.
long syscall(long number, ...) noexcept {
  static auto* const hidden = Hidden<long(long, ...)>("syscall");
  va_list list;
  va_start(list, number);
  long a[6];
  for (long& argument : a) argument = va_arg(list, long);
  va_end(list);
  if (number == SYS_futex && ((a[1] & FUTEX_CMD_MASK) == FUTEX_WAIT || (a[1] & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET)) Count(Wait::kFutex);
  return hidden(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
void __libc_free(void*);
void* malloc(size_t size) {
  if (FailsNow()) return nullptr;
  return Guarded() ? GuardTake(1, size) : __libc_malloc(size);
}
void* calloc(size_t count, size_t size) {
  if (FailsNow()) return nullptr;
  size_t bytes;
  if (!Guarded() || __builtin_mul_overflow(count, size, &bytes)) return __libc_calloc(count, size);
  void* const memory = GuardTake(1, bytes);
  if (memory != nullptr) std::memset(memory, 0, bytes);
  return memory;
}
void* realloc(void* memory, size_t size) {
  if (size != 0 && FailsNow()) return nullptr;
  if (!Guarded()) return __libc_realloc(memory, size);
  void* const moved = size == 0 && memory != nullptr ? nullptr : GuardTake(1, size);
  if (moved == nullptr && size != 0) return nullptr;
  if (moved != nullptr && memory != nullptr) std::memcpy(moved, memory, std::min(size, GuardSizeOf(memory)));
  GuardGive(memory);
  return moved;
}
void free(void* memory) {
  const int before = errno;
  Guarded() ? GuardGive(memory) : __libc_free(memory);
  errno = before;
}
size_t malloc_usable_size(void* memory) {
  static auto* const hidden = Hidden<size_t(void*)>("malloc_usable_size");
  return memory == nullptr ? 0 : Guarded() ? GuardSizeOf(memory) : hidden(memory);
}
void* memalign(size_t align, size_t size) {
  if (FailsNow()) return nullptr;
  return Guarded() ? GuardTake(align, size) : __libc_memalign(align, size);
}
void* aligned_alloc(size_t align, size_t size) { return memalign(align, size); }
int posix_memalign(void** out, size_t align, size_t size) {
  void* const memory = memalign(align, size);
  if (memory == nullptr) return ENOMEM;
  *out = memory;
  return 0;
}

}  // extern "C"
#endif
