/* Threads: handles, recording, reading and releasing from many threads at once; clean under ThreadSanitizer. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>

#include "check.h"

enum { kThreads = 4, kRounds = 60 };

static weft_context *g_ctx, *g_second;
static weft_tensor* g_shared;
static int g_bad[kThreads];

static void* record_and_read(void* argument) {
  const int id = (int)(intptr_t)argument;
  int round;
  for (round = 0; round < kRounds; ++round) {
    double value = 0;
    weft_error* e;
    wf_scope* s = wf_begin(g_ctx);
    weft_tensor* factor = wf_scalar(s, WEFT_F32, id + 1);
    weft_tensor* sum = wf_sum(s, wf_mul(s, wf_add(s, g_shared, g_shared), factor));
    weft_tensor_retain(g_shared);
    value = wf_item(s, sum);
    weft_tensor_release(g_shared);
    e = wf_end(s);
    if (e != NULL || value != 12.0 * (id + 1)) ++g_bad[id];
    weft_error_release(e);
  }
  return NULL;
}

static void* make_and_drop(void* argument) {
  const int id = (int)(intptr_t)argument;
  int round, k;
  for (round = 0; round < kRounds * 10; ++round) {
    weft_error* held[8];
    for (k = 0; k < 8; ++k) held[k] = weft_error_new(WEFT_ABORTED, "x", 1);
    for (k = 0; k < 8; ++k) {
      weft_error_retain(held[k]);
      if (weft_error_code(held[k]) != WEFT_ABORTED) ++g_bad[id];
      weft_error_release(held[k]);
      weft_error_release(held[k]);
      if (weft_error_code(held[k]) != WEFT_INVALID_ARGUMENT) {
        /* Another thread may have the slot by now, but never the same generation. */
        ++g_bad[id];
      }
    }
  }
  return NULL;
}

static void* read_about(void* argument) {
  const int id = (int)(intptr_t)argument;
  int round;
  for (round = 0; round < kRounds; ++round) {
    weft_blob* text = NULL;
    weft_device* device = NULL;
    int64_t dims[2];
    size_t rank = 0;
    int32_t happened = 0;
    weft_event* event = NULL;
    if (weft_metrics_json(g_ctx, &text) != NULL || weft_tensor_dims(g_shared, dims, 2, &rank) != NULL ||
        weft_device_at(g_ctx, 0, &device) != NULL || weft_eval(g_ctx, &g_shared, 1, &event) != NULL ||
        weft_event_wait(event, WEFT_WAIT_FOREVER) != NULL || weft_event_poll(event, &happened) != NULL || rank != 2 || !happened) {
      ++g_bad[id];
    }
    weft_event_release(event);
    weft_blob_release(text);
    weft_device_release(device);
  }
  return NULL;
}

static void* create_and_release(void* argument) {
  const int id = (int)(intptr_t)argument;
  int round;
  for (round = 0; round < 5; ++round) {
    weft_context* ctx = new_context();
    weft_tensor *t = ramp(ctx, DIMS(3)), *sum = NULL;
    double value = 0;
    MUST(weft_sum(ctx, t, NULL, &sum));
    MUST(weft_tensor_item_f64(sum, &value));
    if (value != 3) ++g_bad[id];
    weft_context_release(ctx); /* before its tensors: allowed */
    weft_tensor_release(t);
    weft_tensor_release(sum);
  }
  return NULL;
}

/* Assignments, barriers and events in two contexts at once. No scopes: anybody's barrier ends everybody's temporaries. */
static void* count_up(void* argument) {
  const int id = (int)(intptr_t)argument;
  int round;
  for (round = 0; round < 2 * kRounds; ++round) {
    weft_context* ctx = (id + round) % 2 == 0 ? g_ctx : g_second;
    weft_tensor *count = ramp(ctx, DIMS(2)), *one = NULL, *next = NULL;
    weft_event* event = NULL;
    float host[2] = {0};
    int k;
    for (k = 0; k < 3; ++k) {
      MUST(weft_tensor_from_f64(ctx, WEFT_F32, 1, &one));
      MUST(weft_add(ctx, count, one, &next));
      MUST(weft_tensor_assign(count, next));
      if ((round + k) % 4 == 0) MUST(weft_sync(ctx, NULL, &event));
      weft_tensor_release(one);
      weft_tensor_release(next);
      if (event != NULL && weft_event_wait(event, WEFT_WAIT_FOREVER) != NULL) ++g_bad[id];
      weft_event_release(event);
      event = NULL;
    }
    MUST(weft_tensor_to_host(count, host, sizeof host));
    if (host[0] != 3 || host[1] != 4) ++g_bad[id];
    weft_tensor_release(count);
  }
  return NULL;
}

static void run(void* (*body)(void*)) {
  pthread_t threads[kThreads];
  int k;
  for (k = 0; k < kThreads; ++k) g_bad[k] = 0;
  for (k = 0; k < kThreads; ++k) CHECK_EQUAL(pthread_create(&threads[k], NULL, body, (void*)(intptr_t)k), 0);
  for (k = 0; k < kThreads; ++k) pthread_join(threads[k], NULL);
  for (k = 0; k < kThreads; ++k) CHECK_EQUAL(g_bad[k], 0);
}

static void* mixture(void* argument) {
  void* (*const bodies[])(void*) = {record_and_read, make_and_drop, read_about, create_and_release};
  return bodies[(intptr_t)argument % 4](argument);
}

int main(void) {
  g_ctx = new_context();
  g_second = new_context();
  g_shared = ramp(g_ctx, DIMS(2, 2));
  run(record_and_read);
  run(make_and_drop);
  run(read_about);
  run(create_and_release);
  run(count_up);
  run(mixture);
  weft_tensor_release(g_shared);
  weft_context_release(g_ctx);
  weft_context_release(g_second);
  return done("threads");
}
