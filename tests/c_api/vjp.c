/* weft_op_vjp: gradients of one operation without a recorded past, against finite differences; gradients with a cotangent. */
#include "check.h"

enum { MOST = 64 };

static weft_tensor* f64(weft_context* ctx, const int64_t* dims, size_t rank, const double* data) {
  weft_tensor* out = NULL;
  size_t i, count = 1;
  for (i = 0; i < rank; ++i) count *= (size_t)dims[i];
  MUST(weft_tensor_from_host(ctx, NULL, WEFT_F64, dims, rank, data, count * sizeof(double), &out));
  return out;
}

static size_t read(weft_tensor* t, double* data) {
  int64_t count = 0;
  MUST(weft_tensor_count(t, &count));
  CHECK(count <= MOST);
  MUST(weft_tensor_to_host(t, data, (size_t)count * sizeof(double)));
  return (size_t)count;
}

typedef struct {
  const char* name;
  size_t inputs, results;
  size_t rank[3];
  int64_t dims[3][3];
  const weft_attr* attrs;
  size_t attr_count;
} sample;

/* The sum of all results times their cotangents, at inputs one of whose elements is moved. */
static double at(weft_context* ctx, const sample* c, double x[3][MOST], double g[3][MOST], size_t input, size_t element, double step) {
  weft_tensor *in[3], *out[3];
  double y[MOST], sum = 0;
  size_t i, k, n, made = 0;
  x[input][element] += step;
  for (i = 0; i < c->inputs; ++i) in[i] = f64(ctx, c->dims[i], c->rank[i], x[i]);
  x[input][element] -= step;
  MUST(weft_op_apply(ctx, c->name, WEFT_STRLEN, in, c->inputs, c->attrs, c->attr_count, out, 3, &made));
  CHECK_EQUAL(made, c->results);
  for (i = 0; i < made; ++i) {
    n = read(out[i], y);
    for (k = 0; k < n; ++k) sum += y[k] * g[i][k];
    weft_tensor_release(out[i]);
  }
  for (i = 0; i < c->inputs; ++i) weft_tensor_release(in[i]);
  return sum;
}

static void by_differences(weft_context* ctx, const sample* c, int with_results) {
  double x[3][MOST], g[3][MOST], have[MOST];
  weft_tensor *in[3], *out[3], *cotangents[3], *grads[3];
  weft_tensor_info infos[3];
  size_t i, k, n, made = 0;
  for (i = 0; i < 3; ++i) {
    for (k = 0; k < MOST; ++k) {
      x[i][k] = 0.3 + 0.11 * (double)((k * 7 + i * 5) % 13); /* no ties, nothing at an edge */
      g[i][k] = 0.5 + 0.07 * (double)((k * 5 + i) % 11);
    }
  }
  for (i = 0; i < c->inputs; ++i) in[i] = f64(ctx, c->dims[i], c->rank[i], x[i]);
  MUST(weft_op_apply_on(ctx, NULL, c->name, WEFT_STRLEN, in, c->inputs, c->attrs, c->attr_count, out, infos, 3, &made));
  for (i = 0; i < made; ++i) cotangents[i] = f64(ctx, infos[i].dims, infos[i].rank, g[i]);
  MUST(weft_sync(ctx, NULL, NULL)); /* weft_grad would have nothing to go by */
  MUST(weft_op_vjp(ctx, c->name, WEFT_STRLEN, in, c->inputs, c->attrs, c->attr_count, with_results ? out : NULL, cotangents, made, NULL, grads));
  for (i = 0; i < c->inputs; ++i) {
    if (grads[i] == NULL) {
      printf("%s: no gradient of input %d\n", c->name, (int)i);
      ++g_failures;
      continue;
    }
    n = read(grads[i], have);
    for (k = 0; k < n; ++k) {
      const double h = 1e-5;
      const double want = (at(ctx, c, x, g, i, k, h) - at(ctx, c, x, g, i, k, -h)) / (2 * h);
      if (!(fabs(have[k] - want) <= 1e-7 * (1 + fabs(want)))) {
        printf("%s: input %d, element %d: %.9g, by differences %.9g\n", c->name, (int)i, (int)k, have[k], want);
        ++g_failures;
      }
    }
    weft_tensor_release(grads[i]);
  }
  for (i = 0; i < made; ++i) weft_tensor_release(out[i]), weft_tensor_release(cotangents[i]);
  for (i = 0; i < c->inputs; ++i) weft_tensor_release(in[i]);
}

static void every_kind_by_differences(void) {
  const int64_t last = 1;
  const weft_attr axis = {"axis", WEFT_STRLEN, WEFT_VALUE_INT, 0, 1, 0, NULL, 0};
  const weft_attr dims = {"dims", WEFT_STRLEN, WEFT_VALUE_INTS, 0, 0, 0, &last, 1};
  const weft_attr dimension = {"dimension", WEFT_STRLEN, WEFT_VALUE_INT, 0, 1, 0, NULL, 0};
  const sample samples[] = {
      {"mul", 2, 1, {2, 1}, {{2, 3}, {3}}, NULL, 0},                       /* broadcasts */
      {"exp", 1, 1, {2}, {{2, 3}}, NULL, 0},                               /* its rule uses the result */
      {"div", 2, 1, {1, 1}, {{4}, {4}}, NULL, 0},
      {"softmax", 1, 1, {2}, {{2, 4}}, &axis, 1},                          /* a composite with a rule */
      {"matmul", 2, 1, {2, 2}, {{2, 3}, {3, 2}}, NULL, 0},                 /* a macro */
      {"linear", 3, 1, {2, 2, 1}, {{2, 3}, {3, 2}, {2}}, NULL, 0},
      {"concatenate", 3, 1, {2, 2, 2}, {{2, 1}, {2, 2}, {2, 3}}, &dimension, 1}, /* any number of inputs */
      {"std", 1, 1, {2}, {{2, 4}}, &dims, 1},
      {"batch_norm", 3, 3, {2, 1, 1}, {{4, 2}, {2}, {2}}, NULL, 0},        /* several results */
      {"scaled_dot_product_attention", 3, 1, {2, 2, 2}, {{2, 3}, {4, 3}, {4, 2}}, NULL, 0},
  };
  weft_context* ctx = new_context();
  size_t i;
  for (i = 0; i < sizeof samples / sizeof *samples; ++i) {
    by_differences(ctx, &samples[i], 0);
    by_differences(ctx, &samples[i], 1);
  }
  weft_context_release(ctx);
}

static void what_has_no_gradient(void) {
  weft_context* ctx = new_context();
  const float data[] = {1, 2, 3, 4};
  const int32_t rows[] = {1, 0}, second_only[] = {0, 1};
  weft_tensor *x = f32(ctx, DIMS(2, 2), data), *index = NULL, *in[3], *g = f32(ctx, DIMS(2, 2), data), *bool_g = NULL;
  weft_tensor *grads[3] = {x, x, x}, *bad[2], *mask[1];
  const weft_attr axis = {"axis", WEFT_STRLEN, WEFT_VALUE_INT, 0, 0, 0, NULL, 0};
  MUST(weft_tensor_from_host(ctx, NULL, WEFT_I32, DIMS(2), rows, sizeof rows, &index));
  in[0] = x;
  in[1] = index;
  MUST(weft_op_vjp(ctx, "take", WEFT_STRLEN, in, 2, &axis, 1, NULL, &g, 1, NULL, grads));
  CHECK(grads[0] != NULL && grads[1] == NULL); /* indices have none */
  weft_tensor_release(grads[0]);
  in[1] = x;
  MUST(weft_op_vjp(ctx, "mul", WEFT_STRLEN, in, 2, NULL, 0, NULL, &g, 1, second_only, grads));
  CHECK(grads[0] == NULL && grads[1] != NULL); /* not wanted */
  weft_tensor_release(grads[1]);
  in[2] = NULL;
  MUST(weft_op_vjp(ctx, "linear", WEFT_STRLEN, in, 3, NULL, 0, NULL, &g, 1, NULL, grads));
  CHECK(grads[0] != NULL && grads[1] != NULL && grads[2] == NULL); /* absent */
  weft_tensor_release(grads[0]);
  weft_tensor_release(grads[1]);
  bad[0] = NULL;
  MUST(weft_op_vjp(ctx, "floor", WEFT_STRLEN, in, 1, NULL, 0, NULL, &g, 1, NULL, grads));
  CHECK(grads[0] == NULL); /* passes none on */
  MUST(weft_op_vjp(ctx, "exp", WEFT_STRLEN, in, 1, NULL, 0, NULL, bad, 1, NULL, grads));
  CHECK(grads[0] == NULL); /* none arrives */

  INVALID(weft_op_vjp(ctx, "exp", WEFT_STRLEN, in, 1, NULL, 0, NULL, &index, 1, NULL, grads),
          "exp(f32[2, 2]): cotangents[0] is i32[2]; the result is f32[2, 2]");
  INVALID(weft_op_vjp(ctx, "exp", WEFT_STRLEN, in, 1, NULL, 0, &index, &g, 1, NULL, grads),
          "exp(f32[2, 2]): results[0] is i32[2]; the result is f32[2, 2]");
  bad[0] = bad[1] = g;
  INVALID(weft_op_vjp(ctx, "exp", WEFT_STRLEN, in, 1, NULL, 0, NULL, bad, 2, NULL, grads),
          "exp(f32[2, 2]): it has 1 results; 0 results and 2 cotangents are given");
  in[1] = index;
  INVALID(weft_op_vjp(ctx, "mul", WEFT_STRLEN, in, 2, NULL, 0, NULL, &g, 1, NULL, grads),
          "mul(f32[2, 2], i32[2]): operands x and y have dtypes f32 and i32; they must agree (convert one of them)");
  MUST(weft_gt(ctx, x, g, &mask[0]));
  MUST(weft_gt(ctx, x, g, &bool_g));
  in[1] = g;
  INVALID(weft_op_vjp(ctx, "gt", WEFT_STRLEN, in, 2, NULL, 0, mask, &bool_g, 1, NULL, grads),
          "gt(f32[2, 2], f32[2, 2]): result 0 is bool[2, 2], which has no gradient; cotangents[0] must be NULL");
  FAILS(weft_op_vjp(ctx, "dropout", WEFT_STRLEN, in, 1, NULL, 0, NULL, &g, 1, NULL, grads), WEFT_UNIMPLEMENTED,
        "dropout(f32[2, 2]): it draws random numbers, which its inputs and results do not say; use weft_grad");
  FAILS(weft_op_vjp(ctx, "softmaxx", WEFT_STRLEN, in, 1, NULL, 0, NULL, &g, 1, NULL, grads), WEFT_NOT_FOUND,
        "weft_op_vjp: there is no operation 'softmaxx'; did you mean 'softmax'? weft_op_list names all");
  INVALID(weft_op_vjp(ctx, "exp", WEFT_STRLEN, in, 1, &axis, 1, NULL, &g, 1, NULL, grads),
          "exp: there is no attribute 'axis'; it takes none");
  INVALID(weft_op_vjp(ctx, "exp", WEFT_STRLEN, in, 1, NULL, 0, NULL, NULL, 1, NULL, grads), "weft_op_vjp: cotangents is NULL");
  INVALID(weft_op_vjp(ctx, "exp", WEFT_STRLEN, in, 1, NULL, 0, NULL, &g, 1, NULL, NULL), "weft_op_vjp: out_grads is NULL");
  in[0] = (weft_tensor*)ctx;
  INVALID(weft_op_vjp(ctx, "exp", WEFT_STRLEN, in, 1, NULL, 0, NULL, &g, 1, NULL, grads),
          "weft_op_vjp: inputs[0] is a weft_context; a weft_tensor is needed");
  weft_tensor_release(mask[0]);
  weft_tensor_release(bool_g);
  weft_tensor_release(index);
  weft_tensor_release(g);
  weft_tensor_release(x);
  weft_context_release(ctx);
}

/* What comes out is recorded like anything else: gradients of gradients go through weft_grad. */
static void second_derivatives(void) {
  weft_context* ctx = new_context();
  const float data[] = {2}, one[] = {1};
  weft_tensor *x = f32(ctx, DIMS(1), data), *g = f32(ctx, DIMS(1), one), *first = NULL, *second = NULL;
  double value = 0;
  const weft_attr power = {"exponent", WEFT_STRLEN, WEFT_VALUE_INT, 0, 3, 0, NULL, 0};
  MUST(weft_tensor_require_grad(x, 1));
  MUST(weft_op_vjp(ctx, "integer_pow", WEFT_STRLEN, &x, 1, &power, 1, NULL, &g, 1, NULL, &first));
  MUST(weft_grad(ctx, first, NULL, &x, 1, &second));
  MUST(weft_tensor_item_f64(first, &value));
  CHECK(value == 12);
  MUST(weft_tensor_item_f64(second, &value));
  CHECK(value == 12);
  weft_tensor_release(second);
  weft_tensor_release(first);
  weft_tensor_release(g);
  weft_tensor_release(x);
  weft_context_release(ctx);
}

/* wf_grad with what arrives at y. */
static void fluent_with_a_cotangent(void) {
  weft_context* ctx = new_context();
  const float data[] = {1, 2, 3}, weights[] = {1, 10, 100};
  weft_tensor *x = f32(ctx, DIMS(3), data), *g = f32(ctx, DIMS(3), weights), *grads[1], *y;
  float got[3] = {0};
  wf_scope* s = wf_begin(ctx);
  weft_error* error;
  MUST(weft_tensor_require_grad(x, 1));
  y = wf_square(s, x);
  CHECK(wf_grad(s, y, WF_TENSORS(x), grads, .cotangent = g) == 1);
  OK(weft_tensor_to_host(grads[0], got, sizeof got));
  CHECK(got[0] == 2 && got[1] == 40 && got[2] == 600);
  CHECK(wf_grad(s, wf_sum(s, y), &x, 1, grads) == 1);
  OK(weft_tensor_to_host(grads[0], got, sizeof got));
  CHECK(got[0] == 2 && got[1] == 4 && got[2] == 6);
  MUST(wf_check(s));
  CHECK(wf_grad(s, y, WF_TENSORS(x), grads) == 0); /* no scalar, no cotangent */
  CHECK(grads[0] != NULL);
  wf_square(s, grads[0]);
  error = wf_end(s);
  CHECK(error != NULL && strstr(weft_error_message(error, NULL), "without a cotangent it must have one element") != NULL);
  weft_error_release(error);
  weft_tensor_release(g);
  weft_tensor_release(x);
  weft_context_release(ctx);
}

/* What the header says of the mark. */
static void require_grad_as_the_header_says(void) {
  weft_context* ctx = new_context();
  const float data[] = {3};
  weft_tensor *x = f32(ctx, DIMS(1), data), *y = NULL, *z = NULL, *xs[2], *grads[2];
  double value = 0;
  /* A recorded value becomes a leaf: what it was made of gets nothing, it itself does. */
  MUST(weft_square(ctx, x, &y));
  MUST(weft_tensor_require_grad(y, 1));
  MUST(weft_square(ctx, y, &z));
  MUST(weft_grad(ctx, z, NULL, &y, 1, grads));
  MUST(weft_tensor_item_f64(grads[0], &value));
  CHECK(value == 18);
  weft_tensor_release(grads[0]);
  weft_tensor_release(z);
  weft_tensor_release(y);
  /* Recorded from one that requires gradients it passes them on. */
  MUST(weft_tensor_require_grad(x, 1));
  MUST(weft_square(ctx, x, &y));
  MUST(weft_tensor_require_grad(y, 1));
  MUST(weft_square(ctx, y, &z));
  xs[0] = x;
  xs[1] = y;
  MUST(weft_grad(ctx, z, NULL, xs, 2, grads));
  MUST(weft_tensor_item_f64(grads[0], &value));
  CHECK(value == 108);
  MUST(weft_tensor_item_f64(grads[1], &value));
  CHECK(value == 18);
  weft_tensor_release(grads[0]);
  weft_tensor_release(grads[1]);
  weft_tensor_release(z);
  /* The mark stays through an assignment and a barrier, and goes with 0. */
  MUST(weft_tensor_assign(y, x));
  MUST(weft_sync(ctx, NULL, NULL));
  MUST(weft_square(ctx, y, &z));
  MUST(weft_grad(ctx, z, NULL, &y, 1, grads));
  MUST(weft_tensor_item_f64(grads[0], &value));
  CHECK(value == 6);
  weft_tensor_release(grads[0]);
  weft_tensor_release(z);
  MUST(weft_tensor_require_grad(y, 0));
  MUST(weft_square(ctx, y, &z));
  FAILS(weft_grad(ctx, z, NULL, &x, 1, grads), WEFT_FAILED_PRECONDITION,
        "weft_grad: y does not depend on any tensor that requires a gradient: it was recorded from others than xs, or before "
        "weft_tensor_require_grad was called on them, or what lies between stops gradients, as weft_tensor_assign does (weft_tensor_copy_from lets them through)");
  weft_tensor_release(z);
  weft_tensor_release(y);
  weft_tensor_release(x);
  weft_context_release(ctx);
}

int main(void) {
  every_kind_by_differences();
  what_has_no_gradient();
  second_derivatives();
  fluent_with_a_cotangent();
  require_grad_as_the_header_says();
  return done("vjp");
}
