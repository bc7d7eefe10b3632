/* Results of a mesh of which no rule of the library's says how they lie: a plugin that tells how its partitioner has cut them leaves them cut, others
 * have them whole on each device, and cut_outputs_whole counts these. With arguments PLATFORM PLUGIN and "cut" or "whole" on that plugin alone. */
#define _GNU_SOURCE
#include "four_devices.h"

#include "folder.h"

enum { SLICED, JOINED, PADDED, FLAT, RESULTS };
static const size_t COUNTS[RESULTS] = {32, 128, 128, 64};

static float element(int i, int j) { return (float)(10 * i + j); }

/* Writes the results that are expected of an x of 8 by 8. */
static void expected(float (*to)[128]) {
  int i, j;
  memset(to, 0, RESULTS * sizeof *to);
  for (i = 0; i < 8; ++i) {
    for (j = 0; j < 8; ++j) {
      if (i < 4) to[SLICED][8 * i + j] = element(i, j);
      to[JOINED][8 * i + j] = to[JOINED][64 + 8 * i + j] = element(i, j);
      to[PADDED][8 * (i + 4) + j] = element(i, j);
      to[FLAT][8 * i + j] = element(i, j);
    }
  }
}

/* One barrier for all four, then a program that takes a result as it lies; `again`: from the disk. */
static void one_start(const char* platform, const char* plugin, int cut, int again) {
  weft_context* ctx = context_with_cache(platform, plugin, g_dir);
  weft_mesh* mesh = NULL;
  weft_tensor *x = NULL, *columns = NULL, *zero = NULL, *both[2], *results[RESULTS] = {NULL}, *twice = NULL;
  float host[8][8], wanted[RESULTS][128], read[128], box[4];
  int i, j;
  for (i = 0; i < 64; ++i) host[i / 8][i % 8] = element(i / 8, i % 8);
  expected(wanted);
  MUST(weft_mesh_create(ctx, NULL, 0, "a=2,b=2", WEFT_STRLEN, &mesh));
  MUST(weft_context_set_mesh(ctx, mesh));
  MUST(weft_tensor_from_host_sharded(mesh, "a,-", WEFT_STRLEN, WEFT_F32, DIMS(8, 8), host, sizeof host, &x));
  MUST(weft_tensor_from_host_sharded(mesh, "-,b", WEFT_STRLEN, WEFT_F32, DIMS(8, 8), host, sizeof host, &columns));
  zero = scalar(ctx, 0);
  both[0] = both[1] = x;
  MUST(weft_slice(ctx, x, DIMS(0, 0), DIMS(4, 8), DIMS(1, 1), &results[SLICED]));
  MUST(weft_concatenate(ctx, both, 2, NULL, &results[JOINED]));
  MUST(weft_pad(ctx, x, zero, DIMS(4, 0), DIMS(4, 0), DIMS(0, 0), &results[PADDED]));
  MUST(weft_reshape(ctx, columns, DIMS(64), &results[FLAT]));
  MUST(weft_sync(ctx, NULL, NULL));
  CHECK_EQUAL(metric(ctx, "cut_outputs_whole"), cut ? 0 : 3); /* of the flat one a rule speaks */
  CHECK_EQUAL(metric(ctx, "programs_loaded"), again);
  LIES(results[SLICED], cut ? "a,-" : "-,-");
  LIES(results[JOINED], cut ? "a,-" : "-,-");
  LIES(results[PADDED], cut ? "a,-" : "-,-");
  LIES(results[FLAT], "-"); /* the inner dimension was cut: no axis says how that lies */
  for (i = 0; i < RESULTS; ++i) {
    MUST(weft_tensor_to_host(results[i], read, COUNTS[i] * sizeof(float)));
    CHECK(memcmp(read, wanted[i], COUNTS[i] * sizeof(float)) == 0);
  }
  MUST(weft_tensor_to_host_box(results[JOINED], (const int64_t[]){7, 6}, (const int64_t[]){2, 2}, 2, box, sizeof box));
  CHECK(box[0] == 76 && box[1] == 77 && box[2] == 6 && box[3] == 7); /* of two parts */
  MUST(weft_add(ctx, results[JOINED], results[PADDED], &twice));
  MUST(weft_tensor_to_host(twice, read, sizeof read));
  for (j = 0; j < 128; ++j) CHECK(read[j] == wanted[JOINED][j] + wanted[PADDED][j]);
  LIES(twice, cut ? "a,-" : "-,-");
  for (i = 0; i < RESULTS; ++i) weft_tensor_release(results[i]);
  weft_tensor_release(x), weft_tensor_release(columns), weft_tensor_release(zero), weft_tensor_release(twice);
  weft_mesh_release(mesh);
  weft_context_release(ctx);
}

static void everything(const char* platform, const char* plugin, int cut) {
  const int before = g_failures;
  make_folder();
  one_start(platform, plugin, cut, 0);
  one_start(platform, plugin, cut, 1);
  remove_folder();
  if (g_failures != before) printf("on the platform %s: %d failures\n", platform, g_failures - before);
}

int main(int argc, char** argv) {
  if (argc >= 4) {
    everything(argv[1], argv[2], strcmp(argv[3], "cut") == 0);
    return g_failures != 0;
  }
  everything("cpu", NULL, 0);
  if (getenv("WEFT_PJRT_FAKE") != NULL) everything("pjrt", getenv("WEFT_PJRT_FAKE"), 0);
  return g_failures != 0;
}
