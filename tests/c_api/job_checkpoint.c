/* Checkpoints that the processes of a job write together: saved by 4 processes and read by 1 and 2, each value compared; a process that is
 * killed, one whose disk is full, and trees that differ leave the older checkpoint.
 *   job_checkpoint                                  starts the jobs
 *   job_checkpoint ACTION RANK SIZE ID FOLDER [COORDINATOR]    one process of a job; with an address each process is a host */
#define _POSIX_C_SOURCE 200809L
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "folder.h"
#include "free_address.h"

enum { PARAMS = 3, MODEL = 4, STEPS = 2 };

/* On 2 processes the parts of the second are larger than what one checksum covers, on 4 they are smaller; the last one's are tiny. */
static const int64_t kRows[PARAMS] = {1500, 2600003, 5}, kColumns[PARAMS] = {1000, 1, 1};
static const int64_t kModel[MODEL] = {3 * (1048576 + 13), 5242880, 50001, 10};
static const char* const kNames[MODEL] = {"big", "even", "middle", "small"};

static weft_job* g_job;
static int g_rank, g_size;
static char g_path[500];

static float value_of(int which, int64_t i, int64_t step) { return (float)((i * 2654435761u + (uint32_t)(which * 7919 + step)) % 65521) / 65521.0f - 0.5f; }

static weft_tensor* made(weft_context* ctx, int which, int64_t rows, int64_t columns, int64_t step) {
  const int64_t dims[2] = {rows, columns}, count = rows * columns;
  float* data = malloc((size_t)count * sizeof *data);
  weft_tensor* out = NULL;
  int64_t i;
  for (i = 0; i < count; ++i) data[i] = value_of(which, i, step);
  MUST(weft_tensor_from_host(ctx, NULL, WEFT_F32, dims, 2, data, (size_t)count * sizeof *data, &out));
  free(data);
  return out;
}

static void same_values(weft_tensor* tensor, int which, int64_t count, int64_t step) {
  float* data = malloc((size_t)count * sizeof *data);
  int64_t i, wrong = 0;
  MUST(weft_tensor_to_host(tensor, data, (size_t)count * sizeof *data));
  for (i = 0; i < count; ++i) wrong += data[i] != value_of(which, i, step);
  CHECK_EQUAL(wrong, 0);
  free(data);
}

static void same_tensors(weft_tensor* one, weft_tensor* other) {
  uint64_t bytes = 0, theirs = 0;
  char *a, *b;
  MUST(weft_tensor_size(one, &bytes));
  MUST(weft_tensor_size(other, &theirs));
  CHECK_EQUAL(bytes, theirs);
  a = malloc(bytes), b = malloc(bytes);
  MUST(weft_tensor_to_host(one, a, bytes));
  MUST(weft_tensor_to_host(other, b, bytes));
  CHECK(memcmp(a, b, bytes) == 0);
  free(a), free(b);
}

/* AdamW after some steps whose gradients are the same in all processes, so that their mean has the bits of each. */
typedef struct {
  weft_tensor* p[PARAMS];
  weft_optimizer* opt;
} trained;

static void steps_of(weft_context* ctx, trained* t, int from, int to) {
  int i;
  for (; from < to; ++from) {
    weft_tensor* grads[PARAMS];
    for (i = 0; i < PARAMS; ++i) grads[i] = made(ctx, 20 + i, kRows[i], kColumns[i], from);
    MUST(weft_optimizer_step(t->opt, grads, PARAMS, 0.01));
    MUST(weft_sync(ctx, NULL, NULL));
    for (i = 0; i < PARAMS; ++i) weft_tensor_release(grads[i]);
  }
}

static trained train(weft_context* ctx, int shards) {
  weft_adam_options options = WEFT_ADAM_OPTIONS_INIT;
  trained t;
  int i;
  for (i = 0; i < PARAMS; ++i) t.p[i] = made(ctx, 10 + i, kRows[i], kColumns[i], 0);
  options.job = shards ? g_job : NULL;
  options.shard_state = shards;
  MUST(weft_adamw_create(ctx, t.p, PARAMS, &options, &t.opt));
  return t;
}

static void release(trained* t) {
  int i;
  for (i = 0; i < PARAMS; ++i) weft_tensor_release(t->p[i]);
  weft_optimizer_release(t->opt);
}

/* A model of that step, and an optimizer's state. */
static weft_tree* state_of(weft_context* ctx, int64_t step, weft_optimizer* opt) {
  weft_tree *tree = NULL, *state = NULL;
  uint32_t model = 0;
  int i;
  MUST(weft_tree_create(&tree));
  MUST(weft_tree_add_i64(tree, WEFT_TREE_ROOT, "step", WEFT_STRLEN, step, NULL));
  MUST(weft_tree_add_dict(tree, WEFT_TREE_ROOT, "model", WEFT_STRLEN, &model));
  for (i = 0; i < MODEL; ++i) {
    weft_tensor* tensor = made(ctx, i, kModel[i], 1, step);
    MUST(weft_tree_add_tensor(tree, model, kNames[i], WEFT_STRLEN, tensor, NULL));
    if (i == 0) MUST(weft_tree_add_tensor(tree, model, "tied", WEFT_STRLEN, tensor, NULL));
    weft_tensor_release(tensor);
  }
  if (opt != NULL) {
    MUST(weft_optimizer_state(opt, &state));
    MUST(weft_tree_add_tree(tree, WEFT_TREE_ROOT, "optimizer", WEFT_STRLEN, state, NULL));
    weft_tree_release(state);
  }
  return tree;
}

static weft_error* save(weft_context* ctx, weft_tree* tree, int64_t step, int master_only) {
  weft_checkpoint_options file = WEFT_CHECKPOINT_OPTIONS_INIT;
  weft_job_save_options options = WEFT_JOB_SAVE_OPTIONS_INIT;
  file.step = step;
  options.file = &file;
  options.master_only = master_only;
  return weft_checkpoint_save_job(ctx, g_job, g_path, WEFT_STRLEN, tree, &options);
}

/* Every value of the model, and the state beside that of an optimizer that has come there by itself. */
static void check_loaded(weft_context* ctx, weft_tree* tree, int64_t step, int with_state) {
  uint32_t node = 0;
  int64_t have = 0;
  int i, slot;
  MUST(weft_tree_find(tree, WEFT_TREE_ROOT, "step", WEFT_STRLEN, &node));
  MUST(weft_tree_get_i64(tree, node, &have));
  CHECK_EQUAL(have, step);
  for (i = 0; i <= MODEL; ++i) {
    char path[64];
    weft_tensor* tensor = NULL;
    snprintf(path, sizeof path, "model.%s", i == MODEL ? "tied" : kNames[i]);
    MUST(weft_tree_find(tree, WEFT_TREE_ROOT, path, WEFT_STRLEN, &node));
    MUST(weft_tree_get_tensor(tree, node, &tensor));
    same_values(tensor, i % MODEL, kModel[i % MODEL], step);
    weft_tensor_release(tensor);
  }
  if (with_state) {
    trained t = train(ctx, 0);
    weft_tree* want = NULL;
    steps_of(ctx, &t, 0, STEPS);
    MUST(weft_optimizer_state(t.opt, &want));
    for (slot = 0; slot < 2; ++slot) {
      for (i = 0; i < PARAMS; ++i) {
        char path[64];
        weft_tensor *one = NULL, *other = NULL;
        snprintf(path, sizeof path, "optimizer.slots.%s.%d", slot == 0 ? "m" : "v", i);
        MUST(weft_tree_find(tree, WEFT_TREE_ROOT, path, WEFT_STRLEN, &node));
        MUST(weft_tree_get_tensor(tree, node, &one));
        MUST(weft_tree_find(want, WEFT_TREE_ROOT, path + strlen("optimizer."), WEFT_STRLEN, &node));
        MUST(weft_tree_get_tensor(want, node, &other));
        same_tensors(one, other);
        weft_tensor_release(one), weft_tensor_release(other);
      }
    }
    MUST(weft_tree_find(tree, WEFT_TREE_ROOT, "optimizer", WEFT_STRLEN, &node));
    MUST(weft_optimizer_load(t.opt, tree, node));
    weft_tree_release(want);
    release(&t);
  }
}

static weft_tree* loaded(weft_context* ctx) {
  weft_tree* tree = NULL;
  MUST(weft_checkpoint_load(ctx, g_path, WEFT_STRLEN, NULL, &tree));
  return tree;
}

static uint64_t bytes_read(void) {
  FILE* f = fopen("/proc/self/io", "r");
  unsigned long long bytes = 0;
  if (f == NULL || fscanf(f, "rchar: %llu", &bytes) != 1) exit(1);
  fclose(f);
  return bytes;
}

/* --- What a process does ------------------------------------------------------------------------------------------------ */

static void save_with_state(weft_context* ctx, int64_t step, int master_only) {
  trained t = train(ctx, 1);
  weft_tree* tree;
  steps_of(ctx, &t, 0, STEPS);
  tree = state_of(ctx, step, t.opt);
  MUST(save(ctx, tree, step, master_only));
  weft_tree_release(tree);
  release(&t);
}

/* Each reads of the file what it keeps; its own parts, saved by itself, fit nowhere else. */
static void load_parts(weft_context* ctx, weft_optimizer* parts, weft_optimizer* alone) {
  weft_open_options options = WEFT_OPEN_OPTIONS_INIT;
  weft_checkpoint_reader* reader = NULL;
  weft_tree* own = NULL;
  char path[600], text[300];
  const uint64_t before = bytes_read();
  MUST(weft_checkpoint_reader_open_with(ctx, g_path, WEFT_STRLEN, &options, &reader));
  MUST(weft_optimizer_load_from(parts, reader, "optimizer", WEFT_STRLEN));
  CHECK(bytes_read() - before < 32 << 20); /* of 66 MB, and of 33 MB of state by whole parts of 4 MiB */
  FAILS(weft_optimizer_load_from(parts, reader, "optimiser", WEFT_STRLEN), WEFT_NOT_FOUND,
        "weft_optimizer_load_from: the file has no 'optimiser'");
  FAILS(weft_optimizer_load_from(parts, reader, "model", WEFT_STRLEN), WEFT_NOT_FOUND,
        "weft_optimizer_load_from: optimizer state has no 'kind'");
  weft_checkpoint_reader_release(reader);
  MUST(weft_optimizer_state(parts, &own));
  snprintf(path, sizeof path, "%s.%d", g_path, g_rank);
  MUST(weft_checkpoint_save(ctx, path, WEFT_STRLEN, own, NULL, NULL));
  MUST(weft_checkpoint_reader_open_with(ctx, path, WEFT_STRLEN, &options, &reader));
  MUST(weft_optimizer_load_from(parts, reader, "", WEFT_STRLEN));
  snprintf(text, sizeof text, "weft_optimizer_load_from: the state is the part of rank %d of 2, and this optimizer keeps all of it", g_rank);
  FAILS_WITH(weft_optimizer_load_from(alone, reader, "", WEFT_STRLEN), WEFT_INVALID_ARGUMENT, text);
  weft_checkpoint_reader_release(reader);
  weft_tree_release(own);
  CHECK(remove(path) == 0);
}

/* Goes on from the file, beside one that has come there by itself. */
static void load_and_go_on(weft_context* ctx, int64_t step) {
  weft_tree *tree = loaded(ctx), *whole = NULL, *want = NULL;
  trained parts = train(ctx, 1), alone = train(ctx, 0);
  uint32_t node = 0;
  int i, slot;
  check_loaded(ctx, tree, step, 0);
  MUST(weft_tree_find(tree, WEFT_TREE_ROOT, "optimizer", WEFT_STRLEN, &node));
  if (g_size == 1) {
    MUST(weft_optimizer_load(parts.opt, tree, node));
  } else {
    load_parts(ctx, parts.opt, alone.opt);
  }
  steps_of(ctx, &alone, 0, STEPS + 1);
  steps_of(ctx, &parts, STEPS, STEPS + 1);
  MUST(weft_optimizer_whole_state(parts.opt, &whole));
  MUST(weft_optimizer_state(alone.opt, &want));
  for (slot = 0; slot < 2; ++slot) {
    for (i = 0; i < PARAMS; ++i) {
      char path[64];
      weft_tensor *one = NULL, *other = NULL;
      snprintf(path, sizeof path, "slots.%s.%d", slot == 0 ? "m" : "v", i);
      MUST(weft_tree_find(whole, WEFT_TREE_ROOT, path, WEFT_STRLEN, &node));
      MUST(weft_tree_get_tensor(whole, node, &one));
      MUST(weft_tree_find(want, WEFT_TREE_ROOT, path, WEFT_STRLEN, &node));
      MUST(weft_tree_get_tensor(want, node, &other));
      same_tensors(one, other);
      weft_tensor_release(one), weft_tensor_release(other);
    }
  }
  weft_tree_release(tree), weft_tree_release(whole), weft_tree_release(want);
  release(&parts), release(&alone);
}

static void no_room_on_rank_2(weft_context* ctx) {
  const struct rlimit small = {1 << 20, 1 << 20};
  weft_tree* tree = state_of(ctx, 5, NULL);
  if (g_rank == 2) CHECK(setrlimit(RLIMIT_FSIZE, &small) == 0);
  FAILS_WITH(save(ctx, tree, 5, 0), WEFT_RESOURCE_EXHAUSTED, "weft_checkpoint_save_job: rank 2 of the job: saving checkpoint '");
  weft_tree_release(tree);
}

static void other_trees(weft_context* ctx) {
  weft_tree* tree = state_of(ctx, 6, NULL);
  weft_checkpoint_options file = WEFT_CHECKPOINT_OPTIONS_INIT;
  weft_job_save_options options = WEFT_JOB_SAVE_OPTIONS_INIT;
  if (g_rank == 1) {
    weft_tensor* more = made(ctx, 0, 3, 1, 0);
    MUST(weft_tree_add_tensor(tree, WEFT_TREE_ROOT, "more", WEFT_STRLEN, more, NULL));
    weft_tensor_release(more);
  }
  FAILS(save(ctx, tree, 6, 0), WEFT_FAILED_PRECONDITION,
        "weft_checkpoint_save_job: rank 1 saves other tensors than rank 0: paths, types, shapes, which of them are in parts, and "
        "master_only are the same in all processes");
  if (g_rank == 1) snprintf(g_path, sizeof g_path, "/no/such/folder/run.weft");
  FAILS_WITH(save(ctx, tree, 6, 0), WEFT_NOT_FOUND, "weft_checkpoint_save_job: rank 1 of the job: saving checkpoint '/no/such/folder/run.weft'");
  file.keep_last = 1;
  options.file = &file;
  FAILS(weft_checkpoint_save_job(ctx, g_job, g_path, WEFT_STRLEN, tree, &options), WEFT_UNIMPLEMENTED,
        "weft_checkpoint_options.keep_last: checkpoints that a job's processes write together do not have it");
  options.file = NULL;
  options.master_only = 2;
  INVALID(weft_checkpoint_save_job(ctx, g_job, g_path, WEFT_STRLEN, tree, &options),
          "weft_job_save_options.master_only is 2; it is 0 or 1");
  weft_tree_release(tree);
}

static void* die_when_it_is_written(void* folder) {
  for (;;) {
    DIR* dir = opendir(folder);
    struct dirent* entry;
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
      if (strstr(entry->d_name, ".1-of-4.") != NULL) kill(getpid(), SIGKILL);
    }
    if (dir != NULL) closedir(dir);
  }
  return NULL;
}

/* Where the kill comes late, the checkpoint is there, and the others were told. */
static int one_is_killed(weft_context* ctx, char* folder) {
  weft_tree* tree = state_of(ctx, 7, NULL);
  weft_error* error;
  pthread_t thread;
  int told = 0;
  if (g_rank == 1) pthread_create(&thread, NULL, die_when_it_is_written, folder);
  error = save(ctx, tree, 7, 0);
  if (error != NULL) {
    CHECK(weft_error_code(error) == WEFT_UNAVAILABLE && strstr(weft_error_message(error, NULL), "rank 1") != NULL);
    told = 1;
  }
  weft_error_release(error);
  weft_tree_release(tree);
  return told;
}

static int member(char** argv) {
  const char* const action = argv[1];
  weft_job_options options = WEFT_JOB_OPTIONS_INIT;
  weft_context* ctx = new_context();
  g_rank = atoi(argv[2]), g_size = atoi(argv[3]);
  options.id = argv[4];
  options.id_length = WEFT_STRLEN;
  options.rank = g_rank;
  options.size = g_size;
  options.timeout_ms = 60000;
  if (argv[6] != NULL) {
    options.coordinator = argv[6];
    options.coordinator_length = WEFT_STRLEN;
    options.local_size = 1;
  }
  snprintf(g_path, sizeof g_path, "%s/run.weft", argv[5]);
  MUST(weft_job_join(&options, &g_job));
  if (strcmp(action, "save3") == 0) save_with_state(ctx, 3, 0);
  if (strcmp(action, "save4") == 0) save_with_state(ctx, 4, 0);
  if (strcmp(action, "one") == 0) save_with_state(ctx, 8, 1);
  if (strcmp(action, "load3") == 0) load_and_go_on(ctx, 3);
  if (strcmp(action, "full") == 0) no_room_on_rank_2(ctx);
  if (strcmp(action, "other") == 0) other_trees(ctx);
  if (strcmp(action, "killed") == 0) exit(one_is_killed(ctx, argv[5]) ? 10 + (g_failures != 0) : g_failures != 0);
  MUST(weft_job_leave(g_job));
  weft_job_release(g_job);
  weft_context_release(ctx);
  return g_failures != 0;
}

/* --- The jobs ------------------------------------------------------------------------------------------------------------- */

static void run_job_at(const char* coordinator, const char* program, const char* action, int size, int* statuses) {
  static int jobs;
  pid_t children[4];
  char id[64];
  int rank;
  snprintf(id, sizeof id, "checkpoint-%d-%d", (int)getpid(), jobs++);
  for (rank = 0; rank < size; ++rank) {
    children[rank] = fork();
    if (children[rank] == 0) {
      char number[2][16];
      snprintf(number[0], sizeof number[0], "%d", rank);
      snprintf(number[1], sizeof number[1], "%d", size);
      execl(program, program, action, number[0], number[1], id, g_dir, coordinator, (char*)NULL);
      _exit(127);
    }
  }
  for (rank = 0; rank < size; ++rank) {
    int status = 0;
    CHECK(waitpid(children[rank], &status, 0) == children[rank]);
    if (statuses != NULL) statuses[rank] = status;
    if (statuses == NULL && status != 0) {
      printf("%s: rank %d of %d ended with %d\n", action, rank, size, status);
      ++g_failures;
    }
  }
}

static void run_job(const char* program, const char* action, int size, int* statuses) { run_job_at(NULL, program, action, size, statuses); }

/* The shards beside the checkpoint, and the size of the largest and the smallest. */
static int shards(uint64_t* most, uint64_t* least) {
  DIR* dir = opendir(g_dir);
  struct dirent* entry;
  int count = 0;
  *most = 0, *least = UINT64_MAX;
  while ((entry = readdir(dir)) != NULL) {
    char path[900];
    struct stat found;
    if (strstr(entry->d_name, "-of-") == NULL) continue;
    snprintf(path, sizeof path, "%s/%s", g_dir, entry->d_name);
    if (stat(path, &found) != 0) continue;
    if ((uint64_t)found.st_size > *most) *most = (uint64_t)found.st_size;
    if ((uint64_t)found.st_size < *least) *least = (uint64_t)found.st_size;
    ++count;
  }
  closedir(dir);
  return count;
}

static void expect_file(int64_t step, int with_state, int how_many_shards) {
  weft_context* ctx = new_context();
  weft_tree* tree = loaded(ctx);
  uint64_t most = 0, least = 0;
  check_loaded(ctx, tree, step, with_state);
  CHECK_EQUAL(shards(&most, &least), how_many_shards);
  weft_tree_release(tree);
  weft_context_release(ctx);
}

/* A box of a tensor that has 12 MB in a checkpoint of 66 MB. */
static void reads_what_it_needs(void) {
  static const int64_t starts[2] = {1100000, 0}, sizes[2] = {1000, 1};
  weft_open_options options = WEFT_OPEN_OPTIONS_INIT;
  weft_context* ctx = new_context();
  weft_checkpoint_reader* reader = NULL;
  weft_tensor* box = NULL;
  float values[1000];
  const uint64_t before = bytes_read();
  int i;
  MUST(weft_checkpoint_reader_open_with(ctx, g_path, WEFT_STRLEN, &options, &reader));
  MUST(weft_checkpoint_reader_load_box(reader, "model.big", WEFT_STRLEN, starts, sizes, 2, NULL, &box));
  MUST(weft_tensor_to_host(box, values, sizeof values));
  for (i = 0; i < 1000; ++i) CHECK(values[i] == value_of(0, starts[0] + i, 3));
  CHECK(bytes_read() - before < 6 << 20); /* the part of 4 MiB with its checksum, and what finds it */
  weft_tensor_release(box);
  weft_checkpoint_reader_release(reader);
  weft_context_release(ctx);
}

int main(int argc, char** argv) {
  uint64_t most = 0, least = 0;
  char address[64];
  int statuses[4], turn;
  if (argc >= 6) return member(argv); /* argv[argc] is NULL */
  make_folder();
  snprintf(g_path, sizeof g_path, "%s/run.weft", g_dir);
  run_job(argv[0], "save3", 4, NULL);
  expect_file(3, 1, 4);
  shards(&most, &least);
  if (most - least > 8 << 20 || least < 12 << 20) {
    printf("shards of %llu to %llu bytes of 66 MB\n", (unsigned long long)least, (unsigned long long)most);
    ++g_failures;
  }
  reads_what_it_needs();
  run_job(argv[0], "load3", 2, NULL);
  run_job(argv[0], "load3", 1, NULL);
  run_job(argv[0], "save4", 2, NULL); /* the older one's shards go with it */
  expect_file(4, 1, 2);
  find_address(address, sizeof address);
  run_job_at(address, argv[0], "save3", 2, NULL); /* by TCP */
  expect_file(3, 1, 2);
  run_job(argv[0], "save4", 2, NULL);
  run_job(argv[0], "full", 4, NULL);
  expect_file(4, 1, 2);
  run_job(argv[0], "other", 2, NULL);
  expect_file(4, 1, 2);
  for (turn = 0; turn < 3; ++turn) {
    weft_context* ctx = new_context();
    weft_tree* tree;
    run_job(argv[0], "killed", 4, statuses);
    CHECK(WIFSIGNALED(statuses[1]) && WTERMSIG(statuses[1]) == SIGKILL);
    CHECK(statuses[0] == statuses[2] && statuses[0] == statuses[3]);
    tree = loaded(ctx); /* whole, whichever it is */
    CHECK(WEXITSTATUS(statuses[0]) == 10 || WEXITSTATUS(statuses[0]) == 0);
    check_loaded(ctx, tree, WEXITSTATUS(statuses[0]) == 10 ? 4 : 7, 0);
    printf("killed: %s\n", WEXITSTATUS(statuses[0]) == 10 ? "the older one stays" : "it came too late");
    weft_tree_release(tree);
    weft_context_release(ctx);
    if (WEXITSTATUS(statuses[0]) == 0) run_job(argv[0], "save4", 2, NULL);
  }
  run_job(argv[0], "one", 4, NULL);
  {
    weft_context* ctx = new_context();
    weft_tree* tree = loaded(ctx);
    check_loaded(ctx, tree, 8, 1);
    weft_tree_release(tree);
    weft_context_release(ctx);
  }
  remove_folder();
  return done("job_checkpoint");
}
