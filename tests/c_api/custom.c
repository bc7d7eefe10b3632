/* Custom operations: functions of elements and of buffers, shapes, gradients, vmap, loops, threads, failures, text, and that what
 * was handed over ends once. */
#include <stdint.h>

#include "check.h"

double lgamma_r(double x, int* sign); /* of libm */

#define ADDRESS(function) ((void*)(uintptr_t)(function))

/* Of the context in hand: a plugin's programs cannot call functions, the engine does between two of them. */
static int g_plugin = 0;
static const char kNotInLoops[] = "it is called in a loop, in a branch or for each example";

static int g_released = 0;
static void released(void* user_data) {
  (void)user_data;
  ++g_released;
}

static weft_tensor* doubles(weft_context* ctx, size_t count, const double* values) {
  const int64_t dims[] = {(int64_t)count};
  weft_tensor* out = NULL;
  MUST(weft_tensor_from_host(ctx, NULL, WEFT_F64, dims, 1, values, count * sizeof *values, &out));
  return out;
}
static weft_tensor* matrix(weft_context* ctx, int64_t rows, int64_t columns, const double* values) {
  const int64_t dims[] = {rows, columns};
  weft_tensor* out = NULL;
  MUST(weft_tensor_from_host(ctx, NULL, WEFT_F64, dims, 2, values, (size_t)(rows * columns) * sizeof *values, &out));
  return out;
}
static void expect(weft_tensor* tensor, size_t count, const double* wanted) {
  double found[64] = {0};
  if (OK(weft_tensor_to_host(tensor, found, count * sizeof *found))) {
    for (size_t i = 0; i < count; ++i) {
      if (fabs(found[i] - wanted[i]) > 1e-12 * (1 + fabs(wanted[i]))) {
        printf("element %zu is %.17g, not %.17g\n", i, found[i], wanted[i]);
        ++g_failures;
      }
    }
  }
  weft_tensor_release(tensor);
}
static weft_tensor* apply(weft_context* ctx, const char* name, weft_tensor* const* in, size_t count) {
  weft_tensor* out[4] = {NULL};
  size_t results = 0;
  MUST(weft_custom_apply(ctx, name, WEFT_STRLEN, in, count, out, 4, &results));
  for (size_t i = 1; i < results; ++i) weft_tensor_release(out[i]);
  return out[0];
}

/* --- Functions ------------------------------------------------------------------------------------------------------- */
static double add_three(double x, float y, int32_t z) { return x + (double)y + (double)z; }
static double shifted(const double* x, int64_t by, double* scratch) {
  *scratch = *x;
  return *scratch + (double)by;
}
static int8_t narrow(uint16_t x, uint8_t flag) { return (int8_t)(flag ? -(int)x : (int)x); }
/* C = alpha A B, as BLAS numbers its arguments. */
static void product(int order, int m, int n, int k, double alpha, const double* a, int lda, const double* b, int ldb, double* c, int ldc) {
  for (int i = 0; i < m; ++i) {
    for (int j = 0; j < n; ++j) {
      double sum = 0;
      for (int l = 0; l < k; ++l) sum += a[i * lda + l] * b[l * ldb + j];
      c[i * ldc + j] = order == 101 ? alpha * sum : NAN;
    }
  }
}
/* Fortran's way: all by reference; y = a x + y. */
static void daxpy(const int* n, const double* a, const double* x, const int* incx, double* y, const int* incy, const char* word) {
  for (int i = 0; i < *n; ++i) y[i * *incy] += *a * x[i * *incx] + (*word == 'N' ? 0 : 1000);
}
static double total(const double* x, size_t n) {
  double sum = 0;
  for (size_t i = 0; i < n; ++i) sum += x[i];
  return sum;
}
static int g_calls = 0;
static void doubled(const double* x, size_t n, double* y) {
  ++g_calls;
  for (size_t i = 0; i < n; ++i) y[i] = 2 * x[i];
}
static int32_t negative_fails(double x, double* y) {
  *y = sqrt(x);
  return x < 0 ? 42 : 0;
}
static weft_error* says_why(const double* x, size_t n, double* y) {
  for (size_t i = 0; i < n; ++i) y[i] = x[i];
  if (n > 0 && x[0] > 0) return NULL;
  return weft_error_new(WEFT_OUT_OF_RANGE, "x[0] must be above 0", WEFT_STRLEN);
}
static void too_far(const double* x, size_t n, double* y) {
  for (size_t i = 0; i <= n; ++i) y[i] = i < n ? x[i] : 7;
}
static void element_too_far(double x, float* y) { y[0] = (float)x, y[1] = 1; }

static weft_context* g_ctx = NULL;
static weft_error* calls_back(const double* x, size_t n, double* y) {
  weft_tensor *one = NULL, *out = NULL;
  (void)x, (void)n;
  *y = 0;
  weft_error* error = weft_tensor_from_f64(g_ctx, WEFT_F64, 1, &one);
  if (error == NULL) error = weft_neg(g_ctx, one, &out);
  weft_tensor_release(one);
  weft_tensor_release(out);
  return error;
}

static int g_entered = 0, g_gone = 0;
/* Cancels who waits for it, the first time, and ends when they have gone. */
static void cancels(const double* x, size_t n, double* y) {
  if (__atomic_fetch_add(&g_entered, 1, __ATOMIC_RELAXED) == 0) {
    weft_cancel(g_ctx);
    while (__atomic_load_n(&g_gone, __ATOMIC_ACQUIRE) == 0) continue;
  }
  for (size_t i = 0; i < n; ++i) y[i] = -x[i];
}

/* --- Tests ----------------------------------------------------------------------------------------------------------- */
static void elements(weft_context* ctx) {
  const double values[] = {-0.5, -1.5, 0.5, 3.25, 10};
  double wanted[5];
  int wanted_sign[5], sign[5] = {0};
  weft_tensor *x = doubles(ctx, 5, values), *out[2] = {NULL};
  size_t count = 0;
  MUST(weft_custom_register(ctx, "lgamma_r", WEFT_STRLEN, ADDRESS(lgamma_r), "double(double, int*)", WEFT_STRLEN, NULL));
  OK(weft_custom_apply(ctx, "lgamma_r", WEFT_STRLEN, &x, 1, out, 2, &count));
  CHECK_EQUAL(count, 2);
  for (int i = 0; i < 5; ++i) wanted[i] = lgamma_r(values[i], &wanted_sign[i]);
  OK(weft_tensor_to_host(out[1], sign, sizeof sign));
  for (int i = 0; i < 5; ++i) CHECK_EQUAL(sign[i], wanted_sign[i]);
  expect(out[0], 5, wanted);
  weft_tensor_release(out[1]);
  weft_tensor_release(x);

  /* Three types, broadcast; a pointer, a number and scratch; integers narrower than a register. */
  weft_tensor* in[3];
  MUST(weft_custom_register(ctx, "add_three", WEFT_STRLEN, ADDRESS(add_three), "double(double, float, int32_t)", WEFT_STRLEN, NULL));
  in[0] = matrix(ctx, 2, 2, (const double[]){1, 2, 3, 4});
  OK(weft_tensor_from_host(ctx, NULL, WEFT_F32, DIMS(2), (const float[]){10, 20}, 8, &in[1]));
  OK(weft_tensor_from_i64(ctx, WEFT_I32, 100, &in[2]));
  expect(apply(ctx, "add_three", in, 3), 4, (const double[]){111, 122, 113, 124});
  for (int i = 0; i < 3; ++i) weft_tensor_release(in[i]);
  MUST(weft_custom_register(ctx, "shifted", WEFT_STRLEN, ADDRESS(shifted), " double(const double*,   int64_t=3*-2, scratch double*) ", WEFT_STRLEN, NULL));
  in[0] = doubles(ctx, 2, (const double[]){1, 2});
  expect(apply(ctx, "shifted", in, 1), 2, (const double[]){-5, -4});
  weft_tensor_release(in[0]);
  int8_t small[2] = {0};
  MUST(weft_custom_register(ctx, "narrow", WEFT_STRLEN, ADDRESS(narrow), "int8_t(uint16_t, bool)", WEFT_STRLEN, NULL));
  OK(weft_tensor_from_host(ctx, NULL, WEFT_U16, DIMS(2), (const uint16_t[]){7, 100}, 4, &in[0]));
  OK(weft_tensor_from_host(ctx, NULL, WEFT_BOOL, DIMS(2), (const uint8_t[]){0, 1}, 2, &in[1]));
  out[0] = apply(ctx, "narrow", in, 2);
  OK(weft_tensor_to_host(out[0], small, 2));
  CHECK_EQUAL(small[0], 7);
  CHECK_EQUAL(small[1], -100);
  for (int i = 0; i < 2; ++i) weft_tensor_release(in[i]);
  weft_tensor_release(out[0]);
}

static void many_elements(weft_context* ctx) {
  enum { kCount = 100000 };
  double* values = malloc(kCount * sizeof *values);
  const weft_custom_options many = {sizeof many, NULL, .threads = WEFT_CUSTOM_MANY_THREADS};
  MUST(weft_custom_register(ctx, "lgamma_many", WEFT_STRLEN, ADDRESS(lgamma_r), "double(double, scratch int*)", WEFT_STRLEN, &many));
  for (int i = 0; i < kCount; ++i) values[i] = 0.25 + i * 0.001;
  weft_tensor *x = doubles(ctx, kCount, values), *y = apply(ctx, "lgamma_many", &x, 1);
  double* found = malloc(kCount * sizeof *found);
  OK(weft_tensor_to_host(y, found, kCount * sizeof *found));
  for (int i = 0; i < kCount; ++i) {
    int sign;
    if (found[i] != lgamma_r(values[i], &sign)) CHECK(i < 0);
  }
  weft_tensor_release(x);
  weft_tensor_release(y);
  free(values);
  free(found);
}

static weft_error* half_shape(void* user, const weft_tensor_info* in, size_t count, weft_tensor_info* out, size_t results) {
  (void)count, (void)results;
  if (user != NULL && *(int*)user == 1) return weft_error_new(WEFT_FAILED_PRECONDITION, "not today", WEFT_STRLEN);
  out[0] = in[0];
  if (user != NULL && *(int*)user == 2) out[0].dtype = WEFT_F32;
  if (user != NULL && *(int*)user == 3) out[0].rank = 1, out[0].dims[0] = -1;
  if (user != NULL && *(int*)user == 4) out[0].dims[0] += 1;
  return NULL;
}

static void buffers(weft_context* ctx) {
  const weft_custom_options whole = {sizeof whole, NULL, .kind = WEFT_CUSTOM_BUFFERS};
  weft_tensor* in[3];
  MUST(weft_custom_register(ctx, "product", WEFT_STRLEN, ADDRESS(product),
                            "void(int=101, int=m, int=n, int=k, double=0.5, const double*[m, k], int=k, const double*[k, n], int=n, double*[m, n], int=n)",
                            WEFT_STRLEN, &whole));
  in[0] = matrix(ctx, 2, 3, (const double[]){1, 2, 3, 4, 5, 6});
  in[1] = matrix(ctx, 3, 2, (const double[]){1, 0, 0, 2, 1, 1});
  expect(apply(ctx, "product", in, 2), 4, (const double[]){2, 3.5, 5, 8});
  /* In a program with others around it, twice. */
  weft_tensor *sum = NULL, *once = apply(ctx, "product", in, 2), *twice = apply(ctx, "product", in, 2);
  OK(weft_add(ctx, once, twice, &sum));
  expect(sum, 4, (const double[]){4, 7, 10, 16});
  weft_tensor_release(once);
  weft_tensor_release(twice);
  FAILS(weft_custom_apply(ctx, "product", WEFT_STRLEN, (weft_tensor* const[]){in[0], in[0]}, 2, &sum, 1, &(size_t){0}), WEFT_INVALID_ARGUMENT,
                "weft_custom_apply: custom operation 'product': operand 1 is [2, 3]; [k, n] is [3, 3] here");
  weft_tensor_release(in[0]);
  weft_tensor_release(in[1]);

  MUST(weft_custom_register(ctx, "daxpy", WEFT_STRLEN, ADDRESS(daxpy),
                            "void(const int*=n, const double*, const double*[n], const int*=1, inout double*[n], int*=1, char*='N')", WEFT_STRLEN, &whole));
  OK(weft_tensor_from_f64(ctx, WEFT_F64, 10, &in[0]));
  in[1] = doubles(ctx, 3, (const double[]){1, 2, 3});
  in[2] = doubles(ctx, 3, (const double[]){0.5, 0.25, 0});
  expect(apply(ctx, "daxpy", in, 3), 3, (const double[]){10.5, 20.25, 30});
  expect(in[2], 3, (const double[]){0.5, 0.25, 0}); /* as it was */
  weft_tensor_release(in[0]);
  weft_tensor_release(in[1]);

  MUST(weft_custom_register(ctx, "total", WEFT_STRLEN, ADDRESS(total), "double(const double*[n...], size_t=n)", WEFT_STRLEN, &whole));
  in[0] = matrix(ctx, 2, 3, (const double[]){1, 2, 3, 4, 5, 6});
  expect(apply(ctx, "total", in, 1), 1, (const double[]){21});
  weft_tensor_release(in[0]);

  static int how = 0;
  const weft_custom_options by_callback = {sizeof by_callback, NULL, .kind = WEFT_CUSTOM_BUFFERS, .shape = half_shape, .user_data = &how, .release = released};
  MUST(weft_custom_register(ctx, "doubled", WEFT_STRLEN, ADDRESS(doubled), "void(const double*[n], size_t=n, double*)", WEFT_STRLEN, &by_callback));
  in[0] = doubles(ctx, 3, (const double[]){1, 2, 3});
  expect(apply(ctx, "doubled", in, 1), 3, (const double[]){2, 4, 6});
  weft_tensor* none = NULL;
  size_t count = 0;
  how = 1;
  FAILS(weft_custom_apply(ctx, "doubled", WEFT_STRLEN, in, 1, &none, 1, &count), WEFT_FAILED_PRECONDITION,
                "weft_custom_apply: the shape callback of the custom operation 'doubled': not today");
  how = 2;
  FAILS(weft_custom_apply(ctx, "doubled", WEFT_STRLEN, in, 1, &none, 1, &count), WEFT_INVALID_ARGUMENT,
                "weft_custom_apply: the shape callback of the custom operation 'doubled': result 0 is f32[3]; the signature "
                "'void(const double*[n], size_t=n, double*)' gives f64");
  how = 3;
  FAILS_WITH(weft_custom_apply(ctx, "doubled", WEFT_STRLEN, in, 1, &none, 1, &count), WEFT_INVALID_ARGUMENT,
             "the shape callback of the custom operation 'doubled': result 0: ");
  how = 0;
  weft_tensor_release(in[0]);
}

/* (x, y, sign, g of y) -> g * 1: not lgamma's derivative, but one that is seen. */
static weft_error* gradient(void* user, weft_context* body, weft_tensor* const* in, size_t n, weft_tensor** out, size_t capacity, size_t* count) {
  (void)user, (void)capacity;
  CHECK_EQUAL(n, 4);
  *count = 1;
  return weft_mul(body, in[3], in[0], &out[0]);
}

static weft_error* use_it(void* user, weft_context* body, weft_tensor* const* in, size_t n, weft_tensor** out, size_t capacity, size_t* count) {
  weft_tensor* all[2] = {NULL};
  size_t made = 0;
  (void)n, (void)capacity;
  weft_error* error = weft_custom_apply(body, (const char*)user, WEFT_STRLEN, in, 1, all, 2, &made);
  if (error != NULL) return error;
  if (made > 1) weft_tensor_release(all[1]);
  *count = 1;
  OK(weft_sum(body, all[0], NULL, &out[0]));
  weft_tensor_release(all[0]);
  return NULL;
}
static weft_error* run_it(void* user, weft_context* body, weft_tensor* const* in, size_t n, weft_tensor** out, size_t capacity, size_t* count) {
  (void)n, (void)capacity;
  *count = 1;
  return weft_custom_apply(body, (const char*)user, WEFT_STRLEN, in, 1, out, 1, count);
}

static void transforms(weft_context* ctx) {
  const weft_custom_options differentiable = {sizeof differentiable, NULL, .gradient_trace = gradient};
  const weft_tensor_info three = {WEFT_F64, 1, {3}};
  MUST(weft_custom_register(ctx, "lgamma_grad", WEFT_STRLEN, ADDRESS(lgamma_r), "double(double, int*)", WEFT_STRLEN, &differentiable));
  weft_tensor *x = doubles(ctx, 3, (const double[]){1, 2, 3}), *loss = NULL, *grad = NULL, *y = NULL;
  OK(weft_tensor_require_grad(x, 1));
  y = apply(ctx, "lgamma_grad", &x, 1);
  OK(weft_sum(ctx, y, NULL, &loss));
  OK(weft_grad(ctx, loss, NULL, &x, 1, &grad));
  expect(grad, 3, (const double[]){1, 2, 3});
  weft_tensor_release(y);
  weft_tensor_release(loss);
  y = apply(ctx, "lgamma_r", &x, 1);
  OK(weft_sum(ctx, y, NULL, &loss));
  FAILS_WITH(weft_grad(ctx, loss, NULL, &x, 1, &grad), WEFT_UNIMPLEMENTED,
             "the custom operation 'lgamma_r' has no gradient; weft_custom_options.gradient or gradient_trace gives it one");
  weft_tensor_release(y);
  weft_tensor_release(loss);

  /* As a function: its gradient, and both over a batch. */
  weft_function *f = NULL, *df = NULL, *many = NULL;
  weft_tensor* out = NULL;
  size_t count = 0;
  MUST(weft_function_trace(ctx, "f", WEFT_STRLEN, &three, 1, use_it, (void*)"lgamma_grad", 1, &f));
  MUST(weft_function_grad(ctx, f, NULL, 0, NULL, &df));
  MUST(weft_function_vmap(ctx, df, 2, NULL, 0, NULL, 0, NULL, &many));
  weft_tensor* rows = matrix(ctx, 2, 3, (const double[]){1, 2, 3, 4, 5, 6});
  OK(weft_function_call(ctx, many, &rows, 1, &out, 1, &count));
  expect(out, 6, (const double[]){1, 2, 3, 4, 5, 6});
  weft_function_release(f);
  weft_function_release(df);
  weft_function_release(many);

  /* vmap of a function that is called for each example, and of one that takes all at once. */
  const weft_custom_options whole = {sizeof whole, NULL, .kind = WEFT_CUSTOM_BUFFERS};
  MUST(weft_custom_register(ctx, "doubled_one", WEFT_STRLEN, ADDRESS(doubled), "void(const double*[n], size_t=n, double*[n])", WEFT_STRLEN, &whole));
  MUST(weft_custom_register(ctx, "doubled_all", WEFT_STRLEN, ADDRESS(doubled), "void(const double*[n...], size_t=n, double*[n...])", WEFT_STRLEN, &whole));
  const char* const names[] = {"doubled_one", "doubled_all"};
  for (int i = 0; i < 2; ++i) {
    MUST(weft_function_trace(ctx, "f", WEFT_STRLEN, &three, 1, run_it, (void*)(uintptr_t)names[i], 1, &f));
    MUST(weft_function_vmap(ctx, f, 2, NULL, 0, NULL, 0, NULL, &many));
    g_calls = 0;
    OK(weft_function_call(ctx, many, &rows, 1, &out, 1, &count));
    if (g_plugin && i == 0) {
      double found[6];
      FAILS_WITH(weft_tensor_to_host(out, found, sizeof found), WEFT_UNIMPLEMENTED, kNotInLoops);
      weft_tensor_release(out);
    } else {
      expect(out, 6, (const double[]){2, 4, 6, 8, 10, 12});
      CHECK_EQUAL(g_calls, i == 0 ? 2 : 1);
    }
    weft_function_release(f);
    weft_function_release(many);
  }
  weft_tensor_release(rows);
  weft_tensor_release(x);
}

static weft_error* loop_body(void* user, weft_context* body, weft_tensor* const* in, size_t n, weft_tensor** out, size_t capacity, size_t* count) {
  (void)user, (void)n, (void)capacity;
  *count = 1;
  return weft_custom_apply(body, "doubled_one", WEFT_STRLEN, &in[1], 1, out, 1, count);
}

static void loops(weft_context* ctx) {
  const weft_tensor_info types[] = {{WEFT_I32, 0, {0}}, {WEFT_F64, 1, {2}}};
  weft_function* body = NULL;
  weft_tensor *x = doubles(ctx, 2, (const double[]){1, 3}), *times = NULL, *out = NULL;
  MUST(weft_function_trace(ctx, "body", WEFT_STRLEN, types, 2, loop_body, NULL, 1, &body));
  OK(weft_tensor_from_i64(ctx, WEFT_I32, 10, &times));
  OK(weft_for(ctx, times, body, &x, 1, NULL, &out));
  if (g_plugin) {
    double found[2];
    FAILS_WITH(weft_tensor_to_host(out, found, sizeof found), WEFT_UNIMPLEMENTED, kNotInLoops);
    weft_tensor_release(out);
  } else {
    expect(out, 2, (const double[]){1024, 3072});
  }
  weft_function_release(body);
  weft_tensor_release(times);
  weft_tensor_release(x);
}

static void failures(weft_context* ctx) {
  const weft_custom_options whole = {sizeof whole, NULL, .kind = WEFT_CUSTOM_BUFFERS};
  double found[3];
  weft_tensor *x = doubles(ctx, 3, (const double[]){4, 9, -1}), *y = NULL;
  MUST(weft_custom_register(ctx, "root", WEFT_STRLEN, ADDRESS(negative_fails), "status(double, double*)", WEFT_STRLEN, NULL));
  y = apply(ctx, "root", &x, 1);
  FAILS_WITH(weft_tensor_to_host(y, found, sizeof found), WEFT_UNKNOWN, "custom operation 'root', element 2: returned 42");
  weft_tensor_release(y);
  weft_tensor_release(x);
  MUST(weft_custom_register(ctx, "says_why", WEFT_STRLEN, ADDRESS(says_why), "weft_error*(const double*[n], size_t=n, double*[n])", WEFT_STRLEN, &whole));
  x = doubles(ctx, 1, (const double[]){-1});
  y = apply(ctx, "says_why", &x, 1);
  FAILS_WITH(weft_tensor_to_host(y, found, 8), WEFT_OUT_OF_RANGE, "custom operation 'says_why': x[0] must be above 0");
  weft_tensor_release(y);
  /* What follows is as before. */
  expect(x, 1, (const double[]){-1});
  x = doubles(ctx, 1, (const double[]){2});
  expect(apply(ctx, "says_why", &x, 1), 1, (const double[]){2});

  g_ctx = ctx;
  MUST(weft_custom_register(ctx, "calls_back", WEFT_STRLEN, ADDRESS(calls_back), "weft_error*(const double*[n], size_t=n, double*[n])", WEFT_STRLEN, &whole));
  y = apply(ctx, "calls_back", &x, 1);
  FAILS_WITH(weft_tensor_to_host(y, found, 8), WEFT_FAILED_PRECONDITION,
             "the function of the custom operation 'calls_back' calls the context whose program runs it");
  weft_tensor_release(y);
  weft_tensor_release(x);
}

static int64_t counted(weft_context* ctx, const char* name) {
  int64_t value = -1;
  OK(weft_metric_get(ctx, name, WEFT_STRLEN, &value));
  return value;
}

/* Between programs: what waits for a function is another program, what does not is in the first. */
static void between_programs(weft_context* ctx) {
  double found[2];
  weft_tensor *x = doubles(ctx, 2, (const double[]){1, 3}), *one = NULL, *sum = NULL, *both = NULL;
  const int64_t calls = counted(ctx, "host_calls"), cuts = counted(ctx, "cut_custom"), launches = counted(ctx, "launches");
  OK(weft_add(ctx, x, x, &one));
  weft_tensor *first = apply(ctx, "doubled_one", &one, 1), *second = apply(ctx, "doubled_one", &x, 1);
  OK(weft_add(ctx, first, second, &sum));
  weft_tensor* third = apply(ctx, "doubled_one", &sum, 1);
  OK(weft_add(ctx, third, one, &both));
  OK(weft_sync(ctx, NULL, NULL));
  CHECK_EQUAL(counted(ctx, "host_calls") - calls, g_plugin ? 3 : 0);
  CHECK_EQUAL(counted(ctx, "cut_custom") - cuts, g_plugin ? 2 : 0);
  CHECK_EQUAL(counted(ctx, "launches") - launches, g_plugin ? 3 : 1);
  expect(both, 2, (const double[]){14, 42});
  expect(third, 2, (const double[]){12, 36});
  expect(sum, 2, (const double[]){6, 18});
  CHECK_EQUAL(counted(ctx, "host_calls") - calls, g_plugin ? 3 : 0);
  weft_tensor_release(first);
  weft_tensor_release(second);
  weft_tensor_release(one);

  /* A failure is the outcome of what needs it, and of nothing else. */
  weft_tensor *negative = doubles(ctx, 2, (const double[]){4, -1}), *bad = apply(ctx, "root", &negative, 1), *after = NULL, *apart = NULL;
  OK(weft_add(ctx, bad, x, &after));
  OK(weft_mul(ctx, x, x, &apart));
  weft_error* const error = weft_sync(ctx, NULL, NULL);
  if (error != NULL) FAILS_WITH(error, WEFT_UNKNOWN, "custom operation 'root', element 1: returned 42");
  FAILS_WITH(weft_tensor_to_host(after, found, sizeof found), WEFT_UNKNOWN, "custom operation 'root', element 1: returned 42");
  FAILS_WITH(weft_tensor_to_host(bad, found, sizeof found), WEFT_UNKNOWN, "custom operation 'root', element 1: returned 42");
  weft_tensor_release(bad);
  weft_tensor_release(after);
  expect(apart, 2, (const double[]){1, 9});
  weft_tensor_release(negative);
  OK(weft_mul(ctx, x, x, &apart));
  expect(apart, 2, (const double[]){1, 9});
  weft_tensor_release(x);
}

static void who_waits_may_leave(weft_context* ctx) {
  const weft_custom_options whole = {sizeof whole, NULL, .kind = WEFT_CUSTOM_BUFFERS};
  double found[2];
  g_ctx = ctx;
  g_entered = g_gone = 0;
  MUST(weft_custom_register(ctx, "cancels", WEFT_STRLEN, ADDRESS(cancels), "void(const double*[n], size_t=n, double*[n])", WEFT_STRLEN, &whole));
  weft_tensor *x = doubles(ctx, 2, (const double[]){1, 3}), *y = apply(ctx, "cancels", &x, 1);
  FAILS_WITH(weft_tensor_to_host(y, found, sizeof found), WEFT_CANCELLED, "");
  __atomic_store_n(&g_gone, 1, __ATOMIC_RELEASE);
  expect(y, 2, (const double[]){-1, -3});
  CHECK_EQUAL(__atomic_load_n(&g_entered, __ATOMIC_RELAXED), 1);
  weft_tensor_release(x);
}

static void guards(const char* platform) {
  weft_context* ctx = NULL;
  weft_context_options options = WEFT_CONTEXT_OPTIONS_INIT;
  const weft_setting settings[] = {{"platform", WEFT_STRLEN, platform, WEFT_STRLEN}, {"plugin", WEFT_STRLEN, getenv("WEFT_PJRT_FAKE"), WEFT_STRLEN}};
  const weft_custom_options whole = {sizeof whole, NULL, .kind = WEFT_CUSTOM_BUFFERS};
  double found[2];
  size_t count = 0;
  options.mode = WEFT_MODE_DEBUG;
  options.settings = settings;
  options.setting_count = g_plugin ? 2 : 1;
  MUST(weft_context_create(&options, &ctx));
  MUST(weft_custom_register(ctx, "too_far", WEFT_STRLEN, ADDRESS(too_far), "void(const double*[n], size_t=n, double*[n])", WEFT_STRLEN, &whole));
  MUST(weft_custom_register(ctx, "element_too_far", WEFT_STRLEN, ADDRESS(element_too_far), "void(double, float*)", WEFT_STRLEN, NULL));
  MUST(weft_custom_register(ctx, "doubled", WEFT_STRLEN, ADDRESS(doubled), "void(const double*[n], size_t=n, double*[n])", WEFT_STRLEN, &whole));
  MUST(weft_custom_register(ctx, "lgamma_r", WEFT_STRLEN, ADDRESS(lgamma_r), "double(double, int*)", WEFT_STRLEN, NULL));
  weft_tensor *x = doubles(ctx, 2, (const double[]){1, 2}), *y = NULL;
  weft_error* error = weft_custom_apply(ctx, "too_far", WEFT_STRLEN, &x, 1, &y, 1, &count);
  if (error == NULL) error = weft_tensor_to_host(y, found, sizeof found);
  FAILS_WITH(error, WEFT_OUT_OF_RANGE, "custom operation 'too_far': it wrote past the end of result 0, which has 16 bytes: byte 16");
  weft_tensor_release(y), y = NULL;
  error = weft_custom_apply(ctx, "element_too_far", WEFT_STRLEN, &x, 1, &y, 1, &count);
  if (error == NULL) error = weft_tensor_to_host(y, found, 8);
  FAILS_WITH(error, WEFT_OUT_OF_RANGE, "custom operation 'element_too_far', element 0: it wrote past the end of result 0, which has 4 bytes: byte 4");
  weft_tensor_release(y);
  expect(apply(ctx, "doubled", &x, 1), 2, (const double[]){2, 4});
  expect(apply(ctx, "lgamma_r", &x, 1), 2, (const double[]){0, 0});
  weft_tensor_release(x);
  weft_context_release(ctx);
}

static void bad_signatures(weft_context* ctx) {
  static const struct {
    weft_custom_kind kind;
    const char *signature, *text;
  } kBad[] = {
      {WEFT_CUSTOM_ELEMENTS, "", "signature '', character 1: a type is missing"},
      {WEFT_CUSTOM_ELEMENTS, "double", "signature 'double', character 7: '(' is missing"},
      {WEFT_CUSTOM_ELEMENTS, "double(dubble)", "signature 'double(dubble)', character 8: there is no type 'dubble'; there are double, float"},
      {WEFT_CUSTOM_ELEMENTS, "double(double", "signature 'double(double', character 14: ',' or ')' is missing"},
      {WEFT_CUSTOM_ELEMENTS, "double(double) x", "signature 'double(double) x', character 16: there is more behind ')'"},
      {WEFT_CUSTOM_ELEMENTS, "double(double,)", "signature 'double(double,)', character 15: a type is missing"},
      {WEFT_CUSTOM_ELEMENTS, "void(double)", "signature 'void(double)', character 1: there is no result"},
      {WEFT_CUSTOM_ELEMENTS, "double()", "signature 'double()', character 1: a function of elements takes one operand at least"},
      {WEFT_CUSTOM_ELEMENTS, "double*(double)", "signature 'double*(double)', character 1: a function returns void, a number, status or weft_error*"},
      {WEFT_CUSTOM_ELEMENTS, "double(const double*[n])", "character 8: a function of elements sees one element behind a pointer, without a shape"},
      {WEFT_CUSTOM_ELEMENTS, "double(double, int=n)", "character 20: a function of elements knows no sizes"},
      {WEFT_CUSTOM_ELEMENTS, "double(double, inout double*)", "character 16: inout is for functions of buffers"},
      {WEFT_CUSTOM_ELEMENTS, "double(double, int=1.5)", "character 20: '1.5' is no integer"},
      {WEFT_CUSTOM_ELEMENTS, "double(double, int=)", "character 20: a number or a name is missing"},
      {WEFT_CUSTOM_ELEMENTS, "double(double, bf16)", "character 16: 16-bit floats are passed behind pointers only"},
      {WEFT_CUSTOM_ELEMENTS, "double(double**)", "character 8: pointers to pointers are not passed"},
      {WEFT_CUSTOM_BUFFERS, "void(const double*[n], double*)", "character 24: nothing says what shape this has"},
      {WEFT_CUSTOM_BUFFERS, "void(const double*[n], double*[m])", "character 32: no shape of an operand says what 'm' is"},
      {WEFT_CUSTOM_BUFFERS, "void(const double*[2*n], double*[n])", "character 20: no shape of an operand says what 'n' is"},
      {WEFT_CUSTOM_BUFFERS, "void(const double*[n, m...], double*[n])", "character 23: 'name...' is the first of the dimensions"},
      {WEFT_CUSTOM_BUFFERS, "void(const double*[n, double*[n])", "character 30: a number or a name is missing"},
      {WEFT_CUSTOM_BUFFERS, "void(const double*[n], double*[(n+1])", "character 36: ')' is missing"},
      {WEFT_CUSTOM_BUFFERS, "void(const double*[n], scratch double, double*[n])", "character 24: scratch is memory to write: 'T*' follows it"},
      {WEFT_CUSTOM_BUFFERS, "void(const double*[n], int[n], double*[n])", "character 24: a shape stands behind a pointer"},
  };
  for (size_t i = 0; i < sizeof kBad / sizeof kBad[0]; ++i) {
    const weft_custom_options options = {sizeof options, NULL, .kind = kBad[i].kind};
    FAILS_WITH(weft_custom_register(ctx, "bad", WEFT_STRLEN, ADDRESS(lgamma_r), kBad[i].signature, WEFT_STRLEN, &options), WEFT_INVALID_ARGUMENT, kBad[i].text);
  }
}

static void bad_input(weft_context* ctx) {
  const int before = g_released;
  weft_custom_options options = {sizeof options, NULL, .release = released};
  size_t count = 0;
  weft_tensor *x = doubles(ctx, 2, (const double[]){1, 2}), *f = NULL, *out = NULL;
  FAILS(weft_custom_register(ctx, "a b", WEFT_STRLEN, ADDRESS(lgamma_r), "double(double)", WEFT_STRLEN, &options), WEFT_INVALID_ARGUMENT,
                "weft_custom_register: name 'a b': a custom operation's name is 1 to 200 letters, digits and characters of _.$@/+-");
  FAILS_WITH(weft_custom_register(ctx, "lgamma_r", WEFT_STRLEN, ADDRESS(lgamma_r), "double(double)", WEFT_STRLEN, &options), WEFT_ALREADY_EXISTS,
             "there is a custom operation 'lgamma_r' in this context, with the signature 'double(double, int*)'");
  FAILS_WITH(weft_custom_register(ctx, "null", WEFT_STRLEN, NULL, "double(double)", WEFT_STRLEN, &options), WEFT_INVALID_ARGUMENT, "function is NULL");
  FAILS(weft_custom_register_symbol(ctx, "no", WEFT_STRLEN, "libm.so.6", WEFT_STRLEN, "no_such_symbol", WEFT_STRLEN, "double(double)", WEFT_STRLEN, &options),
                WEFT_NOT_FOUND, "weft_custom_register_symbol: the library 'libm.so.6' has no symbol 'no_such_symbol'");
  FAILS_WITH(weft_custom_register_symbol(ctx, "no", WEFT_STRLEN, "libno.such.so", WEFT_STRLEN, "f", WEFT_STRLEN, "double(double)", WEFT_STRLEN, &options),
             WEFT_NOT_FOUND, "the library 'libno.such.so' cannot be loaded: ");
  CHECK_EQUAL(g_released - before, 5);
  options.release = NULL;
  options.kind = (weft_custom_kind)7;
  FAILS_WITH(weft_custom_register(ctx, "kind", WEFT_STRLEN, ADDRESS(lgamma_r), "double(double)", WEFT_STRLEN, &options), WEFT_INVALID_ARGUMENT,
             "weft_custom_options: kind is 7; it is 0 or 1");
  FAILS_WITH(weft_custom_apply(ctx, "never", WEFT_STRLEN, &x, 1, &out, 1, &count), WEFT_NOT_FOUND,
             "no custom operation 'never' is registered in this context; there are ");
  FAILS(weft_custom_apply(ctx, "lgamma_r", WEFT_STRLEN, &x, 1, &out, 1, &count), WEFT_OUT_OF_RANGE,
                "weft_custom_apply: custom operation 'lgamma_r' has 2 results; capacity is 1");
  OK(weft_tensor_from_host(ctx, NULL, WEFT_F32, DIMS(2), (const float[]){1, 2}, 8, &f));
  weft_tensor* two[2];
  FAILS(weft_custom_apply(ctx, "lgamma_r", WEFT_STRLEN, &f, 1, two, 2, &count), WEFT_INVALID_ARGUMENT,
                "weft_custom_apply: custom operation 'lgamma_r': operand 0 is f32[2]; the signature 'double(double, int*)' takes f64");
  FAILS(weft_custom_apply(ctx, "lgamma_r", WEFT_STRLEN, NULL, 0, two, 2, &count), WEFT_INVALID_ARGUMENT,
                "weft_custom_apply: custom operation 'lgamma_r': the signature 'double(double, int*)' takes 1 operands; there are 0");
  weft_tensor_release(x);
  weft_tensor_release(f);
}

static void texts(weft_context* ctx) {
  static const char kText[] =
      "func.func public @main(%x: tensor<3xf64>) -> tensor<3xf64> {\n"
      "  %y, %sign = stablehlo.custom_call @lgamma_r(%x) : (tensor<3xf64>) -> (tensor<3xf64>, tensor<3xi32>)\n"
      "  return %y : tensor<3xf64>\n}\n";
  weft_function* f = NULL;
  weft_blob* text = NULL;
  MUST(weft_function_from_stablehlo(ctx, kText, WEFT_STRLEN, &f));
  weft_tensor *x = doubles(ctx, 3, (const double[]){1, 2, 4}), *out = NULL;
  size_t count = 0;
  OK(weft_function_call(ctx, f, &x, 1, &out, 1, &count));
  expect(out, 3, (const double[]){0, 0, log(6)});
  OK(weft_function_text(f, WEFT_TEXT_STABLEHLO, &text));
  CHECK(strstr(weft_blob_data(text), "\"stablehlo.custom_call\"(%0) {call_target_name = \"lgamma_r\"}") != NULL);
  if (g_failures > 0) printf("%s\n", (const char*)weft_blob_data(text));
  weft_function* again = NULL;
  OK(weft_function_from_stablehlo(ctx, weft_blob_data(text), WEFT_STRLEN, &again));
  weft_function_release(again);
  weft_blob_release(text);
  FAILS_WITH(weft_function_from_stablehlo(ctx, "func.func public @main(%x: tensor<3xf64>) -> tensor<3xf64> {\n"
                                               "  %y = stablehlo.custom_call @nobody(%x) : (tensor<3xf64>) -> tensor<3xf64>\n  return %y : tensor<3xf64>\n}\n",
                                          WEFT_STRLEN, &again),
             WEFT_UNIMPLEMENTED, "operations: stablehlo.custom_call @nobody");
  FAILS_WITH(weft_function_from_stablehlo(ctx, "func.func public @main(%x: tensor<3xf64>) -> tensor<3xf32> {\n"
                                               "  %y, %s = stablehlo.custom_call @lgamma_r(%x) : (tensor<3xf64>) -> (tensor<3xf32>, tensor<3xi32>)\n  return %y : tensor<3xf32>\n}\n",
                                          WEFT_STRLEN, &again),
             WEFT_INVALID_ARGUMENT, "line 2, column 12: result 0 is f32[3]; the signature 'double(double, int*)' gives f64");
  weft_function_release(f);
  weft_tensor_release(x);
}

static void everything(const char* platform) {
  weft_context* ctx = NULL;
  weft_context_options options = WEFT_CONTEXT_OPTIONS_INIT;
  const weft_setting settings[] = {{"cache_mode", WEFT_STRLEN, "off", WEFT_STRLEN}, {"platform", WEFT_STRLEN, platform, WEFT_STRLEN},
                                   {"plugin", WEFT_STRLEN, getenv("WEFT_PJRT_FAKE"), WEFT_STRLEN}};
  const int failures_before = g_failures;
  g_plugin = strcmp(platform, "pjrt") == 0;
  options.settings = settings;
  options.setting_count = g_plugin ? 3 : 2;
  MUST(weft_context_create(&options, &ctx));
  elements(ctx);
  many_elements(ctx);
  buffers(ctx);
  transforms(ctx);
  loops(ctx);
  failures(ctx);
  between_programs(ctx);
  who_waits_may_leave(ctx);
  bad_signatures(ctx);
  bad_input(ctx);
  texts(ctx);
  const int before = g_released;
  weft_context_release(ctx);
  CHECK_EQUAL(g_released - before, 1); /* of "doubled" */
  guards(platform);
  if (g_failures != failures_before) printf("on the platform %s: %d failures\n", platform, g_failures - failures_before);
}

int main(void) {
  everything("cpu");
  everything("reference");
  if (getenv("WEFT_PJRT_FAKE") != NULL) everything("pjrt"); /* the tests' own plugin */
  if (g_failures == 0) printf("custom: all passed\n");
  return g_failures != 0;
}
