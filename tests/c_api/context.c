/* Contexts: options and their environment, log and allocator hooks, devices, cancelling, use after fork. */
#define _POSIX_C_SOURCE 200809L
#include <dirent.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

static void every_variable_has_an_option_that_reads_it(void) {
  size_t count = 0, i;
  weft_option_info* all;
  static const char* other[][2] = {{"mode", "eager"}, {"platform", "reference"}, {"isa", "portable"}, {"cache_mode", "off"},
                                   {"cache_dir", "/nonexistent/weft"}, {"log", "error"}, {"verify_between_passes", "1"}, {"on_read", "zeros"},
                                   {"matmul_precision", "high"}, {"use_bf16", "1"}, {"downcast_bf16", "1"}, {"use_32bit_long", "1"},
                                   {"allow_winograd", "1"}, {"callbacks", "queued"}, {"positions", "stack"},
                                   {"explain", "launches"}, {"sync_wait", "1"}, {"metrics_format", "json"},
                                   {"first_bad", "nan"}, {"op_by_op", "both"}, {"save_graphs_format", "dot"},
                                   {"trace_file", "/nonexistent/weft/trace"}, {"trace_steps", "1:1"}, {"perf_map", "map"},
                                   {"gdb", "1"}, {"host_read", "warn"}, {"dump_dir", "/nonexistent/weft/dump"}};
  MUST(weft_option_list(NULL, 0, &count));
  CHECK(count >= 10);
  all = malloc(count * sizeof *all);
  MUST(weft_option_list(all, count, &count));
  for (i = 0; i < count; ++i) {
    const char* value = "7";
    size_t k;
    weft_context* ctx = NULL;
    weft_blob* blob = NULL;
    CHECK(strncmp(all[i].environment, "WEFT_", 5) == 0 && strlen(all[i].doc) > 10);
    for (k = 0; k < sizeof other / sizeof *other; ++k) {
      if (strcmp(other[k][0], all[i].name) == 0) value = other[k][1];
    }
    setenv(all[i].environment, value, 1);
    if (strcmp(all[i].name, "cache_mode") != 0) setenv("WEFT_CACHE_MODE", "off", 1);
    if (strcmp(all[i].name, "topology") == 0) { /* that of another machine, which cpu does not compile for */
      FAILS(weft_context_create(NULL, &ctx), WEFT_UNIMPLEMENTED,
            "weft_context_create: option topology is '7', but the platform cpu compiles for this machine alone; 'tpu' does for others");
    } else if (OK(weft_context_create(NULL, &ctx))) {
      weft_option_source source = WEFT_OPTION_FROM_CALLER;
      OK(weft_context_option(ctx, all[i].name, WEFT_STRLEN, &blob));
      CHECK_TEXT((const char*)weft_blob_data(blob), value);
      OK(weft_context_option_source(ctx, all[i].name, WEFT_STRLEN, &source));
      CHECK_EQUAL(source, WEFT_OPTION_FROM_ENVIRONMENT);
      weft_blob_release(blob);
      weft_context_release(ctx);
    }
    setenv(all[i].environment, "no such value", 1);
    if (all[i].type != WEFT_VALUE_TEXT || weft_option_detail(all[i].name, WEFT_STRLEN, "choices", WEFT_STRLEN) != NULL) {
      weft_error* error = weft_context_create(NULL, &ctx);
      CHECK_EQUAL(weft_error_code(error), WEFT_INVALID_ARGUMENT);
      CHECK(strstr(weft_error_message(error, NULL), all[i].environment) != NULL);
      CHECK(strstr(weft_error_message(error, NULL), "'no such value' is n") != NULL);
      weft_error_release(error);
    }
    unsetenv(all[i].environment);
    unsetenv("WEFT_CACHE_MODE");
    CHECK(weft_option_detail(all[i].name, WEFT_STRLEN, "since", WEFT_STRLEN) != NULL);
  }
  free(all);
  setenv("WEFT_MODE", "quick", 1);
  {
    weft_context* ctx = NULL;
    INVALID(weft_context_create(NULL, &ctx), "weft_context_create: WEFT_MODE: 'quick' is not one of lazy, eager, debug");
  }
  unsetenv("WEFT_MODE");
}

static void settings_that_cannot_be(void) {
  weft_setting setting = {"threads", WEFT_STRLEN, "100000000", WEFT_STRLEN};
  weft_context_options o = WEFT_CONTEXT_OPTIONS_INIT;
  weft_context* ctx = NULL;
  o.setting_count = 1;
  INVALID(weft_context_create(&o, &ctx), "weft_context_options.settings is NULL");
  o.settings = &setting;
  INVALID(weft_context_create(&o, &ctx), "weft_context_create: option threads: '100000000' is not a number of 0 to 1024");
  setting.name = "hash_bits", setting.value = "4294967297";
  INVALID(weft_context_create(&o, &ctx), "weft_context_create: option hash_bits: '4294967297' is not a number of 0 to 128");
  o.setting_count = UINT64_MAX;
  INVALID(weft_context_create(&o, &ctx),
          "weft_context_options.settings has a length of 18446744073709551615; at most 16777216 is possible");
}

static void what_is_known_of_options(void) {
  weft_setting settings[] = {{"threads", WEFT_STRLEN, "1", WEFT_STRLEN}, {"hash_bits", WEFT_STRLEN, "0", WEFT_STRLEN},
                             {"cache_mode", WEFT_STRLEN, "off", WEFT_STRLEN}};
  weft_context_options o = WEFT_CONTEXT_OPTIONS_INIT;
  weft_context* ctx = NULL;
  weft_option_source source = WEFT_OPTION_FROM_DEFAULT;
  CHECK_TEXT(weft_option_detail("isa", 3, "choices", 7), "amx|avx512|avx2|portable|amx-model");
  CHECK_TEXT(weft_option_detail("threads", WEFT_STRLEN, "most", WEFT_STRLEN), "1024");
  CHECK_TEXT(weft_option_detail("threads", WEFT_STRLEN, "since", WEFT_STRLEN), "1.0");
  CHECK_TEXT(weft_option_detail("hash_bits", WEFT_STRLEN, "deprecated", WEFT_STRLEN), "accepted and without effect");
  CHECK(weft_option_detail("threads", WEFT_STRLEN, "deprecated", WEFT_STRLEN) == NULL);
  CHECK(weft_option_detail("speed", WEFT_STRLEN, "since", WEFT_STRLEN) == NULL);
  CHECK(weft_option_detail("threads", WEFT_STRLEN, "colour", WEFT_STRLEN) == NULL);
  CHECK(weft_option_detail(NULL, 0, NULL, 0) == NULL);
  o.settings = settings;
  o.setting_count = 3;
  o.mode = WEFT_MODE_EAGER;
  MUST(weft_context_create(&o, &ctx));
  OK(weft_context_option_source(ctx, "threads", WEFT_STRLEN, &source));
  CHECK_EQUAL(source, WEFT_OPTION_FROM_CALLER);
  OK(weft_context_option_source(ctx, "seed", WEFT_STRLEN, &source));
  CHECK_EQUAL(source, WEFT_OPTION_FROM_DEFAULT);
  OK(weft_context_option_source(ctx, "mode", WEFT_STRLEN, &source)); /* said in weft_context_options.mode */
  CHECK_EQUAL(source, WEFT_OPTION_FROM_CALLER);
  FAILS(weft_context_option_source(ctx, "speed", WEFT_STRLEN, &source), WEFT_NOT_FOUND,
        "weft_context_option_source: there is no option 'speed'; did you mean 'seed'? weft_option_list names all");
  weft_context_release(ctx);
}

static int g_released = 0;
static void count_release(void* data) {
  (void)data;
  ++g_released;
}
static void on_log(void* data, weft_log_level level, const char* text, size_t length) {
  (void)level;
  (void)text;
  (void)length;
  ++*(int*)data;
}

static void hooks_are_released_exactly_once(void) {
  int records = 0;
  weft_context_options o = WEFT_CONTEXT_OPTIONS_INIT;
  weft_context* ctx = NULL;
  weft_setting bad = {"mode", WEFT_STRLEN, "none", WEFT_STRLEN};
  o.log = on_log;
  o.log_user_data = &records;
  o.log_release = count_release;
  o.pressure_release = count_release;
  o.settings = &bad;
  o.setting_count = 1;
  INVALID(weft_context_create(&o, NULL), "weft_context_create: out is NULL");
  CHECK_EQUAL(g_released, 2); /* also when registration fails */
  o.next = &bad;
  FAILS(weft_context_create(&o, &ctx), WEFT_UNIMPLEMENTED,
        "weft_context_options.next is not NULL; this version knows no extensions of it");
  CHECK_EQUAL(g_released, 4);
  o.next = NULL;
  g_released = 0;
  INVALID(weft_context_create(&o, &ctx), "weft_context_create: option mode: 'none' is not one of lazy, eager, debug");
  CHECK_EQUAL(g_released, 2);
  o.setting_count = 0;
  MUST(weft_context_create(&o, &ctx));
  CHECK_EQUAL(g_released, 2);
  MUST(weft_context_set_log(ctx, WEFT_LOG_WARNING, on_log, &records, count_release));
  CHECK_EQUAL(g_released, 3); /* the one before is gone */
  weft_context_release(ctx);
  CHECK_EQUAL(g_released, 5);
  INVALID(weft_context_set_log(ctx, WEFT_LOG_WARNING, on_log, &records, count_release),
          "weft_context_set_log: ctx is a weft_context that has been released");
  CHECK_EQUAL(g_released, 6);
}

static void devices(void) {
  weft_context* ctx = new_context();
  weft_device *first = NULL, *same = NULL;
  const char *name, *kind;
  char text[200];
  size_t count = 0, length = 0;
  int32_t type = -1, id = -1;
  weft_memory_stats stats = WEFT_MEMORY_STATS_INIT;
  MUST(weft_device_count(ctx, &count));
  CHECK(count >= 1);
  MUST(weft_device_at(ctx, 0, &first));
  MUST(weft_device_name(first, &name, &length));
  CHECK_EQUAL(strlen(name), length);
  MUST(weft_device_kind(first, &kind, NULL));
  CHECK(strlen(kind) > 0);
  MUST(weft_device_by_name(ctx, name, WEFT_STRLEN, &same));
  MUST(weft_device_dlpack(same, &type, &id));
  CHECK_EQUAL(id, 0);
  MUST(weft_device_memory(first, &stats));
  CHECK_EQUAL(stats.struct_size, sizeof stats);
  snprintf(text, sizeof text, "weft_device_by_name: there is no device 'tpu:0' here; there are: %s", name);
  FAILS(weft_device_by_name(ctx, "tpu:0", WEFT_STRLEN, &same), WEFT_NOT_FOUND, text);
  snprintf(text, sizeof text, "weft_device_at: device %d of a context that has %d", (int)count, (int)count);
  FAILS(weft_device_at(ctx, count, &same), WEFT_OUT_OF_RANGE, text);
  weft_device_release(first);
  weft_device_release(same);
  weft_context_release(ctx);
}

static void cancelling(void) {
  weft_context* ctx = new_context();
  weft_tensor* t = ramp(ctx, DIMS(3));
  weft_cancel(ctx);
  FAILS(weft_eval(ctx, &t, 1, NULL), WEFT_CANCELLED, "weft_eval: cancelled by weft_cancel; nothing of it was launched: what was assigned shows its new value, which the next barrier or read computes, or its old one where a launch before was ended, too");
  OK(weft_eval(ctx, &t, 1, NULL)); /* noticed once */
  weft_cancel(NULL);
  weft_tensor_release(t);
  weft_context_release(ctx);
}

/* A product that takes a while, so that the waits below are waits. */
static weft_event* some_work(weft_context* ctx, weft_tensor* x) {
  weft_tensor* product = NULL;
  weft_event* event = NULL;
  MUST(weft_matmul(ctx, x, x, NULL, &product));
  MUST(weft_eval(ctx, &product, 1, &event));
  weft_tensor_release(product);
  return event;
}

static void timeouts_of_any_size(void) {
  weft_context* ctx = new_context();
  weft_tensor* x = ramp(ctx, DIMS(600, 600));
  weft_event* event = some_work(ctx, x);
  weft_event* events[2];
  weft_error* e;
  int waited;
  size_t index = 9;
  OK(weft_event_wait(event, INT64_MAX)); /* more than a clock can be advanced by */
  weft_event_release(event);
  event = some_work(ctx, x);
  OK(weft_wait_any(&event, 1, INT64_MAX, &index));
  CHECK_EQUAL(index, 0);
  weft_event_release(event);
  events[0] = some_work(ctx, x); /* two names of one event: a handle twice */
  events[1] = events[0];
  do { /* a loop that polls with short timeouts */
    e = weft_wait_any(events, 2, 1000, &index);
    if (e != NULL) CHECK_EQUAL(weft_error_code(e), WEFT_DEADLINE_EXCEEDED);
    waited = e != NULL;
    weft_error_release(e);
  } while (waited);
  CHECK(index < 2);
  event = events[0];
  weft_cancel(ctx);
  OK(weft_wait_any(&event, 1, INT64_MIN, &index)); /* what has happened needs no wait */
  OK(weft_event_wait(event, 0));
  FAILS(weft_sync(ctx, NULL, NULL), WEFT_CANCELLED, "weft_sync: cancelled by weft_cancel; nothing of it was launched: what was assigned shows its new value, which the next barrier or read computes, or its old one where a launch before was ended, too");
  weft_event_release(event);
  weft_tensor_release(x);
  weft_context_release(ctx);
}

static void a_context_does_not_survive_fork(void) {
  weft_context* ctx = new_context();
  weft_tensor* t = ramp(ctx, DIMS(4));
  weft_tensor* sum = NULL;
  float host[4];
  pid_t child;
  int status = 0;
  MUST(weft_add(ctx, t, t, &sum));
  MUST(weft_tensor_to_host(sum, host, sizeof host));
  fflush(stdout);
  child = fork();
  if (child == 0) {
    weft_tensor* more = NULL;
    weft_context* fresh;
    FAILS(weft_add(ctx, t, t, &more), WEFT_FAILED_PRECONDITION,
          "add: the context was used before fork and its threads did not come along; make a new context in the child");
    fresh = new_context();
    t = ramp(fresh, DIMS(4));
    MUST(weft_add(fresh, t, t, &more));
    MUST(weft_tensor_to_host(more, host, sizeof host));
    CHECK(host[3] == 6.0f);
    weft_tensor_release(more);
    weft_tensor_release(t);
    weft_context_release(fresh);
    weft_context_release(ctx);
    fflush(stdout);
    _exit(g_failures);
  }
  waitpid(child, &status, 0);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  MUST(weft_tensor_to_host(sum, host, sizeof host));
  weft_tensor_release(sum);
  weft_tensor_release(t);
  weft_context_release(ctx);
}

static void nap(void) {
  const struct timespec pause = {0, 5000000};
  nanosleep(&pause, NULL);
}

static int threads_of_this_process(void) {
  int count = 0;
  DIR* tasks = opendir("/proc/self/task");
  const struct dirent* entry;
  while (tasks != NULL && (entry = readdir(tasks)) != NULL) count += entry->d_name[0] != '.';
  if (tasks != NULL) closedir(tasks);
  return count;
}

/* Whoever releases the last tensor, perhaps a finalizer, has nothing to wait for: the context ended its threads. */
static void a_context_takes_its_threads_with_it(const char* platform) {
  const weft_setting settings[] = {{"platform", WEFT_STRLEN, platform, WEFT_STRLEN},
                                   {"cache_mode", WEFT_STRLEN, "off", WEFT_STRLEN},
                                   {"threads", WEFT_STRLEN, "2", WEFT_STRLEN}};
  weft_context_options options = WEFT_CONTEXT_OPTIONS_INIT;
  weft_context* ctx = NULL;
  weft_tensor *x, *y = NULL;
  int before, i;
  options.settings = settings;
  options.setting_count = 3;
  before = threads_of_this_process();
  MUST(weft_context_create(&options, &ctx));
  x = ramp(ctx, DIMS(160, 160)); /* not small enough for the CPU to multiply on the caller's thread */
  MUST(weft_matmul(ctx, x, x, NULL, &y));
  MUST(weft_eval(ctx, &y, 1, NULL));
  CHECK(before == 0 || threads_of_this_process() > before);
  weft_context_release(ctx);
  for (i = 0; i < 200 && threads_of_this_process() > before; ++i) nap(); /* the system takes its time to strike it off */
  CHECK_EQUAL(threads_of_this_process(), before);
  weft_tensor_release(x);
  weft_tensor_release(y);
}

int main(void) {
  every_variable_has_an_option_that_reads_it();
  settings_that_cannot_be();
  what_is_known_of_options();
  hooks_are_released_exactly_once();
  devices();
  cancelling();
  timeouts_of_any_size();
  a_context_does_not_survive_fork();
  a_context_takes_its_threads_with_it("reference");
  a_context_takes_its_threads_with_it("cpu");
  return done("context");
}
