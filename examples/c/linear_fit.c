/* Fits a line to 200 noisy points by gradient descent, and draws it. Plain functions of the C interface, nothing else: every
 * call returns an error or NULL, and what comes out of a call is yours to release.
 *
 *   cc linear_fit.c $(pkg-config --cflags --libs weft) -Wl,-rpath,$(pkg-config --variable=libdir weft) -o linear_fit
 *   ./linear_fit --svg linear_fit.svg */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "weft.h"

enum { POINTS = 200, STEPS = 120 };
static const double SLOPE = 1.7, OFFSET = -0.4; /* what there is to find */

static void must(weft_error* error) {
  if (error == NULL) return;
  fprintf(stderr, "linear_fit: %s\n", weft_error_message(error, NULL));
  exit(1); /* a longer program would pass the error on and release it in the end */
}

/* y = SLOPE x + OFFSET and noise; the same points for a seed on every machine. */
static void make_points(weft_context* ctx, weft_tensor** x, weft_tensor** y) {
  const int64_t shape[] = {POINTS};
  weft_uniform_opts range = WEFT_UNIFORM_OPTS_INIT;
  weft_normal_opts spread = WEFT_NORMAL_OPTS_INIT;
  weft_tensor *slope, *offset, *noise, *scaled, *line;
  range.present = WEFT_UNIFORM_HAS_LOW; /* other attributes keep their defaults */
  range.low = -1;
  spread.present = WEFT_NORMAL_HAS_DEVIATION;
  spread.deviation = 0.3;
  must(weft_random_seed(ctx, 1));
  must(weft_uniform(ctx, shape, 1, &range, x));
  must(weft_normal(ctx, shape, 1, &spread, &noise));
  must(weft_tensor_from_f64(ctx, WEFT_F32, SLOPE, &slope));
  must(weft_tensor_from_f64(ctx, WEFT_F32, OFFSET, &offset));
  must(weft_mul(ctx, *x, slope, &scaled));
  must(weft_add(ctx, scaled, offset, &line));
  must(weft_add(ctx, line, noise, y));
  weft_tensor_release(slope);
  weft_tensor_release(offset);
  weft_tensor_release(noise);
  weft_tensor_release(scaled);
  weft_tensor_release(line);
}

/* One step of w[0] x + w[1] towards y; gives the mean of the squared errors before it. */
static weft_tensor* step(weft_context* ctx, weft_optimizer* sgd, weft_tensor* const w[2], weft_tensor* x, weft_tensor* y) {
  weft_tensor *scaled, *line, *error, *square, *loss, *grads[2];
  must(weft_mul(ctx, x, w[0], &scaled)); /* recorded; nothing runs yet */
  must(weft_add(ctx, scaled, w[1], &line));
  must(weft_sub(ctx, line, y, &error));
  must(weft_square(ctx, error, &square));
  must(weft_mean(ctx, square, NULL, &loss));
  must(weft_grad(ctx, loss, NULL, w, 2, grads));
  must(weft_optimizer_step(sgd, grads, 2, 0.1));
  weft_tensor_release(scaled);
  weft_tensor_release(line);
  weft_tensor_release(error);
  weft_tensor_release(square);
  weft_tensor_release(grads[0]);
  weft_tensor_release(grads[1]);
  must(weft_sync(ctx, NULL, NULL)); /* now it does: one program a step, compiled once */
  return loss;
}

static double across(double x) { return 240 + 220 * x; } /* -1 to 1 in 480 pixels */
static double down(double y) { return 180 - 60 * y; }     /* -3 to 3 in 360 */

static int draw(const char* path, const float* x, const float* y, double slope, double offset) {
  FILE* f = fopen(path, "w");
  int i, bad;
  if (f == NULL) return 0;
  fprintf(f, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"480\" height=\"360\">\n<rect width=\"480\" height=\"360\" fill=\"white\"/>\n");
  fprintf(f, "<path d=\"M20 %.1fH460M240 0V360\" stroke=\"#bbbbbb\"/>\n<g fill=\"#4477aa\" fill-opacity=\"0.6\">\n", down(0));
  for (i = 0; i < POINTS; ++i) fprintf(f, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\"/>\n", across(x[i]), down(y[i]));
  fprintf(f, "</g>\n<path d=\"M%.1f %.1fL%.1f %.1f\" stroke=\"#cc3311\" stroke-width=\"3\"/>\n</svg>\n", across(-1), down(offset - slope),
          across(1), down(offset + slope));
  bad = ferror(f);
  return !(fclose(f) | bad);
}

int main(int argc, char** argv) {
  const char* svg = NULL;
  weft_context* ctx = NULL;
  weft_optimizer* sgd = NULL;
  weft_tensor *x = NULL, *y = NULL, *w[2], *loss = NULL;
  float xs[POINTS], ys[POINTS];
  double slope = 0, offset = 0, error = 0;
  int i;
  if (argc == 3 && strcmp(argv[1], "--svg") == 0) {
    svg = argv[2];
  } else if (argc != 1) {
    const int help = argc == 2 && strcmp(argv[1], "--help") == 0;
    fprintf(help ? stdout : stderr, "usage: linear_fit [--svg FILE]\n\n  --svg FILE  draw the points and the line\n");
    return help ? 0 : 2;
  }
  must(weft_context_create(NULL, &ctx));
  make_points(ctx, &x, &y);
  for (i = 0; i < 2; ++i) {
    must(weft_tensor_from_f64(ctx, WEFT_F32, 0, &w[i]));
    must(weft_tensor_require_grad(w[i], 1));
  }
  must(weft_sgd_create(ctx, w, 2, NULL, &sgd));
  for (i = 0; i < STEPS; ++i) {
    weft_tensor_release(loss);
    loss = step(ctx, sgd, w, x, y);
  }
  must(weft_tensor_item_f64(loss, &error)); /* waits for the last step */
  must(weft_tensor_item_f64(w[0], &slope));
  must(weft_tensor_item_f64(w[1], &offset));
  printf("y = %.3f x %+.3f after %d steps, mean squared error %.4f\n", slope, offset, STEPS, error);
  must(weft_tensor_to_host(x, xs, sizeof xs));
  must(weft_tensor_to_host(y, ys, sizeof ys));
  weft_tensor_release(loss);
  weft_tensor_release(w[0]);
  weft_tensor_release(w[1]);
  weft_tensor_release(x);
  weft_tensor_release(y);
  weft_optimizer_release(sgd);
  weft_context_release(ctx);
  if (svg != NULL && !draw(svg, xs, ys, slope, offset)) {
    perror(svg);
    return 1;
  }
  return 0;
}
