// See launched.h.
#include "src/lazy/value/launched.h"

#include <algorithm>

namespace weft::lazy {

Launched::Launched(std::shared_ptr<const compiler::Program> program, std::span<const Ref<Data>> arguments,
                   size_t results)
    : results(results), program_(std::move(program)) {
  arguments_.reserve(arguments.size());
  for (const Ref<Data>& argument : arguments) arguments_.push_back(argument->Copy());
}

void Launched::GiveBack() {
  for (auto& [data, shards] : taken_) data->GiveBack(std::move(shards));
  taken_.clear();
}

void Launched::Release() {
  // They go without the lock: the last one of lent memory tells its owner.
  std::vector<Ref<Data>> arguments;
  std::vector<std::pair<Ref<Data>, Shards>> taken;
  std::vector<std::pair<uint64_t, Ref<Data>>> before;
  MutexLock lock(mutex_);
  released_ = true;
  arguments.swap(arguments_);
  taken.swap(taken_);
  before.swap(before_);
}

void Launched::Forget() {
  Release();
  ForgetUnmade();
  program_ = nullptr;
}

void Launched::Showed(uint64_t tensor, Ref<Data> before) {
  MutexLock lock(mutex_);
  if (!released_) before_.emplace_back(tensor, std::move(before));
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
