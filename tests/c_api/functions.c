/* Functions as values: bodies, captures, calls, what is refused, and control flow made of them, with gradients. */
#include "check.h"

static const weft_tensor_info kScalar = {.dtype = WEFT_F32, .rank = 0};
static const weft_tensor_info kIndex = {.dtype = WEFT_I32, .rank = 0};
static const weft_tensor_info kThree = {.dtype = WEFT_F32, .rank = 1, .dims = {3}};

static void near_at(double have, double want, double tolerance, int line) {
  if (fabs(have - want) <= tolerance * (1 + fabs(want))) return;
  printf("%s:%d: %.9g, wanted %.9g\n", __FILE__, line, have, want);
  ++g_failures;
}
#define CHECK_NEAR(have, want, tolerance) near_at((have), (want), (tolerance), __LINE__)

static weft_tensor* count_of(weft_context* ctx, int64_t value) {
  weft_tensor* out = NULL;
  OK(weft_tensor_from_i64(ctx, WEFT_I32, value, &out));
  return out;
}
static weft_tensor* row(weft_context* ctx, const float* data, int64_t n) {
  weft_tensor* out = NULL;
  OK(weft_tensor_from_host(ctx, NULL, WEFT_F32, DIMS(n), data, (size_t)n * 4, &out));
  return out;
}
/* Reads and releases. */
static double item(weft_tensor* tensor) {
  double value = -12345;
  OK(weft_tensor_item_f64(tensor, &value));
  weft_tensor_release(tensor);
  return value;
}
/* Operations whose operands go. */
static weft_tensor* mul(weft_context* ctx, weft_tensor* x, weft_tensor* y) {
  weft_tensor* out = NULL;
  OK(weft_mul(ctx, x, y, &out));
  return out;
}

/* y = x * scale + bias: `scale` from outside the body, bias a literal made in it. */
typedef struct {
  weft_tensor* scale;
  double bias;
} affine;
static weft_error* trace_affine(void* data, weft_context* body, weft_tensor* const* parameters, size_t count,
                                weft_tensor** results, size_t capacity, size_t* out_count) {
  const affine* const a = data;
  weft_tensor *product = NULL, *bias = NULL;
  weft_error* error = weft_mul(body, parameters[0], a->scale, &product);
  CHECK(count == 1 && capacity >= 1);
  if (error == NULL) error = weft_tensor_from_f64(body, WEFT_F32, a->bias, &bias);
  if (error == NULL) error = weft_add(body, product, bias, results);
  weft_tensor_release(product);
  weft_tensor_release(bias);
  *out_count = error == NULL ? 1 : 0;
  return error;
}

static void calls_and_captures(weft_context* ctx) {
  affine a = {scalar(ctx, 3), 0.5};
  weft_tensor *y = NULL, *x = scalar(ctx, 2), *scale = NULL, *other = scalar(ctx, 10), *with[2];
  weft_function *f = NULL, *nothing = NULL;
  weft_tensor_info info;
  weft_context* body = NULL;
  weft_blob* text = NULL;
  size_t n = 99;
  OK(weft_function_trace(ctx, "affine", WEFT_STRLEN, &kScalar, 1, trace_affine, &a, 1, &f));
  OK(weft_function_inputs(f, &info, 1, &n));
  CHECK(n == 1 && info.dtype == WEFT_F32 && info.rank == 0);
  OK(weft_function_results(f, NULL, 0, &n));
  CHECK_EQUAL(n, 1);
  weft_function_retain(f);
  weft_function_release(f);
  OK(weft_function_captures(f, &scale, 1, &n));
  CHECK_EQUAL(n, 1);
  CHECK(item(scale) == 3);
  OK(weft_function_name(f, &text));
  CHECK(strcmp((const char*)weft_blob_data(text), "affine") == 0);
  weft_blob_release(text);
  OK(weft_function_text(f, WEFT_TEXT_IR, &text));
  CHECK(strstr((const char*)weft_blob_data(text), "func @affine(%0: tensor<f32> loc(\"weft_c_functions+0x") != NULL);
  CHECK(strstr((const char*)weft_blob_data(text), ", %1: tensor<f32>") != NULL);
  weft_blob_release(text);
  OK(weft_function_text(f, WEFT_TEXT_STABLEHLO, &text));
  CHECK(strstr((const char*)weft_blob_data(text), "stablehlo.multiply") != NULL);
  weft_blob_release(text);
  /* The capture is the value of then, whatever becomes of its tensor. */
  OK(weft_tensor_assign(a.scale, other));
  OK(weft_function_call(ctx, f, &x, 1, &y, 1, &n));
  CHECK(n == 1 && item(y) == 6.5);
  with[0] = x, with[1] = other;
  OK(weft_function_call(ctx, f, with, 2, &y, 1, &n));
  CHECK(item(y) == 20.5);
  with[1] = NULL;
  OK(weft_function_call(ctx, f, with, 2, &y, 1, &n));
  CHECK(item(y) == 6.5);
  FAILS_WITH(weft_function_call(ctx, f, with, 0, &y, 1, &n), WEFT_INVALID_ARGUMENT,
             "the function @affine takes 1 inputs, with its captures up to 2; there are 0");
  FAILS_WITH(weft_function_call(ctx, f, &x, 1, NULL, 0, &n), WEFT_OUT_OF_RANGE, "the function @affine has 1 results; capacity is 0");
  /* Results that are parameters, something from outside, the same twice; none at all. */
  OK(weft_function_begin(ctx, "odd", WEFT_STRLEN, &kScalar, 1, &body, &y));
  with[0] = y, with[1] = x;
  OK(weft_function_end(body, with, 2, &nothing));
  weft_context_release(body);
  weft_tensor_release(y);
  OK(weft_function_call(ctx, nothing, &other, 1, with, 2, &n));
  CHECK(n == 2 && item(with[0]) == 10);
  CHECK(item(with[1]) == 2);
  weft_function_release(nothing);
  OK(weft_function_begin(ctx, NULL, 0, &kScalar, 1, &body, &y));
  OK(weft_function_end(body, NULL, 0, &nothing));
  OK(weft_function_call(ctx, nothing, &x, 1, NULL, 0, &n));
  CHECK_EQUAL(n, 0);
  weft_function_release(nothing);
  weft_context_release(body);
  weft_tensor_release(y);
  weft_tensor_release(x);
  weft_tensor_release(other);
  weft_tensor_release(a.scale);
  weft_function_release(f);
}

/* What no body can do, by name; a body that is let go of is abandoned. */
static void refusals(weft_context* ctx) {
  weft_context *body = NULL, *inner = NULL, *other = context_on("reference", WEFT_MODE_DEFAULT);
  weft_tensor *p = NULL, *q = NULL, *outside = scalar(ctx, 1), *foreign = scalar(other, 1);
  weft_function *f = NULL, *g = NULL;
  float value = 0;
  size_t n = 0;
  const weft_tensor_info wrong = {.dtype = WEFT_F32, .rank = 40};
  FAILS_WITH(weft_function_begin(ctx, "two words", WEFT_STRLEN, NULL, 0, &body, NULL), WEFT_INVALID_ARGUMENT, "name 'two words'");
  FAILS_WITH(weft_function_begin(ctx, "f", WEFT_STRLEN, &wrong, 1, &body, &p), WEFT_INVALID_ARGUMENT, "inputs[0]: rank 40 is above 32");
  FAILS_WITH(weft_function_end(ctx, NULL, 0, &f), WEFT_FAILED_PRECONDITION, "weft_function_begin gives the context of a body");
  OK(weft_function_begin(ctx, "f", WEFT_STRLEN, &kScalar, 1, &body, &p));
  FAILS_WITH(weft_tensor_to_host(p, &value, 4), WEFT_FAILED_PRECONDITION, "in the body of @f: nothing has a value while a function is recorded");
  FAILS_WITH(weft_sync(body, NULL, NULL), WEFT_FAILED_PRECONDITION, "a barrier in the body of @f");
  FAILS_WITH(weft_eval(ctx, &p, 1, NULL), WEFT_FAILED_PRECONDITION, "in the body of @f");
  FAILS_WITH(weft_compile(body, NULL, NULL, 0, NULL), WEFT_FAILED_PRECONDITION, "compiling in the body of @f");
  FAILS_WITH(weft_tensor_require_grad(p, 1), WEFT_FAILED_PRECONDITION, "weft_grad takes any float or complex tensor there");
  FAILS_WITH(weft_tensor_assign(outside, p), WEFT_INVALID_ARGUMENT,
             "a body changes nothing outside");
  FAILS_WITH(weft_add(body, p, foreign, &q), WEFT_INVALID_ARGUMENT, "belongs to another context");
  OK(weft_function_begin(body, "inner", WEFT_STRLEN, NULL, 0, &inner, NULL));
  FAILS_WITH(weft_function_end(body, &p, 1, &f), WEFT_FAILED_PRECONDITION, "1 bodies inside it are neither finished nor abandoned");
  weft_context_release(inner);
  FAILS_WITH(weft_function_end(body, &foreign, 1, &f), WEFT_INVALID_ARGUMENT, "output 0 of @f belongs to another context");
  OK(weft_function_end(body, &p, 1, &f));
  FAILS_WITH(weft_function_end(body, &p, 1, &g), WEFT_FAILED_PRECONDITION, "the body of @f, which has been finished");
  FAILS_WITH(weft_neg(body, p, &q), WEFT_FAILED_PRECONDITION, "which has been finished");
  FAILS_WITH(weft_function_call(other, f, &foreign, 1, &q, 1, &n), WEFT_INVALID_ARGUMENT, "function: the function @f belongs to another context");
  OK(weft_function_abandon(body));
  weft_context_release(body);
  weft_tensor_release(p);
  OK(weft_function_begin(ctx, "g", WEFT_STRLEN, &kScalar, 1, &body, &p));
  OK(weft_function_abandon(body));
  FAILS_WITH(weft_neg(ctx, p, &q), WEFT_FAILED_PRECONDITION, "the body of @g, which has been abandoned");
  weft_context_release(body);
  weft_tensor_release(p);
  weft_function_release(f);
  weft_tensor_release(outside);
  weft_tensor_release(foreign);
  weft_context_release(other);
}

static weft_error* trace_failing(void* data, weft_context* body, weft_tensor* const* parameters, size_t count,
                                 weft_tensor** results, size_t capacity, size_t* out_count) {
  (void)body, (void)parameters, (void)count, (void)results, (void)capacity, (void)out_count;
  return data != NULL ? weft_error_new(WEFT_ABORTED, "enough", WEFT_STRLEN) : NULL;
}

static void failing_callbacks(weft_context* ctx) {
  weft_function* f = NULL;
  int said = 1;
  FAILS_WITH(weft_function_trace(ctx, NULL, 0, NULL, 0, trace_failing, &said, 1, &f), WEFT_ABORTED, "enough");
  CHECK(f == NULL);
}

enum { MANY = 9 };
static const uint64_t kData[MANY] = {0, 1, 0x7FFFFFFFFFFFFFFF, 0x8000000000000000, UINT64_MAX, 42, 0xDEADBEEFCAFEF00D, 7, 8};

/* The innermost trace fails; every other one hands its callee's error on. */
static weft_error* trace_nested(void* data, weft_context* body, weft_tensor* const* parameters, size_t count, weft_tensor** results,
                                size_t capacity, size_t* out_count) {
  const uint64_t** at = data;
  weft_function* inner = NULL;
  (void)parameters, (void)count, (void)results, (void)capacity, (void)out_count;
  if (*at == kData + MANY || **at % 2 == 1) return weft_error_new_with_data(WEFT_ABORTED, "an exception", WEFT_STRLEN, kData[(*at - kData) % MANY]);
  ++*at;
  return weft_function_trace(body, NULL, 0, NULL, 0, trace_nested, data, 1, &inner);
}

static void an_errors_data_arrives(weft_context* ctx) {
  uint64_t data = 5;
  int i;
  for (i = 0; i < MANY; ++i) {
    const uint64_t* at = kData + i;
    const uint64_t* const begin = at;
    weft_function* f = NULL;
    wf_scope* s = wf_begin(ctx);
    weft_error *e = weft_function_trace(ctx, "f", WEFT_STRLEN, NULL, 0, trace_nested, &at, 1, &f), *again;
    CHECK(f == NULL && at >= begin);
    CHECK_EQUAL(weft_error_code(e), WEFT_ABORTED);
    CHECK(strstr(weft_error_message(e, NULL), "an exception") != NULL);
    CHECK(weft_error_data(e, &data) == 1 && data == kData[(at - kData) % MANY]);
    CHECK(weft_error_payload(e, "weft.data", WEFT_STRLEN, NULL) != NULL);
    /* through a scope, too */
    weft_scope_adopt(s, e, NULL);
    again = wf_end(s);
    CHECK(weft_error_data(again, &data) == 1 && data == kData[(at - kData) % MANY]);
    weft_error_release(again);
  }
  data = 5;
  {
    weft_error* plain = weft_error_new(WEFT_ABORTED, "no number", WEFT_STRLEN);
    CHECK(weft_error_data(plain, &data) == 0 && data == 5);
    weft_error_release(plain);
    CHECK(weft_error_data(NULL, &data) == 0 && weft_error_data(plain, &data) == 0 && data == 5);
  }
}

/* --- Control flow ------------------------------------------------------------------------------------------------------ */

static weft_error* trace_below_hundred(void* data, weft_context* body, weft_tensor* const* p, size_t count, weft_tensor** results,
                                       size_t capacity, size_t* out_count) {
  weft_tensor* limit = NULL;
  weft_error* error = weft_tensor_from_f64(body, WEFT_F32, 100, &limit);
  (void)data, (void)count, (void)capacity;
  if (error == NULL) error = weft_lt(body, p[0], limit, results);
  weft_tensor_release(limit);
  *out_count = error == NULL;
  return error;
}

static weft_function* trace(weft_context* ctx, const char* name, const weft_tensor_info* inputs, size_t count, weft_trace_fn fn, void* data) {
  weft_function* f = NULL;
  MUST(weft_function_trace(ctx, name, WEFT_STRLEN, inputs, count, fn, data, 8, &f));
  return f;
}

static void loops_and_branches(weft_context* ctx) {
  affine a = {scalar(ctx, 3), 1};
  weft_tensor *x = scalar(ctx, 1), *y = NULL, *pred = NULL, *index = count_of(ctx, 1), *gradient[2];
  weft_function* const goes_on = trace(ctx, "below", &kScalar, 1, trace_below_hundred, NULL);
  weft_function* const step = trace(ctx, "step", &kScalar, 1, trace_affine, &a);
  weft_function* const branches[] = {goes_on, step};
  weft_function* same[2] = {step, step};
  size_t n = 0;
  OK(weft_while(ctx, goes_on, step, &x, 1, &y));
  CHECK(item(y) == 121); /* 1 4 13 40 121 */
  FAILS_WITH(weft_while(ctx, step, step, &x, 1, &y), WEFT_INVALID_ARGUMENT, "a condition is one bool scalar");
  FAILS_WITH(weft_while(ctx, goes_on, goes_on, &x, 1, &y), WEFT_INVALID_ARGUMENT, "carried value 0 begins as f32[] and goes on as bool[]");
  FAILS_WITH(weft_case(ctx, index, branches, 2, &x, 1, &y, 1, &n), WEFT_INVALID_ARGUMENT, "they must be of one type");
  FAILS_WITH(weft_case(ctx, index, NULL, 0, &x, 1, &y, 1, &n), WEFT_INVALID_ARGUMENT, "at least one function");
  FAILS_WITH(weft_if(ctx, x, step, step, &x, 1, &y, 1, &n), WEFT_INVALID_ARGUMENT, "pred");
  OK(weft_case(ctx, index, same, 2, &x, 1, &y, 1, &n));
  CHECK(item(y) == 4);
  /* d/dx and d/dscale of if (x > 0) 3 x + 1 else x */
  OK(weft_tensor_require_grad(x, 1));
  OK(weft_tensor_require_grad(a.scale, 1));
  {
    weft_function* const captures = trace(ctx, "step", &kScalar, 1, trace_affine, &a);
    weft_tensor* const xs[] = {x, a.scale};
    weft_context* body = NULL;
    weft_tensor* p = NULL;
    weft_function* identity = NULL;
    OK(weft_function_begin(ctx, "identity", WEFT_STRLEN, &kScalar, 1, &body, &p));
    OK(weft_function_end(body, &p, 1, &identity));
    weft_context_release(body);
    weft_tensor_release(p);
    OK(weft_is_finite(ctx, x, &pred));
    OK(weft_if(ctx, pred, captures, identity, &x, 1, &y, 1, &n));
    OK(weft_grad(ctx, y, NULL, xs, 2, gradient));
    CHECK(item(gradient[0]) == 3);
    CHECK(item(gradient[1]) == 1);
    CHECK(item(y) == 4);
    weft_function_release(captures);
    weft_function_release(identity);
    weft_tensor_release(pred);
  }
  OK(weft_while(ctx, goes_on, step, &x, 1, &y));
  FAILS_WITH(weft_grad(ctx, y, NULL, &x, 1, gradient), WEFT_UNIMPLEMENTED, "a loop without a known number of iterations");
  weft_tensor_release(y);
  weft_tensor_release(x);
  weft_tensor_release(index);
  weft_tensor_release(a.scale);
  weft_function_release(goes_on);
  weft_function_release(step);
}

/* carry' = carry * w + x, and it comes out each time, times the captured scale. */
static weft_error* trace_recurrence(void* data, weft_context* body, weft_tensor* const* p, size_t count, weft_tensor** results,
                                    size_t capacity, size_t* out_count) {
  weft_tensor *product = NULL, *tanh = NULL;
  weft_error* error = weft_mul(body, p[0], data, &product);
  CHECK(count == 2 && capacity == 8);
  if (error == NULL) error = weft_add(body, product, p[1], &tanh);
  if (error == NULL) error = weft_tanh(body, tanh, &results[0]);
  if (error == NULL) error = weft_mul(body, results[0], data, &results[1]);
  *out_count = error == NULL ? 2 : 0;
  weft_tensor_release(product);
  weft_tensor_release(tanh);
  return error;
}

enum { kSteps = 5 };
/* The sum of the last carry and all that came out, by hand. */
static double recurrence(const double* x, double h, double w, int reverse) {
  double sum = 0;
  for (int i = 0; i < kSteps; ++i) {
    h = tanh(h * w + x[reverse ? kSteps - 1 - i : i]);
    sum += h * w * (1 + (reverse ? kSteps - 1 - i : i));
  }
  return sum + h;
}

static weft_tensor* loss_of(weft_context* ctx, weft_function* f, weft_tensor* h, weft_tensor* xs, const weft_scan_options* options) {
  const float by[kSteps] = {1, 2, 3, 4, 5};
  weft_tensor *out[2], *weights = row(ctx, by, kSteps), *weighted = NULL, *sum = NULL, *loss = NULL;
  size_t n = 0;
  MUST(weft_scan(ctx, f, &h, 1, &xs, 1, options, out, 2, &n));
  CHECK_EQUAL(n, 2);
  weighted = mul(ctx, out[1], weights);
  OK(weft_sum(ctx, weighted, NULL, &sum));
  OK(weft_add(ctx, sum, out[0], &loss));
  weft_tensor_release(weights);
  weft_tensor_release(weighted);
  weft_tensor_release(sum);
  weft_tensor_release(out[0]);
  weft_tensor_release(out[1]);
  return loss;
}

static void scans(weft_context* ctx, int reverse, int64_t unroll, int64_t keep_every) {
  const float data[kSteps] = {0.5f, -0.25f, 0.125f, 1, -0.75f};
  double x[kSteps];
  const double h0 = 0.25, w0 = 0.75, step = 1e-4;
  weft_tensor *h = scalar(ctx, h0), *w = scalar(ctx, w0), *xs = row(ctx, data, kSteps), *loss = NULL, *grads[3], *second[2];
  weft_scan_options options = WEFT_SCAN_OPTIONS_INIT;
  weft_function* f = NULL;
  float dx[kSteps];
  options.reverse = reverse;
  options.unroll = unroll;
  options.keep_every = keep_every;
  for (int i = 0; i < kSteps; ++i) x[i] = data[i];
  OK(weft_tensor_require_grad(h, 1));
  OK(weft_tensor_require_grad(w, 1));
  OK(weft_tensor_require_grad(xs, 1));
  f = trace(ctx, "cell", (const weft_tensor_info[]){kScalar, kScalar}, 2, trace_recurrence, w);
  loss = loss_of(ctx, f, h, xs, &options);
  {
    weft_tensor* const wrt[] = {h, w, xs};
    OK(weft_grad(ctx, loss, NULL, wrt, 3, grads));
    /* d2/dw dh and d2/dw2 */
    OK(weft_grad(ctx, grads[1], NULL, wrt, 2, second));
  }
  CHECK_NEAR(item(loss), recurrence(x, h0, w0, reverse), 1e-6);
  CHECK_NEAR(item(grads[0]), (recurrence(x, h0 + step, w0, reverse) - recurrence(x, h0 - step, w0, reverse)) / (2 * step), 1e-5);
  CHECK_NEAR(item(grads[1]), (recurrence(x, h0, w0 + step, reverse) - recurrence(x, h0, w0 - step, reverse)) / (2 * step), 1e-5);
  OK(weft_tensor_to_host(grads[2], dx, sizeof dx));
  weft_tensor_release(grads[2]);
  for (int i = 0; i < kSteps; ++i) {
    double up, down;
    x[i] += step, up = recurrence(x, h0, w0, reverse);
    x[i] -= 2 * step, down = recurrence(x, h0, w0, reverse);
    x[i] += step;
    CHECK_NEAR(dx[i], (up - down) / (2 * step), 1e-5);
  }
  {
    const double d = 1e-3;
    const double hw = (recurrence(x, h0 + d, w0 + d, reverse) - recurrence(x, h0 - d, w0 + d, reverse) - recurrence(x, h0 + d, w0 - d, reverse) +
                       recurrence(x, h0 - d, w0 - d, reverse)) /
                      (4 * d * d);
    const double ww = (recurrence(x, h0, w0 + d, reverse) - 2 * recurrence(x, h0, w0, reverse) + recurrence(x, h0, w0 - d, reverse)) / (d * d);
    CHECK_NEAR(item(second[0]), hw, 1e-4);
    CHECK_NEAR(item(second[1]), ww, 1e-4);
  }
  weft_function_release(f);
  weft_tensor_release(h);
  weft_tensor_release(w);
  weft_tensor_release(xs);
}

/* y' = y * x + i */
static weft_error* trace_horner(void* data, weft_context* body, weft_tensor* const* p, size_t count, weft_tensor** results,
                                size_t capacity, size_t* out_count) {
  weft_tensor *product = NULL, *index = NULL;
  weft_error* error = weft_mul(body, p[1], data, &product);
  (void)count, (void)capacity;
  if (error == NULL) error = weft_convert(body, p[0], WEFT_F32, &index);
  if (error == NULL) error = weft_add(body, product, index, results);
  weft_tensor_release(product);
  weft_tensor_release(index);
  *out_count = error == NULL;
  return error;
}

static double horner(double y, double x, int n) {
  for (int i = 0; i < n; ++i) y = y * x + i;
  return y;
}

static void counted_loops(weft_context* ctx) {
  weft_tensor *x = scalar(ctx, 1.5), *y = scalar(ctx, 2), *n = NULL, *out = NULL, *grads[2];
  weft_tensor* wrt[2];
  weft_for_options options = WEFT_FOR_OPTIONS_INIT;
  weft_function* f = NULL;
  OK(weft_tensor_require_grad(x, 1));
  OK(weft_tensor_require_grad(y, 1));
  wrt[0] = x, wrt[1] = y;
  f = trace(ctx, "horner", (const weft_tensor_info[]){kIndex, kScalar}, 2, trace_horner, x);
  for (int runs = 0; runs < 7; ++runs) {
    const double d = 1e-5;
    n = count_of(ctx, runs);
    options.max_count = 6;
    OK(weft_for(ctx, n, f, &y, 1, &options, &out));
    OK(weft_grad(ctx, out, NULL, wrt, 2, grads));
    CHECK_NEAR(item(out), horner(2, 1.5, runs), 1e-5);
    CHECK_NEAR(item(grads[0]), (horner(2, 1.5 + d, runs) - horner(2, 1.5 - d, runs)) / (2 * d), 1e-4);
    CHECK_NEAR(item(grads[1]), (horner(2 + d, 1.5, runs) - horner(2 - d, 1.5, runs)) / (2 * d), 1e-4);
    OK(weft_for(ctx, n, f, &y, 1, NULL, &out));
    FAILS_WITH(weft_grad(ctx, out, NULL, wrt, 2, grads), WEFT_UNIMPLEMENTED, "max_count");
    CHECK_NEAR(item(out), horner(2, 1.5, runs), 1e-5);
    weft_tensor_release(n);
  }
  weft_tensor_release(x);
  weft_tensor_release(y);
  weft_function_release(f);
}

static void bad_scans(weft_context* ctx) {
  const float data[3] = {1, 2, 3};
  weft_tensor *w = scalar(ctx, 1), *xs = row(ctx, data, 3), *out[2];
  weft_function* const f = trace(ctx, "cell", (const weft_tensor_info[]){kScalar, kScalar}, 2, trace_recurrence, w);
  weft_function* const rows = trace(ctx, "rows", (const weft_tensor_info[]){kScalar, kThree}, 2, trace_recurrence, w);
  weft_scan_options options = WEFT_SCAN_OPTIONS_INIT;
  size_t n = 0;
  FAILS_WITH(weft_scan(ctx, f, &w, 1, &w, 1, NULL, out, 2, &n), WEFT_INVALID_ARGUMENT, "scanned[0] is a scalar");
  FAILS_WITH(weft_scan(ctx, f, &w, 1, NULL, 0, NULL, out, 2, &n), WEFT_INVALID_ARGUMENT, "the function @cell takes 2 inputs; it gets 1");
  FAILS_WITH(weft_scan(ctx, f, &w, 1, &xs, 1, NULL, out, 1, &n), WEFT_OUT_OF_RANGE, "capacity is 1");
  FAILS_WITH(weft_scan(ctx, rows, &w, 1, &xs, 1, NULL, out, 2, &n), WEFT_INVALID_ARGUMENT, "scanned tensor 0 is f32[3]; the function @rows takes slices f32[3], for 3 of which it must be f32[3, 3]");
  options.length = 4;
  FAILS_WITH(weft_scan(ctx, f, &w, 1, &xs, 1, &options, out, 2, &n), WEFT_INVALID_ARGUMENT, "weft_scan_options.length is 4");
  weft_function_release(f);
  weft_function_release(rows);
  weft_tensor_release(w);
  weft_tensor_release(xs);
}

int main(void) {
  static const char* const kPlatforms[] = {"reference", "cpu"};
  for (int i = 0; i < 2; ++i) {
    for (weft_mode mode = WEFT_MODE_LAZY; mode <= WEFT_MODE_DEBUG; ++mode) {
      weft_context* const ctx = context_on(kPlatforms[i], mode);
      calls_and_captures(ctx);
      refusals(ctx);
      failing_callbacks(ctx);
  an_errors_data_arrives(ctx);
      loops_and_branches(ctx);
      scans(ctx, 0, 0, 0);
      scans(ctx, 1, 0, 1);
      scans(ctx, 0, 2, 0);
      scans(ctx, 1, 8, 0);
      scans(ctx, 0, 0, -1); /* segments of 3 runs and of 2 */
      scans(ctx, 1, 2, 2);
      scans(ctx, 0, 0, 9);
      counted_loops(ctx);
      bad_scans(ctx);
      weft_context_release(ctx);
    }
  }
  return done("functions");
}
