/* A training loop that weft_cancel ends, by hand: no call after the one that was ended hears of it, every tensor can be read,
 * what was assigned together stays together, also where a parameter had never been computed, and training goes on. */
#define _GNU_SOURCE
#include <pthread.h>
#include <unistd.h>

#include "check.h"

enum { kWaves = 6 };
static const double kStep = 0x1p-12; /* exact in f32, as are sums of it below 2^12 */

typedef enum { SYNC, SYNC_AND_WAIT, READ, READ_AND_SYNC, EVAL, STYLES } style;
static const char* const kStyles[] = {"sync", "sync, wait", "read", "read, sync", "eval"};
/* The call that comes first after the end. */
typedef enum { A_READ, A_BARRIER, A_STEP, NEXTS } next;
static const char* const kNexts[] = {"a read", "a barrier", "a step"};

typedef struct {
  weft_context* ctx;
  int64_t n;
  style how;
  int steps;
  weft_tensor *x, *p, *count, *seldom; /* `seldom` is assigned in every other step */
  weft_error* error;
} loop;

/* One step: a loss of products of the parameter, which grows by kStep; the counters grow by 1. */
static weft_error* step(loop* l) {
  wf_scope* const s = wf_begin(l->ctx);
  weft_tensor *y = l->x, *loss, *p, *count;
  weft_error* error;
  weft_event* event = NULL;
  double value;
  int i;
  for (i = 0; i < kWaves; ++i) y = wf_tanh(s, wf_matmul(s, y, l->p));
  loss = wf_mean(s, y);
  p = wf_keep(s, wf_add(s, wf_add(s, l->p, wf_mul(s, loss, wf_scalar(s, WEFT_F32, 0))), wf_scalar(s, WEFT_F32, kStep)));
  count = wf_keep(s, wf_add(s, l->count, wf_scalar(s, WEFT_F32, 1)));
  loss = wf_keep(s, loss);
  error = wf_end(s);
  if (error == NULL) error = weft_tensor_assign(l->p, p);
  if (error == NULL) error = weft_tensor_assign(l->count, count);
  if (error == NULL && l->steps++ % 2 == 1) error = weft_tensor_assign(l->seldom, count);
  weft_tensor_release(p), weft_tensor_release(count);
  if (error == NULL && (l->how == READ || l->how == READ_AND_SYNC)) error = weft_tensor_item_f64(loss, &value);
  if (error == NULL && l->how == EVAL) error = weft_eval(l->ctx, &loss, 1, &event);
  if (error == NULL && l->how != READ && l->how != EVAL) error = weft_sync(l->ctx, NULL, l->how == SYNC_AND_WAIT ? &event : NULL);
  if (error == NULL && event != NULL) error = weft_event_wait(event, -1);
  weft_event_release(event);
  weft_tensor_release(loss);
  return error;
}

static void* train(void* data) {
  loop* const l = data;
  while (l->error == NULL) l->error = step(l);
  return NULL;
}

/* Neither the parameter nor the counters are computed before the first launch. */
static loop begin(const char* platform, int64_t n, style how) {
  loop l = {.ctx = context_on(platform, WEFT_MODE_LAZY), .n = n, .how = how};
  wf_scope* const s = wf_begin(l.ctx);
  l.x = wf_keep(s, wf_full(s, WF_INTS(n, n), 0.25, .dtype = WEFT_F32));
  l.p = wf_keep(s, wf_mul(s, wf_iota(s, WF_INTS(n, n), 0, .dtype = WEFT_F32), wf_scalar(s, WEFT_F32, kStep)));
  l.count = wf_keep(s, wf_scalar(s, WEFT_F32, 0));
  l.seldom = wf_keep(s, wf_scalar(s, WEFT_F32, 0));
  MUST(wf_end(s));
  return l;
}

/* The parameter and the counters are those of one number of steps, which is returned. */
static double is_whole(loop* l, const char* what) {
  const size_t bytes = (size_t)(l->n * l->n) * sizeof(float);
  float* const p = malloc(bytes);
  double count = -1, seldom = -1;
  int64_t i, wrong = 0;
  if (!OK(weft_tensor_to_host(l->p, p, bytes)) || !OK(weft_tensor_item_f64(l->count, &count)) ||
      !OK(weft_tensor_item_f64(l->seldom, &seldom))) {
    printf("  %s\n", what);
    free(p);
    return -1;
  }
  for (i = 0; i < l->n * l->n; ++i) wrong += p[i] != (float)(kStep * ((double)(i / l->n) + count));
  if (wrong > 0 || count < 0 || count != floor(count) || (seldom != count && seldom != count - 1)) {
    printf("%s: count %g, seldom %g, p[0] is %g steps, %lld elements are wrong\n", what, count, seldom, p[0] / kStep, (long long)wrong);
    ++g_failures;
  }
  free(p);
  return count;
}

static double is_cut(const char* platform, int64_t n, style how, next first, int64_t microseconds) {
  loop l = begin(platform, n, how);
  pthread_t thread;
  double before = -1, after;
  char what[128];
  int i;
  snprintf(what, sizeof what, "%s of %lld on %s, ended after %lld us, then %s", kStyles[how], (long long)n, platform, (long long)microseconds, kNexts[first]);
  CHECK(pthread_create(&thread, NULL, train, &l) == 0);
  usleep((unsigned)microseconds);
  weft_cancel(l.ctx);
  CHECK(pthread_join(thread, NULL) == 0);
  FAILS_WITH(l.error, WEFT_CANCELLED, "cancelled by weft_cancel");
  if (first == A_READ) before = is_whole(&l, what);
  if (first == A_BARRIER && !OK(weft_sync(l.ctx, NULL, NULL))) printf("  %s\n", what);
  if (first == A_BARRIER) before = is_whole(&l, what);
  for (i = 0; i < 4; ++i) {
    if (!OK(step(&l))) printf("  %s, step %d\n", what, i);
  }
  if (first == A_STEP && !OK(weft_sync(l.ctx, NULL, NULL))) printf("  %s\n", what);
  after = is_whole(&l, what);
  if (before >= 0 ? after != before + 4 : after < 4) {
    printf("%s: %g steps, and then %g\n", what, before, after);
    ++g_failures;
  }
  weft_tensor_release(l.x), weft_tensor_release(l.p), weft_tensor_release(l.count), weft_tensor_release(l.seldom);
  weft_context_release(l.ctx);
  return after;
}

int main(void) {
  alarm(300);
  /* In the first launch, in an early one, and with many launches under way. */
  static const int64_t kMoments[] = {1000, 20000, 150000};
  double most = 0;
  int how, first;
  for (how = 0; how < STYLES; ++how) {
    for (first = 0; first < NEXTS; ++first) {
      const double steps = is_cut("cpu", 192, (style)how, (next)first, kMoments[(how + first) % 3]);
      most = steps > most ? steps : most;
      (void)is_cut("cpu", 1024, (style)how, (next)first, 60000);
      (void)is_cut("reference", 48, (style)how, (next)first, 30000);
    }
  }
  CHECK(most > 4); /* some got somewhere */
  return done("after_cancel");
}
