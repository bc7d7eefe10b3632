// A kernel says which of its implementations it takes for a call. KernelSet's Prepare functions choose, and say it there.
#pragma once

#include <string_view>
#include <utility>

namespace weft::cpu {

// While it is there, it hears what this thread's calls of Prepare choose: the first choice of each call is its code, later ones are
// parts of it or what serves where the first cannot.
class ChoiceScope {
 public:
  ChoiceScope() : around_(std::exchange(t_now, this)) {}
  ~ChoiceScope() { t_now = around_; }
  ChoiceScope(const ChoiceScope&) = delete;
  ChoiceScope& operator=(const ChoiceScope&) = delete;
  // A literal; empty: nobody chose.
  std::string_view chosen() const { return chosen_; }

 private:
  friend void Chose(std::string_view what);
  static inline constinit thread_local ChoiceScope* t_now = nullptr;
  ChoiceScope* const around_;
  std::string_view chosen_;
};

// `what` is a literal: "gemm few rows".
inline void Chose(std::string_view what) {
  if (ChoiceScope* const scope = ChoiceScope::t_now; scope != nullptr && scope->chosen_.empty()) scope->chosen_ = what;
}

}  // namespace weft::cpu
