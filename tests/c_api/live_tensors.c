/* Reports of many live tensors, while another thread makes tensors and lets go of them. */
#define _GNU_SOURCE
#include "check.h"

#include <pthread.h>
#include <time.h>

enum { kMany = 20000, kRounds = 200 };

static weft_context* g_ctx;
static int g_stop = 0;
static long g_made = 0;

static void* comes_and_goes(void* unused) {
  weft_tensor* held[64] = {NULL};
  (void)unused;
  for (long i = 0; !__atomic_load_n(&g_stop, __ATOMIC_RELAXED); ++i) {
    weft_tensor** const one = &held[i % 64];
    weft_tensor_release(*one);
    *one = ramp(g_ctx, DIMS(2));
    __atomic_store_n(&g_made, i + 1, __ATOMIC_RELAXED);
  }
  for (int i = 0; i < 64; ++i) weft_tensor_release(held[i]);
  return NULL;
}

static double milliseconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void report(weft_device* device, long* tensors, long* of_seven) {
  weft_blob* blob = NULL;
  const char *text, *group;
  MUST(weft_memory_report(device, WEFT_MEMORY_JSON, &blob));
  text = weft_blob_data(blob);
  text = strstr(text, "\"live_tensors\": ");
  CHECK(text != NULL);
  *tensors = text != NULL ? atol(text + 16) : 0;
  group = strstr(weft_blob_data(blob), "\"type\": \"f32[7]\"");
  *of_seven = 0;
  if (group != NULL) {
    while (group > (const char*)weft_blob_data(blob) && *group != '{') --group;
    *of_seven = atol(strstr(group, "\"count\": ") + 9);
  }
  weft_blob_release(blob);
}

int main(void) {
  static weft_tensor* live[kMany];
  weft_device* device = NULL;
  pthread_t thread;
  long tensors, sevens;
  double began, took;
  g_ctx = new_context();
  MUST(weft_device_at(g_ctx, 0, &device));
  for (int i = 0; i < kMany; ++i) live[i] = ramp(g_ctx, DIMS(7));
  began = milliseconds();
  report(device, &tensors, &sevens);
  took = milliseconds() - began;
  CHECK_EQUAL(tensors, kMany);
  CHECK_EQUAL(sevens, kMany);
  printf("report of %d tensors: %.2f ms\n", kMany, took);

  CHECK_EQUAL(pthread_create(&thread, NULL, comes_and_goes, NULL), 0);
  while (__atomic_load_n(&g_made, __ATOMIC_RELAXED) < 100) {}
  for (int i = 0; i < kRounds; ++i) {
    report(device, &tensors, &sevens);
    CHECK_EQUAL(sevens, kMany); /* those that stay are all there, once */
    CHECK(tensors >= kMany);
    /* The one on which a report may have stopped goes, and others come. */
    const int at = 1024 * (i % 19) + i % 3;
    weft_tensor_release(live[at]);
    live[at] = ramp(g_ctx, DIMS(7));
  }
  __atomic_store_n(&g_stop, 1, __ATOMIC_RELAXED);
  pthread_join(thread, NULL);
  report(device, &tensors, &sevens);
  CHECK_EQUAL(tensors, kMany);
  for (int i = 0; i < kMany; ++i) weft_tensor_release(live[i]);
  report(device, &tensors, &sevens);
  CHECK_EQUAL(tensors, 0); /* nothing that a report held stays */
  weft_device_release(device);
  weft_context_release(g_ctx);
  return done("live_tensors");
}
