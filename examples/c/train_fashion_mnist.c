/* Trains a convolutional network on Fashion-MNIST: conv 32 - conv 64 - dense 128 - dense 10, batch 64.
 *
 * C99, the public headers and libweft.so; nothing else. A checkpoint is streamed to disk after every epoch, every
 * --save-every steps and on Ctrl-C or SIGTERM, which lose at most the running step (the file is replaced atomically);
 * --resume goes on from it with the same bits as a run that never stopped. Compiled programs stay in --cache: the second
 * start compiles nothing. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "weft.h"
#include "weft_fluent.h"

enum { BATCH = 64, EVAL_BATCH = 500, READ_EVERY = 10 /* steps */, CLASSES = 10, SIDE = 28, PARAMS = 8 };

typedef struct {
  const char *data, *device, *checkpoint, *cache, *optimizer;
  int epochs, bf16, resume, metrics, json, quiet, first_step;
  int64_t limit;      /* steps an epoch, 0 = all */
  int64_t save_every; /* steps, 0 = after epochs only */
  int64_t seed;       /* -1: not given */
  double lr;          /* -1: not given */
} options;

typedef struct {
  const char *layer, *name;
  size_t rank;
  int64_t dims[4];
  int64_t fan_in; /* 0: a bias, starts at zero */
} layer;

/* A weight and a bias for each layer, in this order. */
static const layer LAYERS[PARAMS] = {
    {"conv1", "weight", 4, {3, 3, 1, 32}, 9},      {"conv1", "bias", 1, {32}, 0},
    {"conv2", "weight", 4, {3, 3, 32, 64}, 288},   {"conv2", "bias", 1, {64}, 0},
    {"dense1", "weight", 2, {9216, 128}, 9216},    {"dense1", "bias", 1, {128}, 0},
    {"dense2", "weight", 2, {128, CLASSES}, 128},  {"dense2", "bias", 1, {CLASSES}, 0},
};

typedef struct {
  weft_tensor* p[PARAMS];
  int bf16;
} model;

/* How far a run has come: whole epochs, and steps of the next one. */
typedef struct {
  int64_t epoch, step;
} position;

/* Images and labels of one half of the data set, in host memory. */
typedef struct {
  uint8_t* images; /* [count, 28, 28] */
  uint8_t* labels; /* [count] */
  int64_t count;
} dataset;

static volatile sig_atomic_t interrupted; /* the signal's number */
static void on_interrupt(int sig) { interrupted = sig; }

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Seconds since the process was started by the kernel, from its start time in clock ticks since boot. */
static double process_age(void) {
  char text[1024], *at;
  unsigned long long ticks = 0;
  double up = 0;
  FILE* f = fopen("/proc/self/stat", "r");
  size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
  if (f) fclose(f);
  text[n] = 0;
  at = strrchr(text, ')');
  if (!at || sscanf(at + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu", &ticks) != 1)
    return -1;
  f = fopen("/proc/uptime", "r");
  if (!f || fscanf(f, "%lf", &up) != 1) up = -1;
  if (f) fclose(f);
  return up - (double)ticks / (double)sysconf(_SC_CLK_TCK);
}

/* A progress bar stands on the last line of the terminal until the next thing is said. */
static int bar_shown;
static void erase_bar(void) {
  if (bar_shown) fputs("\r\033[K", stderr);
  bar_shown = 0;
}

static void stop(int code, const char* format, va_list args) {
  erase_bar();
  fprintf(stderr, "train_fashion_mnist: ");
  vfprintf(stderr, format, args);
  fprintf(stderr, "\n");
  exit(code);
}
static void die(const char* format, ...) {
  va_list args;
  va_start(args, format);
  stop(1, format, args);
}
static void misused(const char* format, ...) { /* what is wrong is the command line */
  va_list args;
  va_start(args, format);
  stop(2, format, args);
}

/* Every error ends the program here: message, then exit. */
static void must(weft_error* error) {
  if (error) die("%s", weft_error_message(error, NULL));
}

/* --- data -------------------------------------------------------------------------------------------------------- */

static uint8_t* read_idx(weft_context* ctx, const char* dir, const char* name, size_t rank, int64_t* count) {
  char path[4096];
  weft_tensor* t = NULL;
  weft_error* error;
  weft_dtype dtype;
  int64_t dims[3] = {0, 0, 0};
  uint64_t bytes = 0;
  size_t got = 0;
  uint8_t* data;
  snprintf(path, sizeof path, "%s/%s", dir, name);
  error = weft_idx_read(ctx, path, WEFT_STRLEN, NULL, &t);
  if (error && weft_error_code(error) == WEFT_NOT_FOUND)
    die("%s\nThe images come from Debian's package dataset-fashion-mnist (apt-get install dataset-fashion-mnist), or give "
        "their folder with --data.", weft_error_message(error, NULL));
  must(error);
  must(weft_tensor_dtype(t, &dtype));
  must(weft_tensor_dims(t, dims, 3, &got));
  if (dtype != WEFT_U8 || got != rank || (rank == 3 && (dims[1] != SIDE || dims[2] != SIDE)))
    die("%s does not hold %s", path, rank == 3 ? "28x28 images of bytes" : "labels of bytes");
  must(weft_tensor_size(t, &bytes));
  data = malloc(bytes ? bytes : 1);
  if (!data) die("out of memory");
  must(weft_tensor_to_host(t, data, bytes));
  weft_tensor_release(t);
  *count = dims[0];
  return data;
}

static dataset read_dataset(weft_context* ctx, const char* dir, const char* half, int at_least) {
  dataset d;
  char name[64];
  int64_t labels = 0, i;
  snprintf(name, sizeof name, "%s-images-idx3-ubyte.gz", half);
  d.images = read_idx(ctx, dir, name, 3, &d.count);
  snprintf(name, sizeof name, "%s-labels-idx1-ubyte.gz", half);
  d.labels = read_idx(ctx, dir, name, 1, &labels);
  if (labels != d.count) die("%s: %" PRId64 " images but %" PRId64 " labels", dir, d.count, labels);
  if (d.count < at_least) die("%s: %" PRId64 " images in %s; at least %d are needed", dir, d.count, half, at_least);
  for (i = 0; i < labels; ++i)
    if (d.labels[i] >= CLASSES) die("%s/%s: label %" PRId64 " is %d; there are %d classes", dir, name, i, d.labels[i], CLASSES);
  return d;
}

static void free_images(void* data) {
  free(((dataset*)data)->images);
  free(((dataset*)data)->labels);
}

/* Batches of 64 in an order that is a function of seed and epoch alone, read ahead while steps run. The images become the loader's. */
static weft_loader* load_batches(weft_context* ctx, weft_device* device, const options* o, dataset* d) {
  weft_dataset* images = NULL;
  weft_sampler* sampler = NULL;
  weft_loader* loader = NULL;
  weft_sampler_options order = WEFT_SAMPLER_OPTIONS_INIT;
  weft_loader_options where = WEFT_LOADER_OPTIONS_INIT;
  weft_tensor_info fields[2];
  weft_rows rows[2];
  memset(fields, 0, sizeof fields);
  memset(rows, 0, sizeof rows);
  fields[0].dtype = fields[1].dtype = WEFT_U8;
  fields[0].rank = 3;
  fields[0].dims[0] = fields[0].dims[1] = SIDE;
  fields[0].dims[2] = 1;
  rows[0].data = d->images;
  rows[0].size = (uint64_t)d->count * SIDE * SIDE;
  rows[1].data = d->labels;
  rows[1].size = (uint64_t)d->count;
  must(weft_dataset_from_memory(d->count, fields, rows, 2, d, free_images, &images));
  order.batch = BATCH;
  order.order = WEFT_ORDER_RANDOM;
  order.seed = (uint64_t)o->seed;
  must(weft_sampler_create(d->count, &order, &sampler));
  where.device = device;
  must(weft_loader_create(ctx, images, sampler, &where, &loader));
  weft_dataset_release(images);
  weft_sampler_release(sampler);
  return loader;
}

/* The next batch will be that of this step of this epoch. */
static void go_to(weft_loader* loader, const options* o, const dataset* d, position at) {
  weft_tree* state = NULL;
  uint32_t node;
  must(weft_tree_create(&state));
  must(weft_tree_add_i64(state, 0, "seed", WEFT_STRLEN, o->seed, &node));
  must(weft_tree_add_i64(state, 0, "epoch", WEFT_STRLEN, at.epoch, &node));
  must(weft_tree_add_i64(state, 0, "position", WEFT_STRLEN, at.step * BATCH, &node));
  must(weft_tree_add_i64(state, 0, "items", WEFT_STRLEN, d->count, &node));
  must(weft_loader_load(loader, state, 0));
  weft_tree_release(state);
}

/* Images of bytes become f32 in [0, 1], labels i32. */
static weft_tensor* scaled(wf_scope* s, weft_tensor* images) {
  return wf_mul(s, wf_convert(s, images, WEFT_F32), wf_scalar(s, WEFT_F32, 1.0 / 255));
}

/* The test images [at, at + n) and their labels. */
static void test_batch(wf_scope* s, const dataset* d, int64_t at, int64_t n, weft_tensor** x, weft_tensor** y) {
  *x = wf_from_host(s, WEFT_U8, WF_INTS(n, SIDE, SIDE, 1), d->images + at * SIDE * SIDE, (size_t)(n * SIDE * SIDE));
  *x = scaled(s, *x);
  *y = wf_convert(s, wf_from_host(s, WEFT_U8, WF_INTS(n), d->labels + at, (size_t)n), WEFT_I32);
}

/* --- model ------------------------------------------------------------------------------------------------------- */

/* With --bf16, matrix products and convolutions take bf16 inputs and accumulate in f32; everything else stays f32. */
static weft_tensor* conv(wf_scope* s, const model* m, weft_tensor* x, weft_tensor* w) {
  if (!m->bf16) return wf_conv(s, x, w);
  return wf_conv(s, wf_convert(s, x, WEFT_BF16), wf_convert(s, w, WEFT_BF16), .dtype = WEFT_F32);
}
static weft_tensor* matmul(wf_scope* s, const model* m, weft_tensor* x, weft_tensor* w) {
  if (!m->bf16) return wf_matmul(s, x, w);
  return wf_matmul(s, wf_convert(s, x, WEFT_BF16), wf_convert(s, w, WEFT_BF16), .dtype = WEFT_F32);
}

/* Logits of images [n, 28, 28, 1]: one line a layer. */
static weft_tensor* forward(wf_scope* s, const model* m, weft_tensor* x) {
  weft_tensor* h;
  h = wf_relu(s, wf_add(s, conv(s, m, x, m->p[0]), m->p[1]));
  h = wf_relu(s, wf_add(s, conv(s, m, h, m->p[2]), m->p[3]));
  h = wf_flatten(s, wf_max_pool(s, h, WF_INTS(2, 2)), .start_axis = 1);
  h = wf_relu(s, wf_add(s, matmul(s, m, h, m->p[4]), m->p[5]));
  return wf_add(s, matmul(s, m, h, m->p[6]), m->p[7]);
}

/* He initialisation (He et al. 2015): normal with variance 2 / fan-in, from the context's random state. */
static void init_model(weft_context* ctx, weft_device* device, model* m) {
  wf_scope* s = wf_begin(ctx);
  int i;
  for (i = 0; i < PARAMS; ++i) {
    const layer* l = &LAYERS[i];
    m->p[i] = wf_keep(s, l->fan_in ? wf_normal(s, l->dims, l->rank, .deviation = sqrt(2.0 / (double)l->fan_in))
                                   : wf_full(s, l->dims, l->rank, 0.0));
  }
  must(wf_end(s));
  must(weft_sync(ctx, device, NULL)); /* so that the first step is recorded like all others */
}

/* --- checkpoint -------------------------------------------------------------------------------------------------- */

static void save(weft_context* ctx, const options* o, const model* m, weft_optimizer* opt, position at) {
  weft_tree *tree = NULL, *state = NULL;
  weft_checkpoint_options checkpoint = WEFT_CHECKPOINT_OPTIONS_INIT;
  uint32_t weights, parent = 0, random, node;
  uint64_t key, low, high;
  int i;
  must(weft_tree_create(&tree));
  must(weft_tree_add_dict(tree, 0, "model", WEFT_STRLEN, &weights));
  for (i = 0; i < PARAMS; ++i) {
    if (i % 2 == 0) must(weft_tree_add_dict(tree, weights, LAYERS[i].layer, WEFT_STRLEN, &parent));
    must(weft_tree_add_tensor(tree, parent, LAYERS[i].name, WEFT_STRLEN, m->p[i], &node));
  }
  must(weft_optimizer_state(opt, &state));
  must(weft_tree_add_tree(tree, 0, "optimizer", WEFT_STRLEN, state, &node));
  must(weft_random_get_state(ctx, &key, &low, &high));
  must(weft_tree_add_dict(tree, 0, "random", WEFT_STRLEN, &random));
  must(weft_tree_add_i64(tree, random, "key", WEFT_STRLEN, (int64_t)key, &node));
  must(weft_tree_add_i64(tree, random, "low", WEFT_STRLEN, (int64_t)low, &node));
  must(weft_tree_add_i64(tree, random, "high", WEFT_STRLEN, (int64_t)high, &node));
  must(weft_tree_add_i64(tree, 0, "epoch", WEFT_STRLEN, at.epoch, &node));
  must(weft_tree_add_i64(tree, 0, "step", WEFT_STRLEN, at.step, &node));
  must(weft_tree_add_i64(tree, 0, "seed", WEFT_STRLEN, o->seed, &node));
  must(weft_tree_add_bool(tree, 0, "bf16", WEFT_STRLEN, o->bf16, &node));
  must(weft_tree_add_text(tree, 0, "optimizer_name", WEFT_STRLEN, o->optimizer, WEFT_STRLEN, &node));
  checkpoint.step = at.epoch; /* what `weft show` shows */
  must(weft_checkpoint_save(ctx, o->checkpoint, WEFT_STRLEN, tree, &checkpoint, NULL));
  weft_tree_release(state);
  weft_tree_release(tree);
}

/* Said before an epoch is spent, not after it. */
static void must_be_able_to_save(const options* o) {
  char folder[4096];
  const char* slash = strrchr(o->checkpoint, '/');
  struct stat old;
  if (!*o->checkpoint) die("--checkpoint needs the name of a file");
  if (lstat(o->checkpoint, &old) == 0 && !S_ISREG(old.st_mode)) die("cannot save to '%s': it is not a regular file", o->checkpoint);
  snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - o->checkpoint) + 1 : 1, slash ? o->checkpoint : ".");
  if (access(folder, W_OK) != 0) die("cannot save to '%s': %s: %s", o->checkpoint, folder, strerror(errno));
}

static uint32_t find(const options* o, weft_tree* tree, const char* path) {
  uint32_t node = 0;
  weft_error* error = weft_tree_find(tree, 0, path, WEFT_STRLEN, &node);
  if (error) die("%s is not a checkpoint of this program: %s", o->checkpoint, weft_error_message(error, NULL));
  return node;
}
static int64_t find_i64(const options* o, weft_tree* tree, const char* path) {
  int64_t value = 0;
  must(weft_tree_get_i64(tree, find(o, tree, path), &value));
  return value;
}

static weft_optimizer* make_optimizer(weft_context* ctx, const options* o, const model* m) {
  weft_optimizer* opt = NULL;
  if (!strcmp(o->optimizer, "sgd")) {
    weft_sgd_options sgd = WEFT_SGD_OPTIONS_INIT;
    sgd.momentum = 0.9;
    must(weft_sgd_create(ctx, m->p, PARAMS, &sgd, &opt));
  } else {
    must(weft_adamw_create(ctx, m->p, PARAMS, NULL, &opt));
  }
  return opt;
}

/* Fills model, optimizer and random state; returns how far the checkpoint has come. */
static position load(weft_context* ctx, weft_device* device, options* o, model* m, weft_optimizer** opt) {
  weft_tree* tree = NULL;
  const void* name = NULL;
  size_t length = 0;
  char path[64];
  int64_t seed, dims[4];
  position at;
  size_t rank = 0;
  weft_dtype dtype;
  int32_t bf16 = 0;
  int i;
  weft_error* error = weft_checkpoint_load(ctx, o->checkpoint, WEFT_STRLEN, device, &tree);
  if (error && weft_error_code(error) == WEFT_NOT_FOUND)
    die("%s\nThere is nothing to resume from: leave out --resume to start anew, or name the file with --checkpoint.",
        weft_error_message(error, NULL));
  must(error);
  must(weft_tree_get_data(tree, find(o, tree, "optimizer_name"), &name, &length));
  if (length != strlen(o->optimizer) || memcmp(name, o->optimizer, length) != 0)
    die("%s was trained with --optimizer %.*s, not %s", o->checkpoint, (int)length, (const char*)name, o->optimizer);
  must(weft_tree_get_bool(tree, find(o, tree, "bf16"), &bf16));
  if (bf16 != o->bf16) die("%s was trained with%s --bf16", o->checkpoint, bf16 ? "" : "out");
  seed = find_i64(o, tree, "seed");
  if (o->seed >= 0 && o->seed != seed) die("%s was trained with --seed %" PRId64 ", not %" PRId64, o->checkpoint, seed, o->seed);
  o->seed = seed;
  for (i = 0; i < PARAMS; ++i) {
    snprintf(path, sizeof path, "model.%s.%s", LAYERS[i].layer, LAYERS[i].name);
    must(weft_tree_get_tensor(tree, find(o, tree, path), &m->p[i]));
    must(weft_tensor_dtype(m->p[i], &dtype));
    must(weft_tensor_dims(m->p[i], dims, 4, &rank));
    if (dtype != WEFT_F32 || rank != LAYERS[i].rank || memcmp(dims, LAYERS[i].dims, rank * sizeof *dims) != 0)
      die("%s is the checkpoint of another network: its %s has another shape or type", o->checkpoint, path);
    must(weft_tensor_require_grad(m->p[i], 1));
  }
  *opt = make_optimizer(ctx, o, m);
  must(weft_optimizer_load(*opt, tree, find(o, tree, "optimizer")));
  must(weft_random_set_state(ctx, (uint64_t)find_i64(o, tree, "random.key"), (uint64_t)find_i64(o, tree, "random.low"),
                             (uint64_t)find_i64(o, tree, "random.high")));
  at.epoch = find_i64(o, tree, "epoch");
  at.step = find_i64(o, tree, "step");
  weft_tree_release(tree);
  return at;
}

/* --- training ---------------------------------------------------------------------------------------------------- */

static int64_t metric(weft_context* ctx, const char* name) {
  int64_t value = 0;
  must(weft_metric_get(ctx, name, WEFT_STRLEN, &value));
  return value;
}

/* One step: records forward, loss, gradients and update, and launches them. The loss stays on the device. */
static weft_tensor* train_step(weft_context* ctx, weft_device* device, const options* o, model* m, weft_optimizer* opt,
                               weft_loader* loader) {
  weft_tensor *batch[2] = {NULL, NULL}, *loss, *grads[PARAMS];
  wf_scope* s = wf_begin(ctx);
  size_t count = 0;
  wf_try(s, weft_loader_next(loader, batch, 2, &count));
  loss = wf_cross_entropy(s, forward(s, m, scaled(s, batch[0])), wf_convert(s, batch[1], WEFT_I32));
  wf_grad(s, loss, m->p, PARAMS, grads);
  wf_try(s, weft_optimizer_step(opt, grads, PARAMS, o->lr));
  loss = wf_keep(s, loss);
  must(wf_end(s));
  must(weft_sync(ctx, device, NULL));
  for (; count > 0; --count) weft_tensor_release(batch[count - 1]);
  return loss;
}

/* Share of the test images that the model gets right; of the first limit batches if that is not 0. */
static double evaluate(weft_context* ctx, const model* m, const dataset* d, int64_t limit) {
  int64_t at;
  double right = 0;
  for (at = 0; at + EVAL_BATCH <= d->count && (!limit || at < limit * EVAL_BATCH); at += EVAL_BATCH) {
    weft_tensor *x, *y, *hits;
    double count = 0;
    wf_scope* s = wf_begin(ctx);
    test_batch(s, d, at, EVAL_BATCH, &x, &y);
    hits = wf_eq(s, wf_argmax(s, forward(s, m, x)), y);
    wf_try(s, weft_tensor_item_f64(wf_sum(s, wf_convert(s, hits, WEFT_F32)), &count));
    must(wf_end(s));
    right += count;
  }
  return right / (double)at;
}

typedef struct {
  double start;
  int64_t compile_ns, wait_ns, first; /* of the epoch; steps that were done before */
} progress;

/* Draws the bar over the last one, as wide as the terminal allows; draws nothing into files and pipes. What is left of the
 * whole run goes by this epoch's steps, without compiling. */
static void show(weft_context* ctx, const options* o, const progress* p, position at, int64_t steps, double loss) {
  enum { NARROWEST = 4, WIDEST = 32 };
  char left[64], right[256], more[3][32], bar[WIDEST + 1];
  struct winsize window;
  const double elapsed = now() - p->start, compiling = 1e-9 * (double)(metric(ctx, "nanoseconds_compiling") - p->compile_ns);
  const double waiting = 1e-9 * (double)(metric(ctx, "nanoseconds_waiting") - p->wait_ns), done = (double)(at.step - p->first);
  const double eta = (elapsed - compiling) / done * (double)((o->epochs - at.epoch) * steps - at.step);
  const int64_t seconds = eta < 0 ? 0 : (int64_t)(eta + 0.5);
  int columns = 80, width, i;
  if (o->quiet || !isatty(2)) return;
  if (ioctl(2, TIOCGWINSZ, &window) == 0 && window.ws_col > 3) columns = window.ws_col;
  columns -= 3; /* a terminal echoes Ctrl-C as ^C behind the bar */
  snprintf(left, sizeof left, "epoch %" PRId64 " [", at.epoch + 1);
  snprintf(right, sizeof right, "] %" PRId64 "/%" PRId64 "  ETA %" PRId64 ":%02d  loss %.4f", at.step, steps, seconds / 60, (int)(seconds % 60), loss);
  snprintf(more[0], sizeof *more, "  %.0f images/s", done * BATCH / elapsed);
  snprintf(more[1], sizeof *more, "  wait %.0f %%", 100 * waiting / elapsed);
  snprintf(more[2], sizeof *more, "  compile %.0f %%", 100 * compiling / elapsed);
  for (i = 0; i < 3 && strlen(left) + NARROWEST + strlen(right) + strlen(more[i]) <= (size_t)columns; ++i) strcat(right, more[i]);
  width = columns - (int)(strlen(left) + strlen(right));
  width = width < NARROWEST ? NARROWEST : width > WIDEST ? WIDEST : width;
  memset(bar, '.', sizeof bar);
  memset(bar, '#', (size_t)(width * at.step / steps));
  bar[width] = 0;
  /* What a very narrow terminal cannot hold is cut off: a line that wraps cannot be drawn over. */
  width = columns - (int)strlen(left) - width;
  fprintf(stderr, "\r%.*s%s%.*s\033[K", columns, left, width < 0 ? "" : bar, width < 0 ? 0 : width, right);
  bar_shown = 1;
}

static const char* HELP =
    "usage: train_fashion_mnist [options]\n"
    "  --epochs N         passes over the 60,000 images, counted from the start (5)\n"
    "  --device D         where to run (cpu:0)\n"
    "  --bf16             bf16 inputs of convolutions and matrix products; sums and\n"
    "                     parameters stay f32\n"
    "  --optimizer NAME   adamw or sgd (adamw)\n"
    "  --lr RATE          learning rate (0.001; 0.05 for sgd, with momentum 0.9)\n"
    "  --seed S           of parameters, data order and random numbers (1)\n"
    "  --checkpoint FILE  written after every epoch and on Ctrl-C\n"
    "                     (fashion_mnist.weft); 'none' writes nothing\n"
    "  --save-every N     write it after every N steps too\n"
    "  --resume           go on from the checkpoint, with its seed\n"
    "  --cache DIR        where compiled programs stay (fashion_mnist.cache)\n"
    "  --data DIR         folder of the four .gz files\n"
    "                     (/usr/share/datasets/fashion-mnist)\n"
    "  --limit N          at most N steps an epoch and N batches of 500 test images,\n"
    "                     for trying things out\n"
    "  --first-step       stop after the first step and say how long it took from\n"
    "                     the start of the process\n"
    "  --metrics          print the library's counters at the end\n"
    "  --json             print results as one JSON object a line\n"
    "  --quiet            print nothing but errors and what is asked for\n"
    "                     (--json, --metrics, --first-step)\n"
    "  --version          print the library's version\n"
    "  --help             print this\n"
    "Ctrl-C finishes the running step and saves; a second one ends at once. The exit\n"
    "code is 0, 1 after an error, 2 for wrong options, 128 + the signal's number when\n"
    "interrupted.\n";

static const char* value_of(int argc, char** argv, int* i) {
  if (*i + 1 >= argc) misused("%s needs a value (see --help)", argv[*i]);
  return argv[++*i];
}

static double number(const char* option, const char* text, double low, double high) {
  char* end = NULL;
  const double value = strtod(text, &end);
  if (end == text || *end || !(value >= low && value <= high)) misused("%s takes a number from %g to %g, not '%s'", option, low, high, text);
  return value;
}

static int64_t whole(const char* option, const char* text, int64_t low, int64_t high) {
  char* end = NULL;
  long long value;
  errno = 0;
  value = strtoll(text, &end, 10);
  if (end == text || *end || errno || value < low || value > high)
    misused("%s takes a whole number from %" PRId64 " to %" PRId64 ", not '%s'", option, low, high, text);
  return value;
}

static options parse(int argc, char** argv) {
  options o = {"/usr/share/datasets/fashion-mnist", "cpu:0", "fashion_mnist.weft", "fashion_mnist.cache", "adamw",
               5, 0, 0, 0, 0, 0, 0, 0, 0, -1, -1};
  int i;
  for (i = 1; i < argc; ++i) {
    const char* a = argv[i];
    if (!strcmp(a, "--help") || !strcmp(a, "-h")) {
      fputs(HELP, stdout);
      exit(0);
    } else if (!strcmp(a, "--version")) {
      printf("train_fashion_mnist of Weft %s\n", weft_release_version());
      exit(0);
    } else if (!strcmp(a, "--epochs")) o.epochs = (int)whole(a, value_of(argc, argv, &i), 1, 1000000);
    else if (!strcmp(a, "--device")) o.device = value_of(argc, argv, &i);
    else if (!strcmp(a, "--bf16")) o.bf16 = 1;
    else if (!strcmp(a, "--optimizer")) o.optimizer = value_of(argc, argv, &i);
    else if (!strcmp(a, "--lr")) o.lr = number(a, value_of(argc, argv, &i), 0, 1e3);
    else if (!strcmp(a, "--seed")) o.seed = whole(a, value_of(argc, argv, &i), 0, INT64_MAX);
    else if (!strcmp(a, "--checkpoint")) o.checkpoint = value_of(argc, argv, &i);
    else if (!strcmp(a, "--resume")) o.resume = 1;
    else if (!strcmp(a, "--cache")) o.cache = value_of(argc, argv, &i);
    else if (!strcmp(a, "--data")) o.data = value_of(argc, argv, &i);
    else if (!strcmp(a, "--limit")) o.limit = whole(a, value_of(argc, argv, &i), 1, 1000000);
    else if (!strcmp(a, "--first-step")) o.first_step = 1;
    else if (!strcmp(a, "--metrics")) o.metrics = 1;
    else if (!strcmp(a, "--save-every")) o.save_every = whole(a, value_of(argc, argv, &i), 1, 1000000);
    else if (!strcmp(a, "--json")) o.json = 1;
    else if (!strcmp(a, "--quiet")) o.quiet = 1;
    else misused("unknown option '%s' (see --help)", a);
  }
  if (strcmp(o.optimizer, "adamw") && strcmp(o.optimizer, "sgd")) misused("--optimizer is adamw or sgd, not '%s'", o.optimizer);
  if (o.resume && !strcmp(o.checkpoint, "none")) misused("--resume needs a checkpoint, and --checkpoint none has none");
  if (o.save_every && !strcmp(o.checkpoint, "none")) misused("--save-every needs a checkpoint, and --checkpoint none has none");
  if (o.lr < 0) o.lr = strcmp(o.optimizer, "sgd") ? 0.001 : 0.05;
  return o;
}

/* Trains one step and says how long that took from the start of the process. */
static void first_step(weft_context* ctx, weft_device* device, const options* o, model* m, weft_optimizer* opt, weft_loader* loader,
                       double reading) {
  weft_tensor* l = train_step(ctx, device, o, m, opt, loader);
  double loss, age;
  must(weft_tensor_item_f64(l, &loss));
  age = process_age();
  printf(o->json ? "{\"first_step_s\": %.3f, \"reading_s\": %.3f, \"compilations\": %" PRId64 ", \"cache_hits\": %" PRId64 "}\n"
                 : "first step done %.3f s after the start of the process (without reading the data: %.3f s); %" PRId64
                   " compiled, %" PRId64 " from the cache\n",
         age - reading, reading, metric(ctx, "programs_compiled"), metric(ctx, "disk_cache_hits"));
  weft_tensor_release(l);
}

int main(int argc, char** argv) {
  options o = parse(argc, argv);
  weft_context_options context_options = WEFT_CONTEXT_OPTIONS_INIT;
  weft_setting settings[2];
  weft_context* ctx = NULL;
  weft_device* device = NULL;
  weft_optimizer* opt;
  struct sigaction action;
  model m;
  dataset train, test;
  weft_loader* loader;
  position at = {0, 0}, saved = {0, 0};
  int64_t steps;
  double reading, accuracy = 0;
  const int saves = strcmp(o.checkpoint, "none") != 0, talks = !o.json && !o.quiet;
  int i;

  memset(&m, 0, sizeof m);
  memset(&action, 0, sizeof action);
  action.sa_handler = on_interrupt;
  action.sa_flags = (int)SA_RESETHAND; /* a second Ctrl-C ends the program at once */
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGTERM, &action, NULL);

  if (saves) must_be_able_to_save(&o);
  memset(settings, 0, sizeof settings);
  settings[0].name = "cache_dir";
  settings[0].name_length = WEFT_STRLEN;
  settings[0].value = o.cache;
  settings[0].value_length = WEFT_STRLEN;
  settings[1].name = "platform"; /* "cpu" of "cpu:0" */
  settings[1].name_length = WEFT_STRLEN;
  settings[1].value = o.device;
  settings[1].value_length = strcspn(o.device, ":");
  context_options.settings = settings;
  context_options.setting_count = 2;
  must(weft_context_create(&context_options, &ctx));
  must(weft_device_by_name(ctx, o.device, WEFT_STRLEN, &device));

  reading = now();
  train = read_dataset(ctx, o.data, "train", BATCH);
  test = read_dataset(ctx, o.data, "t10k", EVAL_BATCH);
  reading = now() - reading;
  steps = train.count / BATCH;
  if (o.limit && o.limit < steps) steps = o.limit;

  m.bf16 = o.bf16;
  if (o.resume) {
    saved = at = load(ctx, device, &o, &m, &opt);
    if (talks && at.step) printf("resumed from %s after epoch %" PRId64 " and %" PRId64 " steps\n", o.checkpoint, at.epoch, at.step);
    else if (talks) printf("resumed from %s after epoch %" PRId64 "\n", o.checkpoint, at.epoch);
    if (talks && at.epoch >= o.epochs) printf("nothing left to do: --epochs %d counts from the start\n", o.epochs);
    fflush(stdout);
  } else {
    if (o.seed < 0) o.seed = 1;
    must(weft_random_seed(ctx, (uint64_t)o.seed));
    init_model(ctx, device, &m);
    for (i = 0; i < PARAMS; ++i) must(weft_tensor_require_grad(m.p[i], 1));
    opt = make_optimizer(ctx, &o, &m);
  }

  loader = load_batches(ctx, device, &o, &train);
  for (; at.epoch < o.epochs && !interrupted; ++at.epoch, at.step = 0) {
    progress p;
    double loss = NAN, seconds; /* of no step, if all were done before */
    char text[32];
    p.start = now();
    p.compile_ns = metric(ctx, "nanoseconds_compiling");
    p.wait_ns = metric(ctx, "nanoseconds_waiting");
    p.first = at.step;
    go_to(loader, &o, &train, at);
    if (o.first_step) {
      first_step(ctx, device, &o, &m, opt, loader, reading);
      break;
    }
    while (at.step < steps && !interrupted) {
      weft_tensor* l = train_step(ctx, device, &o, &m, opt, loader);
      ++at.step;
      if (at.step % READ_EVERY == 0 || at.step == steps) {
        must(weft_tensor_item_f64(l, &loss)); /* waits for the steps until here */
        show(ctx, &o, &p, at, steps, loss);
      }
      weft_tensor_release(l);
      if (saves && at.step < steps && (interrupted || (o.save_every && at.step % o.save_every == 0))) {
        save(ctx, &o, &m, opt, at);
        saved = at;
      }
    }
    if (at.step < steps) break;
    seconds = now() - p.start;
    accuracy = evaluate(ctx, &m, &test, o.limit);
    if (saves) {
      saved.epoch = at.epoch + 1;
      saved.step = 0;
      save(ctx, &o, &m, opt, saved);
    }
    erase_bar();
    if (o.quiet && !o.json) continue;
    snprintf(text, sizeof text, o.json && !isfinite(loss) ? "null" : o.json ? "%.6f" : "%.4f", loss); /* JSON has no NaN */
    printf(o.json ? "{\"epoch\": %" PRId64 ", \"loss\": %s, \"accuracy\": %.4f, \"images_per_s\": %.1f, \"seconds\": %.2f}\n"
                  : "epoch %" PRId64 ": loss %s, test accuracy %.4f, %.0f images/s, %.1f s\n",
           at.epoch + 1, text, accuracy, (double)((at.step - p.first) * BATCH) / seconds, seconds);
    fflush(stdout);
  }
  erase_bar();
  if (interrupted && !o.quiet) {
    FILE* const to = o.json ? stderr : stdout;
    if (saved.step) fprintf(to, "interrupted: %s holds epoch %" PRId64 " and %" PRId64 " of %" PRId64 " steps", o.checkpoint, saved.epoch, saved.step, steps);
    else if (saved.epoch) fprintf(to, "interrupted: %s holds epoch %" PRId64, o.checkpoint, saved.epoch);
    fprintf(to, saved.step || saved.epoch ? "; --resume goes on from there\n" : "interrupted, and nothing was saved\n");
  }
  if (!o.first_step && talks)
    printf("compiled %" PRId64 " programs, %" PRId64 " came from the cache; reading the data took %.2f s\n",
           metric(ctx, "programs_compiled"), metric(ctx, "disk_cache_hits"), reading);
  if (o.metrics) {
    weft_blob* report = NULL;
    must(o.json ? weft_metrics_json(ctx, &report) : weft_metrics_report(ctx, &report));
    fwrite(weft_blob_data(report), 1, weft_blob_size(report), stdout);
    if (o.json) putchar('\n');
    weft_blob_release(report);
  }

  for (i = 0; i < PARAMS; ++i) weft_tensor_release(m.p[i]);
  weft_loader_release(loader);
  weft_optimizer_release(opt);
  weft_device_release(device);
  weft_context_release(ctx);
  free(test.images);
  free(test.labels);
  return interrupted ? 128 + (int)interrupted : 0;
}
