/* Trains a small network on sin(x) with an update rule of its own, and is linked to nothing: the library is opened at run time, one
 * symbol is looked up, and everything else comes from the table that it gives. The header is there for types alone. What works here
 * works from any language that can open a library and call through a pointer.
 *
 *   cc dlopen_training.c $(pkg-config --cflags weft) -lm -ldl -o dlopen_training
 *   ./dlopen_training --library "$(pkg-config --variable=libdir weft)/libweft.so.1" */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "weft.h"

enum { POINTS = 128, WIDTH = 32, PARAMS = 4, STEPS = 1000 };

static const weft_api_v1* weft;
static weft_context* ctx;

static void must(weft_error* error) {
  if (error == NULL) return;
  fprintf(stderr, "dlopen_training: %s\n", weft->error_message(error, NULL));
  exit(1);
}

static void open_library(const char* path) {
  const weft_api_v1* (*get_api)(uint32_t) = NULL;
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library != NULL) *(void**)&get_api = dlsym(library, "weft_get_api");
  if (get_api == NULL) {
    fprintf(stderr, "dlopen_training: %s\n", dlerror());
    exit(1);
  }
  weft = get_api(WEFT_ABI_MAJOR);
  if (weft == NULL || weft->struct_size < sizeof *weft) { /* an older library has fewer functions, one of another major none */
    fprintf(stderr, "dlopen_training: %s is older than this program\n", path);
    exit(1);
  }
}

/* Any operation by name; the scope owns what comes out. After an error everything computed from it fails the same way, so one look
 * at the end, by scope_end, is enough. */
static weft_tensor* op(weft_scope* s, const char* name, weft_tensor* a, weft_tensor* b) {
  weft_tensor *inputs[2], *out = NULL;
  weft_error* error;
  size_t count = 0;
  inputs[0] = a, inputs[1] = b;
  error = weft->op_apply(ctx, name, WEFT_STRLEN, inputs, b != NULL ? 2 : 1, NULL, 0, &out, 1, &count);
  return weft->scope_adopt(s, error, out);
}

static weft_tensor* number(weft_scope* s, double value) {
  weft_tensor* out = NULL;
  weft_error* error = weft->tensor_from_f64(ctx, WEFT_F32, value, &out);
  return weft->scope_adopt(s, error, out);
}

/* Numbers that look random, in [-size, size). */
static weft_tensor* parameter(int64_t rows, int64_t columns, double size, unsigned* seed) {
  float data[WIDTH * WIDTH];
  const int64_t dims[] = {rows, columns};
  weft_tensor* out = NULL;
  int64_t i;
  for (i = 0; i < rows * columns; ++i) data[i] = (float)(size * ((double)((*seed = *seed * 1664525u + 1013904223u) >> 8) / (1 << 23) - 1));
  must(weft->tensor_from_host(ctx, NULL, WEFT_F32, dims, 2, data, (size_t)(rows * columns) * sizeof *data, &out));
  return out;
}

/* Loss, gradients, and v = 0.9 v + g, p = p - rate v: recorded, and run as one program. */
static weft_tensor* step(weft_tensor* const p[PARAMS], weft_tensor* const v[PARAMS], weft_tensor* x, weft_tensor* y, double rate) {
  weft_scope* s = NULL;
  weft_tensor *h, *loss, *kept = NULL, *grads[PARAMS];
  int i;
  must(weft->scope_begin(ctx, &s));
  h = op(s, "tanh", op(s, "add", op(s, "matmul", x, p[0]), p[1]), NULL);
  h = op(s, "add", op(s, "matmul", h, p[2]), p[3]);
  loss = op(s, "mean", op(s, "square", op(s, "sub", h, y), NULL), NULL);
  must(weft->grad(ctx, loss, NULL, p, PARAMS, grads));
  for (i = 0; i < PARAMS; ++i) {
    must(weft->tensor_assign(v[i], op(s, "add", op(s, "mul", v[i], number(s, 0.9)), grads[i])));
    must(weft->tensor_assign(p[i], op(s, "sub", p[i], op(s, "mul", v[i], number(s, rate)))));
    weft->tensor_release(grads[i]);
  }
  must(weft->scope_keep(s, loss, &kept));
  must(weft->scope_end(s));
  must(weft->sync(ctx, NULL, NULL));
  return kept;
}

int main(int argc, char** argv) {
  const int64_t dims[] = {POINTS, 1};
  const char* path = "libweft.so.1";
  weft_tensor *p[PARAMS], *v[PARAMS], *x = NULL, *y = NULL, *loss = NULL;
  float xs[POINTS], ys[POINTS];
  unsigned seed = 1;
  double value = 0;
  int i;
  if (argc == 3 && strcmp(argv[1], "--library") == 0) {
    path = argv[2];
  } else if (argc != 1) {
    const int help = argc == 2 && strcmp(argv[1], "--help") == 0;
    fprintf(help ? stdout : stderr, "usage: dlopen_training [--library FILE]\n\n  --library FILE  libweft.so.1, where the loader does not find it by itself\n");
    return help ? 0 : 2;
  }
  open_library(path);
  must(weft->context_create(NULL, &ctx));
  for (i = 0; i < POINTS; ++i) {
    xs[i] = (float)(6.283 * i / POINTS - 3.1415);
    ys[i] = (float)sin(xs[i]);
  }
  must(weft->tensor_from_host(ctx, NULL, WEFT_F32, dims, 2, xs, sizeof xs, &x));
  must(weft->tensor_from_host(ctx, NULL, WEFT_F32, dims, 2, ys, sizeof ys, &y));
  p[0] = parameter(1, WIDTH, 1, &seed);
  p[1] = parameter(1, WIDTH, 1, &seed);
  p[2] = parameter(WIDTH, 1, 0.3, &seed);
  p[3] = parameter(1, 1, 0, &seed);
  v[0] = parameter(1, WIDTH, 0, &seed);
  v[1] = parameter(1, WIDTH, 0, &seed);
  v[2] = parameter(WIDTH, 1, 0, &seed);
  v[3] = parameter(1, 1, 0, &seed);
  for (i = 0; i < PARAMS; ++i) must(weft->tensor_require_grad(p[i], 1));
  for (i = 1; i <= STEPS; ++i) {
    weft->tensor_release(loss);
    loss = step(p, v, x, y, i < STEPS / 2 ? 0.05 : 0.01);
    if (i % 250 == 0) {
      must(weft->tensor_item_f64(loss, &value));
      printf("step %d: mean squared error %.6f\n", i, value);
    }
  }
  for (i = 0; i < PARAMS; ++i) {
    weft->tensor_release(p[i]);
    weft->tensor_release(v[i]);
  }
  weft->tensor_release(loss);
  weft->tensor_release(x);
  weft->tensor_release(y);
  weft->context_release(ctx);
  return 0; /* the library stays: it cannot be unloaded, and need not be */
}
