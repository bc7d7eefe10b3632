/* callbacks=queued: what the caller's functions are to do waits behind a descriptor and runs in weft_context_run_queue alone. */
#define _POSIX_C_SOURCE 200809L
#include <poll.h>
#include <pthread.h>
#include <stdint.h>

#include "check.h"

/* DLPack before version 1, from its specification. */
struct DLManagedTensor {
  struct {
    void* data;
    int32_t device_type, device_id, ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
  } tensor;
  void* manager_ctx;
  void (*deleter)(struct DLManagedTensor* self);
};

static pthread_t g_caller;
static int g_in_queue, g_records, g_deleted, g_released, g_elsewhere;

static void note(int* counter) {
  ++*counter;
  if (!g_in_queue || !pthread_equal(pthread_self(), g_caller)) ++g_elsewhere;
}
static void take_record(void* user, weft_log_level level, const char* text, size_t length) {
  (void)user, (void)level, (void)text, (void)length;
  note(&g_records);
}
static void end_hook(void* user) { (void)user, note(&g_released); }
static void delete_legacy(struct DLManagedTensor* self) {
  note(&g_deleted);
  free(self);
}

static weft_context* queued(const char* callbacks) {
  weft_setting settings[] = {{"cache_mode", WEFT_STRLEN, "off", WEFT_STRLEN}, {"callbacks", WEFT_STRLEN, NULL, WEFT_STRLEN}};
  weft_context_options options = WEFT_CONTEXT_OPTIONS_INIT;
  weft_context* ctx = NULL;
  settings[1].value = callbacks;
  options.settings = settings;
  options.setting_count = 2;
  options.log = take_record;
  options.log_release = end_hook;
  options.min_log_level = WEFT_LOG_DEBUG;
  MUST(weft_context_create(&options, &ctx));
  return ctx;
}

static size_t run(weft_context* ctx) {
  size_t count = 0;
  g_in_queue = 1;
  OK(weft_context_run_queue(ctx, &count));
  g_in_queue = 0;
  return count;
}

static int readable(weft_context* ctx) {
  struct pollfd p = {-1, POLLIN, 0};
  int32_t fd = -1;
  OK(weft_context_queue_fd(ctx, &fd));
  p.fd = fd;
  return poll(&p, 1, 0);
}

/* Memory lent by the legacy form, which needs no flags; odd addresses cannot be used in place and are copied. */
static weft_tensor* lend(weft_context* ctx, int copied) {
  static int64_t memory[9];
  static int64_t shape = 16;
  unsigned char* const bytes = (unsigned char*)memory;
  struct DLManagedTensor* m = calloc(1, sizeof *m);
  weft_tensor* out = NULL;
  m->tensor.data = bytes + (copied ? 1 : 0);
  m->tensor.device_type = 1;
  m->tensor.ndim = 1;
  m->tensor.code = 2, m->tensor.bits = 32, m->tensor.lanes = 1;
  m->tensor.shape = &shape;
  m->deleter = delete_legacy;
  MUST(weft_tensor_from_dlpack_legacy(ctx, m, &out));
  return out;
}

static void* let_go(void* tensor) {
  weft_tensor_release(tensor); /* a finalizer's thread */
  return NULL;
}

static void everything_waits(void) {
  weft_context* ctx = queued("queued");
  weft_tensor *y = NULL, *x = lend(ctx, 0);
  pthread_t finalizer;
  double value = 0;
  size_t count;
  run(ctx);
  CHECK_EQUAL(readable(ctx), 0);
  MUST(weft_sum(ctx, x, NULL, &y));
  OK(weft_tensor_item_f64(y, &value)); /* compiles: debug records */
  CHECK(g_elsewhere == 0 && readable(ctx) == 1);
  count = run(ctx);
  CHECK(count > 0 && g_records > 0 && readable(ctx) == 0);
  CHECK_EQUAL(run(ctx), 0);
  /* released on another thread, run on this one */
  pthread_create(&finalizer, NULL, let_go, x);
  pthread_join(finalizer, NULL);
  weft_tensor_release(y);
  CHECK_EQUAL(g_deleted, 0);
  CHECK_EQUAL(readable(ctx), 1);
  run(ctx);
  CHECK_EQUAL(g_deleted, 1);
  /* what was copied is let go of at once, in the queue all the same */
  x = lend(ctx, 1);
  CHECK_EQUAL(g_deleted, 1);
  CHECK_EQUAL(readable(ctx), 1);
  run(ctx);
  CHECK_EQUAL(g_deleted, 2);
  weft_tensor_release(x);
  /* a hook that is replaced ends at once where nothing waits for it: the call is the caller's own */
  g_in_queue = 1;
  OK(weft_context_set_log(ctx, WEFT_LOG_DEBUG, take_record, NULL, end_hook));
  CHECK_EQUAL(g_released, 1);
  x = lend(ctx, 0);
  weft_tensor_release(x);
  CHECK_EQUAL(g_deleted, 2);
  weft_context_release(ctx); /* what still waits is called here */
  CHECK_EQUAL(g_deleted, 3);
  CHECK_EQUAL(g_released, 2);
  CHECK_EQUAL(g_elsewhere, 0);
  g_in_queue = 0;
}

static void without_the_option_nothing_waits(void) {
  weft_context* ctx = queued("direct");
  int32_t fd = 5;
  g_deleted = 0;
  FAILS(weft_context_queue_fd(ctx, &fd), WEFT_FAILED_PRECONDITION,
        "weft_context_queue_fd: callbacks do not wait in this context: make it with the option callbacks=queued");
  FAILS_WITH(weft_context_run_queue(ctx, NULL), WEFT_FAILED_PRECONDITION, "callbacks=queued");
  CHECK_EQUAL(fd, 5);
  g_in_queue = 1; /* anywhere is right */
  weft_tensor_release(lend(ctx, 0));
  CHECK_EQUAL(g_deleted, 1);
  weft_context_release(ctx);
}

int main(void) {
  g_caller = pthread_self();
  everything_waits();
  without_the_option_nothing_waits();
  return done("queue");
}
