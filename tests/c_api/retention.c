/* Files of steps: which go once the new one is there, which never do; and the pointer that names the newest. */
#define _POSIX_C_SOURCE 200809L
#include <sys/stat.h>
#include <unistd.h>

#include "folder.h"

static char g_path[400];
static const char* in_dir(const char* name) {
  snprintf(g_path, sizeof g_path, "%s/%s", g_dir, name);
  return g_path;
}
static int there(const char* name) { return access(in_dir(name), F_OK) == 0; }

static void write_file(const char* name, const char* text) {
  FILE* f = fopen(in_dir(name), "wb");
  if (f == NULL || fputs(text, f) < 0 || fclose(f) != 0) exit(1);
}

static weft_error* save(weft_context* ctx, weft_tree* tree, int64_t step, int64_t last, int64_t every, const char* pointer) {
  weft_checkpoint_options o = WEFT_CHECKPOINT_OPTIONS_INIT;
  o.step = step;
  o.keep_last = last;
  o.keep_every = every;
  o.pointer = pointer;
  o.pointer_length = WEFT_STRLEN;
  return weft_checkpoint_save(ctx, in_dir("m-{step}.weft"), WEFT_STRLEN, tree, &o, NULL);
}

static int64_t step_in(weft_context* ctx, const char* name) {
  weft_checkpoint_reader* reader = NULL;
  weft_checkpoint_info info = WEFT_CHECKPOINT_INFO_INIT;
  MUST(weft_checkpoint_reader_open(ctx, in_dir(name), WEFT_STRLEN, &reader));
  MUST(weft_checkpoint_reader_info(reader, &info));
  weft_checkpoint_reader_release(reader);
  return info.step;
}

static void older_files_go_and_others_stay(weft_context* ctx, weft_tree* tree) {
  int64_t step;
  write_file("m-4.weft", "not a checkpoint");
  write_file("m-05.weft", "another's name");
  write_file("m-.weft", "no step");
  MUST(weft_checkpoint_save(ctx, in_dir("m-7.weft"), WEFT_STRLEN, tree, NULL, NULL)); /* a checkpoint, but of step 0 */
  CHECK(symlink("m-7.weft", in_dir("m-8.weft")) == 0);
  for (step = 10; step <= 60; step += 10) OK(save(ctx, tree, step, 2, 30, "latest"));
  CHECK(!there("m-10.weft") && !there("m-20.weft") && !there("m-40.weft"));
  CHECK(there("m-30.weft") && there("m-50.weft") && there("m-60.weft"));
  CHECK(there("m-4.weft") && there("m-05.weft") && there("m-.weft") && there("m-7.weft") && there("m-8.weft"));
  CHECK_EQUAL(step_in(ctx, "latest"), 60);
  write_file("best", "weft pointer 1\nm-50.weft\n");
  OK(save(ctx, tree, 70, 1, 0, "latest"));
  CHECK(there("m-50.weft") && there("m-70.weft") && !there("m-60.weft") && !there("m-30.weft"));
  OK(save(ctx, tree, 65, 1, 0, NULL)); /* back from an older state: what is newer stays */
  CHECK(there("m-65.weft") && there("m-70.weft"));
  OK(save(ctx, tree, 80, -1, 0, NULL)); /* the name alone */
  CHECK(there("m-65.weft") && there("m-70.weft") && there("m-80.weft"));
  CHECK_EQUAL(step_in(ctx, "latest"), 70);
  CHECK_EQUAL(step_in(ctx, "best"), 50);
}

/* A save that fails changes neither the pointer nor what is there. */
static void who_fails_removes_nothing(weft_context* ctx, weft_tree* tree) {
  CHECK(mkdir(in_dir("m-90.weft"), 0700) == 0);
  FAILS_WITH(save(ctx, tree, 90, 1, 0, "latest"), WEFT_INVALID_ARGUMENT, "it is a directory");
  CHECK(there("m-80.weft") && there("m-70.weft"));
  CHECK_EQUAL(step_in(ctx, "latest"), 70);
  rmdir(in_dir("m-90.weft"));
  CHECK(mkdir(in_dir("taken"), 0700) == 0);
  FAILS_WITH(save(ctx, tree, 91, 1, 0, "taken"), WEFT_INVALID_ARGUMENT, "is there, but not the pointer");
  CHECK(there("m-91.weft") && there("m-80.weft"));
}

static void what_makes_no_sense_is_refused(weft_context* ctx, weft_tree* tree) {
  weft_checkpoint_options o = WEFT_CHECKPOINT_OPTIONS_INIT;
  FAILS_WITH(save(ctx, tree, 1, -2, 0, NULL), WEFT_INVALID_ARGUMENT, "weft_checkpoint_options.keep_last is -2; it is -1 or more");
  FAILS_WITH(save(ctx, tree, 1, 2, -1, NULL), WEFT_INVALID_ARGUMENT, "weft_checkpoint_options.keep_every is -1; it is 0 or more");
  FAILS_WITH(save(ctx, tree, 1, 0, 5, NULL), WEFT_INVALID_ARGUMENT, "keep_every says what stays of the files that keep_last lets go");
  FAILS_WITH(save(ctx, tree, -1, 1, 0, NULL), WEFT_INVALID_ARGUMENT, "weft_checkpoint_options.step is -1; with keep_last it is 0 or more");
  FAILS_WITH(save(ctx, tree, 1, 1, 0, "a/b"), WEFT_INVALID_ARGUMENT, "weft_checkpoint_options.pointer is 'a/b'; it is a name beside the file");
  FAILS_WITH(save(ctx, tree, 1, 1, 0, "m-1.weft"), WEFT_INVALID_ARGUMENT, "and another than the file's");
  FAILS_WITH(save(ctx, tree, 1, 1, 0, ""), WEFT_INVALID_ARGUMENT, "pointer");
  o.keep_last = 1;
  FAILS_WITH(weft_checkpoint_save(ctx, in_dir("plain"), WEFT_STRLEN, tree, &o, NULL), WEFT_INVALID_ARGUMENT, "has to have {step} in it, once");
  FAILS_WITH(weft_checkpoint_save(ctx, in_dir("{step}{step}"), WEFT_STRLEN, tree, &o, NULL), WEFT_INVALID_ARGUMENT, "has to have {step} in it, once");
  o.format = WEFT_FORMAT_SAFETENSORS;
  FAILS_WITH(weft_checkpoint_save(ctx, in_dir("{step}"), WEFT_STRLEN, tree, &o, NULL), WEFT_UNIMPLEMENTED, "only checkpoints of Weft's own format");
  CHECK(!there("m-1.weft") && !there("plain"));
}

static void a_pointer_that_leads_nowhere_is_refused(weft_context* ctx) {
  static const char* const kBad[] = {"weft pointer 1\n", "weft pointer 1\n\n", "weft pointer 1\nm-70.weft", "weft pointer 1\n../m-70.weft\n",
                                     "weft pointer 1\n..\n", "weft pointer 1\na\nb\n", "weft pointer 1\n\xff\n"};
  weft_checkpoint_reader* reader = NULL;
  size_t i;
  for (i = 0; i < sizeof kBad / sizeof kBad[0]; ++i) {
    write_file("bad", kBad[i]);
    FAILS_WITH(weft_checkpoint_reader_open(ctx, in_dir("bad"), WEFT_STRLEN, &reader), WEFT_DATA_LOSS, "is a pointer that does not say one name of a file beside it");
  }
  write_file("bad", "weft pointer 1\nnobody\n");
  FAILS_WITH(weft_checkpoint_reader_open(ctx, in_dir("bad"), WEFT_STRLEN, &reader), WEFT_NOT_FOUND, "points to it: cannot open");
  write_file("bad", "weft pointer 1\nlatest\n");
  FAILS_WITH(weft_checkpoint_reader_open(ctx, in_dir("bad"), WEFT_STRLEN, &reader), WEFT_INVALID_ARGUMENT, "which is a pointer itself");
  write_file("bad", "weft pointer 1\nbad\n");
  FAILS_WITH(weft_checkpoint_reader_open(ctx, in_dir("bad"), WEFT_STRLEN, &reader), WEFT_INVALID_ARGUMENT, "which is a pointer itself");
  CHECK(reader == NULL);
}

/* A file from which another takes parts stays as long as that one does. */
static void bases_stay(weft_context* ctx) {
  static float saved[1 << 18], there_again[1 << 18];
  weft_tree *state = NULL, *back = NULL;
  weft_tensor *frozen = ramp(ctx, DIMS(1 << 18)), *t = NULL;
  weft_checkpoint_options o = WEFT_CHECKPOINT_OPTIONS_INIT;
  weft_checkpoint_info info = WEFT_CHECKPOINT_INFO_INIT;
  weft_checkpoint_reader* reader = NULL;
  struct stat first, later;
  uint32_t node = 0;
  int64_t step;
  MUST(weft_tree_create(&state));
  MUST(weft_tree_add_tensor(state, WEFT_TREE_ROOT, "frozen", WEFT_STRLEN, frozen, NULL));
  o.keep_last = 1;
  o.pointer = "newest";
  o.pointer_length = o.base_length = WEFT_STRLEN;
  for (step = 1; step <= 4; ++step) {
    o.step = step;
    o.base = step == 1 ? NULL : "newest"; /* what it names then */
    o.compress = step == 2 ? WEFT_COMPRESS_ZSTD : WEFT_COMPRESS_NONE;
    MUST(weft_checkpoint_save(ctx, in_dir("b-{step}.weft"), WEFT_STRLEN, state, &o, NULL));
  }
  /* 4 was made on 3, and names 1, where the bytes are. */
  CHECK(there("b-1.weft") && !there("b-2.weft") && !there("b-3.weft") && there("b-4.weft"));
  CHECK(stat(in_dir("b-1.weft"), &first) == 0 && stat(in_dir("b-4.weft"), &later) == 0);
  CHECK(first.st_size > 1 << 20 && later.st_size < 1 << 14);
  MUST(weft_checkpoint_reader_open(ctx, in_dir("newest"), WEFT_STRLEN, &reader));
  MUST(weft_checkpoint_reader_info(reader, &info));
  CHECK(info.bases_length == 9 && memcmp(info.bases, "b-1.weft\n", 9) == 0);
  weft_checkpoint_reader_release(reader);
  MUST(weft_checkpoint_load(ctx, in_dir("newest"), WEFT_STRLEN, NULL, &back));
  MUST(weft_tree_find(back, WEFT_TREE_ROOT, "frozen", WEFT_STRLEN, &node));
  MUST(weft_tree_get_tensor(back, node, &t));
  MUST(weft_tensor_to_host(t, there_again, sizeof there_again));
  MUST(weft_tensor_to_host(frozen, saved, sizeof saved));
  CHECK(memcmp(saved, there_again, sizeof saved) == 0);
  o.base = NULL;
  o.step = 5;
  MUST(weft_checkpoint_save(ctx, in_dir("b-{step}.weft"), WEFT_STRLEN, state, &o, NULL)); /* whole: nothing is needed any more */
  CHECK(!there("b-1.weft") && !there("b-4.weft") && there("b-5.weft"));
  weft_tensor_release(t);
  weft_tensor_release(frozen);
  weft_tree_release(back);
  weft_tree_release(state);
}

int main(void) {
  weft_context* ctx = new_context();
  weft_tree* tree = NULL;
  weft_tensor* w = ramp(ctx, DIMS(4));
  make_folder();
  MUST(weft_tree_create(&tree));
  MUST(weft_tree_add_tensor(tree, WEFT_TREE_ROOT, "w", WEFT_STRLEN, w, NULL));
  older_files_go_and_others_stay(ctx, tree);
  who_fails_removes_nothing(ctx, tree);
  what_makes_no_sense_is_refused(ctx, tree);
  a_pointer_that_leads_nowhere_is_refused(ctx);
  bases_stay(ctx);
  weft_tensor_release(w);
  weft_tree_release(tree);
  weft_context_release(ctx);
  remove_folder();
  return done("retention");
}
