// The tensors of one device that somebody holds, in the order in which they were made.
#pragma once

#include "src/lazy/tensor.h"

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

 private:
  Tensor* first_ = nullptr;
  Tensor* last_ = nullptr;
};

}  // namespace weft::lazy
