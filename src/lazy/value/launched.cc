// See launched.h.
#include "src/lazy/value/launched.h"

#include <algorithm>
#include <utility>

namespace weft::lazy {

Launched::Launched(std::shared_ptr<const compiler::Program> program, std::span<const Ref<Data>> arguments,
                   std::span<const uint8_t> takes_over, size_t results)
    : results(results), program_(std::move(program)) {
  given_.reserve(arguments.size());
  for (size_t i = 0; i < arguments.size(); ++i) {
    const bool takes = takes_over[i] != 0;
    given_.push_back({arguments[i]->PastFor(takes), takes ? arguments[i] : nullptr});
  }
}

std::span<const Ref<Data>> Launched::arguments() {
  if (arguments_.size() < given_.size()) {
    std::vector<Ref<Data>> arguments;
    for (const Given& given : given_) arguments.push_back(Data::Of(given.past));
    arguments_ = std::move(arguments);
  }
  return arguments_;
}

void Launched::GiveBack() {
  for (Given& given : given_) {
    if (given.taken != nullptr) std::exchange(given.taken, nullptr)->GiveBack(&given.past);
  }
}

void Launched::Release() {
  // They go without the lock: the last one of lent memory tells its owner.
  std::vector<Given> given;
  std::vector<Ref<Data>> arguments;
  std::vector<std::pair<uint64_t, Ref<Data>>> before;
  MutexLock lock(mutex_);
  released_ = true;
  given.swap(given_);
  arguments.swap(arguments_);
  before.swap(before_);
}

void Launched::Forget() {
  Release();
  ForgetUnmade();
  program_ = nullptr;
}

void Launched::Showed(uint64_t tensor, Ref<Data> before) {
  MutexLock lock(mutex_);
  if (released_) return;
  if (before_.empty()) before_.reserve(results);  // a tensor for each, mostly
  before_.emplace_back(tensor, std::move(before));
}

void Launched::ForEachBefore(absl::FunctionRef<void(Ref<Data>&, uint64_t tensor)> use) {
  MutexLock lock(mutex_);
  for (auto& [tensor, before] : before_) use(before, tensor);
}

Ref<Data> Launched::BeforeOf(uint64_t tensor) const {
  MutexLock lock(mutex_);
  const auto found = std::ranges::find(before_, tensor, &std::pair<uint64_t, Ref<Data>>::first);
  return found != before_.end() ? found->second : nullptr;
}

ir::Value Launched::UnmadeOf(uint64_t tensor) const {
  const auto found = std::ranges::find(unmade_, tensor, &std::pair<uint64_t, ir::Value>::first);
  return found != unmade_.end() ? found->second : ir::Value();
}

const Shards* Launched::Made(uint32_t output) const {
  const auto found = std::ranges::find(made_, output, &std::pair<uint32_t, Shards>::first);
  return found != made_.end() ? &found->second : nullptr;
}

bool Launched::Tried(uint32_t output) const { return std::ranges::find(tried_, output) != tried_.end(); }

}  // namespace weft::lazy
