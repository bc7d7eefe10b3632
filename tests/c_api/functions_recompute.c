/* Loops that keep what is carried into every so many-th run and compute the rest again: gradients of the same bits, less memory. */
#include "check.h"

enum { kWide = 8, kMost = 101, kGrads = 4 };

static weft_tensor* filled(weft_context* ctx, weft_dtype dtype, const int64_t* dims, size_t rank, int seed) {
  float values[kMost * kWide];
  int32_t numbers[kMost * kWide];
  int64_t count = 1;
  weft_tensor* t = NULL;
  for (size_t d = 0; d < rank; ++d) count *= dims[d];
  for (int64_t i = 0; i < count; ++i) {
    numbers[i] = (int32_t)((i * 37 + seed * 11) % 23) - 11;
    values[i] = (float)(numbers[i] * 0.0371);
  }
  MUST(weft_tensor_from_host(ctx, NULL, dtype, dims, rank, dtype == WEFT_I32 ? (const void*)numbers : values, (size_t)count * 4, &t));
  return t;
}

/* What bodies capture. */
typedef struct {
  weft_tensor *w, *c;
  int draws;
} around;

/* h <- tanh(w h + x cos(i) + c); i <- i + k; out come h h c and i. What draws leaves some of h out. */
static void step(wf_scope* s, const around* d, weft_tensor* h, weft_tensor* i, weft_tensor* x, weft_tensor* k, weft_tensor** next) {
  weft_tensor* const angle = wf_cos(s, wf_convert(s, i, WEFT_F32));
  weft_tensor* const column = wf_reshape(s, wf_matmul(s, d->w, wf_reshape(s, h, WF_INTS(kWide, 1))), WF_INTS(kWide));
  next[0] = wf_tanh(s, wf_add(s, wf_add(s, column, x != NULL ? wf_mul(s, x, angle) : angle), d->c));
  if (d->draws) next[0] = wf_dropout(s, next[0], .rate = 0.25);
  next[1] = wf_add(s, i, k);
}
static weft_error* trace_scanned(void* data, weft_context* body, weft_tensor* const* p, size_t count, weft_tensor** results,
                                 size_t capacity, size_t* out_count) {
  const around* const d = data;
  wf_scope* const s = wf_begin(body);
  weft_tensor* next[2];
  (void)count, (void)capacity;
  step(s, d, p[0], p[1], p[2], p[3], next);
  results[0] = wf_keep(s, next[0]);
  results[1] = wf_keep(s, next[1]);
  results[2] = wf_keep(s, wf_mul(s, wf_mul(s, next[0], next[0]), d->c));
  results[3] = wf_keep(s, wf_copy(s, next[1]));
  *out_count = 4;
  return wf_end(s);
}
static weft_error* trace_counted(void* data, weft_context* body, weft_tensor* const* p, size_t count, weft_tensor** results,
                                 size_t capacity, size_t* out_count) {
  wf_scope* const s = wf_begin(body);
  weft_tensor* next[2];
  (void)count, (void)capacity;
  step(s, data, p[1], p[2], NULL, p[0], next);
  results[0] = wf_keep(s, next[0]);
  results[1] = wf_keep(s, next[1]);
  *out_count = 2;
  return wf_end(s);
}

/* A loss of a loop; the values that it has are put into one row. */
typedef struct {
  int64_t length, keep_every, unroll;
  int32_t reverse;
  int counted, draws; /* counted: so often, of `length` at most */
} loop;

static weft_tensor* loss_of(weft_context* ctx, const loop* l, weft_tensor* const* in) {
  const weft_tensor_info types[] = {{WEFT_F32, 1, {kWide}}, {WEFT_I32, 0, {0}}, {WEFT_F32, 1, {kWide}}, {WEFT_I32, 0, {0}}};
  const weft_tensor_info counted_types[] = {{WEFT_I32, 0, {0}}, {WEFT_F32, 1, {kWide}}, {WEFT_I32, 0, {0}}};
  around d = {in[2], in[3], l->draws};
  wf_scope* const s = wf_begin(ctx);
  weft_tensor *out[4] = {NULL, NULL, NULL, NULL}, *carried[] = {in[0], in[4]}, *scanned[] = {in[1], in[5]}, *loss = NULL;
  weft_function* f = NULL;
  if (l->counted != 0) {
    MUST(weft_function_trace(ctx, "counted", WEFT_STRLEN, counted_types, 3, trace_counted, &d, 2, &f));
    wf_for(s, in[6], f, carried, 2, .outputs = out, .max_count = l->length, .keep_every = l->keep_every);
    loss = wf_sum(s, wf_mul(s, out[0], in[1]));
  } else {
    MUST(weft_function_trace(ctx, "scanned", WEFT_STRLEN, types, 4, trace_scanned, &d, 4, &f));
    wf_scan(s, f, carried, 2, scanned, 2, .outputs = out, .capacity = 4, .unroll = l->unroll, .reverse = l->reverse,
            .keep_every = l->keep_every);
    loss = wf_add(s, wf_sum(s, out[0]), wf_sum(s, wf_mul(s, out[2], in[1])));
    loss = wf_mul(s, loss, wf_add_n(s, wf_convert(s, wf_sum(s, out[3]), WEFT_F32), 1));
  }
  loss = wf_keep(s, loss);
  OK(wf_end(s));
  weft_function_release(f);
  return loss;
}

static weft_error* trace_loss(void* data, weft_context* body, weft_tensor* const* p, size_t count, weft_tensor** results,
                              size_t capacity, size_t* out_count) {
  (void)count, (void)capacity;
  results[0] = loss_of(body, data, p);
  *out_count = 1;
  return NULL;
}

enum { kRead = 2 + 2 * (kMost * kWide + kWide * kWide + 2 * kWide) };
/* Loss, first gradients, the second ones of their sum. Called: by two calls of one function, else as it is. */
static size_t values_of(weft_context* ctx, const loop* l, int called, float* values, size_t* first_order) {
  const int64_t rows[] = {l->length, kWide}, square[] = {kWide, kWide};
  weft_tensor* in[] = {filled(ctx, WEFT_F32, square, 1, 1), filled(ctx, WEFT_F32, rows, 2, 2),   filled(ctx, WEFT_F32, square, 2, 3),
                       filled(ctx, WEFT_F32, square, 1, 4), filled(ctx, WEFT_I32, rows, 0, 5),   filled(ctx, WEFT_I32, rows, 1, 6),
                       NULL};
  weft_tensor *loss = NULL, *grads[kGrads], *second[kGrads], *sum = NULL;
  size_t at = 0, n = 0;
  OK(weft_tensor_from_i64(ctx, WEFT_I32, l->counted, &in[6]));
  OK(weft_random_seed(ctx, 5));
  for (int i = 0; i < kGrads; ++i) OK(weft_tensor_require_grad(in[i], 1));
  if (called) {
    const weft_tensor_info types[] = {{WEFT_F32, 1, {kWide}}, {WEFT_F32, 2, {l->length, kWide}}, {WEFT_F32, 2, {kWide, kWide}},
                                      {WEFT_F32, 1, {kWide}}, {WEFT_I32, 0, {0}},                {WEFT_I32, 1, {l->length}},
                                      {WEFT_I32, 0, {0}}};
    weft_tensor* both[2];
    loop again = *l;
    weft_function* f = NULL;
    MUST(weft_function_trace(ctx, "loss", WEFT_STRLEN, types, 7, trace_loss, &again, 1, &f));
    for (int i = 0; i < 2; ++i) OK(weft_function_call(ctx, f, in, 7, &both[i], 1, &n));
    OK(weft_add(ctx, both[0], both[1], &loss));
    for (int i = 0; i < 2; ++i) weft_tensor_release(both[i]);
    weft_function_release(f);
  } else {
    loss = loss_of(ctx, l, in);
  }
  OK(weft_grad(ctx, loss, NULL, in, kGrads, grads));
  {
    wf_scope* const s = wf_begin(ctx);
    weft_tensor* all = wf_sum(s, grads[0]);
    for (int i = 1; i < kGrads; ++i) all = wf_add(s, all, wf_sum(s, grads[i]));
    sum = wf_keep(s, all);
    OK(wf_end(s));
    OK(weft_grad(ctx, sum, NULL, in, kGrads, second));
  }
  {
    weft_tensor* const order[] = {loss, grads[0], grads[1], grads[2], grads[3], sum, second[0], second[1], second[2], second[3]};
    for (size_t i = 0; i < 10; ++i) {
      int64_t count = 0;
      if (i == 5) *first_order = at;
      OK(weft_tensor_count(order[i], &count));
      OK(weft_tensor_to_host(order[i], values + at, (size_t)count * 4));
      at += (size_t)count;
      weft_tensor_release(order[i]);
    }
  }
  for (int i = 0; i < 7; ++i) weft_tensor_release(in[i]);
  CHECK(at <= kRead);
  return at;
}

/* Bits of first order are those of the loop that keeps all; the second order adds in another order. */
static void same_as_plain(weft_context* ctx, const loop* l, int called) {
  static float want[kRead], have[kRead];
  size_t first = 0;
  loop plain = *l;
  plain.keep_every = 0;
  const size_t count = values_of(ctx, &plain, called, want, &first);
  CHECK_EQUAL(values_of(ctx, l, called, have, &first), count);
  CHECK(memcmp(have, want, first * sizeof *have) == 0);
  double largest = 0, moved = 0;
  for (size_t i = 0; i < count; ++i) {
    if (i >= first) largest = fmax(largest, fabs(want[i]));
    if (i > 0 && i < first) moved = fmax(moved, fabs(want[i]));
  }
  CHECK(l->counted < 0 || moved > 0);
  for (size_t i = first; i < count; ++i) CHECK(fabs(have[i] - want[i]) <= 1e-5 * (1 + largest));
}

static void bits(weft_context* ctx) {
  const int64_t lengths[] = {1, 2, 3, 7, 16, 100, 101};
  for (size_t i = 0; i < sizeof lengths / sizeof *lengths; ++i) {
    for (int reverse = 0; reverse < 2; ++reverse) {
      same_as_plain(ctx, &(loop){.length = lengths[i], .keep_every = -1, .reverse = reverse, .draws = (int)i % 2}, 0);
    }
  }
  for (int64_t every = 1; every <= 8; ++every) {
    same_as_plain(ctx, &(loop){.length = 7, .keep_every = every, .reverse = every % 2 != 0, .unroll = every % 4}, 0);
  }
  same_as_plain(ctx, &(loop){.length = 16, .keep_every = 4, .unroll = 3, .draws = 1}, 0);
  same_as_plain(ctx, &(loop){.length = 16, .keep_every = -1, .draws = 1}, 1);
  same_as_plain(ctx, &(loop){.length = 7, .keep_every = 3, .reverse = 1}, 1);
  /* As often as a tensor says, below none and above the bound, too. */
  const int counts[] = {-3, 1, 2, 3, 4, 6, 7, 9, 10, 12};
  for (size_t i = 0; i < sizeof counts / sizeof *counts; ++i) {
    same_as_plain(ctx, &(loop){.length = 10, .keep_every = i % 2 ? 3 : -1, .counted = counts[i], .draws = (int)i % 3 == 0}, i % 4 == 1);
  }
}

/* x -> x x c; nothing is carried, so nothing is computed again. */
static weft_error* trace_mapped(void* data, weft_context* body, weft_tensor* const* p, size_t count, weft_tensor** results,
                                size_t capacity, size_t* out_count) {
  wf_scope* const s = wf_begin(body);
  (void)count, (void)capacity;
  results[0] = wf_keep(s, wf_mul(s, wf_mul(s, p[0], p[0]), data));
  *out_count = 1;
  return wf_end(s);
}
static void nothing_carried(weft_context* ctx) {
  const weft_tensor_info type = {WEFT_F32, 1, {kWide}};
  const int64_t dims[] = {kWide, kWide};
  weft_tensor *xs = filled(ctx, WEFT_F32, dims, 2, 1), *c = filled(ctx, WEFT_F32, dims, 1, 2), *wrt[] = {xs, c}, *loss = NULL, *grads[2];
  float want[2][kWide * kWide], have[2][kWide * kWide];
  weft_function* f = NULL;
  MUST(weft_function_trace(ctx, "mapped", WEFT_STRLEN, &type, 1, trace_mapped, c, 1, &f));
  for (int i = 0; i < 2; ++i) OK(weft_tensor_require_grad(wrt[i], 1));
  for (int64_t every = 0; every >= -1; --every) {
    wf_scope* const s = wf_begin(ctx);
    loss = wf_keep(s, wf_sum(s, wf_scan(s, f, NULL, 0, WF_TENSORS(xs), .keep_every = every)));
    OK(wf_end(s));
    OK(weft_grad(ctx, loss, NULL, wrt, 2, grads));
    for (int i = 0; i < 2; ++i) {
      OK(weft_tensor_to_host(grads[i], every == 0 ? want[i] : have[i], (size_t)(i == 0 ? kWide * kWide : kWide) * 4));
      weft_tensor_release(grads[i]);
    }
    weft_tensor_release(loss);
  }
  CHECK(memcmp(have[0], want[0], sizeof want[0]) == 0 && memcmp(have[1], want[1], kWide * 4) == 0 && want[0][1] != 0);
  weft_function_release(f);
  for (int i = 0; i < 2; ++i) weft_tensor_release(wrt[i]);
}

/* --- Memory ----------------------------------------------------------------------------------------------------------------- */

enum { kSide = 64, kRuns = 400 };

static weft_error* trace_large(void* data, weft_context* body, weft_tensor* const* p, size_t count, weft_tensor** results,
                               size_t capacity, size_t* out_count) {
  wf_scope* const s = wf_begin(body);
  (void)capacity;
  results[0] = wf_keep(s, wf_tanh(s, wf_matmul(s, count > 1 ? wf_add(s, p[0], p[1]) : p[0], data)));
  *out_count = 1;
  return wf_end(s);
}
typedef struct {
  int64_t keep_every;
  int gradient;
  size_t scanned; /* tensors, 0 or 1 */
} request;
static weft_error* trace_train(void* data, weft_context* body, weft_tensor* const* p, size_t count, weft_tensor** results,
                               size_t capacity, size_t* out_count) {
  const request* const r = data;
  const weft_tensor_info type = {WEFT_F32, 2, {kSide, kSide}}, types[] = {type, type};
  wf_scope* const s = wf_begin(body);
  weft_tensor *last = NULL, *loss = NULL;
  weft_function* f = NULL;
  (void)capacity;
  MUST(weft_function_trace(body, "large", WEFT_STRLEN, types, 1 + r->scanned, trace_large, p[1], 1, &f));
  last = wf_scan(s, f, WF_TENSORS(p[0]), p + 2, r->scanned, .length = kRuns + (int64_t)r->scanned, .keep_every = r->keep_every);
  weft_function_release(f);
  loss = wf_keep(s, wf_sum(s, last));
  *out_count = r->gradient ? count : 1;
  {
    weft_error* const error = wf_end(s);
    if (error != NULL || !r->gradient) return results[0] = loss, error;
  }
  weft_error* const error = weft_grad(body, loss, NULL, p, count, results);
  weft_tensor_release(loss);
  return error;
}
static weft_program_stats stats_of(weft_context* ctx, int64_t keep_every, int gradient, size_t scanned) {
  const weft_tensor_info types[] = {
      {WEFT_F32, 2, {kSide, kSide}}, {WEFT_F32, 2, {kSide, kSide}}, {WEFT_F32, 3, {kRuns + 1, kSide, kSide}}};
  weft_program_stats stats = WEFT_PROGRAM_STATS_INIT;
  request r = {keep_every, gradient, scanned};
  weft_function* f = NULL;
  MUST(weft_function_trace(ctx, "train", WEFT_STRLEN, types, 2 + scanned, trace_train, &r, 3, &f));
  OK(weft_function_stats(ctx, f, NULL, NULL, 0, &stats));
  weft_function_release(f);
  return stats;
}

static void memory(weft_context* ctx) {
  const uint64_t carry = kSide * kSide * 4; /* 16 KiB: 400 of them are 6,553,600 bytes, 20 and 20 are 655,360; measured 6,603,712 and 705,920 */
  const weft_program_stats all = stats_of(ctx, 0, 1, 0), root = stats_of(ctx, -1, 1, 0), tenth = stats_of(ctx, 10, 1, 0);
  CHECK(all.temporary_bytes >= kRuns * carry);
  CHECK(root.temporary_bytes <= all.temporary_bytes / 5);
  CHECK(root.temporary_bytes <= (20 + 20 + 12) * carry);
  CHECK(tenth.temporary_bytes <= (40 + 10 + 12) * carry && tenth.temporary_bytes > root.temporary_bytes);
  /* Without a gradient nothing is kept either way. */
  const weft_program_stats none = stats_of(ctx, 0, 0, 0), still = stats_of(ctx, -1, 0, 0);
  CHECK(none.temporary_bytes == still.temporary_bytes && none.kernels == still.kernels && none.code_bytes == still.code_bytes);
  CHECK(none.temporary_bytes <= 4 * carry);
  /* 401 slices, of which the gradients go out: 20 segments of 21 runs, the last one shorter. The arena holds the gradients until they
   * are given out, and no copy of either. Measured 6,685,888 and 6,931,072 bytes. */
  const weft_program_stats slices = stats_of(ctx, 0, 1, 1), few = stats_of(ctx, -1, 1, 1);
  CHECK(few.temporary_bytes <= (kRuns + 1 + 20 + 21 + 12) * carry);
  CHECK(slices.temporary_bytes <= (kRuns + 1 + 12) * carry);
}

static void bad_requests(weft_context* ctx) {
  const int64_t dims[] = {kWide, kWide};
  weft_tensor *in[] = {filled(ctx, WEFT_F32, dims, 1, 1), filled(ctx, WEFT_F32, dims, 2, 2), NULL}, *out[2];
  const weft_tensor_info types[] = {{WEFT_F32, 2, {kWide, kWide}}, {WEFT_I32, 0, {0}}, {WEFT_F32, 2, {kWide, kWide}}};
  weft_scan_options scan = WEFT_SCAN_OPTIONS_INIT;
  weft_for_options counted = WEFT_FOR_OPTIONS_INIT;
  weft_context* body = NULL;
  weft_tensor* p[2];
  weft_function *f = NULL, *indexed = NULL;
  size_t n = 0;
  MUST(weft_function_trace(ctx, "large", WEFT_STRLEN, types, 1, trace_large, in[1], 1, &f));
  MUST(weft_function_begin(ctx, "same", WEFT_STRLEN, types + 1, 2, &body, p));
  MUST(weft_function_end(body, &p[1], 1, &indexed));
  weft_context_release(body);
  for (int i = 0; i < 2; ++i) weft_tensor_release(p[i]);
  OK(weft_tensor_from_i64(ctx, WEFT_I32, 3, &in[2]));
  scan.length = 4;
  scan.keep_every = -2;
  FAILS_WITH(weft_scan(ctx, f, &in[1], 1, NULL, 0, &scan, out, 2, &n), WEFT_INVALID_ARGUMENT,
             "weft_scan_options.keep_every is -2; it must be a number of runs, or -1 for the square root of them");
  scan.struct_size = offsetof(weft_scan_options, keep_every); /* a caller who does not know it */
  OK(weft_scan(ctx, f, &in[1], 1, NULL, 0, &scan, out, 2, &n));
  weft_tensor_release(out[0]);
  scan.struct_size = sizeof scan;
  scan.keep_every = INT64_MAX; /* more than there are: the first values are all that is kept */
  OK(weft_scan(ctx, f, &in[1], 1, NULL, 0, &scan, out, 2, &n));
  weft_tensor_release(out[0]);
  scan.length = 0;
  scan.keep_every = -1;
  OK(weft_scan(ctx, f, &in[1], 1, NULL, 0, &scan, out, 2, &n));
  weft_tensor_release(out[0]);
  counted.max_count = 4;
  counted.keep_every = INT64_MIN;
  FAILS_WITH(weft_for(ctx, in[2], indexed, &in[1], 1, &counted, out), WEFT_INVALID_ARGUMENT,
             "weft_for_options.keep_every is -9223372036854775808; it must be a number of runs, or -1 for the square root of them");
  counted.max_count = 0;
  counted.keep_every = 2;
  FAILS_WITH(weft_for(ctx, in[2], indexed, &in[1], 1, &counted, out), WEFT_INVALID_ARGUMENT,
             "weft_for_options.keep_every is 2; without max_count nothing is kept and there is no gradient");
  counted.struct_size = offsetof(weft_for_options, keep_every);
  OK(weft_for(ctx, in[2], indexed, &in[1], 1, &counted, out));
  weft_tensor_release(out[0]);
  weft_function_release(f);
  weft_function_release(indexed);
  for (int i = 0; i < 3; ++i) weft_tensor_release(in[i]);
}

int main(void) {
  weft_context* ctx = context_on("cpu", WEFT_MODE_LAZY);
  bits(ctx);
  nothing_carried(ctx);
  memory(ctx);
  bad_requests(ctx);
  weft_context_release(ctx);
  ctx = context_on("reference", WEFT_MODE_DEBUG);
  same_as_plain(ctx, &(loop){.length = 7, .keep_every = -1, .reverse = 1, .draws = 1}, 0);
  same_as_plain(ctx, &(loop){.length = 7, .keep_every = -1, .counted = 5}, 1);
  weft_context_release(ctx);
  return done("functions_recompute");
}
