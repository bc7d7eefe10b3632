/* weft_cancel ends the waits of a job: joining, over shared memory and TCP, as rank 0 and as another; barrier, leaving and the question
 * whether somebody is to end. The error says who was waited for, all processes have it, and the next call hears nothing of it.
 *   job_cancel                 all of it
 *   job_cancel ID CALL PORT    rank 1, which joins and comes to nothing until rank 0 has given up; then it says what it is told */
#define _POSIX_C_SOURCE 200809L
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

static int64_t now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static int64_t g_cancelled_ms;

static void* cancel_soon(void* ctx) {
  const struct timespec soon = {0, 200000000};
  nanosleep(&soon, NULL);
  g_cancelled_ms = now_ms();
  weft_cancel(ctx);
  return NULL;
}

static int free_port(void) {
  struct sockaddr_in address = {0};
  socklen_t length = sizeof address;
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  address.sin_family = AF_INET;
  CHECK(bind(fd, (const struct sockaddr*)&address, length) == 0);
  CHECK(getsockname(fd, (struct sockaddr*)&address, &length) == 0);
  close(fd);
  return ntohs(address.sin_port);
}

/* `port` 0: shared memory. */
static weft_job_options options_of(weft_context* ctx, const char* id, int rank, int size, int port) {
  static char where[64];
  weft_job_options options = WEFT_JOB_OPTIONS_INIT;
  options.id = id;
  options.id_length = WEFT_STRLEN;
  options.rank = rank;
  options.size = size;
  options.timeout_ms = 60000;
  options.context = ctx;
  if (port != 0) {
    snprintf(where, sizeof where, "localhost:%d", port);
    options.local_size = 1;
    options.coordinator = where;
    options.coordinator_length = WEFT_STRLEN;
  }
  return options;
}

/* The call ends by the cancel, soon, with such a text; afterwards the context works. */
static void ends_soon(weft_context* ctx, weft_error* error, const char* text) {
  const int64_t late = now_ms() - g_cancelled_ms;
  weft_tensor* x = NULL;
  CHECK(error != NULL);
  if (error == NULL) return;
  CHECK_EQUAL(weft_error_code(error), WEFT_CANCELLED);
  if (strstr(weft_error_message(error, NULL), text) == NULL) {
    printf("'%s' is not in '%s'\n", text, weft_error_message(error, NULL));
    CHECK(0);
  }
  weft_error_release(error);
  printf("  %d ms after weft_cancel: %s\n", (int)late, text);
  CHECK(late < 3000); /* 10 ms on a machine with nothing else to do */
  x = ramp(ctx, DIMS(4));
  MUST(weft_sync(ctx, NULL, NULL));
  weft_tensor_release(x);
}

static void joining_ends(void) {
  int tcp, rank;
  for (tcp = 0; tcp < 2; ++tcp) {
    for (rank = 0; rank < 2; ++rank) {
      weft_context* ctx = new_context();
      weft_job* job = NULL;
      weft_job_options options;
      pthread_t thread;
      weft_error* error;
      char id[64];
      snprintf(id, sizeof id, "cancel-join-%d-%d", (int)getpid(), rank);
      options = options_of(ctx, id, rank, 3, tcp ? free_port() : 0);
      CHECK(pthread_create(&thread, NULL, cancel_soon, ctx) == 0);
      error = weft_job_join(&options, &job);
      pthread_join(thread, NULL);
      ends_soon(ctx, error,
                rank == 1 ? (tcp ? "weft_job_join: rank 0 was not found at localhost:" : "rank 0 did not come to the group of 3 before weft_cancel ended the wait: nobody listens")
                : tcp     ? "ranks 1, 2 did not come to rank 0, which listens at port"
                          : "weft_job_join: ranks 1, 2 did not come to the group of 3 before weft_cancel ended the wait (rank 0 by");
      CHECK(job == NULL);
      weft_context_release(ctx);
    }
  }
}

static weft_error* call_of(weft_job* job, const char* call) {
  int32_t preempted = 0;
  if (strcmp(call, "barrier") == 0) return weft_job_barrier(job);
  if (strcmp(call, "leave") == 0) return weft_job_leave(job);
  return weft_job_preempted(job, &preempted);
}

/* Rank 1: comes when rank 0 has given up, and has the same error. */
static int other(const char* id, const char* call, int port) {
  weft_context* ctx = new_context();
  weft_job_options options = options_of(ctx, id, 1, 2, port);
  weft_job* job = NULL;
  weft_error* error = NULL;
  char c;
  MUST(weft_job_join(&options, &job));
  (void)!read(STDIN_FILENO, &c, 1); /* until the pipe is closed */
  error = call_of(job, call);
  CHECK(error != NULL && weft_error_code(error) == WEFT_CANCELLED);
  CHECK(error != NULL && strstr(weft_error_message(error, NULL), "before weft_cancel ended the wait of rank 0 (process ") != NULL);
  if (error != NULL) weft_error_release(error);
  weft_job_release(job);
  weft_context_release(ctx);
  return g_failures != 0;
}

static void waits_of_members_end(const char* program) {
  static const char* const calls[] = {"barrier", "leave", "preempted"};
  static const char* const texts[] = {"did not come to barrier, tag 1 before weft_cancel ended the wait of rank 0 (process ",
                                      "did not come to barrier, tag 1, at leave before weft_cancel ended the wait of rank 0 (process ",
                                      "did not come to all_reduce (max) of 1 i32, tag 1, at weft_job_preempted before weft_cancel ended"};
  int tcp, i;
  for (tcp = 0; tcp < 2; ++tcp) {
    for (i = 0; i < 3; ++i) {
      weft_context* ctx = new_context();
      weft_job* job = NULL;
      weft_error* error;
      pthread_t thread;
      weft_job_options options;
      int ends[2], status = -1;
      const int port = tcp ? free_port() : 0;
      char id[64], number[16];
      pid_t child;
      snprintf(id, sizeof id, "cancel-%s-%d", calls[i], (int)getpid());
      snprintf(number, sizeof number, "%d", port);
      CHECK(pipe(ends) == 0);
      child = fork();
      if (child == 0) {
        dup2(ends[0], STDIN_FILENO);
        close(ends[0]);
        close(ends[1]);
        execl(program, program, id, calls[i], number, (char*)NULL);
        _exit(127);
      }
      close(ends[0]);
      options = options_of(ctx, id, 0, 2, port);
      MUST(weft_job_join(&options, &job));
      CHECK(pthread_create(&thread, NULL, cancel_soon, ctx) == 0);
      error = call_of(job, calls[i]);
      pthread_join(thread, NULL);
      ends_soon(ctx, error, texts[i]);
      close(ends[1]);
      CHECK(waitpid(child, &status, 0) == child);
      CHECK_EQUAL(status, 0);
      weft_job_release(job);
      weft_context_release(ctx);
    }
  }
}

/* A cancel that nobody waited for is the next wait's, once. */
static void an_early_cancel_is_heard_once(void) {
  weft_context* ctx = new_context();
  weft_job_options options = options_of(ctx, NULL, 0, 1, 0);
  weft_job* job = NULL;
  int32_t preempted = 7;
  weft_cancel(ctx);
  FAILS_WITH(weft_job_join(&options, &job), WEFT_CANCELLED, "cancelled by weft_cancel");
  CHECK(job == NULL);
  MUST(weft_job_join(&options, &job));
  weft_cancel(ctx);
  FAILS_WITH(weft_job_barrier(job), WEFT_CANCELLED, "cancelled by weft_cancel");
  MUST(weft_job_barrier(job));
  MUST(weft_job_preempted(job, &preempted));
  CHECK_EQUAL(preempted, 0);
  weft_job_preempt(NULL);
  weft_job_preempt(job);
  MUST(weft_job_preempted(job, &preempted));
  CHECK_EQUAL(preempted, 1);
  MUST(weft_job_preempted(job, &preempted));
  CHECK_EQUAL(preempted, 1);
  weft_context_release(ctx); /* the job keeps what it needs */
  MUST(weft_job_barrier(job));
  weft_job_release(job);
  weft_job_preempt(job);
  FAILS_WITH(weft_job_join(&options, &job), WEFT_INVALID_ARGUMENT, "weft_job_options.context");
}

int main(int argc, char** argv) {
  if (argc == 4) return other(argv[1], argv[2], atoi(argv[3]));
  joining_ends();
  waits_of_members_end(argv[0]);
  an_early_cancel_is_heard_once();
  return done("job_cancel");
}
