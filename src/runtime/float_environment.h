// The floating-point environment that Weft computes in: round to nearest, denormals kept, no traps. Hosts change theirs
// (feenableexcept, FTZ/DAZ, fesetround, x87 precision), and threads inherit their maker's. Library threads set the default
// when they start; on a caller's thread a scope exchanges the caller's, if it differs; callbacks run in the caller's.
#pragma once

#include <cfenv>
#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace weft {

// Sets the default for good, on threads of ours.
void SetDefaultFloats();

// The caller's environment while one of the scopes below holds the default. A stack per thread: callbacks may call
// again.
class CallersFloats {
 public:
  CallersFloats() = default;
  CallersFloats(const CallersFloats&) = delete;
  bool exchanged() const { return exchanged_; }
  void Exchange();
  void Restore();  // with its flags, so that nothing of ours shows in them and nothing of ours traps

 private:
  friend class CallbackFloats;
  std::fenv_t environment_;
  CallersFloats* outer_;
  bool exchanged_ = false;
};

// Around every call. Looks at the x87 control word alone, which costs 0.3 ns: the C library's functions (feenableexcept,
// fesetround) change it together with the SSE one, whose look costs 1 to 8 ns. So nothing traps in what only records.
class CallFloats {
 public:
  CallFloats() {
#if defined(__x86_64__)
    uint16_t word;
    asm volatile("fnstcw %0" : "=m"(word));
    if (word != 0x037F) callers_.Exchange();
#endif
  }
  ~CallFloats() {
    if (callers_.exchanged()) callers_.Restore();
  }
  CallFloats(const CallFloats&) = delete;

 private:
  CallersFloats callers_;
};

// Around whatever makes numbers on a thread that may be a caller's: launches, scalars, literals.
class FloatScope {
#if defined(__x86_64__)
 public:
  FloatScope() : before_(_mm_getcsr()) {
    if ((before_ & ~kFlags) != kDefault) callers_.Exchange();
  }
  ~FloatScope() {
    if (callers_.exchanged()) {
      callers_.Restore();
    } else if (_mm_getcsr() != before_) {
      _mm_setcsr(before_);  // flags that we raised are no business of the caller's
    }
  }
  FloatScope(const FloatScope&) = delete;

 private:
  static constexpr uint32_t kFlags = 0x3F, kDefault = 0x1F80;
  const uint32_t before_;
#else
 public:
  FloatScope() { callers_.Exchange(); }
  ~FloatScope() { callers_.Restore(); }
  FloatScope(const FloatScope&) = delete;

 private:
#endif
  CallersFloats callers_;
};

// Around what may use `long double` (operations' reference functions): the x87 unit, too, in any case; 0.3 us.
class WholeFloatScope {
 public:
  WholeFloatScope() { callers_.Exchange(); }
  ~WholeFloatScope() { callers_.Restore(); }
  WholeFloatScope(const WholeFloatScope&) = delete;

 private:
  CallersFloats callers_;
};

// Around a callback: our caller's environment on this thread; on threads of ours the default.
class CallbackFloats {
 public:
  CallbackFloats();
  ~CallbackFloats();
  CallbackFloats(const CallbackFloats&) = delete;

 private:
  CallersFloats* const callers_;
  std::fenv_t ours_;
};

}  // namespace weft
