/* What a context counts: counters, samples, the caller's own, and each format, on the platforms cpu and reference. */
#include "check.h"

static weft_metric_summary samples(weft_context* ctx, const char* name) {
  weft_metric_summary summary = WEFT_METRIC_SUMMARY_INIT;
  MUST(weft_metric_samples(ctx, name, WEFT_STRLEN, &summary));
  return summary;
}

static void has(weft_context* ctx, weft_metrics_format format, const char* text) {
  weft_blob* blob = NULL;
  MUST(weft_metrics_render(ctx, format, &blob));
  if (strstr(weft_blob_data(blob), text) == NULL) {
    printf("format %d does not have \"%s\":\n%s\n", (int)format, text, (const char*)weft_blob_data(blob));
    ++g_failures;
  }
  weft_blob_release(blob);
}

/* One upload, one launch of one program, one read: each sample has it, with bytes and time. */
static void steps(const char* platform) {
  const float data[6] = {1, 2, 3, 4, 5, 6};
  const int64_t dims[] = {2, 3};
  float out[6];
  weft_context* const ctx = new_context_with("platform", platform);
  weft_tensor *x = NULL, *y = NULL;
  CHECK_EQUAL(samples(ctx, "run_nanoseconds").count, 0);
  CHECK_EQUAL(samples(ctx, "run_nanoseconds").largest, 0);
  MUST(weft_tensor_from_host(ctx, NULL, WEFT_F32, dims, 2, data, sizeof data, &x));
  MUST(weft_exp(ctx, x, &y));
  MUST(weft_tensor_to_host(y, out, sizeof out));
  CHECK_EQUAL(samples(ctx, "upload_bytes").count, 1);
  CHECK_EQUAL(samples(ctx, "upload_bytes").sum, 24);
  CHECK_EQUAL(samples(ctx, "upload_bytes").p99, 24);
  CHECK_EQUAL(samples(ctx, "read_bytes").least, 24);
  CHECK_EQUAL(samples(ctx, "compile_nanoseconds").count, 1);
  CHECK_EQUAL(samples(ctx, "launch_nodes").sum, 1);
  CHECK(samples(ctx, "run_nanoseconds").count == 1 && samples(ctx, "run_nanoseconds").sum > 0);
  CHECK(samples(ctx, "read_nanoseconds").sum > 0 && samples(ctx, "launch_nanoseconds").sum > 0);
  has(ctx, WEFT_METRICS_XLA, "Metric: ExecuteTime\n  TotalSamples: 1\n  Accumulator: ");
  has(ctx, WEFT_METRICS_XLA_2019, "Metric: InboundData\n  TotalSamples: 1\n  Counter: 24.00B\n");
  has(ctx, WEFT_METRICS_OPENMETRICS, "weft_upload_bytes_sum 24\n");
  has(ctx, WEFT_METRICS_TEXT, "launches: 1\n");
  has(ctx, WEFT_METRICS_JSON, "\"upload_bytes\": {\"count\": 1, \"sum\": 24, ");
  weft_tensor_release(x);
  weft_tensor_release(y);
  weft_context_release(ctx);
}

static void own(void) {
  weft_context* const ctx = new_context_with("platform", "cpu");
  weft_metric_summary summary = WEFT_METRIC_SUMMARY_INIT;
  weft_blob* blob = NULL;
  int64_t value = 0;
  MUST(weft_metric_add(ctx, "aten::nonzero", WEFT_STRLEN, 30));
  MUST(weft_metric_add(ctx, "aten::nonzero", WEFT_STRLEN, 3));
  MUST(weft_metric_get(ctx, "aten::nonzero", WEFT_STRLEN, &value));
  CHECK_EQUAL(value, 33);
  MUST(weft_metric_record(ctx, "loader", WEFT_STRLEN, WEFT_METRIC_NANOSECONDS, 1500));
  CHECK_EQUAL(samples(ctx, "loader").p50, 1500);
  has(ctx, WEFT_METRICS_XLA, "Counter: aten::nonzero\n  Value: 33\n");
  has(ctx, WEFT_METRICS_XLA, "Metric: loader\n  TotalSamples: 1\n  Accumulator: 001.500us\n");
  has(ctx, WEFT_METRICS_OPENMETRICS, "weft_named{name=\"aten::nonzero\"} 33\n");
  MUST(weft_metric_list(ctx, &blob));
  CHECK(strstr(weft_blob_data(blob), "{\"name\": \"run_nanoseconds\", \"kind\": \"sample\", \"unit\": \"nanoseconds\", \"meaning\": ") != NULL);
  CHECK(strstr(weft_blob_data(blob), "{\"name\": \"loader\", \"kind\": \"sample\", \"unit\": \"nanoseconds\", \"meaning\": \"\"}") != NULL);
  CHECK(strstr(weft_blob_data(blob), "\"torch_xla\": \"CompileTime\"") != NULL);
  weft_blob_release(blob);

  FAILS(weft_metric_add(ctx, "two words", WEFT_STRLEN, 1), WEFT_INVALID_ARGUMENT,
        "weft_metric_add: a metric's name must have no whitespace and no control characters: 'two words'");
  FAILS(weft_metric_add(ctx, "launches", WEFT_STRLEN, 1), WEFT_INVALID_ARGUMENT, "weft_metric_add: metric 'launches' is counted by Weft itself");
  FAILS(weft_metric_add(ctx, "loader", WEFT_STRLEN, 1), WEFT_INVALID_ARGUMENT, "weft_metric_add: metric 'loader' is a sample already");
  FAILS(weft_metric_record(ctx, "loader", WEFT_STRLEN, (weft_metric_unit)7, 1), WEFT_INVALID_ARGUMENT,
        "weft_metric_record: unit is 7; there are 0 to 2");
  FAILS(weft_metrics_render(ctx, (weft_metrics_format)9, &blob), WEFT_INVALID_ARGUMENT, "weft_metrics_render: format is 9; there are 0 to 4");
  FAILS(weft_metric_samples(ctx, "run_nanosecond", WEFT_STRLEN, &summary), WEFT_NOT_FOUND,
        "weft_metric_samples: there is no sample 'run_nanosecond'; did you mean 'run_nanoseconds'? weft_metric_list names all");
  FAILS(weft_metric_get(ctx, "launchs", WEFT_STRLEN, &value), WEFT_NOT_FOUND,
        "weft_metric_get: there is no counter 'launchs'; did you mean 'launches'? weft_metric_list names all");

  MUST(weft_metrics_clear(ctx));
  FAILS(weft_metric_get(ctx, "aten::nonzero", WEFT_STRLEN, &value), WEFT_NOT_FOUND,
        "weft_metric_get: there is no counter 'aten::nonzero'; weft_metric_list names all");
  CHECK_EQUAL(metric(ctx, "operations_recorded"), 0);
  CHECK_EQUAL(metric(ctx, "live_tensors"), 0);
  weft_context_release(ctx);
}

int main(void) {
  steps("cpu");
  steps("reference");
  own();
  return done("metrics");
}
