// See frame.h.
#include "src/lazy/record/frame.h"

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "src/ops/registry.h"

namespace weft::lazy {

void Frame::Open() {
  if (parent == nullptr) return;
  place_inside_ = parent->inside_.size();
  parent->inside_.push_back(this);
}

void Frame::End(State how) {
  // The recursion is as deep as bodies nest, which is bounded.
  while (!inside_.empty()) inside_.back()->End(State::kAbandonedAround);
  state_ = how;
  if (parent != nullptr) {
    std::vector<Frame*>& open = parent->inside_;
    open[place_inside_] = open.back();
    open[place_inside_]->place_inside_ = place_inside_;
    open.pop_back();
  }
  inputs.clear();
  captures_.clear();
  captured_.clear();
  stream_ = {};
}

ir::Value Frame::Captured(const ir::Value& value) const {
  if (const auto found = captured_.find(value); found != captured_.end()) return captures_[found->second].parameter;
  // A barrier since then has given every tensor a leaf of its own; what they show is the same.
  const Data* data = DataOf(value);
  if (data == nullptr) return {};
  for (const Capture& capture : captures_) {
    if (capture.tensor->value() && DataOf(capture.tensor->value()) == data) return capture.parameter;
  }
  return {};
}

ir::Value Frame::AddCapture(const ir::Value& value, Ref<Tensor> tensor) {
  const ir::Value parameter{ir::Node::Create(ops::kOp_parameter, {}, {}, {value.type()}), 0};
  captures_.push_back({std::move(tensor), parameter});
  absl::Cleanup undo = [this] { captures_.pop_back(); };
  captured_.emplace(value, captures_.size() - 1);
  std::move(undo).Cancel();
  return parameter;
}

const ir::Value& Frame::Stream() {
  if (!stream_) stream_ = {ir::Node::Create(ops::kOp_parameter, {}, {}, {ir::Type::Tensor(DType::kU64, {3})}), 0};
  return stream_;
}

std::optional<Frame*> Deeper(Frame* a, Frame* b) {
  const auto depth = [](const Frame* frame) { return frame != nullptr ? frame->depth : 0; };
  if (depth(a) < depth(b)) std::swap(a, b);
  Frame* around = a;
  while (depth(around) > depth(b)) around = around->parent.get();
  if (around != b) return std::nullopt;
  return a;
}

std::string NameOf(const Frame* frame) {
  return frame != nullptr ? absl::StrCat("the body of @", frame->name) : "the program";
}

}  // namespace weft::lazy
