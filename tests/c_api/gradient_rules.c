/* weft_function_checkpoint and _custom_gradient: less memory for the same bits, rules of one's own, in one another, and what is refused. */
#include "check.h"

#define LAYERS 24
#define ROWS 512
#define WIDTH 32

static const weft_tensor_info kNumber = {.dtype = WEFT_F32, .rank = 0};
static const weft_tensor_info kThree = {.dtype = WEFT_F32, .rank = 1, .dims = {3}};
static const weft_tensor_info kRows = {.dtype = WEFT_F32, .rank = 2, .dims = {ROWS, WIDTH}};
static const weft_tensor_info kSquare = {.dtype = WEFT_F32, .rank = 2, .dims = {WIDTH, WIDTH}};

static weft_error* give(wf_scope* s, weft_tensor* const* made, size_t n, weft_tensor** out, size_t* count) {
  for (size_t i = 0; i < n; ++i) out[i] = wf_keep(s, made[i]);
  *count = n;
  return wf_end(s);
}
#define BODY(name) \
  static weft_error* name(void* user, weft_context* body, weft_tensor* const* in, size_t n, weft_tensor** out, size_t capacity, size_t* count)
#define GIVE(...) return (void)user, (void)n, (void)capacity, give(s, (weft_tensor*[]){__VA_ARGS__}, sizeof((weft_tensor*[]){__VA_ARGS__}) / sizeof(weft_tensor*), out, count)

static weft_function* trace(weft_context* ctx, const char* name, const weft_tensor_info* types, size_t count, weft_trace_fn body, void* user) {
  weft_function* f = NULL;
  OK(weft_function_trace(ctx, name, WEFT_STRLEN, types, count, body, user, 4, &f));
  return f;
}

/* (x, w) -> x + tanh(exp(-(x w)^2)) */
BODY(layer) {
  wf_scope* s = wf_begin(body);
  weft_tensor* y = wf_matmul(s, in[0], in[1]);
  weft_tensor* z = wf_add(s, in[0], wf_tanh(s, wf_exp(s, wf_neg(s, wf_mul(s, y, y)))));
  GIVE(z);
}
/* (x, w) -> the mean of many layers. */
BODY(deep) {
  weft_function* one = user;
  weft_tensor *x = in[0], *next = NULL;
  for (int i = 0; i < LAYERS; ++i) {
    size_t results = 0;
    OK(weft_function_call(body, one, (weft_tensor*[]){x, in[1]}, 2, &next, 1, &results));
    if (i > 0) weft_tensor_release(x);
    x = next;
  }
  wf_scope* s = wf_begin(body);
  weft_tensor* mean = wf_mean(s, x);
  weft_tensor_release(x);
  GIVE(mean);
}

static weft_function* slopes(weft_context* ctx, weft_function* loss) {
  weft_derivative_options options = WEFT_DERIVATIVE_OPTIONS_INIT;
  weft_function* made = NULL;
  options.values = 1;
  OK(weft_function_grad(ctx, loss, NULL, 0, &options, &made));
  return made;
}

static void less_memory_for_the_same_bits(weft_context* ctx) {
  static float x[ROWS * WIDTH], w[WIDTH * WIDTH], found[3][1 + ROWS * WIDTH + WIDTH * WIDTH];
  weft_tensor *in[2] = {NULL}, *out[3] = {NULL};
  double flops[3] = {0};
  uint64_t bytes[3] = {0};
  for (int i = 0; i < ROWS * WIDTH; ++i) x[i] = (float)(i * 37 % 101) / 101 - 0.5f;
  for (int i = 0; i < WIDTH * WIDTH; ++i) w[i] = (float)(i * 53 % 97) / 97 - 0.5f;
  OK(weft_tensor_from_host(ctx, NULL, WEFT_F32, DIMS(ROWS, WIDTH), x, sizeof x, &in[0]));
  OK(weft_tensor_from_host(ctx, NULL, WEFT_F32, DIMS(WIDTH, WIDTH), w, sizeof w, &in[1]));
  weft_function* plain = trace(ctx, "layer", (const weft_tensor_info[]){kRows, kSquare}, 2, layer, NULL);
  for (int kept = 0; kept < 3; ++kept) {
    weft_program_stats stats = WEFT_PROGRAM_STATS_INIT;
    weft_function* one = plain;
    size_t count = 0;
    if (kept > 0) OK(weft_function_checkpoint(ctx, plain, kept == 1 ? WEFT_KEEP_INPUTS : WEFT_KEEP_PRODUCTS, &one));
    weft_function* loss = trace(ctx, "deep", (const weft_tensor_info[]){kRows, kSquare}, 2, deep, one);
    weft_function* step = slopes(ctx, loss);
    OK(weft_function_run(ctx, step, in, 2, NULL, 0, out, 3, &count));
    OK(weft_tensor_to_host(out[0], found[kept], 4));
    OK(weft_tensor_to_host(out[1], found[kept] + 1, sizeof x));
    OK(weft_tensor_to_host(out[2], found[kept] + 1 + ROWS * WIDTH, sizeof w));
    for (int i = 0; i < 3; ++i) weft_tensor_release(out[i]);
    OK(weft_function_stats(ctx, step, NULL, NULL, 0, &stats));
    bytes[kept] = stats.temporary_bytes;
    flops[kept] = stats.flops;
    weft_function_release(step);
    weft_function_release(loss);
    if (kept > 0) weft_function_release(one);
  }
  const double products = 2.0 * ROWS * WIDTH * WIDTH * LAYERS;
  CHECK(memcmp(found[0], found[1], sizeof found[0]) == 0);
  CHECK(memcmp(found[0], found[2], sizeof found[0]) == 0);
  printf("temporary bytes %llu, %llu with inputs alone, %llu with products; flops %.3g, %.3g, %.3g\n", (unsigned long long)bytes[0],
         (unsigned long long)bytes[1], (unsigned long long)bytes[2], flops[0], flops[1], flops[2]);
  /* Not what is inside of a layer. */
  CHECK(bytes[1] < bytes[0] * 0.6);
  CHECK(bytes[2] < bytes[0] * 0.6);
  /* Each product of the forward runs again. */
  CHECK(flops[1] >= flops[0] + 0.9 * products);
  /* None does that is kept: the rest is what is done on elements, 7 operations on each. */
  CHECK(flops[2] <= flops[0] + 7.0 * ROWS * WIDTH * LAYERS);
  weft_function_release(plain);
  weft_tensor_release(in[0]);
  weft_tensor_release(in[1]);
}

/* x -> x sin x */
BODY(wave) {
  wf_scope* s = wf_begin(body);
  weft_tensor* y = wf_mul(s, in[0], wf_sin(s, in[0]));
  GIVE(y);
}
/* x -> wave(x), x, and what backward reads: x and cos x */
BODY(wave_ahead) {
  wf_scope* s = wf_begin(body);
  weft_tensor *y = wf_mul(s, in[0], wf_sin(s, in[0])), *c = wf_cos(s, in[0]);
  weft_tensor* x = wf_copy(s, in[0]);
  GIVE(y, x, c);
}
/* (x, cos x, g) -> 100 g x cos x: not the derivative, so that one sees whose rule it is. */
BODY(wave_back) {
  wf_scope* s = wf_begin(body);
  weft_tensor* g = wf_mul_n(s, wf_mul(s, in[2], wf_mul(s, in[0], in[1])), 100);
  GIVE(g);
}
BODY(noisy_back) {
  wf_scope* s = wf_begin(body);
  weft_tensor* g = wf_mul(s, in[2], wf_uniform(s, WF_INTS(3)));
  GIVE(g);
}
BODY(total) {
  weft_tensor* y = NULL;
  size_t results = 0;
  OK(weft_function_call(body, (weft_function*)user, in, 1, &y, 1, &results));
  wf_scope* s = wf_begin(body);
  weft_tensor* sum = wf_sum(s, y);
  weft_tensor_release(y);
  GIVE(sum);
}
BODY(times_captured) {
  wf_scope* s = wf_begin(body);
  weft_tensor* y = wf_mul(s, in[0], (weft_tensor*)user);
  GIVE(y);
}
BODY(itself) {
  wf_scope* s = wf_begin(body);
  weft_tensor* y = wf_copy(s, in[0]);
  GIVE(y);
}

static void near(weft_tensor* tensor, size_t count, const double* wanted) {
  float found[8] = {0};
  OK(weft_tensor_to_host(tensor, found, count * 4));
  for (size_t i = 0; i < count; ++i) CHECK(fabs(found[i] - wanted[i]) <= 1e-4 * (1 + fabs(wanted[i])));
  weft_tensor_release(tensor);
}

static void rules_of_ones_own(weft_context* ctx) {
  const weft_tensor_info back_types[] = {kThree, kThree, kThree};
  const float data[] = {0.5f, -1, 2};
  weft_tensor *x = NULL, *rows = NULL, *out[2] = {NULL};
  double first[3], second[3], both[6];
  size_t count = 0;
  OK(weft_tensor_from_host(ctx, NULL, WEFT_F32, DIMS(3), data, sizeof data, &x));
  OK(weft_tensor_from_host(ctx, NULL, WEFT_F32, DIMS(2, 3), (const float[]){0.5f, -1, 2, 0.5f, -1, 2}, 24, &rows));
  for (int i = 0; i < 3; ++i) {
    first[i] = 100 * data[i] * cos(data[i]);
    second[i] = 100 * (cos(data[i]) - data[i] * sin(data[i]));
    both[i] = both[3 + i] = first[i];
  }
  weft_function *f = trace(ctx, "wave", &kThree, 1, wave, NULL), *ahead = trace(ctx, "ahead", &kThree, 1, wave_ahead, NULL);
  weft_function *back = trace(ctx, "back", back_types, 3, wave_back, NULL), *ruled = NULL, *grad = NULL, *again = NULL, *many = NULL;
  OK(weft_function_custom_gradient(ctx, f, ahead, back, &ruled));
  weft_function* sum = trace(ctx, "total", &kThree, 1, total, ruled);
  OK(weft_function_call(ctx, ruled, &x, 1, out, 1, &count));
  near(out[0], 3, (const double[]){0.5 * sin(0.5), sin(1), 2 * sin(2)});
  /* Through grad, through a checkpoint, and through a recorded call. */
  OK(weft_function_grad(ctx, sum, NULL, 0, NULL, &grad));
  OK(weft_function_call(ctx, grad, &x, 1, out, 1, &count));
  near(out[0], 3, first);
  OK(weft_function_checkpoint(ctx, sum, WEFT_KEEP_INPUTS, &again));
  OK(weft_function_grad(ctx, again, NULL, 0, NULL, &many));
  OK(weft_function_call(ctx, many, &x, 1, out, 1, &count));
  near(out[0], 3, first);
  weft_function_release(many);
  weft_function_release(again);
  OK(weft_tensor_require_grad(x, 1));
  OK(weft_function_call(ctx, sum, &x, 1, out, 1, &count));
  OK(weft_grad(ctx, out[0], NULL, &x, 1, &out[1]));
  weft_tensor_release(out[0]);
  near(out[1], 3, first);
  /* The second derivative is that of forward and backward. */
  weft_function* slope = trace(ctx, "slope", &kThree, 1, total, grad);
  OK(weft_function_grad(ctx, slope, NULL, 0, NULL, &again));
  OK(weft_function_call(ctx, again, &x, 1, out, 1, &count));
  near(out[0], 3, second);
  weft_function_release(again);
  again = NULL;
  FAILS(weft_function_jvp(ctx, sum, NULL, 0, NULL, &again), WEFT_UNIMPLEMENTED,
      "weft_function_jvp: the function @wave has a custom gradient, whose backward function is for reverse mode");
  OK(weft_function_vmap(ctx, grad, 2, NULL, 0, NULL, 0, NULL, &many));
  OK(weft_function_call(ctx, many, &rows, 1, out, 1, &count));
  near(out[0], 6, both);
  weft_function_release(many);
  /* vmap of the function itself: its rule goes along. */
  OK(weft_function_vmap(ctx, sum, 2, NULL, 0, NULL, 0, NULL, &many));
  OK(weft_function_vjp(ctx, many, NULL, 0, NULL, &again));
  weft_tensor* two = NULL;
  OK(weft_full(ctx, DIMS(2), 1, NULL, &two));
  OK(weft_function_call(ctx, again, (weft_tensor*[]){rows, two}, 2, out, 1, &count));
  near(out[0], 6, both);
  for (weft_function** p = (weft_function*[]){f, ahead, back, ruled, sum, grad, slope, many, again, NULL}; *p != NULL; ++p) weft_function_release(*p);
  for (weft_tensor** p = (weft_tensor*[]){x, rows, two, NULL}; *p != NULL; ++p) weft_tensor_release(*p);
}

static void what_does_not_fit_is_said(weft_context* ctx) {
  const weft_tensor_info three[] = {kThree, kThree, kThree}, mixed[] = {kThree, kNumber, kThree}, last[] = {kThree, kThree, kNumber};
  weft_function *f = trace(ctx, "wave", &kThree, 1, wave, NULL), *ahead = trace(ctx, "ahead", &kThree, 1, wave_ahead, NULL), *out = NULL;
  weft_function *back = trace(ctx, "back", three, 3, wave_back, NULL), *number = trace(ctx, "number", &kNumber, 1, itself, NULL);
  weft_function *two = trace(ctx, "two", three, 2, itself, NULL), *mix = trace(ctx, "mix", mixed, 3, itself, NULL);
  weft_function *end = trace(ctx, "end", last, 3, itself, NULL), *more = trace(ctx, "more", three, 3, wave_ahead, NULL);
  weft_function *noisy = trace(ctx, "noisy", three, 3, noisy_back, NULL), *sum = trace(ctx, "sum", &kThree, 1, total, f);
  weft_function* scaled = NULL;
#define REFUSED(f, ahead, back, text) FAILS(weft_function_custom_gradient(ctx, f, ahead, back, &out), WEFT_INVALID_ARGUMENT, "weft_function_custom_gradient: " text)
  REFUSED(f, two, back, "the forward function @two takes 2 inputs; the function @wave takes 1, and forward the same");
  REFUSED(f, number, back, "input 0 of the forward function @number is f32[]; it is that of @wave, f32[3]");
  REFUSED(f, sum, back, "result 0 of the forward function @sum is f32[]; it is that of @wave, f32[3]");
  REFUSED(ahead, f, back, "the forward function @wave has 1 results; the 3 of @ahead come first, then what backward reads");
  REFUSED(f, ahead, f, "the backward function @wave takes 1 inputs; it takes 3: 2 that @ahead gives behind the results, and a cotangent for each of the 1 float or complex results");
  REFUSED(f, ahead, mix, "input 1 of the backward function @mix is f32[]; it is result 2 of @ahead, f32[3]");
  REFUSED(f, ahead, end, "input 2 of the backward function @end is f32[]; it is the cotangent of result 0, f32[3]");
  REFUSED(f, ahead, more, "the backward function @more has 3 results; it has one for each of the 1 float or complex inputs of @wave");
  REFUSED(f, f, sum, "result 0 of the backward function @sum is f32[]; it is the cotangent of input 0, f32[3]");
  REFUSED(f, ahead, noisy, "the backward function @noisy draws random numbers: forward can draw them and give them as residuals");
  FAILS(weft_function_checkpoint(ctx, f, (weft_keep)2, &out), WEFT_INVALID_ARGUMENT, "weft_function_checkpoint: keep is 2; it is 0 or 1");
  CHECK(out == NULL);
  /* What is captured is no input. */
  weft_tensor *c = NULL, *x = NULL, *y = NULL, *slope = NULL;
  size_t count = 0;
  OK(weft_full(ctx, DIMS(3), 2, NULL, &c));
  OK(weft_full(ctx, DIMS(3), 2, NULL, &x));
  OK(weft_tensor_require_grad(c, 1));
  weft_function* captures = trace(ctx, "captures", &kThree, 1, times_captured, c);
  OK(weft_function_custom_gradient(ctx, captures, captures, captures, &scaled));
  OK(weft_function_call(ctx, scaled, &x, 1, &y, 1, &count));
  FAILS_WITH(weft_grad(ctx, y, x, &c, 1, &slope), WEFT_INVALID_ARGUMENT,
      "a gradient is asked for with respect to what the function @captures or its rules captured (operand 1, f32[3]), and backward gives those of inputs: make it an input, or end the gradient with stop_gradient");
  for (weft_function** p = (weft_function*[]){f, ahead, back, number, two, mix, end, more, noisy, sum, captures, scaled, NULL}; *p != NULL; ++p) weft_function_release(*p);
  for (weft_tensor** p = (weft_tensor*[]){c, x, y, NULL}; *p != NULL; ++p) weft_tensor_release(*p);
}

int main(void) {
  weft_context* ctx = new_context();
  less_memory_for_the_same_bits(ctx);
  rules_of_ones_own(ctx);
  what_does_not_fit_is_said(ctx);
  weft_context_release(ctx);
  return done("gradient_rules");
}
