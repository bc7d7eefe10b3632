/* Who waits for whom: recording waits for nobody while another thread's call compiles; a cancel ends a wait for a compile at
 * the next look, is spent by that, and loses nothing; long compiles say how far they are; compile now, run later. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "check.h"

enum { kSteps = 12 }; /* operations of a form: two choices each */

static weft_context* context_with_log(weft_log_fn log, void* user) {
  static const weft_setting settings[] = {{"cache_mode", WEFT_STRLEN, "off", WEFT_STRLEN},
                                          {"max_pending_nodes", WEFT_STRLEN, "0", WEFT_STRLEN},
                                          {"compile_threads", WEFT_STRLEN, "1", WEFT_STRLEN}};
  weft_context_options options = WEFT_CONTEXT_OPTIONS_INIT;
  weft_context* ctx = NULL;
  options.settings = settings;
  options.setting_count = 3;
  options.log = log;
  options.log_user_data = user;
  options.min_log_level = WEFT_LOG_INFO;
  MUST(weft_context_create(&options, &ctx));
  return ctx;
}

/* `count` results whose kernels all differ, so that the program takes long to compile and no time to run. */
static void slow(weft_context* ctx, weft_tensor* x, int count, weft_tensor** out) {
  int i, step;
  for (i = 0; i < count; ++i) {
    weft_tensor* y;
    wf_scope* s = wf_begin(ctx);
    y = wf_mul(s, x, wf_scalar(s, WEFT_F32, 1e-3 * i)); /* nothing is common to two of them */
    for (step = 0; step < kSteps; ++step) y = i >> step & 1 ? wf_add(s, y, x) : wf_mul(s, wf_sub(s, x, y), y);
    out[i] = wf_keep(s, wf_sum(s, y));
    MUST(wf_end(s));
  }
}
static void release_all(weft_tensor** tensors, int count) {
  int i;
  for (i = 0; i < count; ++i) weft_tensor_release(tensors[i]);
}

typedef struct {
  weft_context* ctx;
  weft_error* error;
  atomic_int over;
} barrier;
static void* run_barrier(void* data) {
  barrier* b = data;
  b->error = weft_sync(b->ctx, NULL, NULL);
  atomic_store(&b->over, 1);
  return NULL;
}
/* A barrier on a thread of its own, which has begun to wait for its program. */
static void begin_barrier(weft_context* ctx, pthread_t* thread, barrier* b) {
  b->ctx = ctx;
  b->error = NULL;
  atomic_store(&b->over, 0);
  CHECK(pthread_create(thread, NULL, run_barrier, b) == 0);
  while (metric(ctx, "programs_queued") == 0 && !atomic_load(&b->over)) usleep(1000);
}

enum { kSlow = 200 };
static weft_tensor* g_results[1 << kSteps];

static void recording_waits_for_nobody(void) {
  weft_context* ctx = context_with_log(NULL, NULL);
  weft_tensor *x = ramp(ctx, DIMS(8)), *p = ramp(ctx, DIMS(8));
  pthread_t thread;
  barrier b;
  int i;
  slow(ctx, x, kSlow, g_results);
  begin_barrier(ctx, &thread, &b);
  for (i = 0; i < 1000; ++i) {
    weft_tensor *y, *z;
    OK(weft_relu(ctx, x, &y));
    OK(weft_add(ctx, y, p, &z));
    OK(weft_tensor_assign(p, z));
    weft_tensor_release(y);
    weft_tensor_release(z);
  }
  OK(weft_tensor_from_host(ctx, NULL, WEFT_F32, DIMS(8), g_results, 32, &p)), weft_tensor_release(p);
  CHECK(!atomic_load(&b.over)); /* all of that while one program was compiled */
  CHECK_EQUAL(metric(ctx, "programs_compiled"), 0);
  CHECK(pthread_join(thread, NULL) == 0);
  OK(b.error);
  CHECK_EQUAL(metric(ctx, "programs_compiled"), 1);
  release_all(g_results, kSlow);
  weft_tensor_release(x);
  weft_context_release(ctx);
}

#define NOTHING_LAUNCHED \
  "cancelled by weft_cancel; nothing of it was launched: what was assigned shows its new value, which the next barrier or read computes, or its old one where a launch before was ended, too"

static void a_cancel_ends_the_wait_is_spent_and_loses_nothing(void) {
  const float two[] = {2, 2};
  weft_context* ctx = context_with_log(NULL, NULL);
  weft_tensor *x = ramp(ctx, DIMS(8)), *old = f32(ctx, DIMS(2), two), *p = f32(ctx, DIMS(2), two), *next, *copy;
  float host[2];
  pthread_t thread;
  barrier b;
  OK(weft_mul(ctx, p, old, &next));
  OK(weft_tensor_assign(p, next)); /* the step: p becomes 4 */
  slow(ctx, x, kSlow, g_results);
  begin_barrier(ctx, &thread, &b);
  weft_cancel(ctx);
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK_EQUAL(metric(ctx, "programs_compiled"), 0); /* the wait is over, the compilation is not */
  CHECK_EQUAL(metric(ctx, "launches"), 0);
  FAILS(b.error, WEFT_CANCELLED, "weft_sync: " NOTHING_LAUNCHED);
  /* Spent: nobody else gets it. */
  OK(weft_relu(ctx, old, &copy));
  OK(weft_eval(ctx, &copy, 1, NULL));
  OK(weft_tensor_to_host(copy, host, sizeof host));
  CHECK(host[0] == 2 && host[1] == 2);
  OK(weft_tensor_to_host(p, host, sizeof host));
  CHECK(host[0] == 4 && host[1] == 4);
  OK(weft_tensor_to_host(old, host, sizeof host));
  CHECK(host[0] == 2 && host[1] == 2);
  /* The same step again. */
  OK(weft_sync(ctx, NULL, NULL));
  OK(weft_tensor_to_host(g_results[0], host, sizeof(float)));
  release_all(g_results, kSlow);
  weft_tensor_release(x), weft_tensor_release(old), weft_tensor_release(p), weft_tensor_release(next), weft_tensor_release(copy);
  weft_context_release(ctx);
}

typedef struct {
  int records, last_done, kernels;
} progress;
static void hear(void* user, weft_log_level level, const char* text, size_t length) {
  progress* p = user;
  int seconds, nodes, finished, kernels;
  (void)length;
  if (sscanf(text, "after %d s a program of %d nodes is being compiled: %d of %d new kernels are done", &seconds, &nodes, &finished,
             &kernels) == 4) {
    CHECK_EQUAL(level, WEFT_LOG_INFO);
    CHECK(finished >= p->last_done && finished <= kernels && seconds > p->records);
    p->last_done = finished;
    p->kernels = kernels;
    ++p->records;
  }
}

static void long_compiles_say_how_far_they_are(void) {
  progress heard = {0, 0, 0};
  weft_context* ctx = context_with_log(hear, &heard);
  weft_tensor* x = ramp(ctx, DIMS(8));
  int count;
  for (count = kSlow; heard.records < 2 && count <= 1 << kSteps; count *= 2) {
    weft_tensor* wide = ramp(ctx, DIMS(8, 2, 3));
    slow(ctx, count == kSlow ? x : wide, count, g_results);
    memset(&heard, 0, sizeof heard);
    OK(weft_compile(ctx, NULL, g_results, (size_t)count, NULL));
    release_all(g_results, count);
    weft_tensor_release(wide);
  }
  CHECK(heard.records >= 2);
  CHECK(heard.last_done > 0 && heard.kernels >= kSlow);
  CHECK_EQUAL(metric(ctx, "launches"), 0);
  weft_tensor_release(x);
  weft_context_release(ctx);
}

static void compile_now_run_later(void) {
  weft_context* ctx = context_with_log(NULL, NULL);
  weft_tensor *x = ramp(ctx, DIMS(8)), *y;
  weft_event* event = NULL;
  int32_t over = 1;
  float host[8];
  OK(weft_exp(ctx, x, &y));
  /* Tensors by name, waiting; a second time there is nothing to do. */
  OK(weft_compile(ctx, NULL, &y, 1, NULL));
  OK(weft_compile(ctx, NULL, &y, 1, NULL));
  CHECK_EQUAL(metric(ctx, "programs_compiled"), 1);
  CHECK_EQUAL(metric(ctx, "launches"), 0);
  OK(weft_tensor_to_host(y, host, sizeof host));
  CHECK_EQUAL(metric(ctx, "programs_compiled"), 1);
  CHECK(fabsf(host[1] - 2.7182817f) < 1e-6f);
  /* What is computed, and nothing at all. */
  OK(weft_compile(ctx, NULL, &y, 1, NULL));
  OK(weft_compile(ctx, NULL, NULL, 0, &event));
  OK(weft_event_wait(event, 0));
  weft_event_release(event);
  /* The barrier's program, behind our back: the call returns first. */
  slow(ctx, x, kSlow, g_results);
  OK(weft_compile(ctx, NULL, NULL, 0, &event));
  OK(weft_event_poll(event, &over));
  CHECK_EQUAL(over, 0);
  FAILS(weft_event_wait(event, 1), WEFT_DEADLINE_EXCEEDED, "weft_event_wait: the event was not done after 1 ns");
  OK(weft_event_wait(event, -1));
  CHECK_EQUAL(metric(ctx, "programs_compiled"), 2);
  OK(weft_sync(ctx, NULL, NULL));
  CHECK_EQUAL(metric(ctx, "programs_compiled"), 2);
  weft_event_release(event);
  INVALID(weft_compile(ctx, NULL, NULL, 1, NULL), "weft_compile: tensors is NULL");
  INVALID(weft_compile(NULL, NULL, NULL, 0, NULL), "weft_compile: ctx is NULL; a weft_context is needed");
  release_all(g_results, kSlow);
  weft_tensor_release(x), weft_tensor_release(y);
  weft_context_release(ctx);
}

int main(void) {
  recording_waits_for_nobody();
  a_cancel_ends_the_wait_is_spent_and_loses_nothing();
  long_compiles_say_how_far_they_are();
  compile_now_run_later();
  return done("waits");
}
