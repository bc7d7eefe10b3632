// The tensors of one device that somebody holds, in the order in which they were made.
#pragma once

#include "src/lazy/value/tensor.h"

namespace weft::lazy {

// Thread rule: under the engine's lock. Does not own: tensors take themselves out when they are buried.
class LiveList {
 public:
  void Append(Tensor* tensor) {
    tensor->previous_ = last_;
    (last_ != nullptr ? last_->next_ : first_) = tensor;
    last_ = tensor;
  }
  void Remove(Tensor* tensor) {
    if (settled_ == tensor) settled_ = tensor->previous_;
    (tensor->previous_ != nullptr ? tensor->previous_->next_ : first_) = tensor->next_;
    (tensor->next_ != nullptr ? tensor->next_->previous_ : last_) = tensor->previous_;
  }

  class Iterator {
   public:
    explicit Iterator(Tensor* at) : at_(at) {}
    Tensor& operator*() const { return *at_; }
    Iterator& operator++() {
      at_ = at_->next_;
      return *this;
    }
    bool operator==(const Iterator&) const = default;

   private:
    Tensor* at_;
  };
  Iterator begin() const { return Iterator(first_); }
  Iterator end() const { return Iterator(nullptr); }

  // Begins behind the first tensors, which have been computed or have expired and show since then what they showed: cuts that nobody
  // asks for come every few thousand nodes, and a list of a million tensors need not be walked for each.
  Iterator Unsettled() {
    Tensor* next = settled_ != nullptr ? settled_->next_ : first_;
    for (; next != nullptr && IsSettled(*next); next = next->next_) settled_ = next;
    return Iterator(next);
  }
  // Call when a tensor of the list shows another value than before.
  void Unsettle() { settled_ = nullptr; }

 private:
  static bool IsSettled(const Tensor& tensor) {
    if (tensor.state.overwritten != nullptr || tensor.state.unmade) return false;
    return tensor.state.expired || (tensor.value() && DataOf(tensor.value()) != nullptr);
  }

  Tensor* first_ = nullptr;
  Tensor* last_ = nullptr;
  Tensor* settled_ = nullptr;  // the last of the first ones that are; null: none is known to be
};

}  // namespace weft::lazy
