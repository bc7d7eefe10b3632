// Evaluates a function node by node on host tensors with the operations' own references: slow and obvious,
// the oracle that other backends are compared with.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "src/ir/function.h"
#include "src/ir/op_def.h"
#include "src/ops/custom/functions.h"
#include "src/runtime/launch_look.h"
#include "src/runtime/status.h"
#include "src/runtime/thread_pool.h"

namespace weft::reference {

// Thread rule: no state; any thread. Iterative over nodes, so a chain of a million needs no stack; values die
// with their last user. Arguments are in the order of the function's parameters.
absl::StatusOr<std::vector<HostTensor>> Interpret(const ir::Function& function, std::span<const HostTensor> arguments);

// While one stands, what runs on this thread ends once it is cancelled or late: then that is the outcome.
class CancelScope {
 public:
  explicit CancelScope(const CancelToken& token) : look_(token) {}
  CancelScope(const CancelScope&) = delete;
  static absl::Status Look();
  // Returns the launch's end as an error, if the operation that just ran may have stopped halfway.
  static absl::Status Stopped();

 private:
  const LaunchLook look_;
  RunningLaunch launch_{.look = &look_};
  const ThreadPool::Scope scope_{&launch_};
};

// While one stands, custom operations on this thread are what is registered there; without one they are UNIMPLEMENTED. They are
// the caller's code: see custom_call/host_call.h for where they may run.
class CustomScope {
 public:
  explicit CustomScope(std::shared_ptr<ops::CustomFunctions> registered);
  ~CustomScope();
  CustomScope(const CustomScope&) = delete;
  const std::shared_ptr<ops::CustomFunctions>& registered() const { return registered_; }

 private:
  const std::shared_ptr<ops::CustomFunctions> registered_;
  const CustomScope* const before_;
};

// One call of an operation on the functions it carries, composites by their own reference or else their expansion. `results` are the
// types that inference gave.
absl::StatusOr<std::vector<HostTensor>> InterpretCall(const ir::OpDef& op, std::span<const HostTensor* const> operands,
                                                      const ir::Attrs& attrs, std::span<const ir::Type> results,
                                                      ir::RegionSpan regions = {});

}  // namespace weft::reference
