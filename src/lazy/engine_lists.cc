// Lists of operations, recorded under one lock.
#include <utility>
#include <vector>

#include "src/lazy/engine.h"

namespace weft::lazy {

namespace {

// The number of dropped results that stay until somebody else has had a turn.
constexpr size_t kMostDead = 512;

// Maps each call to the last one that has its results as operands, itself if none has.
std::vector<size_t> LastUses(std::span<const Engine::Call> calls) {
  std::vector<size_t> last(calls.size());
  for (size_t i = 0; i < calls.size(); ++i) {
    last[i] = i;
    for (const Engine::Call::Earlier& earlier : calls[i].earlier) last[earlier.call] = i;
  }
  return last;
}

}  // namespace

absl::Status Engine::RecordMany(std::span<Call> calls, FindOperands find, ir::Location location, size_t* failed,
                                Frame* frame) {
  // Kept, not borrowed: what is borrowed is walked whenever the lock is opened, which long lists do often.
  std::vector<Ref<Tensor>> kept;
  std::vector<Recorder::Draw> drawn;
  const std::vector<size_t> last_uses = LastUses(calls);
  Lock lock(recorder_, Lock::To::kNote);
  WEFT_RETURN_IF_ERROR(find());
  for (const Call& call : calls) {
    for (Tensor* operand : call.operands) {
      if (operand != nullptr && (kept.empty() || kept.back().get() != operand))
        kept.push_back(Ref<Tensor>::Share(operand));
    }
  }
  size_t dropped = 0;
  const auto let_go = [&](size_t call, size_t at) {
    if (!calls[call].drop || last_uses[call] != at) return;
    calls[call].results.clear();
    ++dropped;
  };
  for (size_t i = 0; i < calls.size(); ++i) {
    Call& call = calls[i];
    for (const Call::Earlier& earlier : call.earlier) {
      call.operands[earlier.operand] = calls[earlier.call].results[earlier.result].get();
    }
    Recorder::Draw draw;
    const absl::Status status = RecordOrDefer(lock, *call.op, call.operands, std::move(call.attrs), location,
                                              {call.device, frame}, {}, &call.results, &draw);
    if (status.ok()) {
      if (call.op->random) drawn.push_back(draw);
      for (const Call::Earlier& earlier : call.earlier) let_go(earlier.call, i);
      let_go(i, i);
      // Dead tensors are buried when the lock is taken. Until then every automatic cut of the list looks at them.
      if (dropped >= kMostDead) dropped = 0, lock.Open([] {});
      continue;
    }
    recorder_.Interrupt(Replay::Miss::kFailed);
    *failed = i;
    for (; !drawn.empty(); drawn.pop_back()) recorder_.Undraw(drawn.back());
    for (Call& done : calls) done.results.clear();
    return status;
  }
  for (const Call& call : calls) recorder_.CountOperation(*call.op);
  return absl::OkStatus();
}

}  // namespace weft::lazy
