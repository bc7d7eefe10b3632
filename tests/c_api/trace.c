/* Traces and spans of the caller's own: what may be called when, what is in a report, files, and the options. */
#define _POSIX_C_SOURCE 200809L
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "folder.h"
#include "warnings.h"

static void work(weft_context* ctx) {
  const float data[4] = {1, 2, 3, 4};
  const int64_t dims[] = {2, 2};
  float out[4];
  weft_tensor *x = NULL, *y = NULL, *z = NULL;
  MUST(weft_tensor_from_host(ctx, NULL, WEFT_F32, dims, 2, data, sizeof data, &x));
  MUST(weft_matmul(ctx, x, x, NULL, &y));
  MUST(weft_exp(ctx, y, &z));
  MUST(weft_sync(ctx, NULL, NULL));
  MUST(weft_tensor_to_host(z, out, sizeof out));
  weft_tensor_release(x);
  weft_tensor_release(y);
  weft_tensor_release(z);
}

static int says(weft_context* ctx, weft_trace_report_format format, const char* text) {
  weft_blob* blob = NULL;
  int found;
  MUST(weft_trace_report(ctx, format, &blob));
  found = strstr(weft_blob_data(blob), text) != NULL;
  weft_blob_release(blob);
  return found;
}

static void order(const char* platform) {
  weft_context* const ctx = new_context_with("platform", platform);
  weft_blob* blob = NULL;
  FAILS(weft_trace_stop(ctx), WEFT_FAILED_PRECONDITION, "weft_trace_stop: the trace has not been started");
  FAILS(weft_trace_report(ctx, WEFT_TRACE_REPORT_TEXT, &blob), WEFT_FAILED_PRECONDITION,
        "weft_trace_report: the trace has not been started");
  FAILS(weft_trace_write(ctx, "trace", WEFT_STRLEN, WEFT_TRACE_CHROME), WEFT_FAILED_PRECONDITION,
        "weft_trace_write: the trace has not been started");
  work(ctx); /* leaves nothing behind */
  weft_span_end(ctx);
  MUST(weft_trace_start(ctx));
  FAILS(weft_trace_start(ctx), WEFT_FAILED_PRECONDITION, "weft_trace_start: the trace has been started already");
  weft_span_begin(ctx, "load \"data\" 100 %\n", WEFT_STRLEN);
  work(ctx);
  weft_span_end(ctx);
  weft_span_end(ctx); /* of none */
  CHECK(says(ctx, WEFT_TRACE_REPORT_TEXT, "load \"data\" 100 % \n"));
  MUST(weft_trace_stop(ctx));
  weft_span_begin(ctx, "after", WEFT_STRLEN);
  weft_span_end(ctx);
  CHECK(says(ctx, WEFT_TRACE_REPORT_TEXT, " 1 steps\n"));
  CHECK(says(ctx, WEFT_TRACE_REPORT_JSON, "\"steps\": 1, "));
  CHECK(says(ctx, WEFT_TRACE_REPORT_JSON, "{\"name\": \"load \\\"data\\\" 100 %\\u000a\", \"spans\": 1, "));
  CHECK(says(ctx, WEFT_TRACE_REPORT_JSON, "{\"name\": \"record\", "));
  if (strcmp(platform, "cpu") == 0) {
    CHECK(says(ctx, WEFT_TRACE_REPORT_JSON, "\"implementation\": \"gemm "));
    CHECK(says(ctx, WEFT_TRACE_REPORT_JSON, "\"flops\": 16, \"bytes_read\": "));
    CHECK(says(ctx, WEFT_TRACE_REPORT_TEXT, "gemm, gemm "));
  }
  FAILS(weft_trace_report(ctx, (weft_trace_report_format)2, &blob), WEFT_INVALID_ARGUMENT,
        "weft_trace_report: format is 2; there are 0 and 1");
  FAILS(weft_trace_write(ctx, "trace", WEFT_STRLEN, (weft_trace_format)3), WEFT_INVALID_ARGUMENT,
        "weft_trace_write: format is 3; there are 0 to 2");
  {
    weft_error* const error = weft_trace_write(ctx, "/nonexistent/weft/trace", WEFT_STRLEN, WEFT_TRACE_CHROME);
    CHECK_EQUAL(weft_error_code(error), WEFT_NOT_FOUND);
    CHECK(strstr(weft_error_message(error, NULL), "/nonexistent/weft") != NULL);
    weft_error_release(error);
  }
  MUST(weft_trace_start(ctx)); /* forgets */
  CHECK(says(ctx, WEFT_TRACE_REPORT_TEXT, " 0 steps\n"));
  weft_context_release(ctx); /* while it traces */
}

/* Spans that are begun and not ended, and ended in another context. */
static void spans_of_two_contexts(void) {
  weft_context *const a = new_context_with("platform", "reference"), *const b = new_context_with("platform", "reference");
  int i;
  MUST(weft_trace_start(a));
  weft_span_begin(a, "of a", WEFT_STRLEN);
  weft_span_begin(b, "of b", WEFT_STRLEN); /* which does not trace */
  MUST(weft_trace_start(b));
  weft_span_end(a);
  weft_span_end(b); /* began before the trace did */
  weft_span_begin(b, NULL, 5);
  weft_span_end(b);
  weft_span_begin(NULL, "nobody's", WEFT_STRLEN);
  weft_span_end(NULL);
  for (i = 0; i < 100; ++i) weft_span_begin(b, "deep", WEFT_STRLEN);
  for (i = 0; i < 100; ++i) weft_span_end(b);
  weft_span_begin(a, "left open", WEFT_STRLEN);
  CHECK(says(a, WEFT_TRACE_REPORT_JSON, "{\"name\": \"of a\", \"spans\": 1, "));
  CHECK(says(b, WEFT_TRACE_REPORT_JSON, "{\"name\": \"deep\", \"spans\": 64, "));
  CHECK(says(b, WEFT_TRACE_REPORT_JSON, "{\"name\": \"\", \"spans\": 1, "));
  weft_context_release(a);
  CHECK(says(b, WEFT_TRACE_REPORT_JSON, "\"lost\": 0, "));
  weft_context_release(b);
  {
    /* A ring that is full says what it has lost. */
    weft_context* const c = new_context_with("trace_bytes", "64");
    MUST(weft_trace_start(c));
    for (i = 0; i < 5; ++i) {
      weft_span_begin(c, "again", WEFT_STRLEN);
      weft_span_end(c);
    }
    CHECK(says(c, WEFT_TRACE_REPORT_JSON, "\"spans\": 2, "));
    CHECK(!says(c, WEFT_TRACE_REPORT_JSON, "\"lost\": 0, "));
    weft_context_release(c);
  }
}

static weft_context* tracing_to(const char* path, const char* steps) {
  weft_setting settings[3];
  weft_context_options options = WEFT_CONTEXT_OPTIONS_INIT;
  weft_context* ctx = NULL;
  memset(settings, 0, sizeof settings);
  settings[0].name = "trace_file", settings[0].value = path;
  settings[1].name = "trace_steps", settings[1].value = steps;
  settings[2].name = "cache_mode", settings[2].value = "off";
  settings[0].name_length = settings[0].value_length = settings[1].name_length = WEFT_STRLEN;
  settings[1].value_length = settings[2].name_length = settings[2].value_length = WEFT_STRLEN;
  options.settings = settings, options.setting_count = 3;
  options.log = on_log, options.min_log_level = WEFT_LOG_WARNING;
  MUST(weft_context_create(&options, &ctx));
  return ctx;
}

static long long size_of(const char* path) {
  struct stat about;
  return stat(path, &about) == 0 ? (long long)about.st_size : -1;
}

static void files(void) {
  weft_context* ctx = NULL;
  char path[4][512];
  int i;
  make_folder();
  for (i = 0; i < 4; ++i) {
    static const char* const names[] = {"trace.json.gz", "trace.pftrace", "trace.txt", "x.report.json"};
    snprintf(path[i], sizeof path[i], "%s/%s", g_dir, names[i]);
    ctx = tracing_to(path[i], i == 2 ? "1:2" : "");
    work(ctx);
    work(ctx);
    CHECK_EQUAL(size_of(path[i]), -1);
    work(ctx);
    if (i == 2) CHECK(size_of(path[i]) > 0); /* behind the last step that is wanted */
    weft_context_release(ctx);
    CHECK(size_of(path[i]) > 100);
  }
  CHECK_EQUAL(g_warnings, 0);
  ctx = tracing_to("/nonexistent/weft/trace", "");
  work(ctx);
  CHECK_EQUAL(g_warnings, 0);
  weft_context_release(ctx);
  CHECK_EQUAL(g_warnings, 1);
  ctx = tracing_to(path[0], "100:1"); /* never comes to that */
  weft_context_release(ctx);
  CHECK_EQUAL(g_warnings, 2);
  setenv("WEFT_TRACE_STEPS", "3", 1);
  FAILS(weft_context_create(NULL, &ctx), WEFT_INVALID_ARGUMENT,
        "weft_context_create: option trace_steps is '3'; it must be SKIP:COUNT, such as 10:3 for three steps after ten");
  unsetenv("WEFT_TRACE_STEPS");
  remove_folder();
}

/* A checkpoint that is written, by the call and in the background, and read. */
static void checkpoints(void) {
  weft_context* const ctx = new_context();
  const float data[2] = {1, 2};
  weft_tensor* x = f32(ctx, DIMS(2), data);
  weft_tree *tree = NULL, *read = NULL;
  weft_event* saved = NULL;
  char path[400];
  make_folder();
  snprintf(path, sizeof path, "%s/x.weft", g_dir);
  MUST(weft_tree_create(&tree));
  MUST(weft_tree_add_tensor(tree, WEFT_TREE_ROOT, "x", WEFT_STRLEN, x, NULL));
  MUST(weft_trace_start(ctx));
  MUST(weft_checkpoint_save(ctx, path, WEFT_STRLEN, tree, NULL, NULL));
  MUST(weft_checkpoint_save(ctx, path, WEFT_STRLEN, tree, NULL, &saved));
  MUST(weft_event_wait(saved, -1));
  MUST(weft_checkpoint_load(ctx, path, WEFT_STRLEN, NULL, &read));
  MUST(weft_trace_stop(ctx));
  CHECK(says(ctx, WEFT_TRACE_REPORT_JSON, "{\"name\": \"save checkpoint\", \"spans\": 2, "));
  CHECK(says(ctx, WEFT_TRACE_REPORT_JSON, "{\"name\": \"load checkpoint\", \"spans\": 1, "));
  weft_event_release(saved);
  weft_tree_release(tree), weft_tree_release(read);
  weft_tensor_release(x);
  weft_context_release(ctx);
  remove_folder();
}

int main(void) {
  order("cpu");
  order("reference");
  spans_of_two_contexts();
  files();
  checkpoints();
  return g_failures != 0;
}
