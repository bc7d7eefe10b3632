// Gradients and optimizers: parameters, groups and options that fit each other, or do not.
#include "tests/fuzz/abi_fuzz/fuzz.h"

namespace weft::fuzz {
namespace {

template <typename Options, typename Create>
void CreateOptimizer(Fuzz& f, Create create, Options* options) {
  weft_context* const ctx = f.Handle<weft_context>(false);
  size_t count = 0;
  weft_tensor* const* params = f.Handles<weft_tensor>(&count);
  weft_tensor* own[2];
  if (f.OneIn(2)) {
    own[0] = f.MakeTensor(WEFT_F32, {2, 3}), own[1] = f.MakeTensor(WEFT_F32, {3});
    params = own, count = 2;
  }
  weft_optimizer** const out = f.Out<weft_optimizer*>(false);
  f.Enter();
  if (f.Leave(create(ctx, params, count, options, out))) f.Keep(out);
}

weft_adam_options* AdamOptions(Fuzz& f) {
  auto* const options = f.Options<weft_adam_options>();
  if (options != nullptr && f.OneIn(2)) options->beta1 = f.Real(), options->beta2 = f.Real(), options->epsilon = f.Real();
  return options;
}

// One struct a group, all of one size; some say numbers of their own.
template <typename Options>
Options* Groups(Fuzz& f, size_t count) {
  auto* const groups = static_cast<Options*>(f.Block(count * sizeof(Options)));
  for (size_t i = 0; i < count; ++i) {
    groups[i] = Options{};
    groups[i].struct_size = f.Wrong() && i > 0 ? sizeof(Options) + 8 * i : sizeof(Options);
    if (f.OneIn(2)) groups[i].weight_decay = f.Real();
  }
  return f.Wrong() && f.OneIn(3) ? nullptr : groups;
}

template <typename Options, typename Create>
void CreateGroups(Fuzz& f, Create create) {
  weft_context* const ctx = f.Handle<weft_context>(false);
  constexpr size_t kCount = 2;
  weft_tensor* const params[kCount] = {f.MakeTensor(WEFT_F32, {2, 3}),
                                       f.OneIn(3) ? f.Handle<weft_tensor>(true) : f.MakeTensor(WEFT_F32, {3})};
  const size_t group_count = 1 + f.Roll(3);
  const Options* const groups = Groups<Options>(f, group_count);
  auto* group_of = static_cast<int32_t*>(f.Block(kCount * sizeof(int32_t)));
  for (size_t i = 0; i < kCount; ++i) {
    group_of[i] = f.Wrong() ? static_cast<int32_t>(f.Integer()) : static_cast<int32_t>(f.Roll(group_count));
  }
  if (f.Wrong()) group_of = nullptr;
  weft_optimizer** const out = f.Out<weft_optimizer*>(false);
  f.Enter();
  if (f.Leave(create(ctx, params, group_of, kCount, groups, f.Wrong() ? 0 : group_count, out))) f.Keep(out);
}

}  // namespace

void Call_weft_grad(Fuzz& f) {
  weft_context* const ctx = f.Handle<weft_context>(false);
  weft_tensor* x = f.MakeTensor(WEFT_F32, {2, 3});
  weft_tensor *y = nullptr, *sum = nullptr;
  static_cast<void>(f.Helped(weft_tensor_require_grad(x, 1)));
  size_t count = 1;
  weft_tensor* const* xs = &x;
  if (f.Helped(weft_square(f.Context(), x, &y)) && f.Helped(weft_sum(f.Context(), y, nullptr, &sum))) {
  }
  weft_tensor* of = f.Wrong() ? f.Handle<weft_tensor>(false) : sum;
  weft_tensor* const cotangent = f.Wrong() || f.OneIn(8) ? f.Handle<weft_tensor>(true) : nullptr;
  if (f.OneIn(4)) of = f.Handle<weft_tensor>(false);  // whatever was recorded with what requires gradients
  if (f.OneIn(4)) xs = f.Handles<weft_tensor>(&count);
  weft_tensor** out = static_cast<weft_tensor**>(f.Block(3 * sizeof(weft_tensor*)));
  if (f.Wrong()) out = nullptr;
  f.Enter();
  if (f.Leave(weft_grad(ctx, of, cotangent, xs, count, out))) {
    for (size_t i = 0; i < count; ++i) f.KeepHandle(Kind::kTensor, out[i]);
  }
  weft_tensor_release(y);
  weft_tensor_release(sum);
}

void Call_weft_sgd_create(Fuzz& f) {
  auto* const options = f.Options<weft_sgd_options>();
  if (options != nullptr && f.OneIn(2)) options->momentum = f.Real(), options->nesterov = static_cast<int32_t>(f.Integer());
  CreateOptimizer(f, weft_sgd_create, options);
}
void Call_weft_adam_create(Fuzz& f) { CreateOptimizer(f, weft_adam_create, AdamOptions(f)); }
void Call_weft_adamw_create(Fuzz& f) { CreateOptimizer(f, weft_adamw_create, AdamOptions(f)); }

void Call_weft_optimizer_step(Fuzz& f) {
  auto* const optimizer = f.Handle<weft_optimizer>(false);
  size_t count = 2;
  weft_tensor* const own[2] = {f.MakeTensor(WEFT_F32, {2, 3}), f.MakeTensor(WEFT_F32, {3})};
  weft_tensor* const* grads = own;
  if (f.Wrong() || f.OneIn(4)) grads = f.Handles<weft_tensor>(&count);
  const double lr = f.Real();
  f.Enter();
  f.Leave(weft_optimizer_step(optimizer, grads, count, lr));
}

void Call_weft_optimizer_create(Fuzz& f) {
  static constexpr const char* kNames[] = {"sgd",     "adam",     "adamw", "adamax", "nadam", "radam", "rmsprop", "adagrad",
                                           "adadelta", "lion",     "rprop", "asgd",   "lamb",  "adafactor", "muon", "sdg"};
  static constexpr const char* kSettings[] = {"momentum", "weight_decay", "beta1", "epsilon", "maximize", "amsgrad", "clip"};
  weft_context* const ctx = f.Handle<weft_context>(false);
  constexpr size_t kCount = 2, kSettingCount = 3;
  weft_tensor* const params[kCount] = {f.MakeTensor(WEFT_F32, {2, 3}), f.MakeTensor(WEFT_F32, {3, 2})};
  auto* const settings = static_cast<weft_optimizer_setting*>(f.Block(kSettingCount * sizeof(weft_optimizer_setting)));
  for (size_t i = 0; i < kSettingCount; ++i) {
    settings[i] = {kSettings[f.Roll(7)], WEFT_STRLEN, f.OneIn(2) ? 0.5 : f.Real(), static_cast<int32_t>(f.Roll(3)) - 1, 0};
    if (f.Wrong()) settings[i].group = static_cast<int32_t>(f.Integer());
  }
  auto* const group_of = static_cast<int32_t*>(f.Block(kCount * sizeof(int32_t)));
  for (size_t i = 0; i < kCount; ++i) group_of[i] = f.Wrong() ? static_cast<int32_t>(f.Integer()) : static_cast<int32_t>(f.Roll(2));
  auto* const options = f.Options<weft_optimizer_options>();
  if (options != nullptr) {
    options->settings = f.Wrong() ? nullptr : settings;
    options->setting_count = f.OneIn(2) ? static_cast<size_t>(f.Roll(4)) : 0;
    options->group_of = f.OneIn(2) ? group_of : nullptr;
    options->group_of_count = f.Wrong() ? 1 : kCount;
    options->group_count = static_cast<size_t>(f.Roll(3));
    options->job = nullptr;
    if (f.Wrong()) options->shard_state = static_cast<int32_t>(f.Integer());
  }
  const char* const name = kNames[f.Roll(16)];
  weft_optimizer** const out = f.Out<weft_optimizer*>(false);
  f.Enter();
  if (f.Leave(weft_optimizer_create(ctx, name, WEFT_STRLEN, params, kCount, options, out))) f.Keep(out);
}

void Call_weft_sgd_create_groups(Fuzz& f) { CreateGroups<weft_sgd_options>(f, weft_sgd_create_groups); }
void Call_weft_adam_create_groups(Fuzz& f) { CreateGroups<weft_adam_options>(f, weft_adam_create_groups); }
void Call_weft_adamw_create_groups(Fuzz& f) { CreateGroups<weft_adam_options>(f, weft_adamw_create_groups); }

void Call_weft_optimizer_step_groups(Fuzz& f) {
  auto* const optimizer = f.Handle<weft_optimizer>(false);
  weft_tensor* const grads[2] = {f.MakeTensor(WEFT_F32, {2, 3}), f.OneIn(4) ? nullptr : f.MakeTensor(WEFT_F32, {3})};
  double rates[4];
  for (double& rate : rates) rate = f.OneIn(4) ? f.Real() : 0.1;
  const size_t group_count = f.Roll(5);
  f.Enter();
  f.Leave(weft_optimizer_step_groups(optimizer, grads, 2, f.Wrong() ? nullptr : rates, group_count));
}

void Call_weft_optimizer_step_if_finite(Fuzz& f) {
  auto* const optimizer = f.Handle<weft_optimizer>(false);
  weft_tensor* const grads[2] = {f.MakeTensor(WEFT_F32, {2, 3}), f.OneIn(4) ? nullptr : f.MakeTensor(WEFT_F32, {3})};
  weft_tensor* const found = f.OneIn(4) ? f.Handle<weft_tensor>(true) : f.MakeTensor(WEFT_F32, {});
  double rates[4];
  for (double& rate : rates) rate = f.OneIn(4) ? f.Real() : 0.1;
  const size_t group_count = f.Roll(5);
  f.Enter();
  f.Leave(weft_optimizer_step_if_finite(optimizer, grads, 2, f.Wrong() ? nullptr : rates, group_count, found));
}

void Call_weft_optimizer_step_clipped(Fuzz& f) {
  auto* const optimizer = f.Handle<weft_optimizer>(false);
  weft_tensor* const grads[2] = {f.MakeTensor(WEFT_F32, {2, 3}), f.OneIn(4) ? nullptr : f.MakeTensor(WEFT_F32, {3})};
  weft_tensor* const found = f.OneIn(2) ? f.Handle<weft_tensor>(true) : f.MakeTensor(WEFT_F32, {});
  double rates[4];
  for (double& rate : rates) rate = f.OneIn(4) ? f.Real() : 0.1;
  const size_t group_count = f.Roll(5);
  const double most = f.OneIn(4) ? f.Real() : 1;
  weft_tensor** const norm = f.Out<weft_tensor*>(true);
  f.Enter();
  if (f.Leave(weft_optimizer_step_clipped(optimizer, grads, 2, f.Wrong() ? nullptr : rates, group_count, found, most, norm)))
    f.Keep(norm);
}

void Call_weft_clip_by_global_norm(Fuzz& f) {
  weft_context* const ctx = f.Handle<weft_context>(false);
  constexpr size_t kCount = 3;
  weft_tensor* const grads[kCount] = {f.MakeTensor(WEFT_F32, {2, 3}), f.OneIn(3) ? f.Handle<weft_tensor>(true) : nullptr,
                                      f.MakeTensor(f.OneIn(2) ? WEFT_BF16 : WEFT_C64, {3})};
  auto** out = static_cast<weft_tensor**>(f.Block(kCount * sizeof(weft_tensor*)));
  if (f.Wrong()) out = nullptr;
  weft_tensor** const norm = f.Out<weft_tensor*>(true);
  const double most = f.OneIn(4) ? f.Real() : 1;
  f.Enter();
  if (!f.Leave(weft_clip_by_global_norm(ctx, grads, kCount, most, out, norm))) return;
  for (size_t i = 0; i < kCount; ++i) {
    if (out[i] != nullptr) f.KeepHandle(Kind::kTensor, out[i]);
  }
  f.Keep(norm);
}

void Call_weft_optimizer_load(Fuzz& f) {
  auto* const optimizer = f.Handle<weft_optimizer>(false);
  auto* tree = f.Handle<weft_tree>(false);
  weft_tree* own = nullptr;
  if (f.OneIn(2) && f.Helped(weft_optimizer_state(optimizer, &own))) tree = own;
  const uint32_t node = f.Wrong() ? static_cast<uint32_t>(f.Integer()) : WEFT_TREE_ROOT;
  f.Enter();
  f.Leave(weft_optimizer_load(optimizer, tree, node));
  weft_tree_release(own);
}

}  // namespace weft::fuzz
