/* What lazy engines get wrong, through the exported functions and on the backend that ships: programs mixed up, schedules
 * that recompile, prints that compute twice, loops without a barrier, gradients and random numbers that depend on cuts. */
#include "check.h"

enum { kMaxSettings = 4 };

/* Settings as "name", "value" pairs up to a NULL. */
static weft_context* context_with(const char* const* pairs) {
  weft_setting settings[kMaxSettings + 1];
  weft_context_options options = WEFT_CONTEXT_OPTIONS_INIT;
  weft_context* ctx = NULL;
  size_t n = 0;
  settings[n].name = "cache_mode", settings[n].name_length = WEFT_STRLEN;
  settings[n].value = "off", settings[n].value_length = WEFT_STRLEN;
  for (++n; pairs != NULL && pairs[0] != NULL && n <= kMaxSettings; pairs += 2, ++n) {
    settings[n].name = pairs[0], settings[n].name_length = WEFT_STRLEN;
    settings[n].value = pairs[1], settings[n].value_length = WEFT_STRLEN;
  }
  options.settings = settings;
  options.setting_count = n;
  MUST(weft_context_create(&options, &ctx));
  return ctx;
}
static void equal(weft_tensor* t, float first, float second, int line) {
  float host[2] = {0};
  if (!OK(weft_tensor_to_host(t, host, sizeof host))) return;
  if (host[0] != first || host[1] != second) {
    printf("%s:%d: {%g, %g}, not {%g, %g}\n", __FILE__, line, host[0], host[1], first, second);
    ++g_failures;
  }
}
#define EQUAL(t, first, second) equal((t), (first), (second), __LINE__)

static void programs_that_differ_in_leaves_only(void) {
  weft_context* ctx = new_context();
  const float a_data[] = {1, 2}, b_data[] = {3, 4}, c_data[] = {5, 6};
  weft_tensor *a = f32(ctx, DIMS(2), a_data), *b = f32(ctx, DIMS(2), b_data), *c = f32(ctx, DIMS(2), c_data);
  int step;
  for (step = 0; step < 3; ++step) {
    weft_tensor *x, *y;
    wf_scope* s = wf_begin(ctx);
    x = wf_keep(s, wf_add(s, wf_mul(s, a, b), c));
    y = wf_keep(s, wf_add(s, wf_mul(s, a, c), b));
    if (step == 1) MUST(weft_sync(ctx, NULL, NULL));
    EQUAL(x, 8, 14);
    EQUAL(y, 8, 16);
    OK(wf_end(s));
    weft_tensor_release(x);
    weft_tensor_release(y);
    s = wf_begin(ctx);
    EQUAL(wf_sub(s, wf_mul(s, a, b), c), -2, 2);
    EQUAL(wf_sub(s, wf_mul(s, a, c), b), 2, 8);
    EQUAL(wf_sub(s, c, wf_mul(s, a, b)), 2, -2);
    OK(wf_end(s));
  }
  weft_tensor_release(a);
  weft_tensor_release(b);
  weft_tensor_release(c);
  weft_context_release(ctx);
}

/* One step of SGD on sum((w * x)^2); prints the loss inside the step if asked. */
static void train_step(weft_context* ctx, weft_tensor* x, weft_tensor* w, weft_optimizer* optimizer, double rate, int print) {
  weft_blob* text = NULL;
  weft_tensor *loss, *grad;
  wf_scope* s = wf_begin(ctx);
  loss = wf_sum(s, wf_square(s, wf_mul(s, w, x)));
  if (print) OK(weft_tensor_to_string(loss, NULL, &text));
  weft_blob_release(text), text = NULL;
  wf_grad(s, loss, &w, 1, &grad);
  if (print) OK(weft_tensor_to_string(loss, NULL, &text));
  weft_blob_release(text), text = NULL;
  wf_try(s, weft_optimizer_step(optimizer, &grad, 1, rate));
  loss = wf_keep(s, loss);
  MUST(weft_sync(ctx, NULL, NULL));
  OK(wf_end(s));
  weft_tensor_release(loss);
}

static weft_optimizer* momentum(weft_context* ctx, weft_tensor* w) {
  weft_sgd_options options = WEFT_SGD_OPTIONS_INIT;
  weft_optimizer* optimizer = NULL;
  options.momentum = 0.9;
  MUST(weft_tensor_require_grad(w, 1));
  MUST(weft_sgd_create(ctx, &w, 1, &options, &optimizer));
  return optimizer;
}

static void a_schedule_through_zero_one_and_the_momentum_compiles_once(void) {
  const double rates[] = {0.25, 0, 1, 0.9, 0.5, 0, 0.9};
  weft_context* ctx = context_with(NULL);
  weft_tensor *x = ramp(ctx, DIMS(3)), *w = ramp(ctx, DIMS(3));
  weft_optimizer* optimizer = momentum(ctx, w);
  size_t i;
  for (i = 0; i < sizeof rates / sizeof rates[0]; ++i) train_step(ctx, x, w, optimizer, rates[i], 0);
  CHECK_EQUAL(metric(ctx, "programs_compiled"), 1);
  CHECK_EQUAL(metric(ctx, "memory_cache_hits"), 6);
  CHECK_EQUAL(metric(ctx, "cut_outputs"), 7 * 3); /* the loss, w and its momentum */
  weft_optimizer_release(optimizer);
  weft_tensor_release(x);
  weft_tensor_release(w);
  weft_context_release(ctx);
}

/* Nodes computed, which unlike kernels do not depend on what fuses with what. */
static int64_t nodes_of_a_step(int print, float* result) {
  weft_context* ctx = context_with(NULL);
  weft_tensor *x = ramp(ctx, DIMS(3)), *w = ramp(ctx, DIMS(3));
  weft_optimizer* optimizer = momentum(ctx, w);
  int64_t nodes;
  train_step(ctx, x, w, optimizer, 0.125, print);
  nodes = metric(ctx, "cut_nodes_computed");
  CHECK_EQUAL(metric(ctx, "launches"), print ? 2 : 1); /* the second print computes nothing */
  MUST(weft_tensor_to_host(w, result, 3 * sizeof(float)));
  weft_optimizer_release(optimizer);
  weft_tensor_release(x);
  weft_tensor_release(w);
  weft_context_release(ctx);
  return nodes;
}

static void a_print_inside_a_step_computes_nothing_twice(void) {
  float with[3] = {0}, without[3] = {0};
  CHECK_EQUAL(nodes_of_a_step(1, with), nodes_of_a_step(0, without));
  CHECK(memcmp(with, without, sizeof with) == 0);
}

/* x = dropout(x) + x / 2, without a barrier; the final values. */
static void dropout_loop(weft_context* ctx, int steps, float* host) {
  weft_tensor* x;
  int i;
  for (i = 0; i < 64; ++i) host[i] = 1;
  x = f32(ctx, DIMS(64), host);
  for (i = 0; i < steps; ++i) {
    weft_tensor* next;
    wf_scope* s = wf_begin(ctx);
    next = wf_keep(s, wf_add(s, wf_mul(s, wf_dropout(s, x), wf_scalar(s, WEFT_F32, 0.5)), wf_mul(s, x, wf_scalar(s, WEFT_F32, 0.5))));
    MUST(wf_end(s));
    weft_tensor_release(x);
    x = next;
  }
  MUST(weft_tensor_to_host(x, host, 64 * sizeof(float)));
  weft_tensor_release(x);
}

static void dropout_in_a_loop_without_a_barrier_compiles_at_most_twice(void) {
  static const char* const many_cuts[] = {"max_pending_nodes", "7", "repetition_nodes", "0", NULL};
  float host[64], other[64];
  int i, zero = 0, different = 0;
  weft_context* ctx = context_with(NULL);
  dropout_loop(ctx, 1000, host);
  CHECK(metric(ctx, "programs_compiled") <= 2);
  CHECK(metric(ctx, "cut_repetition") >= 1);
  CHECK(metric(ctx, "cut_barrier") == 0);
  weft_context_release(ctx);
  /* The same numbers wherever it is cut, and not the same number everywhere. */
  ctx = context_with(NULL);
  dropout_loop(ctx, 6, host);
  CHECK_EQUAL(metric(ctx, "cuts"), 1);
  weft_context_release(ctx);
  ctx = context_with(many_cuts);
  dropout_loop(ctx, 6, other);
  CHECK(metric(ctx, "cuts") > 2);
  weft_context_release(ctx);
  CHECK(memcmp(host, other, sizeof host) == 0);
  for (i = 1; i < 64; ++i) different += host[i] != host[0];
  for (i = 0; i < 64; ++i) zero += host[i] == 0;
  CHECK(different > 0);
  CHECK_EQUAL(zero, 0); /* half of x always stays */
}

/* Gradients of a small network in one of the modes, with a read in the forward pass or cuts everywhere. */
static void gradients(const char* mode, int cut, float* host) {
  const char* pairs[5];
  const float x_data[] = {1, 2, 3, 4, -1, -2}, w_data[] = {0.5f, -1, 0.25f, 2, 1, -0.5f}, b_data[] = {0.125f, 1};
  weft_context* ctx;
  weft_tensor *x, *w, *b, *h, *loss, *wrt[2], *grads[2];
  wf_scope* s;
  pairs[0] = "mode", pairs[1] = mode, pairs[2] = cut == 2 ? "max_pending_nodes" : NULL, pairs[3] = "1", pairs[4] = NULL;
  ctx = context_with(pairs);
  x = f32(ctx, DIMS(2, 3), x_data), w = f32(ctx, DIMS(3, 2), w_data), b = f32(ctx, DIMS(2), b_data);
  wrt[0] = w, wrt[1] = b;
  MUST(weft_tensor_require_grad(w, 1));
  MUST(weft_tensor_require_grad(b, 1));
  s = wf_begin(ctx);
  h = wf_tanh(s, wf_add(s, wf_matmul(s, x, w), b));
  if (cut == 1) wf_item(s, wf_sum(s, h));
  loss = wf_sum(s, wf_square(s, wf_softmax(s, h)));
  if (cut == 1) wf_item(s, loss);
  wf_grad(s, loss, wrt, 2, grads);
  OK(weft_tensor_to_host(grads[0], host, 6 * sizeof(float)));
  OK(weft_tensor_to_host(grads[1], host + 6, 2 * sizeof(float)));
  OK(wf_end(s));
  weft_tensor_release(x);
  weft_tensor_release(w);
  weft_tensor_release(b);
  weft_context_release(ctx);
}

static void gradients_are_the_same_bits_in_every_mode_and_wherever_the_graph_is_cut(void) {
  static const char* const modes[] = {"lazy", "eager", "debug"};
  float expected[8] = {0}, host[8] = {0};
  int mode, cut;
  gradients("lazy", 0, expected);
  CHECK(expected[0] != 0);
  for (mode = 0; mode < 3; ++mode) {
    for (cut = 0; cut < 3; ++cut) {
      gradients(modes[mode], cut, host);
      if (memcmp(host, expected, sizeof host) != 0) {
        printf("%s:%d: other gradients in mode %s with cut %d: %.9g, not %.9g\n", __FILE__, __LINE__, modes[mode], cut, host[0], expected[0]);
        ++g_failures;
      }
    }
  }
}

int main(void) {
  programs_that_differ_in_leaves_only();
  a_schedule_through_zero_one_and_the_momentum_compiles_once();
  a_print_inside_a_step_computes_nothing_twice();
  dropout_in_a_loop_without_a_barrier_compiles_at_most_twice();
  gradients_are_the_same_bits_in_every_mode_and_wherever_the_graph_is_cut();
  return done("engine");
}
