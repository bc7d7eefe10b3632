/* Launches that end early, by weft_cancel or by launch_deadline_ms: a generated loop and a kernel of each kind, within a fraction of a
 * second; what they were to compute says so, what was assigned shows its value from before, and the next results are right. */
#define _GNU_SOURCE
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

static const int64_t kLong = 600000000000; /* ns */
/* Asked for are 0.05 s. Machines that test are busy: counted is time, or what the process computes in it if that is less. A
 * virtual machine that gives out memory for the first time takes 4 ms for 2 MiB of it. Every launch here takes several times as long. */
static const double kSoon = 1;
static double g_longest = 0;

static int sanitized(void) {
  const char* by = getenv("WEFT_SANITIZE");
  return by != NULL && *by != '\0';
}

static double read_clock(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
static double now(void) { return read_clock(CLOCK_MONOTONIC); }
static double computed(void) { return read_clock(CLOCK_PROCESS_CPUTIME_ID); }

static weft_context* with_deadline(const char* platform, const char* ms) {
  weft_setting settings[] = {{"cache_mode", WEFT_STRLEN, "off", WEFT_STRLEN},
                             {"platform", WEFT_STRLEN, platform, WEFT_STRLEN},
                             {"launch_deadline_ms", WEFT_STRLEN, ms, WEFT_STRLEN}};
  weft_context_options options = WEFT_CONTEXT_OPTIONS_INIT;
  weft_context* ctx = NULL;
  options.settings = settings;
  options.setting_count = 3;
  MUST(weft_context_create(&options, &ctx));
  return ctx;
}

/* f(x), x a scalar of f32, in StableHLO text; %z is 0. */
#define SHLO(types, body)                                                                                             \
  "func.func @main(%x: tensor<f32>) -> " types " { %z = stablehlo.constant dense<0.0> : tensor<f32> " body " }"
#define FILL(name, type) "%" name " = stablehlo.broadcast_in_dim %x, dims = [] : (tensor<f32>) -> tensor<" type "> "
#define INTS(name, dims)                                                                                              \
  "%" name "_f = stablehlo.broadcast_in_dim %x, dims = [] : (tensor<f32>) -> tensor<" dims "xf32> %" name             \
  " = stablehlo.convert %" name "_f : (tensor<" dims "xf32>) -> tensor<" dims "xi32> "
#define CONV(type, n, side, c)                                                                                        \
  "%r = stablehlo.convolution(%a, %b) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {pad = [[1, 1], [1, 1]]} " \
  "{feature_group_count = 1 : i64, batch_group_count = 1 : i64} : (tensor<" n "x" side "x" side "x" c "x" type ">, tensor<3x3x" c "x" c "x" type ">) -> tensor<" n \
  "x" side "x" side "x" c "x" type "> return %r : tensor<" n "x" side "x" side "x" c "x" type ">"
#define LOOP(type, count, body)                                                                                       \
  "%n = stablehlo.constant dense<" count "> : tensor<" type "> %i0 = stablehlo.constant dense<0> : tensor<" type      \
  "> %one = stablehlo.constant dense<1> : tensor<" type "> %r:2 = stablehlo.while(%i = %i0, %v = %x) : tensor<" type  \
  ">, tensor<f32> cond { %c = stablehlo.compare LT, %i, %n, SIGNED : (tensor<" type ">, tensor<" type                 \
  ">) -> tensor<i1> stablehlo.return %c : tensor<i1> } do { %j = stablehlo.add %i, %one : tensor<" type "> " body     \
  " stablehlo.return %j, %w : tensor<" type ">, tensor<f32> } return %r#1 : tensor<f32>"

typedef struct {
  const char *name, *text;
} kind;

/* "#" stands for a chain of functions. */
static const kind kKinds[] = {
    {"counted loop", SHLO("tensor<f32>", LOOP("i64", "9000000000000", "%w = stablehlo.tanh %v : tensor<f32>"))},
    {"sum of all", SHLO("tensor<f32>",
                        "%m = stablehlo.iota dim = 0 : tensor<40000x40000x40000xf32> %s = stablehlo.reduce(%m init: %z) applies stablehlo.add "
                        "across dimensions = [0, 1, 2] : (tensor<40000x40000x40000xf32>, tensor<f32>) -> tensor<f32> return %s : tensor<f32>")},
    {"long rows", SHLO("tensor<3xf32>",
                       "%m = stablehlo.iota dim = 1 : tensor<3x900000000000xf32> %s = stablehlo.reduce(%m init: %z) applies stablehlo.maximum "
                       "across dimensions = [1] : (tensor<3x900000000000xf32>, tensor<f32>) -> tensor<3xf32> return %s : tensor<3xf32>")},
    {"columns", SHLO("tensor<512xf32>",
                     "%m = stablehlo.iota dim = 0 : tensor<9000000000x512xf32> %s = stablehlo.reduce(%m init: %z) applies stablehlo.add across "
                     "dimensions = [0] : (tensor<9000000000x512xf32>, tensor<f32>) -> tensor<512xf32> return %s : tensor<512xf32>")},
    {"columns of short and long", SHLO("tensor<16xf32>",
                     "%m = stablehlo.iota dim = 0 : tensor<90000000000x16x3xf32> %s = stablehlo.reduce(%m init: %z) applies stablehlo.add across "
                     "dimensions = [0, 2] : (tensor<90000000000x16x3xf32>, tensor<f32>) -> tensor<16xf32> return %s : tensor<16xf32>")},
    {"fold by a function", SHLO("tensor<16xf32>",
                                "%m = stablehlo.iota dim = 1 : tensor<8000000x16xf32> %s = stablehlo.reduce(%m init: %z) across dimensions = [0] : (tensor<8000000x16xf32>, "
                                "tensor<f32>) -> tensor<16xf32> reducer(%p: tensor<f32>, %q: tensor<f32>) { %v0 = stablehlo.add %p, %q : tensor<f32> # "
                                "stablehlo.return %v200 : tensor<f32> } return %s : tensor<16xf32>")},
    {"elementwise", SHLO("tensor<60000000xf32>", "%v0 = stablehlo.iota dim = 0 : tensor<60000000xf32> # return %v200 : tensor<60000000xf32>")},
    {"product of floats", SHLO("tensor<8192x8192xf32>", FILL("a", "8192x8192xf32") "%r = stablehlo.dot_general %a, %a, contracting_dims = [1] x [0] : "
                               "(tensor<8192x8192xf32>, tensor<8192x8192xf32>) -> tensor<8192x8192xf32> return %r : tensor<8192x8192xf32>")},
    {"product of integers", SHLO("tensor<4000x4000xi32>", INTS("a", "4000x4000") "%r = stablehlo.dot_general %a, %a, contracting_dims = [1] x [0] : "
                                 "(tensor<4000x4000xi32>, tensor<4000x4000xi32>) -> tensor<4000x4000xi32> return %r : tensor<4000x4000xi32>")},
    {"batch of products", SHLO("tensor<300x1024x1024xf32>", FILL("a", "300x1024x512xf32") FILL("b", "300x512x1024xf32")
                               "%r = stablehlo.dot_general %a, %b, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<300x1024x512xf32>, "
                               "tensor<300x512x1024xf32>) -> tensor<300x1024x1024xf32> return %r : tensor<300x1024x1024xf32>")},
    {"convolution of floats", SHLO("tensor<8x128x128x512xf32>", FILL("a", "8x128x128x512xf32") FILL("b", "3x3x512x512xf32") CONV("f32", "8", "128", "512"))},
    {"convolution of integers", SHLO("tensor<32x64x64x256xi32>", INTS("a", "32x64x64x256") INTS("b", "3x3x256x256") CONV("i32", "32", "64", "256"))},
    {"windows", SHLO("tensor<1x1938x1938x8xf32>", FILL("a", "1x2000x2000x8xf32")
                     "%r = \"stablehlo.reduce_window\"(%a, %z) <{window_dimensions = array<i64: 1, 63, 63, 1>}> ({ ^bb0(%p: tensor<f32>, %q: tensor<f32>): %s = "
                     "stablehlo.add %p, %q : tensor<f32> stablehlo.return %s : tensor<f32> }) : (tensor<1x2000x2000x8xf32>, tensor<f32>) -> "
                     "tensor<1x1938x1938x8xf32> return %r : tensor<1x1938x1938x8xf32>")},
    {"sort", SHLO("tensor<60000000xf32>", "%m = stablehlo.iota dim = 0 : tensor<60000000xf32> %a = stablehlo.sine %m : tensor<60000000xf32> "
                  "%r = \"stablehlo.sort\"(%a) <{dimension = 0 : i64, is_stable = true}> ({ ^bb0(%p: tensor<f32>, %q: tensor<f32>): %c = stablehlo.compare LT, %p, %q, "
                  "TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1> stablehlo.return %c : tensor<i1> }) : (tensor<60000000xf32>) -> tensor<60000000xf32> "
                  "return %r : tensor<60000000xf32>")},
    {"sort by a function", SHLO("tensor<20000000xf32>", "%m = stablehlo.iota dim = 0 : tensor<20000000xf32> %a = stablehlo.sine %m : tensor<20000000xf32> "
                  "%r = \"stablehlo.sort\"(%a) <{dimension = 0 : i64, is_stable = true}> ({ ^bb0(%p: tensor<f32>, %q: tensor<f32>): %d = stablehlo.subtract %p, %q : "
                  "tensor<f32> %t = stablehlo.tanh %d : tensor<f32> %c = stablehlo.compare LT, %t, %z : (tensor<f32>, tensor<f32>) -> tensor<i1> stablehlo.return %c : "
                  "tensor<i1> }) : (tensor<20000000xf32>) -> tensor<20000000xf32> return %r : tensor<20000000xf32>")},
    {"scatter by a function", SHLO("tensor<1000xf32>", FILL("a", "1000xf32") FILL("u", "80000000xf32") "%m = stablehlo.iota dim = 0 : tensor<80000000x1xi32> "
                  "%k = stablehlo.constant dense<1000> : tensor<i32> %kk = stablehlo.broadcast_in_dim %k, dims = [] : (tensor<i32>) -> tensor<80000000x1xi32> "
                  "%at = stablehlo.remainder %m, %kk : tensor<80000000x1xi32> "
                  "%r = \"stablehlo.scatter\"(%a, %at, %u) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = "
                  "[0], index_vector_dim = 1>}> ({ ^bb0(%p: tensor<f32>, %q: tensor<f32>): %t = stablehlo.tanh %p : tensor<f32> %s = stablehlo.add %t, %q : tensor<f32> "
                  "stablehlo.return %s : tensor<f32> }) : (tensor<1000xf32>, tensor<80000000x1xi32>, tensor<80000000xf32>) -> tensor<1000xf32> return %r : "
                  "tensor<1000xf32>")},
    {"cholesky", SHLO("tensor<8192x8192xf32>", "%i = stablehlo.iota dim = 0 : tensor<8192x8192xi32> %j = stablehlo.iota dim = 1 : tensor<8192x8192xi32> "
                  "%e = stablehlo.compare EQ, %i, %j : (tensor<8192x8192xi32>, tensor<8192x8192xi32>) -> tensor<8192x8192xi1> %f = stablehlo.convert %e : "
                  "(tensor<8192x8192xi1>) -> tensor<8192x8192xf32> " FILL("b", "8192x8192xf32") "%g = stablehlo.constant dense<1e5> : tensor<f32> "
                  "%h = stablehlo.broadcast_in_dim %g, dims = [] : (tensor<f32>) -> tensor<8192x8192xf32> %k = stablehlo.multiply %f, %h : tensor<8192x8192xf32> "
                  "%a = stablehlo.add %k, %b : tensor<8192x8192xf32> %r = stablehlo.cholesky %a, lower = true : tensor<8192x8192xf32> return %r : "
                  "tensor<8192x8192xf32>")},
};

static const kind kReferenceKinds[] = {
    {"counted loop", SHLO("tensor<f32>", LOOP("i64", "9000000000000", "%w = stablehlo.tanh %v : tensor<f32>"))},
    {"sum of all", SHLO("tensor<f32>", FILL("m", "80000000xf32") "%s = stablehlo.reduce(%m init: %z) applies stablehlo.add across dimensions = [0] : "
                        "(tensor<80000000xf32>, tensor<f32>) -> tensor<f32> return %s : tensor<f32>")},
    {"elementwise", SHLO("tensor<8000000xf32>", FILL("v0", "8000000xf32") "# return %v200 : tensor<8000000xf32>")},
    {"one long function", SHLO("tensor<100000000xf32>", FILL("a", "100000000xf32") "%r = stablehlo.sine %a : tensor<100000000xf32> return %r : tensor<100000000xf32>")},
    {"product", SHLO("tensor<1500x1500xf32>", FILL("a", "1500x1500xf32") "%r = stablehlo.dot_general %a, %a, contracting_dims = [1] x [0] : "
                     "(tensor<1500x1500xf32>, tensor<1500x1500xf32>) -> tensor<1500x1500xf32> return %r : tensor<1500x1500xf32>")},
    {"convolution", SHLO("tensor<1x64x64x128xf32>", FILL("a", "1x64x64x128xf32") FILL("b", "3x3x128x128xf32") CONV("f32", "1", "64", "128"))},
};

/* The text with its chain of 200 functions. */
static char* whole(const char* text) {
  const char* const hash = strstr(text, "# ");
  char* const out = malloc(strlen(text) + 40000);
  size_t at;
  if (hash == NULL) return strcpy(out, text);
  at = (size_t)(hash - text);
  memcpy(out, text, at);
  const char* const type = strstr(hash, "%v200 : ") + strlen("%v200 : ");
  for (int i = 0; i < 200; ++i) {
    at += (size_t)sprintf(out + at, "%%v%d = stablehlo.%s %%v%d : %.*s ", i + 1, i % 2 == 0 ? "sine" : "log_plus_one", i,
                          (int)strcspn(type, " "), type);
  }
  strcpy(out + at, hash + 1);
  return out;
}

typedef struct {
  weft_context* ctx;
  double at, computed; /* when it cancelled */
} canceller;
static void* cancel_soon(void* data) {
  canceller* const c = data;
  usleep(200000);
  c->computed = computed();
  c->at = now();
  weft_cancel(c->ctx);
  return NULL;
}

/* When the deadline comes. */
static void* note_soon(void* data) {
  canceller* const c = data;
  usleep(200000);
  c->computed = computed();
  return NULL;
}

static void took(const char* platform, const char* name, const char* by, double wall, double busy) {
  const double seconds = wall < busy ? wall : busy;
  if (seconds > g_longest) g_longest = seconds;
  if (getenv("WEFT_TEST_TIMES") != NULL) printf("%-10s %-28s %-9s %7.1f ms, computes %7.1f ms\n", platform, name, by, 1e3 * wall, 1e3 * busy);
  if (seconds < (sanitized() ? 10 : 1) * kSoon) return;
  printf("%s: %s on %s went on for %.2f s\n", by, name, platform, seconds);
  ++g_failures;
}

static void still_right(weft_context* ctx) {
  weft_tensor *x = scalar(ctx, 3), *y = NULL;
  double value = 0;
  OK(weft_mul(ctx, x, x, &y));
  OK(weft_tensor_item_f64(y, &value));
  CHECK(value == 9);
  weft_tensor_release(x);
  weft_tensor_release(y);
}

static void ends(const char* platform, const kind* what, int by_deadline) {
  weft_context* const ctx = with_deadline(platform, by_deadline ? "200" : "0");
  char* const text = whole(what->text);
  weft_function* f = NULL;
  weft_tensor *x = scalar(ctx, 0.5), *y = NULL, *other = scalar(ctx, 7);
  weft_event* event = NULL;
  weft_error* error;
  canceller c = {ctx, 0, 0};
  pthread_t thread;
  size_t count = 0;
  double start, value = 0;
  const char* const by = by_deadline ? "deadline" : "cancel";
  const weft_code code = by_deadline ? WEFT_DEADLINE_EXCEEDED : WEFT_CANCELLED;
  MUST(weft_function_from_stablehlo(ctx, text, WEFT_STRLEN, &f));
  MUST(weft_function_call(ctx, f, &x, 1, &y, 1, &count));
  MUST(weft_compile(ctx, NULL, &y, 1, NULL));
  start = now();
  c.computed = 0;
  if (by_deadline) CHECK(pthread_create(&thread, NULL, note_soon, &c) == 0);
  if (!by_deadline) CHECK(pthread_create(&thread, NULL, cancel_soon, &c) == 0);
  error = weft_eval(ctx, &y, 1, &event); /* on the platform reference this runs it */
  if (error == NULL) error = weft_event_wait(event, kLong);
  CHECK(pthread_join(thread, NULL) == 0);
  if (error == NULL || weft_error_code(error) != code) {
    printf("%s: %s on %s was not ended: %s\n", by, what->name, platform, error ? weft_error_message(error, NULL) : "no error");
    ++g_failures;
  }
  weft_error_release(error);
  /* A wait is given up at once; the launch is over when its event is done. */
  if (event != NULL) {
    error = weft_event_wait(event, kLong);
    FAILS_WITH(error, code, by_deadline ? "a launch was still running after 200 ms" : "a launch that was running was cancelled by weft_cancel");
  }
  took(platform, what->name, by, now() - (by_deadline ? start + 0.2 : c.at), computed() - c.computed);
  still_right(ctx);
  OK(weft_tensor_item_f64(other, &value));
  CHECK(value == 7);
  weft_event_release(event);
  weft_tensor_release(other);
  weft_tensor_release(x);
  weft_tensor_release(y);
  weft_function_release(f);
  weft_context_release(ctx);
  free(text);
}

static void is_all(weft_tensor* tensor, float want, int line) {
  float host[1000];
  OK(weft_tensor_to_host(tensor, host, sizeof host));
  for (int i = 0; i < 1000; ++i) {
    if (host[i] == want) continue;
    printf("%s:%d: element %d is %g, not %g\n", __FILE__, line, i, host[i], want);
    ++g_failures;
    return;
  }
}
#define IS_ALL(tensor, want) is_all((tensor), (want), __LINE__)

static uint64_t donated(weft_context* ctx) {
  weft_blob* json = NULL;
  const char* at;
  uint64_t count;
  MUST(weft_metrics_json(ctx, &json));
  at = strstr((const char*)weft_blob_data(json), "\"buffers_donated\"");
  CHECK(at != NULL);
  count = strtoull(strchr(at, ':') + 1, NULL, 10);
  weft_blob_release(json);
  return count;
}

/* Steps of a training loop: two tensors that are assigned, of which one waits for something that takes long. */
static void step(weft_context* ctx, weft_tensor* v, weft_tensor* w, weft_function* takes_long, weft_tensor* x, double add) {
  wf_scope* const s = wf_begin(ctx);
  weft_tensor *more = wf_scalar(s, WEFT_F32, add), *sum = NULL;
  if (takes_long != NULL) {
    size_t count = 0;
    weft_error* const error = weft_function_call(ctx, takes_long, &x, 1, &sum, 1, &count);
    sum = weft_scope_adopt(s, error, sum);
    more = wf_add(s, more, wf_mul(s, sum, wf_scalar(s, WEFT_F32, 0)));
  }
  wf_try(s, weft_tensor_assign(v, wf_add(s, v, wf_scalar(s, WEFT_F32, add))));
  wf_try(s, weft_tensor_assign(w, wf_add(s, w, more)));
  OK(wf_end(s));
}

static void assigned_tensors_are_as_they_were(const char* platform) {
  weft_context* const ctx = with_deadline(platform, "0");
  float ones[1000];
  const int cpu = strcmp(platform, "cpu") == 0;
  const kind* const slow = cpu ? &kKinds[1] : &kReferenceKinds[1];
  weft_function* f = NULL;
  weft_tensor *v, *w, *x = scalar(ctx, 0.5);
  weft_event* event = NULL;
  for (int i = 0; i < 1000; ++i) ones[i] = 1;
  v = f32(ctx, DIMS(1000), ones);
  w = f32(ctx, DIMS(1000), ones);
  MUST(weft_function_from_stablehlo(ctx, slow->text, WEFT_STRLEN, &f));
  for (int round = 0; round < 3; ++round) {
    canceller c = {ctx, 0, 0};
    pthread_t thread;
    weft_error* error;
    uint64_t before;
    step(ctx, v, w, NULL, x, 1);
    OK(weft_sync(ctx, NULL, NULL));
    step(ctx, v, w, NULL, x, 1);
    before = donated(ctx);
    OK(weft_sync(ctx, NULL, NULL));
    CHECK_EQUAL(donated(ctx) - before, 2);
    IS_ALL(v, (float)(3 + 2 * round));
    step(ctx, v, w, f, x, 100);
    MUST(weft_compile(ctx, NULL, NULL, 0, NULL));
    CHECK(pthread_create(&thread, NULL, cancel_soon, &c) == 0);
    error = weft_sync(ctx, NULL, &event);
    if (error == NULL) error = weft_event_wait(event, kLong);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(error != NULL && weft_error_code(error) == WEFT_CANCELLED);
    weft_error_release(error);
    if (event != NULL) FAILS_WITH(weft_event_wait(event, kLong), WEFT_CANCELLED, "a launch that was running was cancelled by weft_cancel");
    weft_event_release(event);
    event = NULL;
    IS_ALL(v, (float)(3 + 2 * round));
    IS_ALL(w, (float)(3 + 2 * round));
  }
  weft_tensor_release(v);
  weft_tensor_release(w);
  weft_tensor_release(x);
  weft_function_release(f);
  weft_context_release(ctx);
}

/* Factors of one large matrix: calls of LAPACK, left in the midst. */
typedef struct {
  const char* name;
  weft_error* (*make)(weft_context* ctx, weft_tensor* x, weft_tensor** out, weft_tensor** more);
  weft_dtype dtype;
  int64_t size;
} factors;
static weft_error* svd(weft_context* ctx, weft_tensor* x, weft_tensor** out, weft_tensor** more) {
  weft_tensor* all[3] = {NULL, NULL, NULL};
  weft_error* const error = weft_svd(ctx, x, NULL, &all[0], &all[1], &all[2]);
  *out = all[1];
  more[0] = all[0];
  more[1] = all[2];
  return error;
}
static weft_error* eig(weft_context* ctx, weft_tensor* x, weft_tensor** out, weft_tensor** more) { return weft_eig(ctx, x, out, more); }
static weft_error* eigvalsh(weft_context* ctx, weft_tensor* x, weft_tensor** out, weft_tensor** more) {
  (void)more;
  return weft_eigvalsh(ctx, x, NULL, out);
}
static weft_error* qr(weft_context* ctx, weft_tensor* x, weft_tensor** out, weft_tensor** more) { return weft_qr(ctx, x, NULL, out, more); }
static weft_error* inv(weft_context* ctx, weft_tensor* x, weft_tensor** out, weft_tensor** more) {
  (void)more;
  return weft_inv(ctx, x, out);
}
static const factors kFactors[] = {{"svd", svd, WEFT_F64, 2500},
                                   {"eig", eig, WEFT_F64, 1500},
                                   {"eigvalsh", eigvalsh, WEFT_C128, 2000},
                                   {"qr", qr, WEFT_F32, 5000},
                                   {"inv", inv, WEFT_F64, 4000}};

/* From the host: drawing so many numbers takes a busy machine longer than the deadline. */
static weft_tensor* matrix(wf_scope* s, const factors* what) {
  const size_t count = (size_t)(what->size * what->size);
  float* const data = malloc(count * sizeof(float));
  uint32_t drawn = 1;
  weft_tensor* x = NULL;
  CHECK(data != NULL);
  for (size_t i = 0; i < count; ++i) {
    drawn = drawn * 1664525u + 1013904223u;
    data[i] = (float)(drawn >> 8) / 8388608.0f - 1;
  }
  x = wf_from_host(s, WEFT_F32, WF_INTS(what->size, what->size), data, count * sizeof(float));
  free(data);
  return wf_convert(s, x, what->dtype);
}

static void factors_end(const char* platform, const factors* what) {
  weft_context* const ctx = with_deadline(platform, "500");
  wf_scope* s = wf_begin(ctx);
  weft_tensor *x = matrix(s, what), *y = NULL, *more[2] = {NULL, NULL};
  weft_event* event = NULL;
  weft_error* error = NULL;
  canceller c = {ctx, 0, 0};
  pthread_t thread;
  double start;
  wf_try(s, weft_eval(ctx, &x, 1, &event));
  OK(weft_event_wait(event, kLong));
  weft_event_release(event);
  event = NULL;
  wf_try(s, what->make(ctx, x, &y, more));
  wf_try(s, weft_compile(ctx, NULL, &y, 1, NULL));
  start = now();
  CHECK(pthread_create(&thread, NULL, note_soon, &c) == 0);
  error = weft_eval(ctx, &y, 1, &event); /* on the platform reference this runs it */
  if (error == NULL) error = weft_event_wait(event, kLong);
  FAILS_WITH(error, WEFT_DEADLINE_EXCEEDED, "a launch was still running after 500 ms");
  CHECK(pthread_join(thread, NULL) == 0);
  took(platform, what->name, "deadline", now() - start - 0.5, computed() - c.computed);
  weft_event_release(event);
  event = NULL;
  /* What is known is known: it has nothing to do with the launch that failed. */
  wf_try(s, weft_eval(ctx, &x, 1, &event));
  OK(weft_event_wait(event, kLong));
  weft_event_release(event);
  weft_tensor_release(y);
  weft_tensor_release(more[0]);
  weft_tensor_release(more[1]);
  OK(wf_end(s));
  still_right(ctx);
  weft_context_release(ctx);
}

static void attention_ends(void) {
  weft_context* const ctx = with_deadline("cpu", "200");
  wf_scope* s = wf_begin(ctx);
  weft_tensor* q = wf_full(s, WF_INTS(1, 8, 16384, 64), 0.01);
  weft_tensor* y = wf_scaled_dot_product_attention(s, q, q, q);
  weft_tensor* g = NULL;
  weft_event* event = NULL;
  canceller c = {ctx, 0, 0};
  pthread_t thread;
  double start;
  wf_try(s, weft_compile(ctx, NULL, &y, 1, NULL));
  start = now();
  CHECK(pthread_create(&thread, NULL, note_soon, &c) == 0);
  wf_try(s, weft_eval(ctx, &y, 1, &event));
  FAILS_WITH(weft_event_wait(event, kLong), WEFT_DEADLINE_EXCEEDED, "a launch was still running after 200 ms");
  CHECK(pthread_join(thread, NULL) == 0);
  took("cpu", "attention", "deadline", now() - start - 0.2, computed() - c.computed);
  weft_event_release(event);
  q = wf_full(s, WF_INTS(1, 8, 16384, 64), 0.01);
  wf_try(s, weft_eval(ctx, &q, 1, NULL));
  wf_try(s, weft_tensor_require_grad(q, 1));
  wf_grad(s, wf_sum(s, wf_scaled_dot_product_attention(s, q, q, q)), &q, 1, &g);
  wf_try(s, weft_compile(ctx, NULL, &g, 1, NULL));
  start = now();
  CHECK(pthread_create(&thread, NULL, note_soon, &c) == 0);
  wf_try(s, weft_eval(ctx, &g, 1, &event));
  FAILS_WITH(weft_event_wait(event, kLong), WEFT_DEADLINE_EXCEEDED, "a launch was still running after 200 ms");
  CHECK(pthread_join(thread, NULL) == 0);
  took("cpu", "gradient of attention", "deadline", now() - start - 0.2, computed() - c.computed);
  weft_event_release(event);
  OK(wf_end(s));
  still_right(ctx);
  weft_context_release(ctx);
}

int main(int argc, char** argv) {
  alarm(590);
  for (int by_deadline = 0; by_deadline < 2; ++by_deadline) {
    for (size_t i = 0; i < sizeof kKinds / sizeof kKinds[0]; ++i) {
      if (argc < 2 || strstr(kKinds[i].name, argv[1]) != NULL) ends("cpu", &kKinds[i], by_deadline);
    }
    for (size_t i = 0; i < sizeof kReferenceKinds / sizeof kReferenceKinds[0]; ++i) {
      if (argc < 2 || strstr(kReferenceKinds[i].name, argv[1]) != NULL) ends("reference", &kReferenceKinds[i], by_deadline);
    }
  }
  if (argc < 2 || strcmp(argv[1], "attention") == 0) attention_ends();
  for (size_t i = 0; i < sizeof kFactors / sizeof kFactors[0]; ++i) {
    if (argc < 2 || strcmp(argv[1], "factors") == 0) factors_end("cpu", &kFactors[i]);
  }
  if (argc < 2 || strcmp(argv[1], "factors") == 0) factors_end("reference", &kFactors[1]);
  if (argc < 2 || strcmp(argv[1], "assigned") == 0) {
    assigned_tensors_are_as_they_were("cpu");
    assigned_tensors_are_as_they_were("reference");
  }
  printf("the longest went on for %.0f ms\n", 1e3 * g_longest);
  return done("ended_launches");
}
