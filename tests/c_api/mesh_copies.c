/* Values that go from mesh to mesh, from devices to meshes and back, in every way to lie: the elements are right, and on a plugin the devices copy them,
 * not the host. On cpu, reference and the tests' own plugin; with arguments PLATFORM PLUGIN on that alone. */
#define _GNU_SOURCE
#include "four_devices.h"

#include <stdint.h>

enum { ROWS = 8, COLUMNS = 4, COUNT = ROWS * COLUMNS };

static const char* const kSquare[] = {"-,-", "a,-", "-,a", "b,-", "-,b", "a,b", "b,a", "a+b,-", "b+a,-", "-,a+b", "-,b+a"};
static const char* const kOther[] = {"-,-", "c,-", "-,c", "d,-", "-,d", "c,d", "d,c", "c+d,-", "d+c,-", "-,c+d", "-,d+c"};
enum { WAYS = sizeof kSquare / sizeof kSquare[0] };

static int64_t counted(weft_context* ctx, const char* name) {
  int64_t value = 0;
  MUST(weft_metric_get(ctx, name, WEFT_STRLEN, &value));
  return value;
}

/* What the host moved since `before`, which is kept up. */
static int64_t by_host(weft_context* ctx, int64_t* before) {
  const int64_t now = counted(ctx, "bytes_from_device") + counted(ctx, "bytes_to_device"), moved = now - *before;
  *before = now;
  return moved;
}

static void is_host(weft_tensor* t, const float* host, const char* from, const char* to) {
  float read[COUNT];
  memset(read, 0, sizeof read);
  MUST(weft_tensor_to_host(t, read, sizeof read));
  if (memcmp(host, read, sizeof read) != 0) printf("from %s to %s: wrong elements\n", from, to), ++g_failures;
}

static weft_mesh* mesh_of(weft_context* ctx, const size_t* places, size_t count, const char* axes) {
  weft_device* devices[4] = {NULL};
  weft_mesh* mesh = NULL;
  size_t i;
  for (i = 0; i < count; ++i) MUST(weft_device_at(ctx, places[i], &devices[i]));
  MUST(weft_mesh_create(ctx, devices, count, axes, WEFT_STRLEN, &mesh));
  for (i = 0; i < count; ++i) weft_device_release(devices[i]);
  return mesh;
}

/* From every way to lie on one mesh to every way on another: of the same devices in another order, of two others, of some. */
static void between(weft_context* ctx, int devices_copy, const float* host) {
  static const struct {
    size_t from[4], to[4];
    size_t from_count, to_count;
    const char *from_axes, *to_axes;
  } kPairs[] = {{{0, 1, 2, 3}, {3, 1, 0, 2}, 4, 4, "a=2,b=2", "c=2,d=2"},
                {{0, 1}, {2, 3}, 2, 2, "a=2,b=1", "c=1,d=2"},
                {{0, 1, 2, 3}, {2, 1}, 4, 2, "a=4,b=1", "c=2,d=1"},
                {{3, 2}, {0, 1, 2, 3}, 2, 4, "a=1,b=2", "c=2,d=2"}};
  size_t pair, i, j;
  for (pair = 0; pair < sizeof kPairs / sizeof kPairs[0]; ++pair) {
    weft_mesh* from = mesh_of(ctx, kPairs[pair].from, kPairs[pair].from_count, kPairs[pair].from_axes);
    weft_mesh* to = mesh_of(ctx, kPairs[pair].to, kPairs[pair].to_count, kPairs[pair].to_axes);
    for (i = 0; i < WAYS; ++i) {
      weft_tensor* x = NULL;
      MUST(weft_tensor_from_host_sharded(from, kSquare[i], WEFT_STRLEN, WEFT_F32, DIMS(ROWS, COLUMNS), host, COUNT * sizeof *host, &x));
      for (j = 0; j < WAYS; ++j) {
        weft_tensor* y = NULL;
        int64_t before = 0;
        by_host(ctx, &before);
        MUST(weft_tensor_copy_to_mesh(x, to, kOther[j], WEFT_STRLEN, &y));
        if (devices_copy) CHECK_EQUAL(by_host(ctx, &before), 0);
        LIES(y, kOther[j]);
        is_host(y, host, kSquare[i], kOther[j]);
        weft_tensor_release(y);
      }
      is_host(x, host, kSquare[i], "itself");
      weft_tensor_release(x);
    }
    weft_mesh_release(from), weft_mesh_release(to);
  }
}

/* From one device to a mesh, from there to a device that it does not have, and on. */
static void devices(weft_context* ctx, int devices_copy, const float* host) {
  weft_mesh* mesh = mesh_of(ctx, (const size_t[]){0, 1}, 2, "a=2");
  weft_device *second = NULL, *last = NULL;
  weft_tensor *x = NULL, *cut = NULL, *far = NULL, *back = NULL, *doubled = NULL;
  int64_t before = 0;
  MUST(weft_device_at(ctx, 1, &second));
  MUST(weft_device_at(ctx, 3, &last));
  MUST(weft_tensor_from_host(ctx, second, WEFT_F32, DIMS(ROWS, COLUMNS), host, COUNT * sizeof *host, &x));
  by_host(ctx, &before);
  MUST(weft_tensor_copy_to_mesh(x, mesh, "-,a", WEFT_STRLEN, &cut));
  MUST(weft_tensor_copy_to(cut, last, &far));
  MUST(weft_tensor_copy_to(far, second, &back));
  if (devices_copy) {
    CHECK_EQUAL(by_host(ctx, &before), 0);
    CHECK(counted(ctx, "bytes_between_devices") > 0);
  }
  LIES(cut, "-,a");
  is_host(cut, host, "a device", "-,a");
  is_host(far, host, "-,a", "a device");
  is_host(back, host, "a device", "a device");
  /* They are values as others: what is computed of them, and pending values. */
  MUST(weft_add(ctx, far, far, &doubled));
  weft_tensor_release(back), back = NULL;
  MUST(weft_tensor_copy_to(doubled, second, &back));
  {
    float read[COUNT];
    int i;
    MUST(weft_tensor_to_host(back, read, sizeof read));
    for (i = 0; i < COUNT; ++i) CHECK(read[i] == 2 * host[i]);
  }
  weft_tensor_release(x), weft_tensor_release(cut), weft_tensor_release(far), weft_tensor_release(back), weft_tensor_release(doubled);
  weft_device_release(second), weft_device_release(last), weft_mesh_release(mesh);
}

/* Parts that stay on their devices are one buffer of two values: a step that takes the memory of the one over leaves the other as it was. */
static void taken_over(weft_context* ctx, const float* host) {
  weft_mesh *mesh = mesh_of(ctx, (const size_t[]){0, 1, 2, 3}, 4, "a=4"), *other = mesh_of(ctx, (const size_t[]){0, 1, 2, 3}, 4, "c=2,d=2");
  weft_tensor *x = NULL, *y = NULL;
  int step, which;
  for (which = 0; which < 2; ++which) {
    MUST(weft_tensor_from_host_sharded(mesh, "a,-", WEFT_STRLEN, WEFT_F32, DIMS(ROWS, COLUMNS), host, COUNT * sizeof *host, &x));
    MUST(weft_tensor_copy_to_mesh(x, other, "c+d,-", WEFT_STRLEN, &y));
    for (step = 0; step < 3; ++step) {
      weft_tensor *changed = which == 0 ? x : y, *sum = NULL;
      MUST(weft_add(ctx, changed, changed, &sum));
      MUST(weft_tensor_assign(changed, sum));
      weft_tensor_release(sum);
      MUST(weft_sync(ctx, NULL, NULL));
    }
    is_host(which == 0 ? y : x, host, "a,-", "c+d,- while the other is assigned to");
    weft_tensor_release(x), weft_tensor_release(y), x = NULL, y = NULL;
  }
  weft_mesh_release(mesh), weft_mesh_release(other);
}

static void scalars_and_nothing(weft_context* ctx) {
  weft_mesh* mesh = mesh_of(ctx, (const size_t[]){1, 2}, 2, "a=2");
  weft_tensor *seven = scalar(ctx, 7), *there = NULL, *none = NULL, *moved = NULL;
  float read = 0;
  MUST(weft_tensor_copy_to_mesh(seven, mesh, NULL, 0, &there));
  MUST(weft_tensor_to_host(there, &read, sizeof read));
  CHECK(read == 7);
  MUST(weft_tensor_from_host(ctx, NULL, WEFT_F32, DIMS(0, 4), NULL, 0, &none));
  MUST(weft_tensor_copy_to_mesh(none, mesh, "-,a", WEFT_STRLEN, &moved));
  LIES(moved, "-,a");
  weft_tensor_release(seven), weft_tensor_release(there), weft_tensor_release(none), weft_tensor_release(moved), weft_mesh_release(mesh);
}

/* Between two contexts it is the host that copies, and the counters say so. */
static void other_client(weft_context* ctx, const char* platform, const char* plugin, const float* host) {
  weft_context* apart = context_of(platform, plugin);
  weft_mesh* there = mesh_of(apart, (const size_t[]){0, 1}, 2, "a=2");
  weft_tensor *x = NULL, *y = NULL;
  MUST(weft_tensor_from_host(ctx, NULL, WEFT_F32, DIMS(ROWS, COLUMNS), host, COUNT * sizeof *host, &x));
  const int64_t from = counted(ctx, "bytes_from_device"), to = counted(apart, "bytes_to_device");
  MUST(weft_tensor_copy_to_mesh(x, there, "a,-", WEFT_STRLEN, &y));
  CHECK_EQUAL(counted(ctx, "bytes_from_device") - from, (int64_t)(COUNT * sizeof *host));
  CHECK_EQUAL(counted(apart, "bytes_to_device") - to, (int64_t)(COUNT * sizeof *host));
  is_host(y, host, "another context", "a,-");
  weft_tensor_release(x), weft_tensor_release(y), weft_mesh_release(there);
  weft_context_release(apart);
}

static void everything(const char* platform, const char* plugin) {
  weft_context* ctx = context_of(platform, plugin);
  const int before = g_failures, devices_copy = plugin != NULL;
  float host[COUNT];
  int i;
  for (i = 0; i < COUNT; ++i) host[i] = (float)(i + 1);
  between(ctx, devices_copy, host);
  devices(ctx, devices_copy, host);
  taken_over(ctx, host);
  scalars_and_nothing(ctx);
  if (devices_copy) other_client(ctx, platform, plugin, host);
  weft_context_release(ctx);
  if (g_failures != before) printf("on the platform %s: %d failures\n", platform, g_failures - before);
}

int main(int argc, char** argv) {
  if (argc >= 3) {
    everything(argv[1], argv[2]);
    return g_failures != 0;
  }
  everything("cpu", NULL);
  everything("reference", NULL);
  if (getenv("WEFT_PJRT_FAKE") != NULL) everything("pjrt", getenv("WEFT_PJRT_FAKE"));
  return g_failures != 0;
}
