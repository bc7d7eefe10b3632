/* A small training loop with one of five mistakes in it, for docs/seeing_inside.md, which asks where each of them is:
 *
 *   constant   each step compiles again
 *   reads      each step waits for eight values
 *   leak       memory grows
 *   nan        step 37 makes a NaN, in a gradient
 *   kernels    no mistake: which part takes the time?
 *
 *   cc five_questions.c $(pkg-config --cflags --libs weft) -Wl,-rpath,$(pkg-config --variable=libdir weft) -o five_questions
 *   ./five_questions constant */
#include <stdio.h>
#include <string.h>

#include "weft.h"
#include "weft_fluent.h"

enum { STEPS = 60, ROWS = 128, WIDTH = 512, READS = 8 };

static const char* const kMistakes[] = {"constant", "reads", "leak", "nan", "kernels"};

/* One step of w towards 0 by hand, so that each part has its line. */
static void step(weft_scope* s, const char* mistake, int i, weft_tensor* x, weft_tensor* w, weft_tensor** kept) {
  weft_tensor* hidden = wf_tanh(s, wf_matmul(s, x, w));
  weft_tensor* square = wf_square(s, hidden);
  weft_tensor* loss = wf_mean(s, square);
  weft_tensor* slope = NULL;
  if (strcmp(mistake, "nan") == 0) {
    /* The root of the loss, whose gradient is infinite where the loss is 0, and 0 times infinity is no number. */
    weft_tensor* dead = wf_mul(s, loss, wf_scalar(s, WEFT_F32, i == 37 ? 0 : 1));
    loss = wf_sqrt(s, dead);
  }
  wf_grad(s, loss, WF_TENSORS(w), &slope);
  if (strcmp(mistake, "constant") == 0) {
    slope = wf_mul(s, slope, wf_full(s, WF_INTS(1), 0.1 / (i + 1))); /* a literal of the program: wf_mul_arg would not be */
  } else {
    slope = wf_mul_arg(s, slope, 0.1 / (i + 1));
  }
  wf_try(s, weft_tensor_assign(w, wf_sub(s, w, slope)));
  if (strcmp(mistake, "leak") == 0) kept[i] = wf_keep(s, hidden); /* "for the plot, later" */
  if (strcmp(mistake, "reads") == 0) {
    for (int k = 0; k < READS; ++k) (void)wf_item(s, wf_mul_arg(s, loss, k));
  }
}

static int is_known(const char* mistake) {
  for (size_t i = 0; i < sizeof kMistakes / sizeof kMistakes[0]; ++i) {
    if (strcmp(mistake, kMistakes[i]) == 0) return 1;
  }
  return 0;
}

/* Two outcomes: the first failure counts. */
static weft_error* first_of(weft_error* a, weft_error* b) {
  if (a == NULL) return b;
  weft_error_release(b);
  return a;
}

int main(int argc, char** argv) {
  weft_tensor* kept[STEPS] = {NULL};
  weft_context* ctx = NULL;
  weft_error* error = NULL;
  weft_scope* s;
  weft_tensor *x = NULL, *w = NULL;
  double last = 0;
  if (argc != 2 || !is_known(argv[1])) {
    const int help = argc == 2 && strcmp(argv[1], "--help") == 0;
    fprintf(help ? stdout : stderr, "usage: five_questions constant | reads | leak | nan | kernels\n");
    return help ? 0 : 2;
  }
  error = weft_context_create(NULL, &ctx);
  if (error == NULL) {
    s = wf_begin(ctx);
    x = wf_keep(s, wf_normal(s, WF_INTS(ROWS, WIDTH)));
    w = wf_keep(s, wf_mul_arg(s, wf_normal(s, WF_INTS(WIDTH, WIDTH)), 0.05));
    wf_try(s, weft_tensor_require_grad(w, 1));
    wf_try(s, weft_sync(ctx, NULL, NULL));
    for (int i = 0; i < STEPS && error == NULL; ++i) {
      weft_scope* inner = wf_begin(ctx);
      step(inner, argv[1], i, x, w, kept);
      wf_try(inner, weft_sync(ctx, NULL, NULL));
      error = wf_end(inner);
    }
    if (error == NULL) last = wf_item(s, wf_mean(s, wf_square(s, w)));
    error = first_of(error, wf_end(s));
  }
  for (int i = 0; i < STEPS; ++i) weft_tensor_release(kept[i]);
  weft_tensor_release(x);
  weft_tensor_release(w);
  weft_context_release(ctx);
  if (error != NULL) {
    fprintf(stderr, "five_questions: %s\n", weft_error_message(error, NULL));
    weft_error_release(error);
    return 1;
  }
  printf("mean square of the weights: %.6f\n", last);
  return 0;
}
