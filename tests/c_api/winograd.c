/* The option "allow_winograd": off unless asked for; what it allows is near what it replaces, forward and in gradients, comes out with
 * the same bits each time, and is a program of its own for every cache. */
#define _POSIX_C_SOURCE 200809L
#include <unistd.h>

#include "folder.h"

enum { kSize = 20, kChannels = 16, kPixels = 2 * kSize * kSize * kChannels, kTaps = 9 * kChannels * kChannels };

typedef struct result {
  float y[kPixels], dx[kPixels], dw[kTaps];
} result;

/* `allow`: NULL where nobody says. */
static weft_context* context(const char* platform, const char* allow, const char* cache_mode) {
  weft_setting settings[4] = {{"cache_dir", WEFT_STRLEN, NULL, WEFT_STRLEN}, {"cache_mode", WEFT_STRLEN, NULL, WEFT_STRLEN},
                              {"platform", WEFT_STRLEN, NULL, WEFT_STRLEN}, {"allow_winograd", WEFT_STRLEN, NULL, WEFT_STRLEN}};
  weft_context_options options = WEFT_CONTEXT_OPTIONS_INIT;
  weft_context* ctx = NULL;
  settings[0].value = g_dir;
  settings[1].value = cache_mode;
  settings[2].value = platform;
  settings[3].value = allow;
  options.settings = settings;
  options.setting_count = allow != NULL ? 4 : 3;
  MUST(weft_context_create(&options, &ctx));
  return ctx;
}

static weft_tensor* wave(weft_context* ctx, const int64_t* dims, int count, int step, float scale, weft_dtype dtype) {
  float* data = malloc((size_t)count * sizeof *data);
  weft_tensor *wide, *out = NULL;
  int i;
  for (i = 0; i < count; ++i) data[i] = scale * (float)(i * step % 211 - 105) / 105;
  wide = f32(ctx, dims, 4, data);
  free(data);
  if (dtype == WEFT_F32) return wide;
  MUST(weft_convert(ctx, wide, dtype, &out));
  weft_tensor_release(wide);
  return out;
}

static void read_as_f32(weft_context* ctx, weft_tensor* tensor, float* to, size_t count) {
  weft_tensor* wide = NULL;
  MUST(weft_convert(ctx, tensor, WEFT_F32, &wide));
  OK(weft_tensor_to_host(wide, to, count * sizeof *to));
  weft_tensor_release(wide);
}

/* Several steps, in the later of which the kernel is kept transformed and the step is replayed: all of the same bits. */
static void compute(weft_context* ctx, weft_dtype dtype, result* out) {
  static const int64_t kImage[] = {2, kSize, kSize, kChannels}, kKernel[] = {3, 3, kChannels, kChannels};
  result* again = malloc(sizeof *again);
  weft_tensor *x = wave(ctx, kImage, kPixels, 37, 1, dtype), *w = wave(ctx, kKernel, kTaps, 53, 0.1f, dtype);
  int step;
  MUST(weft_tensor_require_grad(x, 1));
  MUST(weft_tensor_require_grad(w, 1));
  for (step = 0; step < 5; ++step) {
    weft_tensor *of[] = {x, w}, *g[2], *y;
    wf_scope* s = wf_begin(ctx);
    result* const to = step == 0 ? out : again;
    y = wf_conv(s, x, w, .padding = WEFT_CONV_PADDING_SAME);
    wf_grad(s, wf_sum(s, wf_mul(s, y, y)), of, 2, g);
    y = wf_keep(s, y);
    g[0] = wf_keep(s, g[0]);
    g[1] = wf_keep(s, g[1]);
    MUST(wf_end(s));
    MUST(weft_sync(ctx, NULL, NULL));
    read_as_f32(ctx, y, to->y, kPixels);
    read_as_f32(ctx, g[0], to->dx, kPixels);
    read_as_f32(ctx, g[1], to->dw, kTaps);
    weft_tensor_release(y);
    weft_tensor_release(g[0]);
    weft_tensor_release(g[1]);
    if (step > 0) CHECK(memcmp(out, again, sizeof *out) == 0);
  }
  weft_tensor_release(x);
  weft_tensor_release(w);
  free(again);
}

static int near(const float* have, const float* want, int count) {
  double most = 0;
  int i, bad = 0;
  for (i = 0; i < count; ++i) most = fmax(most, fabs(want[i]));
  for (i = 0; i < count; ++i) bad += !(fabs(have[i] - want[i]) <= 1e-5 * most);
  return bad == 0;
}

int main(void) {
  result *expected = malloc(sizeof *expected), *direct = malloc(sizeof *direct), *other = malloc(sizeof *other);
  weft_context* ctx;
  weft_blob* value = NULL;
  make_folder();

  ctx = context("reference", "1", "off"); /* which decides for itself */
  compute(ctx, WEFT_F32, expected);
  weft_context_release(ctx);

  ctx = context("cpu", NULL, "write");
  MUST(weft_context_option(ctx, "allow_winograd", WEFT_STRLEN, &value));
  CHECK_TEXT((const char*)weft_blob_data(value), "0");
  weft_blob_release(value);
  compute(ctx, WEFT_F32, direct);
  CHECK(metric(ctx, "programs_compiled") > 0);
  weft_context_release(ctx);
  CHECK(near(direct->y, expected->y, kPixels) && near(direct->dx, expected->dx, kPixels) && near(direct->dw, expected->dw, kTaps));

  ctx = context("cpu", "1", "write"); /* finds nothing of the first's */
  compute(ctx, WEFT_F32, other);
  CHECK(metric(ctx, "programs_compiled") > 0);
  CHECK(near(other->y, expected->y, kPixels) && near(other->dx, expected->dx, kPixels) && near(other->dw, expected->dw, kTaps));
  CHECK(memcmp(other->y, direct->y, sizeof direct->y) != 0 && memcmp(other->dx, direct->dx, sizeof direct->dx) != 0);
  weft_context_release(ctx);

  *expected = *other;
  ctx = context("cpu", "1", "read"); /* its own programs, with their bits */
  compute(ctx, WEFT_F32, other);
  CHECK_EQUAL(metric(ctx, "programs_compiled"), 0);
  CHECK(memcmp(other, expected, sizeof *other) == 0);
  weft_context_release(ctx);
  ctx = context("cpu", "0", "read");
  compute(ctx, WEFT_F32, other);
  CHECK_EQUAL(metric(ctx, "programs_compiled"), 0);
  CHECK(memcmp(other, direct, sizeof *other) == 0);
  weft_context_release(ctx);

  ctx = context("cpu", "0", "off"); /* nothing of other types changes */
  compute(ctx, WEFT_BF16, direct);
  weft_context_release(ctx);
  ctx = context("cpu", "1", "off");
  compute(ctx, WEFT_BF16, other);
  CHECK(memcmp(other, direct, sizeof *other) == 0);
  weft_context_release(ctx);
  free(expected);
  free(direct);
  free(other);
  remove_folder();
  return done("winograd");
}
