// The engine as tensors know it: they keep it alive, and tell it when the last reference to one of them is gone.
#pragma once

#include "src/runtime/ref.h"

namespace weft::lazy {

class Tensor;

class Owner : public RefCounted {
 public:
  // The last reference is gone. Comes without the lock, on any thread.
  virtual void Released(const Tensor* tensor) = 0;
  // The first call after one that weft_cancel ended comes here, without the lock.
  virtual void PutBackEnded() = 0;
};

}  // namespace weft::lazy
