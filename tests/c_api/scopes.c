/* Scopes and the fluent layer: nesting, ownership, the first error with its position, what survives a barrier. */
#include "check.h"

static void a_forward_pass_nests(void) {
  weft_context* ctx = new_context();
  const float x_data[2] = {1, -2}, w_data[4] = {1, 0, 0, 1}, b_data[2] = {0.5f, 0.5f};
  const int64_t before = metric(ctx, "live_tensors");
  weft_tensor *x = f32(ctx, DIMS(1, 2), x_data), *w = f32(ctx, DIMS(2, 2), w_data), *b = f32(ctx, DIMS(2), b_data);
  weft_tensor* h;
  float host[2] = {0};
  wf_scope* s = wf_begin(ctx);
  h = wf_relu(s, wf_add(s, wf_matmul(s, x, w), b));
  h = wf_keep(s, h);
  CHECK_EQUAL(metric(ctx, "live_tensors"), before + 6);
  OK(wf_end(s));
  CHECK_EQUAL(metric(ctx, "live_tensors"), before + 4); /* x, w, b and what was kept */
  MUST(weft_tensor_to_host(h, host, sizeof host));
  CHECK(host[0] == 1.5f && host[1] == 0);
  weft_tensor_release(h);
  weft_tensor_release(x);
  weft_tensor_release(w);
  weft_tensor_release(b);
  weft_context_release(ctx);
}

static void optional_attributes_are_named_and_zero_is_a_value(void) {
  weft_context* ctx = new_context();
  weft_tensor* x = ramp(ctx, DIMS(2, 3));
  float host[3] = {0};
  wf_scope* s = wf_begin(ctx);
  weft_tensor* columns = wf_sum(s, x, .dims = WF_INTS(0));
  weft_tensor* rows = wf_sum(s, x, .keepdims = 1, .dims = WF_INTS(1));
  weft_tensor* all = wf_sum(s, x);
  size_t rank = 9;
  OK(weft_tensor_to_host(columns, host, sizeof host));
  CHECK(host[0] == 3 && host[1] == 5 && host[2] == 7);
  OK(weft_tensor_to_host(rows, host, 2 * sizeof(float)));
  CHECK(host[0] == 3 && host[1] == 12);
  OK(weft_tensor_rank(rows, &rank));
  CHECK_EQUAL(rank, 2);
  OK(weft_tensor_rank(all, &rank));
  CHECK_EQUAL(rank, 0);
  CHECK(wf_item(s, all) == 15);
  CHECK(wf_item(s, wf_sum(s, wf_softmax(s, x, .axis = 0))) > 2.99999);
  CHECK(wf_item(s, wf_sum(s, wf_reshape(s, x, WF_INTS(3, -1)))) == 15);
  CHECK(wf_item(s, wf_mul(s, all, wf_scalar(s, WEFT_F32, 0.5))) == 7.5);
  OK(wf_end(s));
  weft_tensor_release(x);
  weft_context_release(ctx);
}

static void a_failure_keeps_its_position_in_other_scopes(void) {
  weft_context* ctx = new_context();
  weft_tensor *x = ramp(ctx, DIMS(2, 3)), *bad;
  weft_error* e;
  char position[100], text[300];
  wf_scope *first = wf_begin(ctx), *second = wf_begin(ctx);
  snprintf(position, sizeof position, "%s:%d", __FILE__, __LINE__ + 1);
  bad = wf_reshape(first, x, WF_INTS(7));
  snprintf(text, sizeof text, "%s: reshape(f32[2, 3]): shape [7] does not hold the 6 elements of [2, 3]", position);
  wf_relu(second, bad);
  e = wf_end(second);
  CHECK_TEXT(weft_error_message(e, NULL), text);
  CHECK_TEXT(weft_error_payload(e, "weft.position", WEFT_STRLEN, NULL), position);
  CHECK_TEXT(weft_error_payload(e, "weft.operation", WEFT_STRLEN, NULL), "reshape");
  weft_error_release(e);
  INVALID(wf_end(first), text);
  INVALID(wf_end(NULL), "weft_scope_end: scope is NULL: weft_scope_begin or wf_begin failed; its context was NULL or had been released");
  weft_tensor_release(x);
  weft_context_release(ctx);
}

static void the_first_error_poisons_and_comes_out_once(void) {
  weft_context* ctx = new_context();
  weft_tensor *x = ramp(ctx, DIMS(2, 3)), *y = ramp(ctx, DIMS(4));
  weft_tensor *bad, *worse;
  weft_error* e;
  char text[300], position[100];
  size_t rank;
  float host[6];
  int line;
  wf_scope* s = wf_begin(ctx);
  weft_tensor* good = wf_add(s, x, x);
  line = __LINE__ + 1;
  bad = wf_relu(s, wf_add(s, x, y));
  worse = wf_matmul(s, bad, wf_reshape(s, x, WF_INTS(7)));
  snprintf(position, sizeof position, "%s:%d", __FILE__, line);
  snprintf(text, sizeof text,
           "%s: add(f32[2, 3], f32[4]): shapes [2, 3] and [4] do not broadcast: dimension -1 is 3 and 4; sizes must be equal or 1", position);
  CHECK(bad != NULL && worse != NULL);
  INVALID(wf_check(s), text);
  INVALID(wf_check(s), text); /* an error of its own each time */
  INVALID(weft_tensor_rank(worse, &rank), text);
  OK(weft_tensor_to_host(good, host, sizeof host)); /* what does not depend on it works */
  CHECK(wf_item(s, worse) == 0);
  CHECK(wf_keep(s, worse) == NULL);
  e = wf_end(s);
  CHECK_TEXT(weft_error_message(e, NULL), text);
  CHECK_TEXT(weft_error_payload(e, "weft.position", WEFT_STRLEN, NULL), position);
  weft_error_release(e);
  INVALID(wf_end(s), "weft_scope_end: scope is a weft_scope that has been released");
  INVALID(weft_tensor_rank(bad, &rank), "weft_tensor_rank: tensor is a weft_tensor that has been released");
  weft_tensor_release(x);
  weft_tensor_release(y);
  weft_context_release(ctx);
}

static void a_scope_that_never_was(void) {
  wf_scope* s = wf_begin(NULL);
  weft_tensor* t;
  size_t rank;
  CHECK(s == NULL);
  t = wf_scalar(s, WEFT_F32, 1);
  t = wf_add(s, t, t);
  CHECK(t != NULL);
  INVALID(weft_tensor_rank(t, &rank), "weft_tensor_rank: scope is no live weft_scope; did weft_scope_begin fail?");
  INVALID(wf_end(s), "weft_scope_end: scope is NULL: weft_scope_begin or wf_begin failed; its context was NULL or had been released");
}

static void temporaries_are_not_outputs_of_a_barrier(void) {
  weft_context* ctx = new_context();
  weft_tensor *x = ramp(ctx, DIMS(8)), *kept, *temporary, *foreign;
  double value;
  int64_t outputs;
  float host[8];
  wf_scope *s = wf_begin(ctx), *other = wf_begin(ctx);
  temporary = wf_mul(s, x, x);
  kept = wf_keep(s, wf_sum(s, wf_exp(s, wf_neg(s, temporary))));
  foreign = wf_neg(other, x);
  outputs = metric(ctx, "cut_outputs");
  MUST(weft_sync(ctx, NULL, NULL));
  CHECK_EQUAL(metric(ctx, "cut_outputs"), outputs + 1); /* the kept sum alone */
  OK(weft_tensor_item_f64(kept, &value));
  {
    weft_error* e = weft_tensor_to_host(temporary, host, sizeof host);
    CHECK_EQUAL(weft_error_code(e), WEFT_FAILED_PRECONDITION);
    CHECK(e != NULL && strstr(weft_error_message(e, NULL), "keep it before weft_sync") != NULL);
    weft_error_release(e);
  }
  {
    weft_tensor* out = NULL;
    INVALID(weft_scope_keep(s, foreign, &out), "weft_scope_keep: the scope does not own this tensor");
    CHECK(out == NULL);
  }
  OK(wf_end(s));
  OK(wf_end(other));
  weft_tensor_release(kept);
  weft_tensor_release(x);
  weft_context_release(ctx);
}

/* Whoever assigns to a temporary wants the value: the next barrier computes it as if it were kept, whether or not the barrier
 * before has let it go. It still ends with its scope. */
static void what_is_assigned_to_a_temporary_is_not_lost(void) {
  weft_context* ctx = new_context();
  weft_tensor *x = ramp(ctx, DIMS(8)), *t, *drawn;
  float host[8] = {0}, again[8] = {0};
  int64_t launches;
  size_t rank;
  int i;
  wf_scope* s = wf_begin(ctx);
  t = wf_neg(s, x);
  drawn = wf_full(s, WF_INTS(8), 0.0);
  MUST(weft_sync(ctx, NULL, NULL)); /* t is gone */
  FAILS_WITH(weft_tensor_to_host(t, host, sizeof host), WEFT_FAILED_PRECONDITION, "keep it before weft_sync");
  OK(weft_tensor_assign(t, wf_mul(s, x, x)));
  OK(weft_tensor_assign(drawn, wf_normal(s, WF_INTS(8))));
  MUST(weft_sync(ctx, NULL, NULL));
  for (i = 0; i < 3; ++i) {
    const int64_t outputs = metric(ctx, "cut_outputs");
    OK(weft_tensor_assign(t, wf_add(s, t, x)));
    MUST(weft_sync(ctx, NULL, NULL));
    CHECK_EQUAL(metric(ctx, "cut_outputs"), outputs + 1);
  }
  launches = metric(ctx, "launches");
  OK(weft_tensor_to_host(t, host, sizeof host));
  CHECK(host[1] == 4 && host[7] == 70); /* x * x + 3 x */
  OK(weft_tensor_to_host(drawn, host, sizeof host));
  OK(weft_tensor_to_host(drawn, again, sizeof again));
  CHECK(host[0] != 0 && memcmp(host, again, sizeof host) == 0);
  CHECK_EQUAL(metric(ctx, "launches"), launches); /* nothing was computed again */
  OK(wf_end(s));
  INVALID(weft_tensor_rank(t, &rank), "weft_tensor_rank: tensor is a weft_tensor that has been released");
  weft_tensor_release(x);
  weft_context_release(ctx);
}

static void gradients(void) {
  weft_context* ctx = new_context();
  weft_tensor *w = ramp(ctx, DIMS(3)), *grad = NULL, *fixed = ramp(ctx, DIMS(3)), *y;
  float host[3];
  wf_scope* s = wf_begin(ctx);
  MUST(weft_tensor_require_grad(w, 1));
  y = wf_sum(s, wf_mul(s, w, wf_mul(s, w, fixed)));
  CHECK(wf_grad(s, y, &w, 1, &grad));
  OK(weft_tensor_to_host(grad, host, sizeof host));
  CHECK(host[0] == 0 && host[1] == 2 && host[2] == 8);
  OK(wf_check(s));
  CHECK(!wf_grad(s, y, &fixed, 1, &grad)); /* asks for no gradient */
  CHECK(grad != NULL);
  {
    weft_error* e = wf_end(s);
    CHECK(e != NULL);
    weft_error_release(e);
  }
  weft_tensor_release(w);
  weft_tensor_release(fixed);
  weft_context_release(ctx);
}

int main(void) {
  a_forward_pass_nests();
  optional_attributes_are_named_and_zero_is_a_value();
  the_first_error_poisons_and_comes_out_once();
  a_failure_keeps_its_position_in_other_scopes();
  a_scope_that_never_was();
  temporaries_are_not_outputs_of_a_barrier();
  what_is_assigned_to_a_temporary_is_not_lost();
  gradients();
  return done("scopes");
}
