// The engine on the fake plugin (fake/fake.cc), for tests.
#pragma once

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>

#include "src/backends/pjrt/pjrt_backend.h"
#include "tests/lazy/shelf.h"
#include "tests/lazy/world.h"

namespace weft::pjrt {

using lazy::ElementsAre;
using lazy::HasSubstr;
using lazy::T;
using lazy::World;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::Not;

inline std::string Path() { return WEFT_PJRT_FAKE; }

template <typename Function>
Function* Exported(const char* name) {
  void* const library = dlopen(Path().c_str(), RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(library, nullptr) << dlerror();
  return reinterpret_cast<Function*>(dlsym(library, name));
}
inline void Faults(const std::string& text) { ASSERT_EQ(0, Exported<int(const char*)>("WeftFakeSet")(text.c_str())) << text; }
inline int64_t Calls(const char* name) {
  const int64_t count = Exported<int64_t(const char*)>("WeftFakeCount")(name);
  EXPECT_GE(count, 0) << name;
  return count;
}

inline std::unique_ptr<Backend> Fake(const std::string& faults = "", Options options = {}) {
  Faults(faults);
  options.plugin = Path();
  options.platform = "pjrt";
  auto backend = NewPjrtBackend(options);
  EXPECT_TRUE(backend.ok()) << backend.status();
  return *std::move(backend);
}

// What a function was called since this was made.
struct Since {
  explicit Since(const char* name) : name(name), before(Calls(name)) {}
  int64_t operator()() const { return Calls(name) - before; }
  const char* name;
  int64_t before;
};

inline absl::Status ReadOf(World& w, const T& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor->type().count()));
  return w.engine->ToHost(tensor.get(), std::as_writable_bytes(std::span(values)));
}
inline void Assign(World& w, const T& to, const T& from) { ASSERT_TRUE(w.engine->Assign(to.get(), from.get()).ok()); }

// 3 (x + x) of x = 1, 2.
inline std::vector<float> Step(World& w) {
  T x = w.Vector({1, 2});
  T y = w.Op("mul", {w.Tmp("add", {x, x}), w.Number(3)});
  w.Sync();
  return w.Read(y);
}

}  // namespace weft::pjrt
