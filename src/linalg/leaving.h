// A call of LAPACK is left in the midst when its launch shall end: this room's functions of BLAS look between their blocks, and lsame,
// which LAPACK's routines ask at their beginning, looks, too. The way out is longjmp, over frames of Fortran and of BLAS's functions: they
// hold plain memory of the caller's alone, no lock, and nothing that a destructor would have to end.
#pragma once

#include <setjmp.h>

#include <algorithm>
#include <cstdint>
#include <utility>

namespace weft::linalg {

// Where this thread's call is left to; null: nowhere.
inline constinit thread_local jmp_buf* t_way_out = nullptr;

// Runs a call of LAPACK; false if it was left. Calls do not nest.
template <typename Call>
bool RunOrLeave(Call&& call) {
  jmp_buf way_out;
  if (_setjmp(way_out) != 0) {
    t_way_out = nullptr;
    return false;
  }
  t_way_out = &way_out;
  std::forward<Call>(call)();
  t_way_out = nullptr;
  return true;
}

// Does not return if this thread's launch shall end and a call may be left. 3 ns, and 25 with a deadline.
void LeaveIfLaunchEnds();

// The same in a loop over rows or columns of so many elements: one look in about 65,536 of them.
class Looks {
 public:
  explicit Looks(int64_t elements) : every_(std::max<int64_t>(1, 65'536 / std::max<int64_t>(1, elements))) {}
  void Pass() {
    if (--left_ > 0) return;
    left_ = every_;
    LeaveIfLaunchEnds();
  }

 private:
  const int64_t every_;
  int64_t left_ = every_;
};

}  // namespace weft::linalg
