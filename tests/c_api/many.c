/* weft_op_apply_on and weft_op_apply_many: results described, operands from earlier calls, all or nothing. */
#define _POSIX_C_SOURCE 200809L
#include <time.h>

#include "check.h"

static weft_op_input tensor(weft_tensor* t) {
  weft_op_input input = {NULL, 0, 0, 0};
  input.tensor = t;
  return input;
}
static weft_op_input result(uint64_t call, uint32_t which) {
  weft_op_input input = {NULL, 1, 0, 0};
  input.call = call;
  input.result = which;
  return input;
}
static weft_op_call call_of(const char* name, const weft_op_input* inputs, size_t count) {
  weft_op_call call = {NULL, WEFT_STRLEN, NULL, 0, NULL, 0, NULL, 0, 0};
  call.name = name;
  call.inputs = inputs;
  call.input_count = count;
  return call;
}

static void results_are_described(void) {
  weft_context* ctx = new_context();
  weft_tensor *x = ramp(ctx, DIMS(4, 3)), *w = ramp(ctx, DIMS(3)), *in[3], *out[3];
  weft_tensor_info infos[3];
  weft_device* device = NULL;
  size_t count = 0, i;
  const int64_t shape[] = {2, 5};
  const weft_attr attrs[] = {{"shape", WEFT_STRLEN, WEFT_VALUE_INTS, 0, 0, 0, shape, 2},
                             {"dimension", WEFT_STRLEN, WEFT_VALUE_INT, 0, 1, 0, NULL, 0},
                             {"dtype", WEFT_STRLEN, WEFT_VALUE_DTYPE, 0, WEFT_I64, 0, NULL, 0}};
  MUST(weft_device_at(ctx, 0, &device));
  in[0] = x;
  in[1] = in[2] = w;
  MUST(weft_op_apply_on(ctx, NULL, "batch_norm", WEFT_STRLEN, in, 3, NULL, 0, out, infos, 3, &count));
  CHECK_EQUAL(count, 3);
  CHECK(infos[0].dtype == WEFT_F32 && infos[0].rank == 2 && infos[0].dims[0] == 4 && infos[0].dims[1] == 3);
  CHECK(infos[2].dtype == WEFT_F32 && infos[2].rank == 1 && infos[2].dims[0] == 3);
  for (i = 0; i < 3; ++i) weft_tensor_release(out[i]);
  MUST(weft_op_apply_on(ctx, device, "iota", WEFT_STRLEN, NULL, 0, attrs, 3, out, infos, 1, &count));
  CHECK(infos[0].dtype == WEFT_I64 && infos[0].rank == 2 && infos[0].dims[0] == 2 && infos[0].dims[1] == 5);
  weft_tensor_release(out[0]);
  MUST(weft_op_apply_on(ctx, device, "exp", WEFT_STRLEN, &x, 1, NULL, 0, out, NULL, 1, &count)); /* where it is */
  weft_tensor_release(out[0]);
  infos[0].rank = 77;
  INVALID(weft_op_apply_on(ctx, (weft_device*)x, "exp", WEFT_STRLEN, &x, 1, NULL, 0, out, infos, 1, &count),
          "exp: device is a weft_tensor; a weft_device is needed");
  FAILS(weft_op_apply_on(ctx, NULL, "batch_norm", WEFT_STRLEN, in, 3, NULL, 0, out, infos, 2, &count), WEFT_OUT_OF_RANGE,
        "weft_op_apply_on: batch_norm has 3 results; capacity is 2");
  CHECK_EQUAL(infos[0].rank, 77);
  weft_device_release(device);
  weft_tensor_release(x);
  weft_tensor_release(w);
  weft_context_release(ctx);
}

/* y = relu(x w + b), and what comes out of the middle. */
static void later_ones_take_results_of_earlier_ones(void) {
  weft_context* ctx = new_context();
  const float data[] = {1, -2}, weights[] = {1, 2, 3, 4}, bias[] = {1, 1};
  weft_tensor *x = f32(ctx, DIMS(1, 2), data), *w = f32(ctx, DIMS(2, 2), weights), *b = f32(ctx, DIMS(2), bias), *out[4];
  weft_op_input product[2], sum[2], positive[1], norm[3];
  weft_op_call calls[4];
  weft_tensor_info infos[4];
  float got[2];
  size_t count = 0, i;
  int64_t live = metric(ctx, "operations_recorded");
  product[0] = tensor(x);
  product[1] = tensor(w);
  calls[0] = call_of("matmul", product, 2);
  sum[0] = result(0, 0);
  sum[1] = tensor(b);
  calls[1] = call_of("add", sum, 2);
  calls[1].drop = 1;
  positive[0] = result(1, 0);
  calls[2] = call_of("weft.relu", positive, 1); /* StableHLO's or our names, too */
  norm[0] = result(2, 0);
  norm[1] = norm[2] = tensor(b);
  calls[3] = call_of("batch_norm", norm, 3);
  calls[3].drop = 1;
  MUST(weft_op_apply_many(ctx, calls, 4, out, infos, 4, &count));
  CHECK_EQUAL(count, 2);
  CHECK_EQUAL(metric(ctx, "operations_recorded") - live, 4);
  CHECK(infos[0].rank == 2 && infos[0].dims[0] == 1 && infos[0].dims[1] == 2 && infos[1].dtype == WEFT_F32);
  OK(weft_tensor_to_host(out[0], got, sizeof got));
  CHECK(got[0] == -5 && got[1] == -6);
  OK(weft_tensor_to_host(out[1], got, sizeof got));
  CHECK(got[0] == 0 && got[1] == 0);
  for (i = 0; i < count; ++i) weft_tensor_release(out[i]);
  MUST(weft_op_apply_many(ctx, NULL, 0, NULL, NULL, 0, &count));
  CHECK_EQUAL(count, 0);
  weft_tensor_release(b);
  weft_tensor_release(w);
  weft_tensor_release(x);
  weft_context_release(ctx);
}

static void fails_at_call(weft_error* error, weft_code code, const char* call, const char* text, int line) {
  const char* which = error != NULL ? weft_error_payload(error, "weft.call", WEFT_STRLEN, NULL) : NULL;
  if (which == NULL || strcmp(which, call) != 0) {
    printf("line %d: weft.call is %s, not %s\n", line, which != NULL ? which : "absent", call);
    ++g_failures;
  }
  fails_at(error, code, text, __FILE__, line);
}
#define AT_CALL(error, code, call, text) fails_at_call((error), (code), (call), (text), __LINE__)

static void all_or_nothing(weft_mode mode) {
  const weft_setting off = {"cache_mode", WEFT_STRLEN, "off", WEFT_STRLEN};
  weft_context_options options = WEFT_CONTEXT_OPTIONS_INIT;
  weft_context* ctx = NULL;
  const float data[] = {1, 2};
  weft_tensor *x, *poison, *out[4] = {NULL};
  weft_op_input inputs[2], bad[3];
  weft_op_call calls[3];
  const int64_t shape[] = {4};
  const weft_attr of_four = {"shape", WEFT_STRLEN, WEFT_VALUE_INTS, 0, 0, 0, shape, 1};
  uint64_t key, low, high, low_before;
  int64_t operations;
  size_t count = 9;
  wf_scope* s;
  weft_error* error;
  options.mode = mode;
  options.settings = &off;
  options.setting_count = 1;
  MUST(weft_context_create(&options, &ctx));
  x = f32(ctx, DIMS(2), data);
  MUST(weft_random_get_state(ctx, &key, &low_before, &high));
  operations = metric(ctx, "operations_recorded");
  inputs[0] = tensor(x);
  calls[0] = call_of("normal", NULL, 0);
  calls[0].attrs = &of_four;
  calls[0].attr_count = 1;
  calls[1] = call_of("exp", inputs, 1);
  bad[0] = result(0, 0);
  bad[1] = result(1, 0);
  calls[2] = call_of("add", bad, 2);
  AT_CALL(weft_op_apply_many(ctx, calls, 3, out, NULL, 4, &count), WEFT_INVALID_ARGUMENT, "2",
          "weft_op_apply_many: calls[2]: add(f32[4], f32[2]): shapes [4] and [2] do not broadcast: dimension -1 is 4 and 2; sizes must be equal or 1");
  CHECK(count == 9 && out[0] == NULL);
  CHECK_EQUAL(metric(ctx, "operations_recorded"), operations);
  MUST(weft_random_get_state(ctx, &key, &low, &high));
  CHECK_EQUAL(low, low_before); /* nothing was drawn either */
  bad[1] = result(2, 0);
  AT_CALL(weft_op_apply_many(ctx, calls, 3, out, NULL, 4, &count), WEFT_INVALID_ARGUMENT, "2",
          "weft_op_apply_many: calls[2]: inputs[1] is a result of calls[2], which is not before calls[2]");
  bad[1] = result(1, 1);
  AT_CALL(weft_op_apply_many(ctx, calls, 3, out, NULL, 4, &count), WEFT_INVALID_ARGUMENT, "2",
          "weft_op_apply_many: calls[2]: inputs[1] is result 1 of calls[1]; exp has 1");
  bad[1].tensor = x;
  AT_CALL(weft_op_apply_many(ctx, calls, 3, out, NULL, 4, &count), WEFT_INVALID_ARGUMENT, "2",
          "weft_op_apply_many: calls[2]: inputs[1] is both a tensor and a result; tensor must be NULL");
  calls[1].name = "softmaxx";
  AT_CALL(weft_op_apply_many(ctx, calls, 3, out, NULL, 4, &count), WEFT_NOT_FOUND, "1",
          "weft_op_apply_many: calls[1]: there is no operation 'softmaxx'; did you mean 'softmax'? weft_op_list names all");
  calls[1].name = "exp";
  calls[1].reserved = 1;
  AT_CALL(weft_op_apply_many(ctx, calls, 3, out, NULL, 4, &count), WEFT_INVALID_ARGUMENT, "1",
          "weft_op_apply_many: calls[1]: reserved is 1; it must be 0");
  calls[1].reserved = 0;
  calls[1].attrs = &of_four;
  calls[1].attr_count = 1;
  AT_CALL(weft_op_apply_many(ctx, calls, 3, out, NULL, 4, &count), WEFT_INVALID_ARGUMENT, "1",
          "weft_op_apply_many: calls[1]: exp: there is no attribute 'shape'; it takes none");
  calls[1].attr_count = 0;
  inputs[0] = tensor((weft_tensor*)ctx);
  AT_CALL(weft_op_apply_many(ctx, calls, 2, out, NULL, 4, &count), WEFT_INVALID_ARGUMENT, "1",
          "weft_op_apply_many: calls[1]: exp: x is a weft_context; a weft_tensor is needed");
  inputs[0] = tensor(NULL);
  AT_CALL(weft_op_apply_many(ctx, calls, 2, out, NULL, 4, &count), WEFT_INVALID_ARGUMENT, "1",
          "weft_op_apply_many: calls[1]: exp(): 0 operands given, 1 expected");
  s = wf_begin(ctx); /* what a failure stands for comes through */
  poison = wf_exp(s, NULL);
  inputs[0] = tensor(poison);
  error = weft_op_apply_many(ctx, calls, 2, out, NULL, 4, &count);
  CHECK(error != NULL && strstr(weft_error_message(error, NULL), "exp: x is NULL") != NULL);
  weft_error_release(error);
  weft_error_release(wf_end(s));
  inputs[0] = tensor(x);
  FAILS(weft_op_apply_many(ctx, calls, 2, out, NULL, 1, &count), WEFT_OUT_OF_RANGE,
        "weft_op_apply_many: the calls give 2 results out; capacity is 1");
  calls[1].input_count = 1;
  calls[1].inputs = NULL;
  AT_CALL(weft_op_apply_many(ctx, calls, 2, out, NULL, 4, &count), WEFT_INVALID_ARGUMENT, "1",
          "weft_op_apply_many: calls[1]: inputs is NULL");
  INVALID(weft_op_apply_many(ctx, NULL, 2, out, NULL, 4, &count), "weft_op_apply_many: calls is NULL");
  INVALID(weft_op_apply_many(ctx, calls, 2, NULL, NULL, 4, &count), "weft_op_apply_many: outputs is NULL");
  INVALID(weft_op_apply_many(ctx, calls, 2, out, NULL, 4, NULL), "weft_op_apply_many: out_count is NULL");
  CHECK(count == 9 && out[0] == NULL);
  CHECK_EQUAL(metric(ctx, "operations_recorded"), operations + 0);
  weft_tensor_release(x);
  weft_context_release(ctx);
}

static void operands_of_another_context(void) {
  weft_context *ctx = new_context(), *other = new_context();
  weft_tensor *x = ramp(other, DIMS(2)), *out[1] = {NULL};
  weft_op_input input = tensor(x);
  weft_op_call call = call_of("exp", &input, 1);
  size_t count = 9;
  weft_error* error = weft_op_apply_many(ctx, &call, 1, out, NULL, 1, &count);
  CHECK(error != NULL && strstr(weft_error_message(error, NULL), "calls[0]: exp: x belongs to another context") != NULL);
  CHECK(count == 9 && out[0] == NULL);
  weft_error_release(error);
  weft_tensor_release(x);
  weft_context_release(other);
  weft_context_release(ctx);
}

/* Equal seeds, equal numbers, however they are asked for. */
static void draws_like_single_calls(void) {
  weft_context* ctx = new_context();
  const int64_t shape[] = {4};
  const weft_attr of_four = {"shape", WEFT_STRLEN, WEFT_VALUE_INTS, 0, 0, 0, shape, 1};
  weft_op_call calls[2];
  weft_tensor* out[2];
  float one[2][4], many[2][4];
  size_t count, i;
  for (i = 0; i < 2; ++i) {
    calls[i] = call_of("uniform", NULL, 0);
    calls[i].attrs = &of_four;
    calls[i].attr_count = 1;
  }
  MUST(weft_random_seed(ctx, 5));
  for (i = 0; i < 2; ++i) {
    MUST(weft_uniform(ctx, shape, 1, NULL, &out[0]));
    MUST(weft_tensor_to_host(out[0], one[i], sizeof one[i]));
    weft_tensor_release(out[0]);
  }
  MUST(weft_random_seed(ctx, 5));
  MUST(weft_op_apply_many(ctx, calls, 2, out, NULL, 2, &count));
  for (i = 0; i < 2; ++i) {
    MUST(weft_tensor_to_host(out[i], many[i], sizeof many[i]));
    weft_tensor_release(out[i]);
  }
  CHECK(memcmp(one, many, sizeof one) == 0);
  CHECK(memcmp(many[0], many[1], sizeof many[0]) != 0);
  weft_context_release(ctx);
}

/* A long chain in one call, cut on the way by the limit of pending nodes. */
static void long_lists(void) {
  const weft_setting settings[] = {{"cache_mode", WEFT_STRLEN, "off", WEFT_STRLEN}, {"max_pending_nodes", WEFT_STRLEN, "100", WEFT_STRLEN}};
  weft_context_options options = WEFT_CONTEXT_OPTIONS_INIT;
  weft_context* ctx = NULL;
  enum { COUNT = 1000 };
  static weft_op_input inputs[COUNT][2];
  static weft_op_call calls[COUNT];
  weft_tensor *x = NULL, *out = NULL;
  double value = 0;
  size_t i, count = 0;
  options.settings = settings;
  options.setting_count = 2;
  MUST(weft_context_create(&options, &ctx));
  MUST(weft_tensor_from_f64(ctx, WEFT_F32, 1, &x));
  for (i = 0; i < COUNT; ++i) {
    inputs[i][0] = i == 0 ? tensor(x) : result(i - 1, 0);
    inputs[i][1] = tensor(x);
    calls[i] = call_of("add", inputs[i], 2);
    calls[i].drop = i + 1 < COUNT;
  }
  MUST(weft_op_apply_many(ctx, calls, COUNT, &out, NULL, 1, &count));
  MUST(weft_tensor_item_f64(out, &value));
  CHECK(value == COUNT + 1);
  CHECK(metric(ctx, "programs_compiled") > 1);
  weft_tensor_release(out);
  weft_tensor_release(x);
  weft_context_release(ctx);
}

/* Results that nobody wants need no place. */
static void results_left_out(void) {
  weft_context* ctx = new_context();
  weft_tensor *x = ramp(ctx, DIMS(4, 2)), *w = ramp(ctx, DIMS(2)), *y = NULL, *mean = NULL, *z;
  float got[2];
  wf_scope* s;
  MUST(weft_batch_norm(ctx, x, w, w, NULL, &y, NULL, NULL));
  MUST(weft_batch_norm(ctx, x, w, w, NULL, NULL, &mean, NULL));
  MUST(weft_tensor_to_host(mean, got, sizeof got));
  CHECK(got[0] == 3 && got[1] == 4);
  INVALID(weft_batch_norm(ctx, x, w, w, NULL, NULL, NULL, NULL), "batch_norm: every result is NULL; at least one is wanted");
  weft_tensor_release(mean);
  s = wf_begin(ctx);
  z = wf_batch_norm(s, x, w, w);
  CHECK(wf_item(s, wf_sum(s, wf_abs(s, wf_sub(s, z, y)))) == 0);
  z = wf_batch_norm(s, x, w, w, .out_batch_mean = &mean, .epsilon = 1e-3);
  OK(weft_tensor_to_host(mean, got, sizeof got));
  CHECK(got[0] == 3 && got[1] == 4);
  wf_batch_norm(s, x, w, w, &z, &mean, &z); /* the places one after the other, as before */
  MUST(wf_check(s));
  mean = NULL;
  z = wf_batch_norm(s, x, x, w, .out_batch_mean = &mean);
  CHECK(z != NULL && mean == z); /* poisoned */
  weft_error_release(wf_end(s));
  weft_tensor_release(y);
  weft_tensor_release(x);
  weft_tensor_release(w);
  weft_context_release(ctx);
}

/* Of this thread alone, whatever else runs. */
static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Seconds a call, the least of some tries: a chain of which every so-manieth result comes out and stays, and the last one. */
static double cost(size_t count, size_t every) {
  weft_op_input* const inputs = calloc(2 * count, sizeof *inputs);
  weft_op_call* const calls = calloc(count, sizeof *calls);
  weft_tensor** const out = calloc(count, sizeof *out);
  double least = 1e9;
  for (int attempt = 0; attempt < 3; ++attempt) {
    weft_context* const ctx = context_on("reference", WEFT_MODE_LAZY);
    weft_tensor* const x = ramp(ctx, DIMS(4));
    size_t i, made = 0;
    double start;
    for (i = 0; i < count; ++i) {
      inputs[2 * i] = i == 0 ? tensor(x) : result(i - 1, 0);
      inputs[2 * i + 1] = tensor(x);
      calls[i] = call_of(i % 2 == 0 ? "add" : "mul", &inputs[2 * i], 2);
      calls[i].drop = i + 1 < count && i % every != 0;
    }
    start = seconds();
    MUST(weft_op_apply_many(ctx, calls, count, out, NULL, count, &made));
    start = (seconds() - start) / (double)count;
    if (start < least) least = start;
    for (i = 0; i < made; ++i) weft_tensor_release(out[i]);
    weft_tensor_release(x);
    weft_context_release(ctx);
  }
  free(inputs);
  free(calls);
  free(out);
  return least;
}

static void a_call_of_a_long_list_costs_what_one_of_a_short_list_does(void) {
  const size_t every[] = {SIZE_MAX, 100, 1};
  for (int i = 0; i < 3; ++i) {
    const double few = cost(10000, every[i]), many = cost(160000, every[i]);
    printf("%.2f us a call of 10,000, %.2f us a call of 160,000\n", 1e6 * few, 1e6 * many);
    CHECK(many < 2.5 * few); /* as it was: 4.5, and with all results 5 */
  }
}

int main(void) {
  results_are_described();
  later_ones_take_results_of_earlier_ones();
  all_or_nothing(WEFT_MODE_LAZY);
  all_or_nothing(WEFT_MODE_EAGER);
  all_or_nothing(WEFT_MODE_DEBUG);
  operands_of_another_context();
  draws_like_single_calls();
  long_lists();
  results_left_out();
  a_call_of_a_long_list_costs_what_one_of_a_short_list_does();
  return done("many");
}
