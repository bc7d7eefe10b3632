/* Checkpoints down pipes, sockets and functions, and up again: what arrives is what was sent, whatever the pieces; a sink or source
 * that fails at any byte gives its own error; nothing is believed that has not come. */
#define _DEFAULT_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "folder.h"

/* --- Bytes in memory ---------------------------------------------------------------------------------------------------- */

typedef struct {
  unsigned char* data;
  size_t size, room;
  size_t fails_at;  /* from this byte on there is an error; SIZE_MAX: none */
  size_t most;      /* given at a time; 0: any number */
  size_t lies;      /* says that it gave so much more than it was asked for */
  int calls, released;
} bytes;

static weft_error* put(void* user_data, const void* data, size_t size) {
  bytes* b = user_data;
  ++b->calls;
  if (b->size + size > b->fails_at) return weft_error_new(WEFT_UNAVAILABLE, "the sink is full", WEFT_STRLEN);
  if (b->size + size > b->room) {
    b->room = 2 * (b->size + size);
    b->data = realloc(b->data, b->room);
  }
  memcpy(b->data + b->size, data, size);
  b->size += size;
  return NULL;
}

static weft_error* get(void* user_data, uint64_t offset, void* data, size_t size, size_t* out_size) {
  bytes* b = user_data;
  ++b->calls;
  if (b->most != 0 && size > b->most) size = b->most;
  if (offset + size > b->fails_at) return weft_error_new(WEFT_UNAVAILABLE, "the line is cut", WEFT_STRLEN);
  if (offset >= b->size) size = 0;
  else if (size > b->size - offset) size = b->size - (size_t)offset;
  memcpy(data, b->data + (offset < b->size ? offset : 0), size);
  *out_size = size + b->lies;
  return NULL;
}

static void released(void* user_data) { ++((bytes*)user_data)->released; }

static weft_sink to_memory(bytes* b) {
  weft_sink sink = WEFT_SINK_INIT;
  sink.write = put;
  sink.user_data = b;
  return sink;
}
static weft_source from_memory(bytes* b) {
  weft_source source = WEFT_SOURCE_INIT;
  source.read = get;
  source.user_data = b;
  source.release = released;
  source.size = b->size;
  return source;
}
static weft_sink to_fd(int fd) {
  weft_sink sink = WEFT_SINK_INIT;
  sink.fd = fd;
  return sink;
}
static weft_source from_fd(int fd) {
  weft_source source = WEFT_SOURCE_INIT;
  source.fd = fd;
  return source;
}

/* --- A state of all size classes ---------------------------------------------------------------------------------------- */

enum { kLarge = 9 << 20, kTensors = 5 };
static const int64_t kCounts[kTensors] = {0, 3, 500, 40000, kLarge};

static weft_tree* new_state(weft_context* ctx) {
  weft_tree* tree = NULL;
  float* data = malloc(kLarge * sizeof(float));
  int i;
  int64_t k;
  MUST(weft_tree_create(&tree));
  for (i = 0; i < kTensors; ++i) {
    char key[10];
    weft_tensor* w;
    for (k = 0; k < kCounts[i]; ++k) data[k] = (float)(k % 1000) + (float)i;
    w = f32(ctx, &kCounts[i], 1, data);
    snprintf(key, sizeof key, "w%d", i);
    MUST(weft_tree_add_tensor(tree, WEFT_TREE_ROOT, key, WEFT_STRLEN, w, NULL));
    weft_tensor_release(w);
  }
  MUST(weft_tree_add_i64(tree, WEFT_TREE_ROOT, "step", WEFT_STRLEN, 41, NULL));
  free(data);
  return tree;
}

static void check_tensor(weft_tensor* w, int i) {
  float* data = malloc(kLarge * sizeof(float));
  int64_t k, wrong = 0;
  MUST(weft_tensor_to_host(w, data, (size_t)kCounts[i] * sizeof(float)));
  for (k = 0; k < kCounts[i]; ++k) wrong += data[k] != (float)(k % 1000) + (float)i;
  CHECK_EQUAL(wrong, 0);
  free(data);
}

static void check_state(weft_tree* tree) {
  int i;
  uint32_t node = 0;
  int64_t step = 0;
  for (i = 0; i < kTensors; ++i) {
    char key[10];
    weft_tensor* w = NULL;
    snprintf(key, sizeof key, "w%d", i);
    MUST(weft_tree_find(tree, WEFT_TREE_ROOT, key, WEFT_STRLEN, &node));
    MUST(weft_tree_get_tensor(tree, node, &w));
    check_tensor(w, i);
    weft_tensor_release(w);
  }
  MUST(weft_tree_find(tree, WEFT_TREE_ROOT, "step", WEFT_STRLEN, &node));
  MUST(weft_tree_get_i64(tree, node, &step));
  CHECK_EQUAL(step, 41);
}

/* --- Descriptors --------------------------------------------------------------------------------------------------------- */

typedef struct {
  weft_context* ctx;
  weft_tree* state;
  int fd;
  weft_code code;
} sender;

static void* send_all(void* argument) {
  sender* s = argument;
  const weft_sink sink = to_fd(s->fd);
  weft_error* error = weft_checkpoint_save_to(s->ctx, &sink, s->state, NULL);
  s->code = error == NULL ? WEFT_OK : weft_error_code(error);
  weft_error_release(error);
  close(s->fd);
  return NULL;
}

static void count_signal(int number) { (void)number; }

static void through(weft_context* ctx, weft_tree* state, int from, int to, int interrupted) {
  sender s = {ctx, state, to, WEFT_UNKNOWN};
  const weft_source source = from_fd(from);
  weft_tree* tree = NULL;
  pthread_t thread;
  struct itimerval often = {{0, 500}, {0, 500}}, never = {{0, 0}, {0, 0}};
  if (interrupted) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = count_signal; /* without SA_RESTART: calls give EINTR */
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
  }
  CHECK(pthread_create(&thread, NULL, send_all, &s) == 0);
  OK(weft_checkpoint_load_from(ctx, &source, NULL, &tree));
  pthread_join(thread, NULL);
  if (interrupted) setitimer(ITIMER_REAL, &never, NULL);
  CHECK_EQUAL(s.code, WEFT_OK);
  if (tree != NULL) check_state(tree);
  weft_tree_release(tree);
  close(from);
}

static void what_goes_down_a_pipe_or_socket_arrives(weft_context* ctx, weft_tree* state) {
  int ends[2];
  CHECK(pipe(ends) == 0);
  through(ctx, state, ends[0], ends[1], 0);
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  through(ctx, state, ends[0], ends[1], 0);
  CHECK(pipe(ends) == 0);
  CHECK(fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0 && fcntl(ends[1], F_SETFL, O_NONBLOCK) == 0);
  through(ctx, state, ends[0], ends[1], 1);
}

static void a_reader_who_leaves_is_an_error_and_no_signal(weft_context* ctx, weft_tree* state) {
  int ends[2];
  weft_sink sink;
  weft_source source;
  weft_tree* tree = NULL;
  CHECK(pipe(ends) == 0);
  close(ends[0]);
  sink = to_fd(ends[1]);
  FAILS_WITH(weft_checkpoint_save_to(ctx, &sink, state, NULL), WEFT_UNAVAILABLE, "Broken pipe (EPIPE)");
  close(ends[1]);
  sink = to_fd(ends[1]);
  FAILS_WITH(weft_checkpoint_save_to(ctx, &sink, state, NULL), WEFT_INVALID_ARGUMENT, "which is no open descriptor");
  sink = to_fd(-1);
  FAILS_WITH(weft_checkpoint_save_to(ctx, &sink, state, NULL), WEFT_INVALID_ARGUMENT, "weft_sink.fd is -1, which is no open descriptor");
  source = from_fd(-5);
  FAILS_WITH(weft_checkpoint_load_from(ctx, &source, NULL, &tree), WEFT_INVALID_ARGUMENT, "weft_source.fd is -5, which is no open descriptor");
  source = from_fd(open("/dev/null", O_WRONLY));
  FAILS_WITH(weft_checkpoint_load_from(ctx, &source, NULL, &tree), WEFT_INVALID_ARGUMENT, "which is not open for reading");
  close(source.fd);
  FAILS_WITH(weft_checkpoint_load_from(ctx, NULL, NULL, &tree), WEFT_INVALID_ARGUMENT, "source is NULL");
  FAILS_WITH(weft_checkpoint_save_to(ctx, NULL, state, NULL), WEFT_INVALID_ARGUMENT, "sink is NULL");
}

/* --- Functions ----------------------------------------------------------------------------------------------------------- */

static void what_goes_to_a_function_comes_from_one(weft_context* ctx, const bytes* whole) {
  static const size_t kMost[] = {0, 1000, 65537};
  size_t i;
  for (i = 0; i < sizeof kMost / sizeof kMost[0]; ++i) {
    bytes b = *whole;
    weft_source source;
    weft_tree* tree = NULL;
    b.most = kMost[i];
    source = from_memory(&b);
    source.size = 0; /* a stream needs none */
    OK(weft_checkpoint_load_from(ctx, &source, NULL, &tree));
    CHECK_EQUAL(b.released, 1);
    if (tree != NULL) check_state(tree);
    weft_tree_release(tree);
  }
}

static void a_sink_that_fails_at_any_byte_gives_its_error(weft_context* ctx, weft_tree* state, size_t whole) {
  size_t at;
  for (at = 0; at < whole; at += 1 + whole / 23) {
    bytes b = {NULL, 0, 0, 0, 0, 0, 0, 0};
    weft_sink sink = to_memory(&b);
    b.fails_at = at;
    FAILS_WITH(weft_checkpoint_save_to(ctx, &sink, state, NULL), WEFT_UNAVAILABLE, "the sink is full");
    CHECK(b.size <= at);
    free(b.data);
  }
}

static void a_source_that_fails_or_ends_at_any_byte_is_refused(weft_context* ctx, const bytes* whole) {
  size_t at;
  for (at = 0; at < whole->size; at += 1 + whole->size / 23) {
    bytes b = *whole;
    weft_source source;
    weft_tree* tree = NULL;
    b.fails_at = at;
    source = from_memory(&b);
    FAILS_WITH(weft_checkpoint_load_from(ctx, &source, NULL, &tree), WEFT_UNAVAILABLE, "the line is cut");
    b = *whole;
    b.size = at;
    source = from_memory(&b);
    FAILS_WITH(weft_checkpoint_load_from(ctx, &source, NULL, &tree), WEFT_DATA_LOSS, "ends inside");
    CHECK_EQUAL(b.released, 1);
    CHECK(tree == NULL);
  }
  {
    bytes b = *whole;
    weft_source source = from_memory(&b);
    weft_tree* tree = NULL;
    weft_checkpoint_reader* reader = NULL;
    b.lies = 1 << 20;
    FAILS_WITH(weft_checkpoint_load_from(ctx, &source, NULL, &tree), WEFT_INVALID_ARGUMENT, "and says that it gave");
    FAILS_WITH(weft_checkpoint_reader_open_from(ctx, &source, NULL, &reader), WEFT_INVALID_ARGUMENT, "and says that it gave");
    CHECK_EQUAL(b.released, 2);
    b.lies = 0;
    FAILS_WITH(weft_checkpoint_load_from(NULL, &source, NULL, &tree), WEFT_INVALID_ARGUMENT, "ctx");
    FAILS_WITH(weft_checkpoint_load_from(ctx, &source, NULL, NULL), WEFT_INVALID_ARGUMENT, "out");
    CHECK_EQUAL(b.released, 4);
    source.next = &source; /* refused for itself, the struct names its release all the same */
    FAILS_WITH(weft_checkpoint_load_from(ctx, &source, NULL, &tree), WEFT_UNIMPLEMENTED, "weft_source.next");
    FAILS_WITH(weft_checkpoint_reader_open_from(ctx, &source, NULL, &reader), WEFT_UNIMPLEMENTED, "weft_source.next");
    CHECK_EQUAL(b.released, 6);
  }
  {
    bytes b = *whole;
    weft_source source;
    weft_tree* tree = NULL;
    b.data = malloc(whole->size + 1);
    memcpy(b.data, whole->data, whole->size);
    b.data[whole->size] = 7;
    b.size = whole->size + 1;
    source = from_memory(&b);
    FAILS_WITH(weft_checkpoint_load_from(ctx, &source, NULL, &tree), WEFT_DATA_LOSS, "bytes follow the trailer");
    b.data[whole->size / 2] ^= 1;
    b.size = whole->size;
    source = from_memory(&b);
    FAILS_WITH(weft_checkpoint_load_from(ctx, &source, NULL, &tree), WEFT_DATA_LOSS, "does not match");
    free(b.data);
  }
}

static void check_reader(weft_checkpoint_reader* reader) {
  int i;
  for (i = kTensors - 1; i >= 0; --i) {
    char key[10];
    weft_tensor* w = NULL;
    snprintf(key, sizeof key, "w%d", i);
    OK(weft_checkpoint_reader_load(reader, key, WEFT_STRLEN, NULL, &w));
    if (w != NULL) check_tensor(w, i);
    weft_tensor_release(w);
  }
}

static void a_reader_needs_no_name(weft_context* ctx, weft_tree* state, const bytes* whole) {
  weft_open_options how = WEFT_OPEN_OPTIONS_INIT;
  weft_checkpoint_options other = WEFT_CHECKPOINT_OPTIONS_INIT;
  weft_checkpoint_reader* reader = NULL;
  weft_tensor* kept = NULL;
  bytes b = *whole;
  weft_source source = from_memory(&b);
  char path[400];
  int fd, ends[2];
  OK(weft_checkpoint_reader_open_from(ctx, &source, NULL, &reader));
  check_reader(reader);
  CHECK_EQUAL(b.released, 0);
  b.fails_at = 100;
  FAILS_WITH(weft_checkpoint_reader_load(reader, "w4", WEFT_STRLEN, NULL, &kept), WEFT_UNAVAILABLE, "the line is cut");
  weft_checkpoint_reader_release(reader);
  CHECK_EQUAL(b.released, 1);

  other.format = WEFT_FORMAT_SAFETENSORS; /* the number "step" has no place in it */
  {
    weft_tree* tensors = NULL;
    uint32_t node = 0;
    int i;
    weft_sink sink = to_memory(&b);
    MUST(weft_tree_create(&tensors));
    for (i = 0; i < kTensors; ++i) {
      char key[10];
      weft_tensor* w = NULL;
      snprintf(key, sizeof key, "w%d", i);
      MUST(weft_tree_find(state, WEFT_TREE_ROOT, key, WEFT_STRLEN, &node));
      MUST(weft_tree_get_tensor(state, node, &w));
      MUST(weft_tree_add_tensor(tensors, WEFT_TREE_ROOT, key, WEFT_STRLEN, w, NULL));
      weft_tensor_release(w);
    }
    FAILS_WITH(weft_checkpoint_save_to(ctx, &sink, tensors, &other), WEFT_UNIMPLEMENTED, "only Weft's own format goes down a stream");
    snprintf(path, sizeof path, "%s/state.safetensors", g_dir);
    MUST(weft_checkpoint_save(ctx, path, WEFT_STRLEN, tensors, &other, NULL));
    weft_tree_release(tensors);
  }
  for (how.mode = WEFT_OPEN_COPY; how.mode <= WEFT_OPEN_AUTO; ++how.mode) {
    fd = open(path, O_RDONLY);
    source = from_fd(fd);
    OK(weft_checkpoint_reader_open_from(ctx, &source, &how, &reader));
    close(fd); /* the reader has its own */
    check_reader(reader);
    if (how.mode == WEFT_OPEN_MAP) OK(weft_checkpoint_reader_load(reader, "w4", WEFT_STRLEN, NULL, &kept));
    weft_checkpoint_reader_release(reader);
  }
  unlink(path);
  check_tensor(kept, 4); /* outlives file and reader */
  weft_tensor_release(kept);
  FAILS_WITH(weft_checkpoint_reader_open_from(ctx, &source, NULL, &reader), WEFT_INVALID_ARGUMENT, "which is no open descriptor");
  CHECK(pipe(ends) == 0);
  source = from_fd(ends[0]);
  FAILS_WITH(weft_checkpoint_reader_open_from(ctx, &source, NULL, &reader), WEFT_INVALID_ARGUMENT, "not a regular file");
  close(ends[0]);
  close(ends[1]);
}

int main(void) {
  weft_context* ctx = new_context();
  weft_tree* state = new_state(ctx);
  bytes whole = {NULL, 0, 0, SIZE_MAX, 0, 0, 0, 0};
  weft_sink sink = to_memory(&whole);
  make_folder();
  MUST(weft_checkpoint_save_to(ctx, &sink, state, NULL));
  what_goes_down_a_pipe_or_socket_arrives(ctx, state);
  a_reader_who_leaves_is_an_error_and_no_signal(ctx, state);
  what_goes_to_a_function_comes_from_one(ctx, &whole);
  a_sink_that_fails_at_any_byte_gives_its_error(ctx, state, whole.size);
  a_source_that_fails_or_ends_at_any_byte_is_refused(ctx, &whole);
  a_reader_needs_no_name(ctx, state, &whole);
  free(whole.data);
  weft_tree_release(state);
  weft_context_release(ctx);
  remove_folder();
  return done("streams");
}
