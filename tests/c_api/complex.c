/* Complex tensors at the edges of the C API: host memory, DLPack, printing, checkpoints, numbers that are refused, gradients that
 * are refused by name; loops and donated memory in between. */
#include "check.h"

static weft_tensor* c64(weft_context* ctx, const int64_t* dims, size_t rank, const float* parts, size_t size) {
  weft_tensor* t = NULL;
  MUST(weft_tensor_from_host(ctx, NULL, WEFT_C64, dims, rank, parts, size, &t));
  return t;
}

static void there_and_back(void) {
  weft_context* ctx = new_context();
  const float parts[6] = {1, -2, 0.5f, 3, 0, -0.25f};
  const double wide[2] = {1e300, -1};
  float back[6] = {0}, product[6], re[3];
  double wide_back[2] = {0, 0};
  weft_tensor *z = c64(ctx, DIMS(3), parts, sizeof parts), *w = NULL, *x = NULL, *y = NULL, *again = NULL;
  int k;
  MUST(weft_tensor_to_host(z, back, sizeof back));
  CHECK(memcmp(back, parts, sizeof parts) == 0);
  MUST(weft_mul(ctx, z, z, &w));
  MUST(weft_tensor_to_host(w, product, sizeof product));
  for (k = 0; k < 3; ++k) {
    CHECK(product[2 * k] == parts[2 * k] * parts[2 * k] - parts[2 * k + 1] * parts[2 * k + 1]);
    CHECK(product[2 * k + 1] == 2 * parts[2 * k] * parts[2 * k + 1]);
  }
  MUST(weft_real(ctx, z, &x));
  MUST(weft_imag(ctx, z, &y));
  MUST(weft_tensor_to_host(x, re, sizeof re));
  CHECK(re[0] == 1 && re[1] == 0.5f && re[2] == 0);
  MUST(weft_complex(ctx, x, y, &again));
  MUST(weft_tensor_to_host(again, back, sizeof back));
  CHECK(memcmp(back, parts, sizeof parts) == 0);
  weft_tensor_release(w);
  MUST(weft_conj(ctx, z, &w));
  MUST(weft_tensor_to_host(w, product, sizeof product));
  for (k = 0; k < 3; ++k) CHECK(product[2 * k] == parts[2 * k] && product[2 * k + 1] == -parts[2 * k + 1]);
  weft_tensor_release(w);
  MUST(weft_tensor_from_host(ctx, NULL, WEFT_C128, NULL, 0, wide, sizeof wide, &w));
  MUST(weft_tensor_to_host(w, wide_back, sizeof wide_back));
  CHECK(wide_back[0] == 1e300 && wide_back[1] == -1);
  weft_tensor_release(z);
  weft_tensor_release(w);
  weft_tensor_release(x);
  weft_tensor_release(y);
  weft_tensor_release(again);
  weft_context_release(ctx);
}

/* A value that takes its own memory over: z <- z * z + z, ten times. */
static void in_place(void) {
  weft_context* ctx = new_context();
  float parts[4] = {0.25f, -0.5f, 0.125f, 0.1f}, back[4];
  weft_tensor *z = c64(ctx, DIMS(2), parts, sizeof parts), *square = NULL, *next = NULL;
  int step, k;
  for (step = 0; step < 10; ++step) {
    MUST(weft_mul(ctx, z, z, &square));
    MUST(weft_add(ctx, square, z, &next));
    MUST(weft_tensor_assign(z, next));
    weft_tensor_release(square);
    weft_tensor_release(next);
    MUST(weft_sync(ctx, NULL, NULL));
    for (k = 0; k < 2; ++k) {
      const float a = parts[2 * k], b = parts[2 * k + 1];
      parts[2 * k] = a * a - b * b + a;
      parts[2 * k + 1] = 2 * a * b + b;
    }
  }
  MUST(weft_tensor_to_host(z, back, sizeof back));
  for (k = 0; k < 4; ++k) CHECK(fabsf(back[k] - parts[k]) < 1e-5f);
  weft_tensor_release(z);
  weft_context_release(ctx);
}

static void refused(void) {
  weft_context* ctx = new_context();
  const float parts[2] = {3, 4};
  double number = 0;
  int64_t integer = 0;
  uint64_t unsigned_integer = 0;
  weft_tensor *z = c64(ctx, NULL, 0, parts, sizeof parts), *x = ramp(ctx, DIMS(2)), *made = NULL, *w = NULL, *size = NULL;
  weft_tensor* slope = NULL;
  INVALID(weft_tensor_item_f64(z, &number),
          "weft_tensor_item_f64: the tensor has dtype c64; read weft_real and weft_imag of it, or its bytes by weft_tensor_to_host");
  INVALID(weft_tensor_item_i64(z, &integer),
          "weft_tensor_item_i64: the tensor has dtype c64; read weft_real and weft_imag of it, or its bytes by weft_tensor_to_host");
  INVALID(weft_tensor_item_u64(z, &unsigned_integer),
          "weft_tensor_item_u64: the tensor has dtype c64; read weft_real and weft_imag of it, or its bytes by weft_tensor_to_host");
  INVALID(weft_tensor_from_f64(ctx, WEFT_C64, 1, &made),
          "weft_tensor_from_f64: dtype c64 takes two numbers; weft_complex makes it of two real tensors, weft_tensor_from_host of "
          "its bytes");
  INVALID(weft_tensor_from_i64(ctx, WEFT_C128, 1, &made),
          "weft_tensor_from_i64: dtype c128 takes two numbers; weft_complex makes it of two real tensors, weft_tensor_from_host of "
          "its bytes");
  INVALID(weft_floor(ctx, z, &made), "floor(c64[]): operand x has dtype c64; allowed are f8 of every kind, f16, bf16, f32, f64");
  INVALID(weft_compare(ctx, z, z, WEFT_COMPARE_DIRECTION_LT, &made),
          "compare(c64[], c64[]): direction is lt; complex numbers are equal (eq) or not (ne), compare their abs, real or imag");
  INVALID(weft_add(ctx, z, x, &made),
          "add(c64[], f32[2]): operands x and y have dtypes c64 and f32; they must agree (convert one of them)");
  /* A constant of its kind is a number with imaginary part 0. */
  MUST(weft_tensor_constant_like(z, 2, &made));
  MUST(weft_mul(ctx, z, made, &w));
  MUST(weft_abs(ctx, w, &size));
  MUST(weft_tensor_item_f64(size, &number));
  CHECK(number == 10);
  weft_tensor_release(made);
  weft_tensor_release(w);
  weft_tensor_release(size);
  /* A complex number is not small or large. */
  MUST(weft_tensor_require_grad(z, 1));
  MUST(weft_square(ctx, z, &w));
  INVALID(weft_grad(ctx, w, NULL, &z, 1, &slope),
          "weft_grad: y is c64[]; without a cotangent it must be real (take its abs or its real part, or give a cotangent)");
  INVALID(weft_grad(ctx, w, x, &z, 1, &slope), "weft_grad: cotangent is f32[2]; it must have y's type c64[]");
  weft_tensor_release(w);
  weft_tensor_release(x);
  weft_tensor_release(z);
  weft_context_release(ctx);
}

/* Of |z|^2 = re^2 + im^2 the gradient is 2 re + i 2 im; of z^2 with a cotangent it is that times 2 conj(z). */
static void gradients(void) {
  weft_context* ctx = new_context();
  const float parts[2] = {3, 4}, along[2] = {1, 2};
  float slope[2] = {0, 0};
  weft_tensor *z = c64(ctx, NULL, 0, parts, sizeof parts), *seed = c64(ctx, NULL, 0, along, sizeof along), *size = NULL, *loss = NULL,
              *found = NULL, *square = NULL;
  MUST(weft_tensor_require_grad(z, 1));
  MUST(weft_abs(ctx, z, &size));
  MUST(weft_square(ctx, size, &loss));
  MUST(weft_grad(ctx, loss, NULL, &z, 1, &found));
  MUST(weft_tensor_to_host(found, slope, sizeof slope));
  CHECK(fabsf(slope[0] - 6) < 1e-5f && fabsf(slope[1] - 8) < 1e-5f);
  weft_tensor_release(found);
  MUST(weft_square(ctx, z, &square));
  MUST(weft_grad(ctx, square, seed, &z, 1, &found));
  MUST(weft_tensor_to_host(found, slope, sizeof slope));
  CHECK(slope[0] == 22 && slope[1] == 4); /* (1 + 2i)(6 - 8i) */
  weft_tensor_release(found);
  weft_tensor_release(square);
  weft_tensor_release(loss);
  weft_tensor_release(size);
  weft_tensor_release(seed);
  weft_tensor_release(z);
  weft_context_release(ctx);
}

int main(void) {
  there_and_back();
  gradients();
  in_place();
  refused();
  return g_failures != 0;
}
