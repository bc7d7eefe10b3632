/* Checkpoints and meshes: saved from four devices, a tensor is read onto one, two and eight, cut in every way, each device its part; into tensors that
 * lie on a mesh; and the host needs little beside the devices' memory. On cpu, reference and the tests' own plugin; with arguments PLATFORM PLUGIN on
 * that alone, and a third argument: with tensors of so many MiB. */
#define _GNU_SOURCE
#include "check.h"

#include <fcntl.h>
#include <stdint.h>

#include "folder.h"

enum { ROWS = 16, COLUMNS = 24, COUNT = ROWS * COLUMNS };

static const char* g_platform;
static const char* g_plugin;

static weft_context* context_of(int devices) {
  char count[40], options_text[60];
  const weft_setting settings[] = {{"cache_mode", WEFT_STRLEN, "off", WEFT_STRLEN},
                                   {"platform", WEFT_STRLEN, g_platform, WEFT_STRLEN},
                                   {"devices", WEFT_STRLEN, count, WEFT_STRLEN},
                                   {"plugin", WEFT_STRLEN, g_plugin != NULL ? g_plugin : "", WEFT_STRLEN},
                                   {"plugin_options", WEFT_STRLEN, options_text, WEFT_STRLEN}};
  weft_context_options options = WEFT_CONTEXT_OPTIONS_INIT;
  weft_context* ctx = NULL;
  snprintf(count, sizeof count, "%d", devices);
  snprintf(options_text, sizeof options_text, "%s=%d", g_plugin != NULL && strstr(g_plugin, "fake") != NULL ? "devices" : "cpu_device_count", devices);
  if (g_plugin == NULL) options_text[0] = 0;
  options.settings = settings;
  options.setting_count = 5;
  MUST(weft_context_create(&options, &ctx));
  return ctx;
}

static weft_mesh* mesh_of(weft_context* ctx, int devices) {
  weft_mesh* mesh = NULL;
  char axes[40];
  snprintf(axes, sizeof axes, devices == 8 ? "a=4,b=2" : "a=%d,b=%d", devices > 1 ? 2 : 1, devices / 2 + (devices == 1));
  MUST(weft_mesh_create(ctx, NULL, 0, axes, WEFT_STRLEN, &mesh));
  return mesh;
}

static void add(weft_tree* tree, const char* key, weft_tensor* value) { MUST(weft_tree_add_tensor(tree, 0, key, WEFT_STRLEN, value, NULL)); }

static void lies(weft_tensor* t, const char* spec) {
  weft_blob* text = NULL;
  MUST(weft_tensor_sharding(t, &text));
  CHECK_TEXT(weft_blob_data(text), spec);
  weft_blob_release(text);
}

static void is(weft_tensor* t, const float* host, const char* spec, int devices) {
  float read[COUNT];
  memset(read, 0, sizeof read);
  MUST(weft_tensor_to_host(t, read, sizeof read));
  if (memcmp(read, host, sizeof read) != 0) printf("%s on %d devices, cut as %s: wrong elements\n", g_platform, devices, spec), ++g_failures;
}

/* x, cut both ways, h of bf16 and n of i32 from it, whole, and a number. */
static void save(const char* path, const float* host) {
  weft_context* ctx = context_of(4);
  weft_mesh* mesh = mesh_of(ctx, 4);
  weft_tensor *x = NULL, *h = NULL, *n = NULL, *whole = NULL, *seven = NULL;
  weft_tree* tree = NULL;
  MUST(weft_tensor_from_host_sharded(mesh, "b,a", WEFT_STRLEN, WEFT_F32, DIMS(ROWS, COLUMNS), host, COUNT * sizeof *host, &x));
  MUST(weft_convert(ctx, x, WEFT_BF16, &h));
  MUST(weft_convert(ctx, x, WEFT_I32, &n));
  MUST(weft_shard(x, "-,-", WEFT_STRLEN, &whole));
  MUST(weft_tensor_from_host_sharded(mesh, "", WEFT_STRLEN, WEFT_F32, NULL, 0, (const float[]){7}, sizeof(float), &seven));
  MUST(weft_tree_create(&tree));
  add(tree, "x", x), add(tree, "h", h), add(tree, "n", n), add(tree, "whole", whole), add(tree, "seven", seven);
  MUST(weft_checkpoint_save(ctx, path, WEFT_STRLEN, tree, NULL, NULL));
  weft_tree_release(tree);
  weft_tensor_release(x), weft_tensor_release(h), weft_tensor_release(n), weft_tensor_release(whole), weft_tensor_release(seven);
  weft_mesh_release(mesh), weft_context_release(ctx);
}

static void load(const char* path, const float* host, int devices) {
  static const char* const kWays[] = {"-,-", "a,-", "-,a", "b,-", "-,b", "a,b", "b,a", "a+b,-", "-,b+a"};
  weft_context *ctx = context_of(devices), *other = context_of(1);
  weft_mesh *mesh = mesh_of(ctx, devices), *far = mesh_of(other, 1);
  weft_checkpoint_reader* reader = NULL;
  weft_tensor *t = NULL, *wide = NULL;
  size_t i;
  float seven = 0;
  MUST(weft_checkpoint_reader_open(ctx, path, WEFT_STRLEN, &reader));
  for (i = 0; i < sizeof kWays / sizeof *kWays; ++i) {
    MUST(weft_checkpoint_reader_load_sharded(reader, "x", WEFT_STRLEN, mesh, kWays[i], WEFT_STRLEN, &t));
    lies(t, kWays[i]);
    is(t, host, kWays[i], devices);
    weft_tensor_release(t);
    MUST(weft_checkpoint_reader_load_sharded(reader, "h", WEFT_STRLEN, mesh, kWays[i], WEFT_STRLEN, &t));
    MUST(weft_convert(ctx, t, WEFT_F32, &wide));
    is(wide, host, kWays[i], devices);
    weft_tensor_release(t), weft_tensor_release(wide);
  }
  MUST(weft_checkpoint_reader_load_sharded(reader, "whole", WEFT_STRLEN, mesh, NULL, 0, &t));
  lies(t, "-,-");
  is(t, host, "NULL", devices);
  weft_tensor_release(t);
  MUST(weft_checkpoint_reader_load_sharded(reader, "seven", WEFT_STRLEN, mesh, NULL, 0, &t));
  MUST(weft_tensor_to_host(t, &seven, sizeof seven));
  CHECK(seven == 7);
  weft_tensor_release(t), t = NULL;
  FAILS_WITH(weft_checkpoint_reader_load_sharded(reader, "x", WEFT_STRLEN, mesh, "c,-", WEFT_STRLEN, &t), WEFT_INVALID_ARGUMENT, "names the axis 'c'");
  FAILS_WITH(weft_checkpoint_reader_load_sharded(reader, "x", WEFT_STRLEN, mesh, "a", WEFT_STRLEN, &t), WEFT_INVALID_ARGUMENT, "has 1 words for 2 dimensions");
  FAILS_WITH(weft_checkpoint_reader_load_sharded(reader, "y", WEFT_STRLEN, mesh, NULL, 0, &t), WEFT_NOT_FOUND, "the checkpoint has no tensor 'y'");
  FAILS_WITH(weft_checkpoint_reader_load_sharded(reader, "x", WEFT_STRLEN, far, NULL, 0, &t), WEFT_INVALID_ARGUMENT, "belongs to another context than the reader");
  CHECK(t == NULL);
  weft_checkpoint_reader_release(reader), weft_mesh_release(mesh), weft_mesh_release(far);
  weft_context_release(ctx), weft_context_release(other);
}

/* A tree whose tensors lie on a mesh gets the values there, cut as they are; of another type, converted. */
static void load_into(const char* path, const float* host, int devices) {
  weft_context* ctx = context_of(devices);
  weft_mesh* mesh = mesh_of(ctx, devices);
  weft_checkpoint_reader* reader = NULL;
  weft_load_options options = WEFT_LOAD_OPTIONS_INIT;
  weft_tensor *x = NULL, *h = NULL, *n = NULL, *wide = NULL, *alone = NULL;
  weft_tree* tree = NULL;
  float zeros[COUNT];
  int64_t numbers[COUNT], read[COUNT];
  int i;
  memset(zeros, 0, sizeof zeros);
  MUST(weft_checkpoint_reader_open(ctx, path, WEFT_STRLEN, &reader));
  MUST(weft_tensor_from_host_sharded(mesh, "-,a", WEFT_STRLEN, WEFT_F32, DIMS(ROWS, COLUMNS), zeros, sizeof zeros, &x));
  /* This one is pending. */
  MUST(weft_add(ctx, x, x, &wide));
  MUST(weft_shard(wide, "b,a", WEFT_STRLEN, &h));
  memset(numbers, 0, sizeof numbers);
  MUST(weft_tensor_from_host_sharded(mesh, "a+b,-", WEFT_STRLEN, WEFT_I64, DIMS(ROWS, COLUMNS), numbers, sizeof numbers, &n));
  MUST(weft_tensor_from_host(ctx, NULL, WEFT_F32, DIMS(ROWS, COLUMNS), zeros, sizeof zeros, &alone));
  MUST(weft_tree_create(&tree));
  add(tree, "x", x), add(tree, "h", h), add(tree, "n", n), add(tree, "whole", alone);
  options.convert = options.partial = 1;
  MUST(weft_checkpoint_load_into(reader, tree, &options, NULL));
  lies(x, "-,a"), lies(h, "b,a"), lies(n, "a+b,-"), lies(alone, "-,-");
  is(x, host, "-,a", devices), is(h, host, "b,a", devices), is(alone, host, "nothing", devices);
  MUST(weft_tensor_to_host(n, read, sizeof read));
  for (i = 0; i < COUNT; ++i) CHECK(read[i] == (int64_t)host[i]);
  weft_tensor_release(x), weft_tensor_release(h), weft_tensor_release(n), weft_tensor_release(wide), weft_tensor_release(alone);
  weft_tree_release(tree), weft_checkpoint_reader_release(reader), weft_mesh_release(mesh), weft_context_release(ctx);
}

/* --- What the host needs -------------------------------------------------------------------------------------------------- */

static double number_of(const char* file, const char* name) {
  FILE* const text = fopen(file, "r");
  char line[200];
  double number = -1;
  if (text == NULL) return -1;
  while (fgets(line, sizeof line, text) != NULL) {
    if (strncmp(line, name, strlen(name)) == 0) number = atof(line + strlen(name));
  }
  fclose(text);
  return number;
}

static void peak_is_now(void) {
  const int file = open("/proc/self/clear_refs", O_WRONLY);
  if (file < 0) return;
  if (write(file, "5", 1) != 1) printf("the peak was not set back\n"), ++g_failures;
  close(file);
}

/* A tensor of so many MiB, saved from four devices, read onto `devices`: what the process had at most more than the value itself, and how
 * often it read the file. Of rows that several devices share, each reads and checks the blocks that it touches. */
static void large(const char* path, int64_t mib, int devices, const char* spec, double times) {
  const int64_t bytes = mib << 20;
  weft_context* ctx = context_of(devices);
  weft_mesh* mesh = mesh_of(ctx, devices);
  weft_checkpoint_reader* reader = NULL;
  weft_tensor* x = NULL;
  double before, at_most, read_before, read;
  float last = 0;
  MUST(weft_checkpoint_reader_open(ctx, path, WEFT_STRLEN, &reader));
  peak_is_now();
  before = number_of("/proc/self/status", "VmRSS:"), read_before = number_of("/proc/self/io", "rchar:");
  MUST(weft_checkpoint_reader_load_sharded(reader, "x", WEFT_STRLEN, mesh, spec, WEFT_STRLEN, &x));
  at_most = number_of("/proc/self/status", "VmHWM:") - before, read = number_of("/proc/self/io", "rchar:") - read_before;
  MUST(weft_tensor_to_host_box(x, (const int64_t[]){1023, bytes / 4096 - 1}, (const int64_t[]){1, 1}, 2, &last, sizeof last));
  CHECK(last == 3);
  printf("%s, %d devices, '%s': %lld MiB; at most %.1f MiB more than these on the host; %.2f of the bytes read\n", g_platform, devices, spec,
         (long long)mib, at_most / 1024 - (double)mib, read / (double)bytes);
  CHECK(at_most / 1024 < (double)mib + 16 + (double)mib / 16);
  CHECK(read < (times + 0.2) * (double)bytes);
  weft_tensor_release(x), weft_checkpoint_reader_release(reader), weft_mesh_release(mesh), weft_context_release(ctx);
}

static void memory(int64_t mib) {
  char path[400];
  weft_context* ctx = context_of(4);
  weft_mesh* mesh = mesh_of(ctx, 4);
  weft_tensor *three = NULL, *x = NULL, *cut = NULL;
  weft_tree* tree = NULL;
  snprintf(path, sizeof path, "%s/large.weft", g_dir);
  MUST(weft_context_set_mesh(ctx, mesh));
  MUST(weft_tensor_from_f64(ctx, WEFT_F32, 3, &three));
  MUST(weft_broadcast_to(ctx, three, (const int64_t[]){1024, (mib << 20) / 4096}, 2, &x));
  MUST(weft_shard(x, "a,b", WEFT_STRLEN, &cut));
  MUST(weft_tree_create(&tree));
  add(tree, "x", cut);
  MUST(weft_checkpoint_save(ctx, path, WEFT_STRLEN, tree, NULL, NULL));
  weft_tree_release(tree), weft_tensor_release(three), weft_tensor_release(x), weft_tensor_release(cut);
  MUST(weft_context_set_mesh(ctx, NULL));
  weft_mesh_release(mesh), weft_context_release(ctx);
  large(path, mib, 1, "-,-", 1);
  large(path, mib, 2, "a,-", 1);
  large(path, mib, 8, "a+b,-", 1);
  large(path, mib, 8, "a,b", 2);
}

static void everything(const char* platform, const char* plugin, int64_t mib) {
  char path[400];
  float host[COUNT];
  const int before = g_failures;
  int i;
  g_platform = platform, g_plugin = plugin;
  for (i = 0; i < COUNT; ++i) host[i] = (float)(i % 200);
  make_folder();
  snprintf(path, sizeof path, "%s/small.weft", g_dir);
  save(path, host);
  for (i = 1; i <= 8; i *= 2) load(path, host, i), load_into(path, host, i);
  if (mib > 0) memory(mib);
  remove_folder();
  if (g_failures != before) printf("on the platform %s: %d failures\n", platform, g_failures - before);
}

int main(int argc, char** argv) {
  if (argc >= 3) {
    everything(argv[1], strcmp(argv[2], "none") != 0 ? argv[2] : NULL, argc > 3 ? atoll(argv[3]) : 0);
    return g_failures != 0;
  }
  everything("cpu", NULL, 64);
  everything("reference", NULL, 0);
  if (getenv("WEFT_PJRT_FAKE") != NULL) everything("pjrt", getenv("WEFT_PJRT_FAKE"), 0);
  return g_failures != 0;
}
