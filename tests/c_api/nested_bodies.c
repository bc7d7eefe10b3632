/* Bodies inside bodies, ended, abandoned and released in any order: what is open inside a body ends with it, by a named error; what is
 * recorded in what is left is right. A random part compares every call's outcome with a model. */
#include "check.h"

static const weft_tensor_info kNumber = {.dtype = WEFT_I64, .rank = 0};

static weft_tensor* number(weft_context* ctx, int64_t value) {
  weft_tensor* out = NULL;
  MUST(weft_tensor_from_i64(ctx, WEFT_I64, value, &out));
  return out;
}

static void begin(weft_context* around, const char* name, weft_context** body, weft_tensor** parameter) {
  MUST(weft_function_begin(around, name, WEFT_STRLEN, &kNumber, 1, body, parameter));
}

/* The outer body goes while the inner one has captures through it: at once by name, or with the last reference to its context. */
enum { kRelease, kAbandon, kReleaseAll, kWays };

static void an_outer_body_goes(weft_context* ctx, int way) {
  weft_tensor *x = number(ctx, 1), *y = number(ctx, 2), *p = NULL, *q = NULL, *r = NULL, *a = NULL, *b = NULL;
  weft_context *outer = NULL, *inner = NULL, *innermost = NULL;
  weft_function* f = NULL;
  begin(ctx, "outer", &outer, &p);
  begin(outer, "inner", &inner, &q);
  begin(inner, "innermost", &innermost, &r);
  OK(weft_add(inner, x, y, &a));
  OK(weft_add(innermost, x, p, &b));
  weft_tensor_release(b);
  FAILS_WITH(weft_function_end(outer, &p, 1, &f), WEFT_FAILED_PRECONDITION, "the body of @outer: 1 bodies inside it");
  if (way == kAbandon) {
    OK(weft_function_abandon(outer));
  } else {
    weft_context_retain(outer);
    weft_context_release(outer); /* not the last */
    OK(weft_add(inner, x, p, &b));
    weft_tensor_release(b);
    weft_context_release(outer);
  }
  if (way == kReleaseAll) weft_tensor_release(p), weft_tensor_release(q);
  FAILS_WITH(weft_add(inner, x, y, &b), WEFT_FAILED_PRECONDITION,
             "the body of @inner, which has been abandoned with the body of @outer around it");
  FAILS_WITH(weft_add(innermost, x, y, &b), WEFT_FAILED_PRECONDITION,
             "the body of @innermost, which has been abandoned with the body of @inner around it");
  FAILS_WITH(weft_neg(ctx, a, &b), WEFT_FAILED_PRECONDITION, "x belongs to the body of @inner, which has been abandoned");
  FAILS_WITH(weft_tensor_from_i64(inner, WEFT_I64, 3, &b), WEFT_FAILED_PRECONDITION, "abandoned with the body of @outer");
  FAILS_WITH(weft_function_begin(inner, "more", WEFT_STRLEN, &kNumber, 1, &outer, &b), WEFT_FAILED_PRECONDITION, "abandoned with the body of @outer");
  FAILS_WITH(weft_function_end(inner, &a, 1, &f), WEFT_FAILED_PRECONDITION, "abandoned with the body of @outer");
  FAILS_WITH(weft_tensor_assign(a, a), WEFT_FAILED_PRECONDITION, "abandoned with the body of @outer");
  if (way == kAbandon) {
    FAILS_WITH(weft_neg(outer, p, &b), WEFT_FAILED_PRECONDITION, "the body of @outer, which has been abandoned");
    weft_context_release(outer);
  }
  OK(weft_function_abandon(innermost)); /* which stays as it is */
  OK(weft_function_abandon(inner));
  if (way != kReleaseAll) weft_tensor_release(p), weft_tensor_release(q);
  weft_context_release(way == 0 ? inner : innermost);
  weft_context_release(way == 0 ? innermost : inner);
  weft_tensor_release(a);
  weft_tensor_release(r);
  weft_tensor_release(x);
  weft_tensor_release(y);
}

/* What stays open around a body that is abandoned is none the worse. */
static void an_inner_body_goes(weft_context* ctx) {
  weft_tensor *x = number(ctx, 5), *p = NULL, *q = NULL, *a = NULL, *b = NULL, *out = NULL;
  weft_context *outer = NULL, *inner = NULL, *sibling = NULL;
  weft_function *g = NULL, *f = NULL;
  int64_t value = 0;
  size_t n = 0;
  begin(ctx, "outer", &outer, &p);
  begin(outer, "inner", &inner, &q);
  begin(outer, "sibling", &sibling, &a);
  OK(weft_add(inner, x, q, &b)); /* captures x through the outer one */
  weft_tensor_release(b);
  FAILS_WITH(weft_add(inner, a, q, &b), WEFT_INVALID_ARGUMENT, "neither body is inside the other");
  weft_context_release(inner);
  weft_tensor_release(q);
  OK(weft_mul(sibling, a, x, &b));
  OK(weft_function_end(sibling, &b, 1, &g)); /* 5 a */
  weft_tensor_release(b);
  weft_tensor_release(a);
  weft_context_release(sibling);
  OK(weft_add(outer, p, x, &a));
  OK(weft_function_call(outer, g, &a, 1, &b, 1, &n));
  weft_tensor_release(a);
  OK(weft_function_end(outer, &b, 1, &f)); /* 5 (p + 5) */
  weft_tensor_release(b);
  weft_tensor_release(p);
  weft_context_release(outer);
  p = number(ctx, 2);
  OK(weft_function_call(ctx, f, &p, 1, &out, 1, &n));
  OK(weft_tensor_item_i64(out, &value));
  CHECK_EQUAL(value, 35);
  weft_tensor_release(out);
  weft_tensor_release(p);
  weft_tensor_release(x);
  weft_function_release(f);
  weft_function_release(g);
}

/* --- By chance, against a model ------------------------------------------------------------------------------------------ */

enum { kBodies = 10, kTensors = 40, kNone = -1 };
typedef enum { kFree, kOpen, kEnded } body_state;
/* Serial numbers, because places are used again: `around` is gone for good once it has ended. */
typedef struct {
  body_state state;
  int around; /* kNone: the program */
  int uses;   /* tensors and bodies that say it */
  uint64_t parameter; /* the value that its parameter is taken to have */
  weft_context* ctx;  /* NULL: released */
} body;
typedef struct {
  weft_tensor* handle;
  int of; /* kNone: the program */
  uint64_t value;
} value_of;

static body g_bodies[kBodies];
static value_of g_tensors[kTensors];
static uint64_t g_dice;

static int roll(int sides) {
  g_dice ^= g_dice << 13, g_dice ^= g_dice >> 7, g_dice ^= g_dice << 17;
  return (int)((g_dice >> 33) % (uint64_t)sides);
}

static int inside(int b, int of) {
  for (; b != kNone; b = g_bodies[b].around) {
    if (b == of) return 1;
  }
  return of == kNone;
}

static void end_all_inside(int b) {
  for (int i = 0; i < kBodies; ++i) {
    if (g_bodies[i].state == kOpen && inside(i, b)) g_bodies[i].state = kEnded;
  }
}

static void put(weft_tensor* handle, int of, uint64_t value) {
  value_of* const at = &g_tensors[roll(kTensors)];
  if (at->handle != NULL) {
    weft_tensor_release(at->handle);
    if (at->of != kNone) --g_bodies[at->of].uses;
  }
  at->handle = handle, at->of = of, at->value = value;
  if (of != kNone) ++g_bodies[of].uses;
}

static void free_what_nobody_says(void) {
  for (int changed = 1; changed;) {
    changed = 0;
    for (int i = 0; i < kBodies; ++i) {
      body* const b = &g_bodies[i];
      if (b->state != kEnded || b->ctx != NULL || b->uses != 0) continue;
      if (b->around != kNone) --g_bodies[b->around].uses;
      b->state = kFree;
      changed = 1;
    }
  }
}

static int any_tensor(void) {
  int i = roll(kTensors);
  while (g_tensors[i].handle == NULL) i = (i + 1) % kTensors;
  return i;
}

static weft_context* context_of(weft_context* ctx, int b) { return b == kNone ? ctx : g_bodies[b].ctx; }

/* One that has a handle, or the program. */
static int any_body(void) {
  const int i = roll(kBodies + 2);
  return i < kBodies && g_bodies[i].state != kFree && g_bodies[i].ctx != NULL ? i : kNone;
}

/* What recording in `b` on these comes to: WEFT_OK and the body that it belongs to. */
static weft_code recorded(int b, const value_of* operands, int count, int* of) {
  for (int i = 0; i < count; ++i) {
    const int o = operands[i].of;
    if (o != kNone && g_bodies[o].state != kOpen) return WEFT_FAILED_PRECONDITION;
    if (inside(o, b)) {
      b = o;
    } else if (!inside(b, o)) {
      return WEFT_INVALID_ARGUMENT;
    }
  }
  *of = b;
  return b == kNone || g_bodies[b].state == kOpen ? (weft_code)0 : WEFT_FAILED_PRECONDITION;
}

static long long g_went_well, g_refused;
static int came(weft_error* error, weft_code wanted, const char* what) {
  const weft_code code = error == NULL ? (weft_code)0 : weft_error_code(error);
  if (code != wanted) {
    printf("%s: %d (%s), wanted %d\n", what, (int)code, error == NULL ? "" : weft_error_message(error, NULL), (int)wanted);
    ++g_failures;
  }
  ++*(code == 0 ? &g_went_well : &g_refused);
  weft_error_release(error);
  return code == 0;
}

static void random_begin(weft_context* ctx) {
  const int around = any_body();
  weft_tensor* parameter = NULL;
  int i = 0;
  while (i < kBodies && g_bodies[i].state != kFree) ++i;
  if (i == kBodies) return;
  if (!came(weft_function_begin(context_of(ctx, around), NULL, 0, &kNumber, 1, &g_bodies[i].ctx, &parameter),
            around == kNone || g_bodies[around].state == kOpen ? (weft_code)0 : WEFT_FAILED_PRECONDITION, "begin")) {
    g_bodies[i].ctx = NULL;
    return;
  }
  g_bodies[i].state = kOpen, g_bodies[i].around = around, g_bodies[i].uses = 0, g_bodies[i].parameter = (uint64_t)roll(1000);
  if (around != kNone) ++g_bodies[around].uses;
  put(parameter, i, g_bodies[i].parameter);
}

static void random_operation(weft_context* ctx) {
  const int b = any_body();
  const value_of two[2] = {g_tensors[any_tensor()], g_tensors[any_tensor()]};
  weft_tensor* out = NULL;
  int of = kNone;
  const weft_code wanted = recorded(b, two, 2, &of);
  if (roll(2) == 0) {
    if (came(weft_add(context_of(ctx, b), two[0].handle, two[1].handle, &out), wanted, "add")) put(out, of, two[0].value + two[1].value);
  } else {
    weft_tensor* const handles[2] = {two[0].handle, two[1].handle};
    size_t n = 0;
    if (came(weft_op_apply(context_of(ctx, b), "mul", WEFT_STRLEN, handles, 2, NULL, 0, &out, 1, &n), wanted, "mul")) {
      put(out, of, two[0].value * two[1].value);
    }
  }
}

/* A function that has come out right is called where it was made, on the number that its parameter was taken to have. */
static void random_end(weft_context* ctx) {
  const int b = any_body();
  const value_of result = g_tensors[any_tensor()];
  weft_function* f = NULL;
  weft_code wanted = (weft_code)0;
  weft_tensor *argument = NULL, *out = NULL;
  int around;
  size_t n = 0;
  if (b == kNone) return;
  around = g_bodies[b].around;
  if (g_bodies[b].state != kOpen) wanted = WEFT_FAILED_PRECONDITION;
  for (int i = 0; i < kBodies; ++i) {
    if (i != b && g_bodies[i].state == kOpen && inside(i, b)) wanted = WEFT_FAILED_PRECONDITION;
  }
  if (wanted == 0 && result.of != kNone && g_bodies[result.of].state != kOpen) wanted = WEFT_FAILED_PRECONDITION;
  if (wanted == 0 && !inside(b, result.of)) wanted = WEFT_INVALID_ARGUMENT;
  if (!came(weft_function_end(g_bodies[b].ctx, &result.handle, 1, &f), wanted, "end")) return;
  g_bodies[b].state = kEnded;
  if (around == kNone || g_bodies[around].ctx != NULL) {
    weft_context* const where = context_of(ctx, around);
    MUST(weft_tensor_from_i64(where, WEFT_I64, (int64_t)g_bodies[b].parameter, &argument));
    MUST(weft_function_call(where, f, &argument, 1, &out, 1, &n));
    if (around == kNone) {
      int64_t value = 0;
      OK(weft_tensor_item_i64(out, &value));
      CHECK((uint64_t)value == result.value);
    }
    put(out, around, result.value);
    weft_tensor_release(argument);
  }
  weft_function_release(f);
}

static void random_abandon(int release) {
  const int b = any_body();
  if (b == kNone) return;
  if (release) {
    weft_context_release(g_bodies[b].ctx);
    g_bodies[b].ctx = NULL;
  } else {
    (void)came(weft_function_abandon(g_bodies[b].ctx), (weft_code)0, "abandon");
  }
  end_all_inside(b);
}

static void in_any_order(weft_context* ctx, uint64_t seed, int calls) {
  g_dice = seed * 0x9E3779B97F4A7C15u | 1;
  put(number(ctx, 3), kNone, 3);
  for (int i = 0; i < calls; ++i) {
    switch (roll(16)) {
      case 0:
      case 1: random_begin(ctx); break;
      case 2: random_end(ctx); break;
      case 3: random_abandon(roll(2)); break;
      case 4: {
        const int b = any_body();
        weft_tensor* made = NULL;
        const uint64_t value = (uint64_t)roll(100);
        int of = kNone;
        if (came(weft_tensor_from_i64(context_of(ctx, b), WEFT_I64, (int64_t)value, &made), recorded(b, NULL, 0, &of), "number")) put(made, of, value);
        break;
      }
      case 5: put(number(ctx, 7), kNone, 7); break;
      default: random_operation(ctx);
    }
    free_what_nobody_says();
  }
  for (int i = 0; i < kTensors; ++i) weft_tensor_release(g_tensors[i].handle);
  for (int i = 0; i < kBodies; ++i) weft_context_release(g_bodies[i].ctx);
  memset(g_tensors, 0, sizeof g_tensors);
  memset(g_bodies, 0, sizeof g_bodies);
}

int main(void) {
  weft_context* const ctx = context_on("reference", WEFT_MODE_LAZY);
  const int64_t handles = metric(ctx, "live_handles");
  for (int round = 0; round < 300; ++round) {
    for (int way = 0; way < kWays; ++way) an_outer_body_goes(ctx, way);
    an_inner_body_goes(ctx);
  }
  for (uint64_t seed = 1; seed <= 20; ++seed) in_any_order(ctx, seed, 5000);
  CHECK(g_went_well > 20000 && g_refused > 5000);
  OK(weft_sync(ctx, NULL, NULL));
  CHECK_EQUAL(metric(ctx, "live_tensors"), 0);
  CHECK_EQUAL(metric(ctx, "live_handles"), handles);
  weft_context_release(ctx);
  printf("%lld calls went well, %lld were refused as they should\n", g_went_well, g_refused);
  return done("nested_bodies");
}
