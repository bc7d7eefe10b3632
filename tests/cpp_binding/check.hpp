// Shared by the programs of this folder: checks that name the line, and the context that they use.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <libweft.hpp>
#include <string>

inline int failures = 0;

inline void check(bool condition, const char* what, int line) {
  if (condition) return;
  std::printf("line %d: %s\n", line, what);
  ++failures;
}
#define CHECK(...) check((__VA_ARGS__), #__VA_ARGS__, __LINE__)

template <class T>
bool holds(const weft::tensor& x, std::initializer_list<T> wanted) {
  return x.to_vector<T>() == std::vector<T>(wanted);
}

inline int report() {
  std::printf(failures == 0 ? "all well\n" : "%d checks failed\n", failures);
  return failures == 0 ? 0 : 1;
}
