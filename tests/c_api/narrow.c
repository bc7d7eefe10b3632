/* f8, i4, u4, i2 and u2 from the caller to the device and back, packed and one a byte, on both backends. */
#define _POSIX_C_SOURCE 200809L
#include <unistd.h>

#include "check.h"

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
  INVALID(weft_tensor_from_host(ctx, NULL, WEFT_I4, DIMS(INT64_C(1) << 62), nibbles, 4, &x),
          "weft_tensor_from_host: i4[4611686018427387904] has 4611686018427387904 bytes, or packed 2305843009213693952; size is 4");
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

/* i4 of an odd count, larger than what stands in a description, and all f8 codes, through a file and back. */
static void saves(weft_context* ctx) {
  enum { kCount = 1001, kCodes = 256 };
  static signed char numbers[kCount], got[kCount];
  static unsigned char codes[kCodes], back[kCodes];
  const char* const folder = getenv("TMPDIR");
  char path[1024];
  weft_tree *tree = NULL, *loaded = NULL;
  weft_tensor *x = NULL, *y = NULL;
  uint32_t node = 0;
  weft_dtype dtype = WEFT_DTYPE_INVALID;
  int i;
  for (i = 0; i < kCount; ++i) numbers[i] = (signed char)(i * 7 % 16 - 8);
  for (i = 0; i < kCodes; ++i) codes[i] = (unsigned char)i;
  snprintf(path, sizeof path, "%s/weft_c_narrow_%ld.ckpt", folder != NULL ? folder : "/tmp", (long)getpid());
  MUST(weft_tensor_from_host(ctx, NULL, WEFT_I4, DIMS(kCount), numbers, kCount, &x));
  MUST(weft_tensor_from_host(ctx, NULL, WEFT_F8E3M4, DIMS(kCodes), codes, kCodes, &y));
  MUST(weft_tree_create(&tree));
  MUST(weft_tree_add_tensor(tree, WEFT_TREE_ROOT, "x", WEFT_STRLEN, x, NULL));
  MUST(weft_tree_add_tensor(tree, WEFT_TREE_ROOT, "y", WEFT_STRLEN, y, NULL));
  weft_tensor_release(x);
  weft_tensor_release(y);
  MUST(weft_checkpoint_save(ctx, path, WEFT_STRLEN, tree, NULL, NULL));
  MUST(weft_checkpoint_load(ctx, path, WEFT_STRLEN, NULL, &loaded));
  MUST(weft_tree_find(loaded, WEFT_TREE_ROOT, "x", WEFT_STRLEN, &node));
  MUST(weft_tree_get_tensor(loaded, node, &x));
  MUST(weft_tensor_dtype(x, &dtype));
  CHECK_EQUAL(dtype, WEFT_I4);
  MUST(weft_tensor_to_host(x, got, kCount));
  CHECK(memcmp(got, numbers, kCount) == 0);
  MUST(weft_tree_find(loaded, WEFT_TREE_ROOT, "y", WEFT_STRLEN, &node));
  MUST(weft_tree_get_tensor(loaded, node, &y));
  MUST(weft_tensor_to_host(y, back, kCodes));
  CHECK(memcmp(back, codes, kCodes) == 0);
  weft_tensor_release(x);
  weft_tensor_release(y);
  weft_tree_release(tree);
  weft_tree_release(loaded);
  unlink(path);
}

/* A program of StableHLO text, literals among them. */
static void programs(weft_context* ctx) {
  static const char text[] =
      "func.func @main(%a: tensor<2xf8E4M3FN>, %b: tensor<2xi4>) -> (tensor<2xf8E4M3FN>, tensor<2xf32>) {\n"
      "  %c = stablehlo.constant dense<[0.5, 448.0]> : tensor<2xf8E4M3FN>\n"
      "  %d = stablehlo.constant dense<[-8, 1]> : tensor<2xi4>\n"
      "  %0 = stablehlo.add %a, %c : tensor<2xf8E4M3FN>\n"
      "  %1 = stablehlo.multiply %b, %d : tensor<2xi4>\n"
      "  %2 = stablehlo.convert %1 : (tensor<2xi4>) -> tensor<2xf32>\n"
      "  return %0, %2 : tensor<2xf8E4M3FN>, tensor<2xf32>\n"
      "}\n";
  weft_function* function = NULL;
  weft_tensor *in[2] = {NULL, NULL}, *out[2] = {NULL, NULL};
  unsigned char codes[2];
  float numbers[2];
  size_t count = 0, i;
  MUST(weft_function_from_stablehlo(ctx, text, WEFT_STRLEN, &function));
  MUST(weft_tensor_from_host(ctx, NULL, WEFT_F8E4M3FN, DIMS(2), "\x3C\x7E", 2, &in[0])); /* 1.5, 448 */
  MUST(weft_tensor_from_host(ctx, NULL, WEFT_I4, DIMS(2), "\x7D", 1, &in[1]));           /* -3, 7 */
  MUST(weft_function_call(ctx, function, in, 2, out, 2, &count));
  MUST(weft_tensor_to_host(out[0], codes, sizeof codes));
  CHECK(codes[0] == 0x40 && codes[1] == 0x7F); /* 2, and NaN for 896 */
  MUST(weft_tensor_to_host(out[1], numbers, sizeof numbers));
  CHECK(numbers[0] == -8 && numbers[1] == 7); /* 24 wraps */
  for (i = 0; i < 2; ++i) {
    weft_tensor_release(in[i]);
    weft_tensor_release(out[i]);
  }
  weft_function_release(function);
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
    weft_context* ctx = context_on(platforms[i], WEFT_MODE_DEFAULT);
    packed(ctx);
    scalars(ctx);
    saves(ctx);
    programs(ctx);
    refusals(ctx);
    weft_context_release(ctx);
  }
  return done("narrow");
}
