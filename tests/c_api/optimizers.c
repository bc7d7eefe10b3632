/* Optimizers against their formulas, written out by hand, over ten steps with a schedule; the state half way through a tree into
 * another optimizer; states and parameters that cannot be right. */
#include "check.h"

enum { kCount = 5, kSteps = 10 };
typedef enum { kSgd, kAdam, kAdamW } rule;
typedef struct {
  rule kind;
  double momentum, decay;
  int nesterov;
  double beta1, beta2, epsilon;
  int zeros_count; /* every field is said, a 0 being 0 */
} settings;

static weft_optimizer* create(weft_context* ctx, weft_tensor* w, const settings* o) {
  weft_sgd_options sgd = WEFT_SGD_OPTIONS_INIT;
  weft_adam_options adam = WEFT_ADAM_OPTIONS_INIT;
  weft_optimizer* out = NULL;
  sgd.momentum = o->momentum;
  sgd.weight_decay = o->decay;
  sgd.nesterov = o->nesterov;
  adam.beta1 = o->beta1;
  adam.beta2 = o->beta2;
  adam.epsilon = o->epsilon;
  adam.weight_decay = o->decay;
  if (o->zeros_count) {
    adam.present = WEFT_ADAM_HAS_BETA1 | WEFT_ADAM_HAS_BETA2 | WEFT_ADAM_HAS_EPSILON | WEFT_ADAM_HAS_WEIGHT_DECAY;
  }
  if (o->kind == kSgd) MUST(weft_sgd_create(ctx, &w, 1, &sgd, &out));
  if (o->kind == kAdam) MUST(weft_adam_create(ctx, &w, 1, &adam, &out));
  if (o->kind == kAdamW) MUST(weft_adamw_create(ctx, &w, 1, &adam, &out));
  return out;
}

static double or_default(const settings* o, double value, double usual) {
  if (o->zeros_count) return value;
  return value == 0 ? usual : value < 0 ? 0 : value;
}

/* Minimises sum(w^3) from fixed values in f64. */
static void follows_its_formula(settings o, int line) {
  const double beta1 = or_default(&o, o.beta1, 0.9), beta2 = or_default(&o, o.beta2, 0.999);
  const double epsilon = or_default(&o, o.epsilon, 1e-8), decay = or_default(&o, o.decay, o.kind == kAdamW ? 0.01 : 0);
  weft_context* ctx = new_context();
  double p[kCount], first[kCount] = {0}, second[kCount] = {0}, host[kCount];
  weft_tensor *w = NULL, *grad;
  weft_optimizer* optimizer;
  int t, i;
  for (i = 0; i < kCount; ++i) p[i] = 0.3 * i - 0.7;
  MUST(weft_tensor_from_host(ctx, NULL, WEFT_F64, DIMS(kCount), p, sizeof p, &w));
  MUST(weft_tensor_require_grad(w, 1));
  optimizer = create(ctx, w, &o);
  for (t = 1; t <= kSteps; ++t) {
    const double lr = 0.05 / t;
    wf_scope* s = wf_begin(ctx);
    wf_grad(s, wf_sum(s, wf_mul(s, w, wf_mul(s, w, w))), &w, 1, &grad);
    wf_try(s, weft_optimizer_step(optimizer, &grad, 1, lr));
    OK(wf_end(s));
    MUST(weft_sync(ctx, NULL, NULL));
    for (i = 0; i < kCount; ++i) {
      double g = 3 * p[i] * p[i];
      if (o.kind != kAdamW) g += decay * p[i];
      if (o.kind == kSgd) {
        first[i] = o.momentum * first[i] + g;
        p[i] -= lr * (o.nesterov ? g + o.momentum * first[i] : first[i]);
        continue;
      }
      if (o.kind == kAdamW) p[i] -= lr * decay * p[i];
      first[i] = beta1 * first[i] + (1 - beta1) * g;
      second[i] = beta2 * second[i] + (1 - beta2) * g * g;
      p[i] -= lr * (first[i] / (1 - pow(beta1, t))) / (sqrt(second[i] / (1 - pow(beta2, t))) + epsilon);
    }
    if (t == kSteps / 2) { /* goes on in another one */
      weft_tree* state = NULL;
      weft_optimizer* next = create(ctx, w, &o);
      MUST(weft_optimizer_state(optimizer, &state));
      MUST(weft_optimizer_load(next, state, WEFT_TREE_ROOT));
      weft_tree_release(state);
      weft_optimizer_release(optimizer);
      optimizer = next;
    }
  }
  MUST(weft_tensor_to_host(w, host, sizeof host));
  for (i = 0; i < kCount; ++i) {
    if (!(fabs(host[i] - p[i]) < 1e-11)) {
      printf("%s:%d: parameter %d is %.17g, not %.17g\n", __FILE__, line, i, host[i], p[i]);
      ++g_failures;
    }
  }
  CHECK_EQUAL(metric(ctx, "programs_compiled"), 1);
  weft_optimizer_release(optimizer);
  weft_tensor_release(w);
  weft_context_release(ctx);
}
#define FOLLOWS(...)                           \
  do {                                         \
    const settings o_ = {__VA_ARGS__};         \
    follows_its_formula(o_, __LINE__);         \
  } while (0)

static void every_rule_follows_its_formula(void) {
  FOLLOWS(kSgd, 0, 0, 0, 0, 0, 0, 0);
  FOLLOWS(kSgd, 0, 0.1, 0, 0, 0, 0, 0);
  FOLLOWS(kSgd, 0.9, 0, 0, 0, 0, 0, 0);
  FOLLOWS(kSgd, 0.9, 0.1, 1, 0, 0, 0, 0);
  FOLLOWS(kAdam, 0, 0, 0, 0, 0, 0, 0);
  FOLLOWS(kAdam, 0, 0.1, 0, 0.5, 0.9, 1e-3, 0);
  FOLLOWS(kAdam, 0, 0, 0, -1, 0, 0, 0); /* negative: no first moment */
  FOLLOWS(kAdamW, 0, 0, 0, 0, 0, 0, 0); /* decays by 0.01 */
  FOLLOWS(kAdamW, 0, 0.1, 0, 0, 0, 0, 0);
  FOLLOWS(kAdamW, 0, -1, 0, 0, 0, 0, 0);
  FOLLOWS(kAdamW, 0, 0, 0, 0.9, 0.999, 1e-8, 1); /* no decay */
  FOLLOWS(kAdamW, 0, 0.1, 0, 0, 0, 0, 1);        /* nothing but the sign of the gradient */
  FOLLOWS(kAdam, 0, 0, 0, 0, 0.5, 1e-3, 1);
}

/* What is not said keeps its default beside what is; a field that is said must be in range. */
static void each_field_is_said_alone(void) {
  weft_context* ctx = new_context();
  weft_tensor* w = ramp(ctx, DIMS(2));
  weft_adam_options o = WEFT_ADAM_OPTIONS_INIT;
  weft_optimizer* optimizer = NULL;
  o.beta1 = -1;
  o.present = WEFT_ADAM_HAS_BETA1;
  INVALID(weft_adamw_create(ctx, &w, 1, &o, &optimizer), "weft_adam_options.beta1 is -1; it must be in [0, 1)");
  o.present = WEFT_ADAM_HAS_WEIGHT_DECAY;
  o.weight_decay = -0.5;
  FAILS_WITH(weft_adam_create(ctx, &w, 1, &o, &optimizer), WEFT_INVALID_ARGUMENT, "weight_decay is -0.5; it must be in [0, ");
  o.present = 16;
  FAILS_WITH(weft_adam_create(ctx, &w, 1, &o, &optimizer), WEFT_UNIMPLEMENTED, "weft_adam_options.present has bits (0x10)");
  o.present = WEFT_ADAM_HAS_EPSILON;
  o.weight_decay = 0;
  MUST(weft_adamw_create(ctx, &w, 1, &o, &optimizer)); /* beta1 is below 0 and not said: 0 */
  weft_optimizer_release(optimizer);
  weft_tensor_release(w);
  weft_context_release(ctx);
}

static void states_that_cannot_be(void) {
  weft_context* ctx = new_context();
  weft_tensor *w = ramp(ctx, DIMS(2)), *twice[2];
  weft_optimizer* optimizer = NULL;
  weft_tree* state = NULL;
  uint32_t slots = 0, list = 0;
  settings o = {kSgd, 0.5, 0, 0, 0, 0, 0, 0};
  twice[0] = twice[1] = w;
  INVALID(weft_sgd_create(ctx, twice, 2, NULL, &optimizer), "weft_sgd_create: optimizer: parameter 1 is parameter 0 again; each is given once");
  optimizer = create(ctx, w, &o);
  MUST(weft_tree_create(&state));
  MUST(weft_tree_add_text(state, WEFT_TREE_ROOT, "kind", WEFT_STRLEN, "sgd", WEFT_STRLEN, NULL));
  MUST(weft_tree_add_text(state, WEFT_TREE_ROOT, "step", WEFT_STRLEN, "five", WEFT_STRLEN, NULL));
  MUST(weft_tree_add_dict(state, WEFT_TREE_ROOT, "slots", WEFT_STRLEN, &slots));
  MUST(weft_tree_add_list(state, slots, "momentum", WEFT_STRLEN, &list));
  MUST(weft_tree_add_tensor(state, list, NULL, 0, w, NULL));
  INVALID(weft_optimizer_load(optimizer, state, WEFT_TREE_ROOT), "weft_optimizer_load: the state's 'step' is text; it must be an integer of 0 or more");
  weft_tree_release(state);
  weft_optimizer_release(optimizer);
  weft_tensor_release(w);
  weft_context_release(ctx);
}

/* A complex parameter is two real ones, as in PyTorch: Adam divides either part by its own root. */
static void complex_parameters_are_two(settings o) {
  weft_context* ctx = new_context();
  double start[2 * kCount], slopes[2 * kCount], whole[2 * kCount], parts[2 * kCount];
  weft_tensor *z = NULL, *w = NULL, *of_z = NULL, *of_w = NULL;
  weft_optimizer *one, *other;
  int t, i;
  for (i = 0; i < 2 * kCount; ++i) start[i] = 0.3 * i - 0.7;
  MUST(weft_tensor_from_host(ctx, NULL, WEFT_C128, DIMS(kCount), start, sizeof start, &z));
  MUST(weft_tensor_from_host(ctx, NULL, WEFT_F64, DIMS(kCount, 2), start, sizeof start, &w));
  one = create(ctx, z, &o);
  other = create(ctx, w, &o);
  for (t = 1; t <= 3; ++t) {
    for (i = 0; i < 2 * kCount; ++i) slopes[i] = sin(t + i);
    MUST(weft_tensor_from_host(ctx, NULL, WEFT_C128, DIMS(kCount), slopes, sizeof slopes, &of_z));
    MUST(weft_tensor_from_host(ctx, NULL, WEFT_F64, DIMS(kCount, 2), slopes, sizeof slopes, &of_w));
    MUST(weft_optimizer_step(one, &of_z, 1, 0.05));
    MUST(weft_optimizer_step(other, &of_w, 1, 0.05));
    weft_tensor_release(of_z);
    weft_tensor_release(of_w);
  }
  MUST(weft_tensor_to_host(z, whole, sizeof whole));
  MUST(weft_tensor_to_host(w, parts, sizeof parts));
  for (i = 0; i < 2 * kCount; ++i) {
    CHECK(fabs(whole[i] - parts[i]) < 1e-14);
    CHECK(whole[i] != start[i]);
  }
  weft_optimizer_release(one);
  weft_optimizer_release(other);
  weft_tensor_release(z);
  weft_tensor_release(w);
  weft_context_release(ctx);
}

int main(void) {
  every_rule_follows_its_formula();
  each_field_is_said_alone();
  complex_parameters_are_two((settings){.kind = kSgd, .momentum = 0.9, .decay = 0.1, .nesterov = 1});
  complex_parameters_are_two((settings){.kind = kAdam, .decay = 0.1});
  complex_parameters_are_two((settings){.kind = kAdamW});
  states_that_cannot_be();
  return done("optimizers");
}
