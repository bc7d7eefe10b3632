/* Groups of parameters beside one optimizer a group, bit by bit, through a saved state; clipping by the norm of all gradients
 * beside the same written out in f64; what cannot be. */
#include "check.h"

enum { kParams = 3, kSteps = 8 };
static const int32_t kGroupOf[kParams] = {0, 1, 0};
typedef enum { kSgd, kAdam, kAdamW } rule;

static weft_tensor* wave(weft_context* ctx, int64_t count, double phase) {
  float host[16];
  weft_tensor* out = NULL;
  int64_t i;
  for (i = 0; i < count; ++i) host[i] = (float)sin(phase + 1.3 * (double)i);
  MUST(weft_tensor_from_host(ctx, NULL, WEFT_F32, &count, 1, host, sizeof(float) * (size_t)count, &out));
  return out;
}

/* The settings of the two groups; the second of SGD has no momentum. */
static void settings(weft_sgd_options sgd[2], weft_adam_options adam[2]) {
  weft_sgd_options_init(&sgd[0], sizeof sgd[0]);
  weft_sgd_options_init(&sgd[1], sizeof sgd[1]);
  weft_adam_options_init(&adam[0], sizeof adam[0]);
  weft_adam_options_init(&adam[1], sizeof adam[1]);
  sgd[0].momentum = 0.9, sgd[0].nesterov = 1, sgd[0].weight_decay = 0.1;
  adam[0].weight_decay = 0.1, adam[0].beta1 = 0.8;
  adam[1].present = WEFT_ADAM_HAS_WEIGHT_DECAY; /* none */
  adam[1].epsilon = 1e-3;
}

static weft_optimizer* grouped(weft_context* ctx, rule kind, weft_tensor* const* params) {
  weft_sgd_options sgd[2];
  weft_adam_options adam[2];
  weft_optimizer* out = NULL;
  settings(sgd, adam);
  if (kind == kSgd) MUST(weft_sgd_create_groups(ctx, params, kGroupOf, kParams, sgd, 2, &out));
  if (kind == kAdam) MUST(weft_adam_create_groups(ctx, params, kGroupOf, kParams, adam, 2, &out));
  if (kind == kAdamW) MUST(weft_adamw_create_groups(ctx, params, kGroupOf, kParams, adam, 2, &out));
  return out;
}
static weft_optimizer* alone(weft_context* ctx, rule kind, weft_tensor* const* params, size_t count, int group) {
  weft_sgd_options sgd[2];
  weft_adam_options adam[2];
  weft_optimizer* out = NULL;
  settings(sgd, adam);
  if (kind == kSgd) MUST(weft_sgd_create(ctx, params, count, &sgd[group], &out));
  if (kind == kAdam) MUST(weft_adam_create(ctx, params, count, &adam[group], &out));
  if (kind == kAdamW) MUST(weft_adamw_create(ctx, params, count, &adam[group], &out));
  return out;
}

/* A gradient is missing at step 3: its parameter and its state stay as they are in both. */
static void groups_are_optimizers_side_by_side(rule kind) {
  static const int64_t kSizes[kParams] = {5, 3, 4};
  weft_context* ctx = new_context();
  weft_tensor *one[kParams], *other[kParams], *first[2], *grads[kParams], *first_grads[2];
  weft_optimizer *groups, *group0, *group1;
  int64_t compiled = 0;
  int t, i, j;
  for (i = 0; i < kParams; ++i) {
    one[i] = wave(ctx, kSizes[i], i);
    other[i] = wave(ctx, kSizes[i], i);
  }
  first[0] = other[0], first[1] = other[2];
  groups = grouped(ctx, kind, one);
  group0 = alone(ctx, kind, first, 2, 0);
  group1 = alone(ctx, kind, &other[1], 1, 1);
  for (t = 0; t < kSteps; ++t) {
    const double rates[2] = {0.05 / (t + 1), 0.02};
    for (i = 0; i < kParams; ++i) grads[i] = t == 3 && i == 2 ? NULL : wave(ctx, kSizes[i], t + 0.1 * i);
    first_grads[0] = grads[0], first_grads[1] = grads[2];
    MUST(weft_optimizer_step_groups(groups, grads, kParams, rates, 2));
    MUST(weft_optimizer_step(group0, first_grads, 2, rates[0]));
    MUST(weft_optimizer_step(group1, &grads[1], 1, rates[1]));
    for (i = 0; i < kParams; ++i) weft_tensor_release(grads[i]);
    MUST(weft_sync(ctx, NULL, NULL));
    if (t == 4) { /* goes on in another one */
      weft_tree* state = NULL;
      MUST(weft_optimizer_state(groups, &state));
      weft_optimizer_release(groups);
      groups = grouped(ctx, kind, one);
      MUST(weft_optimizer_load(groups, state, WEFT_TREE_ROOT));
      weft_tree_release(state);
      MUST(weft_sync(ctx, NULL, NULL));
    }
    if (t == 5) compiled = metric(ctx, "programs_compiled");
  }
  CHECK_EQUAL(metric(ctx, "programs_compiled"), compiled);
  for (i = 0; i < kParams; ++i) {
    float have[16], want[16];
    MUST(weft_tensor_to_host(one[i], have, sizeof(float) * (size_t)kSizes[i]));
    MUST(weft_tensor_to_host(other[i], want, sizeof(float) * (size_t)kSizes[i]));
    for (j = 0; j < kSizes[i]; ++j) CHECK(have[j] == want[j]);
    CHECK(want[0] != (float)sin(i));
    weft_tensor_release(one[i]);
    weft_tensor_release(other[i]);
  }
  weft_optimizer_release(groups);
  weft_optimizer_release(group0);
  weft_optimizer_release(group1);
  weft_context_release(ctx);
}

/* A step that found forbids changes neither parameters nor states, and compiles nothing new. */
static void steps_that_are_left_out(void) {
  weft_context* ctx = new_context();
  weft_tensor *w = ramp(ctx, DIMS(2)), *grad = ramp(ctx, DIMS(2)), *found[2], *flat = ramp(ctx, DIMS(1)), *whole;
  weft_optimizer* adam = NULL;
  const double rates[1] = {0.1};
  float before[2], after[2];
  int64_t compiled = 0;
  int t;
  MUST(weft_tensor_from_f64(ctx, WEFT_F32, 0, &found[0]));
  MUST(weft_tensor_from_f64(ctx, WEFT_F32, 1, &found[1]));
  MUST(weft_tensor_from_i64(ctx, WEFT_I32, 1, &whole));
  MUST(weft_adam_create(ctx, &w, 1, NULL, &adam));
  for (t = 0; t < 6; ++t) {
    MUST(weft_tensor_to_host(w, before, sizeof before));
    OK(weft_optimizer_step_if_finite(adam, &grad, 1, rates, 1, found[t % 3 == 2]));
    MUST(weft_tensor_to_host(w, after, sizeof after));
    CHECK((memcmp(before, after, sizeof after) == 0) == (t % 3 == 2));
    if (t == 2) compiled = metric(ctx, "programs_compiled");
  }
  CHECK_EQUAL(metric(ctx, "programs_compiled"), compiled);
  INVALID(weft_optimizer_step_if_finite(adam, &grad, 1, rates, 1, flat), "weft_optimizer_step_if_finite: optimizer step: found is f32[1]; it must be a float scalar");
  INVALID(weft_optimizer_step_if_finite(adam, &grad, 1, rates, 1, whole), "weft_optimizer_step_if_finite: optimizer step: found is i32[]; it must be a float scalar");
  FAILS_WITH(weft_optimizer_step_if_finite(adam, &grad, 1, rates, 1, NULL), WEFT_INVALID_ARGUMENT, "found");
  INVALID(weft_optimizer_step_if_finite(adam, &grad, 1, rates, 2, found[0]), "weft_optimizer_step_if_finite: 2 learning rates for 1 groups");
  weft_optimizer_release(adam);
  weft_tensor_release(w);
  weft_tensor_release(grad);
  weft_tensor_release(flat);
  weft_tensor_release(whole);
  for (t = 0; t < 2; ++t) weft_tensor_release(found[t]);
  weft_context_release(ctx);
}

static void groups_that_cannot_be(void) {
  weft_context* ctx = new_context();
  weft_tensor *w = ramp(ctx, DIMS(2)), *grad = ramp(ctx, DIMS(2));
  weft_adam_options adam[2] = {WEFT_ADAM_OPTIONS_INIT, WEFT_ADAM_OPTIONS_INIT};
  weft_sgd_options sgd[1] = {WEFT_SGD_OPTIONS_INIT};
  const int32_t second = 1, third = 2, below = -1;
  double rates[2] = {0.1, 0.1};
  weft_optimizer* out = NULL;
  INVALID(weft_adam_create_groups(ctx, &w, &third, 1, adam, 2, &out), "weft_adam_create_groups: group_of[0] is 2; it must be in [0, 2)");
  INVALID(weft_adam_create_groups(ctx, &w, &below, 1, adam, 2, &out), "weft_adam_create_groups: group_of[0] is -1; it must be in [0, 2)");
  INVALID(weft_adam_create_groups(ctx, &w, &second, 1, adam, 0, &out), "weft_adam_create_groups: group_count is 0; an optimizer needs at least one group");
  FAILS_WITH(weft_adam_create_groups(ctx, &w, NULL, 1, adam, 2, &out), WEFT_INVALID_ARGUMENT, "group_of");
  FAILS_WITH(weft_adam_create_groups(ctx, &w, &second, 1, NULL, 2, &out), WEFT_INVALID_ARGUMENT, "groups");
  adam[1].beta2 = 1;
  FAILS_WITH(weft_adam_create_groups(ctx, &w, &second, 1, adam, 2, &out), WEFT_INVALID_ARGUMENT, "groups[1]: weft_adam_options.beta2 is 1; it must be in [0, 1)");
  adam[1].beta2 = 0;
  adam[1].struct_size = 24;
  INVALID(weft_adam_create_groups(ctx, &w, &second, 1, adam, 2, &out), "weft_adam_create_groups: groups[1].struct_size is 24, that of groups[0] 72; all are of one size");
  adam[1].struct_size = sizeof adam[1];
  sgd[0].nesterov = 1;
  FAILS_WITH(weft_sgd_create_groups(ctx, &w, &second, 1, sgd, 1, &out), WEFT_INVALID_ARGUMENT, "groups[0]: weft_sgd_options: nesterov needs a momentum above 0");
  CHECK(out == NULL);
  MUST(weft_adamw_create_groups(ctx, &w, &second, 1, adam, 2, &out));
  INVALID(weft_optimizer_step_groups(out, &grad, 1, rates, 1), "weft_optimizer_step_groups: 1 learning rates for 2 groups");
  INVALID(weft_optimizer_step_groups(out, &grad, 2, rates, 2), "weft_optimizer_step_groups: 2 gradients for 1 parameters");
  rates[1] = NAN;
  INVALID(weft_optimizer_step_groups(out, &grad, 1, rates, 2), "weft_optimizer_step_groups: lrs[1] is nan; it must be finite");
  FAILS_WITH(weft_optimizer_step_groups(out, &grad, 1, NULL, 2), WEFT_INVALID_ARGUMENT, "lrs");
  OK(weft_optimizer_step(out, &grad, 1, 0.1)); /* one rate for all groups */
  weft_optimizer_release(out);
  weft_tensor_release(grad);
  weft_tensor_release(w);
  weft_context_release(ctx);
}

/* Gradients of several types, one of them missing. */
static void clips(double scale, double max_norm, weft_dtype last, double tolerance) {
  enum { kCount = 4, kEach = 3 };
  const weft_dtype types[kCount] = {WEFT_F32, WEFT_BF16, WEFT_C64, last};
  const int64_t dims = kEach;
  weft_context* ctx = new_context();
  weft_tensor *grads[kCount + 1], *out[kCount + 1], *norm = NULL, *as_f64 = NULL;
  double before[kCount][2 * kEach], host[2 * kEach], total = 0, have = 0, factor;
  int i, j, width;
  wf_scope* s = wf_begin(ctx);
  for (i = 0; i < kCount; ++i) {
    weft_tensor *wide = NULL, *back = NULL;
    const int complex = types[i] == WEFT_C64;
    width = complex ? 2 * kEach : kEach;
    for (j = 0; j < width; ++j) host[j] = scale * (0.25 * (j - 1) + i + 0.5);
    MUST(weft_tensor_from_host(ctx, NULL, complex ? WEFT_C128 : WEFT_F64, &dims, 1, host, sizeof(double) * (size_t)width, &wide));
    grads[i] = wf_convert(s, wide, types[i]);
    MUST(weft_convert(ctx, grads[i], complex ? WEFT_C128 : WEFT_F64, &back));
    MUST(weft_tensor_to_host(back, before[i], sizeof(double) * (size_t)width));
    for (j = 0; j < width; ++j) total += before[i][j] / scale * (before[i][j] / scale);
    weft_tensor_release(wide);
    weft_tensor_release(back);
  }
  grads[kCount] = NULL;
  total = sqrt(total) * scale;
  factor = max_norm / (total + 1e-6) < 1 ? max_norm / (total + 1e-6) : 1;
  norm = wf_clip_by_global_norm(s, grads, kCount + 1, max_norm, out);
  CHECK(out[kCount] == NULL);
  MUST(weft_convert(ctx, norm, WEFT_F64, &as_f64));
  MUST(weft_tensor_to_host(as_f64, &have, sizeof have));
  CHECK(fabs(have - total) <= 1e-6 * total);
  weft_tensor_release(as_f64);
  for (i = 0; i < kCount; ++i) {
    weft_dtype type = WEFT_F32;
    weft_tensor* back = NULL;
    width = types[i] == WEFT_C64 ? 2 * kEach : kEach;
    MUST(weft_tensor_dtype(out[i], &type));
    CHECK_EQUAL(type, types[i]);
    MUST(weft_convert(ctx, out[i], types[i] == WEFT_C64 ? WEFT_C128 : WEFT_F64, &back));
    MUST(weft_tensor_to_host(back, host, sizeof(double) * (size_t)width));
    for (j = 0; j < width; ++j) {
      const double want = before[i][j] * factor;
      CHECK(fabs(host[j] - want) <= (types[i] == WEFT_BF16 ? 1.0 / 256 : tolerance) * fabs(want) + 1e-30);
    }
    weft_tensor_release(back);
  }
  OK(wf_end(s));
  weft_context_release(ctx);
}

/* Another limit is another argument of the same program; the norm is inside a body, too; a NaN reaches everything. */
static void clipping_records_and_reads_nothing(void) {
  weft_context* ctx = new_context();
  weft_tensor *w = ramp(ctx, DIMS(4)), *out = NULL, *norm = NULL, *nan = NULL;
  float host[4];
  double most;
  for (most = 0; most < 4; ++most) {
    MUST(weft_clip_by_global_norm(ctx, &w, 1, most, &out, NULL));
    MUST(weft_tensor_to_host(out, host, sizeof host));
    CHECK(fabs(sqrt(host[0] * host[0] + host[1] * host[1] + host[2] * host[2] + host[3] * host[3]) - most) < 1e-5);
    weft_tensor_release(out);
  }
  CHECK_EQUAL(metric(ctx, "programs_compiled"), 1);
  {
    weft_tensor *huge = NULL, *small = NULL;
    MUST(weft_tensor_from_f64(ctx, WEFT_F32, 1e30, &huge)); /* its square is infinite */
    MUST(weft_clip_by_global_norm(ctx, &huge, 1, 1, &small, &norm));
    MUST(weft_tensor_to_host(norm, host, sizeof *host));
    CHECK(isinf(host[0]));
    MUST(weft_tensor_to_host(small, host, sizeof *host));
    CHECK(host[0] == 0);
    weft_tensor_release(huge);
    weft_tensor_release(small);
    weft_tensor_release(norm);
  }
  MUST(weft_tensor_from_f64(ctx, WEFT_F32, NAN, &nan));
  {
    weft_tensor *grads[2], *clipped[2];
    grads[0] = w, grads[1] = nan;
    MUST(weft_clip_by_global_norm(ctx, grads, 2, 1, clipped, &norm));
    MUST(weft_tensor_to_host(clipped[0], host, sizeof host));
    CHECK(isnan(host[1]));
    weft_tensor_release(clipped[0]);
    weft_tensor_release(clipped[1]);
    weft_tensor_release(norm);
  }
  INVALID(weft_clip_by_global_norm(ctx, &w, 1, -1, &out, NULL), "weft_clip_by_global_norm: max_norm is -1; it must be 0 or more");
  INVALID(weft_clip_by_global_norm(ctx, &w, 1, NAN, &out, NULL), "weft_clip_by_global_norm: max_norm is nan; it must be 0 or more");
  INVALID(weft_clip_by_global_norm(ctx, &w, 0, 1, &out, NULL), "weft_clip_by_global_norm: there is no gradient: count is 0");
  FAILS_WITH(weft_clip_by_global_norm(ctx, &w, 1, 1, NULL, NULL), WEFT_INVALID_ARGUMENT, "out_grads");
  {
    weft_tensor* whole = NULL;
    MUST(weft_tensor_from_i64(ctx, WEFT_I32, 3, &whole));
    INVALID(weft_clip_by_global_norm(ctx, &whole, 1, 1, &out, NULL), "weft_clip_by_global_norm: grads[0] is i32[]; it must be a float or complex");
    weft_tensor_release(whole);
  }
  weft_tensor_release(nan);
  weft_tensor_release(w);
  weft_context_release(ctx);
}

int main(void) {
  groups_are_optimizers_side_by_side(kSgd);
  groups_are_optimizers_side_by_side(kAdam);
  groups_are_optimizers_side_by_side(kAdamW);
  steps_that_are_left_out();
  groups_that_cannot_be();
  clips(1, 2, WEFT_F32, 3e-7);
  clips(1, 2, WEFT_F64, 3e-7);
  clips(1, 1000, WEFT_F32, 3e-7);     /* shorter than that */
  clips(1e15, 1, WEFT_F32, 3e-7);
  clips(1, INFINITY, WEFT_F16, 2e-3);
  clipping_records_and_reads_nothing();
  return done("groups");
}
