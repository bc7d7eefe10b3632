/* Tensors: from host memory and scalars, shape queries, reading back, bad shapes and dtypes, printing. */
#include "check.h"

static void from_and_to_host(void) {
  weft_context* ctx = new_context();
  const float data[6] = {0.5f, -1, 2, 3, 4, 5};
  float back[6] = {0};
  int64_t dims[2] = {0}, count = 0;
  size_t rank = 0;
  uint64_t bytes = 0;
  weft_dtype dtype = WEFT_DTYPE_INVALID;
  weft_device* device = NULL;
  weft_tensor *t = f32(ctx, DIMS(2, 3), data), *none = NULL;
  MUST(weft_tensor_dims(t, dims, 2, &rank));
  CHECK(rank == 2 && dims[0] == 2 && dims[1] == 3);
  dims[1] = -7;
  MUST(weft_tensor_dims(t, dims, 1, &rank)); /* two calls: capacity may be too small */
  CHECK(rank == 2 && dims[0] == 2 && dims[1] == -7);
  MUST(weft_tensor_count(t, &count));
  CHECK_EQUAL(count, 6);
  MUST(weft_tensor_size(t, &bytes));
  CHECK_EQUAL(bytes, 24);
  MUST(weft_tensor_dtype(t, &dtype));
  CHECK_EQUAL(dtype, WEFT_F32);
  MUST(weft_tensor_device(t, &device));
  MUST(weft_tensor_to_host(t, back, sizeof back));
  CHECK(memcmp(data, back, sizeof data) == 0);
  INVALID(weft_tensor_to_host(t, back, 20), "weft_tensor_to_host: the tensor f32[2, 3] has 24 bytes; size is 20");
  INVALID(weft_tensor_to_host(t, NULL, 24), "weft_tensor_to_host: data is NULL");
  weft_tensor_release(t);
  MUST(weft_tensor_from_host(ctx, device, WEFT_I32, DIMS(0, 4), NULL, 0, &none)); /* no elements, no data */
  MUST(weft_tensor_to_host(none, NULL, 0));
  weft_tensor_release(none);
  weft_device_release(device);
  weft_context_release(ctx);
}

static void scalars(void) {
  weft_context* ctx = new_context();
  weft_tensor* t = NULL;
  double value = 0;
  int64_t integer = 0;
  MUST(weft_tensor_from_f64(ctx, WEFT_F32, 0.1, &t));
  MUST(weft_tensor_item_f64(t, &value));
  CHECK(value == (double)0.1f);
  INVALID(weft_tensor_item_i64(t, &integer), "weft_tensor_item_i64: the tensor has dtype f32; use weft_tensor_item_f64");
  weft_tensor_release(t);
  MUST(weft_tensor_from_i64(ctx, WEFT_I64, INT64_MIN, &t));
  MUST(weft_tensor_item_i64(t, &integer));
  CHECK(integer == INT64_MIN);
  weft_tensor_release(t);
  MUST(weft_tensor_from_f64(ctx, WEFT_BF16, 1.01, &t));
  MUST(weft_tensor_item_f64(t, &value));
  CHECK(value == 1.0078125);
  weft_tensor_release(t);
  MUST(weft_tensor_from_i64(ctx, WEFT_BOOL, 1, &t));
  MUST(weft_tensor_item_i64(t, &integer));
  CHECK_EQUAL(integer, 1);
  weft_tensor_release(t);
  INVALID(weft_tensor_from_f64(ctx, WEFT_I32, 1.5, &t), "weft_tensor_from_f64: dtype i32 is no float; use weft_tensor_from_i64");
  INVALID(weft_tensor_from_i64(ctx, WEFT_U8, 256, &t), "weft_tensor_from_i64: 256 does not fit u8");
  INVALID(weft_tensor_from_i64(ctx, WEFT_BOOL, 2, &t), "weft_tensor_from_i64: 2 does not fit bool");
  INVALID(weft_tensor_from_i64(ctx, WEFT_I8, -129, &t), "weft_tensor_from_i64: -129 does not fit i8");
  INVALID(weft_tensor_from_i64(ctx, WEFT_F16, 65520, &t), "weft_tensor_from_i64: 65520 does not fit f16");
  MUST(weft_tensor_from_i64(ctx, WEFT_F16, -65519, &t)); /* rounds to the largest */
  weft_tensor_release(t);
  weft_context_release(ctx);
}

static void bad_shapes(void) {
  weft_context *ctx = new_context(), *other = new_context();
  weft_tensor *t = NULL, *pair;
  weft_device* foreign = NULL;
  double value;
  char text[200];
  const char* name;
  float one = 1;
  INVALID(weft_tensor_from_host(ctx, NULL, WEFT_F32, DIMS(2, -3), &one, 4, &t), "weft_tensor_from_host: dimension 1 of [2, -3] is negative");
  INVALID(weft_tensor_from_host(ctx, NULL, WEFT_F32, DIMS(INT64_C(1) << 40, INT64_C(1) << 40), &one, 4, &t),
          "weft_tensor_from_host: shape [1099511627776, 1099511627776] of f32 has more bytes than 63 bits can count");
  INVALID(weft_tensor_from_host(ctx, NULL, WEFT_F32, DIMS(INT64_C(1) << 61), &one, 4, &t),
          "weft_tensor_from_host: shape [2305843009213693952] of f32 has more bytes than 63 bits can count");
  INVALID(weft_tensor_from_host(ctx, NULL, WEFT_F32, NULL, 33, &one, 4, &t), "weft_tensor_from_host: rank 33 is above 32");
  INVALID(weft_tensor_from_host(ctx, NULL, WEFT_F32, NULL, 2, &one, 4, &t), "weft_tensor_from_host: dims is NULL");
  INVALID(weft_tensor_from_host(ctx, NULL, WEFT_F32, DIMS(2, 3), &one, 4, &t),
          "weft_tensor_from_host: f32[2, 3] has 24 bytes; size is 4");
  INVALID(weft_tensor_from_host(ctx, NULL, WEFT_F32, NULL, 0, NULL, 4, &t), "weft_tensor_from_host: data is NULL");
  INVALID(weft_tensor_from_host(ctx, NULL, (weft_dtype)0x1234567, NULL, 0, &one, 4, &t), "weft_tensor_from_host: dtype 0x1234567 is not one that Weft knows");
  MUST(weft_device_at(other, 0, &foreign));
  MUST(weft_device_name(foreign, &name, NULL));
  snprintf(text, sizeof text, "weft_tensor_from_host: device %s belongs to another context", name);
  INVALID(weft_tensor_from_host(ctx, foreign, WEFT_F32, NULL, 0, &one, 4, &t), text);
  pair = ramp(ctx, DIMS(2));
  INVALID(weft_tensor_item_f64(pair, &value), "weft_tensor_item_f64: the tensor has shape [2]; it must have exactly one element");
  weft_tensor_release(pair);
  weft_device_release(foreign);
  weft_context_release(other);
  weft_context_release(ctx);
}

static void check_print(weft_tensor* t, const weft_print_options* o, const char* want) {
  weft_blob* blob = NULL;
  if (OK(weft_tensor_to_string(t, o, &blob))) CHECK_TEXT((const char*)weft_blob_data(blob), want);
  weft_blob_release(blob);
  weft_tensor_release(t);
}

static void printing(void) {
  weft_context* ctx = new_context();
  weft_print_options o = WEFT_PRINT_OPTIONS_INIT;
  const float mixed[6] = {1, -0.25f, NAN, INFINITY, 100.5f, 0};
  const float wide[3] = {1e-6f, 1, 2.5e7f};
  weft_tensor* t = NULL;
  check_print(ramp(ctx, DIMS(2, 3)), NULL, "[[0. 1. 2.]\n [3. 4. 5.]]");
  check_print(f32(ctx, DIMS(2, 3), mixed), NULL, "[[  1.    -0.25    nan]\n [   inf 100.5    0.  ]]");
  check_print(f32(ctx, DIMS(3), wide), NULL, "[1.0e-06 1.0e+00 2.5e+07]");
  check_print(ramp(ctx, NULL, 0), NULL, "0.");
  check_print(ramp(ctx, DIMS(0, 3)), NULL, "[]");
  check_print(ramp(ctx, DIMS(1001)), NULL, "[   0.    1.    2. ...  998.  999. 1000.]");
  check_print(ramp(ctx, DIMS(2, 1, 2)), NULL, "[[[0. 1.]]\n\n [[2. 3.]]]");
  o.threshold = 4;
  o.edge_items = 1;
  check_print(ramp(ctx, DIMS(3, 3)), &o, "[[0. ... 2.]\n ...\n [6. ... 8.]]");
  o.threshold = 0;
  o.line_width = 12;
  check_print(ramp(ctx, DIMS(6)), &o, "[0. 1. 2.\n 3. 4. 5.]");
  MUST(weft_tensor_from_i64(ctx, WEFT_BOOL, 1, &t));
  check_print(t, NULL, "True");
  MUST(weft_tensor_from_host(ctx, NULL, WEFT_BOOL, DIMS(2), "\1\1", 2, &t));
  check_print(t, NULL, "[ True  True]");
  MUST(weft_tensor_from_i64(ctx, WEFT_U64, 7, &t));
  check_print(t, NULL, "7");
  /* No more digits than the dtype has: 0.1 is 0.0999756 in f16 and 0.100098 in bf16. */
  o.precision = 8;
  MUST(weft_tensor_from_f64(ctx, WEFT_F16, 0.1, &t));
  check_print(t, &o, "0.1");
  MUST(weft_tensor_from_f64(ctx, WEFT_BF16, 0.1, &t));
  check_print(t, &o, "0.1");
  MUST(weft_tensor_from_f64(ctx, WEFT_F32, 1e-5, &t));
  check_print(t, &o, "1.e-05");
  MUST(weft_tensor_from_f64(ctx, WEFT_F16, 65504, &t));
  check_print(t, &o, "65504."); /* all digits before the point */
  o.precision = 2;
  MUST(weft_tensor_from_f64(ctx, WEFT_F16, 1.0 / 3, &t));
  check_print(t, &o, "0.33");
  o.precision = 18;
  t = ramp(ctx, DIMS(1));
  {
    weft_blob* blob = NULL;
    INVALID(weft_tensor_to_string(t, &o, &blob),
            "weft_print_options: threshold is 0, edge_items 1, precision 18, line_width 12; threshold and line_width are 0 or more, edge_items 0 to 1000, precision -1 to 17");
  }
  weft_tensor_release(t);
  weft_context_release(ctx);
}

static void assignment(void) {
  weft_context *ctx = new_context(), *other = new_context();
  weft_tensor *w = ramp(ctx, DIMS(3)), *old = NULL, *foreign = ramp(other, DIMS(3));
  float host[3];
  MUST(weft_add(ctx, w, w, &old)); /* recorded before: keeps the old value */
  MUST(weft_tensor_assign(w, old));
  MUST(weft_sync(ctx, NULL, NULL));
  MUST(weft_tensor_to_host(w, host, sizeof host));
  CHECK(host[2] == 4.0f);
  MUST(weft_tensor_to_host(old, host, sizeof host));
  CHECK(host[2] == 4.0f);
  INVALID(weft_tensor_assign(w, NULL), "weft_tensor_assign: value is NULL; a weft_tensor is needed");
  {
    weft_tensor* sum = NULL;
    weft_error* e = weft_add(ctx, w, foreign, &sum);
    CHECK_EQUAL(weft_error_code(e), WEFT_INVALID_ARGUMENT);
    weft_error_release(e);
    CHECK(sum == NULL);
  }
  weft_tensor_release(foreign);
  weft_tensor_release(old);
  weft_tensor_release(w);
  weft_context_release(other);
  weft_context_release(ctx);
}

int main(void) {
  from_and_to_host();
  scalars();
  bad_shapes();
  printing();
  assignment();
  return done("tensors");
}
