/* What a language with a collector does: handles are released whenever their objects are collected. With the rule for bindings,
 * weft_scope_share, that changes no program; one call records, adopts and retains. */
#include "check.h"

enum { kSteps = 60, kOperations = 6 };

static unsigned g_random = 1;
static int roll(int n) {
  g_random = g_random * 1664525u + 1013904223u;
  return (int)((g_random >> 16) % (unsigned)n);
}

/* Handles whose objects are garbage, and when they go is the collector's affair. */
typedef struct {
  weft_tensor* all[kSteps * kOperations];
  size_t count;
} garbage;

static void collect(garbage* g, int one_in) {
  size_t i, kept = 0;
  for (i = 0; i < g->count; ++i) {
    if (roll(one_in) == 0) {
      weft_tensor_release(g->all[i]);
    } else {
      g->all[kept++] = g->all[i];
    }
  }
  g->count = kept;
}

typedef enum { kPlain, kShare, kApplyIn } how;

static weft_tensor* apply(weft_context* ctx, weft_scope* s, how way, const char* name, weft_tensor* x, weft_tensor* y, garbage* g) {
  weft_tensor *inputs[2] = {x, y}, *out = NULL;
  weft_tensor_info info;
  size_t count = 0;
  collect(g, 7);
  if (way == kApplyIn) {
    MUST(weft_op_apply_in(s, __FILE__, __LINE__, NULL, name, WEFT_STRLEN, inputs, y != NULL ? 2 : 1, NULL, 0, &out, &info, 1, &count));
    CHECK(count == 1 && info.dtype == WEFT_F32);
  } else {
    MUST(weft_op_apply(ctx, name, WEFT_STRLEN, inputs, y != NULL ? 2 : 1, NULL, 0, &out, 1, &count));
    if (way == kShare) MUST(weft_scope_share(s, out));
  }
  g->all[g->count++] = out;
  return out;
}

/* 60 steps of one program; how many are compiled, and what w is in the end. */
static int64_t steps(how way, float* w_out) {
  weft_context* ctx = new_context();
  const float start[4] = {0.1f, -0.2f, 0.3f, 0.4f};
  const int64_t before = metric(ctx, "programs_compiled"), live = metric(ctx, "live_tensors");
  weft_tensor* w = f32(ctx, DIMS(2, 2), start);
  garbage g = {{NULL}, 0};
  int64_t compiled;
  int i;
  g_random = 1;
  for (i = 0; i < kSteps; ++i) {
    weft_scope* s = NULL;
    weft_tensor *a, *b;
    MUST(weft_scope_begin(ctx, &s));
    /* Operands hold while they are used; nothing else does. */
    a = apply(ctx, s, way, "matmul", w, w, &g), weft_tensor_retain(a);
    b = apply(ctx, s, way, "tanh", a, NULL, &g), weft_tensor_retain(b), weft_tensor_release(a);
    a = apply(ctx, s, way, "sin", b, NULL, &g), weft_tensor_retain(a);
    b = (weft_tensor_release(b), apply(ctx, s, way, "exp", a, NULL, &g)), weft_tensor_retain(b), weft_tensor_release(a);
    a = apply(ctx, s, way, "tanh", b, NULL, &g), weft_tensor_retain(a), weft_tensor_release(b);
    OK(weft_tensor_assign(w, a));
    weft_tensor_release(a);
    OK(weft_sync(ctx, NULL, NULL));
    collect(&g, 3);
    OK(weft_scope_end(s));
  }
  compiled = metric(ctx, "programs_compiled") - before;
  OK(weft_tensor_to_host(w, w_out, 4 * sizeof(float)));
  collect(&g, 1);
  weft_tensor_release(w);
  CHECK_EQUAL(metric(ctx, "live_tensors"), live);
  CHECK_EQUAL(metric(ctx, "bad_releases"), 0);
  weft_context_release(ctx);
  return compiled;
}

static void collecting_changes_no_program(void) {
  float plain[4], shared[4], applied[4];
  const int64_t without = steps(kPlain, plain);
  CHECK(without > 2); /* what is live is what happens not to have been collected */
  CHECK(steps(kShare, shared) <= 2);
  CHECK(steps(kApplyIn, applied) <= 2);
  CHECK(memcmp(plain, shared, sizeof plain) == 0 && memcmp(plain, applied, sizeof plain) == 0);
}

static void what_is_shared_has_two_owners(void) {
  weft_context *ctx = new_context(), *other = new_context();
  weft_tensor *x = ramp(ctx, DIMS(4)), *y = NULL, *z = NULL, *kept = NULL, *foreign = ramp(other, DIMS(4));
  weft_scope* s = NULL;
  float host[4] = {0};
  MUST(weft_scope_begin(ctx, &s));
  MUST(weft_neg(ctx, x, &y));
  MUST(weft_exp(ctx, x, &z));
  MUST(weft_scope_share(s, y));
  MUST(weft_scope_share(s, z));
  MUST(weft_scope_share(s, foreign));
  weft_tensor_release(z); /* the scope's stays */
  OK(weft_tensor_keep(y));
  MUST(weft_sync(ctx, NULL, NULL));
  OK(weft_tensor_to_host(y, host, sizeof host));
  CHECK(host[3] == -3);
  FAILS_WITH(weft_tensor_to_host(z, host, sizeof host), WEFT_FAILED_PRECONDITION, "keep it before weft_sync");
  OK(weft_scope_keep(s, y, &kept)); /* the scope's reference comes out */
  CHECK(kept == y);
  OK(weft_scope_end(s));
  weft_tensor_release(kept);
  OK(weft_tensor_to_host(y, host, sizeof host));
  FAILS_WITH(weft_tensor_to_host(z, host, sizeof host), WEFT_INVALID_ARGUMENT, "has been released");
  FAILS_WITH(weft_scope_share(s, y), WEFT_INVALID_ARGUMENT, "scope");
  weft_tensor_release(y);
  weft_tensor_release(x);
  weft_tensor_release(foreign);
  CHECK_EQUAL(metric(ctx, "live_tensors"), 0);
  weft_context_release(ctx);
  weft_context_release(other);
}

static void one_call_says_everything(void) {
  weft_context* ctx = new_context();
  weft_tensor *x = ramp(ctx, DIMS(2, 3)), *out[2] = {NULL, NULL};
  weft_tensor_info infos[2];
  weft_attr k = {"k", WEFT_STRLEN, WEFT_VALUE_INT, 0, 2, 0, NULL, 0};
  weft_scope* s = NULL;
  weft_error* e;
  size_t count = 77;
  MUST(weft_scope_begin(ctx, &s));
  OK(weft_op_apply_in(s, NULL, 0, NULL, "top_k", WEFT_STRLEN, &x, 1, &k, 1, out, infos, 2, &count));
  CHECK(count == 2 && infos[0].dtype == WEFT_F32 && infos[1].dtype == WEFT_I32 && infos[1].rank == 2 && infos[1].dims[1] == 2);
  weft_tensor_release(out[0]);
  weft_tensor_release(out[1]);
  /* An error is the caller's, says where, and leaves no trace in the scope. */
  out[0] = NULL, count = 77;
  e = weft_op_apply_in(s, "model.py", 12, NULL, "top_k", WEFT_STRLEN, &x, 1, NULL, 0, out, NULL, 2, &count);
  CHECK_EQUAL(weft_error_code(e), WEFT_INVALID_ARGUMENT);
  CHECK_TEXT(weft_error_payload(e, "weft.position", WEFT_STRLEN, NULL), "model.py:12");
  CHECK(out[0] == NULL && count == 77);
  weft_error_release(e);
  FAILS_WITH(weft_op_apply_in(s, NULL, 0, NULL, "top_k", WEFT_STRLEN, &x, 1, &k, 1, out, NULL, 1, &count), WEFT_OUT_OF_RANGE,
             "2 results");
  FAILS_WITH(weft_op_apply_in(s, NULL, 0, NULL, "topk", WEFT_STRLEN, &x, 1, &k, 1, out, NULL, 2, &count), WEFT_NOT_FOUND, "top_k");
  FAILS_WITH(weft_op_apply_in(NULL, NULL, 0, NULL, "neg", WEFT_STRLEN, &x, 1, NULL, 0, out, NULL, 2, &count), WEFT_INVALID_ARGUMENT,
             "scope");
  FAILS_WITH(weft_op_apply_in(s, NULL, 0, NULL, "neg", WEFT_STRLEN, &x, 1, NULL, 0, out, NULL, 2, NULL), WEFT_INVALID_ARGUMENT,
             "out_count");
  CHECK(out[0] == NULL && count == 77);
  OK(weft_scope_check(s));
  OK(weft_scope_end(s));
  weft_tensor_release(x);
  CHECK_EQUAL(metric(ctx, "live_tensors"), 0);
  weft_context_release(ctx);
}

static uint64_t live_bytes(weft_context* ctx) {
  uint64_t bytes = 0;
  OK(weft_context_live_bytes(ctx, &bytes));
  return bytes;
}

static void live_bytes_are_what_values_hold(void) {
  weft_context *ctx = new_context(), *other = new_context();
  weft_tensor *x = ramp(ctx, DIMS(1000)), *y = NULL, *z = NULL;
  float host[1000];
  CHECK_EQUAL(live_bytes(ctx), 4000);
  CHECK_EQUAL(live_bytes(other), 0);
  OK(weft_neg(ctx, x, &y));
  CHECK_EQUAL(live_bytes(ctx), 4000); /* recorded, not there yet */
  OK(weft_eval(ctx, &y, 1, NULL));
  OK(weft_tensor_to_host(y, host, sizeof host));
  CHECK_EQUAL(live_bytes(ctx), 8000);
  OK(weft_exp(ctx, y, &z));
  weft_tensor_release(y); /* what is recorded still wants it */
  CHECK_EQUAL(live_bytes(ctx), 8000);
  OK(weft_tensor_to_host(z, host, sizeof host));
  OK(weft_sync(ctx, NULL, NULL));
  weft_tensor_release(z);
  weft_tensor_release(x);
  OK(weft_sync(ctx, NULL, NULL));
  CHECK_EQUAL(live_bytes(ctx), 0);
  FAILS_WITH(weft_context_live_bytes(ctx, NULL), WEFT_INVALID_ARGUMENT, "out_bytes");
  weft_context_release(ctx);
  weft_context_release(other);
}

int main(void) {
  live_bytes_are_what_values_hold();
  collecting_changes_no_program();
  what_is_shared_has_two_owners();
  one_call_says_everything();
  return done("collectors");
}
