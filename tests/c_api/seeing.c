/* What a context says of itself when asked: how often and where the time went, where an operation was recorded, and why a program had
 * to be made. */
#define _GNU_SOURCE
#include "check.h"

#include <dlfcn.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>

#include "folder.h"

static int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int has(weft_context* ctx, weft_metrics_format format, const char* text) {
  weft_blob* blob = NULL;
  MUST(weft_metrics_render(ctx, format, &blob));
  const int found = strstr(weft_blob_data(blob), text) != NULL;
  weft_blob_release(blob);
  return found;
}

/* --- Counts ------------------------------------------------------------------------------------------------------------- */

static void counts(void) {
  const float data[6] = {1, 2, 3, 4, 5, 6};
  weft_context* const ctx = new_context();
  weft_tensor *x = f32(ctx, DIMS(2, 3), data), *y = NULL, *z = NULL, *sum = NULL, *positions = NULL;
  float out[6];
  int64_t value = 0;
  CHECK_EQUAL(metric(ctx, "op::exp"), 0);
  for (int i = 0; i < 3; ++i) {
    weft_tensor* one = NULL;
    MUST(weft_exp(ctx, x, &one));
    weft_tensor_release(one);
  }
  MUST(weft_add(ctx, x, x, &y));
  MUST(weft_nonzero(ctx, y, &positions));
  MUST(weft_sum(ctx, y, NULL, &sum));
  MUST(weft_tensor_to_host(sum, out, sizeof(float)));
  MUST(weft_tensor_to_host(y, out, sizeof out));
  CHECK_EQUAL(metric(ctx, "op::exp"), 3);
  CHECK_EQUAL(metric(ctx, "op::add"), 1);
  CHECK_EQUAL(metric(ctx, "host::exact_size"), 1);
  CHECK_EQUAL(metric(ctx, "host::read"), 3);
  CHECK_EQUAL(metric(ctx, "host::read_of_one"), 2);
  CHECK_EQUAL(metric(ctx, "barriers"), 0);
  MUST(weft_sync(ctx, NULL, NULL));
  CHECK_EQUAL(metric(ctx, "barriers"), 1);
  CHECK_EQUAL(metric(ctx, "tensors_made") - metric(ctx, "tensors_released"), 4);
  CHECK(metric(ctx, "data_handles_made") - metric(ctx, "data_handles_released") >= 4);
  CHECK(has(ctx, WEFT_METRICS_XLA, "Counter: xla::exp\n  Value: 3\n"));
  CHECK(has(ctx, WEFT_METRICS_XLA, "Counter: MarkStep\n  Value: 1\n"));
  CHECK(has(ctx, WEFT_METRICS_XLA, "Counter: aten::_local_scalar_dense\n  Value: 2\n"));
  CHECK(has(ctx, WEFT_METRICS_XLA, "Counter: CreateXlaTensor\n"));
  CHECK(has(ctx, WEFT_METRICS_XLA, "Counter: DestroyDataHandles\n"));
  CHECK(has(ctx, WEFT_METRICS_XLA, "Metric: LazyTracing\n"));
  CHECK(has(ctx, WEFT_METRICS_XLA, "Metric: InputOutputAliasCount\n"));
  CHECK(has(ctx, WEFT_METRICS_OPENMETRICS, "weft_op_total{op=\"exp\"} 3\n"));
  CHECK(has(ctx, WEFT_METRICS_OPENMETRICS, "weft_host_read_total 3\n"));
  CHECK(has(ctx, WEFT_METRICS_TEXT, "op::exp: 3\n"));
  FAILS(weft_metric_get(ctx, "op::matmull", WEFT_STRLEN, &value), WEFT_NOT_FOUND,
        "weft_metric_get: there is no counter 'op::matmull'; did you mean 'op::matmul'? weft_metric_list names all");
  INVALID(weft_metric_add(ctx, "op::mine", WEFT_STRLEN, 1), "weft_metric_add: metric 'op::mine' is counted by Weft itself");
  INVALID(weft_metric_add(ctx, "xla::exp", WEFT_STRLEN, 1), "weft_metric_add: metric 'xla::exp' is counted by Weft itself");
  MUST(weft_metric_add(ctx, "xla::of_a_binding", WEFT_STRLEN, 1));
  MUST(weft_metrics_clear(ctx));
  CHECK_EQUAL(metric(ctx, "op::exp"), 0);
  weft_tensor_release(x), weft_tensor_release(y), weft_tensor_release(z), weft_tensor_release(sum), weft_tensor_release(positions);
  weft_context_release(ctx);
}

/* --- Time by part ------------------------------------------------------------------------------------------------------- */

static const char* const kParts[] = {"recording",       "looking_up",      "waiting_compiler", "waiting_room",  "waiting_memory",
                                     "waiting_results", "launching",       "running_inline",   "copying"};

static int64_t part(weft_context* ctx, const char* name) {
  char full[64];
  snprintf(full, sizeof full, "nanoseconds_%s", name);
  return metric(ctx, full);
}

/* A loop of steps with reads, its own work and a program to compile: the parts are the whole. */
static void parts(int64_t side, const char* platform) {
  weft_context* const ctx = new_context_with("platform", platform);
  weft_tensor* w = ramp(ctx, DIMS(side, side));
  int64_t all = 0, wall;
  double mine = 0;
  MUST(weft_metrics_clear(ctx));
  wall = now_ns();
  for (int step = 0; step < 200; ++step) {
    weft_tensor *y = NULL, *z = NULL, *sum = NULL;
    float out;
    MUST(weft_matmul(ctx, w, w, NULL, &y));
    MUST(weft_tanh(ctx, y, &z));
    MUST(weft_tensor_assign(w, z));
    MUST(weft_sync(ctx, NULL, NULL));
    for (int i = 0; i < 1000; ++i) mine += i * 1e-9;
    if (step % 4 == 0) {
      MUST(weft_sum(ctx, w, NULL, &sum));
      MUST(weft_tensor_to_host(sum, &out, sizeof out));
    }
    weft_tensor_release(y), weft_tensor_release(z), weft_tensor_release(sum);
  }
  for (size_t i = 0; i < sizeof kParts / sizeof *kParts; ++i) CHECK(part(ctx, kParts[i]) >= 0);
  MUST(weft_sync(ctx, NULL, NULL)); /* the last stretch of recording ends here */
  wall = now_ns() - wall;
  for (size_t i = 0; i < sizeof kParts / sizeof *kParts; ++i) all += part(ctx, kParts[i]);
  if (llabs(all - wall) > wall / 50 + 200000) {
    printf("%s: the parts are %lld of %lld ns:\n", platform, (long long)all, (long long)wall);
    for (size_t i = 0; i < sizeof kParts / sizeof *kParts; ++i) printf("  %s %lld\n", kParts[i], (long long)part(ctx, kParts[i]));
    ++g_failures;
  }
  CHECK(mine > 0 && part(ctx, "recording") > 0 && part(ctx, "looking_up") > 0 && part(ctx, "launching") > 0);
  CHECK(part(ctx, "waiting_compiler") > 0);
  /* What runs on this thread is not launching: small products are launched in microseconds. */
  if (side <= 16) CHECK(part(ctx, "running_inline") > 0);
  CHECK(metric(ctx, "nanoseconds_waiting") ==
        part(ctx, "waiting_room") + part(ctx, "waiting_memory") + part(ctx, "waiting_results"));
  weft_tensor_release(w);
  weft_context_release(ctx);
}

/* --- Positions ---------------------------------------------------------------------------------------------------------- */

static char* text_of(weft_context* ctx, weft_tensor* x) {
  weft_blob* blob = NULL;
  char* text;
  MUST(weft_program_text(ctx, &x, x != NULL, WEFT_TEXT_IR, &blob));
  text = strdup(weft_blob_data(blob));
  weft_blob_release(blob);
  return text;
}

static void says(weft_context* ctx, weft_tensor* x, const char* position, int there, int line) {
  char* const text = text_of(ctx, x);
  if ((strstr(text, position) != NULL) != there) {
    printf("%s:%d: \"%s\" is %s in\n%s\n", __FILE__, line, position, there ? "not" : "there", text);
    ++g_failures;
  }
  free(text);
}
#define SAYS(ctx, x, position, there) says((ctx), (x), (position), (there), __LINE__)

__attribute__((noinline)) static weft_tensor* plain(weft_context* ctx, weft_tensor* x) {
  weft_tensor* y = NULL;
  MUST(weft_exp(ctx, x, &y));
  return y;
}

static void positions(void) {
  weft_context *ctx = new_context(), *off = new_context_with("positions", "off"), *stack = new_context_with("positions", "stack");
  weft_tensor *x = ramp(ctx, DIMS(4)), *y = plain(ctx, x), *z = NULL, *u = NULL, *bad = NULL;
  const weft_frame frames[] = {{"inner", WEFT_STRLEN, "model.py", WEFT_STRLEN, 12, 0}, {"outer", WEFT_STRLEN, "train.py", WEFT_STRLEN, 3, 0}};
  const weft_frame empty = {NULL, 0, NULL, 0, 1, 0};
  weft_error* error;
  Dl_info info;
  /* Where the call was made, in this program, counted from its beginning. */
  char* text = text_of(ctx, y);
  const char* at = strstr(text, "loc(\"weft_c_seeing+0x");
  CHECK(at != NULL);
  if (at != NULL) {
    CHECK(dladdr((void*)(uintptr_t)&plain, &info) != 0);
    const uintptr_t offset = strtoull(at + strlen("loc(\"weft_c_seeing+0x"), NULL, 16);
    const uintptr_t begins = (uintptr_t)&plain - (uintptr_t)info.dli_fbase;
    CHECK(offset > begins && offset < begins + 4096);
  }
  free(text);
  /* A mark goes before that, until it is taken back, and a scope's before either. */
  MUST(weft_position_mark(ctx, "step.rb", WEFT_STRLEN, 7));
  MUST(weft_exp(ctx, y, &z));
  SAYS(ctx, z, "loc(\"step.rb:7\")", 1);
  weft_tensor_release(z);
  MUST(weft_position_mark_stack(ctx, frames, 2));
  MUST(weft_exp(ctx, y, &z));
  SAYS(ctx, z, "loc(\"model.py:12\")", 1);
  error = weft_add(ctx, z, NULL, &bad);
  CHECK(error != NULL);
  weft_error_release(error);
  weft_tensor_release(z);
  {
    weft_scope* const s = wf_begin(ctx);
    SAYS(ctx, wf_exp(s, y), "seeing.c:", 1);
    MUST(wf_end(s));
  }
  MUST(weft_position_mark(ctx, NULL, 0, 0));
  MUST(weft_exp(ctx, y, &z));
  SAYS(ctx, z, "step.rb", 0);
  SAYS(ctx, z, "model.py", 0);
  /* Off: nothing. Stack: at least the call. */
  weft_tensor* const plain_off = ramp(off, DIMS(4));
  u = plain(off, plain_off);
  SAYS(off, u, "loc(", 0);
  weft_tensor* const plain_stack = ramp(stack, DIMS(4));
  bad = plain(stack, plain_stack);
  SAYS(stack, bad, "loc(\"weft_c_seeing+0x", 1);
  INVALID(weft_position_mark(ctx, "a.c", WEFT_STRLEN, -1), "weft_position_mark: line is -1; it must be 0 or more");
  INVALID(weft_position_mark_stack(ctx, &empty, 1), "weft_position_mark_stack: frames[0] has neither a function nor a file");
  INVALID(weft_position_mark_stack(ctx, frames, 257), "weft_position_mark_stack: count is 257; a stack has at most 256 frames");
  weft_tensor_release(x), weft_tensor_release(y), weft_tensor_release(z), weft_tensor_release(u), weft_tensor_release(bad);
  weft_tensor_release(plain_off), weft_tensor_release(plain_stack);
  weft_context_release(ctx), weft_context_release(off), weft_context_release(stack);
}

/* Positions are in no key: the same operations recorded elsewhere are the same program. */
static void no_key(void) {
  weft_context* const ctx = new_context();
  weft_tensor *x = ramp(ctx, DIMS(4)), *y = NULL, *z = NULL;
  MUST(weft_sync(ctx, NULL, NULL));
  y = plain(ctx, x);
  MUST(weft_sync(ctx, NULL, NULL));
  MUST(weft_exp(ctx, x, &z));
  MUST(weft_sync(ctx, NULL, NULL));
  CHECK_EQUAL(metric(ctx, "programs_compiled"), 1);
  weft_tensor_release(x), weft_tensor_release(y), weft_tensor_release(z);
  weft_context_release(ctx);
}

/* --- Reasons ------------------------------------------------------------------------------------------------------------ */

/* The newest program's reason, and what its text says. */
static void newest(weft_context* ctx, const char* reason, const char* text, int line) {
  weft_blob* blob = NULL;
  char wanted[512];
  const char *list, *end;
  MUST(weft_program_list(ctx, &blob));
  list = weft_blob_data(blob);
  end = strchr(list, '}');
  snprintf(wanted, sizeof wanted, "\"reason\": \"%s\"", reason);
  const char* const found = strstr(list, wanted);
  const char* const said = strstr(list, text);
  if (found == NULL || end == NULL || found > end || said == NULL || said > end) {
    printf("%s:%d: the newest program is not there because of %s, \"%s\":\n%.*s\n", __FILE__, line, reason, text,
           end == NULL ? 0 : (int)(end - list), list);
    ++g_failures;
  }
  weft_blob_release(blob);
}
#define NEWEST(ctx, reason, text) newest((ctx), (reason), (text), __LINE__)

/* One step: y = tanh(x * number), and what the arguments say beside it. */
static void step(weft_context* ctx, weft_tensor* x, double number, int64_t axis, int more, weft_tensor** keeps) {
  weft_scope* const s = wf_begin(ctx);
  const int64_t dims[] = {axis};
  weft_tensor* y = wf_mul_n(s, x, number); /* the constant's line */
  weft_tensor* z = wf_tanh(s, y);
  if (more) z = wf_exp(s, z);
  if (keeps != NULL) *keeps = wf_keep(s, y);
  weft_tensor* const out = wf_keep(s, wf_sum(s, z, .dims = dims, .dims_count = 1));
  MUST(wf_end(s));
  MUST(weft_sync(ctx, NULL, NULL));
  weft_tensor_release(out);
}

static int line_of(const char* comment) {
  static char line[512];
  int n = 0, found = 0;
  FILE* const file = fopen(__FILE__, "r");
  while (file != NULL && fgets(line, sizeof line, file) != NULL) {
    ++n;
    if (strstr(line, comment) != NULL && found == 0) found = n;
  }
  if (file != NULL) fclose(file);
  return found;
}

static void reasons(void) {
  weft_context* const ctx = new_context();
  weft_tensor *x = ramp(ctx, DIMS(32, 64)), *small = ramp(ctx, DIMS(31, 64)), *kept = NULL;
  char text[256];
  const int line = line_of("/* the constant's line */");
  MUST(weft_sync(ctx, NULL, NULL));
  step(ctx, x, 1.1, 0, 0, NULL);
  NEWEST(ctx, "first", "\"text\": \"\"");
  step(ctx, x, 1.2, 0, 0, NULL);
  snprintf(text, sizeof text, "seeing.c:%d is 1.2, was 1.1; all else equal (", line);
  NEWEST(ctx, "constant", text);
  step(ctx, small, 1.2, 0, 0, NULL);
  NEWEST(ctx, "argument", " is f32[31, 64], was f32[32, 64]; ");
  step(ctx, x, 1.2, 1, 0, NULL);
  NEWEST(ctx, "attribute", " is [1], was [0]");
  step(ctx, x, 1.2, 1, 1, NULL);
  NEWEST(ctx, "operations", "exp at ");
  NEWEST(ctx, "operations", " is new");
  step(ctx, x, 1.2, 1, 1, &kept);
  NEWEST(ctx, "outputs", "is wanted, too: its handle lives on");
  weft_tensor_release(kept);
  CHECK_EQUAL(metric(ctx, "missing::constant"), 1);
  CHECK_EQUAL(metric(ctx, "missing::argument"), 1);
  CHECK_EQUAL(metric(ctx, "missing::attribute"), 1);
  CHECK_EQUAL(metric(ctx, "missing::operations"), 1);
  CHECK_EQUAL(metric(ctx, "missing::outputs"), 1);
  CHECK_EQUAL(metric(ctx, "missing::first"), 1);
  CHECK_EQUAL(metric(ctx, "programs_queued"), 6);
  weft_tensor_release(x), weft_tensor_release(small);
  weft_context_release(ctx);
}

/* A body that differs in a constant, in an operation, or in how many there are; the user data say in which. */
static weft_error* body(void* user, weft_context* in, weft_tensor* const* x, size_t count, weft_tensor** out, size_t capacity, size_t* used) {
  const int* const kind = user;
  wf_scope* s = wf_begin(in);
  weft_tensor* y = wf_mul_n(s, x[count - 1], kind[0] == 0 ? 1.5 : 2.5);
  (void)capacity;
  y = kind[1] == 0 ? wf_tanh(s, y) : wf_exp(s, y);
  if (kind[2] != 0) y = wf_sqrt(s, y);
  out[0] = wf_keep(s, y);
  *used = 1;
  return wf_end(s);
}

static void inside(void) {
  static const int kinds[4][3] = {{0, 0, 0}, {1, 0, 0}, {1, 1, 0}, {1, 1, 1}};
  static const char* const said[4] = {"\"text\": \"\"", "constant is 2.5, was 1.5; all else equal (", "exp stands where tanh was; all else equal (",
                                      "sqrt is new; all else equal ("};
  for (int loop = 0; loop < 2; ++loop) {
    weft_context* const ctx = new_context();
    const weft_tensor_info info = {WEFT_F32, 1, {4}};
    weft_tensor* x = ramp(ctx, DIMS(4));
    MUST(weft_sync(ctx, NULL, NULL));
    for (int i = 0; i < 4; ++i) {
      weft_function* f = NULL;
      wf_scope* s = wf_begin(ctx);
      weft_tensor* y;
      MUST(weft_function_trace(ctx, "cell", WEFT_STRLEN, &info, 1, body, (void*)(uintptr_t)kinds[i], 1, &f));
      if (loop) {
        y = wf_keep(s, wf_scan(s, f, WF_TENSORS(x), NULL, 0, .length = 5));
      } else {
        size_t results = 0;
        wf_try(s, weft_function_call(ctx, f, &x, 1, &y, 1, &results));
      }
      OK(wf_end(s));
      MUST(weft_sync(ctx, NULL, NULL));
      NEWEST(ctx, i == 0 ? "first" : "attribute", said[i]);
      if (i > 0) NEWEST(ctx, "attribute", loop ? "in the function of scan at " : "in the function of call");
      weft_tensor_release(y);
      weft_function_release(f);
    }
    weft_tensor_release(x);
    weft_context_release(ctx);
  }
}

/* The second step of a loop whose parameter was pending in the first, and memory that can no longer be taken over. */
static void loops(void) {
  weft_context* const ctx = new_context();
  weft_tensor *w = NULL, *seed = ramp(ctx, DIMS(8, 8)), *other = NULL;
  MUST(weft_sync(ctx, NULL, NULL));
  MUST(weft_tanh(ctx, seed, &w)); /* pending */
  for (int i = 0; i < 3; ++i) {
    weft_tensor *y = NULL, *z = NULL;
    MUST(weft_exp(ctx, w, &y));
    MUST(weft_sqrt(ctx, y, &z));
    MUST(weft_tensor_assign(w, z));
    weft_tensor_release(y), weft_tensor_release(z);
    if (i == 2) MUST(weft_tensor_copy(w, &other));
    MUST(weft_sync(ctx, NULL, NULL));
    if (i == 1) NEWEST(ctx, "pending", "is known now; before, tanh at ");
  }
  CHECK(metric(ctx, "missing::pending") >= 1);
  weft_tensor_release(w), weft_tensor_release(seed), weft_tensor_release(other);
  weft_context_release(ctx);
}

/* --- Limits -------------------------------------------------------------------------------------------------------------- */

static void settled(void) {
  weft_context *ctx = new_context(), *two = new_context_with("compile_limit", "2");
  weft_tensor *x = ramp(ctx, DIMS(4)), *y = NULL, *z = NULL;
  weft_error* error;
  float out[4];
  MUST(weft_exp(ctx, x, &y));
  MUST(weft_sync(ctx, NULL, NULL));
  MUST(weft_compiles_settled(ctx, 1));
  weft_tensor_release(y);
  MUST(weft_exp(ctx, x, &y));
  MUST(weft_sync(ctx, NULL, NULL)); /* as before */
  MUST(weft_tanh(ctx, y, &z));
  error = weft_sync(ctx, NULL, NULL);
  CHECK(error != NULL && weft_error_code(error) == WEFT_FAILED_PRECONDITION);
  CHECK(error != NULL && strstr(weft_error_message(error, NULL), "weft_compiles_settled allows: ") != NULL);
  CHECK(error != NULL && weft_error_payload(error, "weft.reason", WEFT_STRLEN, NULL) != NULL);
  weft_error_release(error);
  CHECK_EQUAL(metric(ctx, "tensors_set_aside"), 0);
  MUST(weft_compiles_settled(ctx, 0));
  MUST(weft_sync(ctx, NULL, NULL)); /* nothing was lost */
  MUST(weft_tensor_to_host(z, out, sizeof out));
  INVALID(weft_compiles_settled(ctx, 2), "weft_compiles_settled: settled is 2; it must be 0 or 1");
  weft_tensor_release(x), weft_tensor_release(y), weft_tensor_release(z);
  weft_context_release(ctx);

  x = ramp(two, DIMS(4)), y = NULL, z = NULL;
  MUST(weft_exp(two, x, &y));
  MUST(weft_tensor_to_host(y, out, sizeof out));
  MUST(weft_tanh(two, x, &z));
  MUST(weft_tensor_to_host(z, out, sizeof out));
  weft_tensor_release(z);
  MUST(weft_sqrt(two, x, &z));
  FAILS_WITH(weft_tensor_to_host(z, out, sizeof out), WEFT_FAILED_PRECONDITION, "the option compile_limit");
  CHECK_EQUAL(metric(two, "programs_compiled"), 2);
  weft_tensor_release(x), weft_tensor_release(y), weft_tensor_release(z);
  weft_context_release(two);
}

/* --- Explanations -------------------------------------------------------------------------------------------------------- */

static void explained(void) {
  char path[400], all[4096];
  size_t size;
  FILE* file;
  make_folder();
  snprintf(path, sizeof path, "%s/explain.txt", g_dir);
  const weft_setting settings[] = {{"cache_mode", WEFT_STRLEN, "off", WEFT_STRLEN},
                                   {"explain", WEFT_STRLEN, "compiles", WEFT_STRLEN},
                                   {"explain_file", WEFT_STRLEN, path, WEFT_STRLEN}};
  weft_context_options options = WEFT_CONTEXT_OPTIONS_INIT;
  weft_context* ctx = NULL;
  options.settings = settings;
  options.setting_count = 3;
  MUST(weft_context_create(&options, &ctx));
  weft_tensor* x = ramp(ctx, DIMS(4, 4));
  MUST(weft_sync(ctx, NULL, NULL));
  for (int i = 0; i < 4; ++i) step(ctx, x, 1 + i, 0, 0, NULL);
  weft_tensor_release(x);
  weft_context_release(ctx);
  file = fopen(path, "r");
  CHECK(file != NULL);
  size = file != NULL ? fread(all, 1, sizeof all - 1, file) : 0;
  if (file != NULL) fclose(file);
  all[size] = 0;
  CHECK(strstr(all, "weft explain: compiled again (") != NULL);
  CHECK(strstr(all, " ms, 3rd time here): constant at ") != NULL);
  CHECK(strstr(all, " is 4.0, was 3.0; all else equal (") != NULL);
  CHECK(strstr(all, "weft explain: programs made: 4\n  first: 1\n  constant: 3, of these 3 at ") != NULL);
  remove_folder();
}

/* What options want after barriers: the outcome at once, and metrics in a file, in PyTorch/XLA's layout unless said otherwise. */
static void after_barriers(void) {
  char path[400], all[65536];
  make_folder();
  snprintf(path, sizeof path, "%s/metrics.txt", g_dir);
  const weft_setting settings[] = {{"cache_mode", WEFT_STRLEN, "off", WEFT_STRLEN}, {"metrics_file", WEFT_STRLEN, path, WEFT_STRLEN}};
  weft_context_options options = WEFT_CONTEXT_OPTIONS_INIT;
  weft_context *ctx = NULL, *waits = new_context_with("sync_wait", "1"), *nowhere = new_context_with("metrics_file", "/nowhere/metrics.txt");
  weft_event* event = NULL;
  options.settings = settings;
  options.setting_count = 2;
  MUST(weft_context_create(&options, &ctx));
  weft_tensor *x = ramp(ctx, DIMS(4)), *y = plain(ctx, x);
  MUST(weft_sync(ctx, NULL, NULL));
  MUST(weft_sync(ctx, NULL, NULL));
  weft_tensor_release(x), weft_tensor_release(y);
  weft_context_release(ctx);
  FILE* const file = fopen(path, "r");
  CHECK(file != NULL);
  const size_t size = file != NULL ? fread(all, 1, sizeof all - 1, file) : 0;
  if (file != NULL) fclose(file);
  all[size] = 0;
  CHECK(strncmp(all, "[MetricsData; step=1]\nMetric: ", 30) == 0);
  CHECK(strstr(all, "\n\n[MetricsData; step=2]\n") != NULL);
  CHECK(strstr(all, "Counter: MarkStep\n  Value: 2\n") != NULL);
  remove_folder();
  /* A large product is not there when a barrier returns, unless it waits. */
  x = ramp(waits, DIMS(600, 600));
  MUST(weft_matmul(waits, x, x, NULL, &y));
  MUST(weft_sync(waits, NULL, &event));
  int32_t done = 0;
  MUST(weft_event_poll(event, &done));
  CHECK_EQUAL(done, 1);
  weft_event_release(event);
  weft_tensor_release(x), weft_tensor_release(y);
  weft_context_release(waits);
  /* What cannot be written costs one warning and no barrier. */
  x = ramp(nowhere, DIMS(4));
  y = plain(nowhere, x);
  MUST(weft_sync(nowhere, NULL, NULL));
  MUST(weft_sync(nowhere, NULL, NULL));
  CHECK_EQUAL(metric(nowhere, "warnings"), 1);
  weft_tensor_release(x), weft_tensor_release(y);
  weft_context_release(nowhere);
}

/* Each process of a job has files of its own: its rank stands behind their names. */
static void of_a_job(void) {
  static const char* const variables[][2] = {{"WEFT_RANK", "1"}, {"WEFT_WORLD_SIZE", "2"}, {"WEFT_LOCAL_RANK", "1"}, {"WEFT_LOCAL_SIZE", "2"}, {"WEFT_JOB", "j"}};
  char metrics[400], graphs[400], path[410];
  weft_context_options options = WEFT_CONTEXT_OPTIONS_INIT;
  make_folder();
  snprintf(metrics, sizeof metrics, "%s/metrics", g_dir), snprintf(graphs, sizeof graphs, "%s/graphs", g_dir);
  const weft_setting settings[] = {{"cache_mode", WEFT_STRLEN, "off", WEFT_STRLEN},
                                   {"metrics_file", WEFT_STRLEN, metrics, WEFT_STRLEN},
                                   {"save_graphs", WEFT_STRLEN, graphs, WEFT_STRLEN}};
  options.settings = settings;
  options.setting_count = 3;
  for (int size = 1; size <= 2; ++size) {
    weft_context* ctx = NULL;
    for (size_t i = 0; size == 2 && i < sizeof variables / sizeof *variables; ++i) setenv(variables[i][0], variables[i][1], 1);
    MUST(weft_context_create(&options, &ctx));
    weft_tensor *x = ramp(ctx, DIMS(4)), *y = plain(ctx, x);
    MUST(weft_sync(ctx, NULL, NULL));
    weft_tensor_release(x), weft_tensor_release(y);
    weft_context_release(ctx);
    for (int i = 0; i < 2; ++i) {
      snprintf(path, sizeof path, "%s%s", i == 0 ? metrics : graphs, size == 2 ? ".1" : "");
      CHECK_EQUAL(access(path, R_OK), 0);
      CHECK_EQUAL(remove(path), 0);
    }
  }
  for (size_t i = 0; i < sizeof variables / sizeof *variables; ++i) unsetenv(variables[i][0]);
  remove_folder();
}

/* A program in memory by its key: what was recorded, which reads back, and what runs. */
static void by_key(void) {
  weft_context* const ctx = new_context();
  weft_tensor *x = ramp(ctx, DIMS(4)), *y = NULL;
  weft_blob* blob = NULL;
  weft_function* function = NULL;
  char key[17] = "";
  MUST(weft_exp(ctx, x, &y));
  MUST(weft_sync(ctx, NULL, NULL));
  MUST(weft_program_list(ctx, &blob));
  const char* const at = strstr(weft_blob_data(blob), "\"key\": \"");
  CHECK(at != NULL);
  if (at != NULL) memcpy(key, at + 8, 16);
  weft_blob_release(blob);
  static const struct {
    weft_text_format format;
    const char* word;
  } rows[] = {{WEFT_TEXT_IR, "exponential(%0)"}, {WEFT_TEXT_STABLEHLO, "stablehlo.exponential"}, {WEFT_TEXT_PLAN, "loop "},
              {WEFT_TEXT_OPTIMISED, "exponential(%0)"}, {WEFT_TEXT_DOT, "digraph \"program\" {"}, {WEFT_TEXT_LOOPS, "exp"},
              {WEFT_TEXT_LLVM, "define "}, {WEFT_TEXT_ASSEMBLY, "ret"}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
    MUST(weft_program_report(ctx, key, WEFT_STRLEN, rows[i].format, &blob));
    if (strstr(weft_blob_data(blob), rows[i].word) == NULL) printf("no '%s' in\n%s\n", rows[i].word, (const char*)weft_blob_data(blob)), ++g_failures;
    if (i == 0) MUST(weft_function_from_text(ctx, weft_blob_data(blob), weft_blob_size(blob), &function));
    if (i == 2) CHECK(strstr(weft_blob_data(blob), key) != NULL);
    weft_blob_release(blob);
  }
  weft_function_release(function);
  INVALID(weft_program_report(ctx, key, WEFT_STRLEN, (weft_text_format)8, &blob), "weft_program_report: format is 8; weft_text_format has 0 to 7");
  char wanted[200];
  const char last = key[15];
  key[15] = last == '0' ? '1' : '0';
  snprintf(wanted, sizeof wanted, "weft_program_report: there is no program '%s' in memory; did you mean '%.15s%c'? weft_program_list has them all", key, key, last);
  FAILS(weft_program_report(ctx, key, WEFT_STRLEN, WEFT_TEXT_IR, &blob), WEFT_NOT_FOUND, wanted);
  weft_tensor_release(x), weft_tensor_release(y);
  weft_context_release(ctx);
}

/* PyTorch/XLA's variables stand where nobody sets the option, and take what PyTorch/XLA takes. */
static void others_variables(void) {
  weft_context* ctx = NULL;
  weft_blob* value = NULL;
  weft_context_options options = WEFT_CONTEXT_OPTIONS_INIT;
  const struct {
    const char *variable, *said, *option, *is;
  } rows[] = {{"XLA_IR_DEBUG", "1", "positions", "stack"},       {"XLA_IR_DEBUG", "true", "positions", "stack"},
              {"XLA_HLO_DEBUG", "1", "positions", "stack"},      {"XLA_IR_DEBUG", "0", "positions", "call"},
              {"PT_XLA_DEBUG_LEVEL", "2", "explain", "launches"}, {"PT_XLA_DEBUG", "1", "explain", "compiles"},
              {"PT_XLA_DEBUG_FILE", "/tmp/x", "explain_file", "/tmp/x"}, {"XLA_SYNC_WAIT", "1", "sync_wait", "1"}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
    setenv(rows[i].variable, rows[i].said, 1);
    MUST(weft_context_create(&options, &ctx));
    MUST(weft_context_option(ctx, rows[i].option, WEFT_STRLEN, &value));
    CHECK_TEXT((const char*)weft_blob_data(value), rows[i].is);
    weft_blob_release(value);
    weft_context_release(ctx);
    unsetenv(rows[i].variable);
  }
  setenv("XLA_IR_DEBUG", "perhaps", 1);
  INVALID(weft_context_create(&options, &ctx),
          "weft_context_create: XLA_IR_DEBUG: 'perhaps' is not one of 0, 1; the option positions (WEFT_POSITIONS) goes before it");
  unsetenv("XLA_IR_DEBUG");
}

/* The barrier's program, with its gradient and updates, is what no tensors give. */
static void barrier_text(void) {
  weft_context* const ctx = new_context();
  weft_tensor *x = ramp(ctx, DIMS(4)), *y = NULL, *z = NULL;
  MUST(weft_exp(ctx, x, &y));
  MUST(weft_tanh(ctx, x, &z));
  SAYS(ctx, NULL, "= exponential(", 1);
  SAYS(ctx, NULL, "= tanh(", 1);
  weft_tensor_release(x), weft_tensor_release(y), weft_tensor_release(z);
  weft_context_release(ctx);
}

/* --- Memory -------------------------------------------------------------------------------------------------------------- */

/* A list of handles that grows: its line is the report's first. */
static void memory(void) {
  weft_context* const ctx = new_context();
  weft_device* device = NULL;
  weft_blob* blob = NULL;
  weft_tensor *x = ramp(ctx, DIMS(8, 8)), *leak[5], *pending = NULL;
  char wanted[256];
  MUST(weft_device_at(ctx, 0, &device));
  for (int i = 0; i < 5; ++i) {
    weft_scope* const s = wf_begin(ctx);
    leak[i] = wf_keep(s, wf_add(s, x, wf_exp(s, x))); /* the leak */
    MUST(wf_end(s));
    MUST(weft_sync(ctx, NULL, NULL));
  }
  MUST(weft_tanh(ctx, x, &pending));
  MUST(weft_memory_report(device, WEFT_MEMORY_TEXT, &blob));
  const char* const first = strchr(weft_blob_data(blob), '\n');
  snprintf(wanted, sizeof wanted, "\n  5 x f32[8, 8], 1280 bytes, add, %s:%d, made in steps 1 to 5\n", __FILE__, line_of("/* the leak */"));
  CHECK(first != NULL && strncmp(first, wanted, strlen(wanted)) == 0);
  CHECK(strstr(weft_blob_data(blob), "  pending: 1 tensors without memory yet, 1 nodes\n") != NULL);
  CHECK(strstr(weft_blob_data(blob), "kept for reuse: ") != NULL);
  if (g_failures > 0) printf("%s", (const char*)weft_blob_data(blob));
  weft_blob_release(blob);
  MUST(weft_memory_report(device, WEFT_MEMORY_JSON, &blob));
  CHECK(strstr(weft_blob_data(blob), "\"groups\": [{\"count\": 5, \"type\": \"f32[8, 8]\", \"bytes\": 1280, \"maker\": \"add\", ") != NULL);
  weft_blob_release(blob);
  INVALID(weft_memory_report(device, (weft_memory_format)2, &blob), "weft_memory_report: format is 2; there are 0 and 1");
  for (int i = 0; i < 5; ++i) weft_tensor_release(leak[i]);
  weft_tensor_release(x), weft_tensor_release(pending);
  weft_device_release(device);
  weft_context_release(ctx);
}

/* --- Bad values ----------------------------------------------------------------------------------------------------------- */

/* Debug mode looks into gradients and optimizer steps, and names the forward line. */
static void bad_values(void) {
  static const float at[] = {0, 4}, zeros[] = {0, 0};
  static const float infinite[] = {INFINITY, 1};
  weft_context* const ctx = context_on("cpu", WEFT_MODE_DEBUG);
  weft_tensor *x = f32(ctx, DIMS(2), at), *zero = f32(ctx, DIMS(2), zeros), *inf = f32(ctx, DIMS(2), infinite), *grad = NULL;
  weft_optimizer* sgd = NULL;
  weft_error* error;
  char position[256];
  float out[2];
  MUST(weft_tensor_require_grad(x, 1));
  weft_scope* const s = wf_begin(ctx);
  weft_tensor* const root = wf_sqrt(s, x); /* the root */
  weft_tensor* const loss = wf_sum(s, wf_mul(s, root, zero));
  error = weft_grad(ctx, loss, NULL, &x, 1, &grad);
  CHECK(error != NULL && weft_error_code(error) == WEFT_FAILED_PRECONDITION);
  if (error != NULL) {
    snprintf(position, sizeof position, "%s:%d", __FILE__, line_of("/* the root */"));
    CHECK_TEXT(weft_error_payload(error, "weft.position", WEFT_STRLEN, NULL), position);
    CHECK(strstr(weft_error_message(error, NULL), "element 0 of the result is NaN, and no operand holds one (debug mode), in a gradient") != NULL);
  }
  weft_error_release(error);
  CHECK(grad == NULL);
  MUST(wf_end(s));
  MUST(weft_sgd_create(ctx, &x, 1, NULL, &sgd));
  FAILS_WITH(weft_optimizer_step(sgd, &inf, 1, 0), WEFT_FAILED_PRECONDITION,
             "element 0 of the result is NaN, and no operand holds one (debug mode), in a step of an optimizer");
  MUST(weft_tensor_to_host(x, out, sizeof out)); /* as it was */
  CHECK(out[0] == 0 && out[1] == 4);
  MUST(weft_optimizer_step(sgd, &zero, 1, 0.5));
  weft_optimizer_release(sgd);
  weft_tensor_release(x), weft_tensor_release(zero), weft_tensor_release(inf);
  weft_context_release(ctx);
}

int main(void) {
  counts();
  parts(16, "cpu");
  parts(256, "cpu");
  parts(16, "reference");
  positions();
  no_key();
  reasons();
  inside();
  loops();
  settled();
  explained();
  after_barriers();
  of_a_job();
  by_key();
  others_variables();
  barrier_text();
  memory();
  bad_values();
  return done("seeing");
}
