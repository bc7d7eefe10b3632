/* Steps that come again are launched without being built, whatever calls they are made of; what interrupts that is said. */
#include "check.h"

enum { kSteps = 20, kElements = 6 };

typedef struct {
  weft_context* ctx;
  weft_tensor *w, *v;
  weft_optimizer* optimizer;
  weft_function *twice, *noisy;
  int step;
} net;

static const weft_tensor_info kRow = {.dtype = WEFT_F32, .rank = 1, .dims = {kElements}};

static weft_error* trace_twice(void* data, weft_context* body, weft_tensor* const* p, size_t count, weft_tensor** results, size_t capacity,
                               size_t* out_count) {
  (void)data, (void)count, (void)capacity;
  *out_count = 1;
  return weft_add(body, p[0], p[0], results);
}
static weft_error* trace_noisy(void* data, weft_context* body, weft_tensor* const* p, size_t count, weft_tensor** results, size_t capacity,
                               size_t* out_count) {
  wf_scope* const s = wf_begin(body);
  (void)data, (void)count, (void)capacity;
  results[0] = wf_keep(s, wf_mul(s, p[0], wf_uniform(s, WF_INTS(kElements))));
  *out_count = 1;
  return wf_end(s);
}
/* With a capture that is known. */
static weft_error* trace_scaled(void* data, weft_context* body, weft_tensor* const* p, size_t count, weft_tensor** results, size_t capacity,
                                size_t* out_count) {
  (void)count, (void)capacity;
  *out_count = 1;
  return weft_mul(body, p[0], data, results);
}

/* --- What a step may be made of: something of h, which is pending -------------------------------------------------------- */

static weft_tensor* plainly(net* n, weft_tensor* h) {
  weft_tensor* out = NULL;
  OK(weft_tanh(n->ctx, h, &out));
  return out;
}
static weft_tensor* op_vjp(net* n, weft_tensor* h) {
  weft_tensor *t = plainly(n, h), *grad = NULL;
  OK(weft_op_vjp(n->ctx, "tanh", WEFT_STRLEN, &h, 1, NULL, 0, &t, &h, 1, NULL, &grad));
  weft_tensor_release(t);
  return grad;
}
static weft_tensor* op_vjp_of_one(net* n, weft_tensor* h) {
  weft_tensor *both[2] = {h, n->w}, *grads[2] = {NULL, NULL};
  const int32_t wanted[] = {0, 1};
  OK(weft_op_vjp(n->ctx, "mul", WEFT_STRLEN, both, 2, NULL, 0, NULL, &h, 1, wanted, grads));
  CHECK(grads[0] == NULL);
  return grads[1];
}
static weft_tensor* copy(net* n, weft_tensor* h) {
  weft_tensor *other = NULL, *of_leaf = NULL, *out = NULL;
  OK(weft_tensor_copy(h, &other));
  OK(weft_tensor_copy(n->w, &of_leaf));
  OK(weft_mul(n->ctx, other, of_leaf, &out));
  weft_tensor_release(other);
  weft_tensor_release(of_leaf);
  return out;
}
static weft_tensor* copy_that_stays(net* n, weft_tensor* h) {
  weft_tensor* out = NULL;
  (void)n;
  OK(weft_tensor_copy(h, &out));
  return out;
}
static weft_tensor* apply_many(net* n, weft_tensor* h) {
  weft_op_input first[2] = {{NULL, 0, 0, 0}, {NULL, 0, 0, 0}}, second[2] = {{NULL, 1, 0, 0}, {NULL, 0, 0, 0}};
  weft_op_call calls[2] = {{"mul", WEFT_STRLEN, NULL, 2, NULL, 0, NULL, 1, 0}, {"sub", WEFT_STRLEN, NULL, 2, NULL, 0, NULL, 0, 0}};
  weft_tensor* out = NULL;
  size_t count = 0;
  first[0].tensor = first[1].tensor = h, second[1].tensor = n->w;
  calls[0].inputs = first, calls[1].inputs = second;
  OK(weft_op_apply_many(n->ctx, calls, 2, &out, NULL, 1, &count));
  return out;
}
static weft_tensor* fluent(net* n, weft_tensor* h) {
  wf_scope* const s = wf_begin(n->ctx);
  weft_tensor* const out = wf_keep(s, wf_mul_n(s, wf_sub(s, wf_relu(s, h), n->w), 0.5));
  OK(wf_end(s));
  return out;
}
static weft_tensor* optimized(net* n, weft_tensor* h) {
  weft_tensor* grad = plainly(n, h);
  OK(weft_optimizer_step(n->optimizer, &grad, 1, 0.01));
  return grad;
}
static weft_tensor* function(net* n, weft_tensor* h) {
  weft_tensor* out = NULL;
  size_t count = 0;
  OK(weft_function_call(n->ctx, n->twice, &h, 1, &out, 1, &count));
  return out;
}
static weft_tensor* function_that_draws(net* n, weft_tensor* h) {
  weft_tensor *half = NULL, *out = NULL;
  size_t count = 0;
  OK(weft_function_call(n->ctx, n->noisy, &h, 1, &half, 1, &count));
  OK(weft_function_call(n->ctx, n->noisy, &half, 1, &out, 1, &count));
  weft_tensor_release(half);
  return out;
}
static weft_tensor* function_made_in_the_step(net* n, weft_tensor* h) {
  weft_function* f = NULL;
  weft_tensor* out = NULL;
  size_t count = 0;
  OK(weft_function_trace(n->ctx, "scaled", WEFT_STRLEN, &kRow, 1, trace_scaled, n->w, 1, &f));
  OK(weft_function_call(n->ctx, f, &h, 1, &out, 1, &count));
  weft_function_release(f);
  return out;
}
static weft_tensor* drawn(net* n, weft_tensor* h) {
  wf_scope* const s = wf_begin(n->ctx);
  weft_tensor* out;
  OK(weft_random_seed(n->ctx, (uint64_t)(100 + n->step)));
  out = wf_keep(s, wf_mul(s, h, wf_uniform(s, WF_INTS(kElements))));
  OK(wf_end(s));
  return out;
}
static weft_tensor* differentiated(net* n, weft_tensor* h) {
  weft_tensor *leaf = NULL, *t = NULL, *sum = NULL, *grad = NULL;
  OK(weft_tensor_copy(n->v, &leaf));
  OK(weft_tensor_require_grad(leaf, 1));
  OK(weft_mul(n->ctx, leaf, h, &t));
  OK(weft_sum(n->ctx, t, NULL, &sum));
  OK(weft_grad(n->ctx, sum, NULL, &leaf, 1, &grad));
  weft_tensor_release(leaf);
  weft_tensor_release(t);
  weft_tensor_release(sum);
  return grad;
}
static weft_tensor* in_parts(net* n, weft_tensor* h) {
  const int64_t sizes[] = {kElements / 2, kElements - kElements / 2};
  weft_tensor *parts[2], *out = NULL;
  OK(weft_split(n->ctx, h, sizes, 2, 0, parts));
  OK(weft_concatenate(n->ctx, parts, 2, 0, &out));
  weft_tensor_release(parts[0]);
  weft_tensor_release(parts[1]);
  return out;
}

typedef weft_tensor* (*recipe)(net* n, weft_tensor* h);
static const struct {
  const char* name;
  recipe of;
} kKinds[] = {{"an operation", plainly}, {"weft_op_vjp", op_vjp}, {"weft_op_vjp of one operand", op_vjp_of_one}, {"weft_tensor_copy", copy},
              {"a copy that stays", copy_that_stays}, {"weft_op_apply_many", apply_many}, {"a fluent scope", fluent}, {"an optimizer", optimized},
              {"weft_function_call", function}, {"a function that draws", function_that_draws}, {"a function made in the step", function_made_in_the_step},
              {"random numbers", drawn}, {"weft_grad", differentiated}, {"weft_split", in_parts}};

static void begin(net* n, const char* platform, weft_mode mode) {
  static const float ones[kElements] = {1, -1, 0.5f, 2, -0.25f, 1.5f};
  memset(n, 0, sizeof *n);
  n->ctx = context_on(platform, mode);
  n->w = f32(n->ctx, DIMS(kElements), ones);
  n->v = f32(n->ctx, DIMS(kElements), ones);
  OK(weft_random_seed(n->ctx, 7));
  MUST(weft_adam_create(n->ctx, &n->v, 1, NULL, &n->optimizer));
  MUST(weft_function_trace(n->ctx, "twice", WEFT_STRLEN, &kRow, 1, trace_twice, NULL, 1, &n->twice));
  MUST(weft_function_trace(n->ctx, "noisy", WEFT_STRLEN, &kRow, 1, trace_noisy, NULL, 1, &n->noisy));
  OK(weft_sync(n->ctx, NULL, NULL));
}
static void end(net* n) {
  weft_tensor_release(n->w);
  weft_tensor_release(n->v);
  weft_optimizer_release(n->optimizer);
  weft_function_release(n->twice);
  weft_function_release(n->noisy);
  weft_context_release(n->ctx);
}

/* Up to the barrier; what stays is read behind it. */
static weft_tensor* record(net* n, recipe of) {
  float x[kElements];
  weft_tensor *in, *h = NULL, *made, *small = NULL, *next = NULL, *rate = NULL;
  for (int i = 0; i < kElements; ++i) x[i] = (float)(1 + (i + n->step) % 5) / 4;
  in = f32(n->ctx, DIMS(kElements), x);
  OK(weft_mul(n->ctx, n->w, in, &h));
  made = of(n, h);
  OK(weft_tensor_argument_like(made, 0.01 / (1 + n->step), &rate));
  OK(weft_mul(n->ctx, made, rate, &small));
  OK(weft_sub(n->ctx, n->w, small, &next));
  OK(weft_tensor_assign(n->w, next));
  weft_tensor_release(in);
  weft_tensor_release(h);
  weft_tensor_release(rate);
  weft_tensor_release(small);
  weft_tensor_release(next);
  ++n->step;
  return made;
}

static void same(weft_tensor* a, weft_tensor* b, double tolerance, const char* kind, const char* what, int step) {
  float x[kElements], y[kElements];
  MUST(weft_tensor_to_host(a, x, sizeof x));
  MUST(weft_tensor_to_host(b, y, sizeof y));
  for (int i = 0; i < kElements; ++i) {
    if (fabs(x[i] - y[i]) <= tolerance * (1 + fabs(y[i]))) continue;
    printf("%s, step %d: element %d of %s is %.9g, not %.9g\n", kind, step, i, what, x[i], y[i]);
    ++g_failures;
    return;
  }
}

static void survives(const char* platform, size_t kind) {
  net lazy, eager;
  int64_t before;
  begin(&lazy, platform, WEFT_MODE_LAZY);
  begin(&eager, platform, WEFT_MODE_EAGER);
  before = metric(lazy.ctx, "steps_replayed");
  for (int step = 0; step < kSteps; ++step) {
    weft_tensor *const made = record(&lazy, kKinds[kind].of), *const plain = record(&eager, kKinds[kind].of);
    OK(weft_sync(lazy.ctx, NULL, NULL));
    same(made, plain, strcmp(platform, "cpu") == 0 ? 1e-5 : 0, kKinds[kind].name, "what it made", step);
    same(lazy.w, eager.w, strcmp(platform, "cpu") == 0 ? 1e-5 : 0, kKinds[kind].name, "w", step);
    same(lazy.v, eager.v, strcmp(platform, "cpu") == 0 ? 1e-5 : 0, kKinds[kind].name, "v", step);
    weft_tensor_release(made);
    weft_tensor_release(plain);
  }
  before = metric(lazy.ctx, "steps_replayed") - before;
  if (before < kSteps - 2) {
    weft_blob* text = NULL;
    OK(weft_metrics_report(lazy.ctx, &text));
    printf("%s on %s: %lld of %d steps were replayed\n%s\n", kKinds[kind].name, platform, (long long)before, kSteps, (const char*)weft_blob_data(text));
    weft_blob_release(text);
    ++g_failures;
  }
  end(&lazy);
  end(&eager);
}

/* --- What interrupts it -------------------------------------------------------------------------------------------------- */

static void says(net* n, const char* why, int line) {
  weft_blob *json = NULL, *report = NULL;
  MUST(weft_metrics_json(n->ctx, &json));
  MUST(weft_metrics_report(n->ctx, &report));
  if (strstr((const char*)weft_blob_data(json), why) == NULL || strstr((const char*)weft_blob_data(report), why) == NULL) {
    printf("%s:%d: \"%s\" is not said: %s\n", __FILE__, line, why, (const char*)weft_blob_data(json));
    ++g_failures;
  }
  weft_blob_release(json);
  weft_blob_release(report);
}

static weft_tensor* reads(net* n, weft_tensor* h) {
  float x[kElements];
  OK(weft_tensor_to_host(h, x, sizeof x));
  return plainly(n, h);
}
static weft_tensor* evaluates(net* n, weft_tensor* h) {
  OK(weft_eval(n->ctx, &h, 1, NULL));
  return plainly(n, h);
}
static weft_tensor* prints_the_program(net* n, weft_tensor* h) {
  weft_blob* text = NULL;
  OK(weft_program_text(n->ctx, &h, 1, WEFT_TEXT_IR, &text));
  weft_blob_release(text);
  return plainly(n, h);
}
static weft_tensor* captures_what_is_pending(net* n, weft_tensor* h) {
  weft_function* f = NULL;
  OK(weft_function_trace(n->ctx, "scaled", WEFT_STRLEN, &kRow, 1, trace_scaled, h, 1, &f));
  weft_function_release(f);
  return plainly(n, h);
}
static weft_tensor* differs(net* n, weft_tensor* h) {
  weft_tensor* out = NULL;
  OK(weft_exp(n->ctx, h, &out));
  return out;
}
static weft_tensor* compiles(net* n, weft_tensor* h) {
  OK(weft_compile(n->ctx, NULL, &h, 1, NULL));
  return plainly(n, h);
}

static void interruptions_are_explained(void) {
  static const struct {
    recipe of;
    const char* why;
  } kWhys[] = {{reads, "a value was read that was pending"}, {evaluates, "weft_eval computed a part of the step"},
               {prints_the_program, "the text of the pending program was asked for"},
               {captures_what_is_pending, "the body of a function used a value that was pending"},
               {differs, "call 1 of the step, exp (weft_c_replay+0x"}, {compiles, "a program was compiled ahead"}};
  for (size_t i = 0; i < sizeof kWhys / sizeof kWhys[0]; ++i) {
    net n;
    int64_t before;
    begin(&n, "reference", WEFT_MODE_LAZY);
    for (int step = 0; step < 5; ++step) {
      if (step == 4) before = metric(n.ctx, "steps_replayed");
      weft_tensor_release(record(&n, step == 4 ? kWhys[i].of : plainly));
      OK(weft_sync(n.ctx, NULL, NULL));
    }
    CHECK_EQUAL(metric(n.ctx, "steps_replayed"), before);
    says(&n, kWhys[i].why, __LINE__);
    end(&n);
  }
}

/* A tensor more at the barrier. */
static void other_tensors_are_explained(void) {
  net n;
  weft_tensor* kept = NULL;
  begin(&n, "reference", WEFT_MODE_LAZY);
  for (int step = 0; step < 5; ++step) {
    weft_tensor* const made = record(&n, plainly);
    if (step < 4) weft_tensor_release(made);
    if (step == 4) kept = made;
    OK(weft_sync(n.ctx, NULL, NULL));
  }
  says(&n, "other tensors were alive at the barrier", __LINE__);
  weft_tensor_release(kept);
  end(&n);
}

int main(void) {
  static const char* const kPlatforms[] = {"reference", "cpu"};
  for (size_t p = 0; p < 2; ++p) {
    for (size_t kind = 0; kind < sizeof kKinds / sizeof kKinds[0]; ++kind) survives(kPlatforms[p], kind);
  }
  interruptions_are_explained();
  other_tensors_are_explained();
  return done("replay");
}
