/* Jobs: a process alone, what it finds in variables, and bad input. Processes together: tests/cli/launch_test.py. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <unistd.h>

#include "check.h"

static const char* const kVariables[] = {"WEFT_RANK", "WEFT_WORLD_SIZE", "WEFT_LOCAL_RANK", "WEFT_LOCAL_SIZE", "WEFT_RESTART",
                                         "WEFT_JOB", "WEFT_JOB_TOKEN", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
                                         "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID", "JOB_COMPLETION_INDEX",
                                         "TPU_WORKER_ID", "CLOUD_TPU_TASK_ID"};

static void forget_variables(void) {
  size_t i;
  for (i = 0; i < sizeof kVariables / sizeof *kVariables; ++i) unsetenv(kVariables[i]);
}

static weft_job* join_alone(void) {
  weft_job* job = NULL;
  forget_variables();
  MUST(weft_job_join(NULL, &job));
  return job;
}

static void a_process_is_a_job_of_one(void) {
  weft_job* job = join_alone();
  weft_job_info info = WEFT_JOB_INFO_INIT;
  MUST(weft_job_read_info(job, &info));
  weft_job_retain(job);
  weft_job_release(job);
  CHECK_EQUAL(info.rank, 0);
  CHECK_EQUAL(info.size, 1);
  CHECK_EQUAL(info.local_size, 1);
  CHECK_TEXT(info.source, "nothing that says otherwise: 1 of 1");
  MUST(weft_job_barrier(job));
  MUST(weft_job_leave(job));
  FAILS_WITH(weft_job_barrier(job), WEFT_FAILED_PRECONDITION, "weft_job_barrier: this process has left the job; join it again");
  weft_job_release(job);
}

static void collectives_of_one_give_the_input(void) {
  weft_context* ctx = new_context();
  weft_job* job = join_alone();
  weft_tensor *x = ramp(ctx, DIMS(4)), *y = NULL, *square = NULL;
  float values[4] = {-1, -1, -1, -1};
  MUST(weft_square(ctx, x, &square));
  MUST(weft_job_all_reduce(job, square, WEFT_JOB_SUM, &y));
  OK(weft_tensor_to_host(y, values, sizeof values));
  CHECK(values[0] == 0 && values[1] == 1 && values[3] == 9);
  weft_tensor_release(y);
  MUST(weft_job_all_gather(job, x, &y));
  OK(weft_tensor_to_host(y, values, sizeof values));
  CHECK(values[3] == 3);
  weft_tensor_release(y);
  MUST(weft_job_reduce_scatter(job, x, WEFT_JOB_MAX, &y));
  weft_tensor_release(y);
  MUST(weft_job_all_to_all(job, x, &y));
  weft_tensor_release(y);
  MUST(weft_job_broadcast(job, x, 0, &y));
  OK(weft_tensor_to_host(y, values, sizeof values));
  CHECK(values[2] == 2);
  weft_tensor_release(y);
  weft_tensor_release(square);
  weft_tensor_release(x);
  weft_job_release(job);
  weft_context_release(ctx);
}

/* Sums and means of one process are its tensors, in whatever buckets; they run with the program that they are part of. */
static void recorded_sums_of_one_give_the_inputs(void) {
  static const weft_dtype dtypes[] = {WEFT_F32, WEFT_BF16, WEFT_F32, WEFT_I64, WEFT_F64, WEFT_F32};
  weft_context* ctx = new_context();
  weft_job* job = join_alone();
  weft_job_reduce_options options = WEFT_JOB_REDUCE_OPTIONS_INIT;
  weft_tensor *in[6], *out[6], *x = ramp(ctx, DIMS(2, 3)), *f = NULL;
  float values[6];
  int bucket, i;
  for (i = 0; i < 6; ++i) MUST(weft_convert(ctx, x, dtypes[i], &in[i]));
  for (bucket = 0; bucket < 2; ++bucket) {
    const int64_t launches = metric(ctx, "launches");
    options.first_bucket_bytes = bucket ? 1 : 0;
    options.bucket_bytes = bucket ? 50 : 0;
    MUST(weft_job_reduce(ctx, job, in, 6, WEFT_JOB_SUM, &options, out));
    CHECK_EQUAL(metric(ctx, "launches"), launches); /* recorded */
    for (i = 0; i < 6; ++i) {
      MUST(weft_convert(ctx, out[i], WEFT_F32, &f));
      MUST(weft_tensor_to_host(f, values, sizeof values));
      CHECK(values[0] == 0 && values[1] == 1 && values[5] == 5);
      weft_tensor_release(f);
      weft_tensor_release(out[i]);
    }
  }
  MUST(weft_job_reduce(ctx, job, in, 3, WEFT_JOB_MEAN, NULL, out));
  for (i = 0; i < 3; ++i) weft_tensor_release(out[i]);
  FAILS(weft_job_reduce(ctx, job, in, 4, WEFT_JOB_MEAN, NULL, out), WEFT_INVALID_ARGUMENT,
        "weft_job_reduce: a tensor is of i64, which has no mean; convert it, or take the sum");
  FAILS(weft_job_reduce(ctx, job, in, 1, WEFT_JOB_MAX, NULL, out), WEFT_INVALID_ARGUMENT,
        "weft_job_reduce: reduction is 3; it is WEFT_JOB_SUM or WEFT_JOB_MEAN");
  options.bucket_bytes = -1;
  FAILS_WITH(weft_job_reduce(ctx, job, in, 1, WEFT_JOB_SUM, &options, out), WEFT_INVALID_ARGUMENT, "buckets are of 1 and -1 bytes");
  for (i = 0; i < 6; ++i) weft_tensor_release(in[i]);
  MUST(weft_job_reduce(ctx, job, &x, 1, WEFT_JOB_SUM, NULL, out));
  weft_job_release(job);
  FAILS_WITH(weft_tensor_to_host(out[0], values, sizeof values), WEFT_FAILED_PRECONDITION,
             "the job was released before a program that has its sums ran; read the results first");
  weft_tensor_release(out[0]);
  weft_tensor_release(x);
  weft_context_release(ctx);
}

/* Of one process every collective gives its input, and the gradient of its sum is ones; several: tests/python/job_record_test.py. */
static void recorded_collectives_of_one_give_the_input(void) {
  weft_context* ctx = new_context();
  weft_job* job = join_alone();
  weft_tensor *x = ramp(ctx, DIMS(4)), *y = NULL, *sum = NULL, *grad = NULL;
  const int64_t launches = metric(ctx, "launches");
  float values[4];
  int kind;
  MUST(weft_tensor_require_grad(x, 1));
  for (kind = WEFT_JOB_ALL_REDUCE; kind <= WEFT_JOB_BROADCAST; ++kind) {
    const int64_t before = metric(ctx, "launches");
    MUST(weft_job_record(ctx, job, (weft_job_collective)kind, x, kind == WEFT_JOB_REDUCE_SCATTER ? WEFT_JOB_MEAN : WEFT_JOB_MAX, 0, &y));
    CHECK_EQUAL(metric(ctx, "launches"), before); /* recorded */
    MUST(weft_sum(ctx, y, NULL, &sum));
    MUST(weft_grad(ctx, sum, NULL, &x, 1, &grad));
    MUST(weft_tensor_to_host(y, values, sizeof values));
    CHECK(values[0] == 0 && values[3] == 3);
    MUST(weft_tensor_to_host(grad, values, sizeof values));
    CHECK(values[0] == 1 && values[3] == 1);
    weft_tensor_release(grad);
    weft_tensor_release(sum);
    weft_tensor_release(y);
  }
  CHECK(metric(ctx, "launches") > launches);
  y = NULL;
  FAILS(weft_job_record(ctx, job, (weft_job_collective)5, x, WEFT_JOB_SUM, 0, &y), WEFT_INVALID_ARGUMENT,
        "weft_job_record: collective 5 is none; 0 to 4 are (WEFT_JOB_ALL_REDUCE to WEFT_JOB_BROADCAST)");
  FAILS(weft_job_record(ctx, job, WEFT_JOB_ALL_REDUCE, x, (weft_job_reduction)7, 0, &y), WEFT_INVALID_ARGUMENT,
        "weft_job_record: reduction 7 is none; 0 to 6 are (WEFT_JOB_SUM to WEFT_JOB_MEAN)");
  FAILS(weft_job_record(ctx, job, WEFT_JOB_ALL_REDUCE, x, WEFT_JOB_AND, 0, &y), WEFT_INVALID_ARGUMENT, "weft_job_record: all_reduce: f32 has no and");
  FAILS(weft_job_record(ctx, job, WEFT_JOB_BROADCAST, x, WEFT_JOB_SUM, 1, &y), WEFT_INVALID_ARGUMENT,
        "weft_job_record: broadcast: the root 1 is no rank of a group of 1");
  CHECK(y == NULL);
  MUST(weft_job_record(ctx, job, WEFT_JOB_ALL_GATHER, x, WEFT_JOB_SUM, 0, &y));
  weft_job_release(job);
  FAILS_WITH(weft_tensor_to_host(y, values, sizeof values), WEFT_FAILED_PRECONDITION,
             "the job was released before a program that has its sums ran; read the results first");
  weft_tensor_release(y);
  weft_tensor_release(x);
  weft_context_release(ctx);
}

static void bad_calls_say_what_is_wrong(void) {
  weft_context* ctx = new_context();
  weft_job* job = join_alone();
  weft_tensor *x = ramp(ctx, DIMS(4)), *out = NULL;
  FAILS_WITH(weft_job_all_reduce(job, x, (weft_job_reduction)9, &out), WEFT_INVALID_ARGUMENT,
        "weft_job_all_reduce: reduction 9 is none; 0 to 5 are (WEFT_JOB_SUM to WEFT_JOB_OR)");
  FAILS_WITH(weft_job_all_reduce(NULL, x, WEFT_JOB_SUM, &out), WEFT_INVALID_ARGUMENT, "weft_job_all_reduce: job is NULL; a weft_job is needed");
  /* A refused call ends the group. */
  FAILS_WITH(weft_job_all_reduce(job, x, WEFT_JOB_AND, &out), WEFT_INVALID_ARGUMENT, "rank 0: all_reduce: f32 has no and");
  FAILS_WITH(weft_job_barrier(job), WEFT_INVALID_ARGUMENT, "rank 0: all_reduce: f32 has no and");
  CHECK(out == NULL);
  weft_job_release(job);
  job = join_alone();
  FAILS_WITH(weft_job_broadcast(job, x, 1, &out), WEFT_INVALID_ARGUMENT, "broadcast: the root 1 is no rank of a group of 1");
  weft_job_release(job);
  weft_tensor_release(x);
  weft_context_release(ctx);
}

static void bad_options_say_what_is_wrong(void) {
  weft_job_options options = WEFT_JOB_OPTIONS_INIT;
  weft_job* job = NULL;
  forget_variables();
  options.size = 2;
  options.rank = 2;
  FAILS_WITH(weft_job_join(&options, &job), WEFT_INVALID_ARGUMENT, "rank 2 is not below the number of processes, 2");
  options.rank = -1;
  FAILS_WITH(weft_job_join(&options, &job), WEFT_INVALID_ARGUMENT, "weft_job_join: rank is -1; ranks are from 0 on");
  options.size = -2;
  FAILS_WITH(weft_job_join(&options, &job), WEFT_INVALID_ARGUMENT, "size is -2");
  options.size = 0;
  options.timeout_ms = -1;
  FAILS_WITH(weft_job_join(&options, &job), WEFT_INVALID_ARGUMENT, "timeout_ms is -1");
  options.timeout_ms = 100;
  options.size = 2;
  options.rank = 0;
  FAILS_WITH(weft_job_join(&options, &job), WEFT_DEADLINE_EXCEEDED, "rank 1 did not come to the group of 2 before the deadline (rank 0 by the caller: rank 0 of 2)");
  options.local_size = 1;
  FAILS_WITH(weft_job_join(&options, &job), WEFT_INVALID_ARGUMENT, "needs the address of rank 0: WEFT_COORDINATOR=host:port");
  options.coordinator = "here";
  options.coordinator_length = WEFT_STRLEN;
  FAILS_WITH(weft_job_join(&options, &job), WEFT_INVALID_ARGUMENT, "the address of rank 0, 'here', is not host:port");
  options.coordinator = "localhost:70000";
  FAILS_WITH(weft_job_join(&options, &job), WEFT_INVALID_ARGUMENT, "'localhost:70000' is no address of rank 0");
  options.coordinator = NULL;
  options.size = 0;
  setenv("RANK", "1", 1);
  FAILS_WITH(weft_job_join(&options, &job), WEFT_INVALID_ARGUMENT, "torchrun: RANK is set and WORLD_SIZE is not");
  CHECK(job == NULL);
}

static void what_would_be_found_is_text(void) {
  weft_blob* blob = NULL;
  forget_variables();
  setenv("RANK", "1", 1);
  setenv("WORLD_SIZE", "2", 1);
  MUST(weft_job_find(NULL, &blob));
  CHECK(strstr((const char*)weft_blob_data(blob), "\"rank\": 1, \"size\": 2") != NULL);
  CHECK(strstr((const char*)weft_blob_data(blob), "\"source\": \"torchrun: RANK=1 WORLD_SIZE=2\"") != NULL);
  CHECK(strstr((const char*)weft_blob_data(blob), "weft launch: no WEFT_RANK") != NULL);
  weft_blob_release(blob);
  forget_variables();
}

int main(void) {
  a_process_is_a_job_of_one();
  collectives_of_one_give_the_input();
  recorded_sums_of_one_give_the_inputs();
  recorded_collectives_of_one_give_the_input();
  bad_calls_say_what_is_wrong();
  bad_options_say_what_is_wrong();
  what_would_be_found_is_text();
  return done("job");
}
