/* weft_cancel and loops: they end at their next run; what needs one that may not end says so, what was assigned shows its value
 * from before, and the context goes on. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "check.h"

static const weft_tensor_info kScalar = {.dtype = WEFT_F32, .rank = 0};
static const int64_t kLong = 60000000000; /* ns; nothing takes so long */

#define LOST "a launch that was running was cancelled by weft_cancel: what it was to compute has no value"

static double item(weft_tensor* tensor) {
  double value = -12345;
  OK(weft_tensor_item_f64(tensor, &value));
  return value;
}

static weft_error* trace_finite(void* data, weft_context* body, weft_tensor* const* p, size_t count, weft_tensor** results,
                                size_t capacity, size_t* out_count) {
  (void)data, (void)count, (void)capacity;
  *out_count = 1;
  return weft_is_finite(body, p[0], results);
}
/* Stays finite for ever. */
static weft_error* trace_half(void* data, weft_context* body, weft_tensor* const* p, size_t count, weft_tensor** results,
                              size_t capacity, size_t* out_count) {
  wf_scope* const s = wf_begin(body);
  (void)data, (void)count, (void)capacity;
  results[0] = wf_keep(s, wf_mul(s, p[0], wf_scalar(s, WEFT_F32, 0.5)));
  *out_count = 1;
  return wf_end(s);
}
static weft_error* trace_one_more(void* data, weft_context* body, weft_tensor* const* p, size_t count, weft_tensor** results,
                                  size_t capacity, size_t* out_count) {
  wf_scope* const s = wf_begin(body);
  (void)data, (void)count, (void)capacity;
  results[0] = wf_keep(s, wf_add(s, p[0], wf_scalar(s, WEFT_F32, 1)));
  *out_count = 1;
  return wf_end(s);
}

static weft_tensor* endless(weft_context* ctx) {
  weft_tensor *x = scalar(ctx, 1), *y = NULL;
  weft_function *finite = NULL, *half = NULL;
  MUST(weft_function_trace(ctx, "finite", WEFT_STRLEN, &kScalar, 1, trace_finite, NULL, 1, &finite));
  MUST(weft_function_trace(ctx, "half", WEFT_STRLEN, &kScalar, 1, trace_half, NULL, 1, &half));
  MUST(weft_while(ctx, finite, half, &x, 1, &y));
  weft_function_release(finite);
  weft_function_release(half);
  weft_tensor_release(x);
  return y;
}

/* i < n, and both grow: nothing that all runs have in common bounds it. */
static weft_error* trace_less(void* data, weft_context* body, weft_tensor* const* p, size_t count, weft_tensor** results,
                              size_t capacity, size_t* out_count) {
  (void)data, (void)count, (void)capacity;
  *out_count = 1;
  return weft_lt(body, p[0], p[1], results);
}
static weft_error* trace_both(void* data, weft_context* body, weft_tensor* const* p, size_t count, weft_tensor** results,
                              size_t capacity, size_t* out_count) {
  weft_tensor* one = NULL;
  weft_error* error = weft_tensor_from_i64(body, WEFT_I64, 1, &one);
  (void)data, (void)count, (void)capacity;
  if (error == NULL) error = weft_add(body, p[0], one, &results[0]);
  if (error == NULL) error = weft_add(body, p[1], one, &results[1]);
  weft_tensor_release(one);
  *out_count = error == NULL ? 2 : 0;
  return error;
}
static weft_tensor* chase(weft_context* ctx) {
  const weft_tensor_info types[2] = {{.dtype = WEFT_I64, .rank = 0}, {.dtype = WEFT_I64, .rank = 0}};
  weft_tensor *first[2], *out[2];
  weft_function *less = NULL, *both = NULL;
  MUST(weft_tensor_from_i64(ctx, WEFT_I64, 0, &first[0]));
  MUST(weft_tensor_from_i64(ctx, WEFT_I64, 5, &first[1]));
  MUST(weft_function_trace(ctx, "less", WEFT_STRLEN, types, 2, trace_less, NULL, 1, &less));
  MUST(weft_function_trace(ctx, "both", WEFT_STRLEN, types, 2, trace_both, NULL, 2, &both));
  MUST(weft_while(ctx, less, both, first, 2, out));
  weft_function_release(less);
  weft_function_release(both);
  weft_tensor_release(first[0]);
  weft_tensor_release(first[1]);
  weft_tensor_release(out[1]);
  return out[0];
}

/* i < 255 by steps of 2, of 8 bits: behind 254 comes 0. */
static weft_error* trace_below_255(void* data, weft_context* body, weft_tensor* const* p, size_t count, weft_tensor** results,
                                   size_t capacity, size_t* out_count) {
  weft_tensor* bound = NULL;
  weft_error* error = weft_tensor_from_i64(body, WEFT_U8, 255, &bound);
  (void)data, (void)count, (void)capacity;
  if (error == NULL) error = weft_lt(body, p[0], bound, results);
  weft_tensor_release(bound);
  *out_count = error == NULL;
  return error;
}
static weft_error* trace_two_more(void* data, weft_context* body, weft_tensor* const* p, size_t count, weft_tensor** results,
                                  size_t capacity, size_t* out_count) {
  weft_tensor* two = NULL;
  weft_error* error = weft_tensor_from_i64(body, WEFT_U8, 2, &two);
  (void)data, (void)count, (void)capacity;
  if (error == NULL) error = weft_add(body, p[0], two, results);
  weft_tensor_release(two);
  *out_count = error == NULL;
  return error;
}
static weft_tensor* leap(weft_context* ctx) {
  const weft_tensor_info type = {.dtype = WEFT_U8, .rank = 0};
  weft_tensor *first = NULL, *out = NULL;
  weft_function *below = NULL, *more = NULL;
  MUST(weft_tensor_from_i64(ctx, WEFT_U8, 0, &first));
  MUST(weft_function_trace(ctx, "below", WEFT_STRLEN, &type, 1, trace_below_255, NULL, 1, &below));
  MUST(weft_function_trace(ctx, "two_more", WEFT_STRLEN, &type, 1, trace_two_more, NULL, 1, &more));
  MUST(weft_while(ctx, below, more, &first, 1, &out));
  weft_function_release(below);
  weft_function_release(more);
  weft_tensor_release(first);
  return out;
}

static void is_cancelled(weft_error* error, int line) {
  if (error == NULL || weft_error_code(error) != WEFT_CANCELLED || strstr(weft_error_message(error, NULL), "cancelled by weft_cancel") == NULL) {
    printf("%s:%d: not cancelled: %s\n", __FILE__, line, error != NULL ? weft_error_message(error, NULL) : "no error");
    ++g_failures;
  }
  weft_error_release(error);
}
#define CANCELLED(call) is_cancelled((call), __LINE__)

static void a_barrier_with_an_endless_loop(void) {
  const float two[] = {2, 2};
  weft_context* const ctx = context_on("cpu", WEFT_MODE_LAZY);
  weft_tensor *y = endless(ctx), *p = f32(ctx, DIMS(2), two), *next = NULL, *after = NULL, *before = scalar(ctx, 4), *fresh = f32(ctx, DIMS(2), two);
  weft_event* event = NULL;
  float host[2] = {0, 0};
  OK(weft_mul(ctx, p, p, &next));
  OK(weft_tensor_assign(p, next));
  weft_tensor_release(next);
  OK(weft_sync(ctx, NULL, &event));
  FAILS(weft_event_wait(event, 20000000), WEFT_DEADLINE_EXCEEDED, "weft_event_wait: the event was not done after 20000000 ns");
  OK(weft_add(ctx, y, before, &after)); /* recording goes on meanwhile */
  weft_cancel(ctx);
  CANCELLED(weft_event_wait(event, kLong));
  FAILS(weft_event_wait(event, kLong), WEFT_CANCELLED, "weft_event_wait: " LOST);
  weft_event_release(event);
  /* What that launch was to compute says so, and what is made of it; what was assigned is as it was. */
  FAILS(weft_tensor_to_host(y, host, 4), WEFT_CANCELLED, "weft_tensor_to_host: " LOST);
  OK(weft_tensor_to_host(p, host, 8));
  CHECK(host[0] == 2 && host[1] == 2);
  FAILS(weft_eval(ctx, &after, 1, NULL), WEFT_CANCELLED, "weft_eval: " LOST);
  CHECK(item(before) == 4);
  weft_tensor_release(after);
  weft_tensor_release(y);
  /* The context goes on. */
  OK(weft_tensor_assign(p, fresh));
  OK(weft_mul(ctx, p, fresh, &next));
  OK(weft_sync(ctx, NULL, NULL));
  OK(weft_tensor_to_host(next, host, sizeof host));
  CHECK(host[0] == 4 && host[1] == 4);
  weft_tensor_release(next);
  weft_tensor_release(p);
  weft_tensor_release(fresh);
  weft_tensor_release(before);
  weft_context_release(ctx);
}

typedef struct {
  weft_tensor* tensor;
  size_t size;
  weft_error* error;
  atomic_int over;
} reader;
static void* read_it(void* data) {
  reader* const r = data;
  int64_t host = 0;
  r->error = weft_tensor_to_host(r->tensor, &host, r->size);
  atomic_store(&r->over, 1);
  return NULL;
}

static const struct {
  weft_tensor* (*make)(weft_context* ctx);
  size_t size;
} kLoops[] = {{endless, 4}, {chase, 8}, {leap, 1}};

static void a_read_of_an_endless_loop(const char* name, int loop) {
  weft_context* const ctx = context_on(name, WEFT_MODE_LAZY);
  reader r = {kLoops[loop].make(ctx), kLoops[loop].size, NULL, 0};
  weft_tensor *x = scalar(ctx, 3), *y = NULL;
  pthread_t thread;
  int64_t host = 0;
  int i;
  MUST(weft_compile(ctx, NULL, &r.tensor, 1, NULL));
  CHECK(pthread_create(&thread, NULL, read_it, &r) == 0);
  /* Once it runs: a request that came before would end the call and not the loop. The reference runs it in the call, and
   * counts it afterwards. */
  for (i = 0; i < (strcmp(name, "cpu") == 0 ? 500 : 30) && metric(ctx, "launches") == 0; ++i) usleep(10000);
  usleep(100000);
  CHECK_EQUAL(atomic_load(&r.over), 0);
  weft_cancel(ctx);
  CHECK(pthread_join(thread, NULL) == 0);
  CANCELLED(r.error);
  OK(weft_mul(ctx, x, x, &y));
  OK(weft_eval(ctx, &y, 1, NULL)); /* the request is spent */
  CHECK(item(y) == 9);
  FAILS(weft_tensor_to_host(r.tensor, &host, r.size), WEFT_CANCELLED, "weft_tensor_to_host: " LOST);
  OK(weft_sync(ctx, NULL, NULL));
  weft_tensor_release(r.tensor);
  weft_tensor_release(x);
  weft_tensor_release(y);
  weft_context_release(ctx);
}

/* The number of runs so far is below a count that all runs have in common. */
static weft_error* trace_below(void* data, weft_context* body, weft_tensor* const* p, size_t count, weft_tensor** results,
                               size_t capacity, size_t* out_count) {
  (void)count, (void)capacity;
  *out_count = 1;
  return weft_lt(body, p[0], data, results);
}
static weft_error* trace_count(void* data, weft_context* body, weft_tensor* const* p, size_t count, weft_tensor** results,
                               size_t capacity, size_t* out_count) {
  weft_tensor* one = NULL;
  weft_error* error = weft_tensor_from_i64(body, WEFT_I32, 1, &one);
  (void)data, (void)count, (void)capacity;
  if (error == NULL) error = weft_add(body, p[0], one, &results[0]);
  weft_tensor_release(one);
  *out_count = error == NULL;
  return error;
}
/* The index is not used. */
static weft_error* trace_indexed(void* data, weft_context* body, weft_tensor* const* p, size_t count, weft_tensor** results,
                                 size_t capacity, size_t* out_count) {
  return trace_one_more(data, body, p + 1, count, results, capacity, out_count);
}

static void ends(weft_context* ctx, weft_tensor* result) {
  reader r = {result, sizeof(float), NULL, 0};
  weft_event* event = NULL;
  pthread_t thread;
  int64_t before;
  OK(weft_sync(ctx, NULL, &event));
  weft_cancel(ctx);
  CANCELLED(weft_event_wait(event, kLong));
  FAILS(weft_event_wait(event, kLong), WEFT_CANCELLED, "weft_event_wait: " LOST);
  /* A read of the result computes it again, and ends in the same way. */
  before = metric(ctx, "launches");
  CHECK(pthread_create(&thread, NULL, read_it, &r) == 0);
  while (metric(ctx, "launches") == before && !atomic_load(&r.over)) usleep(1000);
  weft_cancel(ctx);
  CHECK(pthread_join(thread, NULL) == 0);
  CANCELLED(r.error);
  weft_event_release(event);
  weft_tensor_release(result);
}

/* What is known to end, after long: scans, loops of a run-time count, and whiles that count. */
static void counted_loops_end(const char* name, int64_t length) {
  weft_context* const ctx = context_on(name, WEFT_MODE_LAZY);
  const weft_tensor_info types[2] = {{.dtype = WEFT_I32, .rank = 0}, {.dtype = WEFT_F32, .rank = 0}};
  weft_tensor *zero = scalar(ctx, 0), *none = NULL, *n = NULL, *counted = NULL, *result = NULL;
  weft_scan_options options = WEFT_SCAN_OPTIONS_INIT;
  weft_function *one_more = NULL, *indexed = NULL, *below = NULL, *count = NULL;
  size_t made = 0;
  options.length = length;
  MUST(weft_tensor_from_i64(ctx, WEFT_I32, length, &n));
  MUST(weft_tensor_from_i64(ctx, WEFT_I32, 0, &none));
  MUST(weft_function_trace(ctx, "one_more", WEFT_STRLEN, &kScalar, 1, trace_one_more, NULL, 1, &one_more));
  MUST(weft_function_trace(ctx, "indexed", WEFT_STRLEN, types, 2, trace_indexed, NULL, 1, &indexed));
  MUST(weft_function_trace(ctx, "below", WEFT_STRLEN, types, 1, trace_below, n, 1, &below));
  MUST(weft_function_trace(ctx, "count", WEFT_STRLEN, types, 1, trace_count, NULL, 1, &count));
  OK(weft_scan(ctx, one_more, &zero, 1, NULL, 0, &options, &result, 1, &made));
  ends(ctx, result);
  options.unroll = 3;
  OK(weft_scan(ctx, one_more, &zero, 1, NULL, 0, &options, &result, 1, &made));
  ends(ctx, result);
  OK(weft_for(ctx, n, indexed, &zero, 1, NULL, &result));
  ends(ctx, result);
  OK(weft_while(ctx, below, count, &none, 1, &counted));
  OK(weft_convert(ctx, counted, WEFT_F32, &result));
  weft_tensor_release(counted);
  ends(ctx, result);
  weft_function_release(one_more);
  weft_function_release(indexed);
  weft_function_release(below);
  weft_function_release(count);
  weft_tensor_release(zero);
  weft_tensor_release(none);
  weft_tensor_release(n);
  weft_context_release(ctx);
}

int main(void) {
  alarm(300); /* a loop that nothing ends */
  a_barrier_with_an_endless_loop();
  for (int loop = 0; loop < 3; ++loop) {
    a_read_of_an_endless_loop("cpu", loop);
    a_read_of_an_endless_loop("reference", loop);
  }
  counted_loops_end("cpu", 1000000000);
  return done("cancel_loops");
}
