// See frame.h.
#include "src/lazy/frame.h"

#include "absl/strings/str_cat.h"
#include "src/ops/registry.h"

namespace weft::lazy {

ir::Value Frame::Captured(const ir::Value& value) const {
  const size_t inputs = parameters.size() - captures.size();
  if (const auto found = captured_.find(value); found != captured_.end()) return parameters[inputs + found->second];
  // A barrier since then has given every tensor a leaf of its own; what they show is the same.
  const Data* data = DataOf(value);
  if (data == nullptr) return {};
  for (size_t i = 0; i < captures.size(); ++i) {
    if (captures[i]->value() && DataOf(captures[i]->value()) == data) return parameters[inputs + i];
  }
  return {};
}

ir::Value Frame::Capture(const ir::Value& value, Ref<Tensor> tensor) {
  captured_.emplace(value, captures.size());
  captures.push_back(std::move(tensor));
  parameters.push_back({ir::Node::Create(ops::kOp_parameter, {}, {}, {value.type()}), 0});
  return parameters.back();
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
