// What the engine records besides single operations and gradients of graphs: lists of operations, gradients of one.
#include <utility>
#include <vector>

#include "src/lazy/engine_record.h"
#include "src/runtime/float_environment.h"

namespace weft::lazy {

absl::Status Engine::RecordMany(std::span<Call> calls, FindOperands find, ir::Location location, size_t* failed,
                                Frame* frame) {
  std::vector<Tensor*> borrowed;
  std::vector<Recorder::Draw> drawn;
  Lock lock(recorder_);
  WEFT_RETURN_IF_ERROR(find());
  for (const Call& call : calls) borrowed.insert(borrowed.end(), call.operands.begin(), call.operands.end());
  lock.Borrow(borrowed);
  for (size_t i = 0; i < calls.size(); ++i) {
    Call& call = calls[i];
    for (const Call::Earlier& earlier : call.earlier) {
      call.operands[earlier.operand] = calls[earlier.call].results[earlier.result].get();
    }
    Recorder::Draw draw;
    const absl::Status status = RecordLocked(lock, *call.op, call.operands, std::move(call.attrs), location,
                                             {call.device, frame}, {}, &call.results, &draw);
    if (status.ok()) {
      if (call.op->random) drawn.push_back(draw);
      continue;
    }
    *failed = i;
    for (; !drawn.empty(); drawn.pop_back()) recorder_.Undraw(drawn.back());
    for (Call& done : calls) done.results.clear();
    return status;
  }
  metrics_.Add(Counter::kOperationsRecorded, static_cast<int64_t>(calls.size()));
  return absl::OkStatus();
}

absl::StatusOr<Tensors> Engine::OpGradient(const Recorder::OpGradientCall& call, ir::Attrs attrs,
                                           ir::Location location) {
  Tensors made;
  const FloatScope floats;
  Lock lock(recorder_);
  WEFT_ASSIGN_OR_RETURN(const Place place, PlaceAfterCut(lock, [&] { return recorder_.PlaceOfOpGradient(call); }));
  ir::Builder b(location);
  absl::StatusOr<std::vector<ir::Value>> found = recorder_.OpGradient(b, place.frame, call, std::move(attrs));
  if (!found.ok()) return WithPosition(found.status(), location);
  std::vector<ir::Value> flows;
  for (const ir::Value& value : *found) {
    if (value) flows.push_back(value);
  }
  if (!flows.empty()) WEFT_RETURN_IF_ERROR(Finish(lock, place, b, &Recorder::kGradientTag, flows));
  metrics_.Add(Counter::kGradients);
  for (ir::Value& value : *found) {
    made.push_back(value ? recorder_.NewTensor(place, std::move(value), location) : nullptr);
  }
  return made;
}

}  // namespace weft::lazy
