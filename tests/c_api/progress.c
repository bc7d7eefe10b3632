/* Saves that say how far they are: bytes that only grow, up to all of them; an answer that ends the save and leaves the old file, in the
 * call and behind it. For files that ask for POSIX. */
#define _POSIX_C_SOURCE 200809L
#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"

enum { kElements = 12 << 20 };

typedef struct {
  uint64_t done, total;
  int calls, stop_at, wrong;
} heard;

static int32_t hear(void* user_data, uint64_t done, uint64_t total) {
  heard* h = user_data;
  if (done < h->done || done > total || (h->calls > 0 && total != h->total)) h->wrong = 1;
  h->done = done, h->total = total;
  return ++h->calls == h->stop_at;
}

static int g_released = 0;
static void released(void* user_data) { g_released += ((heard*)user_data)->calls + 1; }

static int entries(const char* folder) {
  DIR* d = opendir(folder);
  int n = 0;
  struct dirent* e;
  while ((e = readdir(d)) != NULL) n += e->d_name[0] != '.';
  closedir(d);
  return n;
}

static weft_error* save(weft_context* ctx, const char* path, weft_tree* tree, heard* h, weft_file_format format, int behind) {
  weft_checkpoint_options o = WEFT_CHECKPOINT_OPTIONS_INIT;
  weft_event* event = NULL;
  weft_error* error;
  o.durable = -1;
  o.format = format;
  o.progress = hear;
  o.progress_user_data = h;
  o.progress_release = released;
  g_released = 0;
  error = weft_checkpoint_save(ctx, path, WEFT_STRLEN, tree, &o, behind ? &event : NULL);
  if (error == NULL && behind) error = weft_event_wait(event, WEFT_WAIT_FOREVER);
  weft_event_release(event);
  CHECK_EQUAL(g_released, h->calls + 1); /* once, behind the last call */
  return error;
}

int main(void) {
  char folder[] = "/tmp/weft-progress-XXXXXX", path[64];
  weft_context* ctx = new_context();
  weft_tree *tree = NULL, *old = NULL;
  weft_tensor *x = NULL, *small = ramp(ctx, DIMS(4));
  int behind, format;
  struct stat before, after;
  if (mkdtemp(folder) == NULL) return 1;
  snprintf(path, sizeof path, "%s/x", folder);
  MUST(weft_full(ctx, DIMS(kElements), 1.5, NULL, &x));
  MUST(weft_tree_create(&tree));
  MUST(weft_tree_add_tensor(tree, WEFT_TREE_ROOT, "x", WEFT_STRLEN, x, NULL));
  MUST(weft_tree_create(&old));
  MUST(weft_tree_add_tensor(old, WEFT_TREE_ROOT, "x", WEFT_STRLEN, small, NULL));
  {
    heard none = {0};
    FAILS_WITH(save(NULL, path, tree, &none, WEFT_FORMAT_WEFT, 0), WEFT_INVALID_ARGUMENT, "ctx");
    FAILS_WITH(save(ctx, path, tree, &none, (weft_file_format)99, 1), WEFT_INVALID_ARGUMENT, "format is 99");
    CHECK_EQUAL(none.calls, 0);
  }
  {
    heard none = {0};
    weft_checkpoint_options o = WEFT_CHECKPOINT_OPTIONS_INIT;
    o.next = &o; /* refused for itself, the struct names its release all the same */
    o.progress_user_data = &none;
    o.progress_release = released;
    g_released = 0;
    FAILS_WITH(weft_checkpoint_save(ctx, path, WEFT_STRLEN, tree, &o, NULL), WEFT_UNIMPLEMENTED, "weft_checkpoint_options.next");
    CHECK_EQUAL(g_released, 1);
  }
  for (format = WEFT_FORMAT_WEFT; format <= WEFT_FORMAT_NPY; ++format) {
    for (behind = 0; behind < 2; ++behind) {
      heard all = {0}, stopped = {.stop_at = 1};
      MUST(save(ctx, path, tree, &all, (weft_file_format)format, behind));
      CHECK(all.calls >= 1 && !all.wrong);
      CHECK(all.done == all.total && all.total >= (uint64_t)kElements * sizeof(float));
      MUST(weft_checkpoint_save(ctx, path, WEFT_STRLEN, old, NULL, NULL));
      CHECK(stat(path, &before) == 0);
      FAILS_WITH(save(ctx, path, tree, &stopped, (weft_file_format)format, behind), WEFT_CANCELLED, "the progress callback asked for an end");
      CHECK_EQUAL(stopped.calls, 1);
      CHECK(stat(path, &after) == 0 && after.st_ino == before.st_ino && after.st_size == before.st_size);
      CHECK_EQUAL(entries(folder), 1); /* no temporary is left */
    }
  }
  weft_tree_release(tree);
  weft_tree_release(old);
  weft_tensor_release(x);
  weft_tensor_release(small);
  weft_context_release(ctx);
  unlink(path);
  rmdir(folder);
  return done("progress");
}
