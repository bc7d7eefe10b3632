/* Processes of a job that are killed, stopped or told to end at random moments: while they join, add, run programs with sums and save
 * checkpoints. Each case is four processes and one seed, from which everything random follows, over shared memory or TCP. Afterwards:
 *   - every other process has had an error within the bound: 1 s where one ended, half a second behind the timeout where one stopped or
 *     had not joined; all of them the same (over TCP, where it was rank 0: of rank 0), from then on; and the stopped one ended by itself when
 *     it went on;
 *   - no sum was wrong;
 *   - the newest checkpoint that any process was told of, or a newer one, loads, and all of it is of one step;
 *   - no process, socket, listening port or file of shared memory is left.
 *   job_kills [COUNT [SEED]]     so many cases from this seed on, with a timeout of 1 s; alone 20 from seed 1, with half of it
 *   job_kills rank SEED RANK PORT FOLDER TIMEOUT    one process of a case */
#define _DEFAULT_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "folder.h"

enum { RANKS = 4, STATE = 20000, TEXT = 1024 };
static int g_timeout_ms = 1000;

enum { SAID_ERROR = 3, WRONG_SUM = 4, WRONG_ELSE = 5 };

/* What the processes of a case tell the test, in a file that all of them have mapped. */
typedef struct {
  volatile int64_t begins_ms, joined_ms, failed_ms, saved; /* saved: the step of the newest checkpoint that a call said is there */
  char text[TEXT]; /* the error of a call after the first that failed */
} report;

static int64_t now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}
static void sleep_us(long us) {
  const struct timespec time = {us / 1000000, us % 1000000 * 1000};
  nanosleep(&time, NULL);
}
static uint32_t draw(uint32_t* state, uint32_t below) {
  *state = *state * 1664525u + 1013904223u;
  return (*state >> 8) % below;
}

static report* map_reports(const char* folder, int create) {
  char path[400];
  int fd;
  void* at;
  snprintf(path, sizeof path, "%s/reports", folder);
  fd = open(path, O_RDWR | (create ? O_CREAT : 0), 0600);
  if (fd < 0 || (create && ftruncate(fd, RANKS * sizeof(report)) != 0)) exit(WRONG_ELSE);
  at = mmap(NULL, RANKS * sizeof(report), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (at == MAP_FAILED) exit(WRONG_ELSE);
  return at;
}

/* --- One process ------------------------------------------------------------------------------------------------------ */

static weft_tensor* filled(weft_context* ctx, int64_t count, float value) {
  float* const data = malloc((size_t)count * sizeof *data);
  weft_tensor* x = NULL;
  int64_t i;
  for (i = 0; i < count; ++i) data[i] = value;
  MUST(weft_tensor_from_host(ctx, NULL, WEFT_F32, &count, 1, data, (size_t)count * sizeof *data, &x));
  free(data);
  return x;
}

/* Ends the process where an element is another; whole numbers of this size have exact sums. */
static weft_error* all_are(weft_tensor* x, int64_t count, float want, int code) {
  float* const data = malloc((size_t)count * sizeof *data);
  weft_error* const error = weft_tensor_to_host(x, data, (size_t)count * sizeof *data);
  int64_t i;
  for (i = 0; error == NULL && i < count; ++i) {
    if (data[i] != want) {
      printf("element %d is %g, not %g\n", (int)i, (double)data[i], (double)want);
      fflush(stdout);
      _exit(code);
    }
  }
  free(data);
  return error;
}

static weft_error* save(weft_context* ctx, weft_job* job, const char* path, int64_t step) {
  weft_tree* tree = NULL;
  weft_tensor* state = filled(ctx, STATE, (float)step);
  weft_job_save_options options = WEFT_JOB_SAVE_OPTIONS_INIT;
  weft_checkpoint_options file = WEFT_CHECKPOINT_OPTIONS_INIT;
  weft_error* error;
  file.durable = -1; /* processes die here, not machines */
  options.file = &file;
  MUST(weft_tree_create(&tree));
  MUST(weft_tree_add_tensor(tree, 0, "state", WEFT_STRLEN, state, NULL));
  MUST(weft_tree_add_i64(tree, 0, "step", WEFT_STRLEN, step, NULL));
  error = weft_checkpoint_save_job(ctx, job, path, WEFT_STRLEN, tree, &options);
  weft_tensor_release(state);
  weft_tree_release(tree);
  return error;
}

/* Sums at once and recorded, and each third time a checkpoint. */
static weft_error* train_step(weft_context* ctx, weft_job* job, const char* path, int rank, int64_t step, report* own) {
  const int64_t count = step % 3 == 0 ? 300000 : 16;
  const float want = (float)(step % 1000) * 10;
  weft_tensor *x = filled(ctx, count, (float)((rank + 1) * (step % 1000))), *sum = NULL;
  weft_error* error = weft_job_all_reduce(job, x, WEFT_JOB_SUM, &sum);
  if (error == NULL) {
    error = all_are(sum, count, want, WRONG_SUM);
    weft_tensor_release(sum);
  }
  if (error == NULL) {
    MUST(weft_job_reduce(ctx, job, &x, 1, WEFT_JOB_SUM, NULL, &sum));
    error = all_are(sum, count, want, WRONG_SUM);
    weft_tensor_release(sum);
  }
  weft_tensor_release(x);
  if (error == NULL && step % 3 == 1) {
    error = save(ctx, job, path, step);
    if (error == NULL) own->saved = step;
  }
  return error;
}

static int run_rank(const char* seed, int rank, const char* port, const char* folder) {
  report* const own = map_reports(folder, 0) + rank;
  weft_context* ctx = new_context_with("threads", "1");
  weft_job_options options = WEFT_JOB_OPTIONS_INIT;
  weft_job* job = NULL;
  weft_error *error, *again;
  char id[64], where[64], path[400];
  int64_t step = 0;
  snprintf(id, sizeof id, "kills-%s-%d", seed, (int)getppid());
  snprintf(where, sizeof where, "localhost:%s", port);
  snprintf(path, sizeof path, "%s/run.weft", folder);
  options.id = id;
  options.id_length = WEFT_STRLEN;
  options.rank = rank;
  options.size = RANKS;
  options.timeout_ms = g_timeout_ms;
  options.context = ctx;
  if (strcmp(port, "0") != 0) {
    options.local_size = 1;
    options.coordinator = where;
    options.coordinator_length = WEFT_STRLEN;
  }
  own->begins_ms = now_ms();
  error = weft_job_join(&options, &job);
  if (error == NULL) own->joined_ms = now_ms();
  while (error == NULL) error = train_step(ctx, job, path, rank, ++step, own);
  own->failed_ms = now_ms();
  if (job != NULL) {
    weft_tensor* x = filled(ctx, 4, 2);
    error = all_are(x, 4, 2, WRONG_ELSE); /* what runs no collective goes on */
    if (error != NULL) error = all_are(x, 4, 2, WRONG_ELSE); /* the first read may be told of the launch that failed */
    MUST(error);
    weft_tensor_release(x);
    again = weft_job_barrier(job);
    if (again == NULL) return WRONG_ELSE;
    snprintf(own->text, sizeof own->text, "%s", weft_error_message(again, NULL));
    weft_error_release(again);
  } else {
    snprintf(own->text, sizeof own->text, "%s", weft_error_message(error, NULL));
    weft_error_release(error);
  }
  weft_job_release(job);
  weft_context_release(ctx);
  return SAID_ERROR;
}

/* --- A case ----------------------------------------------------------------------------------------------------------- */

typedef struct {
  const char* program;
  uint32_t seed;
  int port, signal, victims; /* a bit a rank */
  int joined;                /* all were, before the signal */
  pid_t pids[RANKS];
  int statuses[RANKS];
  int64_t signal_ms;
  report* reports;
} a_case;

static int64_t g_longest_end_ms, g_longest_stop_ms;
static int g_after_join, g_saved;

static int is_victim(const a_case* c, int rank) { return c->victims >> rank & 1; }

static int listens_nobody(int port) {
  struct sockaddr_in6 address = {0};
  const int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
  int free_now;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  address.sin6_family = AF_INET6;
  address.sin6_port = htons((uint16_t)port);
  free_now = bind(fd, (const struct sockaddr*)&address, sizeof address) == 0 && listen(fd, 1) == 0;
  close(fd);
  return free_now;
}

static int free_port(void) {
  struct sockaddr_in address = {0};
  socklen_t length = sizeof address;
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  address.sin_family = AF_INET;
  if (bind(fd, (const struct sockaddr*)&address, length) != 0 || getsockname(fd, (struct sockaddr*)&address, &length) != 0) exit(1);
  close(fd);
  return ntohs(address.sin_port);
}

static void start(a_case* c) {
  char seed[16], number[16], port[16], timeout[16];
  int rank;
  snprintf(seed, sizeof seed, "%u", c->seed);
  snprintf(port, sizeof port, "%d", c->port);
  snprintf(timeout, sizeof timeout, "%d", g_timeout_ms);
  for (rank = 0; rank < RANKS; ++rank) {
    snprintf(number, sizeof number, "%d", rank);
    c->pids[rank] = fork();
    if (c->pids[rank] == 0) {
      execl(c->program, c->program, "rank", seed, number, port, g_dir, timeout, (char*)NULL);
      _exit(127);
    }
  }
}

static int all_joined(const a_case* c) {
  int rank, joined = 0;
  for (rank = 0; rank < RANKS; ++rank) joined += c->reports[rank].joined_ms != 0;
  return joined == RANKS;
}

/* Half of the cases begin with the processes, the others when all have joined. */
static void strike(a_case* c, uint32_t* random) {
  static const int signals[] = {SIGKILL, SIGKILL, SIGKILL, SIGTERM, SIGSTOP};
  const int early = draw(random, 2) == 0;
  const long us = (long)draw(random, early ? 25000 : 150000); /* joining takes about 15 ms */
  int rank, tries;
  c->signal = signals[draw(random, 5)];
  c->victims = 1 << draw(random, RANKS);
  if (draw(random, 5) == 0) c->victims |= 1 << draw(random, RANKS);
  for (tries = 0; !early && tries < 3000 && !all_joined(c); ++tries) sleep_us(1000);
  sleep_us(us);
  c->joined = all_joined(c);
  c->signal_ms = now_ms();
  for (rank = 0; rank < RANKS; ++rank) {
    if (is_victim(c, rank)) kill(c->pids[rank], c->signal);
  }
}

/* Waits for these processes; a bit for each that has not ended then. */
static int wait_for(a_case* c, int ranks) {
  const int64_t until = now_ms() + g_timeout_ms + 20000;
  int rank;
  while (ranks != 0 && now_ms() < until) {
    for (rank = 0; rank < RANKS; ++rank) {
      if ((ranks >> rank & 1) && waitpid(c->pids[rank], &c->statuses[rank], WNOHANG) == c->pids[rank]) ranks &= ~(1 << rank);
    }
    if (ranks != 0) sleep_us(1000);
  }
  return ranks;
}

static void check_others(a_case* c) {
  const char* text = NULL;
  int rank;
  for (rank = 0; rank < RANKS; ++rank) {
    const report* r = &c->reports[rank];
    const int64_t from = r->begins_ms > c->signal_ms ? r->begins_ms : c->signal_ms;
    const int64_t took = r->failed_ms - from, most = c->joined && c->signal != SIGSTOP ? 1000 : g_timeout_ms + 500;
    if (is_victim(c, rank)) continue;
    if (!WIFEXITED(c->statuses[rank]) || WEXITSTATUS(c->statuses[rank]) != SAID_ERROR) {
      printf("rank %d ended with status %x\n", rank, (unsigned)c->statuses[rank]);
      CHECK(0);
      continue;
    }
    if (took > most) {
      printf("rank %d had its error after %d ms, not %d: %s\n", rank, (int)took, (int)most, r->text);
      CHECK(0);
    }
    if (!c->joined) continue;
    if (c->signal == SIGSTOP && took > g_longest_stop_ms) g_longest_stop_ms = took;
    if (c->signal != SIGSTOP && took > g_longest_end_ms) g_longest_end_ms = took;
    if (c->port != 0 && is_victim(c, 0)) { /* nobody is left who knows of all: each says who it was */
      CHECK(strstr(r->text, c->signal == SIGSTOP ? " does not answer for the others" : " ended while the others waited in ") != NULL);
      CHECK(strstr(r->text, "rank 0 (process ") != NULL);
      continue;
    }
    if (text == NULL) text = r->text;
    CHECK_TEXT(r->text, text);
  }
}

static void check_checkpoint(const a_case* c, weft_context* ctx) {
  int64_t saved = 0, step = 0;
  weft_tree* tree = NULL;
  weft_tensor* state = NULL;
  uint32_t node = 0;
  char path[400];
  int rank;
  for (rank = 0; rank < RANKS; ++rank) {
    if (c->reports[rank].saved > saved) saved = c->reports[rank].saved;
  }
  snprintf(path, sizeof path, "%s/run.weft", g_dir);
  if (saved == 0 && access(path, F_OK) != 0) return;
  ++g_saved;
  if (!OK(weft_checkpoint_load(ctx, path, WEFT_STRLEN, NULL, &tree))) return;
  MUST(weft_tree_find(tree, WEFT_TREE_ROOT, "step", WEFT_STRLEN, &node));
  MUST(weft_tree_get_i64(tree, node, &step));
  MUST(weft_tree_find(tree, WEFT_TREE_ROOT, "state", WEFT_STRLEN, &node));
  MUST(weft_tree_get_tensor(tree, node, &state));
  CHECK(step >= saved);
  MUST(all_are(state, STATE, (float)step, WRONG_ELSE));
  weft_tensor_release(state);
  weft_tree_release(tree);
}

static void check_nothing_is_left(const a_case* c) {
  char name[64], line[512];
  FILE* sockets = fopen("/proc/net/unix", "r");
  DIR* shm = opendir("/dev/shm");
  struct dirent* entry;
  int status;
  snprintf(name, sizeof name, "weft/kills-%u-%d#", c->seed, (int)getpid());
  while (sockets != NULL && fgets(line, sizeof line, sockets) != NULL) CHECK(strstr(line, name) == NULL);
  if (sockets != NULL) fclose(sockets);
  while (shm != NULL && (entry = readdir(shm)) != NULL) CHECK(strstr(entry->d_name, "weft") == NULL);
  if (shm != NULL) closedir(shm);
  if (c->port != 0) CHECK(listens_nobody(c->port));
  CHECK(waitpid(-1, &status, WNOHANG) == -1 && errno == ECHILD);
}

static void run_case(const char* program, uint32_t seed, weft_context* ctx) {
  a_case c = {0};
  uint32_t random = seed * 2654435761u + 12345u;
  const int before = g_failures, all = (1 << RANKS) - 1;
  int rank, left;
  make_folder();
  c.program = program;
  c.seed = seed;
  c.reports = map_reports(g_dir, 1);
  c.port = draw(&random, 2) == 0 ? 0 : free_port();
  start(&c);
  strike(&c, &random);
  left = wait_for(&c, c.signal == SIGSTOP ? all & ~c.victims : all);
  CHECK_EQUAL(left, 0); /* hangs */
  if (c.signal == SIGSTOP) {
    for (rank = 0; rank < RANKS; ++rank) {
      if (is_victim(&c, rank)) kill(c.pids[rank], SIGCONT);
    }
    left |= wait_for(&c, c.victims);
    CHECK_EQUAL(left, 0);
    for (rank = 0; rank < RANKS; ++rank) {
      if (is_victim(&c, rank)) CHECK(WIFEXITED(c.statuses[rank]) && WEXITSTATUS(c.statuses[rank]) == SAID_ERROR);
    }
  }
  for (rank = 0; rank < RANKS; ++rank) {
    if (left >> rank & 1) kill(c.pids[rank], SIGKILL), waitpid(c.pids[rank], &c.statuses[rank], 0);
  }
  check_others(&c);
  check_checkpoint(&c, ctx);
  check_nothing_is_left(&c);
  g_after_join += c.joined;
  if (g_failures != before) {
    printf("seed %u: signal %d to ranks (bits) %x over %s, %s all had joined; job_kills 1 %u runs it alone\n", seed, c.signal, (unsigned)c.victims,
           c.port != 0 ? "TCP" : "shared memory", c.joined ? "when" : "before", seed);
    for (rank = 0; rank < RANKS; ++rank) printf("  rank %d: status %x: %s\n", rank, (unsigned)c.statuses[rank], c.reports[rank].text);
    fflush(stdout);
  }
  munmap(c.reports, RANKS * sizeof(report));
  remove_folder();
}

int main(int argc, char** argv) {
  const int count = argc > 1 && argc < 4 ? atoi(argv[1]) : 20;
  const uint32_t first = argc == 3 ? (uint32_t)atoi(argv[2]) : 1;
  weft_context* ctx;
  int i;
  if (argc == 7) g_timeout_ms = atoi(argv[6]);
  if (argc == 1) g_timeout_ms = 500; /* so that the tests of every day are over in some seconds */
  if (argc == 7) return run_rank(argv[2], atoi(argv[3]), argv[4], argv[5]);
  ctx = new_context();
  for (i = 0; i < count; ++i) run_case(argv[0], first + (uint32_t)i, ctx);
  printf("%d cases from seed %u on: %d when all had joined, %d with a checkpoint; the longest wait for an error was %d ms behind an end, "
         "%d ms behind a stop (timeout %d ms)\n", count, first, g_after_join, g_saved, (int)g_longest_end_ms, (int)g_longest_stop_ms, g_timeout_ms);
  weft_context_release(ctx);
  return done("job_kills");
}
