/* Data parallel training in several processes: an MLP and a convolutional network, whose optimizers take the mean of the gradients of all
 * processes (option `job`) and whose loaders give each process its part of the same global batches. Against one process with the whole
 * batch: losses and weights within 1e-5. The same number of processes twice: the same bits. Where each process keeps a part of the state
 * (option `shard_state`), the same, and the bytes are counted; in the middle the state goes into another optimizer, whole and by parts.
 *   job_training [STEPS]              compares; 50 steps if not said
 *   job_training KIND RANK SIZE STEPS FILE ID    one process, which writes losses and weights to a file; KIND is 1 for the convolution
 *                                                plus 2 for a state in parts plus 4 for clipped gradients: with several processes by
 *                                                weft_optimizer_step_clipped, alone by weft_clip_by_global_norm, which knows no job
 * Where a process dies, the step of the others fails with its name; where one does not come, weft_cancel ends the wait. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "folder.h"

enum { ITEMS = 96, BATCH = 16, SIDE = 8, MOST = 6, MOST_STEPS = 64, MOST_WEIGHTS = 8192 };

typedef struct {
  int64_t steps, weights;
  double loss[MOST_STEPS], norm[MOST_STEPS];
  float weight[MOST_WEIGHTS];
} outcome;

static uint32_t next_random(uint32_t* state) { return *state = *state * 1664525u + 1013904223u; }

/* Pictures of 8 x 8 whose label is the quarter with the brightest sum. */
static weft_dataset* pictures(weft_context* ctx) {
  static float images[ITEMS * SIDE * SIDE];
  static int32_t labels[ITEMS];
  weft_tensor* parts[2] = {NULL, NULL};
  weft_dataset* dataset = NULL;
  uint32_t state = 7;
  int i, p;
  for (i = 0; i < ITEMS; ++i) {
    labels[i] = (int32_t)(next_random(&state) >> 30);
    for (p = 0; p < SIDE * SIDE; ++p) {
      const int quarter = (p / SIDE >= SIDE / 2) * 2 + (p % SIDE >= SIDE / 2);
      images[i * SIDE * SIDE + p] = (float)(next_random(&state) >> 8) / 16777216.0f + (quarter == labels[i] ? 0.5f : 0.0f);
    }
  }
  MUST(weft_tensor_from_host(ctx, NULL, WEFT_F32, (int64_t[]){ITEMS, SIDE, SIDE, 1}, 4, images, sizeof images, &parts[0]));
  MUST(weft_tensor_from_host(ctx, NULL, WEFT_I32, (int64_t[]){ITEMS}, 1, labels, sizeof labels, &parts[1]));
  MUST(weft_dataset_from_tensors(parts, 2, &dataset));
  weft_tensor_release(parts[0]);
  weft_tensor_release(parts[1]);
  return dataset;
}

static weft_loader* batches(weft_context* ctx, weft_job* job, int rank, int size) {
  weft_dataset* dataset = pictures(ctx);
  weft_sampler* sampler = NULL;
  weft_loader* loader = NULL;
  weft_sampler_options options = WEFT_SAMPLER_OPTIONS_INIT;
  weft_loader_options together = WEFT_LOADER_OPTIONS_INIT;
  together.job = job;
  options.batch = BATCH / size;
  options.order = WEFT_ORDER_RANDOM;
  options.seed = 3;
  options.rank = rank;
  options.ranks = size;
  MUST(weft_sampler_create(ITEMS, &options, &sampler));
  MUST(weft_loader_create(ctx, dataset, sampler, &together, &loader));
  weft_dataset_release(dataset);
  weft_sampler_release(sampler);
  return loader;
}

typedef struct {
  int convolves, shards, clips, alone, count;
  weft_tensor* p[MOST];
} network;

static weft_tensor* logits(wf_scope* s, const network* n, weft_tensor* x) {
  weft_tensor* h;
  if (n->convolves) {
    h = wf_relu(s, wf_add(s, wf_conv(s, x, n->p[0]), n->p[1]));
    h = wf_flatten(s, wf_max_pool(s, h, WF_INTS(2, 2)), .start_axis = 1);
    return wf_add(s, wf_matmul(s, h, n->p[2]), n->p[3]);
  }
  h = wf_relu(s, wf_add(s, wf_matmul(s, wf_flatten(s, x, .start_axis = 1), n->p[0]), n->p[1]));
  h = wf_tanh(s, wf_add(s, wf_matmul(s, h, n->p[2]), n->p[3]));
  return wf_add(s, wf_matmul(s, h, n->p[4]), n->p[5]);
}

static network new_network(weft_context* ctx, int kind, int alone) {
  const int convolves = kind & 1;
  wf_scope* s = wf_begin(ctx);
  network n;
  int i;
  n.convolves = convolves;
  n.shards = kind >> 1 & 1;
  n.clips = kind >> 2 & 1;
  n.alone = alone;
  n.count = convolves ? 4 : 6;
  MUST(weft_random_seed(ctx, 5));
  if (convolves) {
    n.p[0] = wf_normal(s, WF_INTS(3, 3, 1, 8), .deviation = 0.4);
    n.p[1] = wf_full(s, WF_INTS(8), 0.0);
    n.p[2] = wf_normal(s, WF_INTS(72, 4), .deviation = 0.15);
    n.p[3] = wf_full(s, WF_INTS(4), 0.0);
  } else {
    n.p[0] = wf_normal(s, WF_INTS(64, 48), .deviation = 0.15);
    n.p[1] = wf_full(s, WF_INTS(48), 0.0);
    n.p[2] = wf_normal(s, WF_INTS(48, 24), .deviation = 0.15);
    n.p[3] = wf_full(s, WF_INTS(24), 0.0);
    n.p[4] = wf_normal(s, WF_INTS(24, 4), .deviation = 0.2);
    n.p[5] = wf_full(s, WF_INTS(4), 0.0);
  }
  for (i = 0; i < n.count; ++i) n.p[i] = wf_keep(s, n.p[i]);
  MUST(wf_end(s));
  MUST(weft_sync(ctx, NULL, NULL));
  for (i = 0; i < n.count; ++i) MUST(weft_tensor_require_grad(n.p[i], 1));
  return n;
}

static weft_optimizer* new_optimizer(weft_context* ctx, const network* n, weft_job* job) {
  weft_optimizer* opt = NULL;
  if (n->convolves) {
    weft_adam_options adam = WEFT_ADAM_OPTIONS_INIT;
    adam.job = job;
    adam.shard_state = n->shards;
    MUST(weft_adamw_create(ctx, n->p, (size_t)n->count, &adam, &opt));
  } else {
    weft_sgd_options sgd = WEFT_SGD_OPTIONS_INIT;
    sgd.momentum = 0.9;
    sgd.job = job;
    sgd.shard_state = n->shards;
    MUST(weft_sgd_create(ctx, n->p, (size_t)n->count, &sgd, &opt));
  }
  return opt;
}

/* The state of this process is a part of 1 / size of each slot, to the byte. */
static void count_state(const network* n, weft_optimizer* opt, int size) {
  const int64_t slots = n->convolves ? 2 : 1;
  weft_tree *state = NULL, *whole = NULL;
  uint64_t bytes = 0, have = 0, want = 0, all = 0;
  uint32_t node = 0, slot = 0;
  int i;
  for (i = 0; i < n->count; ++i) {
    MUST(weft_tensor_size(n->p[i], &bytes));
    all += (uint64_t)slots * bytes;
    want += (uint64_t)slots * ((bytes / sizeof(float) + (uint64_t)size - 1) / (uint64_t)size) * sizeof(float);
  }
  MUST(weft_optimizer_state(opt, &state));
  MUST(weft_optimizer_whole_state(opt, &whole));
  for (slot = 0; slot < (uint32_t)slots; ++slot) {
    for (i = 0; i < n->count; ++i) {
      char path[64];
      weft_tensor* part = NULL;
      snprintf(path, sizeof path, "slots.%s.%d", slot == 1 ? "v" : n->convolves ? "m" : "momentum", i);
      MUST(weft_tree_find(state, WEFT_TREE_ROOT, path, WEFT_STRLEN, &node));
      MUST(weft_tree_get_tensor(state, node, &part));
      MUST(weft_tensor_size(part, &bytes));
      have += bytes;
      weft_tensor_release(part);
      MUST(weft_tree_find(whole, WEFT_TREE_ROOT, path, WEFT_STRLEN, &node));
      MUST(weft_tree_get_tensor(whole, node, &part));
      MUST(weft_tensor_size(part, &bytes));
      all -= bytes;
      weft_tensor_release(part);
    }
  }
  CHECK_EQUAL(have, want);
  CHECK_EQUAL(all, 0);
  weft_tree_release(state);
  weft_tree_release(whole);
}

/* Another optimizer in the state of this one, by parts or whole; this one is released. */
static weft_optimizer* go_on(weft_context* ctx, const network* n, weft_job* job, weft_optimizer* opt, int whole) {
  weft_optimizer* next = new_optimizer(ctx, n, job);
  weft_tree* state = NULL;
  MUST(whole ? weft_optimizer_whole_state(opt, &state) : weft_optimizer_state(opt, &state));
  MUST(weft_optimizer_load(next, state, WEFT_TREE_ROOT));
  weft_tree_release(state);
  weft_optimizer_release(opt);
  return next;
}

/* Most steps of both networks are longer than this. */
static const double kMostNorm = 0.75;

/* One update; of clipped gradients with their norm. */
static weft_error* update(weft_context* ctx, network* n, weft_optimizer* opt, weft_tensor** grads, weft_tensor** norm) {
  const double rate = n->convolves ? 0.01 : 0.05;
  weft_tensor* clipped[MOST];
  weft_error* error;
  int i;
  if (!n->clips) return weft_optimizer_step(opt, grads, (size_t)n->count, rate);
  if (!n->alone) return weft_optimizer_step_clipped(opt, grads, (size_t)n->count, &rate, 1, NULL, kMostNorm, norm);
  MUST(weft_clip_by_global_norm(ctx, grads, (size_t)n->count, kMostNorm, clipped, norm));
  error = weft_optimizer_step(opt, clipped, (size_t)n->count, rate);
  for (i = 0; i < n->count; ++i) weft_tensor_release(clipped[i]);
  return error;
}

/* The mean of the loss over all processes, before the step's update. */
static double train_step(weft_context* ctx, weft_job* job, network* n, weft_optimizer* opt, weft_loader* loader, double* norm) {
  weft_tensor *batch[2] = {NULL, NULL}, *grads[MOST], *loss, *mean = NULL, *length = NULL;
  wf_scope* s;
  size_t count = 0;
  double value = 0;
  while (count == 0) MUST(weft_loader_next(loader, batch, 2, &count)); /* 0 at the end of an epoch */
  s = wf_begin(ctx);
  loss = wf_cross_entropy(s, logits(s, n, batch[0]), batch[1]);
  wf_grad(s, loss, n->p, (size_t)n->count, grads);
  wf_try(s, update(ctx, n, opt, grads, &length));
  wf_try(s, weft_job_reduce(ctx, job, &loss, 1, WEFT_JOB_MEAN, NULL, &mean));
  MUST(wf_end(s));
  MUST(weft_sync(ctx, NULL, NULL));
  MUST(weft_tensor_item_f64(mean, &value));
  weft_tensor_release(mean);
  *norm = 0;
  if (length != NULL) MUST(weft_tensor_item_f64(length, norm));
  weft_tensor_release(length);
  weft_tensor_release(batch[0]);
  weft_tensor_release(batch[1]);
  return value;
}

static int train(int kind, int rank, int size, int steps, const char* file, const char* id) {
  static outcome out;
  weft_context* ctx = new_context();
  weft_job_options options = WEFT_JOB_OPTIONS_INIT;
  weft_job* job = NULL;
  weft_loader* loader;
  network n = new_network(ctx, kind, size == 1);
  weft_optimizer* opt;
  FILE* f;
  int i;
  options.id = id;
  options.id_length = WEFT_STRLEN;
  options.rank = rank;
  options.size = size;
  options.timeout_ms = 60000;
  MUST(weft_job_join(&options, &job));
  loader = batches(ctx, job, rank, size);
  opt = new_optimizer(ctx, &n, job);
  for (i = 0; i < steps; ++i) {
    if (n.shards && (i == steps / 3 || i == steps / 2)) opt = go_on(ctx, &n, job, opt, i == steps / 2);
    out.loss[out.steps] = train_step(ctx, job, &n, opt, loader, &out.norm[out.steps]);
    ++out.steps;
  }
  if (n.shards) count_state(&n, opt, size);
  if (steps > 8) CHECK(metric(ctx, "steps_replayed") > steps / 2); /* noted like any other operation */
  for (i = 0; i < n.count; ++i) {
    uint64_t bytes = 0;
    MUST(weft_tensor_size(n.p[i], &bytes));
    MUST(weft_tensor_to_host(n.p[i], out.weight + out.weights, bytes));
    out.weights += (int64_t)(bytes / sizeof(float));
    weft_tensor_release(n.p[i]);
  }
  f = fopen(file, "wb");
  if (f == NULL || fwrite(&out, sizeof out, 1, f) != 1 || fclose(f) != 0) return 1;
  weft_optimizer_release(opt);
  weft_loader_release(loader);
  MUST(weft_job_leave(job));
  weft_job_release(job);
  weft_context_release(ctx);
  return g_failures != 0;
}

/* Starts the processes of a job and gives what rank 0 wrote; all ranks must have the same weights. */
static outcome* run_job(const char* program, int kind, int size, int steps) {
  static int jobs;
  outcome *first = malloc(sizeof *first), *other = malloc(sizeof *other);
  pid_t children[8];
  int rank;
  char id[64];
  snprintf(id, sizeof id, "training-%d-%d", (int)getpid(), jobs++);
  for (rank = 0; rank < size; ++rank) {
    children[rank] = fork();
    if (children[rank] == 0) {
      char what[8], number[3][16], file[400];
      snprintf(what, sizeof what, "%d", kind);
      snprintf(number[0], sizeof number[0], "%d", rank);
      snprintf(number[1], sizeof number[1], "%d", size);
      snprintf(number[2], sizeof number[2], "%d", steps);
      snprintf(file, sizeof file, "%s/%d", g_dir, rank);
      execl(program, program, what, number[0], number[1], number[2], file, id, (char*)NULL);
      _exit(127);
    }
  }
  for (rank = 0; rank < size; ++rank) {
    int status = 0;
    char file[400];
    FILE* f;
    CHECK(waitpid(children[rank], &status, 0) == children[rank]);
    CHECK_EQUAL(status, 0);
    snprintf(file, sizeof file, "%s/%d", g_dir, rank);
    f = fopen(file, "rb");
    if (f == NULL || fread(rank == 0 ? first : other, sizeof *first, 1, f) != 1) {
      printf("rank %d of %d wrote nothing\n", rank, size);
      exit(1);
    }
    fclose(f);
    remove(file);
    if (rank > 0) CHECK(memcmp(first, other, sizeof *first) == 0);
  }
  free(other);
  return first;
}

/* Of losses, and of norms beside them. */
static double farthest(const outcome* one, const outcome* other, double* weight) {
  double loss = 0;
  int64_t i;
  CHECK_EQUAL(one->weights, other->weights);
  for (i = 0; i < one->steps; ++i) loss = fmax(loss, fmax(fabs(one->loss[i] - other->loss[i]), fabs(one->norm[i] - other->norm[i])));
  for (i = 0, *weight = 0; i < one->weights; ++i) *weight = fmax(*weight, fabs((double)one->weight[i] - (double)other->weight[i]));
  return loss;
}

static void compare(const char* program, int convolves, int clips, int steps) {
  static const int sizes[] = {2, 4};
  outcome* alone = run_job(program, convolves + 4 * clips, 1, steps);
  size_t k;
  int shards, clipped = 0, i;
  CHECK(alone->loss[steps - 1] < alone->loss[0]);
  for (i = 0; i < steps; ++i) clipped += alone->norm[i] > kMostNorm;
  CHECK(clips ? clipped > steps / 4 : clipped == 0);
  for (k = 0; k < 4; ++k) {
    const int size = sizes[k / 2], kind = convolves + 2 * (int)(k % 2) + 4 * clips;
    outcome *together = run_job(program, kind, size, steps), *again = run_job(program, kind, size, steps);
    double weight, loss = farthest(alone, together, &weight);
    shards = kind >> 1 & 1;
    CHECK(memcmp(together, again, sizeof *together) == 0);
    printf("%s%s%s, %d processes, %d steps: losses %.4f to %.4f differ by %.1e, weights by %.1e, %d clipped\n", convolves ? "CNN" : "MLP",
           shards ? " with its state in parts" : "", clips ? ", clipped" : "", size, steps, alone->loss[0], alone->loss[steps - 1], loss, weight, clipped);
    CHECK(loss < 1e-5);
    CHECK(weight < 1e-4);
    free(together);
    free(again);
  }
  free(alone);
}

/* --- One that goes, one that does not come ---------------------------------------------------------------------------- */

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static weft_job* join(const char* id, int rank, int64_t timeout_ms) {
  weft_job_options options = WEFT_JOB_OPTIONS_INIT;
  weft_job* job = NULL;
  options.id = id;
  options.id_length = WEFT_STRLEN;
  options.rank = rank;
  options.size = 2;
  options.timeout_ms = timeout_ms;
  MUST(weft_job_join(&options, &job));
  return job;
}

/* Each rank says what it would read; that of rank 1 begins later. */
static void read_differently(weft_context* ctx, weft_job* job, int rank) {
  weft_loader* loader = batches(ctx, job, rank, 2);
  weft_tree* state = NULL;
  weft_tensor* batch[2] = {NULL, NULL};
  size_t count = 0;
  MUST(weft_loader_next(loader, batch, 2, &count));
  CHECK_EQUAL(count, 2);
  weft_tensor_release(batch[0]);
  weft_tensor_release(batch[1]);
  MUST(weft_tree_create(&state));
  MUST(weft_tree_add_i64(state, 0, "seed", WEFT_STRLEN, 3, NULL));
  MUST(weft_tree_add_i64(state, 0, "epoch", WEFT_STRLEN, 2, NULL));
  MUST(weft_tree_add_i64(state, 0, "position", WEFT_STRLEN, rank * BATCH, NULL));
  MUST(weft_tree_add_i64(state, 0, "items", WEFT_STRLEN, ITEMS, NULL));
  MUST(weft_loader_load(loader, state, 0));
  FAILS(weft_loader_next(loader, batch, 2, &count), WEFT_FAILED_PRECONDITION,
        "weft_loader_next: rank 1 would read 5 batches of 8 of 96 items in epoch 2 from position 16 (seed 3), rank 0 6 batches "
        "of 8 of 96 items in epoch 2 from position 0 (seed 3)");
  weft_tree_release(state);
  weft_loader_release(loader);
}

/* Rank 1 adds a tensor to that of rank 0 so many times, and then dies, or only waits. */
static int other(const char* id, int times, int dies) {
  weft_context* ctx = new_context();
  weft_job* job = join(id, 1, 60000);
  weft_tensor *x = ramp(ctx, DIMS(4)), *sum = NULL;
  float values[4];
  for (; times > 0; --times) {
    MUST(weft_job_reduce(ctx, job, &x, 1, WEFT_JOB_SUM, NULL, &sum));
    MUST(weft_tensor_to_host(sum, values, sizeof values));
    weft_tensor_release(sum);
  }
  read_differently(ctx, job, 1);
  if (g_failures) return 1;
  if (dies) kill(getpid(), SIGKILL);
  for (;;) sleep(1); /* until it is killed */
}

static pid_t start_other(const char* program, const char* id, const char* times, const char* dies) {
  const pid_t child = fork();
  if (child == 0) {
    execl(program, program, "other", id, times, dies, (char*)NULL);
    _exit(127);
  }
  return child;
}

static void* cancel_soon(void* ctx) {
  const struct timespec soon = {0, 300000000};
  nanosleep(&soon, NULL);
  weft_cancel(ctx);
  return NULL;
}

static void others_that_go_or_do_not_come_end_the_step(const char* program) {
  int dies;
  for (dies = 1; dies >= 0; --dies) {
    weft_context* ctx = new_context();
    weft_tensor *x = ramp(ctx, DIMS(4)), *sum = NULL, *square = NULL;
    weft_job* job;
    pthread_t thread;
    char id[64];
    float values[4];
    double began;
    pid_t child;
    snprintf(id, sizeof id, "goes-%d-%d", (int)getpid(), dies);
    child = start_other(program, id, "1", dies ? "1" : "0");
    job = join(id, 0, 60000);
    MUST(weft_job_reduce(ctx, job, &x, 1, WEFT_JOB_SUM, NULL, &sum));
    MUST(weft_tensor_to_host(sum, values, sizeof values));
    CHECK(values[3] == 6);
    weft_tensor_release(sum);
    read_differently(ctx, job, 0);
    MUST(weft_square(ctx, x, &square));
    MUST(weft_job_reduce(ctx, job, &square, 1, WEFT_JOB_SUM, NULL, &sum));
    if (!dies) pthread_create(&thread, NULL, cancel_soon, ctx);
    began = now();
    if (dies) {
      FAILS_WITH(weft_tensor_to_host(sum, values, sizeof values), WEFT_UNAVAILABLE, "ended while rank 0");
    } else {
      FAILS_WITH(weft_tensor_to_host(sum, values, sizeof values), WEFT_CANCELLED, "");
      pthread_join(thread, NULL);
    }
    CHECK(now() - began < 5); /* 0.1 and 0.3 s on a machine with nothing else to do */
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    /* All else works on. Where the wait ended before the launch did, this read is told of the launch's failure, once. */
    if (!dies) weft_error_release(weft_tensor_to_host(square, values, sizeof values));
    MUST(weft_tensor_to_host(square, values, sizeof values));
    CHECK(values[3] == 9);
    weft_tensor_release(sum);
    weft_tensor_release(square);
    weft_tensor_release(x);
    weft_job_release(job);
    weft_context_release(ctx);
  }
}

int main(int argc, char** argv) {
  const int steps = argc == 2 ? atoi(argv[1]) : 50;
  int kind;
  if (argc == 5) return other(argv[2], atoi(argv[3]), atoi(argv[4]));
  if (argc == 7) return train(atoi(argv[1]), atoi(argv[2]), atoi(argv[3]), atoi(argv[4]), argv[5], argv[6]);
  if (steps < 2 || steps > MOST_STEPS) return 2;
  make_folder();
  others_that_go_or_do_not_come_end_the_step(argv[0]);
  for (kind = 0; kind < 4; ++kind) compare(argv[0], kind & 1, kind >> 1, steps);
  remove_folder();
  return done("job_training");
}
