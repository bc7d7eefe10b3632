/* weft_function_vmap: axes, captures, gradients, what draws, vmap of vmap, and what is refused. */
#include "check.h"

static const weft_tensor_info kTwo = {.dtype = WEFT_F32, .rank = 1, .dims = {2}};
static const weft_tensor_info kScalar = {.dtype = WEFT_F32, .rank = 0};

static weft_tensor* matrix(weft_context* ctx, int64_t rows, int64_t columns, const float* data) {
  weft_tensor* out = NULL;
  OK(weft_tensor_from_host(ctx, NULL, WEFT_F32, DIMS(rows, columns), data, (size_t)(rows * columns) * 4, &out));
  return out;
}
static void expect(weft_tensor* tensor, size_t count, const float* wanted) {
  float found[16] = {0};
  OK(weft_tensor_to_host(tensor, found, count * 4));
  for (size_t i = 0; i < count; ++i) CHECK(found[i] == wanted[i]);
  weft_tensor_release(tensor);
}

/* x * scale + y: `scale` is captured. */
static weft_error* scaled(void* user, weft_context* body, weft_tensor* const* in, size_t n, weft_tensor** out, size_t capacity, size_t* count) {
  weft_tensor* product = NULL;
  (void)n, (void)capacity;
  OK(weft_mul(body, in[0], (weft_tensor*)user, &product));
  OK(weft_add(body, product, in[1], &out[0]));
  *count = 1;
  weft_tensor_release(product);
  return NULL;
}
static weft_error* noise(void* user, weft_context* body, weft_tensor* const* in, size_t n, weft_tensor** out, size_t capacity, size_t* count) {
  weft_tensor* drawn = NULL;
  (void)user, (void)n, (void)capacity;
  OK(weft_uniform(body, DIMS(2), NULL, &drawn));
  OK(weft_add(body, drawn, in[0], &out[0]));
  *count = 1;
  weft_tensor_release(drawn);
  return NULL;
}

static void results_axes_captures_and_gradients(weft_context* ctx) {
  weft_tensor *scale = NULL, *y = NULL, *out = NULL, *loss = NULL, *slope = NULL;
  OK(weft_tensor_from_f64(ctx, WEFT_F32, 10, &scale));
  OK(weft_tensor_require_grad(scale, 1));
  OK(weft_tensor_from_f64(ctx, WEFT_F32, 0.5, &y));
  const weft_tensor_info types[] = {kTwo, kScalar};
  weft_function *one = NULL, *many = NULL, *twice = NULL;
  OK(weft_function_trace(ctx, "scaled", WEFT_STRLEN, types, 2, scaled, scale, 1, &one));
  weft_tensor* x = matrix(ctx, 2, 3, (const float[]){1, 2, 3, 4, 5, 6}); /* examples are columns */
  size_t count = 0;
  OK(weft_function_vmap(ctx, one, 3, (const int64_t[]){1, WEFT_NOT_MAPPED}, 2, NULL, 0, NULL, &many));
  OK(weft_function_call(ctx, many, (weft_tensor*[]){x, y}, 2, &out, 1, &count));
  OK(weft_sum(ctx, out, NULL, &loss));
  OK(weft_grad(ctx, loss, NULL, &scale, 1, &slope));
  expect(slope, 1, (const float[]){21});
  expect(out, 6, (const float[]){10.5f, 40.5f, 20.5f, 50.5f, 30.5f, 60.5f});
  weft_tensor_release(loss);
  weft_function_release(many);

  weft_tensor* ys = matrix(ctx, 2, 3, (const float[]){1, 2, 3, 4, 5, 6});
  OK(weft_function_vmap(ctx, one, 3, (const int64_t[]){WEFT_NOT_MAPPED, 0}, 2, (const int64_t[]){-1}, 1, NULL, &many));
  OK(weft_function_vmap(ctx, many, 2, (const int64_t[]){0, 0}, 2, NULL, 0, NULL, &twice));
  weft_tensor* xs = matrix(ctx, 2, 2, (const float[]){1, 2, 3, 4});
  OK(weft_function_call(ctx, twice, (weft_tensor*[]){xs, ys}, 2, &out, 1, &count));
  expect(out, 12, (const float[]){11, 12, 13, 21, 22, 23, 34, 35, 36, 44, 45, 46});

  weft_function* none = NULL;
  FAILS(weft_function_vmap(ctx, one, 3, (const int64_t[]){1}, 1, NULL, 0, NULL, &none), WEFT_INVALID_ARGUMENT,
      "weft_function_vmap: in_axes has 1 entries; the function has 2 inputs");
  FAILS(weft_function_vmap(ctx, one, 3, NULL, 0, (const int64_t[]){0, 0}, 2, NULL, &none), WEFT_INVALID_ARGUMENT,
      "weft_function_vmap: out_axes has 2 entries; the function has 1 results");
  FAILS(weft_function_vmap(ctx, one, 0, NULL, 0, NULL, 0, NULL, &none), WEFT_INVALID_ARGUMENT, "weft_function_vmap: size is 0; there must be at least one example");
  FAILS(weft_function_vmap(ctx, one, 3, (const int64_t[]){2, 0}, 2, NULL, 0, NULL, &none), WEFT_INVALID_ARGUMENT,
      "weft_function_vmap: in_axes[0] is 2; input 0 of one example is f32[2], so that the examples can lie along axes -2 to 1");
  FAILS(weft_function_vmap(ctx, one, INT64_C(1) << 60, NULL, 0, NULL, 0, NULL, &none), WEFT_INVALID_ARGUMENT,
      "weft_function_vmap: input 0: 1152921504606846976 examples of f32[2] are more elements, or dimensions, than a tensor can have");
  FAILS(weft_function_vmap(ctx, one, 3, (const int64_t[]){0, 0}, 2, (const int64_t[]){WEFT_NOT_MAPPED}, 1, NULL, &none), WEFT_INVALID_ARGUMENT,
      "weft_function_vmap: out_axes[0] says that the examples share result 0 of the function @scaled, which depends on what they have each: it needs an axis");
  weft_vmap_options options = WEFT_VMAP_OPTIONS_INIT;
  options.randomness = (weft_randomness)7;
  FAILS(weft_function_vmap(ctx, one, 3, NULL, 0, NULL, 0, &options, &none), WEFT_INVALID_ARGUMENT,
      "weft_vmap_options: randomness is 7; it is 0, 1 or 2");
  FAILS(weft_function_vmap(ctx, one, 3, NULL, 2, NULL, 0, NULL, &none), WEFT_INVALID_ARGUMENT, "weft_function_vmap: in_axes is NULL");
  CHECK(none == NULL);
  for (weft_function** f = (weft_function*[]){one, many, twice, NULL}; *f != NULL; ++f) weft_function_release(*f);
  for (weft_tensor** t = (weft_tensor*[]){x, y, xs, ys, scale, NULL}; *t != NULL; ++t) weft_tensor_release(*t);
}

static void what_draws(weft_context* ctx) {
  weft_function *one = NULL, *many = NULL;
  OK(weft_function_trace(ctx, "noise", WEFT_STRLEN, &kTwo, 1, noise, NULL, 1, &one));
  weft_tensor *zeros = matrix(ctx, 2, 2, (const float[4]){0}), *out = NULL;
  weft_vmap_options options = WEFT_VMAP_OPTIONS_INIT;
  for (int mode = 0; mode < 2; ++mode) {
    float found[4] = {0};
    size_t count = 0;
    options.randomness = (weft_randomness)mode;
    OK(weft_function_vmap(ctx, one, 2, NULL, 0, NULL, 0, &options, &many));
    OK(weft_function_call(ctx, many, &zeros, 1, &out, 1, &count));
    OK(weft_tensor_to_host(out, found, sizeof found));
    CHECK(found[0] != found[1]);
    CHECK((found[0] == found[2] && found[1] == found[3]) == (mode == WEFT_RANDOMNESS_SAME));
    weft_tensor_release(out);
    weft_function_release(many);
  }
  options.randomness = WEFT_RANDOMNESS_ERROR;
  FAILS(weft_function_vmap(ctx, one, 2, NULL, 0, NULL, 0, &options, &many), WEFT_INVALID_ARGUMENT,
      "weft_function_vmap: the function @noise draws random numbers, which randomness forbids: examples may draw different ones, or the same");
  weft_tensor_release(zeros);
  weft_function_release(one);
}

int main(void) {
  weft_context* ctx = NULL;
  ctx = new_context();
  results_axes_captures_and_gradients(ctx);
  what_draws(ctx);
  weft_context_release(ctx);
  return done("vmap");
}
