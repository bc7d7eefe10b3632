/* Bad input, family by family, through the fluent layer: what bad_input.c leaves, so that every operation stands in one
 * of the two (generated_test.py looks). Each case has a scope of its own and the exact text, without its position. */
#include "check.h"

static weft_context *ctx, *other;
static weft_tensor *a, *b, *m, *image, *kernel, *ids, *many, *truth, *bits, *zero, *foreign, *seq, *w3, *half, *philox;
static weft_tensor *r0, *r1, *r2;

static void refused_at(wf_scope* s, const char* text, int line) {
  weft_error* e = wf_end(s);
  size_t skip = 0;
  if (weft_error_payload(e, "weft.position", WEFT_STRLEN, &skip) == NULL) {
    printf("%s:%d: %s\n  wanted: \"%s\"\n", __FILE__, line, e == NULL ? "no error" : "the error has no position", text);
    ++g_failures;
  } else if (strcmp(weft_error_message(e, NULL) + skip + 2, text) != 0 ||
             (weft_error_code(e) != WEFT_INVALID_ARGUMENT && weft_error_code(e) != WEFT_UNIMPLEMENTED)) {
    printf("%s:%d: error %d\n  \"%s\"\n  wanted: \"%s\"\n", __FILE__, line, (int)weft_error_code(e),
           weft_error_message(e, NULL) + skip + 2, text);
    ++g_failures;
  }
  weft_error_release(e);
}
#define BAD(call, text)            \
  do {                             \
    wf_scope* s = wf_begin(ctx);   \
    (void)(call);                  \
    refused_at(s, text, __LINE__); \
  } while (0)

static void set_up(void) {
  const int32_t numbers[6] = {0, 1, 2, 3, 4, 5};
  const uint8_t two[2] = {1, 0};
  const uint64_t state[3] = {1, 0, 0};
  ctx = new_context();
  other = new_context();
  a = ramp(ctx, DIMS(2, 3));
  b = ramp(ctx, DIMS(4));
  m = ramp(ctx, DIMS(3, 4));
  image = ramp(ctx, DIMS(1, 5, 5, 2));
  kernel = ramp(ctx, DIMS(3, 3, 2, 4));
  w3 = ramp(ctx, DIMS(3));
  seq = ramp(ctx, DIMS(2, 2, 4, 8));
  foreign = ramp(other, DIMS(2, 3));
  MUST(weft_tensor_from_host(ctx, NULL, WEFT_I32, DIMS(2, 3), numbers, 24, &many));
  MUST(weft_tensor_from_host(ctx, NULL, WEFT_I32, DIMS(2), numbers, 8, &ids));
  MUST(weft_tensor_from_host(ctx, NULL, WEFT_BOOL, DIMS(2), two, 2, &truth));
  MUST(weft_tensor_from_host(ctx, NULL, WEFT_U64, DIMS(3), state, 24, &philox));
  MUST(weft_tensor_from_i64(ctx, WEFT_U32, 1, &bits));
  MUST(weft_tensor_from_f64(ctx, WEFT_F32, 0, &zero));
  MUST(weft_convert(ctx, a, WEFT_F16, &half));
}

static void tear_down(void) {
  weft_tensor* all[15];
  size_t k;
  all[0] = a, all[1] = b, all[2] = m, all[3] = image, all[4] = kernel, all[5] = ids, all[6] = many, all[7] = truth;
  all[8] = bits, all[9] = zero, all[10] = foreign, all[11] = seq, all[12] = w3, all[13] = half, all[14] = philox;
  for (k = 0; k < 15; ++k) weft_tensor_release(all[k]);
  weft_context_release(ctx);
  weft_context_release(other);
}

/* Two operands: same dtype, shapes that broadcast. */
static void pairs(void) {
#define PAIR(op)           \
  BAD(wf_##op(s, a, b),    \
      #op "(f32[2, 3], f32[4]): shapes [2, 3] and [4] do not broadcast: dimension -1 is 3 and 4; sizes must be equal or 1")
  PAIR(sub); PAIR(mul); PAIR(div); PAIR(pow); PAIR(rem); PAIR(maximum); PAIR(minimum); PAIR(eq); PAIR(ne); PAIR(ge);
  PAIR(gt); PAIR(le); PAIR(lt);
  BAD(wf_sub(s, a, many),
      "sub(f32[2, 3], i32[2, 3]): operands x and y have dtypes f32 and i32; they must agree (convert one of them)");
  BAD(wf_mul(s, a, half),
      "mul(f32[2, 3], f16[2, 3]): operands x and y have dtypes f32 and f16; they must agree (convert one of them)");
  BAD(wf_div(s, truth, truth),
      "div(bool[2], bool[2]): operand x has dtype bool; allowed are f8 of every kind, f16, bf16, f32, f64, i2 to i64, u2 to u64, c64, c128");
  BAD(wf_maximum(s, a, foreign), "maximum: y belongs to another context");
  BAD(wf_ge(s, NULL, a), "ge: x is NULL; a weft_tensor is needed");
  BAD(wf_atan2(s, many, many),
      "atan2(i32[2, 3], i32[2, 3]): operand x has dtype i32; allowed are f8 of every kind, f16, bf16, f32, f64, c64, c128");
  BAD(wf_bitwise_or(s, a, a),
      "bitwise_or(f32[2, 3], f32[2, 3]): operand x has dtype f32; allowed are i2 to i64, u2 to u64, bool");
  BAD(wf_bitwise_xor(s, a, a),
      "bitwise_xor(f32[2, 3], f32[2, 3]): operand x has dtype f32; allowed are i2 to i64, u2 to u64, bool");
  BAD(wf_shift_left(s, a, a),
      "shift_left(f32[2, 3], f32[2, 3]): operand x has dtype f32; allowed are i8 to i64, u8 to u64");
  BAD(wf_shift_right_arithmetic(s, a, a),
      "shift_right_arithmetic(f32[2, 3], f32[2, 3]): operand x has dtype f32; allowed are i8 to i64, u8 to u64");
  BAD(wf_shift_right_logical(s, a, a),
      "shift_right_logical(f32[2, 3], f32[2, 3]): operand x has dtype f32; allowed are i8 to i64, u8 to u64");
}

/* One operand: its dtypes. */
static void single(void) {
#define FLOATS(op) BAD(wf_##op(s, many), #op "(i32[2, 3]): operand x has dtype i32; allowed are f8 of every kind, f16, bf16, f32, f64")
  FLOATS(ceil); FLOATS(erf); FLOATS(erf_inv); FLOATS(floor); FLOATS(round_away); FLOATS(round); FLOATS(trunc); FLOATS(gelu); FLOATS(silu); FLOATS(softplus); FLOATS(elu);
  FLOATS(leaky_relu);
#define COMPLEX_TOO(op) \
  BAD(wf_##op(s, many), #op "(i32[2, 3]): operand x has dtype i32; allowed are f8 of every kind, f16, bf16, f32, f64, c64, c128")
  COMPLEX_TOO(cbrt);
  COMPLEX_TOO(cos); COMPLEX_TOO(expm1); COMPLEX_TOO(log); COMPLEX_TOO(log1p); COMPLEX_TOO(sigmoid); COMPLEX_TOO(rsqrt);
  COMPLEX_TOO(sin); COMPLEX_TOO(tan); COMPLEX_TOO(tanh); COMPLEX_TOO(real); COMPLEX_TOO(imag);
  COMPLEX_TOO(exp2); COMPLEX_TOO(is_finite); COMPLEX_TOO(is_nan); COMPLEX_TOO(log2); COMPLEX_TOO(std_mean); COMPLEX_TOO(var_mean);
  BAD(wf_conj(s, truth),
      "conj(bool[2]): operand x has dtype bool; allowed are f8 of every kind, f16, bf16, f32, f64, i2 to i64, u2 to u64, c64, c128");
  BAD(wf_complex(s, many, many), "complex(i32[2, 3], i32[2, 3]): operand re has dtype i32; allowed are f8 of every kind, f16, bf16, f32, f64");
  BAD(wf_complex(s, half, half),
      "complex(f16[2, 3], f16[2, 3]): the parts are f16; complex numbers have parts of f32 or f64");
  BAD(wf_complex(s, a, b),
      "complex(f32[2, 3], f32[4]): shapes [2, 3] and [4] do not broadcast: dimension -1 is 3 and 4; sizes must be equal or 1");
  BAD(wf_abs(s, truth), "abs(bool[2]): operand x has dtype bool; allowed are f8 of every kind, f16, bf16, f32, f64, i2 to i64, c64, c128");
  BAD(wf_neg(s, truth), "neg(bool[2]): operand x has dtype bool; allowed are f8 of every kind, f16, bf16, f32, f64, i2 to i64, u2 to u64, c64, c128");
  BAD(wf_sign(s, truth), "sign(bool[2]): operand x has dtype bool; allowed are f8 of every kind, f16, bf16, f32, f64, i2 to i64, c64, c128");
  BAD(wf_square(s, truth),
      "square(bool[2]): operand x has dtype bool; allowed are f8 of every kind, f16, bf16, f32, f64, i2 to i64, u2 to u64, c64, c128");
  BAD(wf_relu(s, truth), "relu(bool[2]): operand x has dtype bool; allowed are f8 of every kind, f16, bf16, f32, f64, i2 to i64, u2 to u64");
  BAD(wf_relu6(s, truth), "relu6(bool[2]): operand x has dtype bool; allowed are f8 of every kind, f16, bf16, f32, f64");
  BAD(wf_clz(s, a), "clz(f32[2, 3]): operand x has dtype f32; allowed are i8 to i64, u8 to u64");
  BAD(wf_popcount(s, a), "popcount(f32[2, 3]): operand x has dtype f32; allowed are i8 to i64, u8 to u64");
  BAD(wf_bitwise_not(s, a),
      "bitwise_not(f32[2, 3]): operand x has dtype f32; allowed are i2 to i64, u2 to u64, bool");
  BAD(wf_integer_pow(s, many, 2), "integer_pow(i32[2, 3]): operand x has dtype i32; allowed are f8 of every kind, f16, bf16, f32, f64");
  BAD(wf_integer_pow(s, NULL, 2), "integer_pow: x is NULL; a weft_tensor is needed");
  BAD(wf_stop_gradient(s, NULL), "stop_gradient: x is NULL; a weft_tensor is needed");
  BAD(wf_gelu(s, a, .form = (weft_gelu_form)2), "gelu: attribute form is 2; there are 0 to 1");
  BAD(wf_elu(s, a, .alpha = NAN), "elu(f32[2, 3]): alpha is nan; it must be finite");
  BAD(wf_leaky_relu(s, a, .slope = INFINITY), "leaky_relu(f32[2, 3]): slope is inf; it must be finite");
}

static void shapes(void) {
  BAD(wf_concatenate(s, WF_TENSORS(a, b)),
      "concatenate(f32[2, 3], f32[4]): inputs 0 and 1 have shapes [2, 3] and [4]; all but dimension 0 must be equal");
  BAD(wf_concatenate(s, WF_TENSORS(a, m)),
      "concatenate(f32[2, 3], f32[3, 4]): inputs 0 and 1 have shapes [2, 3] and [3, 4]; all but dimension 0 must be equal");
  BAD(wf_concatenate(s, WF_TENSORS(a, many)),
      "concatenate(f32[2, 3], i32[2, 3]): inputs 0 and 1 have dtypes f32 and i32; they must agree (convert one of them)");
  BAD(wf_concatenate(s, WF_TENSORS(a, a), .dimension = 2),
      "concatenate(f32[2, 3], f32[2, 3]): dimension is 2; a tensor of rank 2 has axes -2 to 1");
  BAD(wf_concatenate(s, NULL, 0), "concatenate: inputs needs at least one tensor");
  BAD(wf_stack(s, WF_TENSORS(a, m)), "stack(f32[2, 3], f32[3, 4]): shapes [2, 3] and [3, 4] must be equal");
  BAD(wf_stack(s, WF_TENSORS(a, a), .axis = 4),
      "stack(f32[2, 3], f32[2, 3]): axis is 4; a tensor of rank 3 has axes -3 to 2");
  BAD(wf_expand_dims(s, a, WF_INTS(4)), "expand_dims(f32[2, 3]): dims is 4; a tensor of rank 3 has axes -3 to 2");
  BAD(wf_expand_dims(s, a, WF_INTS(0, 0)), "expand_dims(f32[2, 3]): dims [0, 0] names axis 0 twice");
  BAD(wf_squeeze(s, a, .dims = WF_INTS(0)), "squeeze(f32[2, 3]): axis 0 has size 2; only size 1 can be dropped");
  BAD(wf_squeeze(s, a, .dims = WF_INTS(-3)), "squeeze(f32[2, 3]): dims is -3; a tensor of rank 2 has axes -2 to 1");
  BAD(wf_flatten(s, a, .start_axis = 2), "flatten(f32[2, 3]): start_axis is 2; a tensor of rank 2 has axes -2 to 1");
  BAD(wf_flatten(s, a, .start_axis = 1, .end_axis = 0), "flatten(f32[2, 3]): start_axis 1 comes after end_axis 0");
  BAD(wf_slice_in_dim(s, a, 2), "slice_in_dim(f32[2, 3]): axis is 2; a tensor of rank 2 has axes -2 to 1");
  BAD(wf_slice_in_dim(s, a, 0, .step = 0), "slice_in_dim(f32[2, 3]): step is 0; it must be at least 1 (see reverse)");
  BAD(wf_slice_in_dim(s, a, 0, .step = -1), "slice_in_dim(f32[2, 3]): step is -1; it must be at least 1 (see reverse)");
  BAD(wf_dynamic_slice(s, a, WF_TENSORS(bits), WF_INTS(1, 1)),
      "dynamic_slice(f32[2, 3], u32[]): 1 start indices and 2 slice_sizes given; x has rank 2");
  BAD(wf_dynamic_slice(s, a, WF_TENSORS(bits, bits), WF_INTS(3, 1)),
      "dynamic_slice(f32[2, 3], u32[], u32[]): slice_sizes entry 0 is 3; dimension 0 has size 2");
  BAD(wf_dynamic_slice(s, a, WF_TENSORS(zero, zero), WF_INTS(1, 1)),
      "dynamic_slice(f32[2, 3], f32[], f32[]): operand start_indices has dtype f32; allowed are i2 to i64, u2 to u64");
  BAD(wf_dynamic_slice(s, a, WF_TENSORS(bits, bits), WF_INTS(-1, 1)),
      "dynamic_slice(f32[2, 3], u32[], u32[]): slice_sizes entry 0 is -1; dimension 0 has size 2");
  BAD(wf_dynamic_update_slice(s, a, m, WF_TENSORS(bits, bits)),
      "dynamic_update_slice(f32[2, 3], f32[3, 4], u32[], u32[]): update has size 3 in dimension 0; x has 2");
  BAD(wf_dynamic_update_slice(s, a, many, WF_TENSORS(bits, bits)),
      "dynamic_update_slice(f32[2, 3], i32[2, 3], u32[], u32[]): operands x and update have dtypes f32 and i32; they must agree (convert one of them)");
  BAD(wf_iota(s, WF_INTS(-4), 0), "iota(): the result [-4] has a negative or too large dimension");
  BAD(wf_iota(s, WF_INTS(4), -1), "iota(): dimension is -1; shape [4] has dimensions 0 to 0");
  BAD(wf_full(s, WF_INTS(2), 300.0, .dtype = WEFT_U8), "full(): value 300 does not fit u8");
  BAD(wf_full(s, WF_INTS(2), NAN, .dtype = WEFT_I32), "full(): value nan is not a whole number and dtype is i32");
  BAD(wf_full(s, WF_INTS(2), INFINITY, .dtype = WEFT_BOOL), "full(): value inf is not a whole number and dtype is bool");
  BAD(wf_reshape(s, a, WF_INTS(INT64_MAX, INT64_MAX)),
      "reshape(f32[2, 3]): shape [9223372036854775807, 9223372036854775807] does not hold the 6 elements of [2, 3]");
  BAD(wf_pad(s, a, zero, WF_INTS(INT64_MAX, 0), WF_INTS(0, 0), WF_INTS(0, 0)),
      "pad(f32[2, 3], f32[]): dimension 0 of size 2 with padding low 9223372036854775807, high 0, interior 0 is too large");
  BAD(wf_pad(s, a, zero, WF_INTS(0), WF_INTS(0, 0), WF_INTS(0, 0)),
      "pad(f32[2, 3], f32[]): edge_padding_low has 1 entries for an operand of rank 2");
}

static void indexing(void) {
  BAD(wf_tril(s, b), "tril(f32[4]): x must have at least 2 dimensions, not [4]");
  BAD(wf_triu(s, zero), "triu(f32[]): x must have at least 2 dimensions, not []");
  BAD(wf_roll(s, a, WF_INTS(1, 2)), "roll(f32[2, 3]): there are 2 shifts for 1 axes");
  BAD(wf_tile(s, a, WF_INTS(-1)), "tile(f32[2, 3]): reps has -1; it must not be negative");
  BAD(wf_repeat_interleave(s, a, -2), "repeat_interleave(f32[2, 3]): repeats is -2; it must not be negative");
  BAD(wf_arange(s, 0, 1, .step = 0), "arange(): from 0 to 1 by 0 there is no finite number of steps");
  BAD(wf_linspace(s, 0, 1, -1), "linspace(): count is -1; it must not be negative");
  BAD(wf_diff(s, a, .n = -1), "diff(f32[2, 3]): n is -1; it must be 0 to 64");
  BAD(wf_bincount(s, ids, NULL, -1), "bincount(i32[2]): length is -1; it must be 0 to 2147483647");
  BAD(wf_bincount(s, ids, a, 3), "bincount(i32[2], f32[2, 3]): weights have shape [2, 3], x has [2]; they must agree");
  BAD(wf_searchsorted(s, zero, a), "searchsorted(f32[], f32[2, 3]): sorted must have at least one dimension, not []");
  BAD(wf_searchsorted(s, a, w3), "searchsorted(f32[2, 3], f32[3]): values have shape [3]; rows of [2, 3] need as many rows of them");
  BAD(wf_isin(s, wf_complex(s, a, a), a),
      "isin(c64[2, 3], c64[2, 3]): operand x has dtype c64; allowed are f8 of every kind, f16, bf16, f32, f64, i2 to i64, u2 to u64, bool");
  BAD(wf_nonzero_static(s, a, -1), "nonzero_static(f32[2, 3]): size is -1; it must be 0 to 2147483647");
  BAD(wf_masked_select_static(s, a, truth, 2),
      "masked_select_static(f32[2, 3], bool[2]): shapes [2, 3] and [2] do not broadcast: dimension -1 is 3 and 2; sizes must be equal or 1");
  BAD(wf_boolean_mask_static(s, a, truth, 2, .axis = 1),
      "boolean_mask_static(f32[2, 3], bool[2]): the mask must have the sizes of x from axis 1 on: [2] are not there in [2, 3]");
  BAD(wf_unique_static(s, ids, 2, .fill = 0.5), "unique_static(i32[2]): fill 0.5 is not a whole number and dtype is i32");
  BAD(wf_take(s, a, a),
      "take(f32[2, 3], f32[2, 3]): operand indices has dtype f32; allowed are i2 to i64, u2 to u64");
  BAD(wf_take(s, a, ids, .axis = 2), "take(f32[2, 3], i32[2]): axis is 2; a tensor of rank 2 has axes -2 to 1");
  BAD(wf_take(s, zero, ids, .axis = 1), "take(f32[], i32[2]): axis is 1; of a tensor of rank 0 it can be 0 or -1, as of one element in a row");
  BAD(wf_gather(s, a, a, WF_INTS(1), WF_INTS(0), WF_INTS(0), 1, WF_INTS(1, 3)),
      "gather(f32[2, 3], f32[2, 3]): operand start_indices has dtype f32; allowed are i2 to i64, u2 to u64");
  BAD(wf_gather(s, a, ids, WF_INTS(1), WF_INTS(0), WF_INTS(0), 1, WF_INTS(1, 4)),
      "gather(f32[2, 3], i32[2]): the window is 4 wide in dimension 1 of size 3");
  BAD(wf_gather(s, a, ids, WF_INTS(1), WF_INTS(0), WF_INTS(0), 5, WF_INTS(1, 3)),
      "gather(f32[2, 3], i32[2]): index_vector_dim is 5; indices of rank 1 allow 0 to 1");
  BAD(wf_gather(s, a, ids, WF_INTS(1), WF_INTS(0), WF_INTS(0), 1, WF_INTS(1)),
      "gather(f32[2, 3], i32[2]): the window has 1 sizes for an operand of rank 2");
  BAD(wf_scatter(s, a, ids, a, WF_INTS(1), WF_INTS(0), WF_INTS(7), 1, WEFT_SCATTER_REDUCER_SUM),
      "scatter(f32[2, 3], i32[2], f32[2, 3]): the index map [7] must be different dimensions from 0 to 1");
  BAD(wf_scatter(s, a, ids, m, WF_INTS(1), WF_INTS(0), WF_INTS(0), 1, WEFT_SCATTER_REDUCER_SUM),
      "scatter(f32[2, 3], i32[2], f32[3, 4]): the window is 4 wide in dimension 1 of size 3");
  BAD(wf_scatter(s, a, ids, many, WF_INTS(1), WF_INTS(0), WF_INTS(0), 1, WEFT_SCATTER_REDUCER_SUM),
      "scatter(f32[2, 3], i32[2], i32[2, 3]): operands x and updates have dtypes f32 and i32; they must agree (convert one of them)");
  BAD(wf_scatter(s, a, ids, a, WF_INTS(1), WF_INTS(0), WF_INTS(0), 1, (weft_scatter_reducer)44),
      "scatter: attribute reducer is 44; there are 0 to 6");
  BAD(wf_embedding(s, a, a),
      "embedding(f32[2, 3], f32[2, 3]): operand ids has dtype f32; allowed are i2 to i64, u2 to u64");
  BAD(wf_embedding(s, b, ids), "embedding(f32[4], i32[2]): table must have shape [entries, width], not [4]");
  BAD(wf_embedding(s, a, ids, .dtype = WEFT_I32),
      "embedding(f32[2, 3], i32[2]): dtype i32 is not a float; f16, bf16, f32 and f64 are");
  BAD(wf_one_hot(s, ids, -1), "one_hot(i32[2]): depth is -1; it must be at least 1");
  BAD(wf_one_hot(s, a, 3), "one_hot(f32[2, 3]): operand labels has dtype f32; allowed are i2 to i64, u2 to u64");
  BAD(wf_one_hot(s, ids, INT64_MAX),
      "one_hot(i32[2]): the result [2, 9223372036854775807] has a negative or too large dimension");
}

static void reductions(void) {
  BAD(wf_any(s, a), "any(f32[2, 3]): operand x has dtype f32; allowed are bool");
  BAD(wf_argmax(s, a, .axis = 2), "argmax(f32[2, 3]): axis is 2; a tensor of rank 2 has axes -2 to 1");
  BAD(wf_argmin(s, a, .axis = -3), "argmin(f32[2, 3]): axis is -3; a tensor of rank 2 has axes -2 to 1");
  BAD(wf_argmax(s, truth),
      "argmax(bool[2]): operand x has dtype bool; allowed are f8 of every kind, f16, bf16, f32, f64, i2 to i64, u2 to u64");
  BAD(wf_argmax(s, zero, .axis = 1), "argmax(f32[]): axis is 1; of a tensor of rank 0 it can be 0 or -1, as of one element in a row");
  BAD(wf_logsumexp(s, many), "logsumexp(i32[2, 3]): operand x has dtype i32; allowed are f8 of every kind, f16, bf16, f32, f64, c64, c128");
  BAD(wf_max(s, a, .dims = WF_INTS(9)), "max(f32[2, 3]): dims is 9; a tensor of rank 2 has axes -2 to 1");
  BAD(wf_min(s, a, .dims = WF_INTS(0, -2)), "min(f32[2, 3]): dims [0, -2] names axis 0 twice");
  BAD(wf_mean(s, many), "mean(i32[2, 3]): operand x has dtype i32; allowed are f8 of every kind, f16, bf16, f32, f64, c64, c128");
  BAD(wf_prod(s, a, .dims = WF_INTS(2)), "prod(f32[2, 3]): dims is 2; a tensor of rank 2 has axes -2 to 1");
  BAD(wf_var(s, a, .dims = WF_INTS(2)), "var(f32[2, 3]): dims is 2; a tensor of rank 2 has axes -2 to 1");
  BAD(wf_std(s, many), "std(i32[2, 3]): operand x has dtype i32; allowed are f8 of every kind, f16, bf16, f32, f64, c64, c128");
  BAD(wf_log_softmax(s, a, .axis = 5), "log_softmax(f32[2, 3]): axis is 5; a tensor of rank 2 has axes -2 to 1");
}

static void convolutions(void) {
  BAD(wf_conv(s, a, kernel),
      "conv(f32[2, 3], f32[3, 3, 2, 4]): x must be [batch, spatial…, features] and w [window…, features, output features] of the same rank, at least 3");
  BAD(wf_conv(s, image, a),
      "conv(f32[1, 5, 5, 2], f32[2, 3]): x must be [batch, spatial…, features] and w [window…, features, output features] of the same rank, at least 3");
  BAD(wf_conv(s, image, image),
      "conv(f32[1, 5, 5, 2], f32[1, 5, 5, 2]): x [1, 5, 5, 2] has 2 features, its last dimension, in 1 group, and w [1, 5, 5, 2] takes 5; data is channels-last here: x NHWC, w HWIO for images. x looks like NCHW: transpose it, perm 0, 2, 3, 1");
  BAD(wf_conv(s, image, kernel, .strides = WF_INTS(0, 1)),
      "conv(f32[1, 5, 5, 2], f32[3, 3, 2, 4]): window dimension 0: stride is 0; it must be at least 1");
  BAD(wf_conv(s, image, kernel, .strides = WF_INTS(1)),
      "conv(f32[1, 5, 5, 2], f32[3, 3, 2, 4]): strides [1] has 1 entries; 2 are needed, one for each of 2 dimensions");
  BAD(wf_conv(s, image, kernel, .dilation = WF_INTS(-1, 1)),
      "conv(f32[1, 5, 5, 2], f32[3, 3, 2, 4]): window dimension 0: window dilation is -1; it must be at least 1");
  BAD(wf_conv(s, image, kernel, .groups = 3),
      "conv(f32[1, 5, 5, 2], f32[3, 3, 2, 4]): x [1, 5, 5, 2] has 2 features, its last dimension, in 3 groups, and w [3, 3, 2, 4] takes 2; data is channels-last here: x NHWC, w HWIO for images");
  BAD(wf_conv(s, image, kernel, .groups = 0),
      "conv(f32[1, 5, 5, 2], f32[3, 3, 2, 4]): groups is 0; it must be at least 1");
  BAD(wf_conv(s, image, kernel, .padding = WEFT_CONV_PADDING_EXPLICIT),
      "conv(f32[1, 5, 5, 2], f32[3, 3, 2, 4]): padding is explicit and pads is not given");
  BAD(wf_conv(s, image, kernel, .pads = WF_INTS(1, 1, 1, 1)),
      "conv(f32[1, 5, 5, 2], f32[3, 3, 2, 4]): pads is given and padding is valid; it goes with padding explicit");
  BAD(wf_conv(s, image, kernel, .padding = WEFT_CONV_PADDING_EXPLICIT, .pads = WF_INTS(1, 1)),
      "conv(f32[1, 5, 5, 2], f32[3, 3, 2, 4]): pads [1, 1] has 2 entries; 4 are needed, low and high for each of 2 dimensions");
  BAD(wf_conv(s, image, kernel, .padding = (weft_conv_padding)5), "conv: attribute padding is 5; there are 0 to 2");
  BAD(wf_conv(s, image, kernel, .dtype = WEFT_I32),
      "conv(f32[1, 5, 5, 2], f32[3, 3, 2, 4]): dtype i32 cannot hold products of f32; a float type can");
  BAD(wf_conv_transpose(s, a, kernel),
      "conv_transpose(f32[2, 3], f32[3, 3, 2, 4]): x must be [batch, spatial…, features] and w [window…, features / groups, output features] of the same rank, at least 3");
  BAD(wf_conv_transpose(s, image, kernel, .groups = 0), "conv_transpose(f32[1, 5, 5, 2], f32[3, 3, 2, 4]): groups is 0; it must be at least 1");
  BAD(wf_conv_transpose(s, image, image),
      "conv_transpose(f32[1, 5, 5, 2], f32[1, 5, 5, 2]): x [1, 5, 5, 2] has 2 features, its last dimension, in 1 group, and w [1, 5, 5, 2] takes 5; x is NHWC here and w HWIO, the kernel [in, out / groups, …] of other libraries transposed");
  BAD(wf_conv_transpose(s, image, kernel, .strides = WF_INTS(0, 1)), "conv_transpose(f32[1, 5, 5, 2], f32[3, 3, 2, 4]): window dimension 0: stride is 0; it must be at least 1");
  BAD(wf_conv_transpose(s, image, kernel, .dilation = WF_INTS(1)),
      "conv_transpose(f32[1, 5, 5, 2], f32[3, 3, 2, 4]): dilation [1] has 1 entries; 2 are needed, one for each of 2 dimensions");
  BAD(wf_conv_transpose(s, image, kernel, .strides = WF_INTS(2, 2), .output_padding = WF_INTS(0, 2)),
      "conv_transpose(f32[1, 5, 5, 2], f32[3, 3, 2, 4]): output_padding of spatial dimension 1 is 2; with stride 2 and dilation 1 it must be 0 to 1");
  BAD(wf_conv_transpose(s, image, kernel, .pads = WF_INTS(4, 3, 0, 0)),
      "conv_transpose(f32[1, 5, 5, 2], f32[3, 3, 2, 4]): pads 4 and 3 cut off all 7 pixels of spatial dimension 0 of the result");
  BAD(wf_convolution(s, image, kernel, WF_INTS(1, 1), WF_INTS(0, 0), WF_INTS(1, 1), WF_INTS(1, 1), WF_INTS(0, 3, 1, 2),
                     WF_INTS(2, 3, 0, 1), WF_INTS(0, 3, 1, 2)),
      "convolution(f32[1, 5, 5, 2], f32[3, 3, 2, 4]): padding [0, 0] has 2 entries; 4 are needed, low and high for each of 2 dimensions");
  BAD(wf_convolution(s, image, kernel, WF_INTS(1, 1), WF_INTS(0, 0, 0, 0), WF_INTS(1, 1), WF_INTS(1, 1), WF_INTS(0, 3, 1, 1),
                     WF_INTS(2, 3, 0, 1), WF_INTS(0, 3, 1, 2)),
      "convolution(f32[1, 5, 5, 2], f32[3, 3, 2, 4]): input_dimensions [0, 3, 1, 1] must name each of 4 dimensions once");
  BAD(wf_max_pool(s, image, WF_INTS(2)),
      "max_pool(f32[1, 5, 5, 2]): window [2] has 1 entries; 2 are needed, one for each of 2 dimensions");
  BAD(wf_max_pool(s, image, WF_INTS(0, 2)),
      "max_pool(f32[1, 5, 5, 2]): window dimension 0: size is 0; it must be at least 1");
  BAD(wf_max_pool(s, b, WF_INTS(2, 2)),
      "max_pool(f32[4]): x has shape [4]; [batch, spatial…, features] of rank 3 or more is needed");
  BAD(wf_avg_pool(s, image, WF_INTS(2, 2), .strides = WF_INTS(-1, 1)),
      "avg_pool(f32[1, 5, 5, 2]): window dimension 0: stride is -1; it must be at least 1");
  BAD(wf_avg_pool(s, many, WF_INTS(2)),
      "avg_pool(i32[2, 3]): operand x has dtype i32; allowed are f8 of every kind, f16, bf16, f32, f64");
  BAD(wf_reduce_window(s, image, WF_INTS(2, 2), WEFT_REDUCE_WINDOW_REDUCER_MAX),
      "reduce_window(f32[1, 5, 5, 2]): window_dimensions [2, 2] has 2 entries; 4 are needed, one for each of 4 dimensions");
  BAD(wf_reduce_window(s, image, WF_INTS(1, 2, 2, 1), (weft_reduce_window_reducer)9),
      "reduce_window: attribute reducer is 9; there are 0 to 5");
  BAD(wf_reduce_window(s, image, WF_INTS(1, 2, 2, 1), WEFT_REDUCE_WINDOW_REDUCER_AND),
      "reduce_window(f32[1, 5, 5, 2]): reducer and takes integers, not f32");
  BAD(wf_select_and_scatter(s, image, image, WF_INTS(1, 2, 2, 1)),
      "select_and_scatter(f32[1, 5, 5, 2], f32[1, 5, 5, 2]): source has shape [1, 5, 5, 2]; the windows over [1, 5, 5, 2] number [1, 4, 4, 2]");
  BAD(wf_select_and_scatter(s, image, many, WF_INTS(1, 2, 2, 1)),
      "select_and_scatter(f32[1, 5, 5, 2], i32[2, 3]): operands operand and source have dtypes f32 and i32; they must agree (convert one of them)");
}

static void norms_and_attention(void) {
  weft_tensor* const head = ramp(ctx, DIMS(2, 1, 4, 8));
  BAD(wf_layer_norm(s, a, b, NULL), "layer_norm(f32[2, 3], f32[4]): scale must have shape [3], not [4]");
  BAD(wf_layer_norm(s, a, w3, b), "layer_norm(f32[2, 3], f32[3], f32[4]): offset must have shape [3], not [4]");
  BAD(wf_layer_norm(s, a, w3, w3, .axis = 2),
      "layer_norm(f32[2, 3], f32[3], f32[3]): axis is 2; a tensor of rank 2 has axes -2 to 1");
  BAD(wf_layer_norm(s, a, w3, w3, .epsilon = INFINITY),
      "layer_norm(f32[2, 3], f32[3], f32[3]): epsilon is inf; it must be finite");
  BAD(wf_layer_norm(s, a, w3, w3, .epsilon = NAN),
      "layer_norm(f32[2, 3], f32[3], f32[3]): epsilon is nan; it must be finite");
  BAD(wf_layer_norm(s, many, NULL, NULL),
      "layer_norm(i32[2, 3]): operand x has dtype i32; allowed are f8 of every kind, f16, bf16, f32, f64");
  BAD(wf_rms_norm(s, a, b), "rms_norm(f32[2, 3], f32[4]): scale must have shape [3], not [4]");
  BAD(wf_rms_norm(s, a, w3, .epsilon = INFINITY),
      "rms_norm(f32[2, 3], f32[3]): epsilon is inf; it must be finite");
  BAD(wf_batch_norm(s, a, b, w3, &r0, &r1, &r2),
      "batch_norm(f32[2, 3], f32[4], f32[3]): scale must have shape [3], not [4]");
  BAD(wf_batch_norm(s, a, w3, w3, &r0, &r1, &r2, .epsilon = -INFINITY),
      "batch_norm(f32[2, 3], f32[3], f32[3]): epsilon is -inf; it must be finite");
  BAD(wf_batch_norm_inference(s, a, w3, w3, w3, b),
      "batch_norm_inference(f32[2, 3], f32[3], f32[3], f32[3], f32[4]): variance must have shape [3], not [4]");
  BAD(wf_batch_norm_inference(s, a, w3, w3, w3, w3, .axis = -3),
      "batch_norm_inference(f32[2, 3], f32[3], f32[3], f32[3], f32[3]): axis is -3; a tensor of rank 2 has axes -2 to 1");
  BAD(wf_scaled_dot_product_attention(s, w3, w3, w3, NULL),
      "scaled_dot_product_attention(f32[3], f32[3], f32[3]): q, k and v must have the same rank, at least 2");
  BAD(wf_scaled_dot_product_attention(s, seq, seq, image, NULL),
      "scaled_dot_product_attention(f32[2, 2, 4, 8], f32[2, 2, 4, 8], f32[1, 5, 5, 2]): leading dimension 0 is 2, 2 and 1; it must be equal in q, k and v");
  BAD(wf_scaled_dot_product_attention(s, seq, head, head, NULL),
      "scaled_dot_product_attention(f32[2, 2, 4, 8], f32[2, 1, 4, 8], f32[2, 1, 4, 8]): heads are 2 in q and 1 in k and v; they must be equal unless enable_gqa is true");
  BAD(wf_scaled_dot_product_attention(s, head, seq, seq, NULL, .enable_gqa = 1),
      "scaled_dot_product_attention(f32[2, 1, 4, 8], f32[2, 2, 4, 8], f32[2, 2, 4, 8]): heads are 1 in q and 2 in k and v; with enable_gqa the first must be a multiple of the second");
  BAD(wf_scaled_dot_product_attention(s, seq, head, seq, NULL, .enable_gqa = 1),
      "scaled_dot_product_attention(f32[2, 2, 4, 8], f32[2, 1, 4, 8], f32[2, 2, 4, 8]): leading dimension 1 is 2, 1 and 2; it must be equal in q, k and v");
  BAD(wf_scaled_dot_product_attention(s, seq, seq, seq, w3),
      "scaled_dot_product_attention(f32[2, 2, 4, 8], f32[2, 2, 4, 8], f32[2, 2, 4, 8], f32[3]): mask [3] does not broadcast to the scores [2, 2, 4, 4]");
  BAD(wf_scaled_dot_product_attention(s, seq, seq, seq, NULL, .scale = NAN),
      "scaled_dot_product_attention(f32[2, 2, 4, 8], f32[2, 2, 4, 8], f32[2, 2, 4, 8]): scale is nan; it must be finite");
  BAD(wf_dropout(s, a, .rate = 1), "dropout(f32[2, 3], u64[3]): rate is 1; it must be at least 0 and below 1");
  BAD(wf_dropout(s, a, .rate = -0.1), "dropout(f32[2, 3], u64[3]): rate is -0.1; it must be at least 0 and below 1");
  BAD(wf_dropout(s, a, .rate = NAN), "dropout(f32[2, 3], u64[3]): rate is nan; it must be at least 0 and below 1");
  BAD(wf_dropout(s, many), "dropout(i32[2, 3], u64[3]): operand x has dtype i32; allowed are f8 of every kind, f16, bf16, f32, f64");
  weft_tensor_release(head);
}

static void order_and_linear_algebra(void) {
  weft_tensor *values = NULL, *indices = NULL, *other = NULL;
  BAD(wf_sort(s, a, .axis = 2), "sort(f32[2, 3]): axis is 2; a tensor of rank 2 has axes -2 to 1");
  BAD(wf_cumsum(s, a, .axis = 2), "cumsum(f32[2, 3]): axis is 2; a tensor of rank 2 has axes -2 to 1");
  BAD(wf_cumprod(s, a, .axis = -3), "cumprod(f32[2, 3]): axis is -3; a tensor of rank 2 has axes -2 to 1");
  BAD(wf_cummax(s, zero, .axis = -2), "cummax(f32[]): axis is -2; of a tensor of rank 0 it can be 0 or -1, as of one element in a row");
  BAD(wf_cummin(s, a, .axis = -3), "cummin(f32[2, 3]): axis is -3; a tensor of rank 2 has axes -2 to 1");
  BAD(wf_argsort(s, a, .axis = -3), "argsort(f32[2, 3]): axis is -3; a tensor of rank 2 has axes -2 to 1");
  BAD(wf_top_k(s, a, 4, &values, &indices), "top_k(f32[2, 3]): k is 4; it must be 0 to 3, the size of axis 1");
  BAD(wf_cholesky(s, a), "cholesky(f32[2, 3]): a is f32[2, 3]; its last two dimensions must be equal, those of square matrices");
  BAD(wf_stft(s, a, foreign, 4), "stft: window belongs to another context");
  BAD(wf_istft(s, foreign, NULL, 4), "istft: x belongs to another context");
  BAD(wf_fft(s, a, WEFT_FFT_TYPE_FFT, WF_INTS(3)), "fft(f32[2, 3]): fft_type FFT takes c64 or c128, not f32");
  BAD(wf_fft(s, a, WEFT_FFT_TYPE_RFFT, WF_INTS(4)), "fft(f32[2, 3]): fft_length[0] is 4, for which x has 4 elements there; it has 3");
  BAD(wf_fft(s, a, WEFT_FFT_TYPE_RFFT, WF_INTS(1, 2, 3)), "fft(f32[2, 3]): fft_length has 3 sizes; it has one to three, and x has rank 2");
  BAD(wf_fft(s, a, WEFT_FFT_TYPE_RFFT, WF_INTS(0)), "fft(f32[2, 3]): fft_length[0] is 0; transforms have at least one element");
  BAD(wf_triangular_solve(s, a, a), "triangular_solve(f32[2, 3], f32[2, 3]): a is f32[2, 3]; its last two dimensions must be equal, those of square matrices");
  BAD(wf_reduce_precision(s, a, 0, 3), "reduce_precision(f32[2, 3]): exponent_bits is 0 and mantissa_bits is 3; at least 1 and 0 are needed, at most 2147483647");
  BAD(wf_batch_norm_training(s, a, a, a, 0.1, 1, &values, &indices, &other), "batch_norm_training(f32[2, 3], f32[2, 3], f32[2, 3]): scale must have shape [3], not [2, 3]");
  BAD(wf_batch_norm_grad(s, a, a, a, a, a, 0.1, 1, &values, &indices, &other), "batch_norm_grad(f32[2, 3], f32[2, 3], f32[2, 3], f32[2, 3], f32[2, 3]): scale must have shape [3], not [2, 3]");
  BAD(wf_lu(s, foreign), "lu: x belongs to another context");
  BAD(wf_qr(s, foreign), "qr: x belongs to another context");
  BAD(wf_eigh(s, foreign), "eigh: x belongs to another context");
  BAD(wf_eigvalsh(s, foreign), "eigvalsh: x belongs to another context");
  BAD(wf_svd(s, foreign), "svd: x belongs to another context");
  BAD(wf_svdvals(s, foreign), "svdvals: x belongs to another context");
  BAD(wf_eig(s, foreign), "eig: x belongs to another context");
  BAD(wf_eigvals(s, foreign), "eigvals: x belongs to another context");
  BAD(wf_solve(s, foreign, a), "solve: a belongs to another context");
  BAD(wf_inv(s, foreign), "inv: x belongs to another context");
  BAD(wf_det(s, foreign), "det: x belongs to another context");
  BAD(wf_slogdet(s, foreign), "slogdet: x belongs to another context");
  BAD(wf_logdet(s, foreign), "logdet: x belongs to another context");
  BAD(wf_lu_solve(s, a, many, foreign), "lu_solve: b belongs to another context");
  BAD(wf_geqrf(s, foreign), "geqrf: x belongs to another context");
  BAD(wf_ormqr(s, a, b, foreign), "ormqr: x belongs to another context");
  BAD(wf_ldl(s, foreign), "ldl: x belongs to another context");
  BAD(wf_ldl_solve(s, a, many, foreign), "ldl_solve: b belongs to another context");
  BAD(wf_batch_norm_running(s, a, foreign, w3, w3, w3), "batch_norm_running: scale belongs to another context");
  BAD(wf_pinv(s, foreign), "pinv: x belongs to another context");
  BAD(wf_lstsq(s, foreign, a), "lstsq: a belongs to another context");
  BAD(wf_matrix_rank(s, foreign), "matrix_rank: x belongs to another context");
  BAD(wf_matrix_norm(s, foreign), "matrix_norm: x belongs to another context");
  BAD(wf_cond(s, foreign), "cond: x belongs to another context");
  BAD(wf_cholesky_solve(s, foreign, a), "cholesky_solve: factor belongs to another context");
  BAD(wf_cholesky_inverse(s, foreign), "cholesky_inverse: factor belongs to another context");
  BAD(wf_matrix_exp(s, foreign), "matrix_exp: x belongs to another context");
  BAD(wf_householder_product(s, foreign, a), "householder_product: v belongs to another context");
  BAD(wf_tensorsolve(s, foreign, a), "tensorsolve: a belongs to another context");
  BAD(wf_tensorinv(s, foreign), "tensorinv: a belongs to another context");
}

static void random_numbers(void) {
  BAD(wf_uniform(s, WF_INTS(-1)), "uniform(u64[3]): the result [-1] has a negative or too large dimension");
  BAD(wf_uniform(s, WF_INTS(2), .low = 1, .high = 0),
      "uniform(u64[3]): low is 1 and high is 0; both must be finite and low below high");
  BAD(wf_uniform(s, WF_INTS(2), .low = NAN),
      "uniform(u64[3]): low is nan and high is 1; both must be finite and low below high");
  BAD(wf_uniform(s, WF_INTS(2), .high = INFINITY),
      "uniform(u64[3]): low is 0 and high is inf; both must be finite and low below high");
  BAD(wf_uniform(s, WF_INTS(2), .dtype = WEFT_I32),
      "uniform(u64[3]): dtype i32 is not a float; f16, bf16, f32 and f64 are");
  BAD(wf_uniform(s, WF_INTS(INT64_C(1) << 40, INT64_C(1) << 40)),
      "uniform(u64[3]): the result [1099511627776, 1099511627776] has a negative or too large dimension");
  BAD(wf_normal(s, WF_INTS(2), .deviation = -1),
      "normal(u64[3]): mean is 0 and deviation is -1; both must be finite, deviation not negative");
  BAD(wf_normal(s, WF_INTS(2), .mean = INFINITY),
      "normal(u64[3]): mean is inf and deviation is 1; both must be finite, deviation not negative");
  BAD(wf_normal(s, NULL, 2), "normal: attribute shape is NULL with a count of 2");
  BAD(wf_bernoulli(s, WF_INTS(2), .probability = 1.5), "bernoulli(u64[3]): probability is 1.5; it must be 0 to 1");
  BAD(wf_bernoulli(s, WF_INTS(2), .probability = NAN), "bernoulli(u64[3]): probability is nan; it must be 0 to 1");
  BAD(wf_categorical(s, a, .axis = 2), "categorical(f32[2, 3], u64[3]): axis is 2; a tensor of rank 2 has axes -2 to 1");
  BAD(wf_categorical(s, many), "categorical(i32[2, 3], u64[3]): operand logits has dtype i32; allowed are f8 of every kind, f16, bf16, f32, f64");
  BAD(wf_categorical(s, wf_full(s, WF_INTS(2, 0), 0.0)), "categorical(f32[2, 0], u64[3]): axis 1 has size 0: there is no element to find");
  BAD(wf_rng_bit_generator(s, philox, WF_INTS(2), &r0, &r1, .dtype = WEFT_F32),
      "rng_bit_generator(u64[3]): dtype is f32; it must be u8 to u64 or i8 to i64");
  BAD(wf_rng_bit_generator(s, bits, WF_INTS(2), &r0, &r1),
      "rng_bit_generator(u32[]): state is u32[]; it must be u64[3]: key, counter low, counter high; or u64[2]");
  BAD(wf_rng_bit_generator(s, philox, WF_INTS(-2), &r0, &r1),
      "rng_bit_generator(u64[3]): the result [-2] has a negative or too large dimension");
}

/* What only turns out when many operands come together. */
static void products(void) {
  BAD(wf_matmul(s, a, foreign), "matmul: y belongs to another context");
  BAD(wf_matmul(s, a, m, .dtype = WEFT_I8), "matmul(f32[2, 3], f32[3, 4]): dtype i8 cannot hold products of f32; a float type can");
  BAD(wf_matmul(s, seq, m), "matmul(f32[2, 2, 4, 8], f32[3, 4]): x has 8 columns and y 3 rows; they must be equal");
  BAD(wf_dot_general(s, a, m, WF_INTS(0), NULL, 0, WF_INTS(1), WF_INTS(0)),
      "dot_general(f32[2, 3], f32[3, 4]): lhs has 1 batching dimensions and rhs 0; they pair up one to one");
  BAD(wf_dot_general(s, a, m, NULL, 0, NULL, 0, WF_INTS(7), WF_INTS(0)),
      "dot_general(f32[2, 3], f32[3, 4]): lhs dimension 7 does not exist; lhs has rank 2");
  BAD(wf_linear(s, a, m, w3), "linear(f32[2, 3], f32[3, 4], f32[3]): b must have shape [4], not [3]");
  BAD(wf_linear(s, a, m, NULL, .dtype = WEFT_I32), "linear(f32[2, 3], f32[3, 4]): dtype i32 cannot hold products of f32; a float type can");
  BAD(wf_scaled_dot_product_attention(s, seq, seq, seq, NULL, .dtype = WEFT_BOOL),
      "scaled_dot_product_attention(f32[2, 2, 4, 8], f32[2, 2, 4, 8], f32[2, 2, 4, 8]): dtype bool cannot hold products of f32; a float type can");
  BAD(wf_mse(s, a, foreign), "mse: y belongs to another context");
}

/* Functions, activations and losses that are formulas of others: a dtype that has none, shapes that do not fit, other contexts. */
static void formulas(void) {
  COMPLEX_TOO(sinh); COMPLEX_TOO(cosh); COMPLEX_TOO(asinh); COMPLEX_TOO(acosh); COMPLEX_TOO(atanh); COMPLEX_TOO(asin); COMPLEX_TOO(acos);
  COMPLEX_TOO(atan); COMPLEX_TOO(log10);
  FLOATS(erfc); FLOATS(lgamma); FLOATS(digamma); FLOATS(bessel_i0e); FLOATS(bessel_i1e); FLOATS(deg2rad); FLOATS(entr);
  FLOATS(frac); FLOATS(logit); FLOATS(rad2deg); FLOATS(sinc); FLOATS(celu); FLOATS(glu); FLOATS(hardshrink);
  FLOATS(hardsigmoid); FLOATS(hardswish); FLOATS(hardtanh); FLOATS(logsigmoid); FLOATS(mish); FLOATS(selu); FLOATS(softmin);
  FLOATS(softplus_beta); FLOATS(softshrink); FLOATS(softsign); FLOATS(tanhshrink); FLOATS(nanmean); FLOATS(nansum);
  PAIR(polygamma); PAIR(zeta); PAIR(allclose); PAIR(copysign); PAIR(floor_divide); PAIR(fmax); PAIR(fmin); PAIR(hypot);
  PAIR(isclose); PAIR(logaddexp); PAIR(logaddexp2); PAIR(logical_and); PAIR(logical_or); PAIR(logical_xor); PAIR(mod);
  PAIR(nextafter); PAIR(trunc_divide); PAIR(xlog1py); PAIR(xlogy);
  BAD(wf_addcdiv(s, a, foreign, a), "addcdiv: y belongs to another context");
  BAD(wf_addcmul(s, a, foreign, a), "addcmul: y belongs to another context");
  BAD(wf_angle(s, foreign), "angle: x belongs to another context");
  BAD(wf_heaviside(s, a, foreign), "heaviside: values belongs to another context");
  BAD(wf_is_inf(s, foreign), "is_inf: x belongs to another context");
  BAD(wf_is_neg_inf(s, foreign), "is_neg_inf: x belongs to another context");
  BAD(wf_is_pos_inf(s, foreign), "is_pos_inf: x belongs to another context");
  BAD(wf_ldexp(s, a, foreign), "ldexp: n belongs to another context");
  BAD(wf_lerp(s, a, foreign, a), "lerp: y belongs to another context");
  BAD(wf_logical_not(s, foreign), "logical_not: x belongs to another context");
  BAD(wf_masked_fill(s, foreign, truth, zero), "masked_fill: x belongs to another context");
  BAD(wf_nan_to_num(s, foreign), "nan_to_num: x belongs to another context");
  BAD(wf_reciprocal(s, foreign), "reciprocal: x belongs to another context");
  BAD(wf_round_decimals(s, foreign, 2), "round_decimals: x belongs to another context");
  BAD(wf_signbit(s, foreign), "signbit: x belongs to another context");
  BAD(wf_prelu(s, a, foreign), "prelu: weight belongs to another context");
  BAD(wf_threshold(s, foreign, 0, 0), "threshold: x belongs to another context");
  BAD(wf_bce(s, a, foreign, NULL), "bce: y belongs to another context");
  BAD(wf_bce_with_logits(s, a, foreign, NULL, NULL), "bce_with_logits: y belongs to another context");
  BAD(wf_gaussian_nll(s, a, foreign, a), "gaussian_nll: y belongs to another context");
  BAD(wf_hinge_embedding(s, a, foreign), "hinge_embedding: y belongs to another context");
  BAD(wf_huber(s, a, foreign), "huber: y belongs to another context");
  BAD(wf_kl_div(s, a, foreign), "kl_div: y belongs to another context");
  BAD(wf_l1(s, a, foreign), "l1: y belongs to another context");
  BAD(wf_margin_ranking(s, a, foreign, a), "margin_ranking: other belongs to another context");
  BAD(wf_pairwise_distance(s, a, foreign), "pairwise_distance: y belongs to another context");
  BAD(wf_poisson_nll(s, a, foreign), "poisson_nll: y belongs to another context");
  BAD(wf_smooth_l1(s, a, foreign), "smooth_l1: y belongs to another context");
  BAD(wf_soft_margin(s, a, foreign), "soft_margin: y belongs to another context");
  BAD(wf_triplet_margin(s, a, foreign, a), "triplet_margin: positive belongs to another context");
  BAD(wf_aminmax(s, foreign), "aminmax: x belongs to another context");
  BAD(wf_hash_tensor(s, foreign), "hash_tensor: x belongs to another context");
  BAD(wf_count_nonzero(s, foreign), "count_nonzero: x belongs to another context");
  BAD(wf_kthvalue(s, foreign, 2), "kthvalue: x belongs to another context");
  BAD(wf_median(s, foreign), "median: x belongs to another context");
  BAD(wf_norm(s, foreign), "norm: x belongs to another context");
  BAD(wf_quantile(s, a, foreign), "quantile: q belongs to another context");
  BAD(wf_nanquantile(s, a, foreign), "nanquantile: q belongs to another context");
  BAD(wf_trace(s, foreign), "trace: x belongs to another context");
}

/* Elements at computed places, diagonals, windows and strides. */
static void places(void) {
  BAD(wf_take_along_axis(s, foreign, many), "take_along_axis: x belongs to another context");
  BAD(wf_scatter_reduce(s, a, many, foreign, WEFT_SCATTER_REDUCE_REDUCER_SUM), "scatter_reduce: source belongs to another context");
  BAD(wf_index_add(s, a, ids, foreign), "index_add: source belongs to another context");
  BAD(wf_index_copy(s, a, ids, foreign), "index_copy: source belongs to another context");
  BAD(wf_index_fill(s, foreign, ids, zero), "index_fill: x belongs to another context");
  BAD(wf_index_reduce(s, a, ids, foreign, WEFT_INDEX_REDUCE_REDUCER_MAX), "index_reduce: source belongs to another context");
  BAD(wf_index(s, foreign, WF_TENSORS(ids), WF_INTS(0)), "index: x belongs to another context");
  BAD(wf_index_put(s, foreign, zero, WF_TENSORS(ids), WF_INTS(0)), "index_put: x belongs to another context");
  BAD(wf_put(s, foreign, ids, zero), "put: x belongs to another context");
  BAD(wf_masked_scatter(s, foreign, truth, a), "masked_scatter: x belongs to another context");
  BAD(wf_diagonal(s, foreign), "diagonal: x belongs to another context");
  BAD(wf_diagonal_scatter(s, a, foreign), "diagonal_scatter: source belongs to another context");
  BAD(wf_diag(s, foreign), "diag: x belongs to another context");
  BAD(wf_diag_embed(s, foreign), "diag_embed: x belongs to another context");
  BAD(wf_select_scatter(s, a, foreign, 0), "select_scatter: source belongs to another context");
  BAD(wf_slice_scatter(s, a, foreign), "slice_scatter: source belongs to another context");
  BAD(wf_unfold(s, foreign, 1), "unfold: x belongs to another context");
  BAD(wf_as_strided(s, foreign, WF_INTS(1), WF_INTS(1)), "as_strided: x belongs to another context");
  BAD(wf_as_strided_scatter(s, a, foreign, WF_INTS(1), WF_INTS(1)), "as_strided_scatter: source belongs to another context");
  BAD(wf_rot90(s, foreign), "rot90: x belongs to another context");
  BAD(wf_movedim(s, foreign, WF_INTS(0), WF_INTS(1)), "movedim: x belongs to another context");
  BAD(wf_repeat_interleave_static(s, foreign, ids, 2), "repeat_interleave_static: x belongs to another context");
  BAD(wf_block_diag(s, WF_TENSORS(a, foreign)), "block_diag: operand belongs to another context");
}

/* Pools, sizes and samples of images; products, statistics and losses of classes. */
static void images_and_formulas(void) {
  BAD(wf_adaptive_avg_pool(s, foreign, WF_INTS(1)), "adaptive_avg_pool: x belongs to another context");
  BAD(wf_fractional_max_pool(s, a, foreign, WF_INTS(1), WF_INTS(1)), "fractional_max_pool: samples belongs to another context");
  BAD(wf_adaptive_max_pool(s, foreign, WF_INTS(1)), "adaptive_max_pool: x belongs to another context");
  BAD(wf_col2im(s, foreign, WF_INTS(2), WF_INTS(1)), "col2im: x belongs to another context");
  BAD(wf_im2col(s, foreign, WF_INTS(1)), "im2col: x belongs to another context");
  BAD(wf_lp_pool(s, foreign, WF_INTS(1)), "lp_pool: x belongs to another context");
  BAD(wf_max_pool_with_indices(s, foreign, WF_INTS(1)), "max_pool_with_indices: x belongs to another context");
  BAD(wf_max_unpool(s, foreign, many, WF_INTS(1)), "max_unpool: x belongs to another context");
  BAD(wf_affine_grid(s, foreign, WF_INTS(2, 2)), "affine_grid: theta belongs to another context");
  BAD(wf_channel_shuffle(s, foreign, 1), "channel_shuffle: x belongs to another context");
  BAD(wf_grid_sample(s, image, foreign), "grid_sample: grid belongs to another context");
  BAD(wf_group_norm(s, foreign, NULL, NULL, 1), "group_norm: x belongs to another context");
  BAD(wf_instance_norm(s, foreign, NULL, NULL), "instance_norm: x belongs to another context");
  BAD(wf_local_response_norm(s, foreign, 3), "local_response_norm: x belongs to another context");
  BAD(wf_pad_circular(s, foreign, WF_INTS(0, 0), WF_INTS(1, 1)), "pad_circular: x belongs to another context");
  BAD(wf_pad_reflect(s, foreign, WF_INTS(0, 0), WF_INTS(1, 1)), "pad_reflect: x belongs to another context");
  BAD(wf_pad_replicate(s, foreign, WF_INTS(0, 0), WF_INTS(1, 1)), "pad_replicate: x belongs to another context");
  BAD(wf_pixel_shuffle(s, foreign, 2), "pixel_shuffle: x belongs to another context");
  BAD(wf_pixel_unshuffle(s, foreign, 2), "pixel_unshuffle: x belongs to another context");
  BAD(wf_resize(s, foreign, WF_INTS(2)), "resize: x belongs to another context");
  BAD(wf_addmm(s, a, foreign, a), "addmm: a belongs to another context");
  BAD(wf_cdist(s, a, foreign), "cdist: y belongs to another context");
  BAD(wf_pdist(s, foreign), "pdist: x belongs to another context");
  BAD(wf_ragged_dot(s, a, foreign, ids), "ragged_dot: w belongs to another context");
  BAD(wf_corrcoef(s, foreign), "corrcoef: x belongs to another context");
  BAD(wf_cosine_embedding(s, a, foreign, a), "cosine_embedding: other belongs to another context");
  BAD(wf_cosine_similarity(s, a, foreign), "cosine_similarity: y belongs to another context");
  BAD(wf_cov(s, foreign, NULL, NULL), "cov: x belongs to another context");
  BAD(wf_cross(s, a, foreign), "cross: y belongs to another context");
  BAD(wf_cumulative_trapezoid(s, foreign, NULL), "cumulative_trapezoid: y belongs to another context");
  BAD(wf_histc(s, foreign, 2), "histc: x belongs to another context");
  BAD(wf_kron(s, a, foreign), "kron: y belongs to another context");
  BAD(wf_logcumsumexp(s, foreign), "logcumsumexp: x belongs to another context");
  BAD(wf_matrix_power(s, foreign, 2), "matrix_power: x belongs to another context");
  BAD(wf_multi_margin(s, foreign, ids, NULL), "multi_margin: x belongs to another context");
  BAD(wf_multilabel_margin(s, foreign, many), "multilabel_margin: x belongs to another context");
  BAD(wf_multilabel_soft_margin(s, a, foreign, NULL), "multilabel_soft_margin: y belongs to another context");
  BAD(wf_nanmedian(s, foreign), "nanmedian: x belongs to another context");
  BAD(wf_nll(s, foreign, ids, NULL), "nll: x belongs to another context");
  BAD(wf_renorm(s, foreign, 2, 0, 1), "renorm: x belongs to another context");
  BAD(wf_soft_cross_entropy(s, a, foreign, NULL), "soft_cross_entropy: y belongs to another context");
  BAD(wf_trapezoid(s, foreign, NULL), "trapezoid: y belongs to another context");
  BAD(wf_vander(s, foreign, 2), "vander: x belongs to another context");
  BAD(wf_vecdot(s, a, foreign), "vecdot: y belongs to another context");
  BAD(wf_ctc_loss(s, foreign, many, ids, ids), "ctc_loss: x belongs to another context");
  BAD(wf_einsum(s, WF_TENSORS(a), "ij,jk", WEFT_STRLEN), "einsum(f32[2, 3]): equation 'ij,jk' names 2 operands; there are 1");
  BAD(wf_embedding_bag(s, foreign, many, NULL, NULL), "embedding_bag: table belongs to another context");
  BAD(wf_gru(s, foreign, NULL, WF_TENSORS(a, a)), "gru: x belongs to another context");
  BAD(wf_histogram(s, a, foreign, NULL), "histogram: edges belongs to another context");
  BAD(wf_lstm(s, a, NULL, foreign, WF_TENSORS(a, a)), "lstm: c belongs to another context");
  BAD(wf_most_frequent(s, foreign), "most_frequent: x belongs to another context");
  BAD(wf_multi_head_attention(s, a, a, a, a, a, a, foreign, NULL, NULL, NULL, NULL, NULL, 1),
      "multi_head_attention: out_weight belongs to another context");
  BAD(wf_rnn(s, a, foreign, WF_TENSORS(a, a)), "rnn: h belongs to another context");
  BAD(wf_tensordot(s, a, foreign, WF_INTS(0), WF_INTS(0)), "tensordot: y belongs to another context");
  BAD(wf_unique_consecutive_static(s, foreign, 3), "unique_consecutive_static: x belongs to another context");
  BAD(wf_weight_norm(s, a, foreign), "weight_norm: g belongs to another context");
}

/* Special functions, tensors that a few numbers describe, distributions. */
static void functions_and_draws(void) {
  FLOATS(bessel_i0); FLOATS(bessel_i1); FLOATS(bessel_j0); FLOATS(bessel_j1); FLOATS(bessel_y0); FLOATS(bessel_y1);
  FLOATS(bessel_k0); FLOATS(bessel_k1); FLOATS(bessel_k0e); FLOATS(bessel_k1e); FLOATS(erfcx); FLOATS(ndtr); FLOATS(ndtri);
  FLOATS(log_ndtr); FLOATS(airy_ai); FLOATS(airy_ai_slope);
  PAIR(igamma); PAIR(igammac); PAIR(polar);
  BAD(wf_mvlgamma(s, a, 0), "mvlgamma(f32[2, 3]): p is 0; it must be 1 to 1000");
  BAD(wf_orthogonal_polynomial(s, a, foreign, WEFT_ORTHOGONAL_POLYNOMIAL_FAMILY_LEGENDRE_P), "orthogonal_polynomial: n belongs to another context");
  BAD(wf_eye(s, -1), "eye(): rows is -1; it must be 0 to 2^40");
  BAD(wf_logspace(s, 0, 1, -1), "logspace(): count is -1; it must be 0 to 2^40");
  BAD(wf_tril_indices(s, -1, 2), "tril_indices(): rows is -1; it must be 0 to 2^24");
  BAD(wf_triu_indices(s, 2, -1), "triu_indices(): columns is -1; it must be 0 to 2^24");
  BAD(wf_window(s, 4, .parameter = 0), "window(): parameter is 0; it must be finite, and above 0 unless it is kaiser's beta");
  BAD(wf_meshgrid(s, WF_TENSORS(b, a)), "meshgrid(f32[4], f32[2, 3]): inputs[1] has shape [2, 3]; [n] is needed");
  BAD(wf_cartesian_prod(s, WF_TENSORS(a)), "cartesian_prod(f32[2, 3]): inputs[0] has shape [2, 3]; [n] is needed");
  BAD(wf_combinations(s, a), "combinations(f32[2, 3]): x has shape [2, 3]; [n] is needed");
  BAD(wf_randint(s, WF_INTS(2), 3, 3), "randint(u64[3]): low is 3 and high is 3; low must be below high");
  BAD(wf_randperm(s, -1), "randperm(u64[3]): count is -1; it must be 0 to 2^31 - 1");
  BAD(wf_truncated_normal(s, WF_INTS(2), .low = 1, .high = 1), "truncated_normal(u64[3]): low is 1 and high is 1; low must be below high");
  BAD(wf_laplace(s, w3, b), "laplace(f32[3], f32[4], u64[3]): shapes [3] and [4] do not broadcast: dimension -1 is 3 and 4; sizes must be equal or 1");
  BAD(wf_exponential(s, w3, .shape = WF_INTS(2)), "exponential(f32[3], u64[3]): the parameters have shape [3], which does not broadcast to shape [2]");
  BAD(wf_multinomial(s, a, 4), "multinomial(f32[2, 3], u64[3]): count is 4; a row has 3 places, and without replacement each is drawn once");
  BAD(wf_dirichlet(s, zero), "dirichlet(f32[], u64[3]): alpha must have a last dimension of at least 1: the parameters of one draw");
  BAD(wf_gcd(s, foreign, many), "gcd: x belongs to another context");
  BAD(wf_lcm(s, many, foreign), "lcm: y belongs to another context");
  BAD(wf_frexp(s, foreign), "frexp: x belongs to another context");
  BAD(wf_normal_of(s, foreign, zero), "normal_of: mean belongs to another context");
  BAD(wf_log_normal(s, a, foreign), "log_normal: deviation belongs to another context");
  BAD(wf_gumbel(s, foreign, zero), "gumbel: location belongs to another context");
  BAD(wf_cauchy(s, a, foreign), "cauchy: scale belongs to another context");
  BAD(wf_bernoulli_of(s, foreign), "bernoulli_of: probability belongs to another context");
  BAD(wf_geometric(s, foreign), "geometric: probability belongs to another context");
  BAD(wf_poisson(s, foreign), "poisson: rate belongs to another context");
  BAD(wf_binomial(s, foreign, zero), "binomial: trials belongs to another context");
  BAD(wf_gamma(s, foreign), "gamma: alpha belongs to another context");
  BAD(wf_beta(s, a, foreign), "beta: beta belongs to another context");
  BAD(wf_amp_non_finite_check_and_unscale(s, foreign, zero, zero), "amp_non_finite_check_and_unscale: x belongs to another context");
  BAD(wf_amp_update_scale(s, a, bits, zero), "amp_update_scale(f32[2, 3], u32[], f32[]): operand tracker has dtype u32; allowed are i2 to i64");
}

int main(void) {
  set_up();
  pairs();
  single();
  shapes();
  indexing();
  reductions();
  convolutions();
  norms_and_attention();
  order_and_linear_algebra();
  random_numbers();
  products();
  formulas();
  places();
  images_and_formulas();
  functions_and_draws();
  tear_down();
  return done("bad_input_families");
}
