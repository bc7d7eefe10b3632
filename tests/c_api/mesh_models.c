/* Three networks trained on four devices, data parallel, with cut parameters (FSDP), tensor parallel and both ways at once: a transformer whose
 * layers are a scan with dropout in its body, a multilayer perceptron, a convolutional network. Only how parameters and batches are cut differs.
 * On the platforms cpu and reference each loss has the bits of one device; with arguments PLATFORM PLUGIN [few] it is within 1e-5. */
#define _GNU_SOURCE
#include "four_devices.h"

enum { STEPS = 20, MOST_PARAMS = 14, MOST_RANK = 4, HELD = 3 };
enum { LAYERS = 4, BATCH = 8, LENGTH = 12, VOCABULARY = 16, WIDTH = 32, HEADS = 4 };

typedef enum { ONE, DATA, FSDP, TENSOR, BOTH, WAYS } way;
static const char* const NAMES[WAYS] = {"one device", "data parallel", "FSDP", "tensor parallel", "data and tensor parallel"};
static const char* const AXES[WAYS] = {NULL, "d=4", "d=4", "t=4", "d=2,t=2"};

typedef struct {
  size_t rank;
  int64_t dims[MOST_RANK];
  double value; /* below 1: random of that deviation */
  const char *fsdp, *tensor;
} shape;

typedef struct {
  weft_tensor *p[MOST_PARAMS], *held[HELD]; /* held: activations that a caller has in variables at the barrier */
  way how;
  weft_function* layer; /* of the transformer */
} model;

typedef struct {
  const char* name;
  int params;
  const shape* shapes;
  weft_tensor* (*loss)(wf_scope* s, model* m, int number);
} network;

static weft_tensor* shard(wf_scope* s, weft_tensor* x, const char* spec) {
  weft_tensor* out = NULL;
  weft_error* const error = x != NULL ? weft_shard(x, spec, WEFT_STRLEN, &out) : NULL;
  return x != NULL ? weft_scope_adopt(s, error, out) : NULL;
}
static weft_tensor* batch(wf_scope* s, const model* m, weft_tensor* x, const char* spec) {
  return m->how == DATA || m->how == FSDP || m->how == BOTH ? shard(s, x, spec) : x;
}
static void hold(model* m, int i, wf_scope* s, weft_tensor* x) {
  weft_tensor_release(m->held[i]);
  m->held[i] = wf_keep(s, x);
}

/* --- The transformer ------------------------------------------------------------------------------------------------------ */

enum { TOKENS, PLACES, N1, WQ, WK, WV, WO, N2, W1, B1, W2, HEAD, T_PARAMS };
static const shape TRANSFORMER[T_PARAMS] = {
    {2, {VOCABULARY, WIDTH}, 0.15, "d,-", "-,-"},
    {2, {LENGTH, WIDTH}, 0.15, "d,-", "-,-"},
    {3, {LAYERS, 2, WIDTH}, 0.5, "-,-,d", "-,-,-"},
    {3, {LAYERS, WIDTH, WIDTH}, 0.15, "-,d,-", "-,-,t"},
    {3, {LAYERS, WIDTH, WIDTH}, 0.15, "-,d,-", "-,-,t"},
    {3, {LAYERS, WIDTH, WIDTH}, 0.15, "-,d,-", "-,-,t"},
    {3, {LAYERS, WIDTH, WIDTH}, 0.15, "-,d,-", "-,t,-"},
    {3, {LAYERS, 2, WIDTH}, 0.5, "-,-,d", "-,-,-"},
    {3, {LAYERS, WIDTH, 4 * WIDTH}, 0.15, "-,d,-", "-,-,t"},
    {2, {LAYERS, 4 * WIDTH}, 0.15, "-,d", "-,t"},
    {3, {LAYERS, 4 * WIDTH, WIDTH}, 0.15, "-,d,-", "-,t,-"},
    {2, {WIDTH, VOCABULARY}, 0.15, "d,-", "-,-"},
};

static weft_tensor* heads(wf_scope* s, weft_tensor* x) {
  return wf_transpose(s, wf_reshape(s, x, WF_INTS(BATCH, LENGTH, HEADS, WIDTH / HEADS)), WF_INTS(0, 2, 1, 3));
}
static weft_tensor* norm(wf_scope* s, weft_tensor* x, weft_tensor* n) {
  weft_tensor* const scale = wf_reshape(s, wf_slice(s, n, WF_INTS(0, 0), WF_INTS(1, WIDTH), WF_INTS(1, 1)), WF_INTS(WIDTH));
  weft_tensor* const offset = wf_reshape(s, wf_slice(s, n, WF_INTS(1, 0), WF_INTS(2, WIDTH), WF_INTS(1, 1)), WF_INTS(WIDTH));
  return wf_layer_norm(s, x, scale, offset);
}
/* x, then a slice of each of the nine stacked parameters; x comes out. */
static weft_error* layer(void* data, weft_context* body, weft_tensor* const* in, size_t count, weft_tensor** out, size_t capacity, size_t* out_count) {
  wf_scope* s = wf_begin(body);
  weft_tensor *x = in[0], *h, *q, *k, *v;
  (void)data, (void)count, (void)capacity;
  h = norm(s, x, in[1]);
  q = heads(s, wf_matmul(s, h, in[2])), k = heads(s, wf_matmul(s, h, in[3])), v = heads(s, wf_matmul(s, h, in[4]));
  h = wf_scaled_dot_product_attention(s, q, k, v, NULL, .causal = 1);
  h = wf_reshape(s, wf_transpose(s, h, WF_INTS(0, 2, 1, 3)), WF_INTS(BATCH, LENGTH, WIDTH));
  x = wf_add(s, x, wf_dropout(s, wf_matmul(s, h, in[5]), .rate = 0.05));
  h = norm(s, x, in[6]);
  h = wf_gelu(s, wf_add(s, wf_matmul(s, h, in[7]), in[8]));
  x = wf_add(s, x, wf_dropout(s, wf_matmul(s, h, in[9]), .rate = 0.05));
  out[0] = wf_keep(s, x);
  *out_count = 1;
  return wf_end(s);
}
static weft_function* layer_of(weft_context* ctx) {
  weft_tensor_info types[10] = {{WEFT_F32, 3, {BATCH, LENGTH, WIDTH}}};
  weft_function* f = NULL;
  int i;
  for (i = N1; i <= W2; ++i) {
    weft_tensor_info* const type = &types[i - N1 + 1];
    type->dtype = WEFT_F32, type->rank = (uint32_t)TRANSFORMER[i].rank - 1;
    memcpy(type->dims, TRANSFORMER[i].dims + 1, (TRANSFORMER[i].rank - 1) * sizeof(int64_t));
  }
  MUST(weft_function_trace(ctx, "layer", WEFT_STRLEN, types, 10, layer, NULL, 1, &f));
  return f;
}
static weft_tensor* transformer(wf_scope* s, model* m, int number) {
  static int32_t ids[BATCH][LENGTH], labels[BATCH][LENGTH];
  weft_tensor *x, *y, *logits;
  int b, i;
  for (b = 0; b < BATCH; ++b) {
    for (i = 0; i < LENGTH; ++i) {
      ids[b][i] = (number * 7 + b * 31 + i * i * 3 + i * b) % VOCABULARY;
      labels[b][i] = i >= 2 ? ids[b][i - 2] : 0;
    }
  }
  x = batch(s, m, wf_from_host(s, WEFT_I32, WF_INTS(BATCH, LENGTH), ids, sizeof ids), "d,-");
  y = batch(s, m, wf_from_host(s, WEFT_I32, WF_INTS(BATCH, LENGTH), labels, sizeof labels), "d,-");
  x = wf_add(s, wf_embedding(s, m->p[TOKENS], x), m->p[PLACES]);
  hold(m, 0, s, x);
  x = wf_scan(s, m->layer, &x, 1, m->p + N1, 9);
  hold(m, 1, s, x);
  logits = wf_matmul(s, x, m->p[HEAD]);
  hold(m, 2, s, logits);
  return wf_cross_entropy(s, logits, y);
}

/* --- The others ----------------------------------------------------------------------------------------------------------- */

enum { SIDE = 8, IMAGES = 8, CLASSES = 8 };
static const shape PERCEPTRON[] = {
    {2, {SIDE * SIDE, 64}, 0.2, "d,-", "-,t"}, {1, {64}, 0.2, "d", "t"}, {2, {64, CLASSES}, 0.2, "d,-", "t,-"}, {1, {CLASSES}, 0.2, "d", "-"}};
static const shape CONVOLUTIONS[] = {
    {4, {3, 3, 1, 16}, 0.3, "-,-,-,d", "-,-,-,t"}, {4, {3, 3, 16, 16}, 0.1, "-,-,d,-", "-,-,t,-"}, {2, {SIDE * SIDE * 16 / 4, CLASSES}, 0.1, "d,-", "-,-"}, {1, {CLASSES}, 0.1, "d", "-"}};

static weft_tensor* images(wf_scope* s, const model* m, int number, weft_tensor** labels) {
  static float pixels[IMAGES][SIDE][SIDE];
  static int32_t classes[IMAGES];
  int b, i;
  for (b = 0; b < IMAGES; ++b) {
    classes[b] = (number + 3 * b) % CLASSES;
    for (i = 0; i < SIDE * SIDE; ++i) pixels[b][i / SIDE][i % SIDE] = (float)((i * (classes[b] + 2) + b) % 13) / 13;
  }
  *labels = batch(s, m, wf_from_host(s, WEFT_I32, WF_INTS(IMAGES), classes, sizeof classes), "d");
  return batch(s, m, wf_from_host(s, WEFT_F32, WF_INTS(IMAGES, SIDE, SIDE, 1), pixels, sizeof pixels), "d,-,-,-");
}
static weft_tensor* classified(wf_scope* s, model* m, weft_tensor* h, weft_tensor* w, weft_tensor* b, weft_tensor* labels) {
  weft_tensor* logits;
  hold(m, 1, s, h);
  logits = wf_add(s, wf_matmul(s, h, w), b);
  hold(m, 2, s, logits);
  return wf_cross_entropy(s, logits, labels);
}
static weft_tensor* perceptron(wf_scope* s, model* m, int number) {
  weft_tensor *labels, *x = images(s, m, number, &labels), *h;
  x = wf_reshape(s, x, WF_INTS(IMAGES, SIDE * SIDE));
  hold(m, 0, s, x);
  h = wf_relu(s, wf_add(s, wf_matmul(s, x, m->p[0]), m->p[1]));
  return classified(s, m, h, m->p[2], m->p[3], labels);
}
static weft_tensor* convolutions(wf_scope* s, model* m, int number) {
  weft_tensor *labels, *x = images(s, m, number, &labels), *h;
  h = wf_relu(s, wf_conv(s, x, m->p[0], .padding = WEFT_CONV_PADDING_SAME));
  hold(m, 0, s, h);
  h = wf_max_pool(s, h, WF_INTS(2, 2));
  h = wf_relu(s, wf_conv(s, h, m->p[1], .padding = WEFT_CONV_PADDING_SAME));
  h = wf_reshape(s, h, WF_INTS(IMAGES, SIDE * SIDE * 16 / 4));
  return classified(s, m, h, m->p[2], m->p[3], labels);
}

static const network NETWORKS[] = {{"transformer", T_PARAMS, TRANSFORMER, transformer}, {"perceptron", 4, PERCEPTRON, perceptron}, {"convolutions", 4, CONVOLUTIONS, convolutions}};

/* --- Training ------------------------------------------------------------------------------------------------------------- */

static void make(weft_context* ctx, const network* n, model* m) {
  wf_scope* s = wf_begin(ctx);
  int i;
  for (i = 0; i < n->params; ++i) {
    const shape* const p = &n->shapes[i];
    weft_tensor* t = wf_normal(s, p->dims, p->rank, .deviation = p->value);
    if (m->how == FSDP) t = shard(s, t, p->fsdp);
    if (m->how == TENSOR || m->how == BOTH) t = shard(s, t, p->tensor);
    m->p[i] = wf_keep(s, t);
    wf_try(s, weft_tensor_require_grad(m->p[i], 1));
  }
  MUST(wf_end(s));
}

/* The bytes of a device in FSDP: its share of parameters and of both slots, and where it has memory of its own little more. */
/* With a topology programs are compiled, and nothing runs. */
static int runs(void) { return getenv("WEFT_TOPOLOGY") == NULL; }

static void check_share(const network* n, const model* m, int own_memory) {
  int64_t bytes = 0;
  int i;
  if (m->how != FSDP) return;
  for (i = 0; i < n->params; ++i) {
    const shape* const p = &n->shapes[i];
    int64_t box[2 * MOST_RANK], part = 1, whole = 1;
    weft_device* device = NULL;
    size_t d;
    MUST(weft_tensor_shard_at(m->p[i], 1, box, 2 * MOST_RANK, &device));
    for (d = 0; d < p->rank; ++d) part *= box[p->rank + d], whole *= p->dims[d];
    CHECK_EQUAL(4 * part, whole);
    bytes += 3 * 4 * part;
    if (own_memory && runs() && i + 1 == n->params) {
      weft_memory_stats stats = WEFT_MEMORY_STATS_INIT;
      MUST(weft_device_memory(device, &stats));
      printf("  a device holds %lld bytes, its share of parameters and slots is %lld\n", (long long)stats.bytes_in_use, (long long)bytes);
      CHECK((int64_t)stats.bytes_in_use >= bytes && (int64_t)stats.bytes_in_use < bytes + (32 << 10));
    }
    weft_device_release(device);
  }
}

/* Sizes of a program on a device, as the plugin counts them and the log tells. */
typedef struct {
  long long arguments, results, temporaries;
} sizes;

/* The program with the most arguments is the training step. Without a plugin nobody counts. */
static void note(void* user, weft_log_level level, const char* text, size_t length) {
  sizes* const most = user;
  char line[2000];
  const char *arguments, *temporaries;
  long long in = 0;
  (void)level;
  snprintf(line, sizeof line, "%.*s", (int)length, text);
  arguments = strstr(line, " bytes of arguments, "), temporaries = strstr(line, " bytes of temporaries");
  if (arguments == NULL || temporaries == NULL) return;
  while (arguments > line && arguments[-1] >= '0' && arguments[-1] <= '9') --arguments;
  while (temporaries > line && temporaries[-1] >= '0' && temporaries[-1] <= '9') --temporaries;
  in = atoll(arguments);
  if (in <= most->arguments) return;
  most->arguments = in, most->temporaries = atoll(temporaries), most->results = atoll(strstr(arguments, "arguments, ") + 11);
}

/* FSDP's step takes its share of parameters and slots and nothing more than one device's takes beside these, and all of the share becomes results. In between
 * it needs a quarter of what one device needs, and what the plugin gathers: at most all parameters and their gradients. */
static void check_sizes(const network* n, const sizes* one, const sizes* fsdp) {
  long long whole = 0, share, beside;
  int i;
  for (i = 0; i < n->params; ++i) {
    long long count = 1;
    size_t d;
    for (d = 0; d < n->shapes[i].rank; ++d) count *= n->shapes[i].dims[d];
    whole += 3 * 4 * count;
  }
  share = whole / 4, beside = one->arguments - whole;
  printf("  %s, FSDP: a device takes %lld bytes (share %lld, one device %lld), of which %lld become results, and needs %lld in between (one device %lld)\n", n->name, fsdp->arguments,
         share, one->arguments, fsdp->results, fsdp->temporaries, one->temporaries);
  CHECK(fsdp->arguments >= share && fsdp->arguments <= share + beside);
  CHECK(fsdp->results >= share);
  CHECK(fsdp->temporaries <= one->temporaries / 4 + 2 * (whole / 3));
}

static void train(const char* platform, const char* plugin, const network* n, way how, int steps, float* losses, sizes* taken) {
  weft_context* ctx = context_of(platform, plugin);
  weft_mesh* mesh = NULL;
  weft_optimizer* opt = NULL;
  model m = {.how = how};
  int i;
  if (AXES[how] != NULL) {
    MUST(weft_mesh_create(ctx, NULL, 0, AXES[how], WEFT_STRLEN, &mesh));
    MUST(weft_context_set_mesh(ctx, mesh));
  }
  MUST(weft_context_set_log(ctx, WEFT_LOG_DEBUG, note, taken, NULL));
  make(ctx, n, &m);
  m.layer = layer_of(ctx);
  MUST(weft_adamw_create(ctx, m.p, (size_t)n->params, NULL, &opt));
  for (i = 0; i < steps; ++i) {
    wf_scope* s = wf_begin(ctx);
    weft_tensor *grads[MOST_PARAMS] = {NULL}, *loss = n->loss(s, &m, i);
    wf_grad(s, loss, m.p, (size_t)n->params, grads);
    wf_try(s, weft_optimizer_step(opt, grads, (size_t)n->params, 0.01));
    loss = wf_keep(s, loss);
    wf_try(s, weft_sync(ctx, NULL, NULL));
    wf_try(s, weft_tensor_to_host(loss, &losses[i], sizeof losses[i]));
    weft_tensor_release(loss);
    MUST(wf_end(s));
  }
  check_share(n, &m, plugin != NULL);
  for (i = 0; i < n->params; ++i) weft_tensor_release(m.p[i]);
  for (i = 0; i < HELD; ++i) weft_tensor_release(m.held[i]);
  weft_function_release(m.layer);
  weft_optimizer_release(opt);
  weft_mesh_release(mesh);
  weft_context_release(ctx);
}

/* The largest relative difference of a loss to one device; `most` 0: the same bits. */
static void losses_agree(const char* platform, const char* plugin, int steps, double most) {
  size_t k;
  for (k = 0; k < sizeof NETWORKS / sizeof *NETWORKS; ++k) {
    float one[STEPS], many[STEPS];
    sizes of_one = {0}, of_many;
    way how;
    int i;
    train(platform, plugin, &NETWORKS[k], ONE, steps, one, &of_one);
    CHECK(!runs() || (one[0] > 1.5f && (steps < STEPS || one[steps - 1] < one[0])));
    for (how = DATA; how < WAYS; ++how) {
      double worst = 0;
      memset(&of_many, 0, sizeof of_many);
      train(platform, plugin, &NETWORKS[k], how, steps, many, &of_many);
      CHECK((of_many.arguments > 0) == (plugin != NULL));
      if (how == FSDP && plugin != NULL && runs()) check_sizes(&NETWORKS[k], &of_one, &of_many);
      for (i = 0; i < steps; ++i) worst = fmax(worst, fabs((double)many[i] - one[i]) / fabs((double)one[i]));
      printf("%s, %s, %s: %d losses, the largest difference to one device %.2g\n", platform, NETWORKS[k].name, NAMES[how], steps, worst);
      if (!(worst <= most)) printf("  last %.9g and %.9g\n", (double)many[steps - 1], (double)one[steps - 1]), ++g_failures;
    }
  }
}

int main(int argc, char** argv) {
  if (argc >= 3) {
    losses_agree(argv[1], argv[2], argc == 4 && strcmp(argv[3], "few") == 0 ? 6 : STEPS, 1e-5);
    return g_failures != 0;
  }
  losses_agree("cpu", NULL, STEPS, 0);
  losses_agree("reference", NULL, 2, 0);
  return g_failures != 0;
}
