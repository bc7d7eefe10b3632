/* What recording costs: a transformer block with shape inference, scope and gradient through the exported functions,
 * recorded for the first time every time (the limit: 1 us an operation), a training step of it that comes again and again
 * (100 ns), and the host's share of a steady MLP training step. With --peers JAX traces the same block beside it. */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "machine.h"
#include "rounds.h"
#include "weft.h"
#include "weft_fluent.h"

enum { WIDTH = 64, HEADS = 4, TOKENS = 16, ROWS = 2, PARAMS = 14, MLP_PARAMS = 6 };

static void must(weft_error* error) {
  if (error) {
    fprintf(stderr, "record: %s\n", weft_error_message(error, NULL));
    exit(1);
  }
}

static int64_t metric(weft_context* ctx, const char* name) {
  int64_t value = 0;
  must(weft_metric_get(ctx, name, WEFT_STRLEN, &value));
  return value;
}

static weft_tensor* parameter(weft_context* ctx, const int64_t* dims, size_t rank) {
  weft_tensor* t;
  wf_scope* s = wf_begin(ctx);
  t = wf_keep(s, wf_mul(s, wf_normal(s, dims, rank), wf_scalar(s, WEFT_F32, 0.05)));
  must(wf_end(s));
  must(weft_tensor_require_grad(t, 1));
  return t;
}

static weft_tensor* heads(wf_scope* s, weft_tensor* x) {
  return wf_transpose(s, wf_reshape(s, x, WF_INTS(ROWS, TOKENS, HEADS, WIDTH / HEADS)), WF_INTS(0, 2, 1, 3));
}

static weft_tensor* block(wf_scope* s, weft_tensor** p, weft_tensor* x) {
  weft_tensor *h, *q, *k, *v, *a;
  h = wf_layer_norm(s, x, p[0], p[1]);
  q = heads(s, wf_matmul(s, h, p[2]));
  k = heads(s, wf_matmul(s, h, p[3]));
  v = heads(s, wf_matmul(s, h, p[4]));
  a = wf_transpose(s, wf_scaled_dot_product_attention(s, q, k, v, NULL, .causal = 1), WF_INTS(0, 2, 1, 3));
  x = wf_add(s, x, wf_add(s, wf_matmul(s, wf_reshape(s, a, WF_INTS(ROWS, TOKENS, WIDTH)), p[5]), p[6]));
  h = wf_gelu(s, wf_add(s, wf_matmul(s, wf_layer_norm(s, x, p[7], p[8]), p[9]), p[10]));
  return wf_add(s, wf_add(s, x, wf_matmul(s, h, p[11])), wf_mul(s, p[12], p[13]));
}

static void mlp_step(weft_context* ctx, weft_tensor** p, weft_optimizer* opt, weft_tensor* x, weft_tensor* y) {
  weft_tensor *h, *grads[MLP_PARAMS];
  wf_scope* s = wf_begin(ctx);
  h = wf_relu(s, wf_add(s, wf_matmul(s, x, p[0]), p[1]));
  h = wf_relu(s, wf_add(s, wf_matmul(s, h, p[2]), p[3]));
  h = wf_add(s, wf_matmul(s, h, p[4]), p[5]);
  wf_grad(s, wf_cross_entropy(s, h, y), p, MLP_PARAMS, grads);
  wf_try(s, weft_optimizer_step(opt, grads, MLP_PARAMS, 0.01));
  must(wf_end(s));
}

/* What the peers' script prints as "record_block jax NANOSECONDS"; 0 where it could not be measured. */
static double peer(const char* keep) {
  char path[PATH_MAX], command[2 * PATH_MAX + 64];
  double ns = 0;
  FILE* pipe;
  ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
  char* slash;
  if (n < 0) return 0;
  for (path[n] = 0; (slash = strrchr(path, '/')) != NULL && slash != path;) {
    *slash = 0;
    snprintf(command, sizeof command, "%s/benchmarks/peers/peers", path);
    if (access(command, X_OK) == 0) break;
    *command = 0;
  }
  if (!*command) return 0;
  snprintf(command, sizeof command, "'%s/benchmarks/peers/peers' --only record %s%s%s", path, keep ? "--keep '" : "", keep ? keep : "",
           keep ? "'" : "");
  pipe = popen(command, "r");
  if (!pipe) return 0;
  if (fscanf(pipe, "record_block jax %lf", &ns) != 1) fprintf(stderr, "record: JAX could not be measured\n");
  pclose(pipe);
  return ns;
}

int main(int argc, char** argv) {
  static const int64_t shapes[PARAMS][2] = {
      {WIDTH, 0}, {WIDTH, 0}, {WIDTH, WIDTH}, {WIDTH, WIDTH}, {WIDTH, WIDTH}, {WIDTH, WIDTH}, {WIDTH, 0},
      {WIDTH, 0}, {WIDTH, 0}, {WIDTH, 4 * WIDTH}, {4 * WIDTH, 0}, {4 * WIDTH, WIDTH}, {WIDTH, 0}, {WIDTH, 0}};
  static const int64_t mlp_shapes[MLP_PARAMS][2] = {{784, 512}, {512, 0}, {512, 256}, {256, 0}, {256, 10}, {10, 0}};
  static double block_ns[20000], again_ns[2000], mlp_us[5000];
  weft_context* ctx = NULL;
  weft_tensor *p[PARAMS], *m[MLP_PARAMS], *x, *images, *labels;
  weft_optimizer *opt = NULL, *block_opt = NULL;
  weft_event* event = NULL;
  weft_mesh* mesh = NULL;
  const char *keep = NULL, *axes = NULL;
  char name[256];
  double jax = 0;
  int peers = 0, json = 0, rounds = 20000, agains = 2000, steps = 5000, i;
  int64_t operations, again_operations, y[64];
  wf_scope* s;

  for (i = 1; i < argc; ++i) {
    if (!strcmp(argv[i], "--json")) json = 1;
    else if (!strcmp(argv[i], "--quick")) rounds = 2000, agains = 200, steps = 300;
    else if (!strcmp(argv[i], "--mesh") && i + 1 < argc) axes = argv[++i];
    else if (!strcmp(argv[i], "--peers")) peers = 1;
    else if (!strcmp(argv[i], "--peers-in") && i + 1 < argc) peers = 1, keep = argv[++i];
    else {
      const int help = !strcmp(argv[i], "--help") || !strcmp(argv[i], "-h");
      fprintf(help ? stdout : stderr, "usage: record [--json] [--quick] [--mesh AXES] [--peers | --peers-in DIR] [--help]\n"
              "  --mesh AXES       everything on a mesh: data=4, of so many devices (WEFT_DEVICES)\n"
              "  --peers           JAX tracing the same block, in a throw-away virtual environment\n"
              "  --peers-in DIR    the same in one that stays\n");
      return help ? 0 : 2;
    }
  }
  must(weft_context_create(NULL, &ctx));
  if (axes != NULL) {
    must(weft_mesh_create(ctx, NULL, 0, axes, WEFT_STRLEN, &mesh));
    must(weft_context_set_mesh(ctx, mesh));
  }
  for (i = 0; i < PARAMS; ++i) p[i] = parameter(ctx, shapes[i], shapes[i][1] ? 2 : 1);
  for (i = 0; i < MLP_PARAMS; ++i) m[i] = parameter(ctx, mlp_shapes[i], mlp_shapes[i][1] ? 2 : 1);
  for (i = 0; i < 64; ++i) y[i] = i % 10;
  s = wf_begin(ctx);
  x = wf_keep(s, wf_normal(s, WF_INTS(ROWS, TOKENS, WIDTH)));
  images = wf_keep(s, wf_normal(s, WF_INTS(64, 784)));
  labels = wf_keep(s, wf_from_host(s, WEFT_I64, WF_INTS(64), y, sizeof y));
  must(wf_end(s));
  must(weft_sync(ctx, NULL, NULL));

  operations = metric(ctx, "nodes_recorded");
  for (i = 0; i < rounds; ++i) {
    weft_tensor* grads[PARAMS];
    const double start = wall_seconds();
    s = wf_begin(ctx);
    wf_grad(s, wf_mean(s, block(s, p, x)), p, PARAMS, grads);
    must(wf_end(s));
    block_ns[i] = (wall_seconds() - start) * 1e9;
  }
  operations = (metric(ctx, "nodes_recorded") - operations) / rounds;
  qsort(block_ns, (size_t)rounds, sizeof *block_ns, by_value);

  must(weft_sgd_create(ctx, p, PARAMS, NULL, &block_opt));
  must(weft_sync(ctx, NULL, NULL));
  again_operations = metric(ctx, "nodes_recorded");
  for (i = 0; i < agains; ++i) {
    weft_tensor* grads[PARAMS];
    const double start = wall_seconds();
    s = wf_begin(ctx);
    wf_grad(s, wf_mean(s, block(s, p, x)), p, PARAMS, grads);
    wf_try(s, weft_optimizer_step(block_opt, grads, PARAMS, 0.01));
    must(wf_end(s));
    again_ns[i] = (wall_seconds() - start) * 1e9;
    must(weft_sync(ctx, NULL, &event));
    must(weft_event_wait(event, -1));
    weft_event_release(event);
  }
  again_operations = (metric(ctx, "nodes_recorded") - again_operations) / agains;
  qsort(again_ns, (size_t)agains, sizeof *again_ns, by_value);

  must(weft_sgd_create(ctx, m, MLP_PARAMS, NULL, &opt));
  for (i = 0; i < steps; ++i) {
    double start;
    start = wall_seconds();
    mlp_step(ctx, m, opt, images, labels);
    must(weft_sync(ctx, NULL, &event));
    mlp_us[i] = (wall_seconds() - start) * 1e6;
    must(weft_event_wait(event, -1)); /* the device's time is not the host's */
    weft_event_release(event);
  }
  qsort(mlp_us, (size_t)steps, sizeof *mlp_us, by_value);

  if (peers) jax = peer(keep);
  machine(name, sizeof name);
  if (json) {
    const double each = block_ns[rounds / 2] / (double)operations, again = again_ns[agains / 2] / (double)again_operations;
    char other[64] = "";
    if (jax > 0) snprintf(other, sizeof other, "\"jax_trace\": %.0f", jax);
    printf("[{\"name\": \"record: transformer block with gradient, an operation\", \"value\": %.1f, \"unit\": \"ns\", \"floor\": 1000, "
           "\"ratio\": %.4f, \"peers\": {%s}, \"machine\": \"%s\"},\n", each, each / 1000, other, name);
    printf(" {\"name\": \"record: the block's step as before, an operation\", \"value\": %.1f, \"unit\": \"ns\", \"floor\": 100, "
           "\"ratio\": %.4f, \"peers\": {}, \"machine\": \"%s\"},\n", again, again / 100, name);
    printf(" {\"name\": \"record: host time of a steady MLP step\", \"value\": %.2f, \"unit\": \"us\", \"floor\": null, \"ratio\": null, "
           "\"peers\": {}, \"machine\": \"%s\"}]\n", mlp_us[steps / 2], name);
  } else {
    printf("transformer block with gradient: %" PRId64 " operations, %.0f ns each (median of %d; fastest %.0f ns; the limit is 1000)\n",
           operations, block_ns[rounds / 2] / (double)operations, rounds, block_ns[0] / (double)operations);
    printf("its training step as before: %" PRId64 " operations, %.0f ns each (median of %d; fastest %.0f ns; the limit is 100)\n",
           again_operations, again_ns[agains / 2] / (double)again_operations, agains, again_ns[0] / (double)again_operations);
    if (jax > 0) printf("JAX traces the same block at %.0f ns an operation\n", jax);
    printf("steady MLP step: %.1f us of host time (median of %d; fastest %.1f us)\n", mlp_us[steps / 2], steps, mlp_us[0]);
  }

  for (i = 0; i < PARAMS; ++i) weft_tensor_release(p[i]);
  for (i = 0; i < MLP_PARAMS; ++i) weft_tensor_release(m[i]);
  weft_tensor_release(x);
  weft_tensor_release(images);
  weft_tensor_release(labels);
  weft_optimizer_release(opt);
  weft_optimizer_release(block_opt);
  weft_mesh_release(mesh);
  weft_context_release(ctx);
  return 0;
}
