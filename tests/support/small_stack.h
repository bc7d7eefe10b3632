// Runs a body on a thread of 256 KiB stack, where recursion over a long graph would crash.
#pragma once

#include <pthread.h>

#include <functional>

namespace weft::test {

inline void OnSmallStack(std::function<void()> body, size_t bytes = 256 * 1024) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, bytes);
  pthread_t thread;
  auto run = [](void* argument) -> void* {
    (*static_cast<std::function<void()>*>(argument))();
    return nullptr;
  };
  if (pthread_create(&thread, &attributes, run, &body) == 0) pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

}  // namespace weft::test
