/* Random operations in bodies: every call draws from a stream of its own, every run of a loop from one of its number's. */
#include "check.h"

enum { kEach = 8 };
static const weft_tensor_info kScalar = {.dtype = WEFT_F32, .rank = 0};

/* Reads and releases. */
static void read(weft_tensor* tensor, float* out, size_t count) {
  OK(weft_tensor_to_host(tensor, out, count * sizeof *out));
  weft_tensor_release(tensor);
}
static weft_function* trace(weft_context* ctx, const weft_tensor_info* inputs, size_t count, weft_trace_fn fn, void* data) {
  weft_function* f = NULL;
  MUST(weft_function_trace(ctx, "drawn", WEFT_STRLEN, inputs, count, fn, data, 8, &f));
  return f;
}

/* --- What the page says of streams, by hand -------------------------------------------------------------------------- */

/* A state: key, counter low, counter high. */
typedef struct {
  uint64_t key, low, high;
} state;

/* Philox-4x32-10. Source: Salmon et al., Parallel Random Numbers (2011). */
static void philox(state s, uint32_t c[4]) {
  uint32_t k0 = (uint32_t)s.key, k1 = (uint32_t)(s.key >> 32);
  c[0] = (uint32_t)s.low, c[1] = (uint32_t)(s.low >> 32), c[2] = (uint32_t)s.high, c[3] = (uint32_t)(s.high >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = (uint64_t)0xD2511F53 * c[0], b = (uint64_t)0xCD9E8D57 * c[2];
    const uint32_t c1 = c[1], c3 = c[3];
    c[0] = (uint32_t)(b >> 32) ^ c1 ^ k0;
    c[1] = (uint32_t)b;
    c[2] = (uint32_t)(a >> 32) ^ c3 ^ k1;
    c[3] = (uint32_t)a;
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
}
static state stream_of(state s, uint64_t number) {
  uint32_t c[4];
  state stream = {0, 0, 0};
  s.low += number;
  philox(s, c);
  stream.key = (uint64_t)c[1] << 32 | c[0];
  stream.high = (uint64_t)c[3] << 32 | c[2];
  return stream;
}
static void uniform_of(state s, uint64_t blocks, float* out) {
  for (int i = 0; i < kEach; ++i) {
    uint32_t c[4];
    state at = s;
    at.low += blocks + (uint64_t)i / 4;
    philox(at, c);
    out[i] = (float)(c[i % 4] >> 8) / 16777216.0f;
  }
}
static const uint64_t kBlocks = 1 + kEach / 2 + 1; /* what a draw of kEach numbers takes */

static void same(const float* have, const float* want, int line) {
  if (memcmp(have, want, kEach * sizeof *have) == 0) return;
  printf("%s:%d: %.9g %.9g …, wanted %.9g %.9g …\n", __FILE__, line, have[0], have[1], want[0], want[1]);
  ++g_failures;
}
#define SAME(have, want) same((have), (want), __LINE__)

/* --- Calls ------------------------------------------------------------------------------------------------------------- */

static weft_error* trace_two(void* data, weft_context* body, weft_tensor* const* p, size_t count, weft_tensor** results,
                             size_t capacity, size_t* out_count) {
  wf_scope* const s = wf_begin(body);
  (void)data, (void)p, (void)count, (void)capacity;
  results[0] = wf_keep(s, wf_uniform(s, WF_INTS(kEach)));
  results[1] = wf_keep(s, wf_uniform(s, WF_INTS(kEach)));
  *out_count = 2;
  return wf_end(s);
}

/* `data` is a function of no inputs and two results, called twice. */
static weft_error* trace_calls(void* data, weft_context* body, weft_tensor* const* p, size_t count, weft_tensor** results,
                               size_t capacity, size_t* out_count) {
  size_t n = 0;
  weft_error* error = weft_function_call(body, data, NULL, 0, results, 2, &n);
  (void)p, (void)count, (void)capacity;
  if (error == NULL) error = weft_function_call(body, data, NULL, 0, results + 2, 2, &n);
  *out_count = error == NULL ? 4 : 0;
  return error;
}

static void calls(weft_context* ctx) {
  const state seeded = {7, 0, 0};
  weft_function *two = trace(ctx, NULL, 0, trace_two, NULL), *outer = trace(ctx, NULL, 0, trace_calls, two);
  weft_tensor* out[4];
  float have[kEach], want[kEach];
  state now;
  size_t n = 0;
  OK(weft_random_seed(ctx, 7));
  for (uint64_t call = 0; call < 3; ++call) {
    OK(weft_function_call(ctx, two, NULL, 0, out, 4, &n));
    CHECK_EQUAL(n, 2);
    for (uint64_t draw = 0; draw < 2; ++draw) {
      read(out[draw], have, kEach);
      uniform_of(stream_of(seeded, call), draw * kBlocks, want);
      SAME(have, want);
    }
  }
  /* Within a body likewise: a call takes one block of the body's stream. */
  OK(weft_function_call(ctx, outer, NULL, 0, out, 4, &n));
  for (uint64_t draw = 0; draw < 4; ++draw) {
    read(out[draw], have, kEach);
    uniform_of(stream_of(stream_of(seeded, 3), draw / 2), draw % 2 * kBlocks, want);
    SAME(have, want);
  }
  OK(weft_random_get_state(ctx, &now.key, &now.low, &now.high));
  CHECK(now.key == 7 && now.low == 4 && now.high == 0);
  OK(weft_function_captures(two, NULL, 0, &n));
  CHECK_EQUAL(n, 0);
  OK(weft_function_inputs(two, NULL, 0, &n));
  CHECK_EQUAL(n, 0);
  weft_function_release(two);
  weft_function_release(outer);
}

/* --- Loops ------------------------------------------------------------------------------------------------------------- */

/* Carries a number, draws twice, gives both out. */
static weft_error* trace_step(void* data, weft_context* body, weft_tensor* const* p, size_t count, weft_tensor** results,
                              size_t capacity, size_t* out_count) {
  wf_scope* const s = wf_begin(body);
  weft_tensor* const drawn = wf_uniform(s, WF_INTS(kEach));
  (void)data, (void)capacity;
  results[0] = wf_keep(s, wf_add(s, p[count - 1], wf_mean(s, drawn)));
  results[1] = wf_keep(s, drawn);
  results[2] = wf_keep(s, wf_uniform(s, WF_INTS(kEach)));
  *out_count = 3;
  return wf_end(s);
}

static void scans(weft_context* ctx, int64_t length, int reverse, int64_t unroll) {
  const state stream = stream_of((state){7, 0, 0}, 0);
  weft_function* const f = trace(ctx, &kScalar, 1, trace_step, NULL);
  weft_tensor *zero = scalar(ctx, 0), *out[3];
  weft_scan_options options = WEFT_SCAN_OPTIONS_INIT;
  float* const have[2] = {malloc((size_t)length * kEach * 4), malloc((size_t)length * kEach * 4)};
  float want[kEach], carried = 0;
  double sum = 0;
  state now;
  size_t n = 0;
  options.length = length, options.reverse = reverse, options.unroll = unroll;
  OK(weft_random_seed(ctx, 7));
  OK(weft_scan(ctx, f, &zero, 1, NULL, 0, &options, out, 3, &n));
  CHECK_EQUAL(n, 3);
  read(out[0], &carried, 1);
  for (int draw = 0; draw < 2; ++draw) {
    read(out[1 + draw], have[draw], (size_t)length * kEach);
    for (int64_t run = 0; run < length; ++run) {
      uniform_of(stream_of(stream, (uint64_t)run), (uint64_t)draw * kBlocks, want);
      SAME(have[draw] + run * kEach, want);
    }
  }
  for (int64_t i = 0; i < length * kEach; ++i) sum += have[0][i];
  CHECK(fabs(carried - sum / kEach) <= 1e-4 * (1 + sum));
  if (length >= 100) { /* 0.29 / sqrt(800) is 0.01; runs and draws have nothing to do with each other */
    double next = 0, other = 0;
    const double mean = sum / (double)(length * kEach);
    CHECK(fabs(mean - 0.5) < 0.05);
    for (int64_t i = 0; i + kEach < length * kEach; ++i) {
      next += (have[0][i] - 0.5) * (have[0][i + kEach] - 0.5);
      other += (have[0][i] - 0.5) * (have[1][i] - 0.5);
    }
    CHECK(fabs(next * 12 / (double)(length * kEach)) < 0.15);
    CHECK(fabs(other * 12 / (double)(length * kEach)) < 0.15);
  }
  /* However many runs. */
  OK(weft_random_get_state(ctx, &now.key, &now.low, &now.high));
  CHECK(now.key == 7 && now.low == 1 && now.high == 0);
  free(have[0]);
  free(have[1]);
  weft_tensor_release(zero);
  weft_function_release(f);
}

/* The logits, `data`, are equal: drawn is where the word is least. What comes next begins behind the words of all logits. */
static weft_error* trace_category(void* data, weft_context* body, weft_tensor* const* p, size_t count, weft_tensor** results,
                                  size_t capacity, size_t* out_count) {
  wf_scope* const s = wf_begin(body);
  (void)count, (void)capacity;
  results[0] = wf_keep(s, wf_copy(s, p[0]));
  results[1] = wf_keep(s, wf_categorical(s, data));
  results[2] = wf_keep(s, wf_uniform(s, WF_INTS(kEach)));
  *out_count = 3;
  return wf_end(s);
}

static void categories(weft_context* ctx) {
  enum { kRuns = 20 };
  const state stream = stream_of((state){7, 0, 0}, 0);
  const float equal[kEach] = {0};
  weft_scan_options options = WEFT_SCAN_OPTIONS_INIT;
  weft_tensor *zero = scalar(ctx, 0), *logits = NULL, *out[3];
  weft_function* f = NULL;
  int32_t drawn[kRuns];
  float after[kRuns][kEach], want[kEach];
  size_t n = 0;
  MUST(weft_tensor_from_host(ctx, NULL, WEFT_F32, (const int64_t[]){kEach}, 1, equal, sizeof equal, &logits));
  f = trace(ctx, &kScalar, 1, trace_category, logits);
  options.length = kRuns;
  OK(weft_random_seed(ctx, 7));
  OK(weft_scan(ctx, f, &zero, 1, NULL, 0, &options, out, 3, &n));
  OK(weft_tensor_to_host(out[1], drawn, sizeof drawn));
  read(out[2], after[0], kRuns * kEach);
  for (uint64_t run = 0; run < kRuns; ++run) {
    uint32_t words[kEach];
    int least = 0;
    for (uint64_t block = 0; block < kEach / 4; ++block) {
      state at = stream_of(stream, run);
      at.low += block;
      philox(at, words + 4 * block);
    }
    for (int i = 1; i < kEach; ++i) least = words[i] < words[least] ? i : least;
    CHECK_EQUAL(drawn[run], least);
    uniform_of(stream_of(stream, run), kBlocks, want);
    SAME(after[run], want);
  }
  weft_tensor_release(out[0]);
  weft_tensor_release(out[1]);
  weft_tensor_release(zero);
  weft_tensor_release(logits);
  weft_function_release(f);
}

/* StableHLO's rng draws as recorded operations do: in functions that are called, in branches and in loops. */
static const char kDraws[] =
    "module {\n"
    "  func.func @main(%first: tensor<8xf32>, %runs: tensor<i32>) -> (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>) {\n"
    "    %0 = func.call @draw() : () -> tensor<8xf32>\n"
    "    %1 = func.call @draw() : () -> tensor<8xf32>\n"
    "    %zero = stablehlo.constant dense<0> : tensor<i32>\n"
    "    %true = stablehlo.constant dense<true> : tensor<i1>\n"
    "    %2 = \"stablehlo.if\"(%true) ({\n"
    "      %d = func.call @draw() : () -> tensor<8xf32>\n"
    "      stablehlo.return %d : tensor<8xf32>\n"
    "    }, {\n"
    "      stablehlo.return %first : tensor<8xf32>\n"
    "    }) : (tensor<i1>) -> tensor<8xf32>\n"
    "    %3:2 = stablehlo.while(%i = %zero, %x = %first) : tensor<i32>, tensor<8xf32>\n"
    "    cond {\n"
    "      %c = stablehlo.compare LT, %i, %runs, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
    "      stablehlo.return %c : tensor<i1>\n"
    "    } do {\n"
    "      %one = stablehlo.constant dense<1> : tensor<i32>\n"
    "      %n = stablehlo.add %i, %one : tensor<i32>\n"
    "      %d = func.call @draw() : () -> tensor<8xf32>\n"
    "      %s = stablehlo.add %x, %d : tensor<8xf32>\n"
    "      stablehlo.return %n, %s : tensor<i32>, tensor<8xf32>\n"
    "    }\n"
    "    return %0, %1, %2, %3#1 : tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>\n"
    "  }\n"
    "  func.func private @draw() -> tensor<8xf32> {\n"
    "    %low = stablehlo.constant dense<0.0> : tensor<f32>\n"
    "    %high = stablehlo.constant dense<1.0> : tensor<f32>\n"
    "    %shape = stablehlo.constant dense<8> : tensor<1xi64>\n"
    "    %0 = stablehlo.rng %low, %high, %shape, distribution = UNIFORM : (tensor<f32>, tensor<f32>, tensor<1xi64>) -> tensor<8xf32>\n"
    "    %1 = stablehlo.rng %low, %high, %shape, distribution = UNIFORM : (tensor<f32>, tensor<f32>, tensor<1xi64>) -> tensor<8xf32>\n"
    "    return %1 : tensor<8xf32>\n"
    "  }\n"
    "}\n";

static void from_text(weft_context* ctx) {
  const state stream = stream_of((state){7, 0, 0}, 0);
  const float zeros[kEach] = {0};
  weft_function* f = NULL;
  weft_tensor *in[2] = {NULL, NULL}, *out[4];
  float have[kEach], want[kEach], drawn[kEach];
  size_t n = 0;
  MUST(weft_function_from_stablehlo(ctx, kDraws, WEFT_STRLEN, &f));
  OK(weft_function_inputs(f, NULL, 0, &n));
  CHECK_EQUAL(n, 2);
  MUST(weft_tensor_from_host(ctx, NULL, WEFT_F32, (const int64_t[]){kEach}, 1, zeros, sizeof zeros, &in[0]));
  MUST(weft_tensor_from_i64(ctx, WEFT_I32, 3, &in[1]));
  for (int way = 0; way < 2; ++way) { /* recorded, or launched by itself */
    OK(weft_random_seed(ctx, 7));
    if (way == 0) {
      OK(weft_function_call(ctx, f, in, 2, out, 4, &n));
    } else {
      OK(weft_function_run(ctx, f, in, 2, NULL, 0, out, 4, &n));
    }
    CHECK_EQUAL(n, 4);
    for (uint64_t i = 0; i < 3; ++i) {
      read(out[i], have, kEach);
      uniform_of(i < 2 ? stream_of(stream, i) : stream_of(stream_of(stream, 2), 0), kBlocks, want);
      SAME(have, want);
    }
    memset(want, 0, sizeof want);
    for (uint64_t run = 0; run < 3; ++run) {
      uniform_of(stream_of(stream_of(stream_of(stream, 3), run), 0), kBlocks, drawn);
      for (int i = 0; i < kEach; ++i) want[i] += drawn[i];
    }
    read(out[3], have, kEach);
    SAME(have, want);
  }
  weft_tensor_release(in[0]);
  weft_tensor_release(in[1]);
  weft_function_release(f);
}

/* Index and a row of numbers in; what run 2 draws is kept. */
static weft_error* trace_third(void* data, weft_context* body, weft_tensor* const* p, size_t count, weft_tensor** results,
                               size_t capacity, size_t* out_count) {
  wf_scope* const s = wf_begin(body);
  (void)data, (void)count, (void)capacity;
  results[0] = wf_keep(s, wf_where(s, wf_lt(s, wf_abs(s, wf_sub(s, wf_convert(s, p[0], WEFT_F32), wf_scalar(s, WEFT_F32, 2))), wf_scalar(s, WEFT_F32, 0.5)), wf_uniform(s, WF_INTS(kEach)), p[1]));
  *out_count = 1;
  return wf_end(s);
}

static void counted(weft_context* ctx) {
  const weft_tensor_info types[2] = {{.dtype = WEFT_I32, .rank = 0}, {.dtype = WEFT_F32, .rank = 1, .dims = {kEach}}};
  weft_function* const f = trace(ctx, types, 2, trace_third, NULL);
  const float zeros[kEach] = {0};
  weft_tensor *first = NULL, *count = NULL, *out = NULL, *after = NULL;
  float have[kEach], want[kEach], once[kEach];
  MUST(weft_tensor_from_host(ctx, NULL, WEFT_F32, (const int64_t[]){kEach}, 1, zeros, sizeof zeros, &first));
  for (int64_t runs = 2; runs < 5; ++runs) {
    OK(weft_random_seed(ctx, 7));
    MUST(weft_tensor_from_i64(ctx, WEFT_I32, runs, &count));
    OK(weft_for(ctx, count, f, &first, 1, NULL, &out));
    OK(weft_uniform(ctx, (const int64_t[]){kEach}, 1, NULL, &after));
    read(out, have, kEach);
    uniform_of(stream_of(stream_of((state){7, 0, 0}, 0), 2), 0, want);
    if (runs == 2) memset(want, 0, sizeof want);
    SAME(have, want);
    /* What the program draws afterwards is the same however often the loop ran. */
    read(after, have, kEach);
    if (runs == 2) memcpy(once, have, sizeof once);
    SAME(have, once);
    weft_tensor_release(count);
  }
  weft_tensor_release(first);
  weft_function_release(f);
}

/* Goes on with a probability of 31/32; a second draw must not matter to it. */
static weft_error* trace_goes_on(void* data, weft_context* body, weft_tensor* const* p, size_t count, weft_tensor** results,
                                 size_t capacity, size_t* out_count) {
  wf_scope* const s = wf_begin(body);
  (void)data, (void)p, (void)count, (void)capacity;
  results[0] = wf_keep(s, wf_lt(s, wf_squeeze(s, wf_uniform(s, WF_INTS(1))), wf_scalar(s, WEFT_F32, 31 / 32.0)));
  *out_count = 1;
  return wf_end(s);
}
static weft_error* trace_adds(void* data, weft_context* body, weft_tensor* const* p, size_t count, weft_tensor** results,
                              size_t capacity, size_t* out_count) {
  wf_scope* const s = wf_begin(body);
  (void)data, (void)count, (void)capacity;
  results[0] = wf_keep(s, wf_add(s, p[0], wf_uniform(s, WF_INTS(kEach))));
  results[1] = wf_keep(s, wf_add(s, p[1], wf_scalar(s, WEFT_F32, 1)));
  *out_count = 2;
  return wf_end(s);
}

static void unbounded(weft_context* ctx) {
  const weft_tensor_info types[2] = {{.dtype = WEFT_F32, .rank = 1, .dims = {kEach}}, {.dtype = WEFT_F32, .rank = 0}};
  weft_function *goes_on = trace(ctx, types, 2, trace_goes_on, NULL), *adds = trace(ctx, types, 2, trace_adds, NULL);
  const state asks = stream_of((state){7, 0, 0}, 0), adding = stream_of((state){7, 0, 0}, 1);
  float have[kEach], want[kEach] = {0}, drawn[kEach], runs = 0, zeros[kEach] = {0};
  weft_tensor *first[2], *out[2];
  uint64_t expected = 0;
  MUST(weft_tensor_from_host(ctx, NULL, WEFT_F32, (const int64_t[]){kEach}, 1, zeros, sizeof zeros, &first[0]));
  first[1] = scalar(ctx, 0);
  OK(weft_random_seed(ctx, 7));
  OK(weft_while(ctx, goes_on, adds, first, 2, out));
  read(out[0], have, kEach);
  read(out[1], &runs, 1);
  for (;; ++expected) {
    uniform_of(stream_of(asks, expected), 0, drawn);
    if (!(drawn[0] < 31 / 32.0f)) break;
    uniform_of(stream_of(adding, expected), 0, drawn);
    for (int i = 0; i < kEach; ++i) want[i] += drawn[i];
  }
  CHECK(expected > 0);
  CHECK_EQUAL(runs, expected);
  SAME(have, want);
  weft_tensor_release(first[0]);
  weft_tensor_release(first[1]);
  weft_function_release(goes_on);
  weft_function_release(adds);
}

/* A scan whose body draws and scans with a body that draws. */
typedef struct {
  weft_function* inner;
} nested_data;
static weft_error* trace_nested(void* data, weft_context* body, weft_tensor* const* p, size_t count, weft_tensor** results,
                                size_t capacity, size_t* out_count) {
  const nested_data* const d = data;
  weft_scan_options options = WEFT_SCAN_OPTIONS_INIT;
  weft_tensor* inner[3] = {NULL, NULL, NULL};
  size_t n = 0;
  weft_error* error = weft_uniform(body, (const int64_t[]){kEach}, 1, NULL, &results[1]);
  (void)count, (void)capacity;
  options.length = 3;
  if (error == NULL) error = weft_scan(body, d->inner, p, 1, NULL, 0, &options, inner, 3, &n);
  results[0] = inner[0], results[2] = inner[1];
  weft_tensor_release(inner[2]);
  *out_count = error == NULL ? 3 : 0;
  return error;
}

static void nested(weft_context* ctx) {
  enum { kRuns = 4 };
  const state stream = stream_of((state){7, 0, 0}, 0);
  nested_data d = {trace(ctx, &kScalar, 1, trace_step, NULL)};
  weft_function* const f = trace(ctx, &kScalar, 1, trace_nested, &d);
  weft_scan_options options = WEFT_SCAN_OPTIONS_INIT;
  float own[kRuns][kEach], inner[kRuns][3][kEach], want[kEach];
  weft_tensor *zero = scalar(ctx, 0), *out[3];
  size_t n = 0;
  options.length = kRuns;
  OK(weft_random_seed(ctx, 7));
  OK(weft_scan(ctx, f, &zero, 1, NULL, 0, &options, out, 3, &n));
  weft_tensor_release(out[0]);
  read(out[1], own[0], kRuns * kEach);
  read(out[2], inner[0][0], kRuns * 3 * kEach);
  for (uint64_t run = 0; run < kRuns; ++run) {
    uniform_of(stream_of(stream, run), 0, want);
    SAME(own[run], want);
    for (uint64_t within = 0; within < 3; ++within) {
      uniform_of(stream_of(stream_of(stream_of(stream, run), kBlocks), within), 0, want);
      SAME(inner[run][within], want);
    }
  }
  weft_tensor_release(zero);
  weft_function_release(d.inner);
  weft_function_release(f);
}

/* --- Branches ----------------------------------------------------------------------------------------------------------- */

static void branches(weft_context* ctx) {
  weft_function* const two = trace(ctx, NULL, 0, trace_two, NULL);
  weft_function* const both[] = {two, two};
  float have[kEach], want[kEach];
  for (int chosen = 0; chosen < 2; ++chosen) {
    weft_tensor *index = NULL, *out[2];
    size_t n = 0;
    MUST(weft_tensor_from_i64(ctx, WEFT_I32, chosen, &index));
    OK(weft_random_seed(ctx, 7));
    OK(weft_case(ctx, index, both, 2, NULL, 0, out, 2, &n));
    read(out[0], have, kEach);
    weft_tensor_release(out[1]);
    uniform_of(stream_of((state){7, 0, 0}, (uint64_t)chosen), 0, want);
    SAME(have, want);
    weft_tensor_release(index);
  }
  weft_function_release(two);
}

/* --- Gradients ---------------------------------------------------------------------------------------------------------- */

static weft_error* trace_dropout(void* data, weft_context* body, weft_tensor* const* p, size_t count, weft_tensor** results,
                                 size_t capacity, size_t* out_count) {
  wf_scope* const s = wf_begin(body);
  (void)count, (void)capacity;
  results[0] = wf_keep(s, wf_dropout(s, p[0], .rate = 0.25));
  results[1] = wf_keep(s, wf_dropout(s, data, .rate = 0.5));
  *out_count = 2;
  return wf_end(s);
}

/* The gradient of what is carried is the product of the masks, that of what is captured the sum of its own. */
static void gradients(weft_context* ctx) {
  enum { kRuns = 2, kWide = 64 };
  const weft_tensor_info type = {.dtype = WEFT_F32, .rank = 1, .dims = {kWide}};
  float ones[kWide], carried[kWide], rows[kRuns][kWide], dh[kWide], dw[kWide];
  weft_tensor *h = NULL, *w = NULL, *out[2], *loss = NULL, *grads[2];
  weft_scan_options options = WEFT_SCAN_OPTIONS_INIT;
  weft_function* f = NULL;
  int kept = 0;
  size_t n = 0;
  for (int i = 0; i < kWide; ++i) ones[i] = 1;
  MUST(weft_tensor_from_host(ctx, NULL, WEFT_F32, (const int64_t[]){kWide}, 1, ones, sizeof ones, &h));
  MUST(weft_tensor_from_host(ctx, NULL, WEFT_F32, (const int64_t[]){kWide}, 1, ones, sizeof ones, &w));
  OK(weft_tensor_require_grad(h, 1));
  OK(weft_tensor_require_grad(w, 1));
  f = trace(ctx, &type, 1, trace_dropout, w);
  options.length = kRuns;
  OK(weft_scan(ctx, f, &h, 1, NULL, 0, &options, out, 2, &n));
  {
    wf_scope* const s = wf_begin(ctx);
    weft_tensor* const wrt[] = {h, w};
    loss = wf_keep(s, wf_add(s, wf_sum(s, out[0]), wf_sum(s, out[1])));
    OK(wf_end(s));
    OK(weft_grad(ctx, loss, NULL, wrt, 2, grads));
  }
  read(out[0], carried, kWide);
  read(out[1], rows[0], kRuns * kWide);
  read(grads[0], dh, kWide);
  read(grads[1], dw, kWide);
  for (int i = 0; i < kWide; ++i) {
    CHECK(dh[i] == carried[i]);
    CHECK(dw[i] == rows[0][i] + rows[1][i]);
    kept += rows[0][i] != rows[1][i];
  }
  CHECK(kept > kWide / 4);
  weft_tensor_release(loss);
  weft_tensor_release(h);
  weft_tensor_release(w);
  weft_function_release(f);
}

int main(void) {
  static const char* const kPlatforms[] = {"reference", "cpu"};
  for (int i = 0; i < 2; ++i) {
    for (weft_mode mode = WEFT_MODE_LAZY; mode <= WEFT_MODE_DEBUG; ++mode) {
      weft_context* const ctx = context_on(kPlatforms[i], mode);
      calls(ctx);
      scans(ctx, 5, 0, 0);
      scans(ctx, 5, 1, 2);
      scans(ctx, 2, 0, 8);
      if (mode == WEFT_MODE_LAZY) scans(ctx, 100, 0, 0);
      categories(ctx);
      counted(ctx);
      from_text(ctx);
      unbounded(ctx);
      nested(ctx);
      branches(ctx);
      gradients(ctx);
      weft_context_release(ctx);
    }
  }
  return done("functions_random");
}
