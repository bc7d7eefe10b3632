/* A custom operation that fails, on each platform: every tensor stays readable. What was assigned in the step is new where nothing of it
 * needs what failed, and as it was before otherwise, all of a step alike; the context goes on. */
#include "check.h"

enum { kElements = 3 };
static int g_fails_a = 0, g_fails_b = 0;
static int32_t operation_a(double x, double* y) {
  *y = 2 * x;
  return g_fails_a ? 41 : 0;
}
static int32_t operation_b(double x, double* y) {
  *y = x + 1;
  return g_fails_b ? 42 : 0;
}
#define ADDRESS(function) ((void*)(uintptr_t)(function))

static weft_tensor* doubles(weft_context* ctx, const double* values) {
  weft_tensor* out = NULL;
  MUST(weft_tensor_from_host(ctx, NULL, WEFT_F64, DIMS(kElements), values, kElements * sizeof *values, &out));
  return out;
}
static weft_tensor* custom(weft_context* ctx, const char* name, weft_tensor* x) {
  weft_tensor* out = NULL;
  size_t count = 0;
  MUST(weft_custom_apply(ctx, name, WEFT_STRLEN, &x, 1, &out, 1, &count));
  return out;
}
static void is(weft_tensor* tensor, const double* want, const char* what, int line) {
  double have[kElements];
  weft_error* error = weft_tensor_to_host(tensor, have, sizeof have);
  if (error != NULL) {
    printf("%s:%d: %s: %s\n", __FILE__, line, what, weft_error_message(error, NULL));
    ++g_failures;
    weft_error_release(error);
    return;
  }
  for (int i = 0; i < kElements; ++i) {
    if (fabs(have[i] - want[i]) <= 1e-12 * (1 + fabs(want[i]))) continue;
    printf("%s:%d: %s: element %d is %.17g, not %.17g\n", __FILE__, line, what, i, have[i], want[i]);
    ++g_failures;
    return;
  }
}
#define IS(tensor, want) is((tensor), (want), #tensor, __LINE__)

typedef struct {
  weft_context* ctx;
  weft_tensor *w, *v, *x, *loss, *metric, *after;
  double w_is[kElements], v_is[kElements];
} net;

static void step(net* n) {
  weft_tensor *one = NULL, *more = NULL, *b = custom(n->ctx, "b", n->v), *sum = NULL, *difference = NULL;
  MUST(weft_tensor_from_f64(n->ctx, WEFT_F64, 1, &one));
  MUST(weft_add(n->ctx, n->w, one, &more));
  OK(weft_tensor_assign(n->w, more)); /* w + 1 */
  MUST(weft_mul(n->ctx, b, one, &sum));
  OK(weft_tensor_assign(n->v, sum)); /* b(v) = v + 1 */
  MUST(weft_mul(n->ctx, n->x, n->x, &n->loss));
  n->metric = custom(n->ctx, "a", n->x);
  MUST(weft_sub(n->ctx, n->metric, n->loss, &difference));
  n->after = difference;
  weft_tensor_release(one);
  weft_tensor_release(more);
  weft_tensor_release(b);
  weft_tensor_release(sum);
}
static void let_go(net* n) {
  weft_tensor_release(n->loss);
  weft_tensor_release(n->metric);
  weft_tensor_release(n->after);
}
static void went_well(net* n) {
  static const double loss[kElements] = {1, 4, 9}, metric[kElements] = {2, 4, 6}, after[kElements] = {1, 0, -3};
  for (int i = 0; i < kElements; ++i) ++n->w_is[i], ++n->v_is[i];
  IS(n->w, n->w_is);
  IS(n->v, n->v_is);
  IS(n->loss, loss);
  IS(n->metric, metric);
  IS(n->after, after);
}

/* How somebody comes to know of it before the tensors are read; kUnsynced: there is no barrier, and each read computes what it needs. */
enum { kNobody, kEvent, kNextBarrier, kUnsynced, kTold };

static void fails(net* n, int a, int told, weft_mode mode) {
  static const double loss[kElements] = {1, 4, 9}, metric[kElements] = {2, 4, 6}, after[kElements] = {1, 0, -3};
  const char* const text = a ? "custom operation 'a', element 0: returned 41" : "custom operation 'b', element 0: returned 42";
  double host[kElements];
  weft_event* event = NULL;
  weft_error* error;
  if (a) g_fails_a = 1;
  if (!a) g_fails_b = 1;
  step(n);
  error = told == kUnsynced ? NULL : weft_sync(n->ctx, NULL, &event);
  if (error == NULL && told == kEvent) error = weft_event_wait(event, -1);
  if (error == NULL && told == kNextBarrier) {
    weft_error_release(weft_event_wait(event, 0)); /* may be over, and may not */
    error = weft_sync(n->ctx, NULL, NULL);
  }
  if (error != NULL) FAILS_WITH(error, WEFT_UNKNOWN, text);
  weft_event_release(event);
  /* Both that were assigned, or none. */
  for (int i = 0; a && i < kElements; ++i) ++n->w_is[i], ++n->v_is[i];
  if (!a && (mode != WEFT_MODE_LAZY || told == kUnsynced)) { /* an operation, or what a read needs, is a step there */
    for (int i = 0; i < kElements; ++i) ++n->w_is[i];
  }
  for (int round = 0; round < 2; ++round) {
    IS(n->loss, loss);
    IS(n->w, n->w_is);
    IS(n->v, n->v_is);
    if (a) {
      FAILS_WITH(weft_tensor_to_host(n->metric, host, sizeof host), WEFT_UNKNOWN, text);
      FAILS_WITH(weft_tensor_to_host(n->after, host, sizeof host), WEFT_UNKNOWN, text);
    } else {
      IS(n->metric, metric);
      IS(n->after, after);
    }
  }
  g_fails_a = g_fails_b = 0;
  let_go(n);
  weft_error_release(weft_sync(n->ctx, NULL, NULL)); /* says it if nobody has heard of it */
  OK(weft_sync(n->ctx, NULL, NULL));
}

static void goes_on(const char* platform, weft_mode mode) {
  static const double w[kElements] = {10, 20, 30}, v[kElements] = {-1, -2, -3}, x[kElements] = {1, 2, 3};
  const weft_setting settings[] = {{"platform", WEFT_STRLEN, platform, WEFT_STRLEN}, {"cache_mode", WEFT_STRLEN, "off", WEFT_STRLEN},
                                   {"plugin", WEFT_STRLEN, getenv("WEFT_PJRT_FAKE"), WEFT_STRLEN}};
  weft_context_options options = WEFT_CONTEXT_OPTIONS_INIT;
  net n;
  const int before = g_failures;
  memset(&n, 0, sizeof n);
  options.settings = settings;
  options.setting_count = strcmp(platform, "pjrt") == 0 ? 3 : 2;
  options.mode = mode;
  MUST(weft_context_create(&options, &n.ctx));
  MUST(weft_custom_register(n.ctx, "a", WEFT_STRLEN, ADDRESS(operation_a), "status(double, double*)", WEFT_STRLEN, NULL));
  MUST(weft_custom_register(n.ctx, "b", WEFT_STRLEN, ADDRESS(operation_b), "status(double, double*)", WEFT_STRLEN, NULL));
  n.w = doubles(n.ctx, w), n.v = doubles(n.ctx, v), n.x = doubles(n.ctx, x);
  memcpy(n.w_is, w, sizeof w);
  memcpy(n.v_is, v, sizeof v);
  OK(weft_sync(n.ctx, NULL, NULL));
  for (int steady = 0; steady < 2; ++steady) {
    for (int a = 0; a < 2; ++a) {
      for (int told = kNobody; told < kTold; ++told) {
        for (int i = 0; i < 4 * steady + 1; ++i) {
          step(&n);
          OK(weft_sync(n.ctx, NULL, NULL));
          went_well(&n);
          let_go(&n);
        }
        fails(&n, a, told, mode);
      }
    }
  }
  step(&n);
  OK(weft_sync(n.ctx, NULL, NULL));
  went_well(&n);
  let_go(&n);
  weft_tensor_release(n.w);
  weft_tensor_release(n.v);
  weft_tensor_release(n.x);
  weft_context_release(n.ctx);
  if (g_failures != before) printf("on the platform %s, mode %d\n", platform, (int)mode);
}

/* The result of a failing operation is assigned as it is, beside a value that does not need it. */
static void goes_on_where_the_result_itself_is_assigned(const char* platform, int syncs) {
  static const double first[kElements] = {1, 2, 3}, second[kElements] = {2, 3, 4}, third[kElements] = {3, 4, 5};
  const weft_setting settings[] = {{"platform", WEFT_STRLEN, platform, WEFT_STRLEN}, {"cache_mode", WEFT_STRLEN, "off", WEFT_STRLEN},
                                   {"plugin", WEFT_STRLEN, getenv("WEFT_PJRT_FAKE"), WEFT_STRLEN}};
  weft_context_options options = WEFT_CONTEXT_OPTIONS_INIT;
  weft_context* ctx = NULL;
  weft_tensor *v, *w, *one = NULL;
  double host[kElements];
  const int before = g_failures;
  options.settings = settings;
  options.setting_count = strcmp(platform, "pjrt") == 0 ? 3 : 2;
  MUST(weft_context_create(&options, &ctx));
  MUST(weft_custom_register(ctx, "b", WEFT_STRLEN, ADDRESS(operation_b), "status(double, double*)", WEFT_STRLEN, NULL));
  v = doubles(ctx, first), w = doubles(ctx, first);
  MUST(weft_tensor_from_f64(ctx, WEFT_F64, 1, &one));
  OK(weft_sync(ctx, NULL, NULL));
  for (int fails = 1; fails >= 0; --fails) {
    weft_tensor *b = custom(ctx, "b", v), *more = NULL;
    g_fails_b = fails;
    OK(weft_tensor_assign(v, b));
    MUST(weft_add(ctx, w, one, &more));
    OK(weft_tensor_assign(w, more));
    if (syncs) weft_error_release(weft_sync(ctx, NULL, NULL)); /* may know of it already */
    for (int round = 0; round < 2; ++round) {
      IS(v, fails ? first : second);
      IS(w, fails && syncs ? first : fails || syncs ? second : third);
    }
    if (fails) FAILS_WITH(weft_tensor_to_host(b, host, sizeof host), WEFT_UNKNOWN, "custom operation 'b', element 0: returned 42");
    weft_tensor_release(b);
    weft_tensor_release(more);
    if (fails) weft_error_release(weft_sync(ctx, NULL, NULL)); /* says it if nobody has heard of it */
  }
  weft_tensor_release(one);
  weft_tensor_release(v);
  weft_tensor_release(w);
  weft_context_release(ctx);
  if (g_failures != before) printf("on the platform %s, %s\n", platform, syncs ? "after a barrier" : "read at once");
}

static weft_error* trace_b(void* data, weft_context* body, weft_tensor* const* p, size_t count, weft_tensor** results, size_t capacity,
                           size_t* out_count) {
  (void)data, (void)count;
  return weft_custom_apply(body, "b", WEFT_STRLEN, &p[0], 1, results, capacity, out_count);
}

/* A function's run that fails gives back what it was given. */
static void a_run_gives_back(const char* platform) {
  static const double w[kElements] = {10, 20, 30}, next[kElements] = {11, 21, 31};
  const weft_tensor_info info = {.dtype = WEFT_F64, .rank = 1, .dims = {kElements}};
  weft_context* const ctx = context_on(platform, WEFT_MODE_LAZY);
  weft_tensor *state = NULL, *out = NULL;
  weft_function* f = NULL;
  const int64_t donated = 0;
  size_t count = 0;
  double host[kElements];
  MUST(weft_custom_register(ctx, "b", WEFT_STRLEN, ADDRESS(operation_b), "status(double, double*)", WEFT_STRLEN, NULL));
  MUST(weft_function_trace(ctx, "b", WEFT_STRLEN, &info, 1, trace_b, NULL, 1, &f));
  state = doubles(ctx, w);
  g_fails_b = 1;
  OK(weft_function_run(ctx, f, &state, 1, &donated, 1, &out, 1, &count));
  FAILS_WITH(weft_tensor_to_host(out, host, sizeof host), WEFT_UNKNOWN, "custom operation 'b', element 0: returned 42");
  IS(state, w);
  g_fails_b = 0;
  weft_tensor_release(out);
  OK(weft_function_run(ctx, f, &state, 1, &donated, 1, &out, 1, &count));
  IS(out, next);
  FAILS_WITH(weft_tensor_to_host(state, host, sizeof host), WEFT_FAILED_PRECONDITION, "was donated to a function that ran");
  weft_tensor_release(out);
  weft_tensor_release(state);
  weft_function_release(f);
  weft_context_release(ctx);
}

int main(void) {
  goes_on("cpu", WEFT_MODE_LAZY);
  goes_on("reference", WEFT_MODE_LAZY);
  if (getenv("WEFT_PJRT_FAKE") != NULL) goes_on("pjrt", WEFT_MODE_LAZY); /* the tests' own plugin */
  for (int syncs = 0; syncs < 2; ++syncs) {
    goes_on_where_the_result_itself_is_assigned("cpu", syncs);
    goes_on_where_the_result_itself_is_assigned("reference", syncs);
    if (getenv("WEFT_PJRT_FAKE") != NULL) goes_on_where_the_result_itself_is_assigned("pjrt", syncs);
  }
  a_run_gives_back("cpu");
  a_run_gives_back("reference");
  return done("recovery");
}
