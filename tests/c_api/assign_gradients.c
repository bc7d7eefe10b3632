/* The two assignments: weft_tensor_copy_from lets gradients through, weft_tensor_assign stops them, in the program, in steps that are
 * replayed, in bodies of functions, in every mode and on both platforms. */
#include "check.h"

enum { kSteps = 12 };

typedef weft_error* (*assignment)(weft_tensor* target, weft_tensor* value);

static void expect(weft_tensor* t, double first, double second, int line) {
  float host[2] = {0};
  if (!OK(weft_tensor_to_host(t, host, sizeof host))) return;
  if (fabs(host[0] - first) > 1e-5 * fabs(first) || fabs(host[1] - second) > 1e-5 * fabs(second)) {
    printf("%s:%d: {%g, %g}, not {%g, %g}\n", __FILE__, line, (double)host[0], (double)host[1], first, second);
    ++g_failures;
  }
}
#define EXPECT(t, first, second) expect((t), (first), (second), __LINE__)

static weft_tensor* pair(weft_context* ctx, float first, float second) {
  const float data[] = {first, second};
  return f32(ctx, DIMS(2), data);
}

/* h <- w^2, sum(h) + 10 sum(w): {12, 14} through it, else {10, 10}. */
static weft_tensor* loss_of(wf_scope* s, weft_tensor* h, weft_tensor* w, assignment assign) {
  wf_try(s, assign(h, wf_mul(s, w, w)));
  return wf_add(s, wf_sum(s, h), wf_mul_n(s, wf_sum(s, w), 10));
}

static void once(weft_context* ctx) {
  weft_tensor *w = pair(ctx, 1, 2), *h = pair(ctx, 0, 0), *g = NULL;
  wf_scope* s = wf_begin(ctx);
  OK(weft_tensor_require_grad(w, 1));
  wf_grad(s, loss_of(s, h, w, weft_tensor_copy_from), &w, 1, &g);
  EXPECT(g, 12, 14);
  EXPECT(h, 1, 4);
  wf_grad(s, loss_of(s, h, w, weft_tensor_assign), &w, 1, &g);
  EXPECT(g, 10, 10);
  EXPECT(h, 1, 4);
  /* What was recorded before keeps the old value; a chain of assignments; a leaf. */
  {
    weft_tensor* const before = wf_mul(s, h, w); /* {1, 8}: h is 1, 4 and has no past */
    OK(weft_tensor_copy_from(h, wf_mul(s, w, w)));
    OK(weft_tensor_copy_from(h, wf_mul(s, h, w)));
    wf_grad(s, wf_sum(s, h), &w, 1, &g);
    EXPECT(g, 3, 12);
    wf_grad(s, wf_sum(s, before), &w, 1, &g);
    EXPECT(g, 1, 4);
    OK(weft_tensor_copy_from(h, w));
    wf_grad(s, wf_sum(s, wf_mul(s, h, h)), &w, 1, &g);
    EXPECT(g, 2, 4);
  }
  OK(wf_end(s));
  weft_tensor_release(w);
  weft_tensor_release(h);
}

/* A target with a mark keeps it; gradients with respect to it are those that arrive at the value. */
static void marked(weft_context* ctx) {
  weft_tensor *w = pair(ctx, 1, 2), *t = pair(ctx, 5, 6), *g[2] = {NULL, NULL}, *both[2];
  wf_scope* s = wf_begin(ctx);
  OK(weft_tensor_require_grad(w, 1));
  OK(weft_tensor_require_grad(t, 1));
  OK(weft_tensor_copy_from(t, wf_mul(s, w, w)));
  both[0] = t, both[1] = w;
  wf_grad(s, wf_sum(s, wf_mul(s, t, t)), both, 2, g);
  EXPECT(g[0], 2, 8);
  EXPECT(g[1], 4, 32);
  OK(weft_tensor_copy_from(t, wf_stop_gradient(s, wf_mul(s, w, w))));
  wf_grad(s, wf_sum(s, wf_mul(s, t, t)), both, 2, g);
  EXPECT(g[0], 2, 8);
  EXPECT(g[1], 0, 0);
  OK(wf_end(s));
  weft_tensor_release(w);
  weft_tensor_release(t);
}

/* Steps that come again are replayed, and the two verbs are never taken for one another. */
static void steps(weft_context* ctx, int replays) {
  weft_tensor *w = pair(ctx, 1, 2), *h = pair(ctx, 0, 0);
  double a = 1, b = 2;
  const int64_t before = metric(ctx, "steps_replayed");
  int k;
  OK(weft_tensor_require_grad(w, 1));
  for (k = 0; k < kSteps; ++k) {
    const int through = k < kSteps / 2 || k % 2 == 0;
    wf_scope* s = wf_begin(ctx);
    weft_tensor* g = NULL;
    wf_grad(s, loss_of(s, h, w, through ? weft_tensor_copy_from : weft_tensor_assign), &w, 1, &g);
    OK(weft_tensor_assign(w, wf_sub(s, w, wf_mul_n(s, g, 0.01))));
    OK(wf_end(s));
    OK(weft_sync(ctx, NULL, NULL));
    EXPECT(h, a * a, b * b);
    a -= 0.01 * ((through ? 2 * a : 0) + 10);
    b -= 0.01 * ((through ? 2 * b : 0) + 10);
    EXPECT(w, a, b);
  }
  if (replays) CHECK(metric(ctx, "steps_replayed") - before > 2);
  weft_tensor_release(w);
  weft_tensor_release(h);
}

static weft_error* body(void* data, weft_context* ctx, weft_tensor* const* in, size_t count, weft_tensor** out, size_t capacity,
                        size_t* out_count) {
  wf_scope* const s = wf_begin(ctx);
  weft_tensor* const h = wf_copy(s, in[1]);
  (void)count, (void)capacity;
  out[0] = wf_keep(s, loss_of(s, h, in[0], *(assignment*)data));
  *out_count = 1;
  return wf_end(s);
}
static void bodies(weft_context* ctx) {
  const weft_tensor_info row[] = {{WEFT_F32, 1, {2}}, {WEFT_F32, 1, {2}}};
  assignment each[] = {weft_tensor_copy_from, weft_tensor_assign};
  weft_tensor *in[2], *out = NULL;
  const int64_t wrt = 0;
  size_t count = 0;
  int i;
  in[0] = pair(ctx, 1, 2), in[1] = pair(ctx, 0, 0);
  for (i = 0; i < 2; ++i) {
    weft_function *f = NULL, *grad = NULL;
    OK(weft_function_trace(ctx, "f", WEFT_STRLEN, row, 2, body, &each[i], 1, &f));
    OK(weft_function_grad(ctx, f, &wrt, 1, NULL, &grad));
    OK(weft_function_call(ctx, grad, in, 2, &out, 1, &count));
    if (i == 0) {
      EXPECT(out, 12, 14);
    } else {
      EXPECT(out, 10, 10);
    }
    weft_tensor_release(out);
    weft_function_release(f);
    weft_function_release(grad);
  }
  weft_tensor_release(in[0]);
  weft_tensor_release(in[1]);
}

static void refused(weft_context* ctx) {
  weft_tensor *w = pair(ctx, 1, 2), *h = pair(ctx, 0, 0), *n = scalar(ctx, 1), *y = NULL, *g = NULL;
  INVALID(weft_tensor_copy_from(h, n), "weft_tensor_copy_from: target is f32[2], value f32[]; dtype and shape must be the same");
  INVALID(weft_tensor_copy_from(h, NULL), "weft_tensor_copy_from: value is NULL; a weft_tensor is needed");
  INVALID(weft_tensor_copy_from(NULL, h), "weft_tensor_copy_from: target is NULL; a weft_tensor is needed");
  OK(weft_tensor_copy_from(h, h));
  OK(weft_tensor_require_grad(w, 1));
  OK(weft_mul(ctx, w, w, &y));
  OK(weft_tensor_assign(h, y));
  weft_tensor_release(y);
  OK(weft_sum(ctx, h, NULL, &y));
  FAILS(weft_grad(ctx, y, NULL, &w, 1, &g), WEFT_FAILED_PRECONDITION,
        "weft_grad: y does not depend on any tensor that requires a gradient: it was recorded from others than xs, or before "
        "weft_tensor_require_grad was called on them, or what lies between stops gradients, as weft_tensor_assign does "
        "(weft_tensor_copy_from lets them through)");
  weft_tensor_release(w);
  weft_tensor_release(h);
  weft_tensor_release(n);
  weft_tensor_release(y);
}

int main(void) {
  static const weft_mode modes[] = {WEFT_MODE_LAZY, WEFT_MODE_EAGER, WEFT_MODE_DEBUG};
  static const char* const platforms[] = {"cpu", "reference"};
  int m, p;
  for (p = 0; p < 2; ++p) {
    for (m = 0; m < 3; ++m) {
      weft_context* ctx = context_on(platforms[p], modes[m]);
      once(ctx);
      marked(ctx);
      steps(ctx, modes[m] == WEFT_MODE_LAZY);
      bodies(ctx);
      refused(ctx);
      weft_context_release(ctx);
    }
  }
  return done("assign_gradients");
}
