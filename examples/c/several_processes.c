/* Fits a line by several processes: each has a part of the points, and all take the same steps, since they exchange the mean of
 * their gradients. One process comes to the same line. examples/python/several_processes.py does the same by ctypes.
 *
 *   cc several_processes.c $(pkg-config --cflags --libs weft) -Wl,-rpath,$(pkg-config --variable=libdir weft) -o several_processes
 *   weft launch -n 4 -- ./several_processes */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "weft.h"

enum { POINTS = 200, STEPS = 100 };

static void must(weft_error* error) {
  if (error == NULL) return;
  fprintf(stderr, "several_processes: %s\n", weft_error_message(error, NULL));
  exit(1); /* the others hear of it at once: "rank 1 left the group" */
}

/* This process's points of y = 1.7 x - 0.4 and a little noise: number `rank`, `rank + size`, ... of all. Gives how many. */
static int64_t make_points(const weft_job_info* info, float* x, float* y) {
  uint32_t noise = 1;
  int64_t count = 0;
  int i;
  for (i = 0; i < POINTS; ++i) {
    noise = noise * 1664525u + 1013904223u;
    if (i % info->size != info->rank) continue;
    x[count] = -1 + 2 * (float)i / (POINTS - 1);
    y[count] = 1.7f * x[count] - 0.4f + 0.1f * ((float)(noise >> 8) / 8388608.0f - 1);
    ++count;
  }
  return count;
}

/* The gradients of the mean of the squared errors of w[0] x + w[1], over the points of this process. */
static void differentiate(weft_context* ctx, weft_tensor* const w[2], weft_tensor* x, weft_tensor* y, weft_tensor* grads[2]) {
  weft_tensor *scaled, *line, *error, *square, *loss;
  must(weft_mul(ctx, x, w[0], &scaled));
  must(weft_add(ctx, scaled, w[1], &line));
  must(weft_sub(ctx, line, y, &error));
  must(weft_square(ctx, error, &square));
  must(weft_mean(ctx, square, NULL, &loss));
  must(weft_grad(ctx, loss, NULL, w, 2, grads));
  weft_tensor_release(scaled);
  weft_tensor_release(line);
  weft_tensor_release(error);
  weft_tensor_release(square);
  weft_tensor_release(loss);
}

/* The mean over the processes, in one exchange for both gradients. */
static void average(weft_context* ctx, weft_job* job, weft_tensor* share, weft_tensor* grads[2]) {
  const int64_t first = 0, second = 1, third = 2, one = 1;
  weft_tensor *both, *sum, *mean, *parts[2];
  must(weft_stack(ctx, grads, 2, NULL, &both));
  must(weft_job_all_reduce(job, both, WEFT_JOB_SUM, &sum)); /* waits for the others */
  must(weft_mul(ctx, sum, share, &mean));
  must(weft_slice(ctx, mean, &first, 1, &second, 1, &one, 1, &parts[0]));
  must(weft_slice(ctx, mean, &second, 1, &third, 1, &one, 1, &parts[1]));
  weft_tensor_release(grads[0]);
  weft_tensor_release(grads[1]);
  must(weft_reshape(ctx, parts[0], NULL, 0, &grads[0]));
  must(weft_reshape(ctx, parts[1], NULL, 0, &grads[1]));
  weft_tensor_release(both);
  weft_tensor_release(sum);
  weft_tensor_release(mean);
  weft_tensor_release(parts[0]);
  weft_tensor_release(parts[1]);
}

int main(int argc, char** argv) {
  weft_context* ctx = NULL;
  weft_job* job = NULL;
  weft_job_info info = WEFT_JOB_INFO_INIT;
  weft_optimizer* sgd = NULL;
  weft_tensor *x, *y, *w[2], *share, *grads[2];
  float xs[POINTS], ys[POINTS];
  double slope = 0, offset = 0;
  int64_t count;
  int i;
  if (argc != 1) {
    const int help = argc == 2 && strcmp(argv[1], "--help") == 0;
    fprintf(help ? stdout : stderr, "usage: several_processes\n\nStart it by `weft launch -n 4 -- ./several_processes`.\n");
    return help ? 0 : 2;
  }
  must(weft_context_create(NULL, &ctx));
  must(weft_job_join(NULL, &job)); /* who this process is says `weft launch`; alone it is 0 of 1 */
  must(weft_job_read_info(job, &info));
  count = make_points(&info, xs, ys);
  must(weft_tensor_from_host(ctx, NULL, WEFT_F32, &count, 1, xs, (size_t)count * sizeof *xs, &x));
  must(weft_tensor_from_host(ctx, NULL, WEFT_F32, &count, 1, ys, (size_t)count * sizeof *ys, &y));
  must(weft_tensor_from_f64(ctx, WEFT_F32, 1.0 / info.size, &share));
  for (i = 0; i < 2; ++i) {
    must(weft_tensor_from_f64(ctx, WEFT_F32, 0, &w[i]));
    must(weft_tensor_require_grad(w[i], 1));
  }
  must(weft_sgd_create(ctx, w, 2, NULL, &sgd));
  for (i = 0; i < STEPS; ++i) {
    differentiate(ctx, w, x, y, grads);
    average(ctx, job, share, grads);
    must(weft_optimizer_step(sgd, grads, 2, 0.1));
    weft_tensor_release(grads[0]);
    weft_tensor_release(grads[1]);
    must(weft_sync(ctx, NULL, NULL));
  }
  must(weft_tensor_item_f64(w[0], &slope));
  must(weft_tensor_item_f64(w[1], &offset));
  if (info.rank == 0) printf("y = %.5f x %+.5f, found by %d\n", slope, offset, info.size);
  must(weft_job_leave(job)); /* when all have come here */
  weft_tensor_release(w[0]);
  weft_tensor_release(w[1]);
  weft_tensor_release(share);
  weft_tensor_release(x);
  weft_tensor_release(y);
  weft_optimizer_release(sgd);
  weft_job_release(job);
  weft_context_release(ctx);
  return 0;
}
