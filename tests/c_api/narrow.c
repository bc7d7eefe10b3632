/* f8, i4, u4, i2 and u2 from the caller to the device and back, packed and one a byte, on both backends. */
#include "check.h"

static weft_context* context_of(const char* platform) {
  const weft_setting settings[] = {{"cache_mode", WEFT_STRLEN, "off", WEFT_STRLEN}, {"platform", WEFT_STRLEN, platform, WEFT_STRLEN}};
  weft_context_options options = WEFT_CONTEXT_OPTIONS_INIT;
  weft_context* ctx = NULL;
  options.settings = settings;
  options.setting_count = 2;
  MUST(weft_context_create(&options, &ctx));
  return ctx;
}

/* -1, 2, -8, 7, 3 of i4 and 3, 0, 2, 1, 1 of u2. */
static void packed(weft_context* ctx) {
  static const unsigned char nibbles[3] = {0x2F, 0x78, 0x03}, bytes[5] = {0x0F, 0xF2, 0xF8, 0x07, 0x03};
  static const signed char numbers[5] = {-1, 2, -8, 7, 3}, doubled[5] = {-2, 4, 0, -2, 6};
  static const unsigned char pairs[2] = {0x63, 0x01}, wide[5] = {3, 0, 2, 1, 1};
  const void* given[2];
  const size_t sizes[2] = {sizeof nibbles, sizeof bytes};
  weft_tensor *x = NULL, *sum = NULL;
  unsigned char got[5];
  uint64_t size = 0;
  int64_t integer = 0;
  int form;
  given[0] = nibbles;
  given[1] = bytes; /* what stands above the four bits does not count */
  for (form = 0; form < 2; ++form) {
    MUST(weft_tensor_from_host(ctx, NULL, WEFT_I4, DIMS(5), given[form], sizes[form], &x));
    MUST(weft_tensor_size(x, &size));
    CHECK_EQUAL(size, 5);
    MUST(weft_tensor_to_host(x, got, 5));
    CHECK(memcmp(got, numbers, 5) == 0);
    MUST(weft_tensor_to_host(x, got, 3));
    CHECK(memcmp(got, nibbles, 3) == 0);
    MUST(weft_add(ctx, x, x, &sum));
    MUST(weft_tensor_to_host(sum, got, 5));
    CHECK(memcmp(got, doubled, 5) == 0);
    INVALID(weft_tensor_to_host(x, got, 4), "weft_tensor_to_host: the tensor i4[5] has 5 bytes, or packed 3; size is 4");
    weft_tensor_release(sum);
    weft_tensor_release(x);
  }
  INVALID(weft_tensor_from_host(ctx, NULL, WEFT_I4, DIMS(5), nibbles, 4, &x),
          "weft_tensor_from_host: i4[5] has 5 bytes, or packed 3; size is 4");
  MUST(weft_tensor_from_host(ctx, NULL, WEFT_U2, DIMS(5), pairs, 2, &x));
  MUST(weft_tensor_to_host(x, got, 5));
  CHECK(memcmp(got, wide, 5) == 0);
  MUST(weft_tensor_to_host(x, got, 2));
  CHECK(memcmp(got, pairs, 2) == 0);
  weft_tensor_release(x);
  MUST(weft_tensor_from_host(ctx, NULL, WEFT_I2, NULL, 0, "\x0F", 1, &x));
  MUST(weft_tensor_item_i64(x, &integer));
  CHECK_EQUAL(integer, -1);
  weft_tensor_release(x);
}

static void scalars(weft_context* ctx) {
  weft_tensor *t = NULL, *y = NULL;
  double number = 0;
  MUST(weft_tensor_from_f64(ctx, WEFT_F8E4M3FN, 0.3, &t));
  MUST(weft_tensor_item_f64(t, &number));
  CHECK(number == 0.3125);
  MUST(weft_convert(ctx, t, WEFT_F8E5M2, &y));
  MUST(weft_tensor_item_f64(y, &number));
  CHECK(number == 0.3125);
  weft_tensor_release(y);
  MUST(weft_convert(ctx, t, WEFT_U4, &y));
  MUST(weft_tensor_item_f64(y, &number));
  CHECK(number == 0);
  weft_tensor_release(y);
  weft_tensor_release(t);
  INVALID(weft_tensor_from_i64(ctx, WEFT_I4, 8, &t), "weft_tensor_from_i64: 8 does not fit i4");
  INVALID(weft_tensor_from_i64(ctx, WEFT_U2, -1, &t), "weft_tensor_from_i64: -1 does not fit u2");
  INVALID(weft_tensor_from_i64(ctx, WEFT_F8E4M3FN, 500, &t), "weft_tensor_from_i64: 500 does not fit f8e4m3fn");
  MUST(weft_tensor_from_i64(ctx, WEFT_F8E4M3FN, 449, &t));
  MUST(weft_tensor_item_f64(t, &number));
  CHECK(number == 448);
  weft_tensor_release(t);
}

static void refusals(weft_context* ctx) {
  struct DLManagedTensorVersioned* lent = NULL;
  weft_tensor *x = NULL, *y = NULL;
  MUST(weft_tensor_from_i64(ctx, WEFT_I4, 3, &x));
  FAILS(weft_tensor_to_dlpack(x, &lent), WEFT_UNIMPLEMENTED,
        "weft_tensor_to_dlpack: DLPack tensors of i4 are not exchanged; weft_tensor_from_host and weft_tensor_to_host take packed elements");
  INVALID(weft_shift_left(ctx, x, x, &y), "shift_left(i4[], i4[]): operand x has dtype i4; allowed are i8 to i64, u8 to u64");
  INVALID(weft_bitcast_convert(ctx, x, WEFT_U4, &y),
          "bitcast_convert(i4[]): elements of i4 are not whole bytes; convert says what they are");
  weft_tensor_release(x);
}

int main(void) {
  static const char* const platforms[] = {"cpu", "reference"};
  size_t i;
  for (i = 0; i < 2; ++i) {
    weft_context* ctx = context_of(platforms[i]);
    packed(ctx);
    scalars(ctx);
    refusals(ctx);
    weft_context_release(ctx);
  }
  return done("narrow");
}
