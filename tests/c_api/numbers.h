/* The data set of the loaders' tests: its item i is the number i, with whatever goes wrong. For files that ask for POSIX. */
#ifndef WEFT_TESTS_NUMBERS_H
#define WEFT_TESTS_NUMBERS_H

#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

static UNUSED double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
static UNUSED void sleep_ms(double ms) {
  struct timespec t;
  t.tv_sec = (time_t)(ms / 1e3);
  t.tv_nsec = (long)((ms - 1e3 * (double)t.tv_sec) * 1e6);
  nanosleep(&t, NULL);
}

typedef struct {
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  double ms;          /* for a batch */
  int64_t slow_item;  /* a batch that begins with it takes 20 ms more */
  int64_t bad_item;   /* fails */
  int64_t wrong_size; /* added to the size that was written */
  int overrun;        /* a byte behind the rows is written */
  int hangs;          /* until it is 0 */
  int reads, at_once, most_at_once, released;
} source;

static UNUSED source new_source(void) {
  source s;
  memset(&s, 0, sizeof s);
  pthread_mutex_init(&s.mutex, NULL);
  pthread_cond_init(&s.changed, NULL);
  s.slow_item = s.bad_item = -1;
  return s;
}

static UNUSED void count(source* s, int by) {
  pthread_mutex_lock(&s->mutex);
  s->at_once += by;
  if (by > 0) ++s->reads;
  if (s->at_once > s->most_at_once) s->most_at_once = s->at_once;
  while (by > 0 && s->hangs) pthread_cond_wait(&s->changed, &s->mutex);
  pthread_mutex_unlock(&s->mutex);
}

static UNUSED weft_error* read_numbers(void* user_data, const int64_t* items, size_t item_count, weft_rows* rows, size_t fields) {
  source* s = user_data;
  int32_t* out = rows[0].data;
  size_t i;
  weft_error* error = NULL;
  (void)fields;
  count(s, 1);
  if (s->ms > 0) sleep_ms(s->ms);
  if (items[0] == s->slow_item) sleep_ms(20);
  for (i = 0; i < item_count; ++i) {
    if (items[i] == s->bad_item) error = weft_error_new(WEFT_DATA_LOSS, "the disk is scratched", WEFT_STRLEN);
    out[i] = (int32_t)items[i];
  }
  if (s->overrun) ((char*)rows[0].data)[rows[0].size] = 1;
  rows[0].size = (uint64_t)((int64_t)rows[0].size + s->wrong_size);
  count(s, -1);
  return error;
}
static UNUSED void release_source(void* user_data) {
  source* s = user_data;
  pthread_mutex_lock(&s->mutex);
  ++s->released;
  pthread_mutex_unlock(&s->mutex);
}
/* How often it was released, after waiting for so many times: loaders let go of it on threads of theirs, so no source goes before. */
static UNUSED int released_by(source* s, int users) {
  int i, times = 0;
  for (i = 0; i < 2000 && times < users; ++i) {
    pthread_mutex_lock(&s->mutex);
    times = s->released;
    pthread_mutex_unlock(&s->mutex);
    if (times < users) sleep_ms(5);
  }
  return times;
}
static UNUSED int released(source* s) { return released_by(s, 1); }

static UNUSED weft_dataset* numbers(source* s, int64_t items) {
  static weft_tensor_info field;
  weft_dataset_options options = WEFT_DATASET_OPTIONS_INIT;
  weft_dataset* dataset = NULL;
  field.dtype = WEFT_I32;
  options.count = items;
  options.fields = &field;
  options.field_count = 1;
  options.read = read_numbers;
  options.user_data = s;
  options.release = release_source;
  MUST(weft_dataset_create(&options, &dataset));
  return dataset;
}

static UNUSED weft_sampler* sampler_of(int64_t items, weft_order order, weft_tail tail, int64_t batch, int64_t rank, int64_t ranks) {
  weft_sampler_options options = WEFT_SAMPLER_OPTIONS_INIT;
  weft_sampler* sampler = NULL;
  options.batch = batch;
  options.order = order;
  options.tail = tail;
  options.seed = 11;
  options.rank = rank;
  options.ranks = ranks;
  MUST(weft_sampler_create(items, &options, &sampler));
  return sampler;
}

static UNUSED weft_loader* loader_of(weft_context* ctx, weft_dataset* dataset, weft_sampler* sampler, weft_loader_options options) {
  weft_loader* loader = NULL;
  MUST(weft_loader_create(ctx, dataset, sampler, &options, &loader));
  weft_dataset_retain(dataset); /* one more of each, and back */
  weft_sampler_retain(sampler);
  weft_loader_retain(loader);
  weft_loader_release(loader);
  weft_sampler_release(sampler);
  weft_dataset_release(dataset);
  weft_dataset_release(dataset);
  weft_sampler_release(sampler);
  return loader;
}
static UNUSED weft_loader_options how(int64_t depth, int64_t threads) {
  weft_loader_options options = WEFT_LOADER_OPTIONS_INIT;
  options.depth = depth;
  options.threads = threads;
  return options;
}

/* The numbers of the next batch that count, and how many; -1 at the end of the epoch. */
static UNUSED int64_t next_numbers(weft_loader* loader, int32_t* out, int64_t batch) {
  weft_tensor* t[2] = {NULL, NULL};
  unsigned char mask[256];
  size_t n = 0;
  int64_t i, kept = batch;
  MUST(weft_loader_next(loader, t, 2, &n));
  if (n == 0) return -1;
  OK(weft_tensor_to_host(t[0], out, (size_t)batch * sizeof *out));
  if (n == 2) {
    OK(weft_tensor_to_host(t[1], mask, (size_t)batch));
    for (kept = 0; kept < batch && mask[kept]; ++kept) continue;
    for (i = kept; i < batch; ++i) CHECK(!mask[i]);
    weft_tensor_release(t[1]);
  }
  weft_tensor_release(t[0]);
  return kept;
}

#endif
