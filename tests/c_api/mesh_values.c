/* Values of meshes: put together of parts, read by boxes, given to the caller's own functions, and said in StableHLO texts; and every collective
 * of three types, in groups of two and four, beside what the platform reference computes. On cpu, reference and the tests' own plugin; with
 * arguments PLATFORM PLUGIN on that alone. */
#define _GNU_SOURCE
#include "four_devices.h"

#include <stdint.h>

#include "folder.h"

/* --- Parts and boxes ------------------------------------------------------------------------------------------------------ */

static void parts(weft_context* ctx) {
  weft_mesh* mesh = NULL;
  weft_tensor *part[4] = {NULL}, *whole = NULL, *copies = NULL, *wrong = NULL, *seven = NULL;
  float host[4][6], read[4][6], box[8];
  int i, j;
  MUST(weft_mesh_create(ctx, NULL, 0, "a=2,b=2", WEFT_STRLEN, &mesh));
  /* Part [a][b] is 2 by 3; the elements are 10 row + column of the whole. */
  for (i = 0; i < 4; ++i) {
    float its[2][3];
    for (j = 0; j < 6; ++j) its[j / 3][j % 3] = (float)(10 * (2 * (i / 2) + j / 3) + 3 * (i % 2) + j % 3);
    MUST(weft_tensor_from_host(ctx, NULL, WEFT_F32, DIMS(2, 3), its, sizeof its, &part[i]));
  }
  for (i = 0; i < 4; ++i) {
    for (j = 0; j < 6; ++j) host[i][j] = (float)(10 * i + j);
  }
  MUST(weft_tensor_from_shards(mesh, "a,b", WEFT_STRLEN, part, 4, &whole));
  MUST(weft_tensor_to_host(whole, read, sizeof read));
  CHECK(memcmp(host, read, sizeof host) == 0);
  /* A box of one part, one of two, one of all, one of nothing. */
  memset(box, 0, sizeof box);
  MUST(weft_tensor_to_host_box(whole, (const int64_t[]){2, 3}, (const int64_t[]){1, 2}, 2, box, 8));
  CHECK(box[0] == 23 && box[1] == 24);
  MUST(weft_tensor_to_host_box(whole, (const int64_t[]){3, 1}, (const int64_t[]){1, 4}, 2, box, 16));
  CHECK(box[0] == 31 && box[1] == 32 && box[2] == 33 && box[3] == 34);
  MUST(weft_tensor_to_host_box(whole, (const int64_t[]){1, 2}, (const int64_t[]){2, 2}, 2, box, 16));
  CHECK(box[0] == 12 && box[1] == 13 && box[2] == 22 && box[3] == 23);
  MUST(weft_tensor_to_host_box(whole, (const int64_t[]){4, 6}, (const int64_t[]){0, 0}, 2, NULL, 0));
  /* Copies along b: the first of each counts. */
  MUST(weft_tensor_from_shards(mesh, "a,-", WEFT_STRLEN, part, 4, &copies));
  MUST(weft_tensor_to_host_box(copies, (const int64_t[]){2, 0}, (const int64_t[]){2, 3}, 2, box, 24));
  CHECK(box[0] == 20 && box[5] == 32);
  seven = scalar(ctx, 7);
  MUST(weft_tensor_to_host_box(seven, NULL, NULL, 0, box, 4));
  CHECK(box[0] == 7);
  FAILS_WITH(weft_tensor_to_host_box(whole, (const int64_t[]){3, 0}, (const int64_t[]){2, 1}, 2, box, 8), WEFT_OUT_OF_RANGE,
             "2 elements from 3 on along dimension 0 of a tensor f32[4, 6]");
  FAILS_WITH(weft_tensor_to_host_box(whole, (const int64_t[]){0, 0}, (const int64_t[]){1, 1}, 2, box, 8), WEFT_INVALID_ARGUMENT,
             "the box [1, 1] of a tensor f32[4, 6] has 4 bytes; size is 8");
  FAILS_WITH(weft_tensor_to_host_box(whole, NULL, NULL, 0, box, 4), WEFT_INVALID_ARGUMENT, "rank is 0; the tensor is f32[4, 6]");
  FAILS_WITH(weft_tensor_from_shards(mesh, "a,b", WEFT_STRLEN, part, 3, &wrong), WEFT_INVALID_ARGUMENT, "part_count is 3; the mesh a=2,b=2 of ");
  {
    weft_tensor* unlike[4] = {part[0], part[1], seven, part[3]};
    FAILS_WITH(weft_tensor_from_shards(mesh, "a,b", WEFT_STRLEN, unlike, 4, &wrong), WEFT_INVALID_ARGUMENT, "parts[2] is f32[], parts[0] f32[2, 3]; all parts are alike");
  }
  FAILS_WITH(weft_tensor_from_shards(mesh, "a,c", WEFT_STRLEN, part, 4, &wrong), WEFT_INVALID_ARGUMENT, "names the axis 'c'");
  FAILS_WITH(weft_tensor_from_shards(mesh, "a", WEFT_STRLEN, part, 4, &wrong), WEFT_INVALID_ARGUMENT, "has 1 words for 2 dimensions");
  CHECK(wrong == NULL);
  for (i = 0; i < 4; ++i) weft_tensor_release(part[i]);
  weft_tensor_release(whole), weft_tensor_release(copies), weft_tensor_release(seven), weft_mesh_release(mesh);
}

/* Saved from four devices as one value, loaded on one, and cut over two and four. */
static void checkpoints(weft_context* ctx) {
  weft_mesh *mesh = NULL, *line = NULL;
  weft_device* first[2] = {NULL};
  weft_tree *tree = NULL, *loaded = NULL;
  weft_tensor *x = NULL, *back = NULL, *two = NULL, *four = NULL;
  float host[8][6], read[8][6];
  uint32_t node = 0;
  char path[400];
  int i;
  make_folder();
  snprintf(path, sizeof path, "%s/cut.weft", g_dir);
  for (i = 0; i < 48; ++i) host[i / 6][i % 6] = (float)i;
  MUST(weft_mesh_create(ctx, NULL, 0, "a=2,b=2", WEFT_STRLEN, &mesh));
  for (i = 0; i < 2; ++i) MUST(weft_device_at(ctx, (size_t)i, &first[i]));
  MUST(weft_mesh_create(ctx, first, 2, "n=2", WEFT_STRLEN, &line));
  MUST(weft_tensor_from_host_sharded(mesh, "a,b", WEFT_STRLEN, WEFT_F32, DIMS(8, 6), host, sizeof host, &x));
  MUST(weft_tree_create(&tree));
  MUST(weft_tree_add_tensor(tree, 0, "x", WEFT_STRLEN, x, NULL));
  MUST(weft_checkpoint_save(ctx, path, WEFT_STRLEN, tree, NULL, NULL));
  MUST(weft_checkpoint_load(ctx, path, WEFT_STRLEN, first[0], &loaded));
  MUST(weft_tree_find(loaded, 0, "x", WEFT_STRLEN, &node));
  MUST(weft_tree_get_tensor(loaded, node, &back));
  MUST(weft_tensor_copy_to_mesh(back, line, "-,n", WEFT_STRLEN, &two));
  MUST(weft_tensor_copy_to_mesh(back, mesh, "b,-", WEFT_STRLEN, &four));
  MUST(weft_tensor_to_host(back, read, sizeof read));
  CHECK(memcmp(host, read, sizeof host) == 0);
  MUST(weft_tensor_to_host(two, read, sizeof read));
  CHECK(memcmp(host, read, sizeof host) == 0);
  MUST(weft_tensor_to_host(four, read, sizeof read));
  CHECK(memcmp(host, read, sizeof host) == 0);
  weft_tensor_release(x), weft_tensor_release(back), weft_tensor_release(two), weft_tensor_release(four);
  weft_tree_release(tree), weft_tree_release(loaded);
  for (i = 0; i < 2; ++i) weft_device_release(first[i]);
  weft_mesh_release(mesh), weft_mesh_release(line);
  remove_folder();
}

/* --- The caller's own functions ------------------------------------------------------------------------------------------- */

static double plus_half(double x) { return x + 0.5; }

static void custom(weft_context* ctx) {
  weft_mesh* mesh = NULL;
  weft_tensor *x = NULL, *doubled = NULL, *y = NULL, *z = NULL;
  double host[8], read[8];
  size_t count = 0;
  int i;
  for (i = 0; i < 8; ++i) host[i] = i;
  MUST(weft_mesh_create(ctx, NULL, 0, "a=4", WEFT_STRLEN, &mesh));
  MUST(weft_custom_register(ctx, "plus_half", WEFT_STRLEN, (void*)(uintptr_t)plus_half, "double(double)", WEFT_STRLEN, NULL));
  MUST(weft_tensor_from_host_sharded(mesh, "a", WEFT_STRLEN, WEFT_F64, DIMS(8), host, sizeof host, &x));
  MUST(weft_add(ctx, x, x, &doubled));
  MUST(weft_custom_apply(ctx, "plus_half", WEFT_STRLEN, &doubled, 1, &y, 1, &count));
  MUST(weft_add(ctx, x, y, &z));
  MUST(weft_tensor_to_host(z, read, sizeof read));
  for (i = 0; i < 8; ++i) CHECK(read[i] == 3 * i + 0.5);
  weft_tensor_release(x), weft_tensor_release(doubled), weft_tensor_release(y), weft_tensor_release(z), weft_mesh_release(mesh);
}

/* --- Texts ---------------------------------------------------------------------------------------------------------------- */

#define HEAD(partitions) "module @m attributes {mhlo.num_partitions = " partitions " : i32, mhlo.num_replicas = 1 : i32} {\n"
static const char kCuts[] = HEAD("4")
    "  sdy.mesh @mesh = <[\"a\"=2, \"b\"=2]>\n"
    "  func.func public @main(%x: tensor<4x2xf32> {sdy.sharding = #sdy.sharding<@mesh, [{\"a\"}, {\"b\"}]>}, %y: tensor<4x2xf32>) -> (tensor<4x2xf32> {sdy.sharding = #sdy.sharding<@mesh, [{\"b\"}, {?}]>}, tensor<4x2xf32>) {\n"
    "    %0 = stablehlo.add %x, %y : tensor<4x2xf32>\n"
    "    %1 = sdy.sharding_constraint %0 <@mesh, [{\"a\", \"b\"}, {}]> : tensor<4x2xf32>\n"
    "    return %0, %1 : tensor<4x2xf32>, tensor<4x2xf32>\n  }\n}\n";
static const char kByHand[] = HEAD("4")
    "  sdy.mesh @mesh = <[\"a\"=2, \"b\"=2]>\n"
    "  func.func public @main(%x: tensor<4x2xf32>) -> tensor<2x2xf32> {\n"
    "    %0 = sdy.manual_computation(%x) in_shardings=[<@mesh, [{\"a\"}, {}]>] out_shardings=[<@mesh, [{}, {}]>] manual_axes={\"a\", \"b\"} (%part: tensor<2x2xf32>) {\n"
    "      %1 = \"stablehlo.all_reduce\"(%part) <{replica_groups = dense<[[0, 2], [1, 3]]> : tensor<2x2xi64>, channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, use_global_device_ids}> ({\n"
    "      ^bb0(%p: tensor<f32>, %q: tensor<f32>):\n        %s = stablehlo.add %p, %q : tensor<f32>\n        stablehlo.return %s : tensor<f32>\n"
    "      }) : (tensor<2x2xf32>) -> tensor<2x2xf32>\n      sdy.return %1 : tensor<2x2xf32>\n"
    "    } : (tensor<4x2xf32>) -> tensor<2x2xf32>\n    return %0 : tensor<2x2xf32>\n  }\n}\n";
static const char kBare[] = HEAD("4")
    "  func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n"
    "    %1 = \"stablehlo.all_reduce\"(%x) <{replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>}> ({\n"
    "    ^bb0(%p: tensor<f32>, %q: tensor<f32>):\n      %s = stablehlo.add %p, %q : tensor<f32>\n      stablehlo.return %s : tensor<f32>\n"
    "    }) : (tensor<4xf32>) -> tensor<4xf32>\n    return %1 : tensor<4xf32>\n  }\n}\n";
static const char kTwo[] = HEAD("2") "  func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n    return %x : tensor<4xf32>\n  }\n}\n";

static void texts(weft_context* ctx) {
  weft_mesh *mesh = NULL, *other = NULL;
  weft_function *cuts = NULL, *by_hand = NULL, *dropped = NULL, *wrong = NULL;
  weft_tensor *in[2] = {NULL}, *out[2] = {NULL};
  const float host[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  float read[8];
  size_t made = 0;
  int i;
  MUST(weft_mesh_create(ctx, NULL, 0, "a=2,b=2", WEFT_STRLEN, &mesh));
  MUST(weft_mesh_create(ctx, NULL, 0, "c=4", WEFT_STRLEN, &other));
  /* Without a mesh, and on one without their axes, shardings say nothing. */
  MUST(weft_function_from_stablehlo(ctx, kCuts, WEFT_STRLEN, &dropped));
  weft_function_release(dropped);
  FAILS_WITH(weft_function_from_stablehlo(ctx, kByHand, WEFT_STRLEN, &wrong), WEFT_INVALID_ARGUMENT, "replica_groups names process 2; a program has one");
  MUST(weft_context_set_mesh(ctx, other));
  MUST(weft_function_from_stablehlo(ctx, kCuts, WEFT_STRLEN, &dropped));
  weft_function_release(dropped);
  MUST(weft_context_set_mesh(ctx, mesh));
  FAILS_WITH(weft_function_from_stablehlo(ctx, kTwo, WEFT_STRLEN, &wrong), WEFT_INVALID_ARGUMENT, "the program is of 2 partitions; the mesh a=2,b=2 of ");
  FAILS_WITH(weft_function_from_stablehlo(ctx, kBare, WEFT_STRLEN, &wrong), WEFT_UNIMPLEMENTED, "has a collective outside of sdy.manual_computation");
  MUST(weft_function_from_stablehlo(ctx, kCuts, WEFT_STRLEN, &cuts));
  for (i = 0; i < 2; ++i) MUST(weft_tensor_from_host(ctx, NULL, WEFT_F32, DIMS(4, 2), host, sizeof host, &in[i]));
  MUST(weft_function_call(ctx, cuts, in, 2, out, 2, &made));
  CHECK_EQUAL(made, 2);
  MUST(weft_sync(ctx, NULL, NULL));
  LIES(out[0], "b,-");
  LIES(out[1], "a+b,-");
  for (i = 0; i < 2; ++i) {
    MUST(weft_tensor_to_host(out[i], read, sizeof read));
    CHECK(read[0] == 2 && read[7] == 16);
    weft_tensor_release(out[i]);
  }
  /* Rows 0 and 1 of part 0, and of part 1. */
  MUST(weft_function_from_stablehlo(ctx, kByHand, WEFT_STRLEN, &by_hand));
  MUST(weft_function_call(ctx, by_hand, in, 1, out, 1, &made));
  MUST(weft_tensor_to_host(out[0], read, 16));
  CHECK(read[0] == 6 && read[1] == 8 && read[2] == 10 && read[3] == 12);
  weft_tensor_release(out[0]), weft_tensor_release(in[0]), weft_tensor_release(in[1]);
  weft_function_release(cuts), weft_function_release(by_hand);
  MUST(weft_context_set_mesh(ctx, NULL));
  weft_mesh_release(mesh), weft_mesh_release(other);
}

/* --- Collectives: types and groups ---------------------------------------------------------------------------------------- */

enum { ROWS = 8, COLUMNS = 8, KINDS = 7 };
static const char* const KIND_NAMES[KINDS] = {"all_reduce sum", "all_reduce max", "all_reduce and", "all_gather", "reduce_scatter", "all_to_all", "collective_permute"};
static const char* const OUT_SPECS[KINDS] = {"-,-", "-,-", "-,-", "-,-", "AXES,-", "AXES,-", "AXES,-"};

static weft_error* talk(weft_context* b, int kind, const char* axes, weft_tensor* x, weft_tensor** out) {
  const int64_t pairs[] = {0, 1, 1, 0};
  switch (kind) {
    case 0: return weft_all_reduce(b, x, axes, WEFT_STRLEN, WEFT_COLLECTIVE_SUM, out);
    case 1: return weft_all_reduce(b, x, axes, WEFT_STRLEN, WEFT_COLLECTIVE_MAX, out);
    case 2: return weft_all_reduce(b, x, axes, WEFT_STRLEN, WEFT_COLLECTIVE_AND, out);
    case 3: return weft_all_gather(b, x, axes, WEFT_STRLEN, 0, out);
    case 4: return weft_reduce_scatter(b, x, axes, WEFT_STRLEN, 1, WEFT_COLLECTIVE_SUM, out);
    case 5: return weft_all_to_all(b, x, axes, WEFT_STRLEN, 1, 0, out);
    default: return weft_collective_permute(b, x, "a", WEFT_STRLEN, pairs, 4, out);
  }
}

/* The result as doubles, and for floats the gradient of the sum of its squares. Returns the number of elements, 0 where it is not defined. */
static int run(weft_context* ctx, weft_mesh* mesh, int kind, weft_dtype dtype, const char* axes, int places, double* values, double* grads) {
  weft_tensor_info input = {.dtype = dtype, .rank = 2, .dims = {ROWS / places, COLUMNS}};
  weft_context* body = NULL;
  weft_function* function = NULL;
  weft_tensor *f = NULL, *x = NULL, *px = NULL, *py = NULL, *y = NULL, *wide = NULL, *square = NULL, *loss = NULL, *g = NULL, *gw = NULL;
  int64_t dims[2] = {0};
  char in_spec[16], out_spec[16];
  float host[ROWS * COLUMNS], read[4 * ROWS * COLUMNS];
  size_t made = 0;
  int i, count;
  for (i = 0; i < ROWS * COLUMNS; ++i) host[i] = dtype == WEFT_BOOL ? (float)(i * 5 % 7 > 1) : (float)(i * 11 % 29 - 9);
  snprintf(in_spec, sizeof in_spec, "%s,-", axes);
  snprintf(out_spec, sizeof out_spec, "%s%s", strncmp(OUT_SPECS[kind], "AXES", 4) == 0 ? axes : "-", ",-");
  if (kind == 3) snprintf(out_spec, sizeof out_spec, "-,-");
  MUST(weft_function_begin(ctx, "talks", WEFT_STRLEN, &input, 1, &body, &px));
  if (talk(body, kind, axes, px, &py) != NULL) exit(1);
  MUST(weft_function_end(body, &py, 1, &function));
  weft_context_release(body);
  MUST(weft_tensor_from_host_sharded(mesh, in_spec, WEFT_STRLEN, WEFT_F32, DIMS(ROWS, COLUMNS), host, sizeof host, &f));
  MUST(weft_convert(ctx, f, dtype, &x));
  if (grads != NULL) MUST(weft_tensor_require_grad(x, 1));
  MUST(weft_per_device(ctx, function, in_spec, WEFT_STRLEN, out_spec, WEFT_STRLEN, &x, 1, &y, 1, &made));
  MUST(weft_tensor_dims(y, dims, 2, &made));
  count = (int)(dims[0] * dims[1]);
  MUST(weft_convert(ctx, y, WEFT_F32, &wide));
  if (grads != NULL) {
    MUST(weft_mul(ctx, wide, wide, &square));
    MUST(weft_sum(ctx, square, NULL, &loss));
    MUST(weft_grad(ctx, loss, NULL, &x, 1, &g));
    MUST(weft_convert(ctx, g, WEFT_F32, &gw));
    MUST(weft_tensor_to_host(gw, host, sizeof host));
    for (i = 0; i < ROWS * COLUMNS; ++i) grads[i] = (double)host[i];
  }
  MUST(weft_tensor_to_host(wide, read, sizeof(float) * (size_t)count));
  for (i = 0; i < count; ++i) values[i] = (double)read[i];
  weft_tensor_release(f), weft_tensor_release(x), weft_tensor_release(px), weft_tensor_release(py), weft_tensor_release(y), weft_tensor_release(wide);
  weft_tensor_release(square), weft_tensor_release(loss), weft_tensor_release(g), weft_tensor_release(gw);
  weft_function_release(function);
  return count;
}

static void collectives(weft_context* ctx, weft_context* oracle, const char* platform) {
  static const struct {
    const char *mesh, *axes;
    int places;
  } GROUPS[] = {{"a=2,b=2", "a", 2}, {"a=2,b=2", "b", 2}, {"a=4", "a", 4}};
  static const weft_dtype TYPES[] = {WEFT_F32, WEFT_BF16, WEFT_I32, WEFT_BOOL};
  static double have[4 * ROWS * COLUMNS], want[4 * ROWS * COLUMNS], slopes[ROWS * COLUMNS], wanted[ROWS * COLUMNS];
  int group, t, kind, i, cases = 0;
  for (group = 0; group < 3; ++group) {
    weft_mesh *mesh = NULL, *other = NULL;
    MUST(weft_mesh_create(ctx, NULL, 0, GROUPS[group].mesh, WEFT_STRLEN, &mesh));
    MUST(weft_mesh_create(oracle, NULL, 0, GROUPS[group].mesh, WEFT_STRLEN, &other));
    MUST(weft_context_set_mesh(ctx, mesh));
    MUST(weft_context_set_mesh(oracle, other));
    for (t = 0; t < 4; ++t) {
      for (kind = 0; kind < KINDS; ++kind) {
        const weft_dtype dtype = TYPES[t];
        const int adds = kind == 0 || kind == 4, flows = dtype == WEFT_F32 || dtype == WEFT_BF16;
        const int differentiable = flows && kind != 1;
        int count;
        if (dtype == WEFT_BOOL ? adds || kind == 1 : kind == 2) continue; /* not defined of this type */
        if (kind == 6 && GROUPS[group].axes[0] != 'a') continue;
        count = run(ctx, mesh, kind, dtype, GROUPS[group].axes, GROUPS[group].places, have, differentiable ? slopes : NULL);
        CHECK_EQUAL(run(oracle, other, kind, dtype, GROUPS[group].axes, GROUPS[group].places, want, differentiable ? wanted : NULL), count);
        for (i = 0; i < count; ++i) {
          if (have[i] == want[i]) continue;
          printf("%s, %s, type %d, %s along %s: element %d is %g, not %g\n", platform, KIND_NAMES[kind], (int)dtype, GROUPS[group].mesh, GROUPS[group].axes, i, have[i], want[i]);
          ++g_failures;
          break;
        }
        for (i = 0; differentiable && i < ROWS * COLUMNS; ++i) {
          if (slopes[i] == wanted[i]) continue;
          printf("%s, %s, type %d, %s along %s: the slope of %d is %g, not %g\n", platform, KIND_NAMES[kind], (int)dtype, GROUPS[group].mesh, GROUPS[group].axes, i, slopes[i], wanted[i]);
          ++g_failures;
          break;
        }
        ++cases;
      }
    }
    MUST(weft_context_set_mesh(ctx, NULL));
    MUST(weft_context_set_mesh(oracle, NULL));
    weft_mesh_release(mesh), weft_mesh_release(other);
  }
  CHECK(cases > 50);
}

/* The tests' own plugin says that its devices are the wrong way round. */
static void turned(const char* plugin) {
  const weft_setting settings[] = {{"cache_mode", WEFT_STRLEN, "off", WEFT_STRLEN}, {"platform", WEFT_STRLEN, "pjrt", WEFT_STRLEN},
                                   {"plugin", WEFT_STRLEN, plugin, WEFT_STRLEN},    {"plugin_options", WEFT_STRLEN, "devices=4", WEFT_STRLEN}};
  weft_context_options options = WEFT_CONTEXT_OPTIONS_INIT;
  weft_context* ctx = NULL;
  weft_mesh* mesh = NULL;
  size_t i;
  setenv("WEFT_FAKE", "turned", 1);
  options.settings = settings;
  options.setting_count = 4;
  MUST(weft_context_create(&options, &ctx));
  MUST(weft_mesh_create(ctx, NULL, 0, "a=4", WEFT_STRLEN, &mesh));
  for (i = 0; i < 4; ++i) {
    weft_device* device = NULL;
    const char* name = NULL;
    char wanted[16];
    MUST(weft_mesh_device_at(mesh, i, &device));
    MUST(weft_device_name(device, &name, NULL));
    snprintf(wanted, sizeof wanted, "pjrt:%d", 3 - (int)i);
    CHECK_TEXT(name, wanted);
    weft_device_release(device);
  }
  weft_mesh_release(mesh);
  weft_context_release(ctx);
}

static void everything(const char* platform, const char* plugin) {
  weft_context *ctx = context_of(platform, plugin), *oracle = context_of("reference", NULL);
  const int before = g_failures;
  parts(ctx);
  checkpoints(ctx);
  custom(ctx);
  texts(ctx);
  collectives(ctx, oracle, platform);
  weft_context_release(ctx), weft_context_release(oracle);
  if (g_failures != before) printf("on the platform %s: %d failures\n", platform, g_failures - before);
}

int main(int argc, char** argv) {
  if (argc >= 3) {
    everything(argv[1], argv[2]);
    return g_failures != 0;
  }
  everything("cpu", NULL);
  everything("reference", NULL);
  if (getenv("WEFT_PJRT_FAKE") != NULL) {
    turned(getenv("WEFT_PJRT_FAKE")); /* first: the plugin reads its variable once */
    everything("pjrt", getenv("WEFT_PJRT_FAKE"));
  }
  return g_failures != 0;
}
