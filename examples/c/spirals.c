/* Tells two spirals apart: a multilayer perceptron that can be stopped and goes on with the same bits. The checkpoint has all that
 * the next step depends on: weights, the optimizer's state, and the random state, from which every step draws its noise.
 *
 *   cc spirals.c $(pkg-config --cflags --libs weft) -Wl,-rpath,$(pkg-config --variable=libdir weft) -lm -o spirals
 *   ./spirals --steps 300                              # stops early; spirals.weft holds step 300
 *   ./spirals --steps 600 --resume --svg spirals.svg   # as if it had never stopped */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "weft.h"
#include "weft_fluent.h"

enum { POINTS = 400, WIDTH = 32, PARAMS = 6, GRID = 80 };
static const char* const NAMES[PARAMS] = {"w1", "b1", "w2", "b2", "w3", "b3"};

static void must(weft_error* error) {
  if (error == NULL) return;
  fprintf(stderr, "spirals: %s\n", weft_error_message(error, NULL));
  exit(1);
}

/* Point i is on arm i % 2, which begins in the middle and turns one and a half times. */
static void make_points(float points[POINTS][2], float arms[POINTS]) {
  int i;
  for (i = 0; i < POINTS; ++i) {
    const double far = sqrt((i / 2 + 1) / (POINTS / 2.0)), angle = 9.4 * far + 3.14159265 * (i % 2);
    points[i][0] = (float)(far * cos(angle));
    points[i][1] = (float)(far * sin(angle));
    arms[i] = (float)(i % 2);
  }
}

static void make_params(weft_context* ctx, weft_tensor** p) {
  wf_scope* s = wf_begin(ctx);
  p[0] = wf_keep(s, wf_normal(s, WF_INTS(2, WIDTH), .deviation = 2));
  p[1] = wf_keep(s, wf_uniform(s, WF_INTS(WIDTH), .low = -2, .high = 2));
  p[2] = wf_keep(s, wf_normal(s, WF_INTS(WIDTH, WIDTH), .deviation = 0.25));
  p[3] = wf_keep(s, wf_full(s, WF_INTS(WIDTH), 0));
  p[4] = wf_keep(s, wf_normal(s, WF_INTS(WIDTH, 1), .deviation = 0.25));
  p[5] = wf_keep(s, wf_full(s, WF_INTS(1), 0));
  must(wf_end(s));
}

/* [n, 2] -> [n]: above 0 is arm 1. */
static weft_tensor* logits(wf_scope* s, weft_tensor* const* p, weft_tensor* x) {
  weft_tensor* h = wf_tanh(s, wf_linear(s, x, p[0], p[1]));
  h = wf_tanh(s, wf_linear(s, h, p[2], p[3]));
  return wf_squeeze(s, wf_linear(s, h, p[4], p[5]), .dims = WF_INTS(1));
}

static weft_tensor* step(weft_context* ctx, weft_optimizer* adam, weft_tensor* const* p, float points[POINTS][2], const float* arms) {
  wf_scope* s = wf_begin(ctx);
  weft_tensor* x = wf_from_host(s, WEFT_F32, WF_INTS(POINTS, 2), points, sizeof(float[POINTS][2]));
  weft_tensor* y = wf_from_host(s, WEFT_F32, WF_INTS(POINTS), arms, sizeof(float[POINTS]));
  weft_tensor *z, *loss, *grads[PARAMS];
  x = wf_add(s, x, wf_normal(s, WF_INTS(POINTS, 2), .deviation = 0.01)); /* other points in every step */
  z = logits(s, p, x);
  loss = wf_mean(s, wf_sub(s, wf_softplus(s, z), wf_mul(s, y, z))); /* cross entropy of sigmoid(z) */
  wf_grad(s, loss, p, PARAMS, grads);
  wf_try(s, weft_optimizer_step(adam, grads, PARAMS, 0.01));
  loss = wf_keep(s, loss);
  must(wf_end(s));
  must(weft_sync(ctx, NULL, NULL));
  return loss;
}

static void save(weft_context* ctx, const char* path, weft_tensor* const* p, weft_optimizer* adam, int64_t steps) {
  weft_tree *tree = NULL, *state = NULL;
  uint64_t random[3];
  int i;
  must(weft_tree_create(&tree));
  for (i = 0; i < PARAMS; ++i) must(weft_tree_add_tensor(tree, WEFT_TREE_ROOT, NAMES[i], WEFT_STRLEN, p[i], NULL));
  must(weft_optimizer_state(adam, &state));
  must(weft_tree_add_tree(tree, WEFT_TREE_ROOT, "adam", WEFT_STRLEN, state, NULL));
  must(weft_random_get_state(ctx, &random[0], &random[1], &random[2]));
  must(weft_tree_add_bytes(tree, WEFT_TREE_ROOT, "random", WEFT_STRLEN, random, sizeof random, NULL));
  must(weft_tree_add_i64(tree, WEFT_TREE_ROOT, "steps", WEFT_STRLEN, steps, NULL));
  must(weft_checkpoint_save(ctx, path, WEFT_STRLEN, tree, NULL, NULL)); /* the old file stays until the new one is whole */
  weft_tree_release(state);
  weft_tree_release(tree);
}

static uint32_t find(weft_tree* tree, const char* name) {
  uint32_t node = 0;
  must(weft_tree_find(tree, WEFT_TREE_ROOT, name, WEFT_STRLEN, &node));
  return node;
}

static int64_t load(weft_context* ctx, const char* path, weft_tensor** p, weft_optimizer* adam) {
  weft_tree* tree = NULL;
  const void* bytes = NULL;
  uint64_t random[3];
  size_t size = 0;
  int64_t steps = 0;
  int i;
  must(weft_checkpoint_load(ctx, path, WEFT_STRLEN, NULL, &tree));
  for (i = 0; i < PARAMS; ++i) {
    weft_tensor* saved = NULL;
    must(weft_tree_get_tensor(tree, find(tree, NAMES[i]), &saved));
    must(weft_tensor_assign(p[i], saved)); /* refuses another shape by name */
    weft_tensor_release(saved);
  }
  must(weft_optimizer_load(adam, tree, find(tree, "adam")));
  must(weft_tree_get_data(tree, find(tree, "random"), &bytes, &size));
  if (size != sizeof random) {
    fprintf(stderr, "spirals: %s has no random state of this program\n", path);
    exit(1);
  }
  memcpy(random, bytes, size);
  must(weft_random_set_state(ctx, random[0], random[1], random[2]));
  must(weft_tree_get_i64(tree, find(tree, "steps"), &steps));
  weft_tree_release(tree);
  return steps;
}

/* The plane in five colours by probability, and the points. */
static int draw(weft_context* ctx, const char* path, weft_tensor* const* p, float points[POINTS][2]) {
  static const char* const COLOURS[] = {"#77aadd", "#bbccee", "#eeeeee", "#ffccaa", "#ee8866"};
  static float grid[GRID * GRID][2], share[GRID * GRID];
  wf_scope* s = wf_begin(ctx);
  weft_tensor* probability;
  FILE* f = fopen(path, "w");
  int i, level, bad;
  for (i = 0; i < GRID * GRID; ++i) {
    grid[i][0] = (float)((i % GRID + 0.5) * 2.4 / GRID - 1.2);
    grid[i][1] = (float)((i / GRID + 0.5) * 2.4 / GRID - 1.2);
  }
  probability = wf_keep(s, wf_sigmoid(s, logits(s, p, wf_from_host(s, WEFT_F32, WF_INTS(GRID * GRID, 2), grid, sizeof grid))));
  must(wf_end(s));
  must(weft_tensor_to_host(probability, share, sizeof share));
  weft_tensor_release(probability);
  if (f == NULL) return 0;
  fprintf(f, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"400\" height=\"400\" shape-rendering=\"crispEdges\">\n");
  for (level = 0; level < 5; ++level) {
    fprintf(f, "<path stroke=\"%s\" stroke-width=\"5\" d=\"", COLOURS[level]);
    for (i = 0; i < GRID * GRID; ++i) {
      int run = 0;
      while (i % GRID + run < GRID && (int)(share[i + run] * 4.999f) == level) ++run;
      if (run > 0) fprintf(f, "M%d %.1fh%d", i % GRID * 5, i / GRID * 5 + 2.5, run * 5), i += run - 1;
    }
    fprintf(f, "\"/>\n");
  }
  for (i = 0; i < POINTS; ++i)
    fprintf(f, "<circle cx=\"%.0f\" cy=\"%.0f\" r=\"3\" fill=\"%s\"/>\n", points[i][0] / 0.006 + 200, points[i][1] / 0.006 + 200,
            i % 2 ? "#aa3311" : "#114477");
  fprintf(f, "</svg>\n");
  bad = ferror(f);
  return !(fclose(f) | bad);
}

int main(int argc, char** argv) {
  static const char USAGE[] =
      "usage: spirals [--steps N] [--checkpoint FILE] [--resume] [--svg FILE]\n\n"
      "  --steps N          in all, counted from the very first (600)\n"
      "  --checkpoint FILE  is written in the end (spirals.weft)\n"
      "  --resume           goes on from there\n"
      "  --svg FILE         draws what was learned\n";
  const char *checkpoint = "spirals.weft", *svg = NULL;
  float points[POINTS][2], arms[POINTS];
  weft_context* ctx = NULL;
  weft_optimizer* adam = NULL;
  weft_tensor *p[PARAMS], *loss = NULL;
  int64_t steps = 600, i = 0;
  double value = 0;
  int resume = 0, a, n;
  for (a = 1; a < argc; ++a) {
    const int more = a + 1 < argc;
    char* end = NULL;
    if (strcmp(argv[a], "--resume") == 0) resume = 1;
    else if (strcmp(argv[a], "--checkpoint") == 0 && more) checkpoint = argv[++a];
    else if (strcmp(argv[a], "--svg") == 0 && more) svg = argv[++a];
    else if (strcmp(argv[a], "--steps") == 0 && more && (steps = strtol(argv[++a], &end, 10)) > 0 && *end == 0) continue;
    else {
      const int help = strcmp(argv[a], "--help") == 0;
      fputs(USAGE, help ? stdout : stderr);
      return help ? 0 : 2;
    }
  }
  make_points(points, arms);
  must(weft_context_create(NULL, &ctx));
  must(weft_random_seed(ctx, 1));
  make_params(ctx, p);
  for (n = 0; n < PARAMS; ++n) must(weft_tensor_require_grad(p[n], 1));
  must(weft_adam_create(ctx, p, PARAMS, NULL, &adam));
  if (resume) i = load(ctx, checkpoint, p, adam);
  for (; i < steps; ++i) {
    weft_tensor_release(loss);
    loss = step(ctx, adam, p, points, arms);
    if ((i + 1) % 100 == 0 || i + 1 == steps) {
      must(weft_tensor_item_f64(loss, &value));
      printf("step %" PRId64 ": loss %.9g\n", i + 1, value);
    }
  }
  save(ctx, checkpoint, p, adam, i);
  if (svg != NULL && !draw(ctx, svg, p, points)) {
    perror(svg);
    return 1;
  }
  for (n = 0; n < PARAMS; ++n) weft_tensor_release(p[n]);
  weft_tensor_release(loss);
  weft_optimizer_release(adam);
  weft_context_release(ctx);
  return 0;
}
