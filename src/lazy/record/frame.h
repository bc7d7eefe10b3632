// Where operations are recorded: in the program, or in the body of a function that is being made.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "src/ir/function.h"
#include "src/lazy/record/mesh_state.h"
#include "src/lazy/value/generator.h"
#include "src/runtime/hash_map.h"

namespace weft::lazy {

using Tensors = absl::InlinedVector<Ref<Tensor>, 2>;

// The body of a function. The program itself has none: a null Frame stands for it. Reached through a handle, never
// through the thread: goroutines and fibres migrate. Its tensors are in no live list: no cut sees them, they have no
// value until the function is called. A value that a body uses of the frames around it becomes a parameter by itself, a
// capture. A body that is open has nothing but open bodies around it: the end of one is the end of all that are open
// inside it. Thread rule: under the engine's lock; the owner of the last reference to an open one abandons it first.
class Frame final : public RefCounted {
 public:
  enum class State : uint8_t {
    kOpen,
    kFinished,
    kAbandoned,
    kAbandonedAround,  // because a body around it was
  };

  Frame(Ref<Frame> parent, MeshState& place, std::string name)
      : parent(std::move(parent)),
        place(place),
        name(std::move(name)),
        depth(this->parent != nullptr ? this->parent->depth + 1 : 1) {}

  const Ref<Frame> parent;  // null: the program
  MeshState& place;
  const std::string name;
  const int depth;

  State state() const { return state_; }
  bool open() const { return state_ == State::kOpen; }
  // Bodies whose parent this is.
  size_t open_inside() const { return inside_.size(); }
  std::vector<ir::Value> inputs;
  GeneratorState drawn;  // how far the body has drawn from its stream; the key is 0

  // Once, when nothing of the beginning can fail any more.
  void Open();
  // An open one: nothing more is recorded, here or in what is open inside it, and what they held goes.
  void End(State how);

  // The state of the body's stream at its beginning, a parameter behind all others of a function that draws.
  const ir::Value& Stream();

  // A parameter behind the inputs, and what it stands for.
  struct Capture {
    Ref<Tensor> tensor;  // of the parent: held, so that barriers compute it
    ir::Value parameter;
  };
  std::span<const Capture> captures() const { return captures_; }
  // The parameter that stands for a value of the parent; an empty one if there is none yet.
  ir::Value Captured(const ir::Value& value) const;
  // `tensor` shows the value. A failure changes nothing.
  ir::Value AddCapture(const ir::Value& value, Ref<Tensor> tensor);

 private:
  ~Frame() override = default;
  State state_ = State::kOpen;
  std::vector<Frame*> inside_;  // open, each of which knows its place
  size_t place_inside_ = 0;
  ir::Value stream_;
  std::vector<Capture> captures_;
  HashMap<ir::Value, size_t> captured_;  // values as they were to places among the captures
};

// The deeper of two of which one is in the other; nothing if neither is.
std::optional<Frame*> Deeper(Frame* a, Frame* b);
// "the program", "the body of @f".
std::string NameOf(const Frame* frame);

// Where a call records that has no operands to say so: what a handle of the C API stands for.
struct Where {
  Where(Device* device = nullptr, Frame* frame = nullptr) : device(device), frame(frame) {}
  explicit Where(const DeviceMesh* mesh) : mesh(mesh) {}
  // Tells whether it says a place, and not only a frame or nothing.
  bool names() const { return device != nullptr || mesh != nullptr; }
  Device* device = nullptr;  // null: the mesh's, the frame's, in the program those of the mesh that has been set
  Frame* frame = nullptr;
  const DeviceMesh* mesh = nullptr;  // of the engine; null: the device says where
};

// Where something is recorded.
struct Place {
  MeshState* state = nullptr;
  Frame* frame = nullptr;
};

}  // namespace weft::lazy
