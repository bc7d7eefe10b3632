/* Answers requests of many threads with one model: requests wait in a bounded queue, the server takes as many as are there, and fills
 * the batch up to the next of a few sizes, for each of which a program was compiled before the first request came.
 *
 *   cc inference_server.c $(pkg-config --cflags --libs weft) -Wl,-rpath,$(pkg-config --variable=libdir weft) -lpthread -o inference_server
 *   ./inference_server --clients 8 --requests 2000 */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "weft.h"
#include "weft_fluent.h"

enum { INPUT = 64, WIDTH = 256, CLASSES = 10, SIZES = 4, LARGEST = 64, QUEUE = 128 };
static const int64_t BATCH[SIZES] = {1, 4, 16, LARGEST};

/* Belongs to its client until it is in the queue, and again once it is done. */
typedef struct {
  float input[INPUT], answer[CLASSES];
  int done;
} request;

typedef struct {
  pthread_mutex_t lock;
  pthread_cond_t more, room, answered; /* the queue has some; has room; requests are done */
  request* waiting[QUEUE];
  int first, count, closed;
} queue;

typedef struct {
  weft_context* ctx;
  weft_function* model[SIZES];
  queue q;
  int64_t batches, padding;
} server;

typedef struct {
  server* s;
  int64_t requests;
  double* latency; /* of each request, in seconds */
  unsigned seed;
} client;

static void must(weft_error* error) {
  if (error == NULL) return;
  fprintf(stderr, "inference_server: %s\n", weft_error_message(error, NULL));
  exit(1); /* a server that stays would answer the batch with the error */
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* x [n, INPUT] -> probabilities [n, CLASSES]. The weights, `data`, become captures: they are part of the function. */
static weft_error* network(void* data, weft_context* body, weft_tensor* const* in, size_t count, weft_tensor** out, size_t capacity,
                           size_t* out_count) {
  weft_tensor* const* w = data;
  wf_scope* s = wf_begin(body);
  weft_tensor* h = wf_relu(s, wf_matmul(s, in[0], w[0]));
  (void)count, (void)capacity;
  h = wf_relu(s, wf_matmul(s, h, w[1]));
  out[0] = wf_keep(s, wf_softmax(s, wf_matmul(s, h, w[2])));
  *out_count = 1;
  return wf_end(s);
}

/* weft_function_load and weft_checkpoint_load would give a model that was trained; here the weights are random. */
static void make_model(server* s) {
  weft_tensor* w[3];
  wf_scope* scope = wf_begin(s->ctx);
  int i;
  must(weft_random_seed(s->ctx, 1));
  w[0] = wf_keep(scope, wf_normal(scope, WF_INTS(INPUT, WIDTH), .deviation = 0.18));
  w[1] = wf_keep(scope, wf_normal(scope, WF_INTS(WIDTH, WIDTH), .deviation = 0.09));
  w[2] = wf_keep(scope, wf_normal(scope, WF_INTS(WIDTH, CLASSES), .deviation = 0.2));
  must(wf_end(scope));
  must(weft_sync(s->ctx, NULL, NULL)); /* computes the weights now rather than with the first request */
  for (i = 0; i < SIZES; ++i) {
    const weft_tensor_info type = {WEFT_F32, 2, {BATCH[i], INPUT}};
    must(weft_function_trace(s->ctx, "network", WEFT_STRLEN, &type, 1, network, w, 1, &s->model[i]));
    must(weft_function_compile(s->ctx, s->model[i], NULL, NULL, 0, NULL, 0, NULL));
  }
  for (i = 0; i < 3; ++i) weft_tensor_release(w[i]);
}

/* What a batch of n, filled up with zeros, is answered. */
static void run_batch(server* s, int n, float input[][INPUT], float answer[][CLASSES]) {
  int64_t dims[2] = {0, INPUT};
  weft_tensor *x = NULL, *y = NULL;
  size_t count = 0;
  int size = 0;
  while (BATCH[size] < n) ++size;
  dims[0] = BATCH[size];
  memset(input[n], 0, (size_t)(dims[0] - n) * sizeof *input);
  must(weft_tensor_from_host(s->ctx, NULL, WEFT_F32, dims, 2, input, (size_t)dims[0] * sizeof *input, &x));
  must(weft_function_run(s->ctx, s->model[size], &x, 1, NULL, 0, &y, 1, &count));
  must(weft_tensor_to_host(y, answer, (size_t)dims[0] * sizeof *answer));
  weft_tensor_release(x);
  weft_tensor_release(y);
  s->padding += dims[0] - n;
  ++s->batches;
}

static void* serve(void* data) {
  server* s = data;
  queue* q = &s->q;
  static float input[LARGEST + 1][INPUT], answer[LARGEST][CLASSES];
  request* batch[LARGEST];
  for (;;) {
    int n = 0, i;
    pthread_mutex_lock(&q->lock);
    while (q->count == 0 && !q->closed) pthread_cond_wait(&q->more, &q->lock);
    for (; q->count > 0 && n < LARGEST; ++n, --q->count) {
      batch[n] = q->waiting[q->first];
      q->first = (q->first + 1) % QUEUE;
    }
    pthread_cond_broadcast(&q->room);
    pthread_mutex_unlock(&q->lock);
    if (n == 0) return NULL; /* closed, and everybody has an answer */
    for (i = 0; i < n; ++i) memcpy(input[i], batch[i]->input, sizeof input[i]);
    run_batch(s, n, input, answer);
    pthread_mutex_lock(&q->lock);
    for (i = 0; i < n; ++i) {
      memcpy(batch[i]->answer, answer[i], sizeof answer[i]);
      batch[i]->done = 1;
    }
    pthread_cond_broadcast(&q->answered);
    pthread_mutex_unlock(&q->lock);
  }
}

static void ask(queue* q, request* r) {
  r->done = 0;
  pthread_mutex_lock(&q->lock);
  while (q->count == QUEUE) pthread_cond_wait(&q->room, &q->lock);
  q->waiting[(q->first + q->count++) % QUEUE] = r;
  pthread_cond_signal(&q->more);
  while (!r->done) pthread_cond_wait(&q->answered, &q->lock);
  pthread_mutex_unlock(&q->lock);
}

static void* send_requests(void* data) {
  client* c = data;
  int64_t i;
  for (i = 0; i < c->requests; ++i) {
    const double start = now();
    double sum = 0;
    request r;
    int k;
    for (k = 0; k < INPUT; ++k) r.input[k] = (float)((c->seed = c->seed * 1664525u + 1013904223u) >> 8) / (1 << 23) - 1;
    ask(&c->s->q, &r);
    c->latency[i] = now() - start;
    for (k = 0; k < CLASSES; ++k) sum += r.answer[k];
    if (!(sum > 0.999 && sum < 1.001)) {
      fprintf(stderr, "inference_server: probabilities sum up to %g\n", sum);
      exit(1);
    }
  }
  return NULL;
}

static int64_t compiled(weft_context* ctx) {
  int64_t value = 0;
  must(weft_metric_get(ctx, "programs_compiled", WEFT_STRLEN, &value));
  return value;
}

static int by_size(const void* a, const void* b) { return (*(const double*)a > *(const double*)b) - (*(const double*)a < *(const double*)b); }

int main(int argc, char** argv) {
  static const char USAGE[] = "usage: inference_server [--clients N] [--requests N]\n\n  --clients N   threads that ask (8)\n  --requests N  of each (1000)\n";
  static server s;
  long clients = 8, requests = 1000, i;
  int64_t before;
  pthread_t loop, *threads;
  client* all;
  double *latency, start;
  int a;
  for (a = 1; a < argc; ++a) {
    char* end = NULL;
    const int more = a + 1 < argc;
    if (strcmp(argv[a], "--clients") == 0 && more && (clients = strtol(argv[++a], &end, 10)) > 0 && clients <= 1000 && *end == 0) continue;
    if (strcmp(argv[a], "--requests") == 0 && more && (requests = strtol(argv[++a], &end, 10)) > 0 && requests <= 1000000 && *end == 0) continue;
    fputs(USAGE, strcmp(argv[a], "--help") == 0 ? stdout : stderr);
    return strcmp(argv[a], "--help") == 0 ? 0 : 2;
  }
  threads = malloc((size_t)clients * sizeof *threads);
  all = malloc((size_t)clients * sizeof *all);
  latency = malloc((size_t)(clients * requests) * sizeof *latency);
  if (threads == NULL || all == NULL || latency == NULL) return 1;
  pthread_mutex_init(&s.q.lock, NULL);
  pthread_cond_init(&s.q.more, NULL);
  pthread_cond_init(&s.q.room, NULL);
  pthread_cond_init(&s.q.answered, NULL);
  must(weft_context_create(NULL, &s.ctx));
  make_model(&s);
  before = compiled(s.ctx);
  start = now();
  if (pthread_create(&loop, NULL, serve, &s) != 0) return 1;
  for (i = 0; i < clients; ++i) {
    all[i].s = &s, all[i].requests = requests, all[i].latency = latency + i * requests, all[i].seed = (unsigned)i + 1;
    if (pthread_create(&threads[i], NULL, send_requests, &all[i]) != 0) return 1;
  }
  for (i = 0; i < clients; ++i) pthread_join(threads[i], NULL);
  pthread_mutex_lock(&s.q.lock); /* nobody asks any more: the server answers what is left and ends */
  s.q.closed = 1;
  pthread_cond_signal(&s.q.more);
  pthread_mutex_unlock(&s.q.lock);
  pthread_join(loop, NULL);
  start = now() - start;
  qsort(latency, (size_t)(clients * requests), sizeof *latency, by_size);
  printf("%ld requests in %.2f s, %" PRId64 " batches, %" PRId64 " rows of padding\n", clients * requests, start, s.batches, s.padding);
  printf("latency: median %.0f us, 99%% within %.0f us, at most %.0f us\n", latency[clients * requests / 2] * 1e6,
         latency[clients * requests * 99 / 100] * 1e6, latency[clients * requests - 1] * 1e6);
  printf("compiled while serving: %" PRId64 "\n", compiled(s.ctx) - before);
  for (i = 0; i < SIZES; ++i) weft_function_release(s.model[i]);
  weft_context_release(s.ctx);
  free(threads);
  free(all);
  free(latency);
  return 0;
}
