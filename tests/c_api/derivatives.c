/* weft_function_grad, _vjp and _jvp: values, wrt, captures, what draws, one in another, and what is refused. */
#include "check.h"

static const weft_tensor_info kTwo = {.dtype = WEFT_F32, .rank = 1, .dims = {2}};
static const weft_tensor_info kIndex = {.dtype = WEFT_I32, .rank = 0};

static weft_tensor* row(weft_context* ctx, float x, float y) {
  weft_tensor* out = NULL;
  OK(weft_tensor_from_host(ctx, NULL, WEFT_F32, DIMS(2), (const float[]){x, y}, 8, &out));
  return out;
}
static void expect(weft_tensor* tensor, size_t count, const float* wanted) {
  float found[4] = {0};
  OK(weft_tensor_to_host(tensor, found, count * 4));
  for (size_t i = 0; i < count; ++i) CHECK(found[i] == wanted[i]);
  weft_tensor_release(tensor);
}

/* (x, i) -> sum(x x c), x: `c` is captured. */
static weft_error* squares(void* user, weft_context* body, weft_tensor* const* in, size_t n, weft_tensor** out, size_t capacity, size_t* count) {
  weft_tensor *square = NULL, *scaled = NULL;
  (void)n, (void)capacity;
  OK(weft_mul(body, in[0], in[0], &square));
  OK(weft_mul(body, square, (weft_tensor*)user, &scaled));
  OK(weft_sum(body, scaled, NULL, &out[0]));
  OK(weft_mul(body, in[0], in[0], &out[1]));
  *count = 2;
  weft_tensor_release(square);
  weft_tensor_release(scaled);
  return NULL;
}
/* x -> x u for random numbers u. */
static weft_error* noise(void* user, weft_context* body, weft_tensor* const* in, size_t n, weft_tensor** out, size_t capacity, size_t* count) {
  weft_tensor* drawn = NULL;
  (void)user, (void)n, (void)capacity;
  OK(weft_uniform(body, DIMS(2), NULL, &drawn));
  OK(weft_mul(body, drawn, in[0], &out[0]));
  *count = 1;
  weft_tensor_release(drawn);
  return NULL;
}

static void results(weft_context* ctx) {
  weft_tensor *c = row(ctx, 3, 5), *x = row(ctx, 1, 2), *t = row(ctx, 1, 1), *g = row(ctx, 10, 100), *i = NULL, *one = NULL, *out[4] = {NULL};
  weft_function *f = NULL, *grad = NULL, *made = NULL;
  size_t count = 0;
  OK(weft_tensor_from_i64(ctx, WEFT_I32, 7, &i));
  OK(weft_tensor_from_f64(ctx, WEFT_F32, 1, &one));
  OK(weft_tensor_require_grad(c, 1));
  OK(weft_function_trace(ctx, "squares", WEFT_STRLEN, (const weft_tensor_info[]){kTwo, kIndex}, 2, squares, c, 2, &f));

  weft_derivative_options options = WEFT_DERIVATIVE_OPTIONS_INIT;
  options.values = 1;
  OK(weft_function_grad(ctx, f, NULL, 0, NULL, &grad));
  OK(weft_function_call(ctx, grad, (weft_tensor*[]){x, i}, 2, out, 4, &count));
  CHECK(count == 1);
  expect(out[0], 2, (const float[]){6, 20});
  OK(weft_function_grad(ctx, f, (const int64_t[]){0}, 1, &options, &made));
  OK(weft_function_run(ctx, made, (weft_tensor*[]){x, i}, 2, NULL, 0, out, 4, &count));
  CHECK(count == 3);
  expect(out[0], 1, (const float[]){23});
  expect(out[1], 2, (const float[]){1, 4});
  expect(out[2], 2, (const float[]){6, 20});
  weft_function_release(made);

  OK(weft_function_vjp(ctx, f, NULL, 0, NULL, &made));
  OK(weft_function_call(ctx, made, (weft_tensor*[]){x, i, one, g}, 4, out, 4, &count));
  CHECK(count == 1);
  expect(out[0], 2, (const float[]){26, 420});
  weft_function_release(made);
  OK(weft_function_jvp(ctx, f, NULL, 0, NULL, &made));
  OK(weft_function_call(ctx, made, (weft_tensor*[]){x, i, t}, 3, out, 4, &count));
  CHECK(count == 2);
  expect(out[0], 1, (const float[]){26});
  expect(out[1], 2, (const float[]){2, 4});
  weft_function_release(made);

  /* The Hessian times a vector; the gradient of each example; the gradient of the gradient by what was captured. */
  OK(weft_function_jvp(ctx, grad, NULL, 0, NULL, &made));
  OK(weft_function_call(ctx, made, (weft_tensor*[]){x, i, t}, 3, out, 4, &count));
  expect(out[0], 2, (const float[]){6, 10});
  weft_function_release(made);
  OK(weft_function_vmap(ctx, grad, 2, (const int64_t[]){0, WEFT_NOT_MAPPED}, 2, NULL, 0, NULL, &made));
  weft_tensor *both = NULL, *total = NULL;
  OK(weft_tensor_from_host(ctx, NULL, WEFT_F32, DIMS(2, 2), (const float[]){1, 2, 3, 4}, 16, &both));
  OK(weft_function_call(ctx, made, (weft_tensor*[]){both, i}, 2, out, 4, &count));
  OK(weft_sum(ctx, out[0], NULL, &total));
  expect(out[0], 4, (const float[]){6, 20, 18, 40});
  weft_tensor* slope = NULL;
  OK(weft_grad(ctx, total, NULL, &c, 1, &slope));
  expect(slope, 2, (const float[]){8, 12});
  weft_function_release(made);

  weft_function* none = NULL;
  FAILS(weft_function_grad(ctx, f, (const int64_t[]){1}, 1, NULL, &none), WEFT_INVALID_ARGUMENT,
      "weft_function_grad: wrt[0] is 1; input 1 of the function @squares is i32[], and only floats and complex numbers have derivatives");
  FAILS(weft_function_vjp(ctx, f, (const int64_t[]){0, 2}, 2, NULL, &none), WEFT_INVALID_ARGUMENT,
      "weft_function_vjp: wrt[1] is 2; the function @squares has 2 inputs");
  FAILS(weft_function_vjp(ctx, f, (const int64_t[]){0, 1, 2}, 3, NULL, &none), WEFT_INVALID_ARGUMENT,
      "weft_function_vjp: wrt has 3 entries; the function @squares has 2 inputs");
  FAILS(weft_function_jvp(ctx, f, NULL, 1, NULL, &none), WEFT_INVALID_ARGUMENT, "weft_function_jvp: wrt is NULL");
  FAILS(weft_function_jvp(ctx, f, (const int64_t[]){0}, 0, NULL, &none), WEFT_INVALID_ARGUMENT,
      "weft_function_jvp: wrt is empty; NULL means every float input");
  CHECK(none == NULL);
  for (weft_function** p = (weft_function*[]){f, grad, NULL}; *p != NULL; ++p) weft_function_release(*p);
  for (weft_tensor** p = (weft_tensor*[]){c, x, t, g, i, one, both, total, NULL}; *p != NULL; ++p) weft_tensor_release(*p);
}

/* A draw of its own for each call, the same in values and slopes. */
static void what_draws(weft_context* ctx) {
  weft_function *f = NULL, *made = NULL;
  weft_tensor *x = row(ctx, 1, 1), *g = row(ctx, 1, 1), *out[2] = {NULL};
  weft_derivative_options options = WEFT_DERIVATIVE_OPTIONS_INIT;
  float first[2] = {0}, found[2][2] = {{0}};
  size_t count = 0;
  options.values = 1;
  OK(weft_function_trace(ctx, "noise", WEFT_STRLEN, &kTwo, 1, noise, NULL, 1, &f));
  OK(weft_function_vjp(ctx, f, NULL, 0, &options, &made));
  for (int call = 0; call < 2; ++call) {
    OK(weft_function_call(ctx, made, (weft_tensor*[]){x, g}, 2, out, 2, &count));
    CHECK(count == 2);
    for (int k = 0; k < 2; ++k) {
      OK(weft_tensor_to_host(out[k], found[k], 8));
      weft_tensor_release(out[k]);
    }
    CHECK(found[0][0] == found[1][0] && found[0][1] == found[1][1] && found[0][0] != found[0][1]);
    CHECK(call == 0 || found[0][0] != first[0]);
    first[0] = found[0][0];
  }
  FAILS(weft_function_grad(ctx, f, NULL, 0, NULL, &made), WEFT_INVALID_ARGUMENT,
      "weft_function_grad: result 0 of the function @noise is f32[2]; a gradient is of one float: reduce it, or give cotangents to a vjp");
  weft_function_release(made);
  weft_function_release(f);
  weft_tensor_release(x);
  weft_tensor_release(g);
}

int main(void) {
  weft_context* ctx = NULL;
  ctx = new_context();
  results(ctx);
  what_draws(ctx);
  weft_context_release(ctx);
  return done("derivatives");
}
