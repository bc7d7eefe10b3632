/* The memory that a context keeps: blocks of released tensors, for 64 launches, ten seconds or until weft_device_trim, so that twenty saves leave nothing; compiled programs, up to
 * program_memory, which come back from the disk cache. */
#define _GNU_SOURCE
#include <unistd.h>

#include "check.h"

static const int64_t kMiB = 1 << 20;

static int64_t resident(void) {
  long pages = 0, held = 0;
  FILE* const file = fopen("/proc/self/statm", "r");
  if (file == NULL || fscanf(file, "%ld %ld", &pages, &held) != 2) held = 0;
  if (file != NULL) fclose(file);
  return held * sysconf(_SC_PAGESIZE);
}

static weft_context* keeping(const char* program_memory, const char* cache_mode, const char* cache_dir) {
  weft_setting settings[] = {{"platform", WEFT_STRLEN, "cpu", WEFT_STRLEN},
                             {"program_memory", WEFT_STRLEN, program_memory, WEFT_STRLEN},
                             {"cache_mode", WEFT_STRLEN, cache_mode, WEFT_STRLEN},
                             {"cache_dir", WEFT_STRLEN, cache_dir, WEFT_STRLEN}};
  weft_context_options options = WEFT_CONTEXT_OPTIONS_INIT;
  weft_context* ctx = NULL;
  options.settings = settings;
  options.setting_count = 4;
  MUST(weft_context_create(&options, &ctx));
  return ctx;
}

static weft_device* first_device(weft_context* ctx) {
  weft_device* device = NULL;
  MUST(weft_device_at(ctx, 0, &device));
  return device;
}

/* Twenty saves of 100 MB to three files, each of a state of its own, as a training loop makes them: how much the process grows in
 * MB while they are under way. */
static double save_twenty(weft_context* ctx, const char* folder) {
  enum { kSaves = 20, kFiles = 3, kElements = 25000000 };
  weft_checkpoint_options o = WEFT_CHECKPOINT_OPTIONS_INIT;
  weft_event* events[kSaves];
  const int64_t before = resident();
  int64_t most = before;
  char path[80];
  int i;
  o.durable = -1;
  for (i = 0; i < kSaves; ++i) {
    weft_tensor* x = NULL;
    weft_tree* tree = NULL;
    MUST(weft_full(ctx, DIMS(kElements), i, NULL, &x));
    MUST(weft_tree_create(&tree));
    MUST(weft_tree_add_tensor(tree, WEFT_TREE_ROOT, "x", WEFT_STRLEN, x, NULL));
    weft_tensor_release(x);
    snprintf(path, sizeof path, "%s/%d", folder, i % kFiles);
    MUST(weft_checkpoint_save(ctx, path, WEFT_STRLEN, tree, &o, &events[i]));
    weft_tree_release(tree);
    if (resident() > most) most = resident();
  }
  for (i = 0; i < kSaves; ++i) {
    OK(weft_event_wait(events[i], -1));
    weft_event_release(events[i]);
  }
  for (i = 0; i < kFiles; ++i) {
    snprintf(path, sizeof path, "%s/%d", folder, i);
    CHECK(unlink(path) == 0);
  }
  return (double)(most - before) / 1e6;
}

/* Sums of n elements that are in memory in between. */
static void use(weft_context* ctx, int64_t n, double times) {
  wf_scope* const s = wf_begin(ctx);
  weft_tensor* x = wf_mul_n(s, wf_iota(s, WF_INTS(n), 0, .dtype = WEFT_F32), times);
  wf_try(s, weft_eval(ctx, &x, 1, NULL));
  CHECK(wf_item(s, wf_sum(s, x)) > 0);
  OK(wf_end(s));
}

#ifndef HAS_AN_ALLOCATOR_OF_ITS_OWN /* and ideas of its own what to keep */
static void blocks_go_back(void) {
  weft_context* const ctx = keeping("0", "off", "");
  weft_device* const device = first_device(ctx);
  const int64_t large = 300 * kMiB, n = large / 4;
  char folder[] = "/tmp/weft_saves_XXXXXX"; /* mkdtemp replaces the six X (POSIX) */
  double grown;
  int64_t before, kept;
  use(ctx, 100, 1);
  before = resident();
  use(ctx, n, 1);
  kept = resident() - before;
  CHECK(kept > large / 2); /* for the next one */
  OK(weft_device_trim(device));
  CHECK(resident() - before < large / 4);
  /* By itself, while small launches go on. */
  use(ctx, n, 1);
  CHECK(resident() - before > large / 2);
  for (int i = 0; i < 150; ++i) use(ctx, 100, 1);
  CHECK(resident() - before < large / 4);
  /* What is used again and again stays: nothing is given back and taken anew in a steady loop. */
  for (int i = 0; i < 100; ++i) {
    use(ctx, n / 8, 1);
    if (i > 2) CHECK(resident() - before > large / 16);
  }
  OK(weft_device_trim(device));
  CHECK(mkdtemp(folder) != NULL);
  before = resident();
  grown = save_twenty(ctx, folder);
  printf("20 saves of 100 MB: +%.0f MB, then %+.0f MB", grown, (double)(resident() - before) / 1e6);
  CHECK(grown <= 250);
  use(ctx, n, 1);
  sleep(10);
  printf(", after 10 s %+.0f MB\n", (double)(resident() - before) / 1e6);
  CHECK(resident() - before <= 64000000);
  CHECK(rmdir(folder) == 0);
  use(ctx, n, 1); /* all is as before */
  FAILS(weft_device_trim(NULL), WEFT_INVALID_ARGUMENT, "weft_device_trim: device is NULL; a weft_device is needed");
  weft_device_release(device);
  weft_context_release(ctx);
}

/* A loop that reads nothing is ahead of the device by two steps of large results, not by as many as a queue takes. */
static void steps_ahead_are_few(void) {
  weft_context* const ctx = keeping("0", "off", "");
  weft_tensor *x = NULL, *last = NULL;
  weft_event* done = NULL;
  weft_error* waits;
  const int64_t before = resident();
  int64_t most = 0;
  MUST(weft_full(ctx, DIMS(25000000), 0.5, NULL, &x));
  MUST(weft_eval(ctx, &x, 1, NULL));
  for (int i = 0; i < 20; ++i) {
    weft_tensor* y = NULL;
    MUST(weft_exp(ctx, x, &y));
    MUST(weft_sync(ctx, NULL, NULL));
    weft_tensor_release(last);
    last = y;
    if (resident() - before > most) most = resident() - before;
  }
  MUST(weft_sync(ctx, NULL, &done));
  while ((waits = weft_event_wait(done, 1000000)) != NULL) { /* a millisecond */
    CHECK_EQUAL(weft_error_code(waits), WEFT_DEADLINE_EXCEEDED);
    weft_error_release(waits);
    if (resident() - before > most) most = resident() - before;
  }
  weft_event_release(done);
  printf("20 steps of 100 MB ahead: +%.0f MB\n", (double)most / 1e6);
  CHECK(most <= 450000000);
  weft_tensor_release(last);
  weft_tensor_release(x);
  weft_context_release(ctx);
}

/* Ever new programs, of loops that share no code. */
static void new_program(weft_context* ctx, int i) {
  wf_scope* const s = wf_begin(ctx);
  weft_tensor* x = wf_iota(s, WF_INTS(64), 0, .dtype = WEFT_F32);
  for (int bit = 0; bit < 12; ++bit) x = (i >> bit & 1) != 0 ? wf_tanh(s, x) : wf_neg(s, x);
  wf_try(s, weft_eval(ctx, &x, 1, NULL));
  OK(wf_end(s));
}

static void programs_are_bounded(void) {
  weft_context* const ctx = keeping("4194304", "off", "");
  int64_t before;
  for (int i = 0; i < 600; ++i) new_program(ctx, i);
  before = resident();
  for (int i = 600; i < 1800; ++i) new_program(ctx, i);
  printf("1200 more programs: %+lld KiB\n", (long long)(resident() - before) / 1024);
  CHECK(resident() - before < 6 * kMiB); /* all of them take about 40 */
  weft_context_release(ctx);
}
#else
static void blocks_go_back(void) {}
static void steps_ahead_are_few(void) {}
static void programs_are_bounded(void) {}
#endif

static void dropped_programs_come_back(void) {
  char folder[] = "/tmp/weft_kept_XXXXXX", command[64]; /* mkdtemp replaces the six X (POSIX) */
  CHECK(mkdtemp(folder) != NULL);
  weft_context* const ctx = keeping("100000", "write", folder);
  weft_cache* cache = NULL;
  for (int i = 1; i <= 40; ++i) use(ctx, 100 + i, 1);
  const int64_t compiled = metric(ctx, "programs_compiled"), loaded = metric(ctx, "programs_loaded");
  MUST(weft_context_cache(ctx, &cache));
  OK(weft_cache_flush(cache));
  weft_cache_release(cache);
  for (int i = 1; i <= 40; ++i) use(ctx, 100 + i, 1);
  CHECK_EQUAL(metric(ctx, "programs_compiled"), compiled);
  CHECK(metric(ctx, "programs_loaded") > loaded + 40);
  weft_context_release(ctx);
  snprintf(command, sizeof command, "rm -r %s", folder);
  CHECK(system(command) == 0);
}

int main(void) {
  blocks_go_back();
  steps_ahead_are_few();
  programs_are_bounded();
  dropped_programs_come_back();
  return done("kept_memory");
}
