/* Trains a two-layer network on several devices, and shows what each of them has. Only the lines with wf_shard... and the mesh are about
 * devices: without them the program trains on one, with the same numbers.
 *
 *   cc many_devices.c $(pkg-config --cflags --libs weft) -lm -Wl,-rpath,$(pkg-config --variable=libdir weft) -o many_devices
 *   ./many_devices --devices 4 --layout fsdp */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "weft.h"
#include "weft_fluent.h"

enum { ROWS = 64, WIDTH = 32, STEPS = 60, PARAMS = 4 };

/* How the weights lie: everywhere whole, cut as storage, cut as work. The batch is cut along "data" in the first two. */
typedef struct {
  const char *name, *axis, *batch, *weights[PARAMS];
} layout;
static const layout LAYOUTS[] = {
    {"data", "data", "data,-", {"-,-", "-", "-,-", "-"}},
    {"fsdp", "data", "data,-", {"-,data", "data", "data,-", "-"}},
    {"tensor", "model", "-,-", {"-,model", "model", "model,-", "-"}},
};

static void must(weft_error* error) {
  if (error == NULL) return;
  fprintf(stderr, "many_devices: %s\n", weft_error_message(error, NULL));
  exit(1);
}

static weft_tensor* shard(wf_scope* s, weft_tensor* x, const char* spec) {
  weft_tensor* out = NULL;
  weft_error* const error = weft_shard(x, spec, WEFT_STRLEN, &out);
  return weft_scope_adopt(s, error, out);
}

/* Points of a plane, and the distance of each from the origin. */
static void batch(int step, float x[ROWS][2], float y[ROWS][1]) {
  int i;
  for (i = 0; i < ROWS; ++i) {
    x[i][0] = (float)((i * 37 + step * 11) % 101) / 50 - 1;
    x[i][1] = (float)((i * 53 + step * 29) % 103) / 51 - 1;
    y[i][0] = x[i][0] * x[i][0] + x[i][1] * x[i][1];
  }
}

static double train_step(weft_context* ctx, weft_optimizer* adam, weft_tensor* const p[PARAMS], const layout* how, int number) {
  float x_host[ROWS][2], y_host[ROWS][1];
  weft_tensor *x, *y, *h, *loss, *grads[PARAMS];
  wf_scope* s = wf_begin(ctx);
  double value;
  batch(number, x_host, y_host);
  x = wf_from_host(s, WEFT_F32, WF_INTS(ROWS, 2), x_host, sizeof x_host);
  y = wf_from_host(s, WEFT_F32, WF_INTS(ROWS, 1), y_host, sizeof y_host);
  if (how != NULL) x = shard(s, x, how->batch), y = shard(s, y, how->batch);
  h = wf_relu(s, wf_add(s, wf_matmul(s, x, p[0]), p[1]));
  loss = wf_mean(s, wf_square(s, wf_sub(s, wf_add(s, wf_matmul(s, h, p[2]), p[3]), y)));
  wf_grad(s, loss, p, PARAMS, grads);
  wf_try(s, weft_optimizer_step(adam, grads, PARAMS, 0.01));
  value = wf_item(s, loss);
  must(wf_end(s));
  must(weft_sync(ctx, NULL, NULL));
  return value;
}

static void usage(FILE* to) {
  fprintf(to, "usage: many_devices [--devices N] [--layout one|data|fsdp|tensor]\n\n"
              "Trains a small network on N devices of this machine's memory (default 4), its weights laid out as asked (default data).\n"
              "Environment: WEFT_PLATFORM and WEFT_PLUGIN choose others' devices.\n");
}

int main(int argc, char** argv) {
  const int64_t shapes[PARAMS][2] = {{2, WIDTH}, {WIDTH, 0}, {WIDTH, 1}, {1, 0}};
  const char *devices = "4", *wanted = "data";
  const layout* how = NULL;
  weft_context_options options = WEFT_CONTEXT_OPTIONS_INIT;
  weft_setting setting = {"devices", WEFT_STRLEN, NULL, WEFT_STRLEN};
  weft_context* ctx = NULL;
  weft_mesh* mesh = NULL;
  weft_tensor* p[PARAMS];
  weft_optimizer* adam = NULL;
  weft_blob* picture = NULL;
  wf_scope* s;
  char axes[64];
  double loss = 0;
  size_t k;
  int i;
  for (i = 1; i < argc; ++i) {
    if (strcmp(argv[i], "--help") == 0) return usage(stdout), 0;
    if (strcmp(argv[i], "--devices") == 0 && i + 1 < argc) {
      devices = argv[++i];
    } else if (strcmp(argv[i], "--layout") == 0 && i + 1 < argc) {
      wanted = argv[++i];
    } else {
      return usage(stderr), 2;
    }
  }
  for (k = 0; k < sizeof LAYOUTS / sizeof LAYOUTS[0]; ++k) {
    if (strcmp(LAYOUTS[k].name, wanted) == 0) how = &LAYOUTS[k];
  }
  if (how == NULL && strcmp(wanted, "one") != 0) return usage(stderr), 2;

  setting.value = devices;
  options.settings = &setting;
  options.setting_count = 1;
  must(weft_context_create(&options, &ctx));
  must(weft_random_seed(ctx, 1));
  if (how != NULL) { /* everything that is made from here on is on the mesh */
    snprintf(axes, sizeof axes, "%s=%s", how->axis, devices);
    must(weft_mesh_create(ctx, NULL, 0, axes, WEFT_STRLEN, &mesh));
    must(weft_context_set_mesh(ctx, mesh));
  }

  s = wf_begin(ctx);
  for (i = 0; i < PARAMS; ++i) {
    weft_tensor* w = shapes[i][1] > 0 ? wf_normal(s, shapes[i], 2, .deviation = 0.3) : wf_full(s, shapes[i], 1, 0.0);
    if (how != NULL) w = shard(s, w, how->weights[i]);
    p[i] = wf_keep(s, w);
    wf_try(s, weft_tensor_require_grad(p[i], 1));
  }
  must(wf_end(s));
  must(weft_adam_create(ctx, p, PARAMS, NULL, &adam));
  for (i = 0; i < STEPS; ++i) loss = train_step(ctx, adam, p, how, i);
  printf("loss %.9g after %d steps\n", loss, STEPS);
  must(weft_tensor_sharding_picture(p[0], &picture));
  printf("the first weight, ");
  fputs(weft_blob_data(picture), stdout);

  weft_blob_release(picture);
  for (i = 0; i < PARAMS; ++i) weft_tensor_release(p[i]);
  weft_optimizer_release(adam);
  weft_mesh_release(mesh);
  weft_context_release(ctx);
  return 0;
}
