// See functions.h.
#include "src/ops/custom/functions.h"

#include "absl/strings/str_join.h"
#include "src/runtime/fork.h"
#include "src/runtime/lasting.h"

namespace weft::ops {
namespace {

constinit thread_local const CallingCustom* t_calling = nullptr;

struct Turns {
  Mutex mutex;
  std::map<void*, std::weak_ptr<Mutex>> by_address ABSL_GUARDED_BY(mutex);

  void HoldOverFork() { weft::HoldOverFork(mutex, ForkOrder::kThen); }
};
constinit Lasting<Turns> g_turns;

}  // namespace

Ref<const CustomFunction> CustomFunctions::Find(std::string_view name) const {
  MutexLock lock(mutex_);
  const auto found = functions_.find(name);
  return found == functions_.end() ? nullptr : found->second;
}

bool CustomFunctions::empty() const {
  MutexLock lock(mutex_);
  return functions_.empty();
}

absl::StatusOr<Ref<const CustomFunction>> CustomFunctions::Get(std::string_view name) const {
  if (Ref<const CustomFunction> found = Find(name)) return found;
  MutexLock lock(mutex_);
  const std::string known =
      absl::StrJoin(functions_, ", ", [](std::string* out, const auto& one) { *out += one.first; });
  return UserErrorOf(absl::StatusCode::kNotFound, "no custom operation '", name, "' is registered in this context; ",
                     known.empty() ? "weft_custom_register registers one" : absl::StrCat("there are ", known));
}

absl::Status CustomFunctions::Add(Ref<const CustomFunction> function) {
  MutexLock lock(mutex_);
  const auto [entry, added] = functions_.try_emplace(function->name, function);
  if (added) return absl::OkStatus();
  return UserErrorOf(absl::StatusCode::kAlreadyExists, "there is a custom operation '", function->name,
                     "' in this context, with the signature '", entry->second->signature.text,
                     "'; programs know it by its name, so another function needs another");
}

std::shared_ptr<Mutex> TurnOf(void* address) {
  Turns& turns = g_turns.Get();
  MutexLock lock(turns.mutex);
  std::erase_if(turns.by_address, [](const auto& one) { return one.second.expired(); });
  std::weak_ptr<Mutex>& known = turns.by_address[address];
  std::shared_ptr<Mutex> turn = known.lock();
  if (turn == nullptr) known = turn = std::make_shared<Mutex>();
  return turn;
}

CallingCustom::CallingCustom(const void* owner, std::string_view name) : owner_(owner), name_(name), outer_(t_calling) {
  t_calling = this;
}
CallingCustom::~CallingCustom() { t_calling = outer_; }

absl::Status CallingCustom::Check(const void* owner) {
  for (const CallingCustom* one = t_calling; one != nullptr; one = one->outer_) {
    if (one->owner_ != owner) continue;
    return UserErrorOf(absl::StatusCode::kFailedPrecondition, "the function of the custom operation '", one->name_,
                       "' calls the context whose program runs it; what it needs must come as an operand");
  }
  return absl::OkStatus();
}

}  // namespace weft::ops
