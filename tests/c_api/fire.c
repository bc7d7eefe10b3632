/* Handles under fire: four threads use shared tensors, scopes, trees, optimizers, events, contexts and bodies of functions, one inside
 * another, and release, end and abandon them at random while others are in calls with them. Nothing may crash, leak or corrupt (the sanitizers say); what is released is
 * INVALID_ARGUMENT; results that come are right. WEFT_FIRE_CALLS: how many calls of the C API, 100,000 unless told;
 * WEFT_FIRE_SEED. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "check.h"

enum { kThreads = 4, kContexts = 2, kTensors = 8, kOthers = 3, kBodies = 6, kElements = 4 };

/* What several threads have in hand: numbers, so that nobody needs a lock to pass a handle on. */
typedef _Atomic(uintptr_t) place;
static place g_contexts[kContexts], g_tensors[kContexts][kTensors], g_scopes[kOthers], g_trees[kOthers], g_optimizers[kOthers],
    g_events[kOthers], g_bodies[kContexts][kBodies], g_inner[kContexts][kTensors];
static atomic_llong g_calls, g_failed, g_done_ok;
static long long g_budget = 100000;

typedef struct {
  uint64_t state;
  int id;
} dice;

static uint32_t roll(dice* d, uint32_t sides) {
  d->state ^= d->state << 13, d->state ^= d->state >> 7, d->state ^= d->state << 17;
  return (uint32_t)(d->state >> 33) % sides;
}

static void complain(const char* what, int line, const char* text) {
  if (atomic_fetch_add(&g_failed, 1) < 20) printf("fire.c:%d: %s: %s\n", line, what, text);
}

/* One call: whether it went well; the codes that a race may give are fine, everything else is a failure of ours. */
static int went_well(weft_error* error, const char* what, int line) {
  atomic_fetch_add(&g_calls, 1);
  if (error == NULL) {
    atomic_fetch_add(&g_done_ok, 1);
    return 1;
  }
  switch (weft_error_code(error)) {
    case WEFT_INVALID_ARGUMENT:
    case WEFT_FAILED_PRECONDITION:
    case WEFT_OUT_OF_RANGE:
    case WEFT_NOT_FOUND:
    case WEFT_ALREADY_EXISTS:
    case WEFT_DEADLINE_EXCEEDED:
    case WEFT_CANCELLED: break;
    default: complain(what, line, weft_error_message(error, NULL));
  }
  weft_error_release(error);
  return 0;
}
#define C(call) went_well((call), #call, __LINE__)
/* Functions without an error. */
#define V(call) (atomic_fetch_add(&g_calls, 1), (call))

/* What has been released and was never anybody else's is no handle any more, whatever others do. */
static void is_dead(weft_error* error, const char* what, int line) {
  atomic_fetch_add(&g_calls, 1);
  if (weft_error_code(error) != WEFT_INVALID_ARGUMENT || strstr(weft_error_message(error, NULL), "has been released") == NULL) {
    complain(what, line, error == NULL ? "no error after the release" : weft_error_message(error, NULL));
  }
  weft_error_release(error);
}
#define DEAD(call) is_dead((call), #call, __LINE__)

#define GET(type, place) ((type*)atomic_load(&(place)))
#define SWAP(type, place, value) ((type*)atomic_exchange(&(place), (uintptr_t)(value)))

static weft_context* make_context(int which) {
  const weft_setting settings[] = {{"cache_mode", WEFT_STRLEN, "off", WEFT_STRLEN},
                                   {"platform", WEFT_STRLEN, which == 0 ? "reference" : "cpu", WEFT_STRLEN},
                                   {"max_pending_nodes", WEFT_STRLEN, "64", WEFT_STRLEN}};
  weft_context_options options = WEFT_CONTEXT_OPTIONS_INIT;
  weft_context* ctx = NULL;
  options.settings = settings;
  options.setting_count = which == 0 ? 3 : 2;
  (void)C(weft_context_create(&options, &ctx));
  return ctx;
}

static weft_tensor* make_tensor(weft_context* ctx) {
  static const int64_t dims[] = {kElements};
  static const float data[kElements] = {1, 2, 3, 4};
  weft_tensor* made = NULL;
  (void)C(weft_tensor_from_host(ctx, NULL, WEFT_F32, dims, 1, data, sizeof data, &made));
  return made;
}

static place* tensor_place(dice* d, int context) { return &g_tensors[context][roll(d, kTensors)]; }
static weft_tensor* any_tensor(dice* d, int context) {
  /* Rarely of another context, a mistake that must stay one. */
  return GET(weft_tensor, *tensor_place(d, roll(d, 16) == 0 ? !context : context));
}

/* Programs for the CPU are compiled for a while; most of what computes does so on the reference platform. */
static int context_that_computes(dice* d) { return roll(d, 200) == 0; }

static void replace_tensor(dice* d, int context, weft_tensor* with) {
  weft_tensor* old = SWAP(weft_tensor, *tensor_place(d, context), with);
  size_t rank;
  V(weft_tensor_release(old));
  if (old != NULL) DEAD(weft_tensor_rank(old, &rank));
}

/* Lists of calls, gradients of one, parts, second handles: operands found under one lock, many handles out. */
static int record_more(dice* d, weft_context* ctx, weft_tensor* x, weft_tensor* y, weft_tensor** out) {
  weft_tensor *two[2] = {x, y}, *more[2] = {NULL, NULL};
  const int64_t halves[] = {kElements / 2, kElements - kElements / 2};
  size_t count = 0;
  switch (roll(d, 5)) {
    case 0: {
      weft_op_input first[2] = {{NULL, 0, 0, 0}, {NULL, 0, 0, 0}}, second[2] = {{NULL, 1, 0, 0}, {NULL, 0, 0, 0}};
      weft_op_call calls[2] = {{"mul", WEFT_STRLEN, NULL, 2, NULL, 0, NULL, 1, 0}, {"add", WEFT_STRLEN, NULL, 2, NULL, 0, NULL, 0, 0}};
      first[0].tensor = x, first[1].tensor = second[1].tensor = y;
      calls[0].inputs = first, calls[1].inputs = second;
      return C(weft_op_apply_many(ctx, calls, 2, out, NULL, 1, &count));
    }
    case 1:
      if (!C(weft_op_vjp(ctx, "mul", WEFT_STRLEN, two, 2, NULL, 0, NULL, &y, 1, NULL, more))) return 0;
      V(weft_tensor_release(more[0]));
      *out = more[1];
      return 1;
    case 2:
      if (!C(weft_split(ctx, x, halves, 2, 0, more))) return 0;
      V(weft_tensor_release(more[0]));
      V(weft_tensor_release(more[1]));
      return 0;
    case 3: return C(weft_tensor_copy(x, out));
    default: {
      weft_tensor* number = NULL;
      const int good = C(weft_tensor_argument_like(x, 0.5, &number)) && C(weft_mul(ctx, x, number, out));
      V(weft_tensor_release(number));
      return good;
    }
  }
}

static void record(dice* d) {
  const int c = (int)roll(d, kContexts);
  weft_context* ctx = GET(weft_context, g_contexts[c]);
  weft_tensor *x = any_tensor(d, c), *y = any_tensor(d, c), *out = NULL;
  int good = 0;
  switch (roll(d, 7)) {
    case 5: good = record_more(d, ctx, x, y, &out); break;
    case 0: good = C(weft_add(ctx, x, y, &out)); break;
    case 1: good = C(weft_mul(ctx, x, y, &out)); break;
    case 2: good = C(weft_relu(ctx, x, &out)); break;
    case 3: {
      weft_tensor* both[2];
      both[0] = x, both[1] = y;
      good = C(weft_concatenate(ctx, both, 2, 0, &out));
      if (good) {
        V(weft_tensor_release(out));
        return;
      }
      break;
    }
    case 4: {
      weft_tensor* all[2];
      size_t count = 0;
      all[0] = x, all[1] = y;
      good = C(weft_op_apply(ctx, "sub", WEFT_STRLEN, all, 2, NULL, 0, &out, 1, &count));
      break;
    }
    default: {
      weft_tensor* grad = NULL;
      weft_tensor* sum = NULL;
      (void)C(weft_tensor_require_grad(x, 1));
      if (C(weft_sum(ctx, x, NULL, &sum)) && C(weft_grad(ctx, sum, NULL, &x, 1, &grad))) V(weft_tensor_release(grad));
      V(weft_tensor_release(sum));
    }
  }
  if (!good) return;
  if (roll(d, 4) == 0) {
    replace_tensor(d, c, out);
  } else {
    V(weft_tensor_release(out));
  }
}

/* Of this thread alone: must be right whatever happens around it. */
static void compute_alone(dice* d) {
  const int c = context_that_computes(d);
  weft_context* ctx = GET(weft_context, g_contexts[c]);
  weft_tensor *three = NULL, *six = NULL;
  double value = 6;
  if (C(weft_tensor_from_f64(ctx, WEFT_F32, 3, &three)) && C(weft_add(ctx, three, three, &six)) && C(weft_tensor_item_f64(six, &value)) &&
      value != 6) {
    complain("3 + 3", __LINE__, "is not 6");
  }
  V(weft_tensor_release(three));
  V(weft_tensor_release(six));
}

static void look_at(dice* d) {
  weft_tensor* t = any_tensor(d, (int)roll(d, kContexts));
  int64_t dims[4], count;
  size_t rank;
  uint64_t bytes;
  weft_dtype dtype;
  weft_device* device = NULL;
  switch (roll(d, 7)) {
    case 0: (void)C(weft_tensor_rank(t, &rank)); break;
    case 1:
      if (C(weft_tensor_dims(t, dims, 4, &rank)) && (rank != 1 || dims[0] != kElements)) complain("dims", __LINE__, "are wrong");
      break;
    case 2: (void)C(weft_tensor_count(t, &count)); break;
    case 3: (void)C(weft_tensor_size(t, &bytes)); break;
    case 4: (void)C(weft_tensor_dtype(t, &dtype)); break;
    case 5: (void)C(weft_tensor_keep(t)); break;
    default: {
      const char* name;
      if (C(weft_tensor_device(t, &device))) (void)C(weft_device_name(device, &name, NULL));
      V(weft_device_release(device));
    }
  }
}

static void read_values(dice* d) {
  const int c = context_that_computes(d);
  weft_tensor *t = any_tensor(d, c), *ts[3];
  float host[kElements];
  weft_blob* text = NULL;
  weft_event* event = NULL;
  switch (roll(d, 4)) {
    case 0: (void)C(weft_tensor_to_host(t, host, sizeof host)); break;
    case 1:
      if (C(weft_tensor_to_string(t, NULL, &text)) && V(weft_blob_size(text)) == 0) complain("text", __LINE__, "is empty");
      V(weft_blob_release(text));
      break;
    case 2:
      ts[0] = t, ts[1] = any_tensor(d, c), ts[2] = any_tensor(d, c);
      if (C(weft_eval(GET(weft_context, g_contexts[c]), ts, 3, &event))) {
        V(weft_event_release(SWAP(weft_event, g_events[roll(d, kOthers)], event)));
      }
      break;
    default:
      if (C(weft_sync(GET(weft_context, g_contexts[c]), NULL, &event))) {
        V(weft_event_release(SWAP(weft_event, g_events[roll(d, kOthers)], event)));
      }
  }
}

static void change_values(dice* d) {
  const int c = (int)roll(d, kContexts);
  (void)C(weft_tensor_assign(any_tensor(d, c), any_tensor(d, c)));
  if (roll(d, 2) == 0) {
    replace_tensor(d, c, make_tensor(GET(weft_context, g_contexts[c])));
  } else {
    /* Others have it too, and may release it once more. */
    weft_tensor* t = any_tensor(d, c);
    if (roll(d, 3) == 0) V(weft_tensor_release(t));
  }
}

static void wait_for_events(dice* d) {
  weft_event *e = GET(weft_event, g_events[roll(d, kOthers)]), *all[kOthers];
  size_t index, i;
  int32_t happened, fd;
  switch (roll(d, 7)) {
    case 0: (void)C(weft_event_poll(e, &happened)); break;
    case 1: (void)C(weft_event_wait(e, 1000000)); break;
    case 2: (void)C(weft_event_error(e)); break;
    case 3: (void)C(weft_event_fd(e, &fd)); break;
    case 4:
      for (i = 0; i < kOthers; ++i) all[i] = GET(weft_event, g_events[i]);
      (void)C(weft_wait_any(all, kOthers, 1000000, &index));
      break;
    case 5:
      V(weft_event_retain(e)); /* which may come too late */
      (void)C(weft_event_poll(e, &happened));
      break;
    default: V(weft_event_release(SWAP(weft_event, g_events[roll(d, kOthers)], 0)));
  }
}

static void work_in_scopes(dice* d) {
  const int c = (int)roll(d, kContexts);
  place* at = &g_scopes[roll(d, kOthers)];
  weft_scope* s = GET(weft_scope, *at);
  weft_tensor* kept = NULL;
  switch (roll(d, 6)) {
    case 0: {
      weft_scope* fresh = NULL;
      if (!C(weft_scope_begin(GET(weft_context, g_contexts[c]), &fresh))) return;
      s = SWAP(weft_scope, *at, fresh);
      if (s != NULL && C(weft_scope_end(s))) DEAD(weft_scope_check(s));
      break;
    }
    case 1: (void)C(weft_scope_check(s)); break;
    case 2: /* of several threads that end it one does */
      if (roll(d, 8) == 0) (void)C(weft_scope_end(s));
      break;
    default: {
      weft_tensor* sum = V(wf_add(s, any_tensor(d, c), any_tensor(d, c)));
      weft_tensor* product = V(wf_mul(s, sum, sum));
      if (sum == NULL || product == NULL) complain("a scope", __LINE__, "gave NULL");
      if (roll(d, 3) == 0 && C(weft_scope_keep(s, product, &kept))) V(weft_tensor_release(kept));
    }
  }
}

/* Bodies in bodies: whoever finds one begins another in it, records in it, ends it, abandons it or lets go of it. */
static void work_in_bodies(dice* d) {
  const int c = (int)roll(d, kContexts);
  place *at = &g_bodies[c][roll(d, kBodies)], *kept = &g_inner[c][roll(d, kTensors)];
  weft_context *ctx = GET(weft_context, g_contexts[c]), *body = GET(weft_context, *at), *fresh = NULL;
  weft_tensor *x = GET(weft_tensor, g_inner[c][roll(d, kTensors)]), *y = roll(d, 2) == 0 ? any_tensor(d, c) : GET(weft_tensor, g_inner[c][roll(d, kTensors)]);
  weft_tensor *parameter = NULL, *out = NULL;
  weft_tensor_info info = {WEFT_F32, 1, {kElements}};
  weft_function* f = NULL;
  size_t count = 0;
  switch (roll(d, 16)) {
    case 0:
    case 1:
    case 2:
      if (!C(weft_function_begin(roll(d, 3) == 0 ? ctx : body, NULL, 0, &info, 1, &fresh, &parameter))) return;
      V(weft_context_release(SWAP(weft_context, g_bodies[c][roll(d, kBodies)], fresh)));
      V(weft_tensor_release(SWAP(weft_tensor, *kept, parameter)));
      break;
    case 3: (void)C(weft_function_abandon(body)); break;
    case 4: V(weft_context_release(SWAP(weft_context, *at, 0))); break;
    case 5:
      V(weft_context_retain(body)); /* which may come too late */
      (void)C(weft_add(body, x, y, &out));
      V(weft_tensor_release(out));
      V(weft_context_release(body));
      break;
    case 6:
    case 7:
      if (!C(weft_function_end(body, &x, 1, &f))) return;
      if (C(weft_function_call(roll(d, 2) == 0 ? ctx : GET(weft_context, g_bodies[c][roll(d, kBodies)]), f, &y, 1, &out, 1, &count))) {
        if (count != 1) complain("a function of one result", __LINE__, "gave another count");
        V(weft_tensor_release(out));
      }
      V(weft_function_release(f));
      break;
    default:
      if (!C(roll(d, 2) == 0 ? weft_add(body, x, y, &out) : weft_mul(body, y, x, &out))) return;
      V(weft_tensor_release(SWAP(weft_tensor, *kept, out)));
  }
}

static void grow_trees(dice* d) {
  place* at = &g_trees[roll(d, kOthers)];
  weft_tree *tree = GET(weft_tree, *at), *fresh = NULL;
  weft_tensor* out = NULL;
  char key[16];
  uint32_t node = roll(d, 8), count = 0, made = 0;
  int64_t number;
  weft_node_kind kind;
  snprintf(key, sizeof key, "k%u", roll(d, 1000));
  switch (roll(d, 10)) {
    case 0:
      if (!C(weft_tree_create(&fresh))) return;
      tree = SWAP(weft_tree, *at, fresh);
      V(weft_tree_release(tree));
      if (tree != NULL) DEAD(weft_tree_size(tree, 0, &count));
      break;
    case 1:
    case 2: (void)C(weft_tree_add_tensor(tree, WEFT_TREE_ROOT, key, WEFT_STRLEN, any_tensor(d, (int)roll(d, kContexts)), &made)); break;
    case 3: (void)C(weft_tree_add_i64(tree, WEFT_TREE_ROOT, key, WEFT_STRLEN, 7, NULL)); break;
    case 4:
      if (C(weft_tree_size(tree, WEFT_TREE_ROOT, &count)) && count < 60) {
        (void)C(weft_tree_add_tree(tree, WEFT_TREE_ROOT, key, WEFT_STRLEN, GET(weft_tree, g_trees[roll(d, kOthers)]), &made));
      }
      break;
    case 5:
      if (C(weft_tree_get_tensor(tree, node, &out))) replace_tensor(d, (int)roll(d, kContexts), out);
      break;
    case 6:
      /* A tree of an optimizer's has a count of steps. */
      if (C(weft_tree_get_i64(tree, node, &number)) && (number < 0 || number > g_budget)) complain("an integer", __LINE__, "is wrong");
      break;
    case 7: (void)C(weft_tree_child(tree, WEFT_TREE_ROOT, node, &made)); break;
    case 8: (void)C(weft_tree_find(tree, WEFT_TREE_ROOT, key, WEFT_STRLEN, &made)); break;
    default: (void)C(weft_tree_kind(tree, node, &kind));
  }
}

static void optimize(dice* d) {
  const int c = (int)roll(d, kContexts);
  place* at = &g_optimizers[roll(d, kOthers)];
  weft_optimizer *optimizer = GET(weft_optimizer, *at), *fresh = NULL;
  weft_tree* state = NULL;
  weft_tensor* tensors[2];
  tensors[0] = any_tensor(d, c), tensors[1] = any_tensor(d, c);
  switch (roll(d, 8)) {
    case 0:
      if (!(roll(d, 2) == 0 ? C(weft_sgd_create(GET(weft_context, g_contexts[c]), tensors, 2, NULL, &fresh))
                            : C(weft_adam_create(GET(weft_context, g_contexts[c]), tensors, 2, NULL, &fresh)))) {
        return;
      }
      V(weft_optimizer_release(SWAP(weft_optimizer, *at, fresh)));
      break;
    case 1:
      if (C(weft_optimizer_state(optimizer, &state))) V(weft_tree_release(SWAP(weft_tree, g_trees[roll(d, kOthers)], state)));
      break;
    case 2: (void)C(weft_optimizer_load(optimizer, GET(weft_tree, g_trees[roll(d, kOthers)]), WEFT_TREE_ROOT)); break;
    default: (void)C(weft_optimizer_step(optimizer, tensors, 2, 0.01));
  }
}

static void ask_contexts(dice* d) {
  const int c = (int)roll(d, kContexts);
  weft_context *ctx = GET(weft_context, g_contexts[c]), *fresh;
  weft_blob* text = NULL;
  weft_cache* cache = NULL;
  weft_device* device = NULL;
  weft_memory_stats stats = WEFT_MEMORY_STATS_INIT;
  weft_tensor* t = any_tensor(d, c);
  const char* where;
  size_t count;
  int64_t value;
  switch (roll(d, 9)) {
    case 0: (void)C(weft_device_count(ctx, &count)); break;
    case 1:
      if (C(weft_device_at(ctx, 0, &device))) (void)C(weft_device_memory(device, &stats));
      V(weft_device_release(device));
      break;
    case 2:
      if (C(weft_metrics_json(ctx, &text))) V(weft_blob_release(text));
      break;
    case 3: (void)C(weft_metric_get(ctx, "bad_releases", WEFT_STRLEN, &value)); break;
    case 4:
      if (C(weft_context_cache(ctx, &cache))) (void)C(weft_cache_dir(cache, &where, NULL));
      V(weft_cache_release(cache));
      break;
    case 5:
      if (C(weft_program_text(ctx, &t, 1, WEFT_TEXT_IR, &text))) V(weft_blob_release(text));
      break;
    case 6: (void)C(weft_random_seed(ctx, 7)); break;
    case 7:
      if (roll(d, 20) == 0) V(weft_cancel(ctx));
      break;
    default:
      /* The rarest, for a context takes its programs with it; who has it in a call finishes that. */
      if (roll(d, c == 0 ? 20 : 2000) != 0) return;
      fresh = make_context(c);
      ctx = SWAP(weft_context, g_contexts[c], fresh);
      V(weft_context_release(ctx)); /* scopes may hold it still */
  }
}

static void* fire(void* argument) {
  dice* d = argument;
  static void (*const kActions[])(dice*) = {record,         record,       record,     compute_alone, look_at,  look_at,  read_values,
                                            change_values,  change_values, wait_for_events, work_in_scopes, grow_trees, grow_trees, optimize,
                                            ask_contexts,   work_in_bodies, work_in_bodies};
  while (atomic_load(&g_calls) < g_budget) kActions[roll(d, sizeof kActions / sizeof kActions[0])](d);
  return NULL;
}

static void under_fire(uint64_t seed) {
  pthread_t threads[kThreads];
  dice all[kThreads];
  int c, i;
  for (c = 0; c < kContexts; ++c) {
    weft_context* ctx = make_context(c);
    atomic_store(&g_contexts[c], (uintptr_t)ctx);
    for (i = 0; i < kTensors; ++i) atomic_store(&g_tensors[c][i], (uintptr_t)make_tensor(ctx));
  }
  for (i = 0; i < kThreads; ++i) {
    all[i].state = (seed + (uint64_t)i + 1) * 0x9E3779B97F4A7C15u | 1;
    all[i].id = i;
    CHECK_EQUAL(pthread_create(&threads[i], NULL, fire, &all[i]), 0);
  }
  for (i = 0; i < kThreads; ++i) pthread_join(threads[i], NULL);
  for (i = 0; i < kOthers; ++i) {
    weft_error_release(weft_scope_end(GET(weft_scope, g_scopes[i])));
    weft_tree_release(GET(weft_tree, g_trees[i]));
    weft_optimizer_release(GET(weft_optimizer, g_optimizers[i]));
    weft_event_release(GET(weft_event, g_events[i]));
  }
  for (c = 0; c < kContexts; ++c) {
    for (i = 0; i < kBodies; ++i) weft_context_release(GET(weft_context, g_bodies[c][i]));
    for (i = 0; i < kTensors; ++i) weft_tensor_release(GET(weft_tensor, g_tensors[c][i])), weft_tensor_release(GET(weft_tensor, g_inner[c][i]));
    weft_context_release(GET(weft_context, g_contexts[c]));
  }
  printf("%lld calls, %lld went well, seed %llu\n", (long long)g_calls, (long long)g_done_ok, (unsigned long long)seed);
  CHECK_EQUAL(g_failed, 0);
  CHECK(g_done_ok * 4 > g_calls); /* most of it must mean something */
}

/* --- Where a release meets a call that it knows of ---------------------------------------------------------------------- */

static void release_context(void* data) { weft_context_release(data); }

/* The hook's end runs in the call that replaces it and drops the context's last reference: that call ends the context. */
static void a_callback_releases_its_own_context(void) {
  weft_context* ctx = new_context();
  weft_tensor* t = ramp(ctx, DIMS(2));
  size_t count;
  MUST(weft_context_set_log(ctx, WEFT_LOG_OFF, NULL, ctx, release_context));
  MUST(weft_context_set_log(ctx, WEFT_LOG_OFF, NULL, NULL, NULL));
  INVALID(weft_device_count(ctx, &count), "weft_device_count: ctx is a weft_context that has been released");
  weft_tensor_release(t);
}

/* The release returns when the other thread's call has, and what waits for the context has run by then. */
typedef struct {
  weft_context* ctx;
  atomic_int inside, left;
} slow_call;

static void wait_in_hook(void* data) {
  slow_call* call = data;
  struct timespec pause = {0, 50 * 1000 * 1000};
  atomic_store(&call->inside, 1);
  nanosleep(&pause, NULL);
  atomic_store(&call->left, 1);
}

static void* call_slowly(void* data) {
  slow_call* call = data;
  /* Replacing a hook runs its end inside the call. */
  if (weft_context_set_log(call->ctx, WEFT_LOG_OFF, NULL, NULL, NULL) != NULL) atomic_fetch_add(&g_failed, 1);
  return NULL;
}

static void a_release_waits_for_calls_in_progress(void) {
  static slow_call call;
  pthread_t thread;
  size_t count;
  call.ctx = new_context();
  MUST(weft_context_set_log(call.ctx, WEFT_LOG_OFF, NULL, &call, wait_in_hook));
  CHECK_EQUAL(pthread_create(&thread, NULL, call_slowly, &call), 0);
  while (!atomic_load(&call.inside)) {
  }
  weft_context_release(call.ctx);
  CHECK_EQUAL(call.left, 1);
  INVALID(weft_device_count(call.ctx, &count), "weft_device_count: ctx is a weft_context that has been released");
  pthread_join(thread, NULL);
  CHECK_EQUAL(g_failed, 0);
}

int main(void) {
  const char *calls = getenv("WEFT_FIRE_CALLS"), *seed = getenv("WEFT_FIRE_SEED");
  if (calls != NULL) g_budget = atoll(calls);
  a_callback_releases_its_own_context();
  a_release_waits_for_calls_in_progress();
  under_fire(seed != NULL ? strtoull(seed, NULL, 10) : 1);
  return done("fire");
}
