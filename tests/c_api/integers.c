/* 64-bit integers are exact from the caller to the device and back: scalars, full, generic calls, on both backends. */
#include "check.h"

static void scalars(weft_context* ctx) {
  static const uint64_t numbers[] = {0, 1, UINT64_C(9007199254740993), INT64_MAX, UINT64_C(1) << 63, UINT64_MAX - 1, UINT64_MAX};
  weft_tensor *t = NULL, *zero = NULL, *sum = NULL;
  uint64_t got = 0;
  int64_t integer = 0;
  double number = 0;
  size_t i;
  MUST(weft_tensor_from_u64(ctx, WEFT_U64, 0, &zero));
  for (i = 0; i < sizeof numbers / sizeof numbers[0]; ++i) {
    MUST(weft_tensor_from_u64(ctx, WEFT_U64, numbers[i], &t));
    MUST(weft_add(ctx, t, zero, &sum));
    MUST(weft_tensor_item_u64(sum, &got));
    CHECK(got == numbers[i]);
    weft_tensor_release(sum);
    weft_tensor_release(t);
  }
  weft_tensor_release(zero);
  INVALID(weft_tensor_from_u64(ctx, WEFT_I64, UINT64_C(1) << 63, &t), "weft_tensor_from_u64: 9223372036854775808 does not fit i64");
  INVALID(weft_tensor_from_u64(ctx, WEFT_U8, 256, &t), "weft_tensor_from_u64: 256 does not fit u8");
  MUST(weft_tensor_from_i64(ctx, WEFT_I64, -1, &t));
  FAILS(weft_tensor_item_u64(t, &got), WEFT_OUT_OF_RANGE, "weft_tensor_item_u64: -1 is negative");
  weft_tensor_release(t);
  MUST(weft_tensor_from_u64(ctx, WEFT_U64, UINT64_MAX, &t));
  FAILS(weft_tensor_item_i64(t, &integer), WEFT_OUT_OF_RANGE, "weft_tensor_item_i64: 18446744073709551615 does not fit int64_t");
  weft_tensor_release(t);
  /* Floats round once: by way of a double this would be 2^60 in f32. */
  MUST(weft_tensor_from_i64(ctx, WEFT_F32, (INT64_C(1) << 60) + (INT64_C(1) << 36) + 1, &t));
  MUST(weft_tensor_item_f64(t, &number));
  CHECK(number == 1152921642045800448.0);
  weft_tensor_release(t);
  MUST(weft_tensor_from_u64(ctx, WEFT_F32, UINT64_MAX, &t));
  MUST(weft_tensor_item_f64(t, &number));
  CHECK(number == 18446744073709551616.0);
  weft_tensor_release(t);
}

static void fills(weft_context* ctx) {
  static const int64_t numbers[] = {0, -1, 1, INT64_C(9007199254740993), -INT64_C(9007199254740993), INT64_MAX, INT64_MIN};
  weft_full_opts opts = WEFT_FULL_OPTS_INIT;
  weft_tensor *t = NULL, *copy = NULL;
  int64_t got[3];
  size_t i, k, outputs = 0;
  int generic, is_unsigned;
  opts.present = WEFT_FULL_HAS_DTYPE | WEFT_FULL_HAS_INTEGER;
  for (i = 0; i < sizeof numbers / sizeof numbers[0]; ++i) {
    for (generic = 0; generic < 2; ++generic) {
      for (is_unsigned = 0; is_unsigned < 2; ++is_unsigned) {
        const int64_t three = 3;
        weft_attr attrs[4] = {{0}};
        opts.dtype = is_unsigned ? WEFT_U64 : WEFT_I64;
        opts.integer = numbers[i];
        attrs[0].name = "shape", attrs[0].type = WEFT_VALUE_INTS, attrs[0].data = &three, attrs[0].count = 1;
        attrs[1].name = "value", attrs[1].type = WEFT_VALUE_INT;
        attrs[2].name = "dtype", attrs[2].type = WEFT_VALUE_DTYPE, attrs[2].i = opts.dtype;
        attrs[3].name = "integer", attrs[3].type = WEFT_VALUE_INT, attrs[3].i = numbers[i];
        for (k = 0; k < 4; ++k) attrs[k].name_length = WEFT_STRLEN;
        if (generic) {
          MUST(weft_op_apply(ctx, "full", WEFT_STRLEN, NULL, 0, attrs, 4, &t, 1, &outputs));
        } else {
          MUST(weft_full(ctx, DIMS(3), 0, &opts, &t));
        }
        /* Through a kernel, not only through a literal. */
        MUST(weft_maximum(ctx, t, t, &copy));
        MUST(weft_tensor_to_host(copy, got, sizeof got));
        CHECK(got[0] == numbers[i] && got[2] == numbers[i]);
        weft_tensor_release(copy);
        weft_tensor_release(t);
      }
    }
  }
  opts.dtype = WEFT_I8;
  opts.integer = 128;
  INVALID(weft_full(ctx, DIMS(3), 0, &opts, &t), "full(): integer 128 does not fit i8");
  opts.integer = 1;
  INVALID(weft_full(ctx, DIMS(3), 2, &opts, &t), "full(): both integer (1) and value (2) are given; value must then be 0");
  opts.dtype = WEFT_F32;
  INVALID(weft_full(ctx, DIMS(3), 0, &opts, &t), "full(): integer is given and dtype is f32; floats and complex numbers take value");
}

/* What a generic call cannot pass on exactly is refused. */
static void generic_numbers(weft_context* ctx) {
  weft_attr low = {0};
  weft_tensor *x = NULL, *y = NULL;
  int64_t integer = 0;
  size_t outputs = 0;
  MUST(weft_tensor_from_i64(ctx, WEFT_I64, 5, &x));
  low.name = "low", low.name_length = WEFT_STRLEN, low.type = WEFT_VALUE_INT, low.i = INT64_C(9007199254740993);
  INVALID(weft_op_apply(ctx, "clip", WEFT_STRLEN, &x, 1, &low, 1, &y, 1, &outputs),
          "clip: attribute low is 9007199254740993, which no double holds exactly");
  low.type = WEFT_VALUE_DOUBLE, low.d = 5.5;
  MUST(weft_op_apply(ctx, "clip", WEFT_STRLEN, &x, 1, &low, 1, &y, 1, &outputs));
  MUST(weft_tensor_item_i64(y, &integer));
  CHECK_EQUAL(integer, 6);
  weft_tensor_release(y);
  weft_tensor_release(x);
}

int main(void) {
  static const char* const platforms[] = {"cpu", "reference"};
  size_t i;
  for (i = 0; i < 2; ++i) {
    weft_context* ctx = context_on(platforms[i], WEFT_MODE_DEFAULT);
    scalars(ctx);
    fills(ctx);
    generic_numbers(ctx);
    weft_context_release(ctx);
  }
  return done("integers");
}
