/* The compile cache: a second context compiles nothing; a folder that cannot be used never fails a computation. */
#define _POSIX_C_SOURCE 200809L
#include <sys/stat.h>
#include <unistd.h>

#include "folder.h"
#include "warnings.h"

static weft_context* context_at(const char* dir, const char* mode) {
  weft_setting settings[2];
  weft_context_options o = WEFT_CONTEXT_OPTIONS_INIT;
  weft_context* ctx = NULL;
  settings[0].name = "cache_dir", settings[0].name_length = WEFT_STRLEN, settings[0].value = dir, settings[0].value_length = WEFT_STRLEN;
  settings[1].name = "cache_mode", settings[1].name_length = WEFT_STRLEN, settings[1].value = mode, settings[1].value_length = WEFT_STRLEN;
  o.settings = settings;
  o.setting_count = 2;
  o.log = on_log;
  MUST(weft_context_create(&o, &ctx));
  return ctx;
}

static double compute(weft_context* ctx) {
  double value = -1;
  weft_tensor *x = ramp(ctx, DIMS(5)), *y = NULL, *sum = NULL;
  MUST(weft_square(ctx, x, &y));
  MUST(weft_sum(ctx, y, NULL, &sum));
  OK(weft_tensor_item_f64(sum, &value));
  weft_tensor_release(x);
  weft_tensor_release(y);
  weft_tensor_release(sum);
  return value;
}

static void a_second_start_compiles_nothing(void) {
  weft_context* ctx = context_at(g_dir, "write");
  weft_cache* cache = NULL;
  weft_cache_stats stats = WEFT_CACHE_STATS_INIT;
  const char* dir;
  CHECK(compute(ctx) == 30);
  CHECK(metric(ctx, "programs_compiled") >= 1);
  MUST(weft_context_cache(ctx, &cache));
  MUST(weft_cache_dir(cache, &dir, NULL));
  CHECK_TEXT(dir, g_dir);
  MUST(weft_cache_flush(cache));
  MUST(weft_cache_read_stats(cache, &stats));
  CHECK(stats.compiled >= 1 && stats.published == stats.compiled && stats.failures == 0);
  weft_cache_release(cache);
  weft_context_release(ctx);

  ctx = context_at(g_dir, "read");
  CHECK(compute(ctx) == 30);
  CHECK_EQUAL(metric(ctx, "programs_compiled"), 0);
  MUST(weft_context_cache(ctx, &cache));
  MUST(weft_cache_read_stats(cache, &stats));
  CHECK(stats.disk_hits >= 1 && stats.compiled == 0);
  weft_cache_release(cache);
  weft_context_release(ctx);
}

static void an_unusable_folder_costs_a_warning_and_nothing_else(void) {
  char file[340];
  FILE* f;
  weft_context* ctx;
  weft_blob* report = NULL;
  const int before = g_warnings;
  snprintf(file, sizeof file, "%s/a_file", g_dir);
  f = fopen(file, "w");
  fclose(f);
  ctx = context_at(file, "read");
  CHECK(compute(ctx) == 30);
  CHECK(metric(ctx, "warnings") == 1); /* once, not at every program */
  weft_context_release(ctx);
  CHECK(g_warnings == before + 1);
  ctx = context_at(file, "write"); /* a file where a folder should be: no permission trick, so root fails too */
  CHECK(compute(ctx) == 30);
  CHECK(metric(ctx, "programs_compiled") >= 1);
  MUST(weft_metrics_report(ctx, &report));
  CHECK(weft_blob_size(report) > 0);
  weft_blob_release(report);
  MUST(weft_metrics_json(ctx, &report));
  CHECK(((const char*)weft_blob_data(report))[0] == '{');
  CHECK(strstr((const char*)weft_blob_data(report), "\"process\": {\"bad_releases\": ") != NULL);
  weft_blob_release(report);
  CHECK(metric(ctx, "warnings") >= 1);
  weft_context_release(ctx);
  CHECK(g_warnings > before + 1);
  {
    int64_t value;
    ctx = new_context();
    FAILS(weft_metric_get(ctx, "speed", WEFT_STRLEN, &value), WEFT_NOT_FOUND, "weft_metric_get: there is no counter 'speed'; weft_metric_list names all");
    weft_context_release(ctx);
  }
}

/* The reference backend interprets: it has nothing to keep. */
static int keeps_programs(void) {
  weft_context* ctx = new_context();
  weft_blob* platform = NULL;
  int keeps;
  MUST(weft_context_option(ctx, "platform", WEFT_STRLEN, &platform));
  keeps = strcmp((const char*)weft_blob_data(platform), "reference") != 0;
  weft_blob_release(platform);
  weft_context_release(ctx);
  return keeps;
}

int main(void) {
  make_folder();
  if (keeps_programs()) a_second_start_compiles_nothing();
  an_unusable_folder_costs_a_warning_and_nothing_else();
  remove_folder();
  return done("cache");
}
