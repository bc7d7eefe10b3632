/* A training step that comes again and again: it is replayed, and costs few allocations, which are counted by an allocator in
 * the place of the process's. Where that one fails, from any allocation on, no step is lost and none is made twice. */
#define _GNU_SOURCE
#include <errno.h>

#include "check.h"

#if !defined(HAS_AN_ALLOCATOR_OF_ITS_OWN) && defined(__GLIBC__)
#define COUNTS 1
static __thread long g_count, g_left = -1; /* of this thread: allocations, and how many more succeed; -1: all */
static __thread int g_hit;
void* __libc_malloc(size_t);
void* malloc(size_t size) {
  ++g_count;
  if (g_left == 0) {
    g_hit = 1;
    errno = ENOMEM;
    return NULL;
  }
  if (g_left > 0) --g_left;
  return __libc_malloc(size);
}
#else
#define COUNTS 0
static long g_count;
#endif

enum { PARAMETERS = 4, CALLS = 7 };

typedef struct Net {
  weft_context* ctx;
  weft_tensor *p[PARAMETERS], *x, *y;
  weft_optimizer* opt;
  int stepped; /* the latest step was recorded */
} Net;

static void make(Net* net) {
  static const int64_t shapes[PARAMETERS][2] = {{8, 16}, {16, 0}, {16, 4}, {4, 0}};
  static const weft_setting settings[] = {{"threads", WEFT_STRLEN, "1", WEFT_STRLEN}, {"cache_mode", WEFT_STRLEN, "off", WEFT_STRLEN}};
  weft_context_options options = WEFT_CONTEXT_OPTIONS_INIT;
  static const int64_t labels[5] = {0, 1, 2, 3, 0};
  wf_scope* s;
  int i;
  options.settings = settings;
  options.setting_count = 2;
  MUST(weft_context_create(&options, &net->ctx));
  s = wf_begin(net->ctx);
  for (i = 0; i < PARAMETERS; ++i) net->p[i] = wf_keep(s, wf_normal(s, shapes[i], shapes[i][1] ? 2 : 1));
  net->x = wf_keep(s, wf_normal(s, WF_INTS(5, 8)));
  net->y = wf_keep(s, wf_from_host(s, WEFT_I64, WF_INTS(5), labels, sizeof labels));
  MUST(wf_end(s));
  MUST(weft_sync(net->ctx, NULL, NULL));
  for (i = 0; i < PARAMETERS; ++i) MUST(weft_tensor_require_grad(net->p[i], 1));
  MUST(weft_adam_create(net->ctx, net->p, PARAMETERS, NULL, &net->opt));
  MUST(weft_sync(net->ctx, NULL, NULL));
}

static void end(Net* net) {
  int i;
  for (i = 0; i < PARAMETERS; ++i) weft_tensor_release(net->p[i]);
  weft_tensor_release(net->x);
  weft_tensor_release(net->y);
  weft_optimizer_release(net->opt);
  weft_context_release(net->ctx);
}

/* CALLS operations, a gradient and an update. */
static weft_error* record(Net* net) {
  weft_tensor *h, *grads[PARAMETERS] = {NULL};
  wf_scope* s = wf_begin(net->ctx);
  h = wf_relu(s, wf_add(s, wf_matmul(s, net->x, net->p[0]), net->p[1]));
  h = wf_mul_n(s, wf_add(s, wf_matmul(s, h, net->p[2]), net->p[3]), 0.5);
  wf_grad(s, wf_cross_entropy(s, h, net->y), net->p, PARAMETERS, grads);
  net->stepped = wf_try(s, weft_optimizer_step(net->opt, grads, PARAMETERS, 0.01));
  return wf_end(s);
}

static double read(Net* net) {
  float values[8 * 16];
  double sum = 0;
  int i;
  MUST(weft_tensor_to_host(net->p[0], values, sizeof values));
  for (i = 0; i < 8 * 16; ++i) sum += values[i];
  return sum;
}

static void counts(Net* net) {
  int64_t replayed, nodes, operations;
  long before, recorded;
  int i;
  for (i = 0; i < 4; ++i) {
    MUST(record(net));
    MUST(weft_sync(net->ctx, NULL, NULL));
  }
  replayed = metric(net->ctx, "steps_replayed");
  nodes = metric(net->ctx, "nodes_recorded");
  operations = metric(net->ctx, "operations_recorded");
  before = g_count;
  MUST(record(net));
  recorded = g_count - before;
  MUST(weft_sync(net->ctx, NULL, NULL));
  nodes = metric(net->ctx, "nodes_recorded") - nodes;
  CHECK_EQUAL(metric(net->ctx, "steps_replayed") - replayed, 1);
  CHECK_EQUAL(metric(net->ctx, "operations_recorded") - operations, CALLS);
  CHECK(nodes > 100);
  printf("%ld allocations for a step of %d operations, which are %lld nodes; with its barrier %ld\n", recorded, CALLS,
         (long long)nodes, g_count - before);
  if (COUNTS) CHECK(recorded < nodes / 2);
}

#if COUNTS
static void both(Net* net, Net* other) {
  MUST(record(net));
  MUST(weft_sync(net->ctx, NULL, NULL));
  MUST(record(other));
  MUST(weft_sync(other->ctx, NULL, NULL));
}

/* All allocations from the n-th on fail, those of a step as before and of one that goes on differently. What was not recorded is
 * asked for again, what was is asked for no more: the two nets see the same steps. */
static void runs_out(Net* net, Net* other) {
  int hit = 1, longer, i;
  long n;
  for (longer = 0; longer < 2; ++longer) {
    for (n = 0, hit = 1; hit; ++n) {
      weft_error* error;
      CHECK(n < 100000);
      for (i = 0; i < 2; ++i) both(net, other); /* steady again */
      g_hit = 0;
      g_left = n;
      error = record(net);
      if (error == NULL && longer) {
        weft_tensor* t = NULL;
        error = weft_neg(net->ctx, net->p[1], &t);
        weft_tensor_release(t);
      }
      if (error == NULL) error = weft_sync(net->ctx, NULL, NULL);
      g_left = -1;
      hit = g_hit;
      if (error != NULL) CHECK_EQUAL(weft_error_code(error), WEFT_RESOURCE_EXHAUSTED);
      weft_error_release(error);
      if (!net->stepped) MUST(record(net));
      MUST(weft_sync(net->ctx, NULL, NULL));
      MUST(record(other));
      MUST(weft_sync(other->ctx, NULL, NULL));
      if (read(net) != read(other)) {
        printf("allocation %ld%s: the steps differ\n", n, longer ? " of a longer step" : "");
        ++g_failures;
        return;
      }
    }
    printf("%ld allocations failed%s\n", n, longer ? ", and of a longer step" : "");
  }
  CHECK(metric(net->ctx, "steps_replayed") > 10);
}
#endif

int main(void) {
  Net net, other;
  make(&net);
  make(&other);
  CHECK(read(&net) == read(&other));
  counts(&net);
  counts(&other);
#if COUNTS
  runs_out(&net, &other);
#endif
  CHECK(read(&net) == read(&other));
  end(&net);
  end(&other);
  return done("steady");
}
