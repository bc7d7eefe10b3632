// A launch that has not been seen to go through, and what it takes to make its results again if it does not: the program, which says
// how (its canonical form), and what it was launched on. Nodes, which die when they are launched, are not kept for it.
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "src/compiler/program_cache.h"
#include "src/lazy/value/data.h"
#include "src/runtime/mutex.h"

namespace weft::lazy {

// Held by its results (Data::launched), and by its mesh until it is known how it went. Thread rule: under the engine's lock, but for
// Release, which may come from any thread, once the launch has gone through.
class Launched final : public RefCounted {
 public:
  // `takes_over`: of each argument, whether the launch takes its memory over.
  Launched(std::shared_ptr<const compiler::Program> program, std::span<const Ref<Data>> arguments,
           std::span<const uint8_t> takes_over, size_t results);
  const size_t results;

  // How it goes, then how it went.
  Ref<Event> done;
  bool failed = false;
  // The launch did not fail by itself: a request or a deadline ended it. Its results are not computed again unless
  // somebody asks.
  bool gave_up = false;
  bool told = false;  // somebody knows that it failed

  const compiler::Program& program() const { return *program_; }
  // The values that it was launched on, once it has failed; each is one from the first call on.
  std::span<const Ref<Data>> arguments();
  // Gives the memory back that the failed launch took over and left unchanged.
  void GiveBack();
  // Releases everything: the launch went through, so nothing is to be made again.
  void Release();
  // Releases the program, too.
  void Forget();

  // Remembers the value that a tensor, by the number of its assignments, showed before it was assigned a result.
  void Showed(uint64_t tensor, Ref<Data> before);
  // Null: nothing that is known.
  Ref<Data> BeforeOf(uint64_t tensor) const;
  void ForEachBefore(absl::FunctionRef<void(Ref<Data>&, uint64_t tensor)> use);
  // The same for a value that had not been computed. Its nodes die under the engine's lock: by Forget, or by ForgetUnmade
  // once the failed launch has been undone.
  void ShowedUnmade(uint64_t tensor, ir::Value before) { unmade_.emplace_back(tensor, std::move(before)); }
  ir::Value UnmadeOf(uint64_t tensor) const;
  void ForgetUnmade() { unmade_.clear(); }

  // Results that have been made again, for holders of a copy. Null: not yet.
  const Shards* Made(uint32_t output) const;
  void KeepMade(uint32_t output, Shards shards) { made_.emplace_back(output, std::move(shards)); }
  // Tells whether a barrier has tried this one in vain.
  bool Tried(uint32_t output) const;
  void HasTried(uint32_t output) { tried_.push_back(output); }

 private:
  std::shared_ptr<const compiler::Program> program_;
  mutable Mutex mutex_;  // of the next four until the launch has failed, when Release comes no more
  bool released_ = false;
  struct Given {
    Data::Past past;
    Ref<Data> taken;  // the data whose memory the launch has
  };
  std::vector<Given> given_;          // by argument
  std::vector<Ref<Data>> arguments_;  // of `given_`
  std::vector<std::pair<uint64_t, Ref<Data>>> before_;
  std::vector<std::pair<uint64_t, ir::Value>> unmade_;
  std::vector<std::pair<uint32_t, Shards>> made_;
  std::vector<uint32_t> tried_;
};

// The launch that was to make it and failed; null if there is none.
inline Launched* LostBy(const Data& data) {
  auto* const launched = static_cast<Launched*>(data.launched.get());
  return launched != nullptr && launched->failed ? launched : nullptr;
}
// Tells whether the value will never come, unless it is made again.
inline bool IsLost(const Data& data) { return data.failed || LostBy(data) != nullptr; }

}  // namespace weft::lazy
