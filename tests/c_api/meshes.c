/* One transformer trained on four devices: data parallel, with cut parameters (FSDP), tensor parallel, both ways at once. Only the lines with
 * weft_shard differ. On the platforms cpu and reference devices share a memory: each loss has the bits of one device. With arguments PLATFORM
 * PLUGIN [few] (tests/pjrt/meshes_test.py) it is within 1e-5. Then what cannot be: texts of errors. */
#define _GNU_SOURCE
#include "four_devices.h"

#include <pthread.h>

#include "folder.h"

enum { BATCH = 8, LENGTH = 12, VOCABULARY = 16, WIDTH = 32, HEADS = 4, PARAMS = 14, STEPS = 20 };

enum { TOKENS, PLACES, N1_SCALE, N1_OFFSET, WQ, WK, WV, WO, N2_SCALE, N2_OFFSET, W1, B1, W2, HEAD };
/* How each parameter lies: whole (data parallel), cut as storage (FSDP), cut as work (tensor parallel, axis t). */
static const struct {
  size_t rank;
  int64_t dims[2];
  double value; /* 0.15: random of that deviation */
  const char *fsdp, *tensor;
} SHAPES[PARAMS] = {
    {2, {VOCABULARY, WIDTH}, 0.15, "d,-", "-,-"}, {2, {LENGTH, WIDTH}, 0.15, "d,-", "-,-"},   {1, {WIDTH, 0}, 1, "d", "-"},
    {1, {WIDTH, 0}, 0, "d", "-"},                 {2, {WIDTH, WIDTH}, 0.15, "d,-", "-,t"},    {2, {WIDTH, WIDTH}, 0.15, "d,-", "-,t"},
    {2, {WIDTH, WIDTH}, 0.15, "d,-", "-,t"},      {2, {WIDTH, WIDTH}, 0.15, "d,-", "t,-"},    {1, {WIDTH, 0}, 1, "d", "-"},
    {1, {WIDTH, 0}, 0, "d", "-"},                 {2, {WIDTH, 4 * WIDTH}, 0.15, "d,-", "-,t"}, {1, {4 * WIDTH, 0}, 0, "d", "t"},
    {2, {4 * WIDTH, WIDTH}, 0.15, "d,-", "t,-"},  {2, {WIDTH, VOCABULARY}, 0.15, "d,-", "-,-"},
};

typedef enum { ONE, DATA, FSDP, TENSOR, BOTH, WAYS } way;
static const char* const NAMES[WAYS] = {"one device", "data parallel", "FSDP", "tensor parallel", "data and tensor parallel"};
static const char* const AXES[WAYS] = {NULL, "d=4", "d=4", "t=4", "d=2,t=2"};

typedef struct {
  weft_tensor *p[PARAMS], *held[3]; /* held: activations that a caller has in variables at the barrier */
  way how;
} model;

static weft_tensor* shard(wf_scope* s, weft_tensor* x, const char* spec) {
  weft_tensor* out = NULL;
  weft_error* const error = x != NULL ? weft_shard(x, spec, WEFT_STRLEN, &out) : NULL;
  return x != NULL ? weft_scope_adopt(s, error, out) : NULL;
}

static void make(weft_context* ctx, model* m) {
  wf_scope* s = wf_begin(ctx);
  int i;
  for (i = 0; i < PARAMS; ++i) {
    const double value = SHAPES[i].value;
    weft_tensor* t = value == 0.15 ? wf_normal(s, SHAPES[i].dims, SHAPES[i].rank, .deviation = value) : wf_full(s, SHAPES[i].dims, SHAPES[i].rank, value);
    if (m->how == FSDP) t = shard(s, t, SHAPES[i].fsdp);
    if (m->how == TENSOR || m->how == BOTH) t = shard(s, t, SHAPES[i].tensor);
    m->p[i] = wf_keep(s, t);
    wf_try(s, weft_tensor_require_grad(m->p[i], 1));
  }
  MUST(wf_end(s));
}

static weft_tensor* heads(wf_scope* s, weft_tensor* x) {
  return wf_transpose(s, wf_reshape(s, x, WF_INTS(BATCH, LENGTH, HEADS, WIDTH / HEADS)), WF_INTS(0, 2, 1, 3));
}

static void hold(model* m, int i, wf_scope* s, weft_tensor* x) {
  weft_tensor_release(m->held[i]);
  m->held[i] = wf_keep(s, x);
}

static weft_tensor* forward(wf_scope* s, model* m, weft_tensor* ids) {
  weft_tensor *const *p = m->p, *x, *h, *q, *k, *v;
  x = wf_add(s, wf_embedding(s, p[TOKENS], ids), p[PLACES]);
  hold(m, 0, s, x);
  h = wf_layer_norm(s, x, p[N1_SCALE], p[N1_OFFSET]);
  q = heads(s, wf_matmul(s, h, p[WQ])), k = heads(s, wf_matmul(s, h, p[WK])), v = heads(s, wf_matmul(s, h, p[WV]));
  h = wf_scaled_dot_product_attention(s, q, k, v, NULL, .causal = 1);
  h = wf_reshape(s, wf_transpose(s, h, WF_INTS(0, 2, 1, 3)), WF_INTS(BATCH, LENGTH, WIDTH));
  x = wf_add(s, x, wf_dropout(s, wf_matmul(s, h, p[WO]), .rate = 0.05));
  h = wf_layer_norm(s, x, p[N2_SCALE], p[N2_OFFSET]);
  h = wf_gelu(s, wf_add(s, wf_matmul(s, h, p[W1]), p[B1]));
  x = wf_add(s, x, wf_dropout(s, wf_matmul(s, h, p[W2]), .rate = 0.05));
  hold(m, 1, s, x);
  x = wf_matmul(s, x, p[HEAD]);
  hold(m, 2, s, x);
  return x;
}

static float step(weft_context* ctx, model* m, weft_optimizer* opt, int number) {
  int32_t ids[BATCH][LENGTH], labels[BATCH][LENGTH];
  weft_tensor *x, *y, *loss, *grads[PARAMS] = {NULL};
  float value = -1;
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
  if (m->how == DATA || m->how == FSDP || m->how == BOTH) x = shard(s, x, "d,-"), y = shard(s, y, "d,-");
  loss = wf_cross_entropy(s, forward(s, m, x), y);
  wf_grad(s, loss, m->p, PARAMS, grads);
  wf_try(s, weft_optimizer_step(opt, grads, PARAMS, 0.01));
  loss = wf_keep(s, loss);
  wf_try(s, weft_sync(ctx, NULL, NULL));
  wf_try(s, weft_tensor_to_host(loss, &value, sizeof value));
  weft_tensor_release(loss);
  MUST(wf_end(s));
  return value;
}

static void train(const char* platform, const char* plugin, way how, int steps, float* losses) {
  weft_context* ctx = context_of(platform, plugin);
  weft_mesh* mesh = NULL;
  weft_optimizer* opt = NULL;
  model m = {.how = how};
  int i;
  if (AXES[how] != NULL) {
    MUST(weft_mesh_create(ctx, NULL, 0, AXES[how], WEFT_STRLEN, &mesh));
    MUST(weft_context_set_mesh(ctx, mesh));
  }
  make(ctx, &m);
  MUST(weft_adamw_create(ctx, m.p, PARAMS, NULL, &opt));
  for (i = 0; i < steps; ++i) losses[i] = step(ctx, &m, opt, i);
  if (how == FSDP) LIES(m.p[W1], "d,-"), LIES(m.p[B1], "d");
  if (how == BOTH) LIES(m.p[W1], "-,t"), LIES(m.p[TOKENS], "-,-"), LIES(m.held[2], "d,-,-");
  if (how == DATA || how == FSDP) LIES(m.held[0], "d,-,-"), LIES(m.held[1], "d,-,-"), LIES(m.held[2], "d,-,-");
  if (steps > 8) CHECK(metric(ctx, "steps_replayed") + 6 >= steps);
  for (i = 0; i < PARAMS; ++i) weft_tensor_release(m.p[i]);
  for (i = 0; i < 3; ++i) weft_tensor_release(m.held[i]);
  weft_optimizer_release(opt);
  weft_mesh_release(mesh);
  weft_context_release(ctx);
}

/* The largest relative difference of a loss to one device; `most` 0: the same bits. */
static void losses_agree(const char* platform, const char* plugin, way first, int steps, double most) {
  float one[STEPS], many[STEPS];
  way how;
  int i;
  train(platform, plugin, ONE, steps, one);
  CHECK(one[0] > 2 && one[steps - 1] < one[0]);
  for (how = first; how < WAYS; ++how) {
    double worst = 0;
    train(platform, plugin, how, steps, many);
    for (i = 0; i < steps; ++i) worst = fmax(worst, fabs((double)many[i] - one[i]) / fabs((double)one[i]));
    printf("%s, %s: %d losses, the largest difference to one device %.2g\n", platform, NAMES[how], steps, worst);
    if (!(worst <= most)) printf("  last %.9g and %.9g\n", (double)many[steps - 1], (double)one[steps - 1]), ++g_failures;
  }
}

/* --- Places of values ------------------------------------------------------------------------------------------------------ */

static void parts_and_copies(const char* platform, const char* plugin) {
  weft_context* ctx = context_of(platform, plugin);
  weft_mesh *mesh = NULL, *same = NULL, *line = NULL, *of = NULL;
  weft_tensor *x = NULL, *y = NULL, *z = NULL, *back = NULL, *cut = NULL;
  weft_device* device = NULL;
  weft_blob* text = NULL;
  const char* axes = NULL;
  const char* name = NULL;
  float host[4][6], read[4][6];
  int64_t box[4];
  size_t count = 0;
  int i, j;
  for (i = 0; i < 4; ++i) {
    for (j = 0; j < 6; ++j) host[i][j] = (float)(10 * i + j);
  }
  MUST(weft_mesh_create(ctx, NULL, 0, "a=2,b=2", WEFT_STRLEN, &mesh));
  MUST(weft_mesh_create(ctx, NULL, 0, "a=2,b=2", WEFT_STRLEN, &same));
  MUST(weft_mesh_create(ctx, NULL, 0, "n=4", WEFT_STRLEN, &line));
  MUST(weft_mesh_axes(mesh, &axes, NULL));
  CHECK_TEXT(axes, "a=2,b=2");
  MUST(weft_mesh_size(mesh, &count));
  CHECK_EQUAL(count, 4);
  MUST(weft_mesh_device_at(mesh, 2, &device));
  MUST(weft_device_name(device, &name, NULL));
  CHECK(strchr(name, '2') != NULL);
  weft_device_release(device);
  FAILS_WITH(weft_mesh_device_at(mesh, 4, &device), WEFT_OUT_OF_RANGE, "device 4 of a mesh that has 4");
  weft_mesh_retain(same);
  weft_mesh_release(same);
  MUST(weft_tensor_from_host_sharded(mesh, "a,b", WEFT_STRLEN, WEFT_F32, DIMS(4, 6), host, sizeof host, &x));
  MUST(weft_tensor_mesh(x, &of));
  CHECK(of != NULL);
  weft_mesh_release(of);
  LIES(x, "a,b");
  MUST(weft_tensor_shard_count(x, &count));
  CHECK_EQUAL(count, 4);
  MUST(weft_tensor_shard_at(x, 3, box, 4, &device));
  CHECK(box[0] == 2 && box[1] == 3 && box[2] == 2 && box[3] == 3);
  MUST(weft_device_name(device, &name, NULL));
  CHECK(strchr(name, '3') != NULL);
  weft_device_release(device);
  memset(read, 0, sizeof read);
  MUST(weft_tensor_to_host(x, read, sizeof read));
  CHECK(memcmp(host, read, sizeof host) == 0);
  /* Computed from it, and cut anew; all of it is read on the host. */
  MUST(weft_add(ctx, x, x, &y));
  MUST(weft_shard(y, "b,-", WEFT_STRLEN, &z));
  MUST(weft_tensor_to_host(z, read, sizeof read));
  CHECK(read[3][5] == 2 * host[3][5] && read[1][2] == 2 * host[1][2]);
  LIES(y, "a,b");
  LIES(z, "b,-");
  MUST(weft_tensor_sharding_picture(z, &text));
  CHECK(strstr(weft_blob_data(text), "| 0 2 |") != NULL && strstr(weft_blob_data(text), "| 1 3 |") != NULL);
  weft_blob_release(text);
  /* To another mesh, to one device, and back. */
  MUST(weft_tensor_copy_to_mesh(z, line, "n,-", WEFT_STRLEN, &cut));
  LIES(cut, "n,-");
  MUST(weft_tensor_copy_to(cut, NULL, &back));
  FAILS_WITH(weft_tensor_mesh(back, &of), WEFT_NOT_FOUND, "the tensor f32[4, 6] is on ");
  LIES(back, "-,-");
  MUST(weft_tensor_to_host(back, read, sizeof read));
  CHECK(read[3][5] == 2 * host[3][5]);
  /* What cannot be. */
  weft_tensor_release(y), y = NULL;
  FAILS_WITH(weft_add(ctx, x, back, &y), WEFT_INVALID_ARGUMENT, "the mesh a=2,b=2 of ");
  FAILS_WITH(weft_add(ctx, x, cut, &y), WEFT_INVALID_ARGUMENT, "the mesh n=4 of ");
  FAILS_WITH(weft_shard(x, "a,c", WEFT_STRLEN, &y), WEFT_INVALID_ARGUMENT, "the sharding 'a,c' names the axis 'c'; the mesh has a, b");
  FAILS_WITH(weft_shard(x, "a,a", WEFT_STRLEN, &y), WEFT_INVALID_ARGUMENT, "uses the axis a twice");
  FAILS_WITH(weft_shard(x, "a", WEFT_STRLEN, &y), WEFT_INVALID_ARGUMENT, "the sharding 'a' has 1 words for 2 dimensions");
  FAILS_WITH(weft_shard(x, "a,,b", WEFT_STRLEN, &y), WEFT_INVALID_ARGUMENT, "has 3 words for 2 dimensions");
  FAILS_WITH(weft_shard(x, "a+,b", WEFT_STRLEN, &y), WEFT_INVALID_ARGUMENT, "has a word 'a+'");
  FAILS_WITH(weft_shard(x, "-,a+b", WEFT_STRLEN, &y), WEFT_INVALID_ARGUMENT, "cuts dimension 1 of size 6 into 4 pieces, which do not come out even");
  FAILS_WITH(weft_shard(back, "-,-", WEFT_STRLEN, &y), WEFT_INVALID_ARGUMENT, "is for a mesh; the tensor f32[4, 6] is on ");
  FAILS_WITH(weft_tensor_from_host_sharded(mesh, "a,b", WEFT_STRLEN, WEFT_F32, DIMS(3, 6), host, 72, &y), WEFT_INVALID_ARGUMENT, "cuts dimension 0 of size 3");
  FAILS_WITH(weft_tensor_shard_at(x, 4, box, 4, &device), WEFT_OUT_OF_RANGE, "part 4 of a value that has 4");
  FAILS_WITH(weft_tensor_shard_at(x, 0, box, 3, &device), WEFT_OUT_OF_RANGE, "capacity is 3; a part of a tensor of rank 2 takes 4 numbers");
  CHECK(y == NULL);
  weft_tensor_release(x), weft_tensor_release(z), weft_tensor_release(back), weft_tensor_release(cut);
  weft_mesh_release(mesh), weft_mesh_release(same), weft_mesh_release(line);
  weft_context_release(ctx);
}

static void refused_meshes(const char* platform, const char* plugin) {
  weft_context *ctx = context_of(platform, plugin), *other = context_of(platform, plugin);
  weft_device *d[4], *foreign = NULL;
  weft_mesh *mesh = NULL, *turned = NULL;
  weft_tensor *x = NULL, *y = NULL;
  weft_blob* text = NULL;
  float read[4];
  size_t i;
  for (i = 0; i < 4; ++i) MUST(weft_device_at(ctx, i, &d[i]));
  MUST(weft_device_at(other, 0, &foreign));
  FAILS_WITH(weft_mesh_create(ctx, NULL, 0, "a=1000", WEFT_STRLEN, &mesh), WEFT_NOT_FOUND, "the mesh is of 1000 devices; the context has 4");
  FAILS_WITH(weft_mesh_create(ctx, d, 4, "a=3", WEFT_STRLEN, &mesh), WEFT_INVALID_ARGUMENT, "the mesh a=3 is of 3 devices; there are 4");
  FAILS_WITH(weft_mesh_create(ctx, d, 4, "a", WEFT_STRLEN, &mesh), WEFT_INVALID_ARGUMENT, "has an axis 'a'; it must be a name, '=' and a size");
  FAILS_WITH(weft_mesh_create(ctx, d, 4, "a=2,a=2", WEFT_STRLEN, &mesh), WEFT_INVALID_ARGUMENT, "two axes of the mesh are called a");
  FAILS_WITH(weft_mesh_create(ctx, d, 4, "a=0", WEFT_STRLEN, &mesh), WEFT_INVALID_ARGUMENT, "the mesh's axis a has size 0");
  FAILS_WITH(weft_mesh_create(ctx, d, 4, "", 0, &mesh), WEFT_INVALID_ARGUMENT, "the mesh '' has an axis ''");
  FAILS_WITH(weft_mesh_create(ctx, &foreign, 1, "a=1", WEFT_STRLEN, &mesh), WEFT_INVALID_ARGUMENT, "belongs to another context");
  FAILS_WITH(weft_mesh_create(ctx, (weft_device* const[]){d[0], d[0]}, 2, "a=2", WEFT_STRLEN, &mesh), WEFT_INVALID_ARGUMENT, "is twice in the mesh");
  /* Devices in another order: the second half comes first. */
  MUST(weft_mesh_create(ctx, (weft_device* const[]){d[2], d[3], d[0], d[1]}, 4, "a=4", WEFT_STRLEN, &turned));
  MUST(weft_context_set_mesh(ctx, turned));
  FAILS_WITH(weft_context_set_mesh(other, turned), WEFT_INVALID_ARGUMENT, "belongs to another context");
  x = f32(ctx, DIMS(4), (const float[]){1, 2, 3, 4});
  MUST(weft_shard(x, "a", WEFT_STRLEN, &y));
  MUST(weft_tensor_sharding_picture(y, &text));
  CHECK(strstr(weft_blob_data(text), "| 2 | 3 | 0 | 1 |") != NULL);
  weft_blob_release(text);
  MUST(weft_tensor_to_host(y, read, sizeof read));
  CHECK(read[2] == 3);
  MUST(weft_context_set_mesh(ctx, NULL));
  weft_tensor_release(x), weft_tensor_release(y), weft_mesh_release(turned);
  for (i = 0; i < 4; ++i) weft_device_release(d[i]);
  weft_device_release(foreign);
  weft_context_release(ctx), weft_context_release(other);
}

/* --- Functions of each device --------------------------------------------------------------------------------------------- */

enum { ROWS = 4, COLUMNS = 8 };

typedef weft_error* (*share_fn)(weft_context* body, weft_tensor* x, weft_tensor** out);

static weft_error* sums(weft_context* b, weft_tensor* x, weft_tensor** out) { return weft_all_reduce(b, x, "a", WEFT_STRLEN, WEFT_COLLECTIVE_SUM, out); }
static weft_error* sums_of_all(weft_context* b, weft_tensor* x, weft_tensor** out) { return weft_all_reduce(b, x, "a+b", WEFT_STRLEN, WEFT_COLLECTIVE_SUM, out); }
static weft_error* largest(weft_context* b, weft_tensor* x, weft_tensor** out) { return weft_all_reduce(b, x, "b", WEFT_STRLEN, WEFT_COLLECTIVE_MAX, out); }
static weft_error* gathers(weft_context* b, weft_tensor* x, weft_tensor** out) { return weft_all_gather(b, x, "a", WEFT_STRLEN, 0, out); }
static weft_error* scatters(weft_context* b, weft_tensor* x, weft_tensor** out) { return weft_reduce_scatter(b, x, "b", WEFT_STRLEN, -1, WEFT_COLLECTIVE_SUM, out); }
static weft_error* turns(weft_context* b, weft_tensor* x, weft_tensor** out) { return weft_all_to_all(b, x, "b", WEFT_STRLEN, 1, 0, out); }
static weft_error* sends(weft_context* b, weft_tensor* x, weft_tensor** out) {
  const int64_t pairs[] = {0, 1};
  return weft_collective_permute(b, x, "b", WEFT_STRLEN, pairs, 2, out);
}
/* x + 10 a + b */
static weft_error* places(weft_context* b, weft_tensor* x, weft_tensor** out) {
  weft_tensor *i = NULL, *j = NULL, *ten = scalar(b, 10), *fi = NULL, *fj = NULL, *far = NULL, *sum = NULL;
  MUST(weft_axis_index(b, "a", WEFT_STRLEN, &i));
  MUST(weft_axis_index(b, "b", WEFT_STRLEN, &j));
  MUST(weft_convert(b, i, WEFT_F32, &fi));
  MUST(weft_convert(b, j, WEFT_F32, &fj));
  MUST(weft_mul(b, fi, ten, &far));
  MUST(weft_add(b, far, fj, &sum));
  MUST(weft_add(b, x, sum, out));
  weft_tensor_release(i), weft_tensor_release(j), weft_tensor_release(ten), weft_tensor_release(fi), weft_tensor_release(fj);
  weft_tensor_release(far), weft_tensor_release(sum);
  return NULL;
}

/* The function of one input of this shape. */
static weft_function* function_of(weft_context* ctx, share_fn share, int64_t rows, int64_t columns) {
  weft_tensor_info input = {.dtype = WEFT_F32, .rank = 2, .dims = {rows, columns}};
  weft_context* body = NULL;
  weft_tensor *x = NULL, *y = NULL;
  weft_function* function = NULL;
  MUST(weft_function_begin(ctx, "share", WEFT_STRLEN, &input, 1, &body, &x));
  MUST(share(body, x, &y));
  MUST(weft_function_end(body, &y, 1, &function));
  weft_tensor_release(x), weft_tensor_release(y);
  return function;
}

/* x [4, 8] with both dimensions cut, 2 by 2; wanted is written out by hand from the parts x[a][b] of [2, 4]. */
static void collective(weft_context* ctx, weft_mesh* mesh, share_fn share, const char* out_spec, float (*wanted)(int, int, float (*)[COLUMNS]),
                       int rows, int columns, int line) {
  float host[ROWS][COLUMNS], got[2 * ROWS][2 * COLUMNS], grad[ROWS][COLUMNS];
  weft_tensor *x = NULL, *y = NULL, *w = NULL, *p = NULL, *loss = NULL, *g = NULL;
  weft_function* function = function_of(ctx, share, ROWS / 2, COLUMNS / 2);
  size_t made = 0;
  int i, j, k, l;
  for (i = 0; i < ROWS; ++i) {
    for (j = 0; j < COLUMNS; ++j) host[i][j] = (float)((i * COLUMNS + j) * 5 % 37); /* all different */
  }
  MUST(weft_tensor_from_host_sharded(mesh, "a,b", WEFT_STRLEN, WEFT_F32, DIMS(ROWS, COLUMNS), host, sizeof host, &x));
  MUST(weft_tensor_require_grad(x, 1));
  MUST(weft_per_device(ctx, function, "a,b", WEFT_STRLEN, out_spec, WEFT_STRLEN, &x, 1, &y, 1, &made));
  CHECK_EQUAL(made, 1);
  MUST(weft_tensor_to_host(y, got, sizeof(float) * (size_t)(rows * columns)));
  for (i = 0; i < rows; ++i) {
    for (j = 0; j < columns; ++j) {
      const float have = ((const float*)got)[i * columns + j], want = wanted(i, j, host);
      if (have != want) printf("%s:%d: [%d, %d] is %g, not %g\n", __FILE__, line, i, j, (double)have, (double)want), ++g_failures;
    }
  }
  /* The gradient of sum(w y) from how y answers when one element of x moves a little: y is linear, or the largest. */
  {
    float weights[2 * ROWS * 2 * COLUMNS];
    for (i = 0; i < rows * columns; ++i) weights[i] = (float)(1 + i % 5);
    MUST(weft_tensor_from_host_sharded(mesh, "-,-", WEFT_STRLEN, WEFT_F32, DIMS(rows, columns), weights, sizeof(float) * (size_t)(rows * columns), &w));
    MUST(weft_mul(ctx, w, y, &p));
    MUST(weft_sum(ctx, p, NULL, &loss));
    MUST(weft_grad(ctx, loss, NULL, &x, 1, &g));
    MUST(weft_tensor_to_host(g, grad, sizeof grad));
    for (i = 0; i < ROWS; ++i) {
      for (j = 0; j < COLUMNS; ++j) {
        double slope = 0;
        float moved[ROWS][COLUMNS];
        memcpy(moved, host, sizeof moved);
        moved[i][j] += 0.25f;
        for (k = 0; k < rows; ++k) {
          for (l = 0; l < columns; ++l) slope += weights[k * columns + l] * 4 * (double)(wanted(k, l, moved) - wanted(k, l, host));
        }
        if (fabs(slope - grad[i][j]) > 1e-4) printf("%s:%d: the slope of [%d, %d] is %g, not %g\n", __FILE__, line, i, j, (double)grad[i][j], slope), ++g_failures;
      }
    }
  }
  weft_tensor_release(x), weft_tensor_release(y), weft_tensor_release(w), weft_tensor_release(p), weft_tensor_release(loss), weft_tensor_release(g);
  weft_function_release(function);
}
#define COLLECTIVE(share, spec, wanted, rows, columns) collective(ctx, mesh, (share), (spec), (wanted), (rows), (columns), __LINE__)

/* Part [a][b] of x has rows 2a, 2a + 1 and columns 4b to 4b + 3. */
static float of_sums(int i, int j, float (*x)[COLUMNS]) { return x[i % 2][j] + x[i % 2 + 2][j]; }
static float of_sums_of_all(int i, int j, float (*x)[COLUMNS]) { return x[i][j] + x[i][j + 4] + x[i + 2][j] + x[i + 2][j + 4]; }
static float of_largest(int i, int j, float (*x)[COLUMNS]) { return fmaxf(x[i][j], x[i][j + 4]); }
static float of_gathers(int i, int j, float (*x)[COLUMNS]) { return x[i][j]; }
static float of_scatters(int i, int j, float (*x)[COLUMNS]) { return x[i][j] + x[i][j + 4]; }
/* Device b has columns 2b, 2b + 1 of each part: from device 0, then from device 1. */
static float of_turns(int i, int j, float (*x)[COLUMNS]) {
  const int a = i / 4, from = i / 2 % 2, b = j / 2;
  return x[2 * a + i % 2][4 * from + 2 * b + j % 2];
}
static float of_sends(int i, int j, float (*x)[COLUMNS]) { return j < 4 ? 0 : x[i][j - 4]; }
static float of_places(int i, int j, float (*x)[COLUMNS]) { return x[i][j] + (float)(10 * (i / 2) + j / 4); }

static weft_error* cut(weft_context* b, weft_tensor* x, weft_tensor** out) {
  (void)b;
  return weft_shard(x, "a,-", WEFT_STRLEN, out);
}

static weft_error* more_alone(weft_context* b, weft_tensor* x, weft_tensor** out) { return weft_add(b, x, x, out); }

/* A loop in the body, with a collective in each run: x <- x + the sum of x over the axis, three times. */
static weft_error* more(weft_context* b, weft_tensor* x, weft_tensor** out) {
  weft_tensor* sum = NULL;
  MUST(weft_all_reduce(b, x, "b", WEFT_STRLEN, WEFT_COLLECTIVE_SUM, &sum));
  MUST(weft_add(b, x, sum, out));
  weft_tensor_release(sum);
  return NULL;
}
static weft_error* loops(weft_context* b, weft_tensor* x, weft_tensor** out) {
  weft_function* body = function_of(b, more, ROWS / 2, COLUMNS / 2);
  weft_scan_options options = WEFT_SCAN_OPTIONS_INIT;
  size_t made = 0;
  options.length = 3;
  MUST(weft_scan(b, body, &x, 1, NULL, 0, &options, out, 1, &made));
  weft_function_release(body);
  return NULL;
}
/* [u, v] to [2u + v, u + 2v], three times: [14u + 13v, 13u + 14v]. */
static float of_loops(int i, int j, float (*x)[COLUMNS]) {
  const float own = x[i][j], other = x[i][(j + 4) % 8];
  return 14 * own + 13 * other;
}

/* Each device adds in a loop and in a branch that not all take: x + 3 b, and 100 a more where a is 1. */
static weft_error* adds_place(weft_context* b, weft_tensor* x, const char* axis, double factor, weft_tensor** out) {
  weft_tensor *i = NULL, *f = NULL, *far = NULL, *by = scalar(b, factor);
  MUST(weft_axis_index(b, axis, WEFT_STRLEN, &i));
  MUST(weft_convert(b, i, WEFT_F32, &f));
  MUST(weft_mul(b, f, by, &far));
  MUST(weft_add(b, x, far, out));
  weft_tensor_release(i), weft_tensor_release(f), weft_tensor_release(far), weft_tensor_release(by);
  return NULL;
}
static weft_error* adds_b(weft_context* b, weft_tensor* x, weft_tensor** out) { return adds_place(b, x, "b", 1, out); }
static weft_error* adds_a(weft_context* b, weft_tensor* x, weft_tensor** out) { return adds_place(b, x, "a", 100, out); }
static weft_error* as_it_is(weft_context* b, weft_tensor* x, weft_tensor** out) {
  weft_tensor* zero = scalar(b, 0);
  MUST(weft_add(b, x, zero, out));
  weft_tensor_release(zero);
  return NULL;
}
static weft_error* places_inside(weft_context* b, weft_tensor* x, weft_tensor** out) {
  weft_function *body = function_of(b, adds_b, ROWS / 2, COLUMNS / 2), *far = function_of(b, adds_a, ROWS / 2, COLUMNS / 2),
                *near = function_of(b, as_it_is, ROWS / 2, COLUMNS / 2);
  weft_scan_options options = WEFT_SCAN_OPTIONS_INIT;
  weft_tensor *looped = NULL, *index = NULL, *i = NULL, *one = scalar(b, 1), *second = NULL;
  size_t made = 0;
  options.length = 3;
  MUST(weft_scan(b, body, &x, 1, NULL, 0, &options, &looped, 1, &made));
  MUST(weft_axis_index(b, "a", WEFT_STRLEN, &index));
  MUST(weft_convert(b, index, WEFT_F32, &i));
  MUST(weft_eq(b, i, one, &second));
  MUST(weft_if(b, second, far, near, &looped, 1, out, 1, &made));
  weft_tensor_release(looped), weft_tensor_release(index), weft_tensor_release(i), weft_tensor_release(one), weft_tensor_release(second);
  weft_function_release(body), weft_function_release(far), weft_function_release(near);
  return NULL;
}
static float of_places_inside(int i, int j, float (*x)[COLUMNS]) { return x[i][j] + (float)(100 * (i / 2) + 3 * (j / 4)); }

/* vmap of a function that each device runs: each example beside the function itself. */
static void maps_examples(weft_context* ctx, weft_mesh* mesh) {
  enum { EXAMPLES = 3 };
  weft_tensor_info input = {.dtype = WEFT_F32, .rank = 2, .dims = {ROWS, COLUMNS}};
  weft_context* body = NULL;
  weft_function *share = NULL, *whole = NULL, *all = NULL;
  weft_tensor *x = NULL, *y = NULL, *many = NULL, *one = NULL;
  float host[EXAMPLES][ROWS][COLUMNS], mapped[EXAMPLES][ROWS][4], alone[ROWS][4];
  size_t made = 0;
  int k, i, j;
  for (k = 0; k < EXAMPLES; ++k) {
    for (i = 0; i < ROWS; ++i) {
      for (j = 0; j < COLUMNS; ++j) host[k][i][j] = (float)(k * 100 + i * 10 + j);
    }
  }
  MUST(weft_function_begin(ctx, "whole", WEFT_STRLEN, &input, 1, &body, &x));
  share = function_of(body, scatters, ROWS / 2, COLUMNS / 2);
  MUST(weft_per_device(body, share, "a,b", WEFT_STRLEN, "a,b", WEFT_STRLEN, &x, 1, &y, 1, &made));
  MUST(weft_function_end(body, &y, 1, &whole));
  weft_tensor_release(x), weft_tensor_release(y), weft_function_release(share);
  MUST(weft_function_vmap(ctx, whole, EXAMPLES, NULL, 0, NULL, 0, NULL, &all));
  MUST(weft_tensor_from_host_sharded(mesh, "-,-,-", WEFT_STRLEN, WEFT_F32, DIMS(EXAMPLES, ROWS, COLUMNS), host, sizeof host, &many));
  MUST(weft_function_call(ctx, all, &many, 1, &y, 1, &made));
  MUST(weft_tensor_to_host(y, mapped, sizeof mapped));
  weft_tensor_release(y), weft_tensor_release(many);
  for (k = 0; k < EXAMPLES; ++k) {
    MUST(weft_tensor_from_host_sharded(mesh, "-,-", WEFT_STRLEN, WEFT_F32, DIMS(ROWS, COLUMNS), host[k], sizeof host[k], &one));
    MUST(weft_function_call(ctx, whole, &one, 1, &y, 1, &made));
    MUST(weft_tensor_to_host(y, alone, sizeof alone));
    CHECK(memcmp(alone, mapped[k], sizeof alone) == 0);
    CHECK(alone[1][2] == of_scatters(1, 2, host[k]));
    weft_tensor_release(y), weft_tensor_release(one);
  }
  weft_function_release(whole), weft_function_release(all);
}

/* Each is refused where it is recorded, before anything runs. */
static void refused_collectives(weft_context* ctx) {
  const weft_tensor_info input = {.dtype = WEFT_F32, .rank = 2, .dims = {2, 3}};
  weft_context* b = NULL;
  weft_tensor *x = NULL, *y = NULL;
  MUST(weft_function_begin(ctx, "share", WEFT_STRLEN, &input, 1, &b, &x));
  FAILS_WITH(weft_all_reduce(b, x, "z", WEFT_STRLEN, WEFT_COLLECTIVE_SUM, &y), WEFT_INVALID_ARGUMENT, "names the axis 'z'; the mesh has a, b");
  FAILS_WITH(weft_all_reduce(b, x, "", 0, WEFT_COLLECTIVE_SUM, &y), WEFT_INVALID_ARGUMENT, "the sharding '' has 0 words for 1 dimensions");
  FAILS_WITH(weft_all_reduce(b, x, "a+a", WEFT_STRLEN, WEFT_COLLECTIVE_SUM, &y), WEFT_INVALID_ARGUMENT, "uses the axis a twice");
  FAILS_WITH(weft_all_reduce(b, x, "a", WEFT_STRLEN, (weft_collective_reducer)77, &y), WEFT_INVALID_ARGUMENT, "reducer is 77");
  FAILS_WITH(weft_collective_permute(b, x, "a", WEFT_STRLEN, DIMS(0, 5), &y), WEFT_INVALID_ARGUMENT, "pairs[1] is 5; the axis has 2 places");
  FAILS_WITH(weft_collective_permute(b, x, "a", WEFT_STRLEN, DIMS(-1, 0), &y), WEFT_INVALID_ARGUMENT, "pairs[0] is -1; the axis has 2 places");
  FAILS_WITH(weft_collective_permute(b, x, "a", WEFT_STRLEN, DIMS(0, 1, 1), &y), WEFT_INVALID_ARGUMENT, "pair_numbers is 3; it must be even");
  FAILS_WITH(weft_collective_permute(b, x, "a", WEFT_STRLEN, DIMS(0, 1, 1, 1), &y), WEFT_INVALID_ARGUMENT, "names process 2 2 times as a target");
  FAILS_WITH(weft_collective_permute(b, x, "a", WEFT_STRLEN, NULL, 2, &y), WEFT_INVALID_ARGUMENT, "pairs is NULL");
  FAILS_WITH(weft_all_gather(b, x, "a", WEFT_STRLEN, 7, &y), WEFT_INVALID_ARGUMENT, "dimension is 7; x is f32[2, 3]");
  FAILS_WITH(weft_reduce_scatter(b, x, "a", WEFT_STRLEN, 1, WEFT_COLLECTIVE_SUM, &y), WEFT_INVALID_ARGUMENT, "has 3 elements, which 2 processes cannot share out evenly");
  FAILS_WITH(weft_all_to_all(b, x, "a", WEFT_STRLEN, 1, 0, &y), WEFT_INVALID_ARGUMENT, "has 3 elements, which 2 processes cannot share out evenly");
  FAILS_WITH(weft_axis_index(b, "a+b", WEFT_STRLEN, &y), WEFT_INVALID_ARGUMENT, "axis names 2 axes; one is expected");
  CHECK(y == NULL);
  weft_tensor_release(x);
  weft_context_release(b);
}

static void each_device(const char* platform, const char* plugin) {
  weft_context* ctx = context_of(platform, plugin);
  weft_mesh* mesh = NULL;
  weft_function* function = NULL;
  weft_tensor *x = NULL, *y = NULL;
  size_t made = 0;
  MUST(weft_mesh_create(ctx, NULL, 0, "a=2,b=2", WEFT_STRLEN, &mesh));
  x = f32(ctx, DIMS(2, 2), (const float[]){1, 2, 3, 4});
  FAILS_WITH(weft_all_reduce(ctx, x, "a", WEFT_STRLEN, WEFT_COLLECTIVE_SUM, &y), WEFT_FAILED_PRECONDITION, "is for the body of a function that weft_per_device runs");
  function = function_of(ctx, more_alone, 2, 2);
  FAILS_WITH(weft_per_device(ctx, function, "a,b", WEFT_STRLEN, "a,b", WEFT_STRLEN, &x, 1, &y, 1, &made), WEFT_INVALID_ARGUMENT, "weft_per_device is for a mesh; this is recorded on ");
  weft_function_release(function);
  weft_tensor_release(x);
  MUST(weft_context_set_mesh(ctx, mesh));
  COLLECTIVE(sums, "-,b", of_sums, 2, COLUMNS);
  COLLECTIVE(sums_of_all, "-,-", of_sums_of_all, 2, 4);
  COLLECTIVE(largest, "a,-", of_largest, ROWS, 4);
  COLLECTIVE(gathers, "-,b", of_gathers, ROWS, COLUMNS);
  COLLECTIVE(scatters, "a,b", of_scatters, ROWS, 4);
  COLLECTIVE(turns, "a,b", of_turns, 2 * ROWS, 4);
  COLLECTIVE(sends, "a,b", of_sends, ROWS, COLUMNS);
  COLLECTIVE(places, "a,b", of_places, ROWS, COLUMNS);
  COLLECTIVE(loops, "a,b", of_loops, ROWS, COLUMNS);
  COLLECTIVE(places_inside, "a,b", of_places_inside, ROWS, COLUMNS);
  maps_examples(ctx, mesh);
  refused_collectives(ctx);
  x = f32(ctx, DIMS(2, 2), (const float[]){1, 2, 3, 4});
  function = function_of(ctx, more_alone, 2, 2);
  FAILS_WITH(weft_per_device(ctx, function, "a,b", WEFT_STRLEN, "a,b", WEFT_STRLEN, &x, 1, &y, 1, &made), WEFT_INVALID_ARGUMENT, "parameter 0 of the function @share is f32[2, 2]; a device's part of the operand f32[2, 2] is f32[1, 1]");
  FAILS_WITH(weft_per_device(ctx, function, "-,-", WEFT_STRLEN, "c,-", WEFT_STRLEN, &x, 1, &y, 1, &made), WEFT_INVALID_ARGUMENT, "names the axis 'c'");
  FAILS_WITH(weft_per_device(ctx, function, "-,-", WEFT_STRLEN, "a,-;b,-", WEFT_STRLEN, &x, 1, &y, 1, &made), WEFT_INVALID_ARGUMENT, "has 1 results; output_specs says how 2 are put together");
  weft_function_release(function);
  function = function_of(ctx, cut, 2, 2);
  FAILS_WITH(weft_per_device(ctx, function, "-,-", WEFT_STRLEN, "-,-", WEFT_STRLEN, &x, 1, &y, 1, &made), WEFT_INVALID_ARGUMENT, "the function @share has a weft_shard; what each device runs has parts");
  weft_function_release(function);
  weft_tensor_release(x), weft_mesh_release(mesh);
  weft_context_release(ctx);
}

/* --- Files ---------------------------------------------------------------------------------------------------------------- */

/* A function keeps the names of axes, and runs on each mesh that has them. */
static void functions_keep_names(void) {
  weft_context* ctx = context_of("cpu", NULL);
  weft_mesh *mesh = NULL, *other = NULL;
  weft_function *function = NULL, *loaded = NULL;
  weft_tensor *x = NULL, *y = NULL;
  size_t made = 0;
  char path[400];
  make_folder();
  snprintf(path, sizeof path, "%s/cut", g_dir);
  MUST(weft_mesh_create(ctx, NULL, 0, "a=2,b=2", WEFT_STRLEN, &mesh));
  MUST(weft_mesh_create(ctx, NULL, 0, "b=4", WEFT_STRLEN, &other));
  MUST(weft_context_set_mesh(ctx, mesh));
  function = function_of(ctx, cut, 4, 2);
  MUST(weft_function_save(function, path, WEFT_STRLEN));
  MUST(weft_function_load(ctx, path, WEFT_STRLEN, &loaded));
  x = f32(ctx, DIMS(4, 2), (const float[]){1, 2, 3, 4, 5, 6, 7, 8});
  MUST(weft_function_call(ctx, loaded, &x, 1, &y, 1, &made));
  LIES(y, "a,-");
  weft_tensor_release(x), weft_tensor_release(y);
  MUST(weft_context_set_mesh(ctx, other));
  x = f32(ctx, DIMS(4, 2), (const float[]){1, 2, 3, 4, 5, 6, 7, 8});
  FAILS_WITH(weft_function_call(ctx, loaded, &x, 1, &y, 1, &made), WEFT_INVALID_ARGUMENT, "the function @share: the sharding 'a,-' names the axis 'a'; the mesh has b");
  FAILS_WITH(weft_function_run(ctx, loaded, &x, 1, NULL, 0, &y, 1, &made), WEFT_INVALID_ARGUMENT, "the function @share: the sharding 'a,-' names the axis 'a'; the mesh has b");
  weft_tensor_release(x), weft_tensor_release(y);
  weft_function_release(function), weft_function_release(loaded);
  weft_mesh_release(mesh), weft_mesh_release(other);
  weft_context_release(ctx);
  remove_folder();
}

/* --- Threads --------------------------------------------------------------------------------------------------------------- */

typedef struct {
  weft_context* ctx;
  weft_mesh* mesh;
  float end;
} half;

/* w <- w + x, on a mesh of its own; other threads run on another one. */
static void* trains(void* data) {
  half* h = data;
  const float ones[4] = {1, 1, 1, 1};
  float w_host[4] = {0};
  weft_tensor *w = NULL, *x = NULL, *next = NULL;
  int i;
  MUST(weft_tensor_from_host_sharded(h->mesh, "a", WEFT_STRLEN, WEFT_F32, DIMS(4), w_host, sizeof w_host, &w));
  MUST(weft_tensor_from_host_sharded(h->mesh, "-", WEFT_STRLEN, WEFT_F32, DIMS(4), ones, sizeof ones, &x));
  for (i = 0; i < 50; ++i) {
    MUST(weft_add(h->ctx, w, x, &next));
    MUST(weft_tensor_assign(w, next));
    weft_tensor_release(next);
    MUST(weft_eval(h->ctx, &w, 1, NULL));
  }
  MUST(weft_tensor_to_host(w, w_host, sizeof w_host));
  h->end = w_host[3];
  weft_tensor_release(w), weft_tensor_release(x);
  return NULL;
}

static void* makes_meshes(void* data) {
  weft_context* ctx = data;
  static const char* const axes[] = {"a=4", "b=2,c=2", "d=1", "e=3", "f=2"};
  int i;
  for (i = 0; i < 40; ++i) {
    weft_mesh* mesh = NULL;
    MUST(weft_mesh_create(ctx, NULL, 0, axes[i % 5], WEFT_STRLEN, &mesh));
    weft_mesh_release(mesh);
  }
  return NULL;
}

static void meshes_at_once(const char* platform, const char* plugin) {
  weft_context* ctx = context_of(platform, plugin);
  weft_device* d[4];
  half halves[2] = {{.ctx = ctx}, {.ctx = ctx}};
  pthread_t threads[3];
  int i;
  for (i = 0; i < 4; ++i) MUST(weft_device_at(ctx, (size_t)i, &d[i]));
  MUST(weft_mesh_create(ctx, d, 2, "a=2", WEFT_STRLEN, &halves[0].mesh));
  MUST(weft_mesh_create(ctx, d + 2, 2, "a=2", WEFT_STRLEN, &halves[1].mesh));
  for (i = 0; i < 2; ++i) CHECK_EQUAL(pthread_create(&threads[i], NULL, trains, &halves[i]), 0);
  CHECK_EQUAL(pthread_create(&threads[2], NULL, makes_meshes, ctx), 0);
  for (i = 0; i < 3; ++i) CHECK_EQUAL(pthread_join(threads[i], NULL), 0);
  for (i = 0; i < 2; ++i) {
    CHECK(halves[i].end == 50);
    weft_mesh_release(halves[i].mesh);
  }
  for (i = 0; i < 4; ++i) weft_device_release(d[i]);
  weft_context_release(ctx);
}

int main(int argc, char** argv) {
  if (argc >= 3) {
    const int few = argc == 4 && strcmp(argv[3], "few") == 0;
    losses_agree(argv[1], argv[2], few ? BOTH : DATA, few ? 10 : STEPS, 1e-5);
    parts_and_copies(argv[1], argv[2]);
    refused_meshes(argv[1], argv[2]);
    each_device(argv[1], argv[2]);
    meshes_at_once(argv[1], argv[2]);
    return g_failures != 0;
  }
  losses_agree("cpu", NULL, DATA, STEPS, 0);
  losses_agree("reference", NULL, DATA, 3, 0);
  parts_and_copies("cpu", NULL);
  parts_and_copies("reference", NULL);
  refused_meshes("cpu", NULL);
  each_device("cpu", NULL);
  each_device("reference", NULL);
  functions_keep_names();
  meshes_at_once("cpu", NULL);
  return g_failures != 0;
}
