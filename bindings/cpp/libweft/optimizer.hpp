/* Optimizers of libweft.hpp: SGD, Adam and AdamW, whose state can be saved. */
#ifndef LIBWEFT_OPTIMIZER_HPP
#define LIBWEFT_OPTIMIZER_HPP

#include <span>
#include <type_traits>
#include <vector>

#include "checkpoint.hpp"
#include "job.hpp"
#include "reader.hpp"

namespace weft {
#if defined(__cpp_exceptions)
inline namespace throwing {
#else
inline namespace returning {
#endif

/* Options of sgd. */
struct sgd_options {
  double momentum = 0;
  double weight_decay = 0; /* added to the gradient */
  bool nesterov = false;
  weft::job job = {};       /* each step takes the mean of the gradients of all its processes first */
  bool shard_state = false; /* with a job: each process keeps its part of the state */
};
/* Options of adam and adamw; what is not given is the usual value. */
struct adam_options {
  maybe<double> beta1 = {};        /* 0.9 */
  maybe<double> beta2 = {};        /* 0.999 */
  maybe<double> epsilon = {};      /* 1e-8 */
  maybe<double> weight_decay = {}; /* adam: added to the gradient, 0; adamw: p -= rate * weight_decay * p, 0.01 */
  weft::job job = {};              /* each step takes the mean of the gradients of all its processes first */
  bool shard_state = false;        /* with a job: each process keeps its part of the state */
};

/* Parameters with settings of their own, for sgd, adam and adamw of several groups:
 *   const weft::adam_group groups[] = {{matrices, {.weight_decay = 0.1}}, {biases, {.weight_decay = 0.0}}};
 *   const weft::optimizer adamw = weft::adamw(groups);
 * The optimizer's parameters are those of the first group, then those of the second, and so on. */
struct sgd_group {
  std::vector<tensor> parameters;
  sgd_options options = {};
};
struct adam_group {
  std::vector<tensor> parameters;
  adam_options options = {};
};

/* An update rule and its state. It keeps the parameters alive. One thread at a time. Since 1.2. */
class optimizer : public detail::handle<weft_optimizer, weft_optimizer_retain, weft_optimizer_release> {
 public:
  optimizer() noexcept = default;
  /* Takes over a C optimizer with its reference. Since 1.2. */
  [[nodiscard]] static optimizer adopt(weft_context* ctx, weft_optimizer* raw) noexcept { return optimizer(ctx, raw); }

  [[nodiscard]] result<void> try_step(const tensor_refs& gradients, double rate) const {
    return result<void>(weft_optimizer_step(get(), gradients.data(), gradients.size(), rate));
  }
  /* Records one update of every parameter and assigns it; an empty gradient leaves its parameter alone. The rate is
   * a run-time argument: a schedule compiles nothing. Errors: invalid_argument. Since 1.2. */
  void step(const tensor_refs& gradients, double rate) const { detail::must(try_step(gradients, rate)); }
  [[nodiscard]] result<void> try_step(const tensor_refs& gradients, std::span<const double> rates) const {
    return result<void>(
        weft_optimizer_step_groups(get(), gradients.data(), gradients.size(), rates.data(), rates.size()));
  }
  /* The same with a rate for each group. Since 1.2. */
  void step(const tensor_refs& gradients, std::span<const double> rates) const {
    detail::must(try_step(gradients, rates));
  }
  [[nodiscard]] result<tensor> try_step_clipped(const tensor_refs& gradients, std::span<const double> rates,
                                                double max_norm) const {
    weft_tensor* norm = nullptr;
    weft_error* const raw = weft_optimizer_step_clipped(get(), gradients.data(), gradients.size(), rates.data(),
                                                        rates.size(), nullptr, max_norm, &norm);
    return detail::made(raw, context_, norm);
  }
  /* A step of gradients that are clipped as clip_by_global_norm does, over all processes of the job if there is one; gives
   * their norm before. Since 1.2. */
  [[nodiscard]] tensor step_clipped(const tensor_refs& gradients, std::span<const double> rates,
                                    double max_norm) const {
    return detail::must(try_step_clipped(gradients, rates, max_norm));
  }
  [[nodiscard]] result<tree> try_state() const {
    weft_tree* out = nullptr;
    if (weft_error* raw = weft_optimizer_state(get(), &out)) return result<tree>(raw);
    return tree::adopt(context_, out);
  }
  /* The state as a tree to be saved; shares its tensors. Since 1.2. */
  [[nodiscard]] tree state() const { return detail::must(try_state()); }
  [[nodiscard]] result<tree> try_whole_state() const {
    weft_tree* out = nullptr;
    if (weft_error* raw = weft_optimizer_whole_state(get(), &out)) return result<tree>(raw);
    return tree::adopt(context_, out);
  }
  /* The state with all parts of all processes, each of which calls this. Since 1.2. */
  [[nodiscard]] tree whole_state() const { return detail::must(try_whole_state()); }
  [[nodiscard]] result<void> try_load(const tree_node& at) const {
    return result<void>(weft_optimizer_load(get(), at.tree_.get(), at.number()));
  }
  [[nodiscard]] result<void> try_load_from(const checkpoint_reader& file, std::string_view path) const {
    return result<void>(weft_optimizer_load_from(get(), file.get(), path.data(), path.size()));
  }
  /* Goes on from a state in an open file; of one that is kept in parts, its own alone are read. Since 1.2. */
  void load_from(const checkpoint_reader& file, std::string_view path) const { detail::must(try_load_from(file, path)); }
  /* Goes on from a state that stands at a node: optimizer.load(checkpoint["optimizer"]). Since 1.2. */
  void load(const tree_node& at) const { detail::must(try_load(at)); }

 private:
  optimizer(weft_context* ctx, weft_optimizer* raw) noexcept : handle(raw), context_(ctx) {}
  weft_context* context_ = nullptr;
};

namespace detail {
[[nodiscard]] inline weft_sgd_options options_of(const sgd_options& options) noexcept {
  weft_sgd_options o{};
  o.struct_size = sizeof o;
  o.momentum = options.momentum;
  o.weight_decay = options.weight_decay;
  o.nesterov = options.nesterov ? 1 : 0;
  o.job = options.job.get();
  o.shard_state = options.shard_state ? 1 : 0;
  return o;
}
[[nodiscard]] inline weft_adam_options options_of(const adam_options& options) noexcept {
  weft_adam_options o{};
  o.struct_size = sizeof o;
  const auto set = [&](const maybe<double>& from, double& to, std::uint64_t bit) {
    if (!from) return;
    to = *from;
    o.present |= bit;
  };
  set(options.beta1, o.beta1, WEFT_ADAM_HAS_BETA1);
  set(options.beta2, o.beta2, WEFT_ADAM_HAS_BETA2);
  set(options.epsilon, o.epsilon, WEFT_ADAM_HAS_EPSILON);
  set(options.weight_decay, o.weight_decay, WEFT_ADAM_HAS_WEIGHT_DECAY);
  o.job = options.job.get();
  o.shard_state = options.shard_state ? 1 : 0;
  return o;
}

template <auto Create, class Options>
result<optimizer> optimizer_of(const tensor_refs& parameters, const Options& options) {
  const auto o = options_of(options);
  weft_optimizer* out = nullptr;
  if (weft_error* raw = Create(parameters.context_handle(), parameters.data(), parameters.size(), &o, &out))
    return result<optimizer>(raw);
  return optimizer::adopt(parameters.context_handle(), out);
}
/* A parameter whose type is not deduced, so that lists convert to it, of a template: whoever only includes this header does
 * not pay for the vectors below. */
template <class Group>
using groups_of = std::span<const std::type_identity_t<Group>>;
template <auto Create, class Group>
result<optimizer> optimizer_of_groups(std::span<const Group> groups) {
  std::vector<decltype(options_of(groups.front().options))> options;
  std::vector<tensor> parameters;
  std::vector<std::int32_t> group_of;
  for (const Group& group : groups) {
    parameters.insert(parameters.end(), group.parameters.begin(), group.parameters.end());
    group_of.resize(parameters.size(), static_cast<std::int32_t>(options.size()));
    options.push_back(options_of(group.options));
  }
  const tensor_refs refs(parameters);
  weft_optimizer* out = nullptr;
  if (weft_error* raw = Create(refs.context_handle(), refs.data(), group_of.data(), refs.size(), options.data(),
                               options.size(), &out))
    return result<optimizer>(raw);
  return optimizer::adopt(refs.context_handle(), out);
}
}  // namespace detail

[[nodiscard]] inline result<optimizer> try_sgd(const tensor_refs& parameters, const sgd_options& options = {}) {
  return detail::optimizer_of<weft_sgd_create>(parameters, options);
}
template <class Group = sgd_group>
[[nodiscard]] result<optimizer> try_sgd(detail::groups_of<Group> groups) {
  return detail::optimizer_of_groups<weft_sgd_create_groups, Group>(groups);
}
/* Stochastic gradient descent, with momentum and Nesterov's variant: weft::sgd({w, b}, {.momentum = 0.9}). Since
 * 1.2. */
[[nodiscard]] inline optimizer sgd(const tensor_refs& parameters, const sgd_options& options = {}) {
  return detail::must(try_sgd(parameters, options));
}
/* The same with groups of parameters. Since 1.2. */
template <class Group = sgd_group>
[[nodiscard]] optimizer sgd(detail::groups_of<Group> groups) {
  return detail::must(try_sgd<Group>(groups));
}
[[nodiscard]] inline result<optimizer> try_adam(const tensor_refs& parameters, const adam_options& options = {}) {
  return detail::optimizer_of<weft_adam_create>(parameters, options);
}
/* Adam. Since 1.2. */
[[nodiscard]] inline optimizer adam(const tensor_refs& parameters, const adam_options& options = {}) {
  return detail::must(try_adam(parameters, options));
}
template <class Group = adam_group>
[[nodiscard]] result<optimizer> try_adam(detail::groups_of<Group> groups) {
  return detail::optimizer_of_groups<weft_adam_create_groups, Group>(groups);
}
/* The same with groups of parameters. Since 1.2. */
template <class Group = adam_group>
[[nodiscard]] optimizer adam(detail::groups_of<Group> groups) {
  return detail::must(try_adam<Group>(groups));
}
[[nodiscard]] inline result<optimizer> try_adamw(const tensor_refs& parameters, const adam_options& options = {}) {
  return detail::optimizer_of<weft_adamw_create>(parameters, options);
}
/* Adam with decoupled weight decay. Since 1.2. */
[[nodiscard]] inline optimizer adamw(const tensor_refs& parameters, const adam_options& options = {}) {
  return detail::must(try_adamw(parameters, options));
}
template <class Group = adam_group>
[[nodiscard]] result<optimizer> try_adamw(detail::groups_of<Group> groups) {
  return detail::optimizer_of_groups<weft_adamw_create_groups, Group>(groups);
}
/* The same with groups of parameters. Since 1.2. */
template <class Group = adam_group>
[[nodiscard]] optimizer adamw(detail::groups_of<Group> groups) {
  return detail::must(try_adamw<Group>(groups));
}

enum class schedule_kind : std::uint32_t { constant, linear, cosine, step, exponential, one_cycle };

/* A learning rate over the steps of a training, by weft_schedule_rate, whose header says what each kind does:
 *   const weft::schedule rate{.kind = weft::schedule_kind::cosine, .rate = 3e-4, .warmup = 50, .steps = 1000};
 *   adamw.step(gradients, rate(step));
 * Since 1.2. */
struct schedule {
  schedule_kind kind = schedule_kind::constant;
  double rate = 0;            /* the highest */
  std::int64_t warmup = 0;    /* so many steps at first go up in a line; not of one_cycle */
  std::int64_t steps = 0;     /* linear, cosine, one_cycle: how many there are */
  double end = 0;             /* linear, cosine: the last rate */
  std::int64_t every = 0;     /* step: after so many steps the factor comes once more */
  double factor = 0.1;        /* step, exponential */
  double start = 0.3;         /* one_cycle: the share of steps that go up */
  double divide = 25;         /* one_cycle: rate / divide is the first */
  double final_divide = 1e4;  /* one_cycle: rate / divide / final_divide is the last */

  [[nodiscard]] result<double> try_at(std::int64_t at) const {
    weft_schedule_options o{};
    o.struct_size = sizeof o;
    o.kind = static_cast<weft_schedule_kind>(kind);
    o.rate = rate;
    o.warmup = warmup;
    o.steps = steps;
    o.end = end;
    o.every = every;
    o.factor = factor;
    o.start = start;
    o.divide = divide;
    o.final_divide = final_divide;
    double out = 0;
    if (weft_error* raw = weft_schedule_rate(&o, at, &out)) return result<double>(raw);
    return out;
  }
  /* The rate of a step, from 0. Errors: invalid_argument. Since 1.2. */
  [[nodiscard]] double operator()(std::int64_t at) const { return detail::must(try_at(at)); }
};

/* The result of clip_by_global_norm. */
struct clipped_gradients {
  tensors gradients;
  tensor norm; /* before clipping */
};
[[nodiscard]] inline result<clipped_gradients> try_clip_by_global_norm(const tensor_refs& gradients, double max_norm) {
  detail::elements<weft_tensor*> out(gradients.size());
  weft_tensor* norm = nullptr;
  weft_context* const context = gradients.context_handle();
  weft_error* raw =
      weft_clip_by_global_norm(context, gradients.data(), gradients.size(), max_norm, out.data(), &norm);
  auto made = detail::made_tensors(raw, context, out.data(), out.size());
  if (!made) return made.error();
  return clipped_gradients{std::move(*made), tensor::adopt(context, norm)};
}
/* Gradients times one factor, so that all of them together are no longer than max_norm; nothing is read. An empty
 * gradient stays empty. Errors: invalid_argument. Since 1.2. */
[[nodiscard]] inline clipped_gradients clip_by_global_norm(const tensor_refs& gradients, double max_norm) {
  return detail::must(try_clip_by_global_norm(gradients, max_norm));
}

}  // namespace throwing or returning
}  // namespace weft

#endif  // LIBWEFT_OPTIMIZER_HPP
