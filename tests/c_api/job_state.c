/* Optimizers over the processes of a job: accumulated gradients travel once, at the step; one process's gradients that are not finite
 * hold the step in all; states in parts go where they fit, and nowhere else.
 *   job_state                                 starts jobs of 2 and 4 processes, and one of 2 hosts
 *   job_state RANK SIZE ID [COORDINATOR]      one process of a job; with an address each process is a host */
#define _POSIX_C_SOURCE 200809L
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "free_address.h"

enum { PARAMS = 3, MICRO = 4, MOST = 64 };

static const int64_t kRows[PARAMS] = {7, 5, 3}; /* the last two are no multiples of 2 or 4 */
static const int64_t kColumns[PARAMS] = {4, 1, 5};

static weft_job* g_job;
static int g_rank, g_size;

static int64_t collectives(void) {
  weft_job_info info = WEFT_JOB_INFO_INIT;
  MUST(weft_job_read_info(g_job, &info));
  return info.collectives;
}

/* f32, f32 and f64, so that there are two buckets. */
static void parameters(weft_context* ctx, weft_tensor** p) {
  int i;
  for (i = 0; i < PARAMS; ++i) {
    double wide[MOST];
    float narrow[MOST];
    const int64_t dims[2] = {kRows[i], kColumns[i]}, count = dims[0] * dims[1];
    int64_t k;
    for (k = 0; k < count; ++k) narrow[k] = (float)(wide[k] = sin(0.7 * (double)k + i + 0.3));
    MUST(weft_tensor_from_host(ctx, NULL, i == 2 ? WEFT_F64 : WEFT_F32, dims, 2, i == 2 ? (void*)wide : (void*)narrow,
                               (size_t)count * (i == 2 ? 8 : 4), &p[i]));
    MUST(weft_tensor_require_grad(p[i], 1));
  }
}

static void values_of(weft_tensor* const* p, double* out) {
  int i;
  for (i = 0; i < PARAMS; ++i) {
    const int64_t count = kRows[i] * kColumns[i];
    float narrow[MOST];
    int64_t k;
    if (i == 2) {
      MUST(weft_tensor_to_host(p[i], out, (size_t)count * 8));
    } else {
      MUST(weft_tensor_to_host(p[i], narrow, (size_t)count * 4));
      for (k = 0; k < count; ++k) out[k] = narrow[k];
    }
    out += count;
  }
}

static weft_optimizer* adamw(weft_context* ctx, weft_tensor* const* p, int shards) {
  weft_adam_options options = WEFT_ADAM_OPTIONS_INIT;
  weft_optimizer* out = NULL;
  options.job = g_job;
  options.shard_state = shards;
  MUST(weft_adamw_create(ctx, p, PARAMS, &options, &out));
  return out;
}

/* The gradient of a mean of squares whose factor is the process's own, added to what was there. */
static void add_gradients(weft_context* ctx, weft_tensor* const* p, double factor, weft_tensor** sum) {
  wf_scope* s = wf_begin(ctx);
  weft_tensor *loss, *grads[PARAMS];
  int i;
  loss = wf_mul_arg(s, wf_add(s, wf_mean(s, wf_square(s, p[0])), wf_mean(s, wf_square(s, p[1]))), factor);
  loss = wf_add(s, wf_convert(s, loss, WEFT_F64), wf_mul_arg(s, wf_mean(s, wf_square(s, p[2])), factor));
  wf_grad(s, loss, p, PARAMS, grads);
  for (i = 0; i < PARAMS; ++i) {
    weft_tensor* next = wf_keep(s, sum[i] == NULL ? grads[i] : wf_add(s, sum[i], grads[i]));
    weft_tensor_release(sum[i]);
    sum[i] = next;
  }
  MUST(wf_end(s));
}

/* Adam of one process's mean over all processes and passes, in doubles and by itself. */
static void expect(double* want, int steps, double lr) {
  double m[3 * MOST] = {0}, v[3 * MOST] = {0};
  int t, i;
  for (t = 1; t <= steps; ++t) {
    int64_t at = 0, k;
    double factor = 0;
    int rank, pass;
    for (rank = 0; rank < g_size; ++rank) {
      for (pass = 0; pass < MICRO; ++pass) factor += (1 + rank + 0.5 * pass) / g_size;
    }
    for (i = 0; i < PARAMS; ++i) {
      const int64_t count = kRows[i] * kColumns[i];
      for (k = 0; k < count; ++k, ++at) {
        const double g = factor * 2 * want[at] / (double)count;
        m[at] = 0.9 * m[at] + 0.1 * g;
        v[at] = 0.999 * v[at] + 0.001 * g * g;
        want[at] -= lr * 0.01 * want[at];
        want[at] -= lr * (m[at] / (1 - pow(0.9, t))) / (sqrt(v[at] / (1 - pow(0.999, t))) + 1e-8);
      }
    }
  }
}

static void accumulated_gradients_travel_at_the_step(int shards) {
  enum { STEPS = 3 };
  weft_context* ctx = new_context();
  weft_tensor* p[PARAMS];
  weft_optimizer* opt;
  double have[3 * MOST], want[3 * MOST];
  int64_t i, count = 0;
  int t, pass;
  parameters(ctx, p);
  values_of(p, want);
  opt = adamw(ctx, p, shards);
  for (t = 0; t < STEPS; ++t) {
    weft_tensor* sum[PARAMS] = {NULL, NULL, NULL};
    const int64_t before = collectives();
    for (pass = 0; pass < MICRO; ++pass) {
      add_gradients(ctx, p, 1 + g_rank + 0.5 * pass, sum);
      MUST(weft_sync(ctx, NULL, NULL));
    }
    values_of(p, have);
    CHECK_EQUAL(collectives() - before, 0);
    MUST(weft_optimizer_step(opt, sum, PARAMS, 0.01));
    for (pass = 0; pass < PARAMS; ++pass) weft_tensor_release(sum[pass]);
    MUST(weft_sync(ctx, NULL, NULL));
    values_of(p, have);
    CHECK_EQUAL(collectives() - before, shards ? 4 : 2); /* one bucket a dtype: there, and back */
  }
  expect(want, STEPS, 0.01);
  for (i = 0; i < PARAMS; ++i) count += kRows[i] * kColumns[i];
  for (i = 0; i < count; ++i) {
    if (fabs(have[i] - want[i]) < 2e-6) continue;
    printf("shard_state %d, element %d is %.9g, not %.9g\n", shards, (int)i, have[i], want[i]);
    ++g_failures;
  }
  weft_optimizer_release(opt);
  for (i = 0; i < PARAMS; ++i) weft_tensor_release(p[i]);
  weft_context_release(ctx);
}

static void one_that_is_not_finite_holds_all(int shards) {
  const double rates[1] = {0.01};
  weft_context* ctx = new_context();
  weft_tensor *p[PARAMS], *found;
  weft_optimizer* opt;
  double before[3 * MOST], after[3 * MOST];
  int t, i;
  int64_t k, count = 0;
  parameters(ctx, p);
  for (i = 0; i < PARAMS; ++i) count += kRows[i] * kColumns[i];
  opt = adamw(ctx, p, shards);
  for (t = 0; t < 3; ++t) {
    weft_tensor* sum[PARAMS] = {NULL, NULL, NULL};
    const int bad = t == 1 && g_rank == g_size - 1;
    values_of(p, before);
    found = scalar(ctx, bad);
    add_gradients(ctx, p, bad ? INFINITY : 1, sum);
    MUST(weft_optimizer_step_if_finite(opt, sum, PARAMS, rates, 1, found));
    for (i = 0; i < PARAMS; ++i) weft_tensor_release(sum[i]);
    weft_tensor_release(found);
    MUST(weft_sync(ctx, NULL, NULL));
    values_of(p, after);
    for (k = 0; k < count; ++k) CHECK(isfinite(after[k]) && (after[k] == before[k]) == (t == 1));
  }
  weft_optimizer_release(opt);
  for (i = 0; i < PARAMS; ++i) weft_tensor_release(p[i]);
  weft_context_release(ctx);
}

static void states_go_where_they_fit(void) {
  weft_context* ctx = new_context();
  weft_tensor *p[PARAMS], *sum[PARAMS] = {NULL, NULL, NULL}, *square = NULL;
  weft_optimizer *parts, *all, *none = NULL;
  weft_optimizer_options named = WEFT_OPTIMIZER_OPTIONS_INIT;
  weft_tree *part = NULL, *whole = NULL, *usual = NULL, *other = NULL;
  char text[300];
  double have[3 * MOST], want[3 * MOST];
  int i, slot;
  parameters(ctx, p);
  parts = adamw(ctx, p, 1);
  all = adamw(ctx, p, 0);
  add_gradients(ctx, p, 1 + g_rank, sum);
  MUST(weft_optimizer_step(parts, sum, PARAMS, 0));
  MUST(weft_optimizer_step(all, sum, PARAMS, 0));
  MUST(weft_sync(ctx, NULL, NULL));
  values_of(p, have);
  MUST(weft_optimizer_state(parts, &part));
  MUST(weft_optimizer_whole_state(parts, &whole));
  MUST(weft_optimizer_state(all, &usual));
  for (slot = 0; slot < 2; ++slot) {
    weft_tensor *mine[PARAMS], *theirs[PARAMS];
    int64_t k, count = 0;
    for (i = 0; i < PARAMS; ++i) {
      char path[32];
      uint32_t node = 0;
      snprintf(path, sizeof path, "slots.%s.%d", slot == 0 ? "m" : "v", i);
      MUST(weft_tree_find(whole, WEFT_TREE_ROOT, path, WEFT_STRLEN, &node));
      MUST(weft_tree_get_tensor(whole, node, &mine[i]));
      MUST(weft_tree_find(usual, WEFT_TREE_ROOT, path, WEFT_STRLEN, &node));
      MUST(weft_tree_get_tensor(usual, node, &theirs[i]));
      count += kRows[i] * kColumns[i];
    }
    values_of(mine, have);
    values_of(theirs, want);
    for (k = 0; k < count; ++k) CHECK(have[k] == want[k] && want[k] != 0);
    for (i = 0; i < PARAMS; ++i) weft_tensor_release(mine[i]), weft_tensor_release(theirs[i]);
  }
  MUST(weft_optimizer_load(all, whole, WEFT_TREE_ROOT));
  MUST(weft_optimizer_load(parts, usual, WEFT_TREE_ROOT));
  MUST(weft_optimizer_load(parts, part, WEFT_TREE_ROOT));
  snprintf(text, sizeof text,
           "weft_optimizer_load: the state is the part of rank %d of %d, and this optimizer keeps all of it; "
           "weft_optimizer_whole_state gives a state for any number of processes",
           g_rank, g_size);
  INVALID(weft_optimizer_load(all, part, WEFT_TREE_ROOT), text);
  MUST(weft_tree_create(&other));
  MUST(weft_tree_add_text(other, WEFT_TREE_ROOT, "kind", WEFT_STRLEN, "adamw", WEFT_STRLEN, NULL));
  MUST(weft_tree_add_i64(other, WEFT_TREE_ROOT, "step", WEFT_STRLEN, 1, NULL));
  MUST(weft_tree_add_i64(other, WEFT_TREE_ROOT, "rank", WEFT_STRLEN, (g_rank + 1) % g_size, NULL));
  MUST(weft_tree_add_i64(other, WEFT_TREE_ROOT, "ranks", WEFT_STRLEN, g_size, NULL));
  MUST(weft_tree_add_dict(other, WEFT_TREE_ROOT, "slots", WEFT_STRLEN, NULL));
  snprintf(text, sizeof text,
           "weft_optimizer_load: the state is the part of rank %d of %d, and this optimizer keeps the part of rank %d of %d; "
           "weft_optimizer_whole_state gives a state for any number of processes",
           (g_rank + 1) % g_size, g_size, g_rank, g_size);
  INVALID(weft_optimizer_load(parts, other, WEFT_TREE_ROOT), text);
  named.job = g_job;
  named.shard_state = 1;
  FAILS(weft_optimizer_create(ctx, "lamb", WEFT_STRLEN, p, PARAMS, &named, &none), WEFT_UNIMPLEMENTED,
        "weft_optimizer_create: optimizer: lamb measures whole tensors; its state is not kept in parts (shard_state)");
  MUST(weft_convert(ctx, p[0], WEFT_C64, &square));
  FAILS(weft_optimizer_create(ctx, "adam", WEFT_STRLEN, &square, 1, &named, &none), WEFT_UNIMPLEMENTED,
        "weft_optimizer_create: optimizer: parameter 0: a tensor is of c64; f32, f64, f16, bf16, bool and integers of 8 to 64 bits are added "
        "up over processes");
  named.shard_state = 2;
  INVALID(weft_optimizer_create(ctx, "adam", WEFT_STRLEN, p, PARAMS, &named, &none),
          "weft_optimizer_create: shard_state is 2; it is 0 or 1");
  named.shard_state = 1;
  named.job = NULL;
  INVALID(weft_optimizer_create(ctx, "adam", WEFT_STRLEN, p, PARAMS, &named, &none),
          "weft_optimizer_create: shard_state needs a job, whose processes each keep a part of the state");
  for (i = 0; i < PARAMS; ++i) weft_tensor_release(sum[i]), weft_tensor_release(p[i]);
  weft_tensor_release(square);
  weft_tree_release(part), weft_tree_release(whole), weft_tree_release(usual), weft_tree_release(other);
  weft_optimizer_release(parts), weft_optimizer_release(all);
  weft_context_release(ctx);
}

static int member(int rank, int size, const char* id, const char* coordinator) {
  weft_job_options options = WEFT_JOB_OPTIONS_INIT;
  int shards;
  options.id = id;
  options.id_length = WEFT_STRLEN;
  options.rank = g_rank = rank;
  options.size = g_size = size;
  options.timeout_ms = 60000;
  if (coordinator != NULL) {
    options.coordinator = coordinator;
    options.coordinator_length = WEFT_STRLEN;
    options.local_size = 1;
  }
  MUST(weft_job_join(&options, &g_job));
  for (shards = 0; shards < 2; ++shards) {
    accumulated_gradients_travel_at_the_step(shards);
    one_that_is_not_finite_holds_all(shards);
  }
  states_go_where_they_fit();
  MUST(weft_job_leave(g_job));
  weft_job_release(g_job);
  return g_failures != 0;
}

static void run_job(const char* program, int size, const char* coordinator) {
  pid_t children[4];
  int rank;
  for (rank = 0; rank < size; ++rank) {
    children[rank] = fork();
    if (children[rank] == 0) {
      char number[2][16], id[64];
      snprintf(number[0], sizeof number[0], "%d", rank);
      snprintf(number[1], sizeof number[1], "%d", size);
      snprintf(id, sizeof id, "state-%d-%d", (int)getppid(), size);
      execl(program, program, number[0], number[1], id, coordinator, (char*)NULL);
      _exit(127);
    }
  }
  for (rank = 0; rank < size; ++rank) {
    int status = 0;
    CHECK(waitpid(children[rank], &status, 0) == children[rank]);
    CHECK_EQUAL(status, 0);
  }
}

int main(int argc, char** argv) {
  char address[64];
  if (argc >= 4) return member(atoi(argv[1]), atoi(argv[2]), argv[3], argv[4]); /* argv[argc] is NULL */
  run_job(argv[0], 2, NULL);
  run_job(argv[0], 4, NULL);
  find_address(address, sizeof address);
  run_job(argv[0], 2, address);
  return done("job_state");
}
