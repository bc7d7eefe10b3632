/* The option "isa": on every path that this machine runs, a network trains as it does on the reference platform, and the
 * device says which path it is. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>

#include "check.h"

enum { kSteps = 6, kParameters = 4 };
static const int64_t kDims[kParameters][4] = {{3, 3, 2, 17}, {17, 0, 0, 0}, {272, 10, 0, 0}, {10, 0, 0, 0}};
static const size_t kRanks[kParameters] = {4, 1, 2, 1};

static weft_tensor* wave(weft_context* ctx, const int64_t* dims, size_t rank, float scale) {
  size_t i, count = 1;
  float* data;
  weft_tensor* out;
  for (i = 0; i < rank; ++i) count *= (size_t)dims[i];
  data = malloc(count * sizeof(float));
  for (i = 0; i < count; ++i) data[i] = scale * (float)((int)(i * 37 % 101) - 50) / 50;
  out = f32(ctx, dims, rank, data);
  free(data);
  return out;
}

/* Convolution, pool, product, softmax, logarithm, their gradients and AdamW: the losses, 0 if there is no such path. */
static int train(const char* platform, const char* isa, double* losses) {
  const weft_setting settings[] = {{"cache_mode", WEFT_STRLEN, "off", WEFT_STRLEN},
                                   {"platform", WEFT_STRLEN, platform, WEFT_STRLEN},
                                   {"isa", WEFT_STRLEN, isa, WEFT_STRLEN}};
  weft_context_options options = WEFT_CONTEXT_OPTIONS_INIT;
  weft_context* ctx = NULL;
  weft_tensor *x, *labels = NULL, *p[kParameters], *g[kParameters];
  weft_optimizer* optimizer = NULL;
  weft_device* device = NULL;
  weft_error* error;
  const char* kind = NULL;
  int32_t classes[8];
  int i, step;
  options.settings = settings;
  options.setting_count = 3;
  error = weft_context_create(&options, &ctx);
  if (error != NULL && weft_error_code(error) == WEFT_FAILED_PRECONDITION) {
    CHECK(strstr(weft_error_message(error, NULL), "this processor cannot run the instruction set") != NULL);
    weft_error_release(error);
    return 0;
  }
  MUST(error);
  MUST(weft_device_at(ctx, 0, &device));
  MUST(weft_device_kind(device, &kind, NULL));
  if (*isa != 0) CHECK(strstr(kind, isa) != NULL);
  weft_device_release(device);
  for (i = 0; i < 8; ++i) classes[i] = i * 3 % 10;
  x = wave(ctx, DIMS(8, 10, 10, 2), 1);
  MUST(weft_tensor_from_host(ctx, NULL, WEFT_I32, DIMS(8), classes, sizeof classes, &labels));
  for (i = 0; i < kParameters; ++i) {
    p[i] = wave(ctx, kDims[i], kRanks[i], 0.2f);
    MUST(weft_tensor_require_grad(p[i], 1));
  }
  MUST(weft_adamw_create(ctx, p, kParameters, NULL, &optimizer));
  for (step = 0; step < kSteps; ++step) {
    wf_scope* s = wf_begin(ctx);
    weft_tensor* h = wf_max_pool(s, wf_gelu(s, wf_add(s, wf_conv(s, x, p[0]), p[1])), (const int64_t[]){2, 2}, 2);
    weft_tensor* loss = wf_cross_entropy(s, wf_add(s, wf_matmul(s, wf_reshape(s, h, (const int64_t[]){8, 272}, 2), p[2]), p[3]), labels);
    wf_grad(s, loss, p, kParameters, g);
    wf_try(s, weft_optimizer_step(optimizer, g, kParameters, 0.01));
    wf_try(s, weft_tensor_item_f64(loss, &losses[step]));
    OK(wf_end(s));
    MUST(weft_sync(ctx, NULL, NULL));
  }
  weft_optimizer_release(optimizer);
  for (i = 0; i < kParameters; ++i) weft_tensor_release(p[i]);
  weft_tensor_release(labels);
  weft_tensor_release(x);
  weft_context_release(ctx);
  return 1;
}

int main(void) {
  static const char* paths[] = {"", "portable", "amx-model", "avx2", "avx512", "amx"};
  double expected[kSteps], losses[kSteps];
  size_t i;
  int step;
  CHECK(train("reference", "", expected));
  CHECK(expected[kSteps - 1] < 0.9 * expected[0]);
  for (i = 0; i < sizeof paths / sizeof *paths; ++i) {
    if (!train("cpu", paths[i], losses)) {
      printf("this machine has no %s\n", paths[i]);
      CHECK(i > 2);
      continue;
    }
    for (step = 0; step < kSteps; ++step) {
      if (!(fabs(losses[step] - expected[step]) <= 2e-5 * expected[step])) {
        printf("%s: the loss of step %d is %.9g, not %.9g\n", paths[i], step, losses[step], expected[step]);
        ++g_failures;
      }
    }
  }
  setenv("WEFT_ISA", "sse9", 1);
  {
    weft_context* ctx = NULL;
    INVALID(weft_context_create(NULL, &ctx), "weft_context_create: WEFT_ISA: 'sse9' is not one of amx, avx512, avx2, portable, amx-model");
  }
  return done("isa");
}
