/* Rounds of measurements, for the benchmarks in C: the clock, and the order that medians are taken in. */
#pragma once

#include <time.h>

/* Seconds of the clock that nobody sets. */
static inline double wall_seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* For qsort over doubles. */
static inline int by_value(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}
