/* Second handles of a value, copies to devices, numbers beside tensors. */
#include "check.h"

static void is(weft_tensor* t, const float* want, size_t count) {
  float have[16] = {0};
  if (!OK(weft_tensor_to_host(t, have, count * sizeof(float)))) return;
  CHECK(memcmp(have, want, count * sizeof(float)) == 0);
}

/* A pending and a known value; assigning to one leaves the other. */
static void two_handles_of_one_value(int computed) {
  weft_context* ctx = new_context();
  const float start[] = {1, 2, 3}, doubled[] = {2, 4, 6}, squared[] = {4, 16, 36};
  weft_tensor *x = f32(ctx, DIMS(3), start), *y = NULL, *copy = NULL, *square = NULL;
  int64_t recorded;
  MUST(weft_add(ctx, x, x, &y));
  if (computed) MUST(weft_sync(ctx, NULL, NULL));
  recorded = metric(ctx, "nodes_recorded");
  MUST(weft_tensor_copy(y, &copy));
  CHECK(copy != y);
  CHECK_EQUAL(metric(ctx, "nodes_recorded"), recorded); /* nothing runs for it */
  MUST(weft_mul(ctx, y, y, &square));
  MUST(weft_tensor_assign(y, square));
  MUST(weft_sync(ctx, NULL, NULL)); /* may reuse what y had, were it not for the copy */
  is(copy, doubled, 3);
  is(y, squared, 3);
  MUST(weft_tensor_assign(copy, x));
  MUST(weft_sync(ctx, NULL, NULL));
  is(copy, start, 3);
  is(y, squared, 3);
  weft_tensor_release(y);
  is(copy, start, 3);
  weft_tensor_release(copy);
  weft_tensor_release(square);
  weft_tensor_release(x);
  weft_context_release(ctx);
}

/* What a binding donates: its own handle goes, the value is overwritten in place only if nobody has another. */
static void a_copy_outlives_the_original(void) {
  weft_context* ctx = new_context();
  const float start[] = {1, 2, 3};
  weft_tensor *x = f32(ctx, DIMS(3), start), *copy = NULL;
  MUST(weft_tensor_copy(x, &copy));
  weft_tensor_release(x);
  INVALID(weft_tensor_copy(x, &x), "weft_tensor_copy: tensor is a weft_tensor that has been released");
  is(copy, start, 3);
  INVALID(weft_tensor_copy(NULL, &x), "weft_tensor_copy: tensor is NULL; a weft_tensor is needed");
  INVALID(weft_tensor_copy(copy, NULL), "weft_tensor_copy: out is NULL");
  weft_tensor_release(copy);
  weft_context_release(ctx);
}

static void gradients_see_one_value(void) {
  weft_context* ctx = new_context();
  const float start[] = {1, 2, 3}, twice[] = {2, 4, 6};
  weft_tensor *x = f32(ctx, DIMS(3), start), *copy = NULL, *square = NULL, *sum = NULL, *xs[2], *grads[2];
  MUST(weft_tensor_require_grad(x, 1));
  MUST(weft_tensor_copy(x, &copy));
  MUST(weft_square(ctx, copy, &square));
  MUST(weft_sum(ctx, square, NULL, &sum));
  xs[0] = x;
  xs[1] = copy;
  MUST(weft_grad(ctx, sum, NULL, xs, 2, grads));
  is(grads[0], twice, 3);
  is(grads[1], twice, 3);
  weft_tensor_release(grads[0]);
  weft_tensor_release(grads[1]);
  /* Detached alone, it is a constant; the other is as before. */
  MUST(weft_tensor_require_grad(copy, 0));
  FAILS(weft_grad(ctx, sum, NULL, xs + 1, 1, grads), WEFT_FAILED_PRECONDITION,
        "weft_grad: xs[0] does not require a gradient; call weft_tensor_require_grad on it before it is used");
  MUST(weft_grad(ctx, sum, NULL, xs, 1, grads));
  is(grads[0], twice, 3);
  weft_tensor_release(grads[0]);
  weft_tensor_release(sum);
  weft_tensor_release(square);
  weft_tensor_release(copy);
  weft_tensor_release(x);
  weft_context_release(ctx);
}

static void onto_devices(void) {
  weft_context *ctx = new_context(), *other = NULL;
  const weft_setting settings[] = {{"cache_mode", WEFT_STRLEN, "off", WEFT_STRLEN},
                                   {"platform", WEFT_STRLEN, "reference", WEFT_STRLEN}};
  weft_context_options options = WEFT_CONTEXT_OPTIONS_INIT;
  const float start[] = {1, 2, 3}, doubled[] = {2, 4, 6};
  weft_tensor *x = f32(ctx, DIMS(3), start), *y = NULL, *here = NULL, *there = NULL, *sum = NULL;
  weft_device *own = NULL, *far = NULL, *at = NULL;
  const char* name = NULL;
  double value = 0;
  options.settings = settings;
  options.setting_count = 2;
  MUST(weft_context_create(&options, &other));
  MUST(weft_device_at(ctx, 0, &own));
  MUST(weft_device_at(other, 0, &far));
  MUST(weft_add(ctx, x, x, &y));
  MUST(weft_tensor_copy_to(y, own, &here)); /* where it is: a second handle */
  CHECK_EQUAL(metric(ctx, "programs_compiled") + metric(ctx, "kernel_launches"), 0);
  is(here, doubled, 3);
  weft_tensor_release(here);
  MUST(weft_tensor_copy_to(y, NULL, &here));
  is(here, doubled, 3);
  MUST(weft_tensor_copy_to(y, far, &there)); /* computed, moved */
  MUST(weft_tensor_device(there, &at));
  MUST(weft_device_name(at, &name, NULL));
  CHECK_TEXT(name, "reference:0");
  is(there, doubled, 3);
  INVALID(weft_add(ctx, there, y, &sum), "add: x belongs to another context");
  MUST(weft_sum(other, there, NULL, &sum));
  MUST(weft_tensor_item_f64(sum, &value));
  CHECK(value == 12);
  INVALID(weft_tensor_copy_to(y, (weft_device*)ctx, &sum), "weft_tensor_copy_to: device is a weft_context; a weft_device is needed");
  weft_device_release(at);
  weft_device_release(own);
  weft_device_release(far);
  weft_tensor_release(sum);
  weft_tensor_release(there);
  weft_tensor_release(here);
  weft_tensor_release(y);
  weft_tensor_release(x);
  weft_context_release(other);
  weft_context_release(ctx);
}

/* What has no operands, on a device that is named. */
static void made_on_a_device(void) {
  weft_context *ctx = new_context(), *other = new_context();
  weft_device *device = NULL, *foreign = NULL, *at = NULL;
  weft_iota_opts iota = WEFT_IOTA_OPTS_INIT;
  weft_full_opts full = WEFT_FULL_OPTS_INIT;
  weft_uniform_opts uniform = WEFT_UNIFORM_OPTS_INIT;
  weft_tensor* made[5] = {NULL};
  const float counted[] = {0, 1, 2}, halves[] = {0.5f, 0.5f, 0.5f};
  const char *want = NULL, *have = NULL;
  wf_scope* s;
  size_t i;
  MUST(weft_device_at(ctx, 0, &device));
  MUST(weft_device_at(other, 0, &foreign));
  MUST(weft_device_name(device, &want, NULL));
  iota.present = WEFT_IOTA_HAS_DTYPE;
  iota.dtype = WEFT_F32;
  iota.device = full.device = uniform.device = device;
  MUST(weft_iota(ctx, DIMS(3), 0, &iota, &made[0]));
  MUST(weft_full(ctx, DIMS(3), 0.5, &full, &made[1]));
  MUST(weft_uniform(ctx, DIMS(3), &uniform, &made[2]));
  s = wf_begin(ctx);
  made[3] = wf_keep(s, wf_iota(s, WF_INTS(3), 0, .dtype = WEFT_F32, .device = device));
  made[4] = wf_keep(s, wf_normal(s, WF_INTS(3), .device = device));
  MUST(wf_end(s));
  is(made[0], counted, 3);
  is(made[1], halves, 3);
  is(made[3], counted, 3);
  for (i = 0; i < 5; ++i) {
    MUST(weft_tensor_device(made[i], &at));
    MUST(weft_device_name(at, &have, NULL));
    CHECK_TEXT(have, want);
    weft_device_release(at);
    weft_tensor_release(made[i]);
  }
  iota.device = foreign;
  INVALID(weft_iota(ctx, DIMS(3), 0, &iota, &made[0]), "iota: device cpu:0 belongs to another context");
  weft_device_release(device);
  INVALID(weft_full(ctx, DIMS(3), 0.5, &full, &made[0]), "full: device is a weft_device that has been released");
  weft_device_release(foreign);
  weft_context_release(ctx);
  weft_context_release(other);
}

static double number(weft_context* ctx, weft_dtype dtype, double value) {
  double have = -77;
  weft_tensor *like = NULL, *n = NULL;
  weft_full_opts opts = WEFT_FULL_OPTS_INIT;
  opts.present = WEFT_FULL_HAS_DTYPE;
  opts.dtype = dtype;
  MUST(weft_full(ctx, DIMS(2, 2), 0, &opts, &like));
  if (OK(weft_tensor_constant_like(like, value, &n)) && OK(weft_tensor_item_f64(n, &have))) weft_tensor_release(n);
  if (OK(weft_tensor_argument_like(like, value, &n))) {
    double other = -78;
    CHECK(OK(weft_tensor_item_f64(n, &other)) && (other == have || (isnan(other) && isnan(have))));
    weft_tensor_release(n);
  }
  weft_tensor_release(like);
  return have;
}

static void numbers_of_every_type(void) {
  weft_context* ctx = new_context();
  weft_tensor *i8 = NULL, *n = NULL, *flag = NULL;
  CHECK(number(ctx, WEFT_F32, 0.1) == (double)0.1f);
  CHECK(number(ctx, WEFT_F64, 0.1) == 0.1);
  CHECK(number(ctx, WEFT_BF16, 1.01) == 1.0078125);
  CHECK(isnan(number(ctx, WEFT_F32, NAN)));
  CHECK(number(ctx, WEFT_F32, -INFINITY) == -INFINITY);
  CHECK(number(ctx, WEFT_I8, -128) == -128);
  CHECK(number(ctx, WEFT_I64, -0x1p63) == -0x1p63);
  CHECK(number(ctx, WEFT_U64, 0x1.fffffffffffffp63) == 0x1.fffffffffffffp63);
  CHECK(number(ctx, WEFT_BOOL, 1) == 1);
  MUST(weft_tensor_from_i64(ctx, WEFT_I8, 5, &i8));
  MUST(weft_tensor_from_i64(ctx, WEFT_BOOL, 1, &flag));
  INVALID(weft_tensor_constant_like(i8, 128, &n), "weft_tensor_constant_like: 128 does not fit i8");
  INVALID(weft_tensor_argument_like(i8, 0.5, &n), "weft_tensor_argument_like: 0.5 does not fit i8");
  INVALID(weft_tensor_argument_like(i8, NAN, &n), "weft_tensor_argument_like: nan does not fit i8");
  INVALID(weft_tensor_constant_like(flag, 2, &n), "weft_tensor_constant_like: 2 does not fit bool");
  INVALID(weft_tensor_constant_like(NULL, 2, &n), "weft_tensor_constant_like: like is NULL; a weft_tensor is needed");
  weft_tensor_release(flag);
  weft_tensor_release(i8);
  weft_context_release(ctx);
}

/* The name says whether a number compiles anew. */
static void constants_and_arguments(void) {
  weft_context* ctx = new_context();
  const float start[] = {1, 2, 3};
  weft_tensor* x = f32(ctx, DIMS(3), start);
  int64_t before, after;
  int i;
  for (i = 0; i < 2; ++i) {
    const char* kind = i == 0 ? "argument" : "constant";
    int k;
    before = after = 0;
    for (k = 0; k < 4; ++k) {
      wf_scope* s = wf_begin(ctx);
      const double n = 2 + k;
      weft_tensor* y = i == 0 ? wf_arg_sub(s, 10, wf_mul_arg(s, x, n)) : wf_n_sub(s, 10, wf_mul_n(s, x, n));
      const double last = wf_item(s, wf_sum(s, y));
      CHECK(last == 30 - 6 * n);
      MUST(wf_end(s));
      after = metric(ctx, "programs_compiled");
      if (k == 0) before = after;
    }
    if (after - before != (i == 0 ? 0 : 3)) {
      printf("%s: %d programs more\n", kind, (int)(after - before));
      ++g_failures;
    }
  }
  weft_tensor_release(x);
  weft_context_release(ctx);
}

static void numbers_in_the_fluent_layer(void) {
  weft_context* ctx = new_context();
  const float start[] = {1, 2, 4};
  const int32_t whole[] = {7, 8, 9};
  weft_tensor *x = f32(ctx, DIMS(3), start), *i = NULL;
  wf_scope* s = wf_begin(ctx);
  int32_t got[3];
  weft_error* error;
  MUST(weft_tensor_from_host(ctx, NULL, WEFT_I32, DIMS(3), whole, sizeof whole, &i));
#define SUMS(formula, want) CHECK(wf_item(s, wf_sum(s, formula)) == (want))
  SUMS(wf_add_n(s, x, 0.5), 8.5);
  SUMS(wf_sub_n(s, x, 1), 4);
  SUMS(wf_n_sub(s, 1, x), -4);
  SUMS(wf_div_arg(s, x, 2), 3.5);
  SUMS(wf_arg_div(s, 4, x), 7);
  SUMS(wf_pow_n(s, x, 2), 21);
  SUMS(wf_n_pow(s, 2, x), 22);
  SUMS(wf_copy(s, x), 7);
  SUMS(wf_maximum_n(s, x, 2), 8);
  SUMS(wf_convert(s, wf_gt_n(s, x, 1.5), WEFT_F32), 2);
  SUMS(wf_convert(s, wf_n_gt(s, 1.5, x), WEFT_F32), 1);
#undef SUMS
  OK(weft_tensor_to_host(wf_rem_n(s, i, 4), got, sizeof got));
  CHECK(got[0] == 3 && got[1] == 0 && got[2] == 1);
  MUST(wf_check(s));
  wf_mul_n(s, i, 1.5);
  error = wf_end(s);
  CHECK_EQUAL(weft_error_code(error), WEFT_INVALID_ARGUMENT);
  CHECK(strstr(weft_error_message(error, NULL), "copies.c:") != NULL);
  CHECK(strstr(weft_error_message(error, NULL), "weft_tensor_constant_like: 1.5 does not fit i32") != NULL);
  weft_error_release(error);
  weft_tensor_release(i);
  weft_tensor_release(x);
  weft_context_release(ctx);
}

int main(void) {
  two_handles_of_one_value(0);
  two_handles_of_one_value(1);
  a_copy_outlives_the_original();
  gradients_see_one_value();
  onto_devices();
  made_on_a_device();
  numbers_of_every_type();
  constants_and_arguments();
  numbers_in_the_fluent_layer();
  return done("copies");
}
