/* Error texts that say what was wrong in the caller's words: the function and its argument, names as the headers have them, the
 * layout that was probably meant, values where a value is at fault. */
#include "check.h"

static void name_function_and_argument(weft_context* ctx) {
  static const float value = 1;
  int64_t many[33] = {0};
  weft_tensor* out = NULL;
  weft_tensor* x = f32(ctx, NULL, 0, &value);
  INVALID(weft_tensor_from_host(ctx, NULL, WEFT_F32, DIMS(2), NULL, 8, &out), "weft_tensor_from_host: data is NULL");
  INVALID(weft_tensor_from_host(ctx, NULL, WEFT_F32, many, 33, &value, 0, &out),
          "weft_tensor_from_host: rank 33 is above 32");
  INVALID(weft_tensor_dims(x, NULL, 1, NULL), "weft_tensor_dims: out_rank is NULL");
  INVALID(weft_tensor_assign(x, NULL), "weft_tensor_assign: value is NULL; a weft_tensor is needed");
  INVALID(weft_add(NULL, x, x, &out), "add: ctx is NULL; a weft_context is needed");
  INVALID(weft_grad(ctx, x, NULL, &x, 1, NULL), "weft_grad: out_grads is NULL");
  FAILS(weft_metric_get(ctx, "bogus", WEFT_STRLEN, NULL), WEFT_INVALID_ARGUMENT, "weft_metric_get: out_value is NULL");
  /* Whoever reads up to the NUL reads all of it. */
  {
    int64_t value;
    FAILS(weft_metric_get(ctx, "a\0b", 3, &value), WEFT_NOT_FOUND,
          "weft_metric_get: there is no counter 'a\\0b'; weft_metric_list names all");
  }
  /* What the caller says is the caller's whole text. */
  FAILS(weft_error_new(WEFT_ABORTED, "mine", WEFT_STRLEN), WEFT_ABORTED, "mine");
  weft_tensor_release(x);
}

static void guess_names(weft_context* ctx) {
  weft_tensor* out = NULL;
  weft_blob* blob = NULL;
  size_t count = 0;
  FAILS(weft_op_apply(ctx, "matmull", WEFT_STRLEN, NULL, 0, NULL, 0, &out, 1, &count), WEFT_NOT_FOUND,
        "weft_op_apply: there is no operation 'matmull'; did you mean 'matmul'? weft_op_list names all");
  FAILS(weft_op_apply(ctx, "softmacks", WEFT_STRLEN, NULL, 0, NULL, 0, &out, 1, &count), WEFT_NOT_FOUND,
        "weft_op_apply: there is no operation 'softmacks'; did you mean 'softmax'? weft_op_list names all");
  FAILS(weft_op_apply(ctx, "qqqqqqqqqqqq", WEFT_STRLEN, NULL, 0, NULL, 0, &out, 1, &count), WEFT_NOT_FOUND,
        "weft_op_apply: there is no operation 'qqqqqqqqqqqq'; weft_op_list names all");
  {
    int64_t value;
    FAILS(weft_metric_get(ctx, "lanches", WEFT_STRLEN, &value), WEFT_NOT_FOUND,
          "weft_metric_get: there is no counter 'lanches'; did you mean 'launches'? weft_metric_list names all");
  }
  FAILS(weft_context_option(ctx, "sead", WEFT_STRLEN, &blob), WEFT_NOT_FOUND,
        "weft_context_option: there is no option 'sead'; did you mean 'seed'? weft_option_list names all");
}

static void guess_paths(weft_context* ctx) {
  weft_tensor* x = ramp(ctx, DIMS(4));
  weft_tree* tree = NULL;
  uint32_t model = 0, layer = 0, node = 0;
  MUST(weft_tree_create(&tree));
  MUST(weft_tree_add_dict(tree, WEFT_TREE_ROOT, "model", WEFT_STRLEN, &model));
  MUST(weft_tree_add_dict(tree, model, "layer", WEFT_STRLEN, &layer));
  MUST(weft_tree_add_tensor(tree, layer, "weight", WEFT_STRLEN, x, NULL));
  MUST(weft_tree_add_tensor(tree, layer, "b", WEFT_STRLEN, x, NULL));
  FAILS(weft_tree_find(tree, WEFT_TREE_ROOT, "model.layr.weight", WEFT_STRLEN, &node), WEFT_NOT_FOUND,
        "weft_tree_find: the tree has no 'model.layr.weight'; did you mean 'model.layer.weight'?");
  FAILS(weft_tree_find(tree, layer, "wieght", WEFT_STRLEN, &node), WEFT_NOT_FOUND,
        "weft_tree_find: the tree has no 'model.layer.wieght'; did you mean 'model.layer.weight'?");
  FAILS(weft_tree_find(tree, WEFT_TREE_ROOT, "optimizer", WEFT_STRLEN, &node), WEFT_NOT_FOUND,
        "weft_tree_find: the tree has no 'optimizer'");
  FAILS(weft_tree_find(tree, WEFT_TREE_ROOT, "q", WEFT_STRLEN, &node), WEFT_NOT_FOUND, "weft_tree_find: the tree has no 'q'");
  weft_tree_release(tree);
  weft_tensor_release(x);
}

static void spell_types(weft_context* ctx) {
  static const uint8_t bytes[] = {0, 1, 1, 0};
  weft_attr attr = {0};
  weft_tensor *u8 = NULL, *truth = NULL, *out = NULL, *x;
  size_t count = 0;
  attr.name = "dims";
  attr.name_length = WEFT_STRLEN;
  attr.type = WEFT_VALUE_DOUBLE;
  attr.d = 1;
  MUST(weft_tensor_from_host(ctx, NULL, WEFT_U8, DIMS(4), bytes, 4, &u8));
  MUST(weft_tensor_from_host(ctx, NULL, WEFT_BOOL, DIMS(4), bytes, 4, &truth));
  x = ramp(ctx, DIMS(4));
  INVALID(weft_add(ctx, u8, truth, &out),
          "add(u8[4], bool[4]): operands x and y have dtypes u8 and bool; they must agree (convert one of them)");
  INVALID(weft_op_apply(ctx, "sum", WEFT_STRLEN, &x, 1, &attr, 1, &out, 1, &count),
          "sum: attribute dims takes integers, not a number (WEFT_VALUE_DOUBLE)");
  attr.type = (weft_value_type)99;
  INVALID(weft_op_apply(ctx, "sum", WEFT_STRLEN, &x, 1, &attr, 1, &out, 1, &count),
          "sum: attribute dims takes integers, not the unknown weft_value_type 99");
  weft_tensor_release(u8);
  weft_tensor_release(truth);
  weft_tensor_release(x);
}

static void name_the_layout(weft_context* ctx) {
  weft_tensor *out = NULL, *nchw = ramp(ctx, DIMS(2, 3, 8, 8)), *nhwc = ramp(ctx, DIMS(2, 8, 8, 3));
  weft_tensor *oihw = ramp(ctx, DIMS(5, 3, 4, 4)), *hwio = ramp(ctx, DIMS(4, 4, 3, 5)), *large = ramp(ctx, DIMS(9, 9, 3, 5));
  weft_max_pool_opts pool = WEFT_MAX_POOL_OPTS_INIT;
  INVALID(weft_conv(ctx, nchw, hwio, NULL, &out),
          "conv(f32[2, 3, 8, 8], f32[4, 4, 3, 5]): x [2, 3, 8, 8] has 8 features, its last dimension, in 1 group, and w [4, 4, 3, 5] takes "
          "3; data is channels-last here: x NHWC, w HWIO for images. x looks like NCHW: transpose it, perm 0, 2, 3, 1");
  INVALID(weft_conv(ctx, nhwc, oihw, NULL, &out),
          "conv(f32[2, 8, 8, 3], f32[5, 3, 4, 4]): x [2, 8, 8, 3] has 3 features, its last dimension, in 1 group, and w [5, 3, 4, 4] takes "
          "4; data is channels-last here: x NHWC, w HWIO for images. w looks like OIHW: transpose it, perm 2, 3, 1, 0");
  INVALID(weft_conv(ctx, nchw, oihw, NULL, &out),
          "conv(f32[2, 3, 8, 8], f32[5, 3, 4, 4]): x [2, 3, 8, 8] has 8 features, its last dimension, in 1 group, and w [5, 3, 4, 4] takes "
          "4; data is channels-last here: x NHWC, w HWIO for images. x looks like NCHW: transpose it, perm 0, 2, 3, 1. w looks "
          "like OIHW: transpose it, perm 2, 3, 1, 0");
  INVALID(weft_conv(ctx, nhwc, large, NULL, &out),
          "conv(f32[2, 8, 8, 3], f32[9, 9, 3, 5]): the window spans 9 elements of spatial dimension 0, which has 8 and padding 0 and "
          "0: no place is left for it; pad more, or make it smaller");
  INVALID(weft_max_pool(ctx, nhwc, DIMS(2, 10), &pool, &out),
          "max_pool(f32[2, 8, 8, 3]): the window spans 10 elements of spatial dimension 1, which has 8 and padding 0 and 0: no "
          "place is left for it; pad more, or make it smaller");
  weft_tensor_release(nchw);
  weft_tensor_release(nhwc);
  weft_tensor_release(oihw);
  weft_tensor_release(hwio);
  weft_tensor_release(large);
}

/* A gradient that is not there: a barrier is blamed only if one was in between. */
static void blame_barriers(weft_context* ctx) {
  static const char kNothing[] =
      "weft_grad: y does not depend on any tensor that requires a gradient: it was recorded from others than xs, or before "
      "weft_tensor_require_grad was called on them, or what lies between stops gradients, as weft_tensor_assign does (weft_tensor_copy_from lets them through)";
  static const char kBarrier[] =
      "weft_grad: y depends on values from before a barrier, which let go of what they were made of; take gradients before "
      "weft_sync";
  weft_tensor *x = ramp(ctx, DIMS(3)), *w = ramp(ctx, DIMS(3)), *y = NULL, *z = NULL, *grad = NULL;
  weft_event* event = NULL;
  OK(weft_tensor_require_grad(w, 1));
  OK(weft_sum(ctx, x, NULL, &y));
  FAILS(weft_grad(ctx, y, NULL, &w, 1, &grad), WEFT_FAILED_PRECONDITION, kNothing);
  OK(weft_sync(ctx, NULL, &event));
  weft_event_release(event);
  FAILS(weft_grad(ctx, y, NULL, &w, 1, &grad), WEFT_FAILED_PRECONDITION, kNothing);
  weft_tensor_release(y);
  OK(weft_mul(ctx, x, w, &z));
  OK(weft_sync(ctx, NULL, &event));
  weft_event_release(event);
  OK(weft_sum(ctx, z, NULL, &y));
  FAILS(weft_grad(ctx, y, NULL, &w, 1, &grad), WEFT_FAILED_PRECONDITION, kBarrier);
  weft_tensor_release(x);
  weft_tensor_release(w);
  weft_tensor_release(y);
  weft_tensor_release(z);
}

static weft_tensor* indices(weft_context* ctx, weft_dtype dtype, const void* data, size_t size, size_t count) {
  const int64_t dims[] = {(int64_t)count};
  weft_tensor* out = NULL;
  MUST(weft_tensor_from_host(ctx, NULL, dtype, dims, 1, data, size, &out));
  return out;
}

/* Debug mode looks at labels and indices that the operation would hold to the range or answer with NaN; others do not. */
static void check_indices(weft_mode mode) {
  static const int32_t wrong[] = {0, 3, -1}, right[] = {0, 2, 1};
  static const uint64_t huge[] = {1, UINT64_MAX, 0};
  static const weft_setting off = {"cache_mode", WEFT_STRLEN, "off", WEFT_STRLEN};
  weft_context_options options = WEFT_CONTEXT_OPTIONS_INIT;
  weft_context* ctx = NULL;
  weft_tensor *table, *bad, *far, *good, *out = NULL;
  options.settings = &off;
  options.setting_count = 1;
  options.mode = mode;
  MUST(weft_context_create(&options, &ctx));
  table = ramp(ctx, DIMS(3, 3));
  bad = indices(ctx, WEFT_I32, wrong, sizeof(wrong), 3);
  far = indices(ctx, WEFT_U64, huge, sizeof(huge), 3);
  good = indices(ctx, WEFT_I32, right, sizeof(right), 3);
#define IN_DEBUG(call, text)                                      \
  do {                                                            \
    if (mode == WEFT_MODE_DEBUG) {                                \
      FAILS(call, WEFT_OUT_OF_RANGE, text);                       \
    } else if (OK(call)) {                                        \
      weft_tensor_release(out);                                   \
    }                                                             \
  } while (0)
  IN_DEBUG(weft_embedding(ctx, table, bad, NULL, &out),
           "embedding(f32[3, 3], i32[3]): ids: element 1 is 3; 0 to 2 are possible (checked in debug mode)");
  IN_DEBUG(weft_take(ctx, table, far, NULL, &out),
           "take(f32[3, 3], u64[3]): indices: element 1 is 18446744073709551615; 0 to 2 are possible (checked in debug mode)");
  IN_DEBUG(weft_cross_entropy(ctx, table, bad, NULL, &out),
           "cross_entropy(f32[3, 3], i32[3]): labels: element 1 is 3; 0 to 2 are possible (checked in debug mode)");
  if (OK(weft_embedding(ctx, table, good, NULL, &out))) weft_tensor_release(out);
  if (OK(weft_cross_entropy(ctx, table, good, NULL, &out))) weft_tensor_release(out);
  weft_tensor_release(table);
  weft_tensor_release(bad);
  weft_tensor_release(far);
  weft_tensor_release(good);
  weft_context_release(ctx);
}

int main(void) {
  weft_context* ctx = new_context();
  name_function_and_argument(ctx);
  guess_names(ctx);
  guess_paths(ctx);
  spell_types(ctx);
  name_the_layout(ctx);
  blame_barriers(ctx);
  weft_context_release(ctx);
  check_indices(WEFT_MODE_DEBUG);
  check_indices(WEFT_MODE_EAGER);
  return done("texts");
}
