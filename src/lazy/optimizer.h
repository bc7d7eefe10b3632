// Optimizers as recorded operations, by the rules of optimizer_rules.h. Learning rates and step counts are run-time scalars: a schedule never
// recompiles. Parameters may be in groups with settings and rates of their own. The state is tensors with names, for
// checkpoints.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "src/lazy/engine.h"
#include "src/lazy/optimizer_rules.h"
#include "src/lazy/state_parts.h"

namespace weft {
class ZeroPages;
}

namespace weft::lazy {

// The settings of the three rules that have structs of their own.
struct OptimizerOptions {
  enum class Kind : uint8_t { kSgd, kAdam, kAdamW };
  Kind kind = Kind::kSgd;
  double momentum = 0;  // SGD; 0 in every group at creation: no momentum state
  bool nesterov = false;
  double weight_decay = 0;  // SGD and Adam: added to the gradient; AdamW: decoupled; 0 at creation: none
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
};
OptimizerGroup GroupOf(const OptimizerOptions& options);

// Thread rule: one thread at a time, see Turn; the tensors are the engine's.
class Optimizer final : public RefCounted {
 public:
  // The right to change or read the optimizer, for callers that cannot know that nobody else does.
  class Turn {
   public:
    // Empty while somebody else has it, perhaps further up this thread's stack: nobody waits.
    explicit Turn(Optimizer& optimizer)
        : optimizer_(optimizer.taken_.exchange(true, std::memory_order_acquire) ? nullptr : &optimizer) {}
    ~Turn() {
      if (optimizer_ != nullptr) optimizer_->taken_.store(false, std::memory_order_release);
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    explicit operator bool() const { return optimizer_ != nullptr; }

   private:
    Optimizer* const optimizer_;
  };

  // Keeps the parameters alive. State tensors (zeros) are made here: f32, f64 for f64 parameters. Parameter i follows
  // groups[group_of[i]]; all groups have one rule; an empty group_of puts every parameter into the first group. With `parts` a slot is
  // this process's part of it, in one dimension, and a step takes the mean of the gradients over all processes.
  using Parts = std::shared_ptr<const StateParts>;
  static absl::StatusOr<Ref<Optimizer>> Create(Engine& engine, std::span<Tensor* const> parameters,
                                               std::span<const OptimizerGroup> groups,
                                               std::span<const int32_t> group_of = {}, Parts parts = nullptr);
  static absl::StatusOr<Ref<Optimizer>> Create(Engine& engine, std::span<Tensor* const> parameters,
                                               std::span<const OptimizerOptions> groups,
                                               std::span<const int32_t> group_of = {}, Parts parts = nullptr);

  // How a step clips its gradients, as ClipByGlobalNorm does, behind their means over processes.
  struct Clip {
    double max_norm;
    Ref<Tensor> norm;  // out: before they are clipped
  };
  // Parameters and state are assigned their new values, all of them or none. gradients[i] belongs to parameters[i]; null:
  // left alone. rates[g] is the learning rate of group g. Where `found`, a float scalar, is above 0, all of them are assigned what they
  // are: a step of scaled gradients that are not finite.
  absl::Status Step(std::span<Tensor* const> gradients, std::span<const double> rates, ir::Location location = {},
                    Tensor* found = nullptr, Clip* clip = nullptr);

  Engine& engine() const { return *engine_; }
  // Makes of the gradients of a step, and of what forbids it, those that it uses (their mean over processes); null ones are left
  // out. Empty: they stay.
  using Reduce = std::function<absl::StatusOr<std::vector<Ref<Tensor>>>(std::span<Tensor* const>, ir::Location)>;
  void set_reduce(Reduce reduce) { reduce_ = std::move(reduce); }
  int64_t step_count() const { return step_; }
  void set_step_count(int64_t step) { step_ = step; }
  const OptimizerRule& rule() const { return *groups_[0].rule; }
  size_t group_count() const { return groups_.size(); }
  std::span<const Ref<Tensor>> parameters() const { return parameters_; }

  // The names of the state that must be saved besides the step count, such as "m" and "v". Each has one tensor per
  // parameter.
  std::span<const std::string_view> slot_names() const { return slot_names_; }
  Tensor* slot(size_t name, size_t parameter) const { return slots_[name * parameters_.size() + parameter].get(); }
  // Null: slots are whole.
  const StateParts* parts() const { return parts_.get(); }
  // The type of a slot that is whole.
  ir::Type WholeSlot(size_t name, size_t parameter) const;

 private:
  Optimizer() = default;
  ~Optimizer() override = default;

  // A step has these besides its parameters: a last operand that forbids it, and a bound of parts of gradients.
  struct Besides {
    bool guarded = false, clipped = false;
    bool operator==(const Besides&) const = default;
  };
  // The rule for parameters of these groups, none where there is one group. Replay knows a step by its rule, so the last one is kept.
  const Ref<const UpdateRule>& RuleOf(std::vector<int32_t> updated, Besides besides);
  // The means of these operands over processes, in their places; they are kept by what is returned.
  absl::StatusOr<std::vector<Ref<Tensor>>> Reduced(std::span<const size_t> at, std::vector<Tensor*>& operands,
                                                   ir::Location location) const;
  // Likewise these gradients, clipped.
  absl::StatusOr<std::vector<Ref<Tensor>>> Clipped(std::span<const size_t> at, std::vector<Tensor*>& operands,
                                                   Clip* clip, ir::Location location) const;
  // Zeros for one slot of one parameter: recorded, or, on the host, pages that nobody has written.
  absl::StatusOr<Ref<Tensor>> MakeSlot(size_t name, size_t parameter, ZeroPages& pages);

  Ref<Engine> engine_;
  std::vector<OptimizerGroup> groups_;
  std::vector<std::string_view> slot_names_;
  std::vector<int32_t> group_of_;     // of each parameter
  Ref<const UpdateRule> rule_;        // what the options turn on, for the parameters below
  std::vector<int32_t> rule_groups_;  // as RuleOf was asked
  Besides rule_besides_;              // as well
  std::vector<Ref<Tensor>> parameters_;
  std::vector<Ref<Tensor>> slots_;  // name-major
  Reduce reduce_;
  Parts parts_;
  int64_t step_ = 0;
  std::atomic<bool> taken_{false};
};

}  // namespace weft::lazy
