// Optimizers: their state, and a step of any rule recorded as one update. The rules are optimizer_rules.cc.
#include "src/lazy/optimizer.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "src/ir/differentiable.h"
#include "src/lazy/clip.h"
#include "src/ops/complex.h"
#include "src/runtime/machine_memory.h"
#include "src/runtime/zero_pages.h"

namespace weft::lazy {
namespace {

using ir::Value;

// The update of one parameter. A step that a setting turns on is in the program; its amount is not.
struct ParameterRule {
  ir::Builder& b;
  const OptimizerGroup& group;
  std::span<const std::string_view> slots;
  std::span<const Value> scalars;

  // Turns parameter, gradient and slots into parameter and slots.
  void Update(std::span<const Value> in, std::span<Value> out) const {
    const DType stored = in[0].dtype(), dtype = ComputeType(stored);
    const auto computed = [&](const Value& x) { return stored == dtype ? x : ops::Convert(b, x, dtype); };
    std::ranges::copy(in.subspan(2), out.begin() + 1);
    const Value p =
        group.rule->update({b, group, scalars, slots, in.subspan(2), out.subspan(1), computed(in[0]), computed(in[1])});
    out[0] = stored == dtype ? p : ops::Convert(b, p, stored);
  }

  // A complex parameter is two real ones, as in PyTorch.
  void UpdateParts(std::span<const Value> in, std::span<Value> out) const {
    std::vector<Value> re, im, out_re(out.size()), out_im(out.size());
    for (const Value& value : in) {
      ops::Planes planes = ops::PlanesOf(b, value);
      re.push_back(std::move(planes.re));
      im.push_back(std::move(planes.im));
    }
    if (!b.ok()) return;
    Update(re, out_re);
    Update(im, out_im);
    for (size_t i = 0; i < out.size(); ++i) out[i] = ops::ComplexFrom(b, {out_re[i], out_im[i]});
  }
};

// The update of all parameters: each one's value, gradient and slots come in, its value and slots go out. The scalars of
// the groups follow one another. Where the state is in parts, a last scalar says whose they are; where parts are clipped, the one before
// it is the bound, and a last target becomes the norm.
class Rule final : public UpdateRule {
 public:
  Rule(std::span<const OptimizerGroup> groups, std::vector<int32_t> group_of, std::vector<std::string_view> slots,
       bool guarded, bool clipped, Optimizer::Parts parts)
      : groups_(groups.begin(), groups.end()),
        group_of_(std::move(group_of)),
        slots_(std::move(slots)),
        guarded_(guarded),
        clipped_(clipped),
        parts_(std::move(parts)) {}

  absl::Status Build(const UpdateCall& call) const override {
    const size_t stride = 2 + slots_.size();
    const size_t outs = 1 + slots_.size();
    const size_t scalars = ScalarCount(groups_[0]);
    const std::span<const Value> given = call.operands.first(call.operands.size() - (guarded_ ? 1 : 0));
    std::vector<Value> all(given.begin(), given.end());
    std::optional<PartsOfStep> parts;
    if (parts_ != nullptr) {
      parts.emplace(call.b, *parts_, Every(all, 0, stride), call.scalars_f32.back());
      Put(parts->Own(), 0, stride, all);
      std::vector<Value> means = parts->MeansOf(Every(all, 1, stride));
      WEFT_RETURN_IF_ERROR(call.b.status());
      if (clipped_) {
        const bool wide = !call.scalars_f64.empty();
        const std::span<const Value> numbers = wide ? call.scalars_f64 : call.scalars_f32;
        call.targets.back() = ClipParts(call.b, *parts_, numbers[numbers.size() - 2], means);
        WEFT_RETURN_IF_ERROR(call.b.status());
      }
      Put(means, 1, stride, all);
    }
    for (size_t k = 0; k * stride < all.size(); ++k) {
      const auto in = std::span<const Value>(all).subspan(k * stride, stride);
      const auto out = call.targets.subspan(k * outs, outs);
      const bool wide = PartOf(in[0].dtype()) == DType::kF64;
      const size_t group = group_of_.empty() ? 0 : static_cast<size_t>(group_of_[k]);
      const ParameterRule rule{call.b, groups_[group], slots_,
                               (wide ? call.scalars_f64 : call.scalars_f32).subspan(group * scalars, scalars)};
      if (IsComplex(in[0].dtype())) {
        rule.UpdateParts(in, out);
      } else {
        rule.Update(in, out);
      }
      if (guarded_) Keep(call.b, call.operands.back(), in, out);
    }
    WEFT_RETURN_IF_ERROR(call.b.status());
    const std::span<Value> updated = call.targets.first(call.targets.size() - (clipped_ ? 1 : 0));
    if (parts) Put(parts->Whole(Every(updated, 0, outs)), 0, outs, updated);
    return call.b.status();
  }

 private:
  // Those at `first`, and each `stride` further on.
  static std::vector<Value> Every(std::span<const Value> values, size_t first, size_t stride) {
    std::vector<Value> some;
    for (size_t i = first; i < values.size(); i += stride) some.push_back(values[i]);
    return some;
  }
  static void Put(const std::vector<Value>& some, size_t first, size_t stride, std::span<Value> values) {
    for (size_t i = 0; i < some.size(); ++i) values[first + i * stride] = some[i];
  }

  // Parameter and slots as they were, where `found` is above 0.
  static void Keep(ir::Builder& b, const Value& found, std::span<const Value> in, std::span<Value> out) {
    const Value bad = ops::Compare(b, ops::Direction::kGt, found, 0);
    for (size_t i = 0; i < out.size() && b.ok(); ++i) {
      const Value& old = in[i == 0 ? 0 : i + 1];
      out[i] = ops::Select(b, ops::BroadcastTo(b, bad, old.dims()), old, out[i]);
    }
  }

  const std::vector<OptimizerGroup> groups_;
  const std::vector<int32_t> group_of_;  // of each parameter that is updated; empty: there is one group
  const std::vector<std::string_view> slots_;
  const bool guarded_;  // the last operand forbids the step
  const bool clipped_;
  const Optimizer::Parts parts_;
};

absl::Status CheckParameter(const OptimizerRule& rule, size_t i, const Tensor& parameter) {
  if (!ir::CarriesGradient(parameter.dtype())) {
    return UserError("optimizer: parameter ", i, " is ", ir::ShortType(parameter.type()),
                     "; it must be a float or complex");
  }
  if (!rule.complex && IsComplex(parameter.dtype())) {
    return UserError("optimizer: parameter ", i, " is ", ir::ShortType(parameter.type()), "; ", rule.name,
                     " takes floats");
  }
  if (rule.rank >= 0 && parameter.dims().size() != static_cast<size_t>(rule.rank)) {
    return UserError("optimizer: parameter ", i, " is ", ir::ShortType(parameter.type()), "; ", rule.name,
                     " takes tensors of ", rule.rank, " dimensions");
  }
  return absl::OkStatus();
}

absl::Status CheckInParts(const StateParts& parts, size_t i, const Tensor& parameter) {
  if (!parameter.sharding().mesh().alone()) {
    return UserErrorOf(absl::StatusCode::kUnimplemented, "optimizer: parameter ", i, " is on ",
                       parameter.sharding().mesh().name(),
                       "; the state of tensors on a mesh is not kept in parts over processes (shard_state)");
  }
  const absl::Status carried = parts.Carries(parameter.type());
  return carried.ok() ? carried : WithText(carried, absl::StrCat("optimizer: parameter ", i, ": ", carried.message()));
}

}  // namespace

OptimizerGroup GroupOf(const OptimizerOptions& o) {
  using Kind = OptimizerOptions::Kind;
  const bool sgd = o.kind == Kind::kSgd;
  OptimizerGroup group = UsualGroup(*FindOptimizerRule(sgd ? "sgd" : o.kind == Kind::kAdam ? "adam" : "adamw"));
  const auto set = [&](std::string_view name, double value) {
    for (size_t i = 0; i < group.values.size(); ++i) {
      if (group.rule->settings[i].name == name) group.values[i] = value;
    }
  };
  set("weight_decay", o.weight_decay);
  set("momentum", o.momentum);
  set("nesterov", o.nesterov ? 1 : 0);
  set("beta1", o.beta1);
  set("beta2", o.beta2);
  set("epsilon", o.epsilon);
  return group;
}

const Ref<const UpdateRule>& Optimizer::RuleOf(std::vector<int32_t> updated, Besides besides) {
  if (rule_ == nullptr || updated != rule_groups_ || besides != rule_besides_) {
    rule_ = MakeRef<Rule>(groups_, updated, slot_names_, besides.guarded, besides.clipped, parts_);
    rule_groups_ = std::move(updated);
    rule_besides_ = besides;
  }
  return rule_;
}

absl::StatusOr<Ref<Optimizer>> Optimizer::Create(Engine& engine, std::span<Tensor* const> parameters,
                                                 std::span<const OptimizerOptions> groups,
                                                 std::span<const int32_t> group_of, Parts parts) {
  std::vector<OptimizerGroup> made;
  for (const OptimizerOptions& group : groups) made.push_back(GroupOf(group));
  return Create(engine, parameters, std::span<const OptimizerGroup>(made), group_of, std::move(parts));
}

absl::StatusOr<Ref<Optimizer>> Optimizer::Create(Engine& engine, std::span<Tensor* const> parameters,
                                                 std::span<const OptimizerGroup> groups,
                                                 std::span<const int32_t> group_of, Parts parts) {
  for (const OptimizerGroup& group : groups) {
    if (absl::Status status = CheckGroup(group); !status.ok()) {
      return UserError("optimizer: ", status.message());
    }
  }
  Ref<Optimizer> optimizer(new Optimizer());
  optimizer->engine_ = Ref<Engine>::Share(&engine);
  optimizer->groups_.assign(groups.begin(), groups.end());
  optimizer->slot_names_ = SlotsOf(groups);
  optimizer->parts_ = std::move(parts);
  if (optimizer->parts_ != nullptr && optimizer->rule().whole) {
    return UserErrorOf(absl::StatusCode::kUnimplemented, "optimizer: ", optimizer->rule().name,
                       " measures whole tensors; its state is not kept in parts (shard_state)");
  }
  optimizer->group_of_.assign(group_of.begin(), group_of.end());
  optimizer->group_of_.resize(parameters.size(), 0);
  std::unordered_map<const Tensor*, size_t> seen;  // Abseil's tables do not survive an allocation that fails
  for (size_t i = 0; i < parameters.size(); ++i) {
    Tensor* parameter = parameters[i];
    if (parameter == nullptr) return UserError("optimizer: parameter ", i, " is null");
    WEFT_RETURN_IF_ERROR(CheckParameter(optimizer->rule(), i, *parameter));
    if (optimizer->parts_ != nullptr) WEFT_RETURN_IF_ERROR(CheckInParts(*optimizer->parts_, i, *parameter));
    const DeviceMesh &mesh = parameter->sharding().mesh(), &first = parameters[0]->sharding().mesh();
    if (&mesh != &first) {
      return UserError("optimizer: parameter ", i, " is on ", mesh.name(), ", the first on ", first.name());
    }
    // Two updates of one tensor in one step: the second would undo the first.
    const auto [other, fresh] = seen.emplace(parameter, i);
    if (!fresh)
      return UserError("optimizer: parameter ", i, " is parameter ", other->second, " again; each is given once");
    optimizer->parameters_.push_back(Ref<Tensor>::Share(parameter));
  }
  std::vector<Tensor*> recorded;
  ZeroPages pages;
  for (size_t name = 0; name < optimizer->slot_names_.size(); ++name) {
    for (size_t i = 0; i < parameters.size(); ++i) {
      WEFT_ASSIGN_OR_RETURN(Ref<Tensor> slot, optimizer->MakeSlot(name, i, pages));
      optimizer->slots_.push_back(std::move(slot));
      if (!parameters[i]->device()->is_host()) recorded.push_back(optimizer->slots_.back().get());
    }
  }
  // A program of their own computes them, so that the first step is the same program as all others.
  if (!recorded.empty()) WEFT_RETURN_IF_ERROR(engine.Eval(recorded).status());
  return optimizer;
}

ir::Type Optimizer::WholeSlot(size_t name, size_t parameter) const {
  const ir::Type& type = parameters_[parameter]->type();
  return ir::Type::Tensor(ComputeType(type.dtype),
                          rule().shape != nullptr ? rule().shape(slot_names_[name], type.dims) : type.dims);
}

absl::StatusOr<Ref<Tensor>> Optimizer::MakeSlot(size_t name, size_t at, ZeroPages& pages) {
  Engine& engine = *engine_;
  Tensor* const parameter = parameters_[at].get();
  ir::Type type = WholeSlot(name, at);
  if (parts_ != nullptr) type = ir::Type::Tensor(type.dtype, {parts_->PartOf(type.dims)});
  const DType dtype = type.dtype;
  const Dims dims = type.dims;
  const DeviceMesh& mesh = parameter->sharding().mesh();
  // A slot of its parameter's shape lies as that does, any other whole.
  std::string spec;
  if (!mesh.alone() && dims == parameter->dims()) {
    WEFT_ASSIGN_OR_RETURN(const Engine::Lying lying, engine.LyingOf(parameter));
    spec = ir::ToString(mesh.axes(), lying.placement.sharding(), dims.size());
  }
  if (!parameter->device()->is_host()) {
    Tensors slot, cut;
    WEFT_RETURN_IF_ERROR(engine.Record(ops::kOp_full, {}, {ops::ToInts(dims), 0.0, dtype}, {}, &slot, Where(&mesh)));
    if (spec.empty()) return std::move(slot[0]);
    Tensor* const whole = slot[0].get();
    WEFT_RETURN_IF_ERROR(engine.Record(ops::kOp_shard, {&whole, 1}, {spec}, {}, &cut));
    return std::move(cut[0]);
  }
  int64_t bytes;
  if (__builtin_mul_overflow(type.count(), int64_t{BytesOf(dtype)}, &bytes) || !MachineHas(bytes)) {
    return UserErrorOf(absl::StatusCode::kResourceExhausted,
                       "optimizer: no memory for the slots of a parameter that is ", ir::ShortType(parameter->type()));
  }
  std::span<const std::byte> zeros;
  if (!pages.Get(static_cast<size_t>(bytes), &zeros)) {
    return UserErrorOf(absl::StatusCode::kResourceExhausted, "optimizer: no address space for ", bytes, " bytes");
  }
  return engine.FromHost(Where(&mesh), dtype, dims, zeros, {}, spec);
}

absl::StatusOr<std::vector<Ref<Tensor>>> Optimizer::Reduced(std::span<const size_t> at, std::vector<Tensor*>& operands,
                                                            ir::Location location) const {
  if (at.empty()) return std::vector<Ref<Tensor>>();
  std::vector<Tensor*> given;
  for (const size_t i : at) given.push_back(operands[i]);
  WEFT_ASSIGN_OR_RETURN(std::vector<Ref<Tensor>> reduced, reduce_(given, location));
  for (size_t i = 0; i < at.size(); ++i) operands[at[i]] = reduced[i].get();
  return reduced;
}

absl::StatusOr<std::vector<Ref<Tensor>>> Optimizer::Clipped(std::span<const size_t> at, std::vector<Tensor*>& operands,
                                                            Clip* clip, ir::Location location) const {
  if (clip == nullptr || at.empty()) return std::vector<Ref<Tensor>>();
  std::vector<Tensor*> given;
  std::vector<DType> dtypes;
  for (const size_t i : at) given.push_back(operands[i]);
  for (const Tensor* gradient : given) dtypes.push_back(gradient->dtype());
  const Where where(&parameters_[0]->sharding().mesh());
  if (parts_ != nullptr) {
    // The rule measures them; its result is assigned to this tensor.
    WEFT_ASSIGN_OR_RETURN(clip->norm, engine_->Scalar(where, NormType(dtypes), 0, location));
    return std::vector<Ref<Tensor>>();
  }
  WEFT_ASSIGN_OR_RETURN(std::vector<Ref<Tensor>> clipped,
                        ClipByGlobalNorm(*engine_, where, given, clip->max_norm, location));
  clip->norm = clipped[0];
  for (size_t i = 0; i < at.size(); ++i) operands[at[i]] = clipped[i + 1].get();
  return clipped;
}

absl::Status Optimizer::Step(std::span<Tensor* const> gradients, std::span<const double> rates, ir::Location location,
                             Tensor* found, Clip* clip) {
  const size_t n = parameters_.size();
  if (gradients.size() != n) {
    return UserError("optimizer step: ", gradients.size(), " gradients for ", n, " parameters");
  }
  if (rates.size() != groups_.size()) {
    return UserError("optimizer step: ", rates.size(), " learning rates for ", groups_.size(), " groups");
  }
  if (found != nullptr && (!found->dims().empty() || !IsFloat(found->dtype()))) {
    return UserError("optimizer step: found is ", ir::ShortType(found->type()), "; it must be a float scalar");
  }
  const size_t slot_count = slot_names_.size();
  // operands: parameter, gradient, slots of each updated parameter; targets: parameter, slots.
  std::vector<Tensor*> operands, targets;
  std::vector<int32_t> updated;
  std::vector<size_t> gradient_at;  // in operands
  operands.reserve((2 + slot_count) * n + 1);
  targets.reserve((1 + slot_count) * n);
  for (size_t i = 0; i < n; ++i) {
    if (gradients[i] == nullptr) continue;
    if (!(gradients[i]->type() == parameters_[i]->type())) {
      return UserError("optimizer step: gradient ", i, " is ", ir::ShortType(gradients[i]->type()), ", its parameter ",
                       ir::ShortType(parameters_[i]->type()));
    }
    operands.push_back(parameters_[i].get());
    gradient_at.push_back(operands.size());
    operands.push_back(gradients[i]);
    targets.push_back(parameters_[i].get());
    if (groups_.size() > 1) updated.push_back(group_of_[i]);
    for (size_t name = 0; name < slot_count; ++name) {
      operands.push_back(slot(name, i));
      targets.push_back(slot(name, i));
    }
  }

  const Besides besides = {.guarded = found != nullptr && !operands.empty(),
                           .clipped = clip != nullptr && parts_ != nullptr && !operands.empty()};
  std::vector<size_t> reduced_at;
  if (reduce_ && parts_ == nullptr) reduced_at = gradient_at;
  if (besides.guarded) {
    // One process's gradients that are not finite are in the means of all.
    if (reduce_) reduced_at.push_back(operands.size());
    operands.push_back(found);
  }
  WEFT_ASSIGN_OR_RETURN(const std::vector<Ref<Tensor>> reduced, Reduced(reduced_at, operands, location));
  WEFT_ASSIGN_OR_RETURN(const std::vector<Ref<Tensor>> clipped, Clipped(gradient_at, operands, clip, location));
  if (besides.clipped) targets.push_back(clip->norm.get());
  OptimizerScalars scalars;
  for (size_t g = 0; g < groups_.size(); ++g) {
    rule().scalars(groups_[g], rates[g], static_cast<double>(step_ + 1), &scalars);
  }
  if (parts_ != nullptr) {
    parts_->StepBegins(*engine_);
    if (besides.clipped) scalars.push_back(clip->max_norm);
    scalars.push_back(static_cast<double>(parts_->rank()));
  }
  WEFT_RETURN_IF_ERROR(engine_->Update(operands, scalars, targets, location, RuleOf(std::move(updated), besides)));
  ++step_;
  return absl::OkStatus();
}

}  // namespace weft::lazy
