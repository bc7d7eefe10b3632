/* These tests check that first_bad and mode debug name the operation that made the first bad number; graphs computed one operation at a time, and graphs
 * written to files. */
#define _GNU_SOURCE
#include "check.h"

#include <unistd.h>

#include "folder.h"

static const weft_tensor_info kScalar = {.dtype = WEFT_F32};

static weft_context* context_of(const char* platform, weft_mode mode, const char* bad) {
  const weft_setting settings[] = {{"cache_mode", WEFT_STRLEN, "off", WEFT_STRLEN},
                                   {"platform", WEFT_STRLEN, platform, WEFT_STRLEN},
                                   {"first_bad", WEFT_STRLEN, bad, WEFT_STRLEN}};
  weft_context_options options = WEFT_CONTEXT_OPTIONS_INIT;
  weft_context* ctx = NULL;
  options.settings = settings;
  options.setting_count = 3;
  options.mode = mode;
  MUST(weft_context_create(&options, &ctx));
  return ctx;
}

/* The error names all of these texts, in this order, and has the position, if there is one to check. */
static void names(weft_error* error, const char* position, const char* const* texts, int line) {
  if (error != NULL && position != NULL) {
    const char* const said = weft_error_payload(error, "weft.position", WEFT_STRLEN, NULL);
    if (said == NULL || strcmp(said, position) != 0) printf("%s:%d: at %s, not %s\n", __FILE__, line, said ? said : "nothing", position), ++g_failures;
  }
  const char* at = error != NULL && weft_error_code(error) == WEFT_FAILED_PRECONDITION ? weft_error_message(error, NULL) : NULL;
  for (; at != NULL && *texts != NULL; ++texts) {
    const char* const found = strstr(at, *texts);
    at = found != NULL ? found + strlen(*texts) : NULL;
  }
  if (at == NULL) {
    printf("%s:%d: '%s' is not in: %s\n", __FILE__, line, *texts ? *texts : "a code", error ? weft_error_message(error, NULL) : "no error");
    ++g_failures;
  }
  weft_error_release(error);
}
#define NAMES(call, position, ...) names((call), (position), (const char* const[]){__VA_ARGS__, NULL}, __LINE__)

/* --- Steps ---------------------------------------------------------------------------------------------------------------- */

/* One step of w <- w + 0.5 * d sqrt(x . w) / dw; where x is 0 the root's slope is infinite, and times 0 that is NaN. */
static weft_error* train(weft_context* ctx, weft_tensor* w, const float* batch) {
  weft_tensor *x = f32(ctx, DIMS(2), batch), *products = NULL, *sum = NULL, *root = NULL, *grad = NULL, *rate = scalar(ctx, 0.5), *step = NULL, *next = NULL;
  weft_error* error;
  MUST(weft_mul(ctx, x, w, &products));
  MUST(weft_sum(ctx, products, NULL, &sum));
  MUST(weft_position_mark(ctx, "train.c", WEFT_STRLEN, 12));
  MUST(weft_sqrt(ctx, sum, &root));
  MUST(weft_position_mark(ctx, NULL, 0, 0));
  MUST(weft_grad(ctx, root, NULL, &w, 1, &grad));
  MUST(weft_mul(ctx, grad, rate, &step));
  MUST(weft_add(ctx, w, step, &next));
  MUST(weft_tensor_assign(w, next));
  weft_tensor_release(x), weft_tensor_release(products), weft_tensor_release(sum), weft_tensor_release(root);
  weft_tensor_release(grad), weft_tensor_release(rate), weft_tensor_release(step), weft_tensor_release(next);
  error = weft_sync(ctx, NULL, NULL);
  return error;
}

/* Step 37 makes the NaN, in a gradient; the steps before and after are launched as before, without being built. */
static void steps(const char* platform) {
  static const float ones[] = {1, 1}, good[] = {1, 2}, zeros[] = {0, 0};
  weft_context* const ctx = context_of(platform, WEFT_MODE_LAZY, "nan");
  weft_tensor* const w = f32(ctx, DIMS(2), ones);
  float out[2];
  MUST(weft_tensor_require_grad(w, 1));
  for (int i = 1; i < 37; ++i) MUST(train(ctx, w, i % 2 == 0 ? good : ones));
  NAMES(train(ctx, w, zeros), NULL, "mul(", "element 0 of the result is NaN, and no operand holds one (first_bad)", "; operand 0: ",
        "; result: ", "2 of 2 elements NaN");
  MUST(weft_tensor_to_host(w, out, sizeof out)); /* nothing is lost */
  CHECK(isnan(out[0]) && isnan(out[1]));
  weft_tensor_release(w);
  weft_context_release(ctx);
}

/* A step that comes as before, with other numbers, is looked at, too. */
static void replayed(void) {
  static const float fine[] = {4, 9}, bad[] = {4, -9};
  weft_context* const ctx = context_of("cpu", WEFT_MODE_LAZY, "nan");
  weft_tensor* shown = NULL;
  for (int i = 0; i < 12; ++i) {
    weft_tensor *x = f32(ctx, DIMS(2), i == 10 ? bad : fine), *y = NULL, *z = NULL;
    MUST(weft_position_mark(ctx, "loop.c", WEFT_STRLEN, 3));
    MUST(weft_sqrt(ctx, x, &y));
    MUST(weft_position_mark(ctx, NULL, 0, 0));
    MUST(weft_add(ctx, y, x, &z));
    if (shown == NULL) {
      MUST(weft_tensor_copy(z, &shown));
    } else {
      MUST(weft_tensor_assign(shown, z));
    }
    weft_tensor_release(x), weft_tensor_release(y), weft_tensor_release(z);
    if (i != 10) {
      MUST(weft_sync(ctx, NULL, NULL));
      continue;
    }
    NAMES(weft_sync(ctx, NULL, NULL), "loop.c:3", "sqrt(f32[2]): element 1 of the result is NaN, and no operand holds one (first_bad)",
          "; operand 0: -9 to 4; result: 1 of 2 elements NaN, finite ones 2 to 2");
  }
  CHECK(metric(ctx, "steps_replayed") >= 8);
  CHECK_EQUAL(metric(ctx, "buffers_donated"), 0);
  weft_tensor_release(shown);
  weft_context_release(ctx);
}

/* Results that several threads look through: the first of two is finite, one element of the other is bad. */
static void large(const char* platform) {
  enum { kCount = 1000003 };
  static const int64_t at[] = {0, 16383, 16384, 500001, kCount - 1};
  float* const values = malloc(kCount * sizeof *values);
  weft_context* const ctx = context_of(platform, WEFT_MODE_LAZY, "nan");
  for (size_t k = 0; k <= sizeof at / sizeof *at; ++k) {
    const int is_bad = k < sizeof at / sizeof *at;
    char found[96], counted[96];
    weft_tensor *x = NULL, *twice = NULL, *root = NULL;
    for (int i = 0; i < kCount; ++i) values[i] = 4;
    if (is_bad) values[at[k]] = -1;
    x = f32(ctx, DIMS(kCount), values);
    MUST(weft_add(ctx, x, x, &twice));
    MUST(weft_sqrt(ctx, x, &root));
    if (is_bad) {
      snprintf(found, sizeof found, "sqrt(f32[%d]): element %d of the result is NaN", kCount, (int)at[k]);
      snprintf(counted, sizeof counted, "1 of %d elements NaN", kCount);
      NAMES(weft_sync(ctx, NULL, NULL), NULL, found, counted);
    } else {
      MUST(weft_sync(ctx, NULL, NULL));
    }
    weft_tensor_release(x), weft_tensor_release(twice), weft_tensor_release(root);
  }
  weft_context_release(ctx);
  free(values);
}

/* first_bad does not read the first of these two results: its infinity must be found through the second. */
static void shown_elsewhere(const char* platform, const char* bad) {
  static const float values[] = {1e30f, 2, 3, 4}, zeros[] = {0, 0, 0, 0};
  weft_context* const ctx = context_of(platform, WEFT_MODE_LAZY, bad);
  weft_tensor *x = f32(ctx, DIMS(4), values), *zero = f32(ctx, DIMS(4), zeros), *moment = NULL, *next = NULL;
  MUST(weft_mul(ctx, x, x, &moment));
  MUST(weft_mul(ctx, moment, zero, &next)); /* infinity times 0 */
  NAMES(weft_sync(ctx, NULL, NULL), NULL, "mul(f32[4], f32[4]): element 0 of the result is",
        "and no operand holds one (first_bad)", "; operand 0: 2 to 1e+30");
  weft_tensor_release(x), weft_tensor_release(zero), weft_tensor_release(moment), weft_tensor_release(next);
  weft_context_release(ctx);
}

/* --- Functions and loops -------------------------------------------------------------------------------------------------- */

/* sqrt(h - 0.3) of what is carried: from 1 it goes below 0.3 after some runs, then it is the root of a negative number. */
static weft_function* shrink(weft_context* ctx, const char* name, int indexed) {
  const weft_tensor_info inputs[] = {{.dtype = WEFT_I32}, kScalar};
  weft_context* body = NULL;
  weft_tensor *parameters[2] = {NULL, NULL}, *less = NULL, *root = NULL, *bit = NULL;
  weft_function* f = NULL;
  MUST(weft_function_begin(ctx, name, WEFT_STRLEN, inputs + (indexed ? 0 : 1), indexed ? 2 : 1, &body, parameters));
  bit = scalar(body, 0.3);
  MUST(weft_sub(body, parameters[indexed ? 1 : 0], bit, &less));
  MUST(weft_position_mark(ctx, "body.c", WEFT_STRLEN, 5));
  MUST(weft_sqrt(body, less, &root));
  MUST(weft_position_mark(ctx, NULL, 0, 0));
  weft_tensor_release(bit), weft_tensor_release(less);
  for (int i = 0; i < 2; ++i) weft_tensor_release(parameters[i]);
  MUST(weft_function_end(body, &root, 1, &f));
  weft_tensor_release(root);
  return f;
}

/* The run, counted from 0, in which shrink takes the root of a negative number. */
static int bad_run(void) {
  float h = 1;
  for (int i = 0; i < 40; ++i) {
    if (h - 0.3f < 0) return i;
    h = sqrtf(h - 0.3f);
  }
  return -1;
}

static void loops(weft_mode mode) {
  weft_context* const ctx = context_of("cpu", mode, "nan");
  const char* const way = mode == WEFT_MODE_DEBUG ? "(debug mode)" : "(first_bad)";
  weft_scan_options options = WEFT_SCAN_OPTIONS_INIT;
  weft_function *body = shrink(ctx, "shrink", 0), *counted = shrink(ctx, "counted", 1);
  weft_tensor *one = scalar(ctx, 1), *count = NULL, *out = NULL, *outer = NULL;
  weft_error* error;
  size_t made = 0;
  float value = 0;
  char place[64];
  options.length = 40;
  snprintf(place, sizeof place, ", in run %d (from 0) of @shrink", bad_run());
  error = weft_scan(ctx, body, &one, 1, NULL, 0, &options, &out, 1, &made);
  if (error == NULL) error = weft_tensor_to_host(out, &value, sizeof value);
  NAMES(error, "body.c:5", "sqrt(f32[]): element 0 of the result is NaN, and no operand holds one", way, place, "; operand 0: -");
  weft_tensor_release(out), out = NULL;

  snprintf(place, sizeof place, ", in run %d (from 0) of @counted", bad_run());
  MUST(weft_tensor_from_i64(ctx, WEFT_I32, 40, &count));
  error = weft_for(ctx, count, counted, &one, 1, NULL, &out);
  if (error == NULL) error = weft_tensor_to_host(out, &value, sizeof value);
  NAMES(error, NULL, "sqrt(f32[]): element 0 of the result is NaN, and no operand holds one", way, place, "; operand 0: -");
  weft_tensor_release(out), out = NULL;

  /* A loop that asks before each run: while h is below 2, h <- sqrt(h - 0.3). */
  const weft_tensor_info scalars[] = {kScalar};
  weft_context* asks = NULL;
  weft_tensor *h = NULL, *two = NULL, *below = NULL;
  weft_function* condition = NULL;
  MUST(weft_function_begin(ctx, "below", WEFT_STRLEN, scalars, 1, &asks, &h));
  two = scalar(asks, 2);
  MUST(weft_lt(asks, h, two, &below));
  MUST(weft_function_end(asks, &below, 1, &condition));
  weft_tensor_release(h), weft_tensor_release(two), weft_tensor_release(below);
  snprintf(place, sizeof place, ", in run %d (from 0) of @shrink", bad_run());
  error = weft_while(ctx, condition, body, &one, 1, &out); /* ends, since NaN is not below 2 */
  if (error == NULL) error = weft_tensor_to_host(out, &value, sizeof value);
  NAMES(error, "body.c:5", "sqrt(f32[]): element 0 of the result is NaN", way, place, "; operand 0: -");
  weft_tensor_release(out), out = NULL;
  weft_function_release(condition);

  /* A branch, and a function that calls it. */
  weft_tensor *pred = NULL, *low = scalar(ctx, 0.1);
  MUST(weft_gt(ctx, one, low, &pred));
  error = weft_if(ctx, pred, body, body, &low, 1, &outer, 1, &made);
  if (error == NULL) error = weft_tensor_to_host(outer, &value, sizeof value);
  NAMES(error, "body.c:5", "sqrt(f32[]): element 0 of the result is NaN", way, ", in @shrink", "; operand 0: -0.2", "; result: 1 of 1 elements NaN");
  weft_tensor_release(outer), outer = NULL;
  error = weft_function_call(ctx, body, &low, 1, &outer, 1, &made);
  if (error == NULL) error = weft_tensor_to_host(outer, &value, sizeof value);
  NAMES(error, NULL, "sqrt(f32[]): element 0 of the result is NaN", way, ", in @shrink");
  weft_tensor_release(outer), weft_tensor_release(pred), weft_tensor_release(low);
  weft_tensor_release(one), weft_tensor_release(count);
  weft_function_release(body), weft_function_release(counted);
  weft_context_release(ctx);
}

/* --- Kinds ---------------------------------------------------------------------------------------------------------------- */

static void kinds(const char* platform) {
  static const float data[] = {1, 0, -1}, nans[] = {1, NAN, 2};
  static const struct {
    const char* bad;
    int nan, inf;
  } kinds[] = {{"off", 0, 0}, {"nan", 1, 0}, {"inf", 0, 1}, {"any", 1, 1}};
  for (int i = 0; i < 4; ++i) {
    weft_context* const ctx = context_of(platform, WEFT_MODE_LAZY, kinds[i].bad);
    weft_tensor *x = f32(ctx, DIMS(3), data), *y = NULL, *z = NULL, *given = f32(ctx, DIMS(3), nans), *sum = NULL, *one = scalar(ctx, 1);
    float out[3];
    weft_error* error;
    /* 1/0 is infinite, sqrt(-1) is NaN. */
    MUST(weft_div(ctx, one, x, &y));
    error = weft_tensor_to_host(y, out, sizeof out);
    CHECK_EQUAL(error != NULL, kinds[i].inf);
    weft_error_release(error);
    MUST(weft_tensor_to_host(y, out, sizeof out)); /* readable all the same */
    CHECK(isinf(out[1]));
    MUST(weft_sqrt(ctx, x, &z));
    error = weft_sync(ctx, NULL, NULL);
    CHECK_EQUAL(error != NULL, kinds[i].nan);
    weft_error_release(error);
    MUST(weft_sync(ctx, NULL, NULL));
    /* A NaN that the caller passes in is no operation's fault. */
    MUST(weft_exp(ctx, given, &sum));
    error = weft_tensor_to_host(sum, out, sizeof out);
    if (kinds[i].nan) {
      NAMES(error, NULL, "no operation made it: argument 0, f32[3], was launched with 1 of 3 elements NaN");
    } else {
      MUST(error);
    }
    weft_tensor_release(x), weft_tensor_release(y), weft_tensor_release(z), weft_tensor_release(given), weft_tensor_release(sum), weft_tensor_release(one);
    weft_context_release(ctx);
  }
  FAILS_WITH(weft_context_create(&(weft_context_options){.struct_size = sizeof(weft_context_options),
                                                         .settings = &(weft_setting){"first_bad", WEFT_STRLEN, "yes", WEFT_STRLEN},
                                                         .setting_count = 1},
                                 &(weft_context*){NULL}),
             WEFT_INVALID_ARGUMENT, "off, nan, inf, any");
}

/* --- One operation at a time ---------------------------------------------------------------------------------------------- */

static void one_by_one(void) {
  static const float data[] = {1, 2, 3, 4};
  static const char* const kWays[] = {"off", "read", "sync", "both"};
  for (int i = 0; i < 4; ++i) {
    weft_context* const ctx = new_context_with("op_by_op", kWays[i]);
    weft_tensor *x = f32(ctx, DIMS(4), data), *a = NULL, *b = NULL, *c = NULL;
    float out[4];
    for (int step = 0; step < 2; ++step) {
      const int reads = step == 0;
      const int64_t before = metric(ctx, "launches");
      weft_tensor_release(a), weft_tensor_release(b), weft_tensor_release(c);
      a = b = c = NULL;
      MUST(weft_exp(ctx, x, &a));
      MUST(weft_tanh(ctx, a, &b));
      MUST(weft_add(ctx, b, x, &c));
      if (!reads) MUST(weft_sync(ctx, NULL, NULL));
      MUST(weft_tensor_to_host(c, out, sizeof out));
      for (int k = 0; k < 4; ++k) CHECK(fabsf(out[k] - (tanhf(expf(data[k])) + data[k])) < 1e-6f);
      CHECK_EQUAL(metric(ctx, "launches") - before, (i & (reads ? 1 : 2)) != 0 ? 3 : 1);
    }
    weft_tensor_release(x), weft_tensor_release(a), weft_tensor_release(b), weft_tensor_release(c);
    weft_context_release(ctx);
  }
}

/* PyTorch/XLA's variables mean the same, with and without its prefix. */
static void variables(void) {
  weft_blob* text = NULL;
  weft_context* ctx = NULL;
  weft_context_options options = WEFT_CONTEXT_OPTIONS_INIT;
  setenv("GET_TENSORS_OPBYOP", "1", 1), setenv("XLA_SYNC_TENSORS_OPBYOP", "true", 1);
  MUST(weft_context_create(&options, &ctx));
  MUST(weft_context_option(ctx, "op_by_op", WEFT_STRLEN, &text));
  CHECK_TEXT(weft_blob_data(text), "both");
  weft_blob_release(text);
  weft_context_release(ctx);
  setenv("GET_TENSORS_OPBYOP", "maybe", 1);
  FAILS_WITH(weft_context_create(&options, &ctx), WEFT_INVALID_ARGUMENT, "GET_TENSORS_OPBYOP: 'maybe' is not one of 0, 1");
  unsetenv("GET_TENSORS_OPBYOP"), unsetenv("XLA_SYNC_TENSORS_OPBYOP");
  setenv("XLA_SAVE_TENSORS_FMT", "hlo", 1);
  MUST(weft_context_create(&options, &ctx));
  MUST(weft_context_option(ctx, "save_graphs_format", WEFT_STRLEN, &text));
  CHECK_TEXT(weft_blob_data(text), "hlo");
  weft_blob_release(text);
  weft_context_release(ctx);
  setenv("XLA_SAVE_TENSORS_FMT", "html", 1);
  FAILS_WITH(weft_context_create(&options, &ctx), WEFT_INVALID_ARGUMENT, "text, dot, stablehlo, hlo");
  unsetenv("XLA_SAVE_TENSORS_FMT");
}

/* --- Files ---------------------------------------------------------------------------------------------------------------- */

static char* whole(const char* path) {
  FILE* const file = fopen(path, "rb");
  char* const text = calloc(1, 1 << 16);
  if (file != NULL) {
    CHECK(fread(text, 1, (1 << 16) - 1, file) > 0);
    fclose(file);
  }
  return text;
}

static int count_of(const char* text, const char* what) {
  int count = 0;
  for (; (text = strstr(text, what)) != NULL; text += strlen(what)) ++count;
  return count;
}

static void save(const char* format, const char* most, const char* const* wanted, int records, int line) {
  static const float data[] = {1, 2, 3, 4};
  char path[400];
  snprintf(path, sizeof path, "%s/%s.%s", g_dir, format, most);
  const weft_setting settings[] = {{"cache_mode", WEFT_STRLEN, "off", WEFT_STRLEN},
                                   {"save_graphs", WEFT_STRLEN, path, WEFT_STRLEN},
                                   {"save_graphs_format", WEFT_STRLEN, format, WEFT_STRLEN},
                                   {"save_graphs_max_bytes", WEFT_STRLEN, most, WEFT_STRLEN}};
  weft_context_options options = WEFT_CONTEXT_OPTIONS_INIT;
  weft_context* ctx = NULL;
  float out[4];
  options.settings = settings;
  options.setting_count = 4;
  MUST(weft_context_create(&options, &ctx));
  weft_tensor* const x = f32(ctx, DIMS(2, 2), data);
  for (int i = 0; i < 4; ++i) {
    weft_tensor *y = NULL, *z = NULL;
    MUST(weft_position_mark(ctx, "graph.c", WEFT_STRLEN, 7));
    MUST(weft_exp(ctx, x, &y));
    MUST(weft_add(ctx, y, x, &z));
    MUST(weft_position_mark(ctx, "graph.c", WEFT_STRLEN, 9));
    if (i < 3) MUST(weft_sync(ctx, NULL, NULL));
    MUST(weft_tensor_to_host(z, out, sizeof out));
    weft_tensor_release(y), weft_tensor_release(z);
  }
  MUST(weft_position_mark(ctx, NULL, 0, 0));
  weft_tensor_release(x);
  weft_context_release(ctx);
  char* const text = whole(path);
  const char* at = text;
  for (; at != NULL && *wanted != NULL; ++wanted) {
    const char* const found = strstr(at, *wanted);
    if (found == NULL) printf("%s:%d: '%s' is not in\n%s\n", __FILE__, line, *wanted, at), ++g_failures;
    at = found;
  }
  CHECK_EQUAL(count_of(text, "## BEGIN_GRAPH\n"), records);
  CHECK_EQUAL(count_of(text, "## END_GRAPH\n"), records);
  free(text);
}

static void files(void) {
  char path[400];
  make_folder();
  static const char* const as_text[] = {
      "[ScheduleSyncTensorsGraph]\nTensorsGraphInfo:\n  ", "graph.c:9\n\nHashes: (", ")\n\n## BEGIN_GRAPH\n%0 = f32[2,2]{1,0} xla::device_data()",
      "%1 = f32[2,2]{1,0} xla::exp(%0)", ", location=graph.c:7", "%2 = f32[2,2]{1,0} xla::add(%1, %0)", ", ROOT=", "## END_GRAPH\n\n[ScheduleSync",
      "[GetTensors]\n", NULL};
  static const char* const as_dot[] = {"digraph \"", "n0 [shape=box, label=\"%0\\nf32[2,2]{1,0}\"]", "n1 [label=\"%1 exp\\n", "n0 -> n1\n", "n1 -> n2 [label=\"0\"]", "n0 -> n2 [label=\"1\"]", NULL};
  static const char* const as_stablehlo[] = {"module", "stablehlo.exponential", "stablehlo.add", NULL};
  static const char* const as_hlo[] = {"## BEGIN_GRAPH\nHloModule weft\n\nENTRY %main {\n  %v0 = f32[2,2]{1,0} parameter(0)\n",
                                       "  %v1 = f32[2,2]{1,0} exponential(%v0), metadata={op_type=\"exponential\" op_name=\"exponential\" source_file=\"",
                                       "graph.c\" source_line=7}\n", "  %v2 = f32[2,2]{1,0} add(%v1, %v0), metadata={",
                                       "  ROOT %v3 = (f32[2,2]{1,0}", ") tuple(", "}\n## END_GRAPH\n", NULL};
  static const char* const small[] = {"[ScheduleSyncTensorsGraph]", NULL};
  save("text", "0", as_text, 4, __LINE__);
  save("dot", "0", as_dot, 4, __LINE__);
  save("stablehlo", "0", as_stablehlo, 4, __LINE__);
  save("hlo", "0", as_hlo, 4, __LINE__);
  /* Smaller than a record: each has a file of its own. */
  save("text", "16", small, 1, __LINE__);
  for (int i = 1; i <= 3; ++i) {
    snprintf(path, sizeof path, "%s/text.16.%d", g_dir, i);
    CHECK_EQUAL(access(path, R_OK), 0);
  }
  snprintf(path, sizeof path, "%s/text.16.4", g_dir);
  CHECK(access(path, R_OK) != 0);
  remove_folder();
}

int main(void) {
  steps("cpu");
  steps("reference");
  replayed();
  large("cpu");
  large("reference");
  for (int i = 0; i < 2; ++i) {
    shown_elsewhere(i == 0 ? "cpu" : "reference", "any");
    shown_elsewhere(i == 0 ? "cpu" : "reference", "inf");
  }
  loops(WEFT_MODE_LAZY);
  loops(WEFT_MODE_EAGER);
  loops(WEFT_MODE_DEBUG);
  kinds("cpu");
  kinds("reference");
  one_by_one();
  variables();
  files();
  return done("first_bad");
}
