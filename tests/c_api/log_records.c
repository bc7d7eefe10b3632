/* What a training run says at DEBUG: compiles, cuts with their reason, what goes into the disk cache and comes out; and that
 * nothing is said, or put together, for a sink that wants less. */
#define _GNU_SOURCE
#include "check.h"

#include <unistd.h>

typedef struct {
  int count[8]; /* of the prefixes below */
  int all;
} log_counts;
enum { kCompiled, kLoaded, kPublished, kRead, kBarrier, kPlatform, kSizes };

static void listen_to(void* user, weft_log_level level, const char* text, size_t length) {
  log_counts* counts = user;
  char line[2048];
  char key[33];
  double ms;
  long long nodes, kernels, compiled, code, temporaries, outputs;
  char tail[512];
  snprintf(line, sizeof(line), "%.*s", (int)length, text);
  ++counts->all;
  CHECK_EQUAL(level, WEFT_LOG_DEBUG);
  if (sscanf(line, "program %32[0-9a-f] compiled for cpu in %lf ms: %lld nodes, %lld kernels (%lld compiled), %lld bytes of code, %lld "
             "bytes of temporaries; %511[^\n]", key, &ms, &nodes, &kernels, &compiled, &code, &temporaries, tail) == 8) {
    CHECK_TEXT(tail, "not in the disk cache");
    CHECK(ms > 0 && nodes > 0 && kernels > 0 && code + temporaries >= 0);
    ++counts->count[kCompiled];
  } else if (sscanf(line, "program %32[0-9a-f] loaded from the disk cache for cpu in %lf ms: %lld nodes", key, &ms, &nodes) == 3) {
    ++counts->count[kLoaded];
  } else if (sscanf(line, "program %32[0-9a-f] of %lld bytes is published to the disk cache", key, &code) == 2) {
    CHECK(code > 100);
    ++counts->count[kPublished];
  } else if (sscanf(line, "cut of %lld nodes with %lld outputs on cpu:0: %511[^\n]", &nodes, &outputs, tail) == 3) {
    CHECK(nodes > 0 && outputs > 0);
    if (strcmp(tail, "a value was read") == 0) ++counts->count[kRead];
    if (strcmp(tail, "a barrier") == 0) ++counts->count[kBarrier];
  } else if (strncmp(line, "platform cpu: ", 14) == 0) {
    ++counts->count[kPlatform];
  } else {
    printf("unexpected record: %s\n", line);
    ++g_failures;
  }
}

static void run(weft_log_level level, const char* cache, log_counts* counts) {
  const weft_setting settings[] = {{"cache_mode", WEFT_STRLEN, "write", WEFT_STRLEN},
                                   {"cache_dir", WEFT_STRLEN, cache, WEFT_STRLEN}};
  static const float values[] = {1, 2, 3, 4};
  weft_context_options options = WEFT_CONTEXT_OPTIONS_INIT;
  weft_context* ctx = NULL;
  weft_tensor *x, *y, *z;
  weft_event* done_event = NULL;
  float got[4];
  memset(counts, 0, sizeof(*counts));
  options.settings = settings;
  options.setting_count = 2;
  options.log = listen_to;
  options.log_user_data = counts;
  options.min_log_level = level;
  MUST(weft_context_create(&options, &ctx));
  x = f32(ctx, DIMS(2, 2), values);
  OK(weft_matmul(ctx, x, x, NULL, &y));
  OK(weft_tensor_to_host(y, got, sizeof(got)));
  OK(weft_exp(ctx, y, &z));
  OK(weft_sync(ctx, NULL, &done_event));
  OK(weft_event_wait(done_event, -1));
  weft_event_release(done_event);
  weft_tensor_release(x);
  weft_tensor_release(y);
  weft_tensor_release(z);
  weft_context_release(ctx);
}

/* Without a listener a record goes to standard error, with the time, the thread, and the call's position. */
static void go_to_standard_error(void) {
  static const float values[] = {1, 2};
  char wanted[64], line[2048], name[32];
  int year, month, day, hour, minute, second, milliseconds, found = 0;
  long thread = 0;
  FILE* const file = tmpfile();
  const int kept = dup(STDERR_FILENO);
  weft_context* ctx;
  weft_tensor *x, *y;
  if (file == NULL || kept < 0) exit(1);
  fflush(stderr);
  dup2(fileno(file), STDERR_FILENO);
  ctx = new_context_with("log", "debug");
  MUST(weft_position_mark(ctx, "mine.c", WEFT_STRLEN, 12));
  x = f32(ctx, DIMS(2), values);
  MUST(weft_exp(ctx, x, &y));
  MUST(weft_sync(ctx, NULL, NULL));
  MUST(weft_position_mark(ctx, NULL, 0, 0));
  weft_tensor_release(x), weft_tensor_release(y);
  weft_context_release(ctx);
  dup2(kept, STDERR_FILENO);
  close(kept);
  rewind(file);
  snprintf(wanted, sizeof wanted, "/%ld mine.c:12] cut of 1 nodes with 1 outputs on cpu:0: a barrier\n", (long)getpid());
  while (fgets(line, sizeof line, file) != NULL) {
    CHECK_EQUAL(sscanf(line, "weft debug: [%4d-%2d-%2dT%2d:%2d:%2d.%3dZ %31[^/]/%ld", &year, &month, &day, &hour, &minute, &second,
                       &milliseconds, name, &thread), 9);
    CHECK(year >= 2024 && thread > 0);
    if (strstr(line, wanted) != NULL) ++found;
  }
  CHECK_EQUAL(found, 1);
  fclose(file);
}

int main(void) {
  char cache[] = "/tmp/weft-log-XXXXXX";
  log_counts counts;
  CHECK(mkdtemp(cache) != NULL);
  run(WEFT_LOG_DEBUG, cache, &counts);
  CHECK_EQUAL(counts.count[kCompiled], 2);
  CHECK_EQUAL(counts.count[kPublished], 2);
  CHECK_EQUAL(counts.count[kLoaded], 0);
  CHECK_EQUAL(counts.count[kRead], 1);
  CHECK_EQUAL(counts.count[kBarrier], 1);
  CHECK_EQUAL(counts.count[kPlatform], 1);
  run(WEFT_LOG_DEBUG, cache, &counts);
  CHECK_EQUAL(counts.count[kCompiled], 0);
  CHECK_EQUAL(counts.count[kPublished], 0);
  CHECK_EQUAL(counts.count[kLoaded], 2);
  run(WEFT_LOG_INFO, cache, &counts);
  CHECK_EQUAL(counts.all, 0);
  go_to_standard_error();
  return done("log_records");
}
