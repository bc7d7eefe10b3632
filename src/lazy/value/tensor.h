// The object behind a tensor's handle: a value that can be rebound. Made by the engine alone.
#pragma once

#include <utility>

#include "src/lazy/value/data.h"
#include "src/lazy/value/owner.h"

namespace weft::lazy {

class Engine;
class Frame;
class Recorder;

// Thread rule: the engine's methods lock; dtype, dims and where it lives never change and need no lock. Releasing the last
// reference never blocks: the tensor goes on a list that the next call into the engine empties.
class Tensor final : public RefCounted {
 public:
  const ir::Type& type() const { return type_; }
  DType dtype() const { return type_.dtype; }
  const Dims& dims() const { return type_.dims; }
  const Placement& sharding() const { return sharding_; }
  // The device that has all of the value.
  Device* device() const { return sharding_.mesh().devices()[sharding_.whole_at()]; }
  const Owner& owner() const { return *owner_; }
  Engine& engine() const;  // the same, for those who include it (engine.h)
  // Whose body it belongs to; null: the program.
  Frame* frame() const { return frame_.get(); }

  static void Destroy(const Tensor* tensor);

  // --- What the engine's parts know of it, under the engine's lock -----------------------------------------------------
  // Empty once expired, and as long as the step is replayed in which it was made.
  const ir::Value& value() const { return value_; }
  // The node's count of tensors that show it follows.
  void Show(ir::Value value) {
    if (value) value.node->Show();
    std::swap(value_, value);
    if (value) value.node->Hide();
  }

  struct State {
    Ref<Data> overwritten;     // assigned over since the last barrier: what the barrier may donate
    ir::Value unmade;          // the same where it had not been computed: what a failed launch puts back
    uint64_t assignments = 0;  // a number of its own once it has been assigned to
    uint64_t changed = 0;      // the recorder's time when the value was last shown
    ir::Location location;
    const ir::OpDef* maker = nullptr;  // of its first value; a parameter's: memory of the caller's
    uint64_t born = 0;                 // barriers before it was made
    uint64_t step = 0;                 // of the replay's, in which the value has this number
    uint32_t number = 0;
    bool requires_grad = false;
    bool scoped = false;    // adopted by a scope and not kept: never an output of a barrier
    bool assigned = false;  // assign target: an output even if scoped
    bool again = false;     // assigned more than once since the last barrier
    bool expired = false;   // a scope's temporary that a barrier left behind, or donated
    bool donated = false;   // expired because a function's run got it
    // The compiler makes no program for the value: cuts leave it pending, a call that asks for it by name is told why.
    bool set_aside = false;
  };
  State state;

 private:
  friend class LiveList;
  friend class Recorder;
  Tensor(Ref<Owner> owner, Ref<Frame> frame, const Placement& sharding, const ir::Type& type);
  ~Tensor() override;

  const Ref<Owner> owner_;
  const Ref<Frame> frame_;
  const Placement sharding_;
  const ir::Type type_;
  ir::Value value_;
  Tensor* previous_ = nullptr;  // of the live list
  Tensor* next_ = nullptr;
  mutable Tensor* next_dead_ = nullptr;  // of the list of the dead
  // Counts the calls that borrow the tensor with the lock open, and remembers whether the last reference went
  // meanwhile. Under the engine's lock.
  uint32_t borrowed_ = 0;
  bool dead_ = false;
};

}  // namespace weft::lazy
