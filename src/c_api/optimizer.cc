// weft_optimizer_create by name; weft_sgd_create, weft_adam_create, weft_adamw_create with one group or several; steps.
#include "src/c_api/optimizer_object.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_join.h"
#include "src/c_api/guess.h"
#include "src/c_api/job_parts.h"
#include "src/c_api/job_reduce.h"
#include "src/c_api/options.h"
#include "weft.h"

namespace weft::c_api {

namespace {

using Kind = lazy::OptimizerOptions::Kind;

absl::Status InRange(std::string_view name, double value, double low, double high) {
  if (std::isfinite(value) && value >= low && value < high) return absl::OkStatus();
  return UserError(name, " is ", value, "; it must be in [", low, ", ", high, ")");
}

struct Parameters {
  Pin<Context> context;
  TensorList list;
  size_t count;
};

absl::StatusOr<Parameters> ParametersOf(weft_context* ctx, weft_tensor* const* params, size_t count) {
  WEFT_ASSIGN_OR_RETURN(Pin<Context> context, Get(ctx, "ctx"));
  WEFT_RETURN_IF_ERROR(context->Usable());
  if (count == 0) return UserError("an optimizer needs at least one parameter");
  TensorList list;
  WEFT_RETURN_IF_ERROR(GetTensors(params, count, "params", &list));
  for (size_t i = 0; i < count; ++i) WEFT_RETURN_IF_ERROR(SameEngine(list[i], context->engine(), "params", i));
  return Parameters{std::move(context), std::move(list), count};
}

// Over whose processes the mean of the gradients is taken (null: over none), and whether each keeps a part of the state.
struct Over {
  weft_job* job = nullptr;
  int32_t shard_state = 0;
  bool operator==(const Over&) const = default;
};

template <typename Group>
absl::Status Create(const Parameters& parameters, std::span<const Group> groups, std::span<const int32_t> group_of,
                    const Over& over, weft_optimizer** out) {
  WEFT_NOT_NULL(out);
  lazy::Engine& engine = parameters.context->engine();
  if (over.shard_state != 0 && over.shard_state != 1) {
    return UserError("shard_state is ", over.shard_state, "; it is 0 or 1");
  }
  if (over.job == nullptr && over.shard_state != 0) {
    return UserError("shard_state needs a job, whose processes each keep a part of the state");
  }
  Pin<JobObject> object;
  lazy::Optimizer::Parts parts;
  if (over.job != nullptr) {
    WEFT_ASSIGN_OR_RETURN(object, Get(over.job, "job"));
    if (over.shard_state != 0) parts = PartsOver(object.Share(), engine.options().custom);
  }
  WEFT_ASSIGN_OR_RETURN(Ref<lazy::Optimizer> made,
                        lazy::Optimizer::Create(engine, parameters.list, groups, group_of, std::move(parts)));
  if (over.job != nullptr) {
    made->set_reduce([job = object.Share()](std::span<lazy::Tensor* const> gradients, ir::Location location) {
      return ReduceOver(*job, gradients, {.mean = true}, location);
    });
  }
  WEFT_ASSIGN_OR_RETURN(*out, Make<weft_optimizer>(std::move(made)));
  return absl::OkStatus();
}

// An options struct, read.
struct Said {
  lazy::OptimizerOptions rule;
  Over over;
};

absl::StatusOr<Said> Read(const weft_sgd_options* options, Kind kind) {
  weft_sgd_options o;
  WEFT_RETURN_IF_ERROR(ReadOptions(options, sizeof(o), "weft_sgd_options", &o));
  WEFT_RETURN_IF_ERROR(InRange("weft_sgd_options.momentum", o.momentum, 0, HUGE_VAL));
  WEFT_RETURN_IF_ERROR(InRange("weft_sgd_options.weight_decay", o.weight_decay, 0, HUGE_VAL));
  if (o.nesterov != 0 && o.momentum == 0) return UserError("weft_sgd_options: nesterov needs a momentum above 0");
  return Said{{.kind = kind, .momentum = o.momentum, .nesterov = o.nesterov != 0, .weight_decay = o.weight_decay},
              {o.job, o.shard_state}};
}

absl::StatusOr<Said> Read(const weft_adam_options* options, Kind kind) {
  weft_adam_options o;
  WEFT_RETURN_IF_ERROR(ReadOptions(options, sizeof(o), "weft_adam_options", &o));
  lazy::OptimizerOptions made{.kind = kind};
  constexpr uint64_t kAll =
      WEFT_ADAM_HAS_BETA1 | WEFT_ADAM_HAS_BETA2 | WEFT_ADAM_HAS_EPSILON | WEFT_ADAM_HAS_WEIGHT_DECAY;
  WEFT_RETURN_IF_ERROR(CheckPresent("weft_adam_options", o.present, kAll));
  const auto value = [&](uint64_t bit, double given, double usual) {
    return (o.present & bit) != 0 ? given : given == 0 ? usual : given;
  };
  const auto none_below_0 = [&](uint64_t bit, double given, double usual) {
    return (o.present & bit) == 0 && given < 0 ? 0 : value(bit, given, usual);
  };
  made.beta1 = none_below_0(WEFT_ADAM_HAS_BETA1, o.beta1, 0.9);
  made.beta2 = none_below_0(WEFT_ADAM_HAS_BETA2, o.beta2, 0.999);
  made.epsilon = value(WEFT_ADAM_HAS_EPSILON, o.epsilon, 1e-8);
  made.weight_decay = none_below_0(WEFT_ADAM_HAS_WEIGHT_DECAY, o.weight_decay, kind == Kind::kAdamW ? 0.01 : 0);
  WEFT_RETURN_IF_ERROR(InRange("weft_adam_options.beta1", made.beta1, 0, 1));
  WEFT_RETURN_IF_ERROR(InRange("weft_adam_options.beta2", made.beta2, 0, 1));
  WEFT_RETURN_IF_ERROR(InRange("weft_adam_options.epsilon", made.epsilon, 0, HUGE_VAL));
  WEFT_RETURN_IF_ERROR(InRange("weft_adam_options.weight_decay", made.weight_decay, 0, HUGE_VAL));
  return Said{made, {o.job, o.shard_state}};
}

template <typename Options>
absl::Status CreateOne(weft_context* ctx, weft_tensor* const* params, size_t count, const Options* options, Kind kind,
                       weft_optimizer** out) {
  WEFT_ASSIGN_OR_RETURN(const Parameters parameters, ParametersOf(ctx, params, count));
  WEFT_ASSIGN_OR_RETURN(const Said said, Read(options, kind));
  return Create(parameters, std::span(&said.rule, 1), {}, said.over, out);
}

constexpr size_t kMostGroups = 1 << 16;

// The settings of each group. Structs of one size follow one another: an older caller's are shorter than this version's.
template <typename Options>
absl::StatusOr<std::vector<lazy::OptimizerOptions>> ReadGroups(const Options* groups, size_t group_count, Kind kind,
                                                               Over* over) {
  if (group_count == 0) return UserError("group_count is 0; an optimizer needs at least one group");
  WEFT_RETURN_IF_ERROR(CheckedLength("group_count", group_count, kMostGroups));
  size_t size;
  std::memcpy(&size, groups, sizeof(size));
  std::vector<lazy::OptimizerOptions> made;
  for (size_t i = 0; i < group_count; ++i) {
    const char* const at = reinterpret_cast<const char*>(groups) + i * size;
    size_t own;
    std::memcpy(&own, at, sizeof(own));
    if (own != size) {
      return UserError("groups[", i, "].struct_size is ", own, ", that of groups[0] ", size, "; all are of one size");
    }
    const absl::StatusOr<Said> read = Read(reinterpret_cast<const Options*>(at), kind);
    if (!read.ok()) return WithText(read.status(), absl::StrCat("groups[", i, "]: ", read.status().message()));
    if (i == 0) *over = read->over;
    if (read->over.job != over->job) return UserError("groups[", i, "].job is another than that of groups[0]");
    if (!(read->over == *over)) return UserError("groups[", i, "].shard_state is another than that of groups[0]");
    made.push_back(read->rule);
  }
  return made;
}

absl::Status CheckGroupOf(std::span<const int32_t> group_of, size_t group_count) {
  for (size_t i = 0; i < group_of.size(); ++i) {
    if (group_of[i] >= 0 && static_cast<size_t>(group_of[i]) < group_count) continue;
    return UserError("group_of[", i, "] is ", group_of[i], "; it must be in [0, ", group_count, ")");
  }
  return absl::OkStatus();
}

// The groups that a caller names: of each parameter its group, and the groups' options.
template <typename Options>
struct Groups {
  const int32_t* of;
  const Options* options;
  size_t count;
};

// The body of every weft_*_create_groups.
template <typename Options>
absl::Status CreateGroups(Kind kind, weft_context* ctx, weft_tensor* const* params, size_t count,
                          const Groups<Options>& said, weft_optimizer** out) {
  WEFT_ASSIGN_OR_RETURN(const Parameters parameters, ParametersOf(ctx, params, count));
  const auto [group_of, groups, group_count] = said;
  WEFT_NOT_NULL(group_of);
  WEFT_NOT_NULL(groups);
  Over over;
  WEFT_ASSIGN_OR_RETURN(const std::vector<lazy::OptimizerOptions> made, ReadGroups(groups, group_count, kind, &over));
  WEFT_RETURN_IF_ERROR(CheckGroupOf({group_of, count}, group_count));
  return Create(parameters, std::span(made), {group_of, count}, over, out);
}

absl::StatusOr<const lazy::OptimizerRule*> RuleNamed(std::string_view name) {
  if (const lazy::OptimizerRule* rule = lazy::FindOptimizerRule(name); rule != nullptr) return rule;
  std::vector<std::string_view> names;
  for (const lazy::OptimizerRule& rule : lazy::OptimizerRules()) names.push_back(rule.name);
  return UserErrorOf(absl::StatusCode::kNotFound, "there is no optimizer '", name, "'", DidYouMean(name, names),
                     "there are ", absl::StrJoin(names, ", "));
}

// Puts one setting into its group, or into all of them.
absl::Status Set(const weft_optimizer_setting& said, size_t i, std::span<lazy::OptimizerGroup> groups) {
  WEFT_ASSIGN_OR_RETURN(const std::string_view name,
                        Text(said.name, said.name_length, absl::StrCat("settings[", i, "].name")));
  if (said.group < -1 || (said.group >= 0 && static_cast<size_t>(said.group) >= groups.size())) {
    return UserError("settings[", i, "].group is ", said.group, "; it must be -1, for all groups, or in [0, ",
                     groups.size(), ")");
  }
  const lazy::OptimizerRule& rule = *groups[0].rule;
  std::vector<std::string_view> names;
  for (const lazy::OptimizerSetting& setting : rule.settings) names.push_back(setting.name);
  const auto at = static_cast<size_t>(std::ranges::find(names, name) - names.begin());
  if (at == names.size()) {
    return UserErrorOf(absl::StatusCode::kNotFound, "settings[", i, "]: ", rule.name, " has no setting '", name, "'",
                       DidYouMean(name, names), "there are ", absl::StrJoin(names, ", "));
  }
  for (size_t g = 0; g < groups.size(); ++g) {
    if (said.group == -1 || static_cast<size_t>(said.group) == g) groups[g].values[at] = said.value;
  }
  return absl::OkStatus();
}

// The body of weft_optimizer_create.
absl::Status CreateNamed(const Parameters& parameters, std::string_view name, const weft_optimizer_options* options,
                         weft_optimizer** out) {
  weft_optimizer_options o;
  WEFT_RETURN_IF_ERROR(ReadOptions(options, sizeof(o), "weft_optimizer_options", &o));
  WEFT_ASSIGN_OR_RETURN(const lazy::OptimizerRule* const rule, RuleNamed(name));
  const size_t count = parameters.count, group_count = std::max<size_t>(o.group_count, 1);
  WEFT_RETURN_IF_ERROR(CheckedLength("group_count", group_count, kMostGroups));
  if (o.group_of == nullptr && group_count > 1)
    return UserError("group_of is null and there are ", group_count, " groups");
  if (o.group_of != nullptr && o.group_of_count != count) {
    return UserError("group_of_count is ", o.group_of_count, " for ", count, " parameters");
  }
  const std::span<const int32_t> group_of(o.group_of, o.group_of == nullptr ? 0 : count);
  WEFT_RETURN_IF_ERROR(CheckGroupOf(group_of, group_count));
  if (o.setting_count != 0) WEFT_NOT_NULL(o.settings);
  WEFT_RETURN_IF_ERROR(CheckedLength("setting_count", o.setting_count, kMostGroups * 16));
  std::vector<lazy::OptimizerGroup> groups(group_count, lazy::UsualGroup(*rule));
  for (size_t i = 0; i < o.setting_count; ++i) WEFT_RETURN_IF_ERROR(Set(o.settings[i], i, groups));
  for (size_t g = 0; g < group_count; ++g) {
    const absl::Status fits = lazy::CheckGroup(groups[g]);
    if (fits.ok()) continue;
    return UserError(rule->name, group_count > 1 ? absl::StrCat(", group ", g) : std::string(), ": ", fits.message());
  }
  return Create(parameters, std::span<const lazy::OptimizerGroup>(groups), group_of, {o.job, o.shard_state}, out);
}

absl::Status Step(lazy::Optimizer& object, weft_tensor* const* grads, size_t count, std::span<const double> rates,
                  lazy::Tensor* found = nullptr, lazy::Optimizer::Clip* clip = nullptr) {
  const FloatScope floats;  // constants of the step are computed here
  if (count != object.parameters().size()) {
    return UserError(count, " gradients for ", object.parameters().size(), " parameters");
  }
  WEFT_NOT_NULL(grads);
  TensorList list;
  list.Reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const Pin<lazy::Tensor> grad = Find(grads[i]);
    if (!grad && grads[i] != nullptr) return NoTensor(grads[i], absl::StrCat("grads[", i, "]"));
    list.Add(grad.Share());
    if (!grad) continue;
    WEFT_RETURN_IF_ERROR(SameEngine(list[i], object.parameters()[i]->engine(), "grads", i));
  }
  const std::span<lazy::Tensor* const> all = list;
  if (clip != nullptr && std::ranges::count(all, nullptr) == std::ssize(all)) {
    return UserError("there is no gradient: every grads[i] is NULL");
  }
  const lazy::Optimizer::Turn turn(object);
  if (!turn) return Taken();
  return object.Step(list, rates, CurrentLocation(object.engine()), found, clip);
}

absl::Status CheckRates(const lazy::Optimizer& object, const double* lrs, size_t group_count) {
  WEFT_NOT_NULL(lrs);
  if (group_count != object.group_count()) {
    return UserError(group_count, " learning rates for ", object.group_count(), " groups");
  }
  for (size_t i = 0; i < group_count; ++i) {
    if (!std::isfinite(lrs[i])) return UserError("lrs[", i, "] is ", lrs[i], "; it must be finite");
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace weft::c_api

using namespace weft;
using namespace weft::c_api;

extern "C" {

weft_error* weft_sgd_create(weft_context* ctx, weft_tensor* const* params, size_t count,
                            const weft_sgd_options* options, weft_optimizer** out) noexcept {
  return Guard([&] { return CreateOne(ctx, params, count, options, Kind::kSgd, out); });
}
weft_error* weft_adam_create(weft_context* ctx, weft_tensor* const* params, size_t count,
                             const weft_adam_options* options, weft_optimizer** out) noexcept {
  return Guard([&] { return CreateOne(ctx, params, count, options, Kind::kAdam, out); });
}
weft_error* weft_adamw_create(weft_context* ctx, weft_tensor* const* params, size_t count,
                              const weft_adam_options* options, weft_optimizer** out) noexcept {
  return Guard([&] { return CreateOne(ctx, params, count, options, Kind::kAdamW, out); });
}

weft_error* weft_optimizer_create(weft_context* ctx, const char* name, size_t name_length, weft_tensor* const* params,
                                  size_t count, const weft_optimizer_options* options, weft_optimizer** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(const Parameters parameters, ParametersOf(ctx, params, count));
    WEFT_ASSIGN_OR_RETURN(const std::string_view rule, Text(name, name_length, "name"));
    return CreateNamed(parameters, rule, options, out);
  });
}

weft_error* weft_sgd_create_groups(weft_context* ctx, weft_tensor* const* params, const int32_t* group_of, size_t count,
                                   const weft_sgd_options* groups, size_t group_count, weft_optimizer** out) noexcept {
  return Guard(
      [&] { return CreateGroups(Kind::kSgd, ctx, params, count, Groups{group_of, groups, group_count}, out); });
}
weft_error* weft_adam_create_groups(weft_context* ctx, weft_tensor* const* params, const int32_t* group_of,
                                    size_t count, const weft_adam_options* groups, size_t group_count,
                                    weft_optimizer** out) noexcept {
  return Guard(
      [&] { return CreateGroups(Kind::kAdam, ctx, params, count, Groups{group_of, groups, group_count}, out); });
}
weft_error* weft_adamw_create_groups(weft_context* ctx, weft_tensor* const* params, const int32_t* group_of,
                                     size_t count, const weft_adam_options* groups, size_t group_count,
                                     weft_optimizer** out) noexcept {
  return Guard(
      [&] { return CreateGroups(Kind::kAdamW, ctx, params, count, Groups{group_of, groups, group_count}, out); });
}

weft_error* weft_optimizer_step(weft_optimizer* optimizer, weft_tensor* const* grads, size_t count,
                                double lr) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(Pin<lazy::Optimizer> object, Get(optimizer, "optimizer"));
    if (!std::isfinite(lr)) return UserError("lr is ", lr, "; it must be finite");
    const absl::InlinedVector<double, 8> rates(object->group_count(), lr);
    return Step(*object, grads, count, rates);
  });
}

weft_error* weft_optimizer_step_groups(weft_optimizer* optimizer, weft_tensor* const* grads, size_t count,
                                       const double* lrs, size_t group_count) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(Pin<lazy::Optimizer> object, Get(optimizer, "optimizer"));
    WEFT_RETURN_IF_ERROR(CheckRates(*object, lrs, group_count));
    return Step(*object, grads, count, {lrs, group_count});
  });
}

weft_error* weft_optimizer_step_if_finite(weft_optimizer* optimizer, weft_tensor* const* grads, size_t count,
                                          const double* lrs, size_t group_count, weft_tensor* found) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(Pin<lazy::Optimizer> object, Get(optimizer, "optimizer"));
    WEFT_RETURN_IF_ERROR(CheckRates(*object, lrs, group_count));
    WEFT_ASSIGN_OR_RETURN(const Pin<lazy::Tensor> flag, GetTensor(found, "found"));
    if (&flag->engine() != &object->engine()) return UserError("found belongs to another context");
    return Step(*object, grads, count, {lrs, group_count}, flag.get());
  });
}

weft_error* weft_optimizer_step_clipped(weft_optimizer* optimizer, weft_tensor* const* grads, size_t count,
                                        const double* lrs, size_t group_count, weft_tensor* found, double max_norm,
                                        weft_tensor** out_norm) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(Pin<lazy::Optimizer> object, Get(optimizer, "optimizer"));
    WEFT_RETURN_IF_ERROR(CheckRates(*object, lrs, group_count));
    if (!(max_norm >= 0)) return UserError("max_norm is ", max_norm, "; it must be 0 or more");
    Pin<lazy::Tensor> flag;
    if (found != nullptr) {
      WEFT_ASSIGN_OR_RETURN(flag, GetTensor(found, "found"));
      if (&flag->engine() != &object->engine()) return UserError("found belongs to another context");
    }
    lazy::Optimizer::Clip clip = {.max_norm = max_norm, .norm = nullptr};
    WEFT_RETURN_IF_ERROR(Step(*object, grads, count, {lrs, group_count}, flag.get(), &clip));
    return out_norm == nullptr ? absl::OkStatus() : MakeTensor(std::move(clip.norm), out_norm);
  });
}

void weft_optimizer_retain(weft_optimizer* optimizer) noexcept { RetainHandle(optimizer, HandleType::kOptimizer); }
void weft_optimizer_release(weft_optimizer* optimizer) noexcept { ReleaseHandle(optimizer, HandleType::kOptimizer); }

}  // extern "C"
