/* Bad input to every family of operations: each case has its error text. */
#include "check.h"

/* What the cases are made of: a and b do not fit together, i is of integers, f belongs to another context. */
static weft_context *ctx, *other;
static weft_tensor *a, *b, *f, *i, *truth, *zero, *labels, *o;
static weft_tensor* outs[4];
static size_t n;

static void set_up(void) {
  const int32_t numbers[6] = {0, 1, 2, 3, 4, 5};
  ctx = new_context();
  other = new_context();
  a = ramp(ctx, DIMS(2, 3));
  b = ramp(ctx, DIMS(4));
  f = ramp(other, DIMS(2, 3));
  MUST(weft_tensor_from_host(ctx, NULL, WEFT_I32, DIMS(2, 3), numbers, 24, &i));
  MUST(weft_tensor_from_host(ctx, NULL, WEFT_I32, DIMS(2), numbers, 8, &labels));
  MUST(weft_tensor_from_i64(ctx, WEFT_BOOL, 1, &truth));
  MUST(weft_tensor_from_f64(ctx, WEFT_F32, 0, &zero));
}

static void tear_down(void) {
  weft_tensor* all[7];
  size_t k;
  all[0] = a, all[1] = b, all[2] = f, all[3] = i, all[4] = truth, all[5] = zero, all[6] = labels;
  for (k = 0; k < 7; ++k) weft_tensor_release(all[k]);
  weft_context_release(ctx);
  weft_context_release(other);
}

static void elementwise(void) {
  INVALID(weft_add(ctx, a, b, &o),
          "add(f32[2, 3], f32[4]): shapes [2, 3] and [4] do not broadcast: dimension -1 is 3 and 4; sizes must be equal or 1");
  INVALID(weft_add(ctx, a, i, &o),
          "add(f32[2, 3], i32[2, 3]): operands x and y have dtypes f32 and i32; they must agree (convert one of them)");
  INVALID(weft_add(ctx, a, NULL, &o), "add: y is NULL; a weft_tensor is needed");
  INVALID(weft_add(ctx, a, f, &o), "add: y belongs to another context");
  INVALID(weft_add(other, a, a, &o), "add: x belongs to another context");
  INVALID(weft_add(ctx, a, a, NULL), "add: out is NULL");
  INVALID(weft_add(NULL, a, a, &o), "add: ctx is NULL; a weft_context is needed");
  INVALID(weft_exp(ctx, i, &o), "exp(i32[2, 3]): operand x has dtype i32; allowed are f8 of every kind, f16, bf16, f32, f64, c64, c128");
  INVALID(weft_sqrt(ctx, truth, &o), "sqrt(bool[]): operand x has dtype bool; allowed are f8 of every kind, f16, bf16, f32, f64, c64, c128");
  INVALID(weft_bitwise_and(ctx, a, a, &o),
          "bitwise_and(f32[2, 3], f32[2, 3]): operand x has dtype f32; allowed are i2 to i64, u2 to u64, bool");
  INVALID(weft_where(ctx, a, a, a, &o),
          "where(f32[2, 3], f32[2, 3], f32[2, 3]): operand condition has dtype f32; allowed are bool");
  INVALID(weft_clamp(ctx, b, a, b, &o),
          "clamp(f32[4], f32[2, 3], f32[4]): shapes [4] and [2, 3] do not broadcast: dimension -1 is 4 and 3; sizes must be equal or 1");
  INVALID(weft_compare(ctx, a, a, (weft_compare_direction)9, &o),
          "compare: attribute direction is 9; there are 0 to 5");
}

static void payload(weft_error* e, const char* operation, const char* operands) {
  const char* types = weft_error_payload(e, "weft.operands", WEFT_STRLEN, NULL);
  CHECK_TEXT(weft_error_payload(e, "weft.operation", WEFT_STRLEN, NULL), operation);
  if (operands != NULL) CHECK_TEXT(types, operands);
  if (operands == NULL) CHECK(types == NULL);
  weft_error_release(e);
}

/* The operation and the operands as they were given, not as they were broadcast. */
static void details_by_key(void) {
  weft_error* e = weft_add(ctx, a, labels, &o);
  CHECK_TEXT(weft_error_message(e, NULL),
             "add(f32[2, 3], i32[2]): operands x and y have dtypes f32 and i32; they must agree (convert one of them)");
  payload(e, "add", "f32[2, 3], i32[2]");
  payload(weft_add(ctx, a, b, &o), "add", "f32[2, 3], f32[4]");
  payload(weft_matmul(ctx, a, a, NULL, &o), "matmul", "f32[2, 3], f32[2, 3]");
  payload(weft_add(ctx, a, NULL, &o), "add", NULL);
  payload(weft_add(ctx, a, f, &o), "add", NULL);
}

/* Counts and lengths that no memory has: negative numbers of other languages. Nothing is read. */
static void impossible_counts(void) {
  const size_t minus_two = (size_t)-2;
  weft_blob* blob = NULL;
  weft_event* event = NULL;
  weft_attr attr;
  memset(&attr, 0, sizeof attr);
  INVALID(weft_eval(ctx, &a, minus_two, NULL), "weft_eval: tensors has a length of 18446744073709551614; at most 16777216 is possible");
  INVALID(weft_grad(ctx, a, NULL, &a, minus_two, outs), "weft_grad: xs has a length of 18446744073709551614; at most 16777216 is possible");
  INVALID(weft_concatenate(ctx, &a, minus_two, NULL, &o),
          "concatenate: inputs has a length of 18446744073709551614; at most 16777216 is possible");
  INVALID(weft_op_apply(ctx, "add", WEFT_STRLEN, &a, minus_two, NULL, 0, outs, 4, &n),
          "weft_op_apply: inputs has a length of 18446744073709551614; at most 16777216 is possible");
  INVALID(weft_op_apply(ctx, "add", WEFT_STRLEN, &a, 1, &attr, minus_two, outs, 4, &n),
          "weft_op_apply: attrs has a length of 18446744073709551614; at most 16777216 is possible");
  INVALID(weft_wait_any(&event, minus_two, 0, &n), "weft_wait_any: events has a length of 18446744073709551614; at most 16777216 is possible");
  INVALID(weft_context_option(ctx, "mode", minus_two, &blob),
          "weft_context_option: name has a length of 18446744073709551614; at most 281474976710656 is possible");
}

static void attributes(void) {
  weft_clip_opts clip = WEFT_CLIP_OPTS_INIT;
  weft_cross_entropy_opts entropy = WEFT_CROSS_ENTROPY_OPTS_INIT;
  INVALID(weft_clip(ctx, a, NULL, &o), "clip(f32[2, 3]): neither low nor high is given; at least one is needed");
  clip.present = 3;
  clip.low = NAN;
  clip.high = 1;
  INVALID(weft_clip(ctx, a, &clip, &o), "clip(f32[2, 3]): low is nan and high is 1; bounds are numbers");
  entropy.present = WEFT_CROSS_ENTROPY_HAS_LABEL_SMOOTHING;
  entropy.label_smoothing = 2;
  INVALID(weft_cross_entropy(ctx, a, labels, &entropy, &o),
          "cross_entropy(f32[2, 3], i32[2]): label_smoothing is 2; it must be 0 to 1");
  entropy.label_smoothing = INFINITY;
  INVALID(weft_cross_entropy(ctx, a, labels, &entropy, &o),
          "cross_entropy(f32[2, 3], i32[2]): label_smoothing is inf; it must be 0 to 1");
  entropy.label_smoothing = NAN;
  INVALID(weft_cross_entropy(ctx, a, labels, &entropy, &o),
          "cross_entropy(f32[2, 3], i32[2]): label_smoothing is nan; it must be 0 to 1");
  entropy.present = WEFT_CROSS_ENTROPY_HAS_REDUCTION;
  entropy.reduction = (weft_cross_entropy_reduction)-1;
  INVALID(weft_cross_entropy(ctx, a, labels, &entropy, &o),
          "cross_entropy: attribute reduction is -1; there are 0 to 2");
  INVALID(weft_convert(ctx, a, (weft_dtype)77, &o), "convert: dtype 0x4d is not one that Weft knows");
  INVALID(weft_bitcast_convert(ctx, a, WEFT_I64, &o),
          "bitcast_convert(f32[2, 3]): x has 32-bit elements (f32) and dtype i64 has 64; they must be equally wide");
}

static void shapes(void) {
  INVALID(weft_reshape(ctx, a, DIMS(4, 2), &o),
          "reshape(f32[2, 3]): shape [4, 2] does not hold the 6 elements of [2, 3]");
  INVALID(weft_reshape(ctx, a, DIMS(-1, -1), &o),
          "reshape(f32[2, 3]): shape [-1, -1] has -1 twice; only one entry may be -1");
  INVALID(weft_reshape(ctx, a, DIMS(-2, 3), &o),
          "reshape(f32[2, 3]): shape [-2, 3] has a negative entry; only one entry may be -1");
  INVALID(weft_reshape(ctx, a, NULL, 3, &o), "reshape: attribute shape is NULL with a count of 3");
  INVALID(weft_reshape(ctx, a, DIMS(1), &o), "reshape(f32[2, 3]): shape [1] does not hold the 6 elements of [2, 3]");
  INVALID(weft_broadcast_to(ctx, a, DIMS(2, 4), &o),
          "broadcast_to(f32[2, 3]): dimension -1 is 3 and cannot become 4 (it must be 1 or equal)");
  INVALID(weft_broadcast_to(ctx, a, DIMS(-1, 3), &o),
          "broadcast_to(f32[2, 3]): dimension -2 is 2 and cannot become -1 (it must be 1 or equal)");
  INVALID(weft_broadcast_to(ctx, b, DIMS(INT64_C(1) << 40, INT64_C(1) << 40, 4), &o),
          "broadcast_to(f32[4]): the result [1099511627776, 1099511627776, 4] has a negative or too large dimension");
  INVALID(weft_broadcast_in_dim(ctx, b, DIMS(4, 2), DIMS(1), &o),
          "broadcast_in_dim(f32[4]): operand dimension 0 is 4 and cannot become 2 (it must be 1 or equal)");
  INVALID(weft_transpose(ctx, a, DIMS(0, 0), &o),
          "transpose(f32[2, 3]): permutation [0, 0] must name each of the 2 dimensions once, counting from 0");
  INVALID(weft_transpose(ctx, a, DIMS(0, 1, 2), &o),
          "transpose(f32[2, 3]): permutation [0, 1, 2] must name each of the 2 dimensions once, counting from 0");
  INVALID(weft_slice(ctx, a, DIMS(0, 0), DIMS(3, 3), DIMS(1, 1), &o),
          "slice(f32[2, 3]): dimension 0 has size 2 and is asked for from 0 to 3; 0 <= start <= limit <= size must hold");
  INVALID(weft_slice(ctx, a, DIMS(0, 0), DIMS(2, 3), DIMS(0, 1), &o),
          "slice(f32[2, 3]): strides entry 0 is 0; it must be at least 1 (see reverse)");
  INVALID(weft_full(ctx, DIMS(2, -3), 1.0, NULL, &o),
          "full(): the result [2, -3] has a negative or too large dimension");
  INVALID(weft_full(ctx, DIMS(INT64_C(1) << 61, 8), 1.0, NULL, &o),
          "full(): the result [2305843009213693952, 8] has a negative or too large dimension");
  INVALID(weft_iota(ctx, DIMS(3), 1, NULL, &o), "iota(): dimension is 1; shape [3] has dimensions 0 to 0");
  INVALID(weft_reverse(ctx, a, DIMS(2), &o),
          "reverse(f32[2, 3]): dimensions is 2; a tensor of rank 2 has axes -2 to 1");
  INVALID(weft_pad(ctx, a, a, DIMS(0, 0), DIMS(0, 0), DIMS(0, 0), &o),
          "pad(f32[2, 3], f32[2, 3]): value must be a scalar, not of shape [2, 3]");
  INVALID(weft_pad(ctx, a, zero, DIMS(-5, 0), DIMS(0, 0), DIMS(0, 0), &o),
          "pad(f32[2, 3], f32[]): dimension 0 of size 2 with padding low -5, high 0, interior 0 would have a negative size");
  INVALID(weft_pad(ctx, a, zero, DIMS(0, 0), DIMS(0, 0), DIMS(-1, 0), &o),
          "pad(f32[2, 3], f32[]): interior_padding entry 0 is -1; it cannot be negative");
}

static void reductions(void) {
  int64_t dims[2] = {0, 5};
  weft_sum_opts sum = WEFT_SUM_OPTS_INIT;
  weft_softmax_opts softmax = WEFT_SOFTMAX_OPTS_INIT;
  sum.present = WEFT_SUM_HAS_DIMS;
  sum.dims = dims;
  sum.dims_count = 2;
  INVALID(weft_sum(ctx, a, &sum, &o), "sum(f32[2, 3]): dims is 5; a tensor of rank 2 has axes -2 to 1");
  dims[1] = 0;
  INVALID(weft_sum(ctx, a, &sum, &o), "sum(f32[2, 3]): dims [0, 0] names axis 0 twice");
  sum.dims = NULL;
  INVALID(weft_sum(ctx, a, &sum, &o), "sum: attribute dims is NULL with a count of 2");
  sum.present = 8;
  FAILS(weft_sum(ctx, a, &sum, &o), WEFT_UNIMPLEMENTED,
        "sum: opts->present has bits (0x8) that this version does not know");
  sum.struct_size = 3;
  INVALID(weft_sum(ctx, a, &sum, &o),
          "weft_sum_opts.struct_size is 3; start from its _INIT macro or its _init function");
  INVALID(weft_all(ctx, a, NULL, &o), "all(f32[2, 3]): operand x has dtype f32; allowed are bool");
  INVALID(weft_reduce(ctx, a, DIMS(0), (weft_reduce_reducer)7, &o),
          "reduce: attribute reducer is 7; there are 0 to 5");
  INVALID(weft_reduce(ctx, a, DIMS(-3), WEFT_REDUCE_REDUCER_SUM, &o),
          "reduce(f32[2, 3]): dimensions is -3; a tensor of rank 2 has axes -2 to 1");
  softmax.present = WEFT_SOFTMAX_HAS_AXIS;
  softmax.axis = 2;
  INVALID(weft_softmax(ctx, a, &softmax, &o), "softmax(f32[2, 3]): axis is 2; a tensor of rank 2 has axes -2 to 1");
  INVALID(weft_softmax(ctx, i, NULL, &o),
          "softmax(i32[2, 3]): operand x has dtype i32; allowed are f8 of every kind, f16, bf16, f32, f64");
}

static void products_and_losses(void) {
  INVALID(weft_matmul(ctx, a, a, NULL, &o),
          "matmul(f32[2, 3], f32[2, 3]): x has 3 columns and y 2 rows; they must be equal");
  INVALID(weft_matmul(ctx, truth, truth, NULL, &o),
          "matmul(bool[], bool[]): a scalar has no matrix product; use mul");
  INVALID(weft_matmul(ctx, zero, zero, NULL, &o), "matmul(f32[], f32[]): a scalar has no matrix product; use mul");
  INVALID(weft_dot_general(ctx, a, a, NULL, 0, NULL, 0, DIMS(1), DIMS(0), NULL, &o),
          "dot_general(f32[2, 3], f32[2, 3]): contracting dimensions 1 of lhs and 0 of rhs have sizes 3 and 2; they must be equal");
  INVALID(weft_linear(ctx, a, a, NULL, &o),
          "linear(f32[2, 3], f32[2, 3]): x [2, 3] must end in 2, the rows of w [2, 3]");
  INVALID(weft_mse(ctx, a, b, NULL, &o), "mse(f32[2, 3], f32[4]): shapes [2, 3] and [4] must be equal");
  INVALID(weft_cross_entropy(ctx, a, a, NULL, &o),
          "cross_entropy(f32[2, 3], f32[2, 3]): operand labels has dtype f32; allowed are i2 to i64, u2 to u64");
  INVALID(weft_cross_entropy(ctx, a, i, NULL, &o),
          "cross_entropy(f32[2, 3], i32[2, 3]): labels must have shape [2], that of logits without the last dimension, not [2, 3]");
}

static void calls_by_name(void) {
  weft_attr attr;
  memset(&attr, 0, sizeof attr);
  FAILS(weft_op_apply(ctx, "nothing", WEFT_STRLEN, &a, 1, NULL, 0, outs, 4, &n), WEFT_NOT_FOUND,
        "weft_op_apply: there is no operation 'nothing'; weft_op_list names all");
  FAILS(weft_op_apply(ctx, "parameter", WEFT_STRLEN, &a, 1, NULL, 0, outs, 4, &n), WEFT_NOT_FOUND,
        "weft_op_apply: there is no operation 'parameter'; weft_op_list names all");
  INVALID(weft_op_apply(ctx, "add", WEFT_STRLEN, &a, 1, NULL, 0, outs, 4, &n),
          "add(f32[2, 3]): 1 operands given, 2 expected");
  FAILS(weft_op_apply(ctx, "add", WEFT_STRLEN, &a, 1, NULL, 0, outs, 0, &n), WEFT_OUT_OF_RANGE,
        "weft_op_apply: add has 1 results; capacity is 0");
  INVALID(weft_op_apply(ctx, NULL, 3, &a, 1, NULL, 0, outs, 4, &n), "weft_op_apply: name is NULL");
  INVALID(weft_op_apply(ctx, "add", WEFT_STRLEN, NULL, 2, NULL, 0, outs, 4, &n), "weft_op_apply: inputs is NULL");
  attr.name = "axi";
  attr.name_length = WEFT_STRLEN;
  attr.type = WEFT_VALUE_INT;
  INVALID(weft_op_apply(ctx, "softmax", WEFT_STRLEN, &a, 1, &attr, 1, outs, 4, &n),
          "softmax: there is no attribute 'axi'; there are axis, safe");
  INVALID(weft_op_apply(ctx, "add", WEFT_STRLEN, &a, 1, &attr, 1, outs, 4, &n),
          "add: there is no attribute 'axi'; it takes none");
  attr.name = "axis";
  attr.type = WEFT_VALUE_TEXT;
  INVALID(weft_op_apply(ctx, "softmax", WEFT_STRLEN, &a, 1, &attr, 1, outs, 4, &n),
          "softmax: attribute axis takes an integer, not text (WEFT_VALUE_TEXT)");
  attr.name = "direction";
  attr.data = "LT";
  attr.count = 2;
  outs[0] = outs[1] = a;
  INVALID(weft_op_apply(ctx, "compare", WEFT_STRLEN, outs, 2, &attr, 1, outs, 4, &n),
          "compare: attribute direction is 'LT'; there are eq, ne, ge, gt, le, lt");
  attr.type = WEFT_VALUE_ENUM;
  INVALID(weft_op_apply(ctx, "compare", WEFT_STRLEN, outs, 2, &attr, 1, outs, 4, &n),
          "compare: attribute direction is 'LT'; there are eq, ne, ge, gt, le, lt");
  attr.data = NULL;
  attr.i = (int64_t)1 << 32; /* eq, if the upper half got lost */
  INVALID(weft_op_apply(ctx, "compare", WEFT_STRLEN, outs, 2, &attr, 1, outs, 4, &n),
          "compare: attribute direction is 4294967296; there are 0 to 5");
  attr.name = "dtype";
  attr.type = WEFT_VALUE_DTYPE;
  attr.i = (int64_t)1 << 32 | WEFT_F16;
  INVALID(weft_op_apply(ctx, "convert", WEFT_STRLEN, outs, 1, &attr, 1, outs, 4, &n),
          "convert: attribute dtype is 0x100011002, which is no dtype");
  attr.name = "axis";
  attr.type = (weft_value_type)99;
  INVALID(weft_op_apply(ctx, "softmax", WEFT_STRLEN, &a, 1, &attr, 1, outs, 4, &n),
          "softmax: attribute axis takes an integer, not the unknown weft_value_type 99");
}

static void gradients_and_assignment(void) {
  weft_tensor* total = NULL;
  FAILS(weft_grad(ctx, a, NULL, &a, 1, outs), WEFT_FAILED_PRECONDITION,
        "weft_grad: xs[0] does not require a gradient; call weft_tensor_require_grad on it before it is used");
  INVALID(weft_tensor_require_grad(i, 1), "weft_tensor_require_grad: only float and complex tensors can require gradients, not i32[2, 3]");
  INVALID(weft_tensor_assign(a, b), "weft_tensor_assign: target is f32[2, 3], value f32[4]; dtype and shape must be the same");
  INVALID(weft_tensor_assign(a, f), "weft_tensor_assign: value belongs to another context");
  INVALID(weft_tensor_assign(a, i), "weft_tensor_assign: target is f32[2, 3], value i32[2, 3]; dtype and shape must be the same");
  MUST(weft_tensor_require_grad(a, 1));
  MUST(weft_sum(ctx, a, NULL, &total));
  INVALID(weft_grad(ctx, a, NULL, &a, 1, outs),
          "weft_grad: y has shape [2, 3]; without a cotangent it must have one element (reduce it, or give a cotangent)");
  INVALID(weft_grad(ctx, a, b, &a, 1, outs), "weft_grad: cotangent is f32[4]; it must have y's type f32[2, 3]");
  FAILS(weft_grad(ctx, total, NULL, &b, 1, outs), WEFT_FAILED_PRECONDITION,
        "weft_grad: xs[0] does not require a gradient; call weft_tensor_require_grad on it before it is used");
  INVALID(weft_grad(ctx, total, NULL, &f, 1, outs), "weft_grad: xs[0] belongs to another context");
  INVALID(weft_grad(ctx, total, NULL, NULL, 1, outs), "weft_grad: xs is NULL");
  INVALID(weft_eval(ctx, &f, 1, NULL), "weft_eval: a tensor belongs to another context");
  INVALID(weft_eval(other, &a, 1, NULL), "weft_eval: a tensor belongs to another context");
  INVALID(weft_eval(ctx, NULL, 1, NULL), "weft_eval: tensors is NULL");
  weft_tensor_release(total);
}

int main(void) {
  set_up();
  elementwise();
  details_by_key();
  impossible_counts();
  attributes();
  shapes();
  reductions();
  products_and_losses();
  calls_by_name();
  gradients_and_assignment();
  CHECK(o == NULL);
  tear_down();
  return done("bad_input");
}
