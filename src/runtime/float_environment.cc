// See float_environment.h.
#include "src/runtime/float_environment.h"

#include <utility>

namespace weft {
namespace {

constinit thread_local CallersFloats* t_callers = nullptr;

}  // namespace

void SetDefaultFloats() {
#if defined(__x86_64__)
  // Both units whole: what fesetenv leaves of FTZ, DAZ and precision depends on the C library.
  asm volatile("fninit");
  _mm_setcsr(0x1F80);
#else
  std::fesetenv(FE_DFL_ENV);
#endif
}

void CallersFloats::Exchange() {
  std::fegetenv(&environment_);
  SetDefaultFloats();
  outer_ = std::exchange(t_callers, this);
  exchanged_ = true;
}

void CallersFloats::Restore() {
  t_callers = outer_;
  std::fesetenv(&environment_);
}

CallbackFloats::CallbackFloats() : callers_(t_callers) {
  if (callers_ == nullptr) return;
  std::fegetenv(&ours_);
  // The outermost scope has the caller's: one within it saw the default.
  const CallersFloats* outermost = callers_;
  while (outermost->outer_ != nullptr) outermost = outermost->outer_;
  std::fesetenv(&outermost->environment_);
  t_callers = nullptr;  // what the callback calls in turn sees that environment and exchanges it itself
}

CallbackFloats::~CallbackFloats() {
  if (callers_ == nullptr) return;
  t_callers = callers_;
  std::fesetenv(&ours_);
}

}  // namespace weft
