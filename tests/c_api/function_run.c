/* Functions by themselves: run, with donated inputs, compiled ahead, weighed; loops that have a deadline. */
#include "check.h"

static const weft_tensor_info kVector = {WEFT_F32, 1, {1000}};
static const weft_tensor_info kScalar = {WEFT_F32, 0, {0}};
static const int64_t kFirst[1] = {0};

/* x, s -> x * s + 1, sum(x) */
static weft_error* step(void* data, weft_context* body, weft_tensor* const* in, size_t count, weft_tensor** out, size_t capacity,
                        size_t* out_count) {
  wf_scope* const s = wf_begin(body);
  (void)data;
  CHECK(count == 2 && capacity >= 2);
  out[0] = wf_keep(s, wf_add(s, wf_mul(s, in[0], in[1]), wf_scalar(s, WEFT_F32, 1)));
  out[1] = wf_keep(s, wf_sum(s, in[0]));
  *out_count = 2;
  return wf_end(s);
}
static weft_function* step_of(weft_context* ctx) {
  weft_tensor_info inputs[2];
  weft_function* f = NULL;
  inputs[0] = kVector, inputs[1] = kScalar;
  MUST(weft_function_trace(ctx, "step", WEFT_STRLEN, inputs, 2, step, NULL, 2, &f));
  return f;
}
static double item(weft_tensor* tensor) {
  double value = -12345;
  OK(weft_tensor_item_f64(tensor, &value));
  return value;
}
static double first(weft_tensor* tensor) {
  float values[1000] = {0};
  OK(weft_tensor_to_host(tensor, values, sizeof values));
  CHECK(values[0] == values[999]);
  return values[0];
}
static weft_tensor* vector_of(weft_context* ctx, double value) {
  static float data[1000];
  int i;
  for (i = 0; i < 1000; ++i) data[i] = (float)value;
  return f32(ctx, DIMS(1000), data);
}
/* Two results at these inputs. */
static void run(weft_context* ctx, weft_function* f, weft_tensor* x, weft_tensor* s, size_t donated, weft_tensor** out) {
  weft_tensor* inputs[2];
  size_t n = 0;
  inputs[0] = x, inputs[1] = s;
  OK(weft_function_run(ctx, f, inputs, 2, kFirst, donated, out, 2, &n));
  CHECK_EQUAL(n, 2);
}
static void drop(weft_tensor** pair) {
  weft_tensor_release(pair[0]);
  weft_tensor_release(pair[1]);
}

/* The program is one, wherever its inputs come from and whether anybody compiled it before. */
static void is_one_program(weft_context* ctx) {
  weft_function* f = step_of(ctx);
  weft_tensor *x = vector_of(ctx, 1), *s = scalar(ctx, 2), *y[2], *z[2], *computed[2];
  weft_event* event = NULL;
  int64_t programs, donations;
  int i;
  programs = metric(ctx, "programs_compiled");
  OK(weft_function_compile(ctx, f, NULL, NULL, 0, kFirst, 1, NULL));
  CHECK_EQUAL(metric(ctx, "programs_compiled"), programs + 1);
  OK(weft_function_compile(ctx, f, NULL, NULL, 0, kFirst, 1, &event));
  OK(weft_event_wait(event, -1));
  weft_event_release(event);
  CHECK_EQUAL(metric(ctx, "launches"), 0);
  donations = metric(ctx, "buffers_donated");
  run(ctx, f, x, s, 1, y);
  CHECK(first(y[0]) == 3 && item(y[1]) == 1000);
  for (i = 0; i < 16; ++i) { /* a result is the next input */
    run(ctx, f, y[0], s, 1, z);
    drop(y);
    y[0] = z[0], y[1] = z[1];
  }
  CHECK(first(y[0]) == 262143); /* 2^18 - 1 */
  CHECK_EQUAL(metric(ctx, "buffers_donated"), donations + 17);
  CHECK_EQUAL(metric(ctx, "programs_compiled"), programs + 1);
  /* Pending inputs are computed by a program of their own; a scalar that was computed is not another type of input. */
  MUST(weft_add(ctx, s, s, &computed[1]));
  MUST(weft_mul(ctx, y[0], s, &computed[0]));
  OK(weft_eval(ctx, computed, 2, NULL));
  weft_tensor_release(computed[0]);
  MUST(weft_mul(ctx, y[0], s, &computed[0]));
  programs = metric(ctx, "programs_compiled");
  run(ctx, f, computed[0], computed[1], 1, z);
  CHECK(first(z[0]) == 262143.0 * 8 + 1 && fabs(item(z[1]) / (262143.0 * 2000) - 1) < 1e-6);
  CHECK(metric(ctx, "programs_compiled") <= programs + 1); /* the product's */
  /* Donated or not makes two. */
  run(ctx, f, z[0], s, 0, computed);
  CHECK(first(z[0]) == 262143.0 * 8 + 1);
  drop(computed);
  drop(z);
  drop(y);
  weft_tensor_release(x);
  weft_tensor_release(s);
  weft_function_release(f);
}

/* What was donated is gone; what somebody else still needs is copied. */
static void takes_what_is_donated(weft_context* ctx) {
  weft_function* f = step_of(ctx);
  weft_tensor *x = vector_of(ctx, 1), *s = scalar(ctx, 2), *y[2], *alias = NULL, *sum = NULL, *w = NULL, *loss = NULL, *dw = NULL;
  run(ctx, f, x, s, 1, y);
  FAILS(weft_tensor_item_f64(y[0], (double[]){0}), WEFT_INVALID_ARGUMENT,
        "weft_tensor_item_f64: the tensor has shape [1000]; it must have exactly one element");
  FAILS(weft_tensor_to_host(x, (float[1000]){0}, 4000), WEFT_FAILED_PRECONDITION,
        "weft_tensor_to_host: read: the tensor was donated to a function that ran; use what came out, or assign a value to it");
  FAILS_WITH(weft_add(ctx, x, x, &sum), WEFT_FAILED_PRECONDITION, "was donated to a function that ran");
  FAILS_WITH(weft_function_run(ctx, f, (weft_tensor*[]){x, s}, 2, NULL, 0, y, 2, (size_t[]){0}), WEFT_FAILED_PRECONDITION,
             "inputs[0] was donated to a function that ran");
  OK(weft_sync(ctx, NULL, NULL));
  OK(weft_tensor_assign(x, y[0]));
  CHECK(first(x) == 3);
  drop(y);
  /* a second handle, a pending value */
  MUST(weft_tensor_copy(x, &alias));
  run(ctx, f, x, s, 1, y);
  CHECK(first(alias) == 3 && first(y[0]) == 7);
  drop(y);
  MUST(weft_mul(ctx, alias, s, &sum));
  run(ctx, f, alias, s, 1, y);
  CHECK(first(y[0]) == 7 && first(sum) == 6);
  drop(y);
  weft_tensor_release(sum);
  weft_tensor_release(alias);
  weft_tensor_release(x);
  /* a past that a gradient goes through */
  w = vector_of(ctx, 4);
  OK(weft_tensor_require_grad(w, 1));
  MUST(weft_square(ctx, w, &sum));
  MUST(weft_sum(ctx, sum, NULL, &loss));
  OK(weft_eval(ctx, &loss, 1, NULL));
  x = NULL;
  MUST(weft_tensor_copy(w, &x));
  weft_tensor_release(x);
  run(ctx, f, sum, s, 1, y);
  CHECK(first(y[0]) == 33);
  OK(weft_grad(ctx, loss, NULL, &w, 1, &dw));
  CHECK(first(dw) == 8);
  drop(y);
  weft_tensor_release(dw);
  weft_tensor_release(loss);
  weft_tensor_release(sum);
  weft_tensor_release(w);
  weft_tensor_release(s);
  weft_function_release(f);
}

/* x -> x + w, of w around the body; with numbers, if it draws. */
static weft_error* trace_captured(void* data, weft_context* body, weft_tensor* const* in, size_t count, weft_tensor** out,
                                  size_t capacity, size_t* out_count) {
  (void)count, (void)capacity;
  *out_count = 1;
  return weft_add(body, in[0], data, out);
}
static weft_error* trace_drawing(void* data, weft_context* body, weft_tensor* const* in, size_t count, weft_tensor** out,
                                 size_t capacity, size_t* out_count) {
  wf_scope* const s = wf_begin(body);
  (void)data, (void)count, (void)capacity;
  out[0] = wf_keep(s, wf_add(s, in[0], wf_uniform(s, WF_INTS(1000))));
  *out_count = 1;
  return wf_end(s);
}
static void captures_and_draws(weft_context* ctx) {
  weft_tensor *w = vector_of(ctx, 10), *x = vector_of(ctx, 1), *v = vector_of(ctx, 20), *y = NULL, *z = NULL;
  weft_function *f = NULL, *draws = NULL;
  float one[1000], other[1000];
  size_t n = 0;
  MUST(weft_function_trace(ctx, "captured", WEFT_STRLEN, &kVector, 1, trace_captured, w, 1, &f));
  OK(weft_function_run(ctx, f, &x, 1, NULL, 0, &y, 1, &n));
  CHECK(first(y) == 11);
  weft_tensor_release(y);
  OK(weft_function_run(ctx, f, (weft_tensor*[]){x, v}, 2, (const int64_t[]){1}, 1, &y, 1, &n));
  CHECK(first(y) == 21);
  weft_tensor_release(y);
  MUST(weft_function_trace(ctx, "draws", WEFT_STRLEN, &kVector, 1, trace_drawing, NULL, 1, &draws));
  OK(weft_function_compile(ctx, draws, NULL, NULL, 0, NULL, 0, NULL)); /* draws nothing */
  OK(weft_random_seed(ctx, 7));
  OK(weft_function_call(ctx, draws, &x, 1, &y, 1, &n));
  OK(weft_tensor_to_host(y, one, sizeof one));
  weft_tensor_release(y);
  OK(weft_random_seed(ctx, 7));
  OK(weft_function_run(ctx, draws, &x, 1, kFirst, 1, &y, 1, &n));
  OK(weft_tensor_to_host(y, other, sizeof other));
  CHECK(memcmp(one, other, sizeof one) == 0 && one[0] != one[1]);
  OK(weft_function_run(ctx, draws, &y, 1, NULL, 0, &z, 1, &n));
  OK(weft_tensor_to_host(z, one, sizeof one));
  CHECK(one[0] - other[0] != other[0] - 1);
  weft_tensor_release(z);
  weft_tensor_release(y);
  weft_tensor_release(x);
  weft_tensor_release(v);
  weft_tensor_release(w);
  weft_function_release(f);
  weft_function_release(draws);
}

static void refuses(weft_context* ctx) {
  weft_function *f = step_of(ctx), *g = NULL;
  weft_tensor *x = vector_of(ctx, 1), *s = scalar(ctx, 2), *y[2] = {NULL, NULL}, *parameter = NULL;
  weft_context *body = NULL, *other = new_context();
  weft_program_stats stats = WEFT_PROGRAM_STATS_INIT;
  size_t n = 77;
  weft_tensor* inputs[3];
  inputs[0] = x, inputs[1] = s, inputs[2] = s;
  INVALID(weft_function_run(ctx, f, inputs, 2, (const int64_t[]){2}, 1, y, 2, &n), "weft_function_run: donated[0] is 2; there are 2 inputs");
  INVALID(weft_function_run(ctx, f, inputs, 2, (const int64_t[]){-1}, 1, y, 2, &n), "weft_function_run: donated[0] is -1; there are 2 inputs");
  INVALID(weft_function_run(ctx, f, inputs, 2, (const int64_t[]){1, 1}, 2, y, 2, &n),
          "weft_function_run: donated[1] is 1, which stands there twice");
  INVALID(weft_function_run(ctx, f, inputs, 1, NULL, 0, y, 2, &n), "weft_function_run: the function @step takes 2 inputs; there are 1");
  FAILS_WITH(weft_function_run(ctx, f, inputs, 3, NULL, 0, y, 2, &n), WEFT_INVALID_ARGUMENT, "the function @step takes 2 inputs; there are 3");
  FAILS(weft_function_run(ctx, f, inputs, 2, NULL, 0, y, 1, &n), WEFT_OUT_OF_RANGE,
        "weft_function_run: the function @step has 2 results; capacity is 1");
  inputs[1] = x;
  FAILS_WITH(weft_function_run(ctx, f, inputs, 2, NULL, 0, y, 2, &n), WEFT_INVALID_ARGUMENT, "f32[1000]");
  INVALID(weft_function_run(ctx, f, inputs, 2, kFirst, 1, y, 2, &n),
          "weft_function_run: inputs[0] is donated and is operand 1 as well; copy it (weft_tensor_copy)");
  inputs[1] = s;
  FAILS_WITH(weft_function_run(other, f, inputs, 2, NULL, 0, y, 2, &n), WEFT_INVALID_ARGUMENT, "belongs to another context");
  INVALID(weft_function_compile(ctx, f, NULL, "vax", WEFT_STRLEN, NULL, 0, NULL),
          "weft_function_compile: isa: 'vax' is not one of amx, avx512, avx2, portable, amx-model");
  INVALID(weft_function_stats(ctx, f, NULL, NULL, 1, &stats), "weft_function_stats: donated is NULL");
  INVALID(weft_function_stats(ctx, f, NULL, NULL, 0, NULL), "weft_function_stats: out is NULL");
  MUST(weft_function_begin(ctx, "body", WEFT_STRLEN, &kVector, 1, &body, &parameter));
  inputs[0] = parameter;
  FAILS_WITH(weft_function_run(ctx, f, inputs, 2, NULL, 0, y, 2, &n), WEFT_FAILED_PRECONDITION,
             "nothing has a value while a function is recorded");
  inputs[0] = x;
  FAILS_WITH(weft_function_run(body, f, inputs, 2, NULL, 0, y, 2, &n), WEFT_FAILED_PRECONDITION,
             "nothing has a value while a function is recorded");
  OK(weft_function_end(body, NULL, 0, &g)); /* nothing comes out: nothing runs */
  OK(weft_function_run(ctx, g, inputs, 1, kFirst, 0, NULL, 0, &n));
  CHECK_EQUAL(n, 0);
  CHECK(first(x) == 1); /* as before */
  weft_function_release(g);
  weft_tensor_release(parameter);
  weft_context_release(body);
  weft_context_release(other);
  weft_tensor_release(x);
  weft_tensor_release(s);
  weft_function_release(f);
}

/* Machine code for another machine goes to the disk, and is not run here. */
static void compiles_for_another_target(void) {
  const char* folder = getenv("TMPDIR");
  char cache[300];
  weft_setting settings[] = {{"cache_dir", WEFT_STRLEN, NULL, WEFT_STRLEN}, {"isa", WEFT_STRLEN, "avx2", WEFT_STRLEN}};
  weft_context_options options = WEFT_CONTEXT_OPTIONS_INIT;
  weft_context* ctx = NULL;
  weft_cache* store = NULL;
  weft_function* f;
  weft_tensor *x, *s, *y[2];
  int i;
  snprintf(cache, sizeof cache, "%s/weft_function_run_%d", folder != NULL ? folder : "/tmp", (int)(size_t)&i % 9973);
  settings[0].value = cache;
  options.settings = settings;
  options.setting_count = 2;
  MUST(weft_context_create(&options, &ctx));
  f = step_of(ctx);
  OK(weft_function_compile(ctx, f, NULL, "portable", WEFT_STRLEN, NULL, 0, NULL));
  MUST(weft_context_cache(ctx, &store));
  OK(weft_cache_flush(store));
  weft_cache_release(store);
  CHECK_EQUAL(metric(ctx, "programs_compiled"), 1);
  weft_function_release(f);
  weft_context_release(ctx);
  settings[1].value = "portable";
  MUST(weft_context_create(&options, &ctx));
  f = step_of(ctx);
  x = vector_of(ctx, 1), s = scalar(ctx, 2);
  run(ctx, f, x, s, 0, y);
  CHECK(first(y[0]) == 3);
  CHECK_EQUAL(metric(ctx, "programs_compiled"), 0);
  drop(y);
  weft_tensor_release(x);
  weft_tensor_release(s);
  weft_function_release(f);
  weft_context_release(ctx);
  {
    char command[320];
    snprintf(command, sizeof command, "rm -rf '%s'", cache);
    if (system(command) != 0) printf("could not remove %s\n", cache);
  }
}

/* x, w -> exp(x w): f32[4, 5] and f32[5, 6] */
static weft_error* trace_product(void* data, weft_context* body, weft_tensor* const* in, size_t count, weft_tensor** out,
                                 size_t capacity, size_t* out_count) {
  wf_scope* const s = wf_begin(body);
  (void)data, (void)count, (void)capacity;
  out[0] = wf_keep(s, wf_exp(s, wf_matmul(s, in[0], in[1])));
  *out_count = 1;
  return wf_end(s);
}
static void weighs(weft_context* ctx) {
  const weft_tensor_info types[2] = {{WEFT_F32, 2, {4, 5}}, {WEFT_F32, 2, {5, 6}}};
  weft_program_stats stats = WEFT_PROGRAM_STATS_INIT;
  weft_function* f = NULL;
  MUST(weft_function_trace(ctx, "product", WEFT_STRLEN, types, 2, trace_product, NULL, 1, &f));
  OK(weft_function_stats(ctx, f, NULL, NULL, 0, &stats));
  CHECK(stats.flops == 240 && stats.transcendentals == 24);
  CHECK_EQUAL(stats.argument_bytes, 200);
  CHECK_EQUAL(stats.result_bytes, 96);
  CHECK(stats.kernels >= 1);
  CHECK_EQUAL(stats.bytes_accessed, 0);
  weft_function_release(f);
}

static weft_error* trace_finite(void* data, weft_context* body, weft_tensor* const* in, size_t count, weft_tensor** out,
                                size_t capacity, size_t* out_count) {
  (void)data, (void)count, (void)capacity;
  *out_count = 1;
  return weft_is_finite(body, in[0], out);
}
static weft_error* trace_half(void* data, weft_context* body, weft_tensor* const* in, size_t count, weft_tensor** out, size_t capacity,
                              size_t* out_count) {
  wf_scope* const s = wf_begin(body);
  (void)data, (void)count, (void)capacity;
  out[0] = wf_keep(s, wf_mul(s, in[0], wf_scalar(s, WEFT_F32, 0.5)));
  *out_count = 1;
  return wf_end(s);
}
/* An endless loop and one that ends, under a deadline. */
static void ends_when_it_is_late(const char* platform) {
  weft_setting settings[] = {{"cache_mode", WEFT_STRLEN, "off", WEFT_STRLEN},
                             {"launch_deadline_ms", WEFT_STRLEN, "200", WEFT_STRLEN},
                             {"platform", WEFT_STRLEN, NULL, WEFT_STRLEN}};
  weft_context_options options = WEFT_CONTEXT_OPTIONS_INIT;
  weft_context* ctx = NULL;
  weft_function *finite = NULL, *half = NULL;
  weft_tensor *x, *y = NULL, *z = NULL;
  settings[2].value = platform;
  options.settings = settings;
  options.setting_count = 3;
  MUST(weft_context_create(&options, &ctx));
  x = scalar(ctx, 1);
  MUST(weft_function_trace(ctx, "finite", WEFT_STRLEN, &kScalar, 1, trace_finite, NULL, 1, &finite));
  MUST(weft_function_trace(ctx, "half", WEFT_STRLEN, &kScalar, 1, trace_half, NULL, 1, &half));
  MUST(weft_while(ctx, finite, half, &x, 1, &y));
  FAILS_WITH(weft_tensor_item_f64(y, (double[]){0}), WEFT_DEADLINE_EXCEEDED,
             "a launch was still running after 200 ms, the option launch_deadline_ms: what it was to compute has no value");
  weft_tensor_release(y);
  MUST(weft_add(ctx, x, x, &z)); /* the context goes on */
  CHECK(item(z) == 2);
  weft_tensor_release(z);
  weft_tensor_release(x);
  weft_function_release(finite);
  weft_function_release(half);
  weft_context_release(ctx);
}

/* x -> log(x) where there is one, by a function in a function */
static weft_error* trace_log(void* data, weft_context* body, weft_tensor* const* in, size_t count, weft_tensor** out, size_t capacity,
                             size_t* out_count) {
  (void)data, (void)count, (void)capacity;
  *out_count = 1;
  return weft_log(body, in[0], out);
}
static weft_error* trace_outer(void* data, weft_context* body, weft_tensor* const* in, size_t count, weft_tensor** out, size_t capacity,
                               size_t* out_count) {
  wf_scope* const s = wf_begin(body);
  weft_tensor* y[1];
  (void)count, (void)capacity;
  wf_call(s, data, WF_TENSORS(wf_add(s, in[0], in[0])), .outputs = y, .capacity = 1);
  out[0] = wf_keep(s, wf_neg(s, y[0]));
  *out_count = 1;
  return wf_end(s);
}
static void debug_mode_looks_into_calls(void) {
  static const char* const kPlatforms[] = {"cpu", "reference"};
  int p;
  for (p = 0; p < 2; ++p) {
    weft_context* ctx = context_on(kPlatforms[p], WEFT_MODE_DEBUG);
    weft_function *inner = NULL, *outer = NULL;
    weft_tensor *good = scalar(ctx, 2), *bad = scalar(ctx, -2), *y = NULL, *dy = NULL;
    size_t n = 0;
    MUST(weft_function_trace(ctx, "inner", WEFT_STRLEN, &kScalar, 1, trace_log, NULL, 1, &inner));
    MUST(weft_function_trace(ctx, "outer", WEFT_STRLEN, &kScalar, 1, trace_outer, inner, 1, &outer));
    OK(weft_tensor_require_grad(good, 1));
    OK(weft_function_call(ctx, outer, &good, 1, &y, 1, &n));
    CHECK(fabs(item(y) + log(4)) < 1e-6);
    OK(weft_grad(ctx, y, NULL, &good, 1, &dy));
    CHECK(fabs(item(dy) + 0.5) < 1e-6);
    weft_tensor_release(dy);
    weft_tensor_release(y);
    FAILS_WITH(weft_function_call(ctx, outer, &bad, 1, &y, 1, &n), WEFT_FAILED_PRECONDITION,
               "log(f32[]): element 0 of the result is NaN, and no operand holds one (debug mode), in @inner");
    weft_tensor_release(good);
    weft_tensor_release(bad);
    weft_function_release(inner);
    weft_function_release(outer);
    weft_context_release(ctx);
  }
}

int main(void) {
  static const char* const kPlatforms[] = {"cpu", "reference"};
  static const weft_mode kModes[] = {WEFT_MODE_LAZY, WEFT_MODE_EAGER, WEFT_MODE_DEBUG};
  int p, m;
  for (p = 0; p < 2; ++p) {
    for (m = 0; m < 3; ++m) {
      weft_context* ctx = context_on(kPlatforms[p], kModes[m]);
      if (p == 0 && m == 0) is_one_program(ctx);
      takes_what_is_donated(ctx);
      captures_and_draws(ctx);
      refuses(ctx);
      weighs(ctx);
      weft_context_release(ctx);
    }
    ends_when_it_is_late(kPlatforms[p]);
  }
  compiles_for_another_target();
  debug_mode_looks_into_calls();
  return done("function_run");
}
