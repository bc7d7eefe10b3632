/* weft_optimizer_create beside the functions with structs, bit by bit; settings of groups; what cannot be. That the rules are right is
 * tests/python/optimizers_test.py. */
#include "check.h"

enum { kParams = 2, kSize = 4, kSteps = 5 };

static weft_tensor* wave(weft_context* ctx, double phase) {
  const int64_t dims = kSize;
  float host[kSize];
  weft_tensor* out = NULL;
  int i;
  for (i = 0; i < kSize; ++i) host[i] = (float)sin(phase + 1.3 * i);
  MUST(weft_tensor_from_host(ctx, NULL, WEFT_F32, &dims, 1, host, sizeof host, &out));
  return out;
}

static weft_optimizer_setting setting(const char* name, double value, int32_t group) {
  weft_optimizer_setting s;
  s.name = name;
  s.name_length = WEFT_STRLEN;
  s.value = value;
  s.group = group;
  s.reserved = 0;
  return s;
}

/* Steps both with the same gradients, which must give the same bits; one of them goes on in a third one's state. */
static void same(weft_context* ctx, weft_optimizer* one, weft_tensor* const* of_one, weft_optimizer* other, weft_tensor* const* of_other) {
  int t, i;
  for (t = 0; t < kSteps; ++t) {
    weft_tensor* grads[kParams];
    for (i = 0; i < kParams; ++i) grads[i] = wave(ctx, t + 0.1 * i);
    MUST(weft_optimizer_step(one, grads, kParams, 0.1 / (t + 1)));
    MUST(weft_optimizer_step(other, grads, kParams, 0.1 / (t + 1)));
    for (i = 0; i < kParams; ++i) weft_tensor_release(grads[i]);
    MUST(weft_sync(ctx, NULL, NULL));
    if (t == 2) {
      weft_tree* state = NULL;
      MUST(weft_optimizer_state(one, &state));
      MUST(weft_optimizer_load(other, state, WEFT_TREE_ROOT));
      weft_tree_release(state);
    }
  }
  for (i = 0; i < kParams; ++i) {
    float have[kSize], want[kSize];
    MUST(weft_tensor_to_host(of_one[i], have, sizeof have));
    MUST(weft_tensor_to_host(of_other[i], want, sizeof want));
    for (t = 0; t < kSize; ++t) CHECK(have[t] == want[t]);
    CHECK(want[0] != (float)sin(i));
  }
}

static void names_are_the_functions_with_structs(void) {
  static const char* const kNames[] = {"sgd", "adam", "adamw"};
  int rule, i;
  for (rule = 0; rule < 3; ++rule) {
    weft_context* ctx = new_context();
    weft_tensor *of_one[kParams], *of_other[kParams];
    weft_optimizer *one = NULL, *other = NULL;
    weft_optimizer_options options = WEFT_OPTIMIZER_OPTIONS_INIT;
    weft_optimizer_setting settings[3];
    weft_sgd_options sgd = WEFT_SGD_OPTIONS_INIT;
    weft_adam_options adam = WEFT_ADAM_OPTIONS_INIT;
    for (i = 0; i < kParams; ++i) of_one[i] = wave(ctx, i), of_other[i] = wave(ctx, i);
    settings[0] = setting("weight_decay", 0.1, -1);
    settings[1] = rule == 0 ? setting("momentum", 0.9, -1) : setting("beta1", 0.8, -1);
    settings[2] = rule == 0 ? setting("nesterov", 1, 0) : setting("epsilon", 1e-3, 0);
    options.settings = settings;
    options.setting_count = 3;
    sgd.momentum = 0.9, sgd.weight_decay = 0.1, sgd.nesterov = 1;
    adam.beta1 = 0.8, adam.weight_decay = 0.1, adam.epsilon = 1e-3;
    MUST(weft_optimizer_create(ctx, kNames[rule], WEFT_STRLEN, of_one, kParams, &options, &one));
    if (rule == 0) MUST(weft_sgd_create(ctx, of_other, kParams, &sgd, &other));
    if (rule == 1) MUST(weft_adam_create(ctx, of_other, kParams, &adam, &other));
    if (rule == 2) MUST(weft_adamw_create(ctx, of_other, kParams, &adam, &other));
    same(ctx, one, of_one, other, of_other);
    weft_optimizer_release(one);
    weft_optimizer_release(other);
    for (i = 0; i < kParams; ++i) weft_tensor_release(of_one[i]), weft_tensor_release(of_other[i]);
    weft_context_release(ctx);
  }
}

/* The first group has no momentum: its parameter's state stays 0. */
static void settings_are_a_groups_or_everybodys(void) {
  static const int32_t kGroupOf[kParams] = {0, 1};
  weft_context* ctx = new_context();
  weft_tensor *both[kParams], *alone[kParams], *grads[kParams];
  weft_optimizer *groups = NULL, *first = NULL, *second = NULL;
  weft_optimizer_options options = WEFT_OPTIMIZER_OPTIONS_INIT;
  weft_optimizer_setting settings[3];
  const double rates[2] = {0.1, 0.02};
  int t, i;
  for (i = 0; i < kParams; ++i) both[i] = wave(ctx, i), alone[i] = wave(ctx, i);
  settings[0] = setting("alpha", 0.5, -1);
  settings[1] = setting("momentum", 0.9, 1);
  settings[2] = setting("centered", 1, 0);
  options.settings = settings;
  options.setting_count = 3;
  options.group_of = kGroupOf;
  options.group_of_count = kParams;
  options.group_count = 2;
  MUST(weft_optimizer_create(ctx, "rmsprop", 7, both, kParams, &options, &groups));
  options.group_of = NULL;
  options.group_count = 0;
  settings[1].group = settings[2].group = -1;
  settings[1] = settings[2];
  options.setting_count = 2;
  MUST(weft_optimizer_create(ctx, "rmsprop", 7, &alone[0], 1, &options, &first));
  settings[1] = setting("momentum", 0.9, -1);
  MUST(weft_optimizer_create(ctx, "rmsprop", 7, &alone[1], 1, &options, &second));
  for (t = 0; t < kSteps; ++t) {
    for (i = 0; i < kParams; ++i) grads[i] = wave(ctx, t + 0.1 * i);
    MUST(weft_optimizer_step_groups(groups, grads, kParams, rates, 2));
    MUST(weft_optimizer_step(first, &grads[0], 1, rates[0]));
    MUST(weft_optimizer_step(second, &grads[1], 1, rates[1]));
    for (i = 0; i < kParams; ++i) weft_tensor_release(grads[i]);
  }
  for (i = 0; i < kParams; ++i) {
    float have[kSize], want[kSize];
    MUST(weft_tensor_to_host(both[i], have, sizeof have));
    MUST(weft_tensor_to_host(alone[i], want, sizeof want));
    for (t = 0; t < kSize; ++t) CHECK(have[t] == want[t]);
    weft_tensor_release(both[i]);
    weft_tensor_release(alone[i]);
  }
  weft_optimizer_release(groups);
  weft_optimizer_release(first);
  weft_optimizer_release(second);
  weft_context_release(ctx);
}

static void what_cannot_be(void) {
  static const int32_t kOutside[1] = {1};
  weft_context* ctx = new_context();
  weft_tensor* w = wave(ctx, 0);
  weft_optimizer* out = NULL;
  weft_optimizer_options options = WEFT_OPTIMIZER_OPTIONS_INIT;
  weft_optimizer_setting s = setting("beta1", 1, -1);
  FAILS_WITH(weft_optimizer_create(ctx, "adamx", WEFT_STRLEN, &w, 1, NULL, &out), WEFT_NOT_FOUND, "there is no optimizer 'adamx'; did you mean 'adam");
  FAILS_WITH(weft_optimizer_create(ctx, NULL, 3, &w, 1, NULL, &out), WEFT_INVALID_ARGUMENT, "name");
  FAILS_WITH(weft_optimizer_create(ctx, "adam", WEFT_STRLEN, &w, 1, NULL, NULL), WEFT_INVALID_ARGUMENT, "out");
  INVALID(weft_optimizer_create(ctx, "adam", WEFT_STRLEN, NULL, 0, NULL, &out), "weft_optimizer_create: an optimizer needs at least one parameter");
  options.settings = &s;
  options.setting_count = 1;
  INVALID(weft_optimizer_create(ctx, "lion", WEFT_STRLEN, &w, 1, &options, &out), "weft_optimizer_create: lion: beta1 is 1; it must be in [0, 1)");
  s = setting("momentun", 0.9, -1);
  FAILS_WITH(weft_optimizer_create(ctx, "sgd", WEFT_STRLEN, &w, 1, &options, &out), WEFT_NOT_FOUND, "settings[0]: sgd has no setting 'momentun'; did you mean 'momentum'? there are momentum, dampening");
  s = setting("momentum", NAN, -1);
  INVALID(weft_optimizer_create(ctx, "sgd", WEFT_STRLEN, &w, 1, &options, &out), "weft_optimizer_create: sgd: momentum is nan; it must be in [0, inf)");
  s = setting("momentum", 0.5, 1);
  INVALID(weft_optimizer_create(ctx, "sgd", WEFT_STRLEN, &w, 1, &options, &out), "weft_optimizer_create: settings[0].group is 1; it must be -1, for all groups, or in [0, 1)");
  s.group = -1;
  options.group_count = 2;
  INVALID(weft_optimizer_create(ctx, "sgd", WEFT_STRLEN, &w, 1, &options, &out), "weft_optimizer_create: group_of is null and there are 2 groups");
  options.group_of = kOutside;
  INVALID(weft_optimizer_create(ctx, "sgd", WEFT_STRLEN, &w, 1, &options, &out), "weft_optimizer_create: group_of_count is 0 for 1 parameters");
  options.group_of_count = 1;
  options.group_count = 1;
  INVALID(weft_optimizer_create(ctx, "sgd", WEFT_STRLEN, &w, 1, &options, &out), "weft_optimizer_create: group_of[0] is 1; it must be in [0, 1)");
  options.group_count = 2;
  s = setting("nesterov", 1, 1);
  INVALID(weft_optimizer_create(ctx, "sgd", WEFT_STRLEN, &w, 1, &options, &out), "weft_optimizer_create: sgd, group 1: nesterov needs a momentum above 0");
  options.settings = NULL;
  FAILS_WITH(weft_optimizer_create(ctx, "sgd", WEFT_STRLEN, &w, 1, &options, &out), WEFT_INVALID_ARGUMENT, "settings");
  CHECK(out == NULL);
  MUST(weft_optimizer_create(ctx, "lamb", 4, &w, 1, NULL, &out));
  {
    weft_tree* state = NULL;
    weft_optimizer* adam = NULL;
    MUST(weft_optimizer_state(out, &state));
    MUST(weft_adam_create(ctx, &w, 1, NULL, &adam));
    INVALID(weft_optimizer_load(adam, state, WEFT_TREE_ROOT), "weft_optimizer_load: the state is of optimizer 'lamb', not 'adam'");
    weft_tree_release(state);
    weft_optimizer_release(adam);
  }
  weft_optimizer_release(out);
  weft_tensor_release(w);
  weft_context_release(ctx);
}

int main(void) {
  names_are_the_functions_with_structs();
  settings_are_a_groups_or_everybodys();
  what_cannot_be();
  return done("named_optimizers");
}
