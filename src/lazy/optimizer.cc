// Update rules, written as the operations a user could have recorded.
// SGD: Sutskever et al. 2013 in PyTorch's form (v = mu v + g; p -= lr v). Adam: Kingma & Ba 2015, algorithm 1, with the
// bias corrections folded into the step size. AdamW: Loshchilov & Hutter 2019.
#include "src/lazy/optimizer.h"

#include <cmath>
#include <unordered_map>

#include "absl/container/inlined_vector.h"
#include "src/ir/differentiable.h"
#include "src/ops/complex.h"
#include "src/runtime/machine_memory.h"
#include "src/runtime/zero_pages.h"

namespace weft::lazy {
namespace {

using ir::Value;
using ops::Add;
using ops::Mul;
using ops::Sub;

constexpr std::string_view kMomentumNames[] = {"momentum"};
constexpr std::string_view kAdamNames[] = {"m", "v"};

// Scalars of a step in the order they are handed to Update.
struct Sgd {
  enum { kRate, kMomentum, kDecay, kCount };
};
struct Adam {
  // kStep = lr / (1 - beta1^t), kScale = 1 / sqrt(1 - beta2^t); kRest1 = 1 - beta1, kRest2 = 1 - beta2;
  // kShrink = 1 - lr * decay (AdamW) or decay (Adam).
  enum { kStep, kScale, kBeta1, kRest1, kBeta2, kRest2, kEpsilon, kShrink, kCount };
};

absl::Status CheckRange(std::string_view name, double value, double low, double high) {
  if (value >= low && value < high) return absl::OkStatus();
  return UserError("optimizer: ", name, " is ", value, "; it must be at least ", low,
                   std::isinf(high) ? " and finite" : absl::StrCat(" and less than ", high));
}

// The update of one parameter. A step that an option turns on is in the program; its amount is not.
struct ParameterRule {
  ir::Builder& b;
  const OptimizerOptions& o;
  std::span<const Value> s;  // scalars

  // Turns parameter, gradient and slots into parameter and slots.
  void Update(std::span<const Value> in, std::span<Value> out) const {
    const DType stored = in[0].dtype();
    const DType dtype = ComputeType(stored);
    Value p = stored == dtype ? in[0] : ops::Convert(b, in[0], dtype);
    Value g = stored == dtype ? in[1] : ops::Convert(b, in[1], dtype);
    const bool has_decay = o.weight_decay != 0;
    if (o.kind == OptimizerOptions::Kind::kSgd) {
      if (has_decay) g = Add(b, g, Mul(b, p, s[Sgd::kDecay]));
      Value direction = g;
      if (out.size() > 1 && o.momentum == 0) {
        out[1] = in[2];  // another group has momentum
      } else if (out.size() > 1) {
        out[1] = Add(b, Mul(b, in[2], s[Sgd::kMomentum]), g);
        direction = o.nesterov ? Add(b, g, Mul(b, out[1], s[Sgd::kMomentum])) : out[1];
      }
      p = Sub(b, p, Mul(b, direction, s[Sgd::kRate]));
    } else {
      const bool decoupled = o.kind == OptimizerOptions::Kind::kAdamW;
      if (has_decay && !decoupled) g = Add(b, g, Mul(b, p, s[Adam::kShrink]));
      out[1] = Add(b, Mul(b, in[2], s[Adam::kBeta1]), Mul(b, g, s[Adam::kRest1]));
      out[2] = Add(b, Mul(b, in[3], s[Adam::kBeta2]), Mul(b, Mul(b, g, g), s[Adam::kRest2]));
      Value root = ops::Call(b, ops::kOp_sqrt, {out[2]});
      Value scale = Add(b, Mul(b, root, s[Adam::kScale]), s[Adam::kEpsilon]);
      if (has_decay && decoupled) p = Mul(b, p, s[Adam::kShrink]);
      p = Sub(b, p, Mul(b, ops::Div(b, out[1], scale), s[Adam::kStep]));
    }
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

size_t ScalarCount(OptimizerOptions::Kind kind) {
  return kind == OptimizerOptions::Kind::kSgd ? size_t{Sgd::kCount} : size_t{Adam::kCount};
}

// The update of all parameters: each one's value, gradient and slots come in, its value and slots go out. The scalars of
// the groups follow one another.
class Rule final : public UpdateRule {
 public:
  Rule(std::span<const OptimizerOptions> groups, std::vector<int32_t> group_of, size_t slots)
      : groups_(groups.begin(), groups.end()), group_of_(std::move(group_of)), slots_(slots) {}

  absl::Status Build(const UpdateCall& call) const override {
    const size_t stride = 2 + slots_;
    const size_t outs = 1 + slots_;
    const size_t scalars = ScalarCount(groups_[0].kind);
    for (size_t k = 0; k * stride < call.operands.size(); ++k) {
      const auto in = call.operands.subspan(k * stride, stride);
      const auto out = call.targets.subspan(k * outs, outs);
      const bool wide = PartOf(in[0].dtype()) == DType::kF64;
      const size_t group = group_of_.empty() ? 0 : static_cast<size_t>(group_of_[k]);
      const ParameterRule rule{call.b, groups_[group],
                               (wide ? call.scalars_f64 : call.scalars_f32).subspan(group * scalars, scalars)};
      if (IsComplex(in[0].dtype())) {
        rule.UpdateParts(in, out);
      } else {
        rule.Update(in, out);
      }
    }
    return call.b.status();
  }

 private:
  const std::vector<OptimizerOptions> groups_;
  const std::vector<int32_t> group_of_;  // of each parameter that is updated; empty: there is one group
  const size_t slots_;
};

absl::Status CheckOptions(const OptimizerOptions& options) {
  constexpr double kInfinity = HUGE_VAL;
  WEFT_RETURN_IF_ERROR(CheckRange("weight_decay", options.weight_decay, 0, kInfinity));
  if (options.kind == OptimizerOptions::Kind::kSgd) {
    if (options.nesterov && options.momentum == 0) return UserError("optimizer: nesterov needs a momentum");
    return CheckRange("momentum", options.momentum, 0, kInfinity);
  }
  WEFT_RETURN_IF_ERROR(CheckRange("beta1", options.beta1, 0, 1));
  WEFT_RETURN_IF_ERROR(CheckRange("beta2", options.beta2, 0, 1));
  return CheckRange("epsilon", options.epsilon, 0, kInfinity);
}

using Scalars = absl::InlinedVector<double, 2 * Adam::kCount>;  // of two groups

// A group's scalars of step t, as Sgd and Adam name them.
void AppendScalars(const OptimizerOptions& o, double rate, double t, Scalars* scalars) {
  if (o.kind == OptimizerOptions::Kind::kSgd) {
    scalars->insert(scalars->end(), {rate, o.momentum, o.weight_decay});
    return;
  }
  const bool decoupled = o.kind == OptimizerOptions::Kind::kAdamW;
  scalars->insert(scalars->end(),
                  {rate / (1 - std::pow(o.beta1, t)), 1 / std::sqrt(1 - std::pow(o.beta2, t)), o.beta1, 1 - o.beta1,
                   o.beta2, 1 - o.beta2, o.epsilon, decoupled ? 1 - rate * o.weight_decay : o.weight_decay});
}

}  // namespace

std::span<const std::string_view> Optimizer::slot_names() const {
  if (kind() != OptimizerOptions::Kind::kSgd) return kAdamNames;
  for (const OptimizerOptions& group : groups_) {
    if (group.momentum != 0) return kMomentumNames;
  }
  return {};
}

const Ref<const UpdateRule>& Optimizer::RuleOf(std::vector<int32_t> updated) {
  if (rule_ == nullptr || updated != rule_groups_) {
    rule_ = MakeRef<Rule>(groups_, updated, slot_names().size());
    rule_groups_ = std::move(updated);
  }
  return rule_;
}

absl::StatusOr<Ref<Optimizer>> Optimizer::Create(Engine& engine, std::span<Tensor* const> parameters,
                                                 std::span<const OptimizerOptions> groups,
                                                 std::span<const int32_t> group_of) {
  for (const OptimizerOptions& group : groups) WEFT_RETURN_IF_ERROR(CheckOptions(group));
  Ref<Optimizer> optimizer(new Optimizer());
  optimizer->engine_ = Ref<Engine>::Share(&engine);
  optimizer->groups_.assign(groups.begin(), groups.end());
  optimizer->group_of_.assign(group_of.begin(), group_of.end());
  optimizer->group_of_.resize(parameters.size(), 0);
  std::unordered_map<const Tensor*, size_t> seen;  // Abseil's tables do not survive an allocation that fails
  for (size_t i = 0; i < parameters.size(); ++i) {
    Tensor* parameter = parameters[i];
    if (parameter == nullptr) return UserError("optimizer: parameter ", i, " is null");
    if (!ir::CarriesGradient(parameter->dtype())) {
      return UserError("optimizer: parameter ", i, " is ", ir::ShortType(parameter->type()),
                       "; it must be a float or complex");
    }
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
  for (size_t name = 0; name < optimizer->slot_names().size(); ++name) {
    for (Tensor* parameter : parameters) {
      const DType dtype = ComputeType(parameter->dtype());
      const DeviceMesh& mesh = parameter->sharding().mesh();
      // A slot lies as its parameter does.
      std::string spec;
      if (!mesh.alone()) {
        WEFT_ASSIGN_OR_RETURN(const Engine::Lying lying, engine.LyingOf(parameter));
        spec = ir::ToString(mesh.axes(), lying.placement.sharding(), parameter->dims().size());
      }
      if (!parameter->device()->is_host()) {
        Tensors slot, cut;
        WEFT_RETURN_IF_ERROR(
            engine.Record(ops::kOp_full, {}, {ops::ToInts(parameter->dims()), 0.0, dtype}, {}, &slot, Where(&mesh)));
        if (!spec.empty()) {
          Tensor* const whole = slot[0].get();
          WEFT_RETURN_IF_ERROR(engine.Record(ops::kOp_shard, {&whole, 1}, {spec}, {}, &cut));
          slot = std::move(cut);
        }
        optimizer->slots_.push_back(std::move(slot[0]));
        recorded.push_back(optimizer->slots_.back().get());
        continue;
      }
      int64_t bytes;
      if (__builtin_mul_overflow(parameter->type().count(), int64_t{BytesOf(dtype)}, &bytes) || !MachineHas(bytes)) {
        return UserErrorOf(absl::StatusCode::kResourceExhausted,
                           "optimizer: no memory for the slots of a parameter that is ",
                           ir::ShortType(parameter->type()));
      }
      std::span<const std::byte> zeros;
      if (!pages.Get(static_cast<size_t>(bytes), &zeros)) {
        return UserErrorOf(absl::StatusCode::kResourceExhausted, "optimizer: no address space for ", bytes, " bytes");
      }
      WEFT_ASSIGN_OR_RETURN(Ref<Tensor> slot, engine.FromHost(Where(&mesh), dtype, parameter->dims(), zeros, {}, spec));
      optimizer->slots_.push_back(std::move(slot));
    }
  }
  // A program of their own computes them, so that the first step is the same program as all others.
  if (!recorded.empty()) WEFT_RETURN_IF_ERROR(engine.Eval(recorded).status());
  return optimizer;
}

absl::Status Optimizer::Step(std::span<Tensor* const> gradients, std::span<const double> rates, ir::Location location) {
  const size_t n = parameters_.size();
  if (gradients.size() != n) {
    return UserError("optimizer step: ", gradients.size(), " gradients for ", n, " parameters");
  }
  if (rates.size() != groups_.size()) {
    return UserError("optimizer step: ", rates.size(), " learning rates for ", groups_.size(), " groups");
  }
  const size_t slot_count = slot_names().size();
  // operands: parameter, gradient, slots of each updated parameter; targets: parameter, slots.
  std::vector<Tensor*> operands, targets;
  std::vector<int32_t> updated;
  std::vector<size_t> gradient_at;  // in operands
  for (size_t i = 0; i < n; ++i) {
    if (gradients[i] == nullptr) continue;
    if (!(gradients[i]->type() == parameters_[i]->type())) {
      return UserError("optimizer step: gradient ", i, " is ", ir::ShortType(gradients[i]->type()), ", its parameter ",
                       ir::ShortType(parameters_[i]->type()));
    }
    operands.push_back(parameters_[i].get());
    if (reduce_) gradient_at.push_back(operands.size());
    operands.push_back(gradients[i]);
    targets.push_back(parameters_[i].get());
    if (groups_.size() > 1) updated.push_back(group_of_[i]);
    for (size_t name = 0; name < slot_count; ++name) {
      operands.push_back(slot(name, i));
      targets.push_back(slot(name, i));
    }
  }

  std::vector<Ref<Tensor>> reduced;
  if (reduce_ && !gradient_at.empty()) {
    std::vector<Tensor*> present;
    for (const size_t at : gradient_at) present.push_back(operands[at]);
    WEFT_ASSIGN_OR_RETURN(reduced, reduce_(present, location));
    for (size_t i = 0; i < gradient_at.size(); ++i) operands[gradient_at[i]] = reduced[i].get();
  }
  Scalars scalars;
  for (size_t g = 0; g < groups_.size(); ++g) {
    AppendScalars(groups_[g], rates[g], static_cast<double>(step_ + 1), &scalars);
  }
  WEFT_RETURN_IF_ERROR(engine_->Update(operands, scalars, targets, location, RuleOf(std::move(updated))));
  ++step_;
  return absl::OkStatus();
}

}  // namespace weft::lazy
