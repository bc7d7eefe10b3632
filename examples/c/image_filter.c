/* Blurs a picture and finds its edges, by convolutions: reads and writes PPM (P6), draws a picture of its own if none is given, and
 * puts the original, the blurred one and the edges side by side.
 *
 *   cc image_filter.c $(pkg-config --cflags --libs weft) -Wl,-rpath,$(pkg-config --variable=libdir weft) -lm -o image_filter
 *   ./image_filter --out filtered.ppm */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "weft.h"
#include "weft_fluent.h"

enum { TAPS = 7, EDGE = TAPS / 2 + 1 /* lost at each side: no padding, so no edge that is not in the picture */ };

typedef struct {
  int64_t height, width;
  uint8_t* rgb; /* [height, width, 3] */
} image;

static void die(const char* what, const char* why) {
  fprintf(stderr, "image_filter: %s%s%s\n", what, *why ? ": " : "", why);
  exit(1);
}

static void must(weft_error* error) {
  if (error != NULL) die(weft_error_message(error, NULL), "");
}

static image new_image(int64_t height, int64_t width) {
  image m;
  m.height = height, m.width = width;
  m.rgb = malloc((size_t)(height * width * 3));
  if (m.rgb == NULL) die("out of memory", "");
  return m;
}

/* Binary PPM with 255 as the largest value and no comments, as most programs write it. */
static image read_ppm(const char* path) {
  FILE* f = fopen(path, "rb");
  int width = 0, height = 0, most = 0;
  image m;
  if (f == NULL || fscanf(f, "P6 %d %d %d", &width, &height, &most) != 3 || fgetc(f) == EOF || most != 255 || width <= 2 * EDGE ||
      height <= 2 * EDGE || width > 20000 || height > 20000)
    die(path, "is no binary PPM (P6) of 8 bits, of 9 to 20000 pixels a side");
  m = new_image(height, width);
  if (fread(m.rgb, 3, (size_t)height * (size_t)width, f) != (size_t)height * (size_t)width) die(path, "ends too early");
  fclose(f);
  return m;
}

static void write_ppm(const char* path, const image* m) {
  FILE* f = fopen(path, "wb");
  int bad;
  if (f == NULL) die(path, "cannot be written");
  fprintf(f, "P6\n%d %d\n255\n", (int)m->width, (int)m->height);
  bad = fwrite(m->rgb, 3, (size_t)(m->height * m->width), f) != (size_t)(m->height * m->width);
  if (fclose(f) != 0 || bad) die(path, "cannot be written");
}

/* A disc, a square and noise on a shaded ground. */
static image draw(void) {
  image m = new_image(128, 128);
  unsigned seed = 1;
  int64_t i;
  for (i = 0; i < m.height * m.width; ++i) {
    const int64_t y = i / m.width, x = i % m.width;
    const int disc = (x - 46) * (x - 46) + (y - 48) * (y - 48) < 30 * 30, square = x > 66 && x < 112 && y > 64 && y < 110;
    const int noise = (int)((seed = seed * 1664525u + 1013904223u) >> 27) - 16;
    const int colour[3] = {disc ? 210 : square ? 70 : (int)(90 + x / 3), disc ? 90 : square ? 150 : (int)(110 + y / 3), disc ? 70 : square ? 200 : 120};
    int c;
    for (c = 0; c < 3; ++c) m.rgb[3 * i + c] = (uint8_t)(colour[c] + noise);
  }
  return m;
}

/* A column of Gaussian weights for each of three channels, which stay apart: [TAPS, 1, 1, 3]. */
static weft_tensor* gaussian(wf_scope* s) {
  float w[TAPS][3];
  double sum = 0;
  int i;
  for (i = 0; i < TAPS; ++i) sum += exp(-(i - TAPS / 2) * (i - TAPS / 2) / 4.5);
  for (i = 0; i < TAPS; ++i) w[i][0] = w[i][1] = w[i][2] = (float)(exp(-(i - TAPS / 2) * (i - TAPS / 2) / 4.5) / sum);
  return wf_from_host(s, WEFT_F32, WF_INTS(TAPS, 1, 1, 3), w, sizeof w);
}

/* [1, height, width, 3] of 0 to 255 -> the three pictures side by side, EDGE pixels smaller on every side. */
static weft_tensor* filter(wf_scope* s, weft_tensor* x, int64_t height, int64_t width) {
  static const float slope[3] = {-1, 0, 1}, mean[3] = {1, 2, 1};
  float sobel[3][3][3][2]; /* for each of three channels, d/dy and d/dx */
  const int64_t h = height - 2 * EDGE, w = width - 2 * EDGE;
  weft_tensor* column = gaussian(s);
  weft_tensor* blurred = wf_conv(s, x, column, .groups = 3); /* a Gaussian is a column times a row */
  weft_tensor *slopes, *edges, *original;
  int i, j, c;
  for (i = 0; i < 3; ++i)
    for (j = 0; j < 3; ++j)
      for (c = 0; c < 3; ++c) sobel[i][j][c][0] = slope[i] * mean[j], sobel[i][j][c][1] = mean[i] * slope[j];
  blurred = wf_conv(s, blurred, wf_transpose(s, column, WF_INTS(1, 0, 2, 3)), .groups = 3);
  slopes = wf_conv(s, blurred, wf_from_host(s, WEFT_F32, WF_INTS(3, 3, 1, 6), sobel, sizeof sobel), .groups = 3);
  edges = wf_sqrt(s, wf_sum(s, wf_square(s, slopes), .dims = WF_INTS(3), .keepdims = 1));
  edges = wf_broadcast_to(s, wf_n_sub(s, 255, edges), WF_INTS(1, h, w, 3));
  original = wf_slice(s, x, WF_INTS(0, EDGE, EDGE, 0), WF_INTS(1, EDGE + h, EDGE + w, 3), WF_INTS(1, 1, 1, 1));
  blurred = wf_slice(s, blurred, WF_INTS(0, 1, 1, 0), WF_INTS(1, 1 + h, 1 + w, 3), WF_INTS(1, 1, 1, 1));
  x = wf_concatenate(s, WF_TENSORS(original, blurred, edges), 2);
  return wf_convert(s, wf_round(s, wf_clip(s, x, .low = 0, .high = 255)), WEFT_U8);
}

int main(int argc, char** argv) {
  static const char USAGE[] = "usage: image_filter [IN.ppm] --out OUT.ppm\n\n  IN.ppm         a picture to filter; without it one is drawn\n  --out OUT.ppm  original, blurred and edges side by side\n";
  const char *in = NULL, *out = NULL;
  weft_context* ctx = NULL;
  weft_tensor* result;
  wf_scope* s;
  image from, to;
  int a;
  for (a = 1; a < argc; ++a) {
    if (strcmp(argv[a], "--out") == 0 && a + 1 < argc) out = argv[++a];
    else if (argv[a][0] != '-' && in == NULL) in = argv[a];
    else break;
  }
  if (a < argc || out == NULL) {
    const int help = a < argc && strcmp(argv[a], "--help") == 0;
    fputs(USAGE, help ? stdout : stderr);
    return help ? 0 : 2;
  }
  from = in != NULL ? read_ppm(in) : draw();
  to = new_image(from.height - 2 * EDGE, 3 * (from.width - 2 * EDGE));
  must(weft_context_create(NULL, &ctx));
  s = wf_begin(ctx);
  result = wf_from_host(s, WEFT_U8, WF_INTS(1, from.height, from.width, 3), from.rgb, (size_t)(from.height * from.width * 3));
  result = wf_keep(s, filter(s, wf_convert(s, result, WEFT_F32), from.height, from.width));
  must(wf_end(s));
  must(weft_tensor_to_host(result, to.rgb, (size_t)(to.height * to.width * 3)));
  weft_tensor_release(result);
  weft_context_release(ctx);
  write_ppm(out, &to);
  free(from.rgb);
  free(to.rgb);
  return 0;
}
