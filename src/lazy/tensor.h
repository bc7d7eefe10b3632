// What a handle of the C API stands for: a value that can be rebound. Made by the engine alone.
#pragma once

#include <string>

#include "src/lazy/data.h"

namespace weft::lazy {

class Engine;

// Thread rule: the engine's methods lock; dtype, dims and device never change and need no lock. Releasing the last
// reference never blocks: the tensor goes on a list that the next call into the engine empties.
class Tensor final : public RefCounted {
 public:
  const ir::Type& type() const { return type_; }
  DType dtype() const { return type_.dtype; }
  const Dims& dims() const { return type_.dims; }
  Device* device() const { return device_; }
  Engine& engine() const { return *engine_; }

  static void Destroy(const Tensor* tensor);

 private:
  friend class Engine;
  Tensor() = default;
  ~Tensor() override = default;

  Ref<Engine> engine_;
  Device* device_ = nullptr;
  ir::Type type_;
  // Under the engine's lock:
  ir::Value value_;             // empty once expired
  Ref<Data> overwritten_;       // assigned over since the last barrier: what the barrier may donate
  Tensor* previous_ = nullptr;  // live tensors of the device, in creation order
  Tensor* next_ = nullptr;
  ir::Location location_;
  bool requires_grad_ = false;
  bool scoped_ = false;    // adopted by a scope and not kept: never an output of a barrier
  bool assigned_ = false;  // assign target: an output even if scoped
  bool expired_ = false;   // a scope's temporary that a barrier left behind
  // The compiler makes no program for the value: cuts leave it pending, whoever asks for it by name is told why.
  bool set_aside_ = false;
  // Of the list of the dead.
  mutable Tensor* next_dead_ = nullptr;
};

}  // namespace weft::lazy
