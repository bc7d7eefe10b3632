/* Loaders: order, ends of epochs, errors, hangs, speed, memory, going on. What they read from, where batches go and bad input: data_sets.c. */
#define _POSIX_C_SOURCE 200809L
#include "numbers.h"

/* --- What it does ----------------------------------------------------------------------------------------------------- */

static void batches_come_in_order_whichever_thread_was_faster(void) {
  source s = new_source();
  weft_context* ctx = new_context();
  weft_loader* loader;
  int32_t got[8];
  int64_t batch, i, epoch;
  s.slow_item = 8; /* the second batch is the slowest */
  loader = loader_of(ctx, numbers(&s, 50), sampler_of(50, WEFT_ORDER_SEQUENTIAL, WEFT_TAIL_DROP, 8, 0, 1), how(4, 4));
  for (epoch = 0; epoch < 3; ++epoch) {
    for (batch = 0; batch < 6; ++batch) {
      CHECK_EQUAL(next_numbers(loader, got, 8), 8);
      for (i = 0; i < 8; ++i) CHECK_EQUAL(got[i], batch * 8 + i);
    }
    CHECK_EQUAL(next_numbers(loader, got, 8), -1);
  }
  CHECK(s.most_at_once > 1);
  CHECK_EQUAL(metric(ctx, "loader_batches"), 18);
  weft_loader_release(loader);
  CHECK_EQUAL(released(&s), 1);
  weft_context_release(ctx);
}

static void a_padded_tail_has_a_mask(void) {
  source s = new_source();
  weft_context* ctx = new_context();
  weft_loader* loader = loader_of(ctx, numbers(&s, 10), sampler_of(10, WEFT_ORDER_SEQUENTIAL, WEFT_TAIL_PAD, 4, 0, 1), how(0, 0));
  int32_t got[4];
  CHECK_EQUAL(next_numbers(loader, got, 4), 4);
  CHECK_EQUAL(next_numbers(loader, got, 4), 4);
  CHECK_EQUAL(next_numbers(loader, got, 4), 2);
  CHECK(got[0] == 8 && got[1] == 9 && got[2] == 0 && got[3] == 1);
  CHECK_EQUAL(next_numbers(loader, got, 4), -1);
  weft_loader_release(loader);
  CHECK_EQUAL(released(&s), 1);
  weft_context_release(ctx);
}

/* Everything from where the loader stands to the end of the epoch, for ranks that are read one after the other. */
static int64_t rest(weft_context* ctx, weft_tree* state, int64_t items, int64_t ranks, int64_t batch, int64_t steps, int32_t* out,
                    weft_tree** out_state) {
  static source s;
  weft_loader* loaders[8] = {NULL};
  int32_t got[16];
  int64_t rank, i, n = 0, kept = 0, step;
  s = new_source();
  for (rank = 0; rank < ranks; ++rank) {
    loaders[rank] = loader_of(ctx, numbers(&s, items), sampler_of(items, WEFT_ORDER_RANDOM, WEFT_TAIL_PAD, batch, rank, ranks), how(2, 1));
    if (state) OK(weft_loader_load(loaders[rank], state, 0));
  }
  for (step = 0; kept >= 0 && step != steps; ++step) {
    for (rank = 0; rank < ranks; ++rank) {
      kept = next_numbers(loaders[rank], got, batch);
      for (i = 0; i < kept; ++i) out[n++] = got[i];
    }
  }
  if (out_state) OK(weft_loader_state(loaders[0], out_state));
  for (rank = 0; rank < ranks; ++rank) weft_loader_release(loaders[rank]);
  CHECK_EQUAL(released_by(&s, (int)ranks), ranks);
  return n;
}

static void a_state_goes_on_bit_equal_with_any_number_of_ranks(void) {
  enum { ITEMS = 203 };
  static const int64_t steps[] = {0, 1, 7, 10, 11}, ranks[] = {1, 2, 4, 8};
  weft_context* ctx = new_context();
  int32_t whole[ITEMS], again[2 * ITEMS];
  char seen[ITEMS];
  size_t i, r;
  CHECK_EQUAL(rest(ctx, NULL, ITEMS, 4, 5, -1, whole, NULL), ITEMS);
  memset(seen, 0, sizeof seen);
  for (i = 0; i < ITEMS; ++i) {
    CHECK(!seen[whole[i]]);
    seen[whole[i]] = 1;
  }
  for (i = 0; i < sizeof steps / sizeof *steps; ++i) {
    weft_tree* state = NULL;
    const int64_t first = rest(ctx, NULL, ITEMS, 4, 5, steps[i], again, &state);
    CHECK(memcmp(again, whole, (size_t)first * sizeof *whole) == 0);
    for (r = 0; r < 4; ++r) {
      CHECK_EQUAL(rest(ctx, state, ITEMS, ranks[r], 5, -1, again, NULL), ITEMS - first);
      CHECK(memcmp(again, whole + first, (size_t)(ITEMS - first) * sizeof *whole) == 0);
    }
    weft_tree_release(state);
  }
  weft_context_release(ctx);
}

static void an_error_names_the_item_and_the_batch_can_be_read_again(void) {
  source s = new_source();
  weft_context* ctx = new_context();
  weft_loader* loader = loader_of(ctx, numbers(&s, 16), sampler_of(16, WEFT_ORDER_SEQUENTIAL, WEFT_TAIL_DROP, 4, 0, 1), how(2, 1));
  weft_tensor* t = NULL;
  int32_t got[4];
  size_t n = 7;
  s.bad_item = 6;
  CHECK_EQUAL(next_numbers(loader, got, 4), 4);
  FAILS(weft_loader_next(loader, &t, 1, &n), WEFT_DATA_LOSS,
        "weft_loader_next: reading item 6: the disk is scratched (epoch 0, position 4)");
  CHECK(t == NULL && n == 7);
  pthread_mutex_lock(&s.mutex);
  s.bad_item = -1;
  pthread_mutex_unlock(&s.mutex);
  weft_error_release(weft_loader_next(loader, &t, 1, &n)); /* what was read ahead meanwhile may have failed as well */
  weft_tensor_release(t);
  weft_loader_release(loader);
  CHECK_EQUAL(released(&s), 1);
  weft_context_release(ctx);
}

static void sizes_that_do_not_fit_are_errors(void) {
  source s = new_source();
  weft_context* ctx = new_context();
  weft_loader* loader = loader_of(ctx, numbers(&s, 8), sampler_of(8, WEFT_ORDER_SEQUENTIAL, WEFT_TAIL_DROP, 4, 0, 1), how(1, 1));
  weft_tensor* t = NULL;
  size_t n = 0;
  s.wrong_size = -4;
  FAILS_WITH(weft_loader_next(loader, &t, 1, &n), WEFT_INVALID_ARGUMENT,
             "reading item 0: field 0: 0 bytes were written for 1 row; it takes 4");
  weft_loader_release(loader);
  CHECK_EQUAL(released(&s), 1);
  s.wrong_size = 4;
  loader = loader_of(ctx, numbers(&s, 8), sampler_of(8, WEFT_ORDER_SEQUENTIAL, WEFT_TAIL_DROP, 4, 0, 1), how(1, 1));
  FAILS_WITH(weft_loader_next(loader, &t, 1, &n), WEFT_INVALID_ARGUMENT, "8 bytes were written for 1 row; it takes 4");
  weft_loader_release(loader);
  CHECK_EQUAL(released_by(&s, 2), 2);
  s.wrong_size = 0;
  s.overrun = 1;
  loader = loader_of(ctx, numbers(&s, 8), sampler_of(8, WEFT_ORDER_SEQUENTIAL, WEFT_TAIL_DROP, 4, 0, 1), how(1, 1));
  FAILS_WITH(weft_loader_next(loader, &t, 1, &n), WEFT_INVALID_ARGUMENT,
             "reading items 0, 1, 2, 3: field 0: memory behind its 16 bytes was written to");
  weft_loader_release(loader);
  CHECK(t == NULL);
  CHECK_EQUAL(released_by(&s, 3), 3);
  weft_context_release(ctx);
}

/* --- What hangs ------------------------------------------------------------------------------------------------------- */

static void a_read_that_hangs_ends_next_at_the_deadline_and_no_release(void) {
  source s = new_source();
  weft_context* ctx = new_context();
  weft_loader_options options = how(2, 1);
  weft_loader* loader;
  weft_tensor* t = NULL;
  size_t n = 0;
  double began;
  s.hangs = 1;
  options.timeout_ms = 150;
  loader = loader_of(ctx, numbers(&s, 8), sampler_of(8, WEFT_ORDER_SEQUENTIAL, WEFT_TAIL_DROP, 4, 0, 1), options);
  began = now();
  FAILS(weft_loader_next(loader, &t, 1, &n), WEFT_DEADLINE_EXCEEDED,
        "weft_loader_next: reading items 0, 1, 2, 3 (epoch 0, position 0) has not ended within 150 ms");
  CHECK(now() - began > 0.149 && now() - began < 2);
  began = now();
  weft_loader_release(loader);
  weft_context_release(ctx);
  CHECK(now() - began < 1);
  CHECK_EQUAL(s.released, 0);
  pthread_mutex_lock(&s.mutex);
  s.hangs = 0;
  pthread_cond_broadcast(&s.changed);
  pthread_mutex_unlock(&s.mutex);
  CHECK_EQUAL(released(&s), 1);
}

static void* cancel_soon(void* ctx) {
  sleep_ms(50);
  weft_cancel(ctx);
  return NULL;
}
static void let_go(source* s) {
  pthread_mutex_lock(&s->mutex);
  s->hangs = 0;
  pthread_cond_broadcast(&s->changed);
  pthread_mutex_unlock(&s->mutex);
}
static void cancel_ends_the_wait_and_the_batch_comes_later(void) {
  source s = new_source();
  weft_context* ctx = new_context();
  weft_loader* loader = loader_of(ctx, numbers(&s, 8), sampler_of(8, WEFT_ORDER_SEQUENTIAL, WEFT_TAIL_DROP, 4, 0, 1), how(2, 1));
  pthread_t thread;
  weft_tensor* t = NULL;
  int32_t got[4];
  size_t n = 0;
  double began = now();
  s.hangs = 1;
  pthread_create(&thread, NULL, cancel_soon, ctx);
  FAILS_WITH(weft_loader_next(loader, &t, 1, &n), WEFT_CANCELLED, "");
  CHECK(now() - began < 1);
  pthread_join(thread, NULL);
  let_go(&s);
  CHECK_EQUAL(next_numbers(loader, got, 4), 4);
  CHECK_EQUAL(got[3], 3);
  weft_loader_release(loader);
  CHECK_EQUAL(released(&s), 1);
  weft_context_release(ctx);
}

static void* next_in_a_thread(void* loader) {
  weft_tensor* t = NULL;
  size_t n = 0;
  weft_error* error = weft_loader_next(loader, &t, 1, &n);
  weft_tensor_release(t);
  return error;
}
static void a_second_thread_is_refused(void) {
  source s = new_source();
  weft_context* ctx = new_context();
  weft_loader* loader = loader_of(ctx, numbers(&s, 8), sampler_of(8, WEFT_ORDER_SEQUENTIAL, WEFT_TAIL_DROP, 4, 0, 1), how(2, 1));
  pthread_t thread;
  weft_tensor* t = NULL;
  size_t n = 0;
  void* error = NULL;
  s.hangs = 1;
  pthread_create(&thread, NULL, next_in_a_thread, loader);
  while (s.reads == 0) sleep_ms(1);
  FAILS(weft_loader_next(loader, &t, 1, &n), WEFT_FAILED_PRECONDITION,
        "weft_loader_next: another thread is reading this loader; batches come in order, so one thread reads at a time");
  let_go(&s);
  pthread_join(thread, &error);
  CHECK(error == NULL);
  weft_loader_release(loader);
  CHECK_EQUAL(released(&s), 1);
  weft_context_release(ctx);
}

/* --- Speed and memory ------------------------------------------------------------------------------------------------- */

/* Seconds of 100 steps of 6 ms, each with the next batch of a source that takes so many ms to read it. */
static double steps_with(weft_context* ctx, double ms) {
  source s = new_source();
  weft_loader* loader = loader_of(ctx, numbers(&s, 4000), sampler_of(4000, WEFT_ORDER_RANDOM, WEFT_TAIL_DROP, 4, 0, 1), how(0, 0));
  int32_t got[4];
  double began;
  int i;
  s.ms = ms;
  next_numbers(loader, got, 4);
  began = now();
  for (i = 0; i < 100; ++i) {
    next_numbers(loader, got, 4);
    sleep_ms(6);
  }
  began = now() - began;
  weft_loader_release(loader);
  CHECK_EQUAL(released(&s), 1);
  return began;
}

/* Against reads that take no time; the best of three, because other programs share the machine. */
static void a_read_of_5_ms_hides_behind_a_step_of_6_ms(void) {
  double best = 1e9;
  int run;
  weft_blob* blob = NULL;
  weft_context* ctx = new_context();
  for (run = 0; run < 3 && best > 1.02; ++run) {
    const double without = steps_with(ctx, 0), with = steps_with(ctx, 5);
    if (with / without < best) best = with / without;
  }
  printf("steps of 6 ms with reads of 5 ms take %.3f times as long as with reads of 0 ms\n", best);
  CHECK(best < 1.15); /* 1.02 is asked for on a machine with nothing else to do; one behind the other they take 1.83 */
  MUST(weft_metrics_json(ctx, &blob));
  CHECK(strstr((const char*)weft_blob_data(blob), "\"input\": \"compute-bound: the program waited ") != NULL);
  weft_blob_release(blob);
  weft_context_release(ctx);
}

static void a_slow_source_is_called_data_bound(void) {
  source s = new_source();
  weft_blob* blob = NULL;
  weft_context* ctx = new_context();
  weft_loader* loader;
  int32_t got[4];
  int i;
  MUST(weft_metrics_json(ctx, &blob));
  CHECK(strstr((const char*)weft_blob_data(blob), "\"input\"") == NULL);
  weft_blob_release(blob);
  s.ms = 5;
  loader = loader_of(ctx, numbers(&s, 400), sampler_of(400, WEFT_ORDER_RANDOM, WEFT_TAIL_DROP, 4, 0, 1), how(1, 1));
  for (i = 0; i < 10; ++i) next_numbers(loader, got, 4);
  MUST(weft_metrics_json(ctx, &blob));
  CHECK(strstr((const char*)weft_blob_data(blob), "\"input\": \"data-bound: the program waited ") != NULL);
  CHECK(metric(ctx, "nanoseconds_loader_waits") > 30000000);
  weft_blob_release(blob);
  weft_loader_release(loader);
  CHECK_EQUAL(released(&s), 1);
  weft_context_release(ctx);
}

static int64_t resident_bytes(void) {
  long long pages = 0, resident = 0;
  FILE* f = fopen("/proc/self/statm", "r");
  if (f == NULL) return 0;
  if (fscanf(f, "%lld %lld", &pages, &resident) != 2) resident = 0;
  fclose(f);
  return resident * sysconf(_SC_PAGESIZE);
}

enum { WIDE = 4 << 20 };
static weft_error* read_wide(void* user_data, const int64_t* items, size_t item_count, weft_rows* rows, size_t fields) {
  (void)user_data, (void)item_count, (void)fields;
  memset(rows[0].data, (int)(items[0] % 100), rows[0].size);
  return NULL;
}
static void memory_is_bounded_by_depth_and_batch(void) {
  weft_context* ctx = new_context();
  weft_tensor_info field;
  weft_dataset_options options = WEFT_DATASET_OPTIONS_INIT;
  weft_dataset* dataset = NULL;
  weft_loader* loader;
  int64_t before, most = 0, i;
  memset(&field, 0, sizeof field);
  field.dtype = WEFT_U8;
  field.rank = 1;
  field.dims[0] = WIDE / 4;
  options.count = 1000;
  options.fields = &field;
  options.field_count = 1;
  options.read = read_wide;
  MUST(weft_dataset_create(&options, &dataset));
  loader = loader_of(ctx, dataset, sampler_of(1000, WEFT_ORDER_SEQUENTIAL, WEFT_TAIL_DROP, 4, 0, 1), how(3, 2));
  before = resident_bytes();
  for (i = 0; i < 60; ++i) {
    weft_tensor* t = NULL;
    size_t n = 0;
    MUST(weft_loader_next(loader, &t, 1, &n));
    weft_tensor_release(t);
    if (resident_bytes() > most) most = resident_bytes();
  }
  printf("60 batches of 4 MiB, depth 3: %.1f MiB more\n", (double)(most - before) / (1 << 20));
  CHECK(most - before < (3 + 2) * (int64_t)WIDE + (6 << 20));
  weft_loader_release(loader);
  weft_context_release(ctx);
}

int main(void) {
  batches_come_in_order_whichever_thread_was_faster();
  a_padded_tail_has_a_mask();
  a_state_goes_on_bit_equal_with_any_number_of_ranks();
  an_error_names_the_item_and_the_batch_can_be_read_again();
  sizes_that_do_not_fit_are_errors();
  a_read_that_hangs_ends_next_at_the_deadline_and_no_release();
  cancel_ends_the_wait_and_the_batch_comes_later();
  a_second_thread_is_refused();
  a_read_of_5_ms_hides_behind_a_step_of_6_ms();
  a_slow_source_is_called_data_bound();
  memory_is_bounded_by_depth_and_batch();
  return done("loader");
}
