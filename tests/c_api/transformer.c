/* A newcomer's journey: a transformer block in the fluent layer alone, trained on a task it can learn, saved, loaded, going
 * on in the same bits. The task: a sequence of digits; at each place say the digit that stood two places before. */
#define _POSIX_C_SOURCE 200809L
#include <unistd.h>

#include "check.h"

enum { BATCH = 8, LENGTH = 12, VOCABULARY = 10, WIDTH = 32, HEADS = 4, PARAMS = 14, STEPS = 20 };

typedef struct {
  weft_tensor* p[PARAMS];
} block;

enum { TOKENS, PLACES, N1_SCALE, N1_OFFSET, WQ, WK, WV, WO, N2_SCALE, N2_OFFSET, W1, B1, W2, HEAD };
static const struct {
  const char* name;
  size_t rank;
  int64_t dims[2];
  int random; /* else all ones or zeros by name */
} SHAPES[PARAMS] = {
    {"tokens", 2, {VOCABULARY, WIDTH}, 1}, {"places", 2, {LENGTH, WIDTH}, 1},   {"norm1_scale", 1, {WIDTH, 0}, 0},
    {"norm1_offset", 1, {WIDTH, 0}, 0},    {"wq", 2, {WIDTH, WIDTH}, 1},        {"wk", 2, {WIDTH, WIDTH}, 1},
    {"wv", 2, {WIDTH, WIDTH}, 1},          {"wo", 2, {WIDTH, WIDTH}, 1},        {"norm2_scale", 1, {WIDTH, 0}, 0},
    {"norm2_offset", 1, {WIDTH, 0}, 0},    {"w1", 2, {WIDTH, 4 * WIDTH}, 1},    {"b1", 1, {4 * WIDTH, 0}, 0},
    {"w2", 2, {4 * WIDTH, WIDTH}, 1},      {"head", 2, {WIDTH, VOCABULARY}, 1},
};

static void make(weft_context* ctx, block* m) {
  int i;
  wf_scope* s = wf_begin(ctx);
  for (i = 0; i < PARAMS; ++i) {
    weft_tensor* t;
    if (SHAPES[i].random) {
      t = wf_normal(s, SHAPES[i].dims, SHAPES[i].rank, .deviation = 0.15);
    } else {
      t = wf_full(s, SHAPES[i].dims, SHAPES[i].rank, strstr(SHAPES[i].name, "scale") != NULL ? 1.0 : 0.0);
    }
    m->p[i] = wf_keep(s, t);
    wf_try(s, weft_tensor_require_grad(m->p[i], 1));
  }
  MUST(wf_end(s));
}

/* [batch, length, width] as heads: [batch, heads, length, width / heads]. */
static weft_tensor* heads(wf_scope* s, weft_tensor* x) {
  return wf_transpose(s, wf_reshape(s, x, WF_INTS(BATCH, LENGTH, HEADS, WIDTH / HEADS)), WF_INTS(0, 2, 1, 3));
}

static weft_tensor* forward(wf_scope* s, const block* m, weft_tensor* ids) {
  weft_tensor *const *p = m->p, *x, *h, *q, *k, *v;
  x = wf_add(s, wf_embedding(s, p[TOKENS], ids), p[PLACES]);
  h = wf_layer_norm(s, x, p[N1_SCALE], p[N1_OFFSET]);
  q = heads(s, wf_matmul(s, h, p[WQ])), k = heads(s, wf_matmul(s, h, p[WK])), v = heads(s, wf_matmul(s, h, p[WV]));
  h = wf_scaled_dot_product_attention(s, q, k, v, NULL, .causal = 1);
  h = wf_reshape(s, wf_transpose(s, h, WF_INTS(0, 2, 1, 3)), WF_INTS(BATCH, LENGTH, WIDTH));
  x = wf_add(s, x, wf_dropout(s, wf_matmul(s, h, p[WO]), .rate = 0.05));
  h = wf_layer_norm(s, x, p[N2_SCALE], p[N2_OFFSET]);
  h = wf_gelu(s, wf_add(s, wf_matmul(s, h, p[W1]), p[B1]));
  x = wf_add(s, x, wf_dropout(s, wf_matmul(s, h, p[W2]), .rate = 0.05));
  return wf_matmul(s, x, p[HEAD]);
}

static double step(weft_context* ctx, block* m, weft_optimizer* opt, int number) {
  int32_t ids[BATCH][LENGTH], labels[BATCH][LENGTH];
  weft_tensor *x, *y, *loss, *grads[PARAMS];
  double value;
  int b, i;
  wf_scope* s = wf_begin(ctx);
  for (b = 0; b < BATCH; ++b) {
    for (i = 0; i < LENGTH; ++i) {
      ids[b][i] = (number * 7 + b * 31 + i * i * 3 + i * b) % VOCABULARY;
      labels[b][i] = i >= 2 ? ids[b][i - 2] : 0;
    }
  }
  x = wf_from_host(s, WEFT_I32, WF_INTS(BATCH, LENGTH), ids, sizeof ids);
  y = wf_from_host(s, WEFT_I32, WF_INTS(BATCH, LENGTH), labels, sizeof labels);
  loss = wf_cross_entropy(s, forward(s, m, x), y);
  wf_grad(s, loss, m->p, PARAMS, grads);
  wf_try(s, weft_optimizer_step(opt, grads, PARAMS, 0.01));
  value = wf_item(s, loss);
  MUST(wf_end(s));
  MUST(weft_sync(ctx, NULL, NULL));
  return value;
}

static void save(weft_context* ctx, const char* path, const block* m, weft_optimizer* opt) {
  weft_tree *tree = NULL, *state = NULL;
  uint32_t model, node;
  uint64_t key, low, high;
  int i;
  MUST(weft_tree_create(&tree));
  MUST(weft_tree_add_dict(tree, WEFT_TREE_ROOT, "model", WEFT_STRLEN, &model));
  for (i = 0; i < PARAMS; ++i) MUST(weft_tree_add_tensor(tree, model, SHAPES[i].name, WEFT_STRLEN, m->p[i], NULL));
  MUST(weft_optimizer_state(opt, &state));
  MUST(weft_tree_add_tree(tree, WEFT_TREE_ROOT, "optimizer", WEFT_STRLEN, state, NULL));
  MUST(weft_random_get_state(ctx, &key, &low, &high));
  MUST(weft_tree_add_list(tree, WEFT_TREE_ROOT, "random", WEFT_STRLEN, &node));
  MUST(weft_tree_add_i64(tree, node, NULL, 0, (int64_t)key, NULL));
  MUST(weft_tree_add_i64(tree, node, NULL, 0, (int64_t)low, NULL));
  MUST(weft_tree_add_i64(tree, node, NULL, 0, (int64_t)high, NULL));
  MUST(weft_checkpoint_save(ctx, path, WEFT_STRLEN, tree, NULL, NULL));
  weft_tree_release(state);
  weft_tree_release(tree);
}

static weft_optimizer* load(weft_context* ctx, const char* path, block* m) {
  weft_tree* tree = NULL;
  weft_optimizer* opt = NULL;
  int64_t state[3];
  uint32_t node, at;
  int i;
  MUST(weft_checkpoint_load(ctx, path, WEFT_STRLEN, NULL, &tree));
  for (i = 0; i < PARAMS; ++i) {
    char name[64];
    snprintf(name, sizeof name, "model.%s", SHAPES[i].name);
    MUST(weft_tree_find(tree, WEFT_TREE_ROOT, name, WEFT_STRLEN, &node));
    MUST(weft_tree_get_tensor(tree, node, &m->p[i]));
    MUST(weft_tensor_require_grad(m->p[i], 1));
  }
  MUST(weft_adam_create(ctx, m->p, PARAMS, NULL, &opt));
  MUST(weft_tree_find(tree, WEFT_TREE_ROOT, "optimizer", WEFT_STRLEN, &node));
  MUST(weft_optimizer_load(opt, tree, node));
  MUST(weft_tree_find(tree, WEFT_TREE_ROOT, "random", WEFT_STRLEN, &node));
  for (i = 0; i < 3; ++i) {
    MUST(weft_tree_child(tree, node, (uint32_t)i, &at));
    MUST(weft_tree_get_i64(tree, at, &state[i]));
  }
  MUST(weft_random_set_state(ctx, (uint64_t)state[0], (uint64_t)state[1], (uint64_t)state[2]));
  weft_tree_release(tree);
  return opt;
}

static void drop(block* m, weft_optimizer* opt) {
  int i;
  for (i = 0; i < PARAMS; ++i) weft_tensor_release(m->p[i]);
  weft_optimizer_release(opt);
}

int main(void) {
  weft_context *ctx = new_context(), *second;
  weft_optimizer* opt = NULL;
  block m, again;
  char path[300];
  double first = 0, last = 0;
  const double chance = 2.302585; /* log of ten digits */
  int i;
  snprintf(path, sizeof path, "%s/weft_c_transformer_%ld.ckpt", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp", (long)getpid());
  MUST(weft_random_seed(ctx, 3));
  make(ctx, &m);
  MUST(weft_adam_create(ctx, m.p, PARAMS, NULL, &opt));
  for (i = 0; i < STEPS; ++i) {
    last = step(ctx, &m, opt, i);
    if (i == 0) first = last;
  }
  printf("loss %.3f, after %d steps %.3f\n", first, STEPS, last);
  CHECK(first > 0.7 * chance && first < 2 * chance);
  CHECK(last < 0.7 * first);

  save(ctx, path, &m, opt);
  second = new_context();
  {
    weft_optimizer* more = load(second, path, &again);
    for (i = 0; i < 3; ++i) {
      const double straight = step(ctx, &m, opt, STEPS + i), resumed = step(second, &again, more, STEPS + i);
      CHECK(straight == resumed); /* dropout's masks too: the random state came along */
    }
    for (i = 0; i < PARAMS; ++i) {
      float have[VOCABULARY * 4 * WIDTH * 4], want[VOCABULARY * 4 * WIDTH * 4];
      uint64_t size = 0;
      MUST(weft_tensor_size(m.p[i], &size));
      CHECK(size <= sizeof have);
      MUST(weft_tensor_to_host(m.p[i], want, size));
      MUST(weft_tensor_to_host(again.p[i], have, size));
      CHECK(memcmp(have, want, size) == 0);
    }
    drop(&again, more);
  }
  drop(&m, opt);
  CHECK_EQUAL(metric(ctx, "live_tensors"), 0);
  weft_context_release(second);
  weft_context_release(ctx);
  unlink(path);
  return done("transformer");
}
