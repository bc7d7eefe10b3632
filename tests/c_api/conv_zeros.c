/* Zeros beside an image and between the pixels of a gradient are multiplied, as StableHLO says: beside an infinity or a NaN in the
 * kernel, results and gradients are NaN exactly where the definition has it, on every platform and for every type. */
#include "check.h"

enum { kBatch = 4, kHeight = 14, kWidth = 10, kFrom = 16, kTo = 17, kTaps = 9 };
enum { kX = kBatch * kHeight * kWidth * kFrom, kW = kTaps * kFrom * kTo, kMostY = kBatch * kHeight * kWidth * kTo };

typedef struct sizes {
  int stride, height, width, y; /* of the output */
} sizes;

static weft_context* context(const char* platform, const char* winograd) {
  weft_setting settings[2] = {{"platform", WEFT_STRLEN, NULL, WEFT_STRLEN}, {"allow_winograd", WEFT_STRLEN, NULL, WEFT_STRLEN}};
  weft_context_options options = WEFT_CONTEXT_OPTIONS_INIT;
  weft_context* ctx = NULL;
  settings[0].value = platform;
  settings[1].value = winograd;
  options.settings = settings;
  options.setting_count = 2;
  MUST(weft_context_create(&options, &ctx));
  return ctx;
}

static weft_tensor* typed(weft_context* ctx, const int64_t* dims, int rank, const float* data, weft_dtype dtype) {
  weft_tensor *wide = f32(ctx, dims, rank, data), *out = NULL;
  if (dtype == WEFT_F32) return wide;
  MUST(weft_convert(ctx, wide, dtype, &out));
  weft_tensor_release(wide);
  return out;
}

/* 0: a number, 1: infinity, -1: its negative, 2: NaN. */
static int kind(double value) { return value != value ? 2 : value > 1e300 * 1e10 ? 1 : value < -1e300 * 1e10 ? -1 : 0; }

static void expect(weft_context* ctx, weft_tensor* tensor, const double* want, int count, const char* what) {
  float* have = malloc((size_t)count * sizeof *have);
  weft_tensor* wide = NULL;
  int i, wrong = 0, first = 0;
  MUST(weft_convert(ctx, tensor, WEFT_F32, &wide));
  OK(weft_tensor_to_host(wide, have, (size_t)count * sizeof *have));
  for (i = 0; i < count; ++i) {
    if (kind(have[i]) == kind(want[i])) continue;
    if (wrong++ == 0) first = i;
  }
  if (wrong > 0) printf("%s: %d of %d, the first at %d: %g and not %g\n", what, wrong, count, first, have[first], want[first]);
  CHECK_EQUAL(wrong, 0);
  weft_tensor_release(wide);
  free(have);
}

/* Adds every product of the definition to one operand; null: of the other two. */
static void define(const sizes* s, const float* x, const float* w, const float* y, double* to) {
  int n, row, column, tap, from, out;
  for (n = 0; n < kBatch; ++n) {
    for (row = 0; row < s->height; ++row) {
      for (column = 0; column < s->width; ++column) {
        for (tap = 0; tap < kTaps; ++tap) {
          const int in_row = row * s->stride + tap / 3 - 1, in_column = column * s->stride + tap % 3 - 1;
          const int inside = in_row >= 0 && in_row < kHeight && in_column >= 0 && in_column < kWidth;
          for (from = 0; from < kFrom; ++from) {
            for (out = 0; out < kTo; ++out) {
              const int xi = ((n * kHeight + in_row) * kWidth + in_column) * kFrom + from, wi = (tap * kFrom + from) * kTo + out;
              const int yi = ((n * s->height + row) * s->width + column) * kTo + out;
              if (y == NULL) to[yi] += (inside ? x[xi] : 0.0) * w[wi];
              if (w == NULL) to[wi] += (inside ? x[xi] : 0.0) * y[yi];
              if (x == NULL && inside) to[xi] += (double)w[wi] * y[yi];
            }
          }
        }
      }
    }
  }
}

/* Of the gradient of x, what is left: pixels that no output reads through a tap read a zero through it. */
static void define_zeros(const sizes* s, const float* w, double* dx) {
  int pixel, tap, from, out;
  for (pixel = 0; pixel < kBatch * kHeight * kWidth; ++pixel) {
    for (tap = 0; tap < kTaps; ++tap) {
      const int row = pixel / kWidth % kHeight + 1 - tap / 3, column = pixel % kWidth + 1 - tap % 3;
      if (row >= 0 && column >= 0 && row % s->stride == 0 && column % s->stride == 0 && row / s->stride < s->height &&
          column / s->stride < s->width)
        continue;
      for (from = 0; from < kFrom; ++from) {
        for (out = 0; out < kTo; ++out) dx[pixel * kFrom + from] += 0.0 * w[(tap * kFrom + from) * kTo + out];
      }
    }
  }
}

static void layer(weft_context* ctx, const sizes* s, weft_dtype dtype, float bad, const char* what) {
  static const int64_t kImage[] = {kBatch, kHeight, kWidth, kFrom}, kKernel[] = {3, 3, kFrom, kTo}, kBias[] = {kTo};
  const int64_t result[] = {kBatch, s->height, s->width, kTo};
  static float x[kX], w[kW], finite[kW], g[kMostY], finite_g[kMostY], bias[kTo];
  static double y[kMostY], dx[kX], dw[kW];
  weft_tensor *tx, *tw, *tfinite, *tg, *tfinite_g, *tbias;
  int i, step;
  for (i = 0; i < kX; ++i) x[i] = (float)(i * 37 % 23 - 11) / 8;
  for (i = 0; i < kW; ++i) w[i] = finite[i] = (float)(i * 53 % 19 - 9) / 8;
  for (i = 0; i < s->y; ++i) g[i] = finite_g[i] = (float)(i * 29 % 17 - 8) / 8;
  for (i = 0; i < kTo; ++i) bias[i] = (float)i;
  w[(0 * kFrom + 3) * kTo + 5] = bad;
  w[(7 * kFrom + 15) * kTo + 16] = bad;
  g[(s->width - 1) * kTo + 4] = bad; /* the first line's last */
  memset(y, 0, sizeof y);
  memset(dx, 0, sizeof dx);
  memset(dw, 0, sizeof dw);
  define(s, x, w, NULL, y);
  for (i = 0; i < s->y; ++i) y[i] = y[i] <= 0 ? 0 : y[i];
  define(s, NULL, w, finite_g, dx);
  define_zeros(s, w, dx);
  define(s, x, NULL, g, dw);
  tx = typed(ctx, kImage, 4, x, dtype), tw = typed(ctx, kKernel, 4, w, dtype), tfinite = typed(ctx, kKernel, 4, finite, dtype);
  tg = typed(ctx, result, 4, g, dtype), tfinite_g = typed(ctx, result, 4, finite_g, dtype), tbias = typed(ctx, kBias, 1, bias, dtype);
  for (step = 0; step < 4; ++step) { /* in later ones the kernel is kept packed */
    wf_scope* scope = wf_begin(ctx);
    weft_tensor* z = wf_conv(scope, tx, tw, .strides = WF_INTS(s->stride, s->stride), .padding = WEFT_CONV_PADDING_EXPLICIT,
                             .pads = WF_INTS(1, 1, 1, 1));
    z = wf_keep(scope, wf_relu(scope, wf_add(scope, z, tbias)));
    MUST(wf_end(scope));
    expect(ctx, z, y, s->y, what);
    weft_tensor_release(z);
  }
  MUST(weft_tensor_require_grad(tx, 1));
  MUST(weft_tensor_require_grad(tfinite, 1));
  for (step = 0; step < 2; ++step) { /* of x through the kernel, of the kernel from g */
    wf_scope* scope = wf_begin(ctx);
    weft_tensor *of[] = {step == 0 ? tx : tfinite}, *gradient[1];
    weft_tensor* z = wf_conv(scope, tx, step == 0 ? tw : tfinite, .strides = WF_INTS(s->stride, s->stride),
                             .padding = WEFT_CONV_PADDING_EXPLICIT, .pads = WF_INTS(1, 1, 1, 1));
    wf_grad(scope, wf_sum(scope, wf_mul(scope, z, step == 0 ? tfinite_g : tg)), of, 1, gradient);
    gradient[0] = wf_keep(scope, gradient[0]);
    MUST(wf_end(scope));
    expect(ctx, gradient[0], step == 0 ? dx : dw, step == 0 ? kX : kW, what);
    weft_tensor_release(gradient[0]);
  }
  weft_tensor_release(tx);
  weft_tensor_release(tw);
  weft_tensor_release(tfinite);
  weft_tensor_release(tg);
  weft_tensor_release(tfinite_g);
  weft_tensor_release(tbias);
}

int main(void) {
  static const char* const platforms[][2] = {{"reference", "0"}, {"cpu", "0"}, {"cpu", "1"}};
  static const weft_dtype dtypes[] = {WEFT_F32, WEFT_F64, WEFT_BF16, WEFT_F16};
  static const sizes kSizes[] = {{1, 14, 10, kMostY}, {2, 7, 5, kBatch * 7 * 5 * kTo}};
  size_t p, d, s;
  for (p = 0; p < 3; ++p) {
    weft_context* ctx = context(platforms[p][0], platforms[p][1]);
    for (d = 0; d < 4; ++d) {
      for (s = 0; s < 2; ++s) {
        char what[80];
        snprintf(what, sizeof what, "%s, winograd %s, type %d, stride %d", platforms[p][0], platforms[p][1], (int)dtypes[d],
                 kSizes[s].stride);
        layer(ctx, &kSizes[s], dtypes[d], INFINITY, what);
        layer(ctx, &kSizes[s], dtypes[d], -INFINITY, what);
        layer(ctx, &kSizes[s], dtypes[d], NAN, what);
      }
    }
    weft_context_release(ctx);
  }
  return done("conv_zeros");
}
