// The engine on the fake plugin (fake/fake.cc): what the client does when a plugin is slow, short of memory, or broken.
#include <dlfcn.h>

#include <cstdlib>

#include "src/backends/pjrt/pjrt_backend.h"
#include "tests/lazy/world.h"

namespace weft::pjrt {
namespace {

using lazy::ElementsAre;
using lazy::HasSubstr;
using lazy::T;
using lazy::World;

std::string Path() { return std::getenv("WEFT_PJRT_FAKE"); }

template <typename Function>
Function* Exported(const char* name) {
  void* const library = dlopen(Path().c_str(), RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(library, nullptr) << dlerror();
  return reinterpret_cast<Function*>(dlsym(library, name));
}
void Faults(const std::string& text) { ASSERT_EQ(0, Exported<int(const char*)>("WeftFakeSet")(text.c_str())) << text; }
int64_t Calls(const char* name) {
  const int64_t count = Exported<int64_t(const char*)>("WeftFakeCount")(name);
  EXPECT_GE(count, 0) << name;
  return count;
}

std::unique_ptr<Backend> Fake(const std::string& faults = "") {
  Faults(faults);
  auto backend = NewPjrtBackend({.plugin = Path(), .platform = "pjrt"});
  EXPECT_TRUE(backend.ok()) << backend.status();
  return *std::move(backend);
}

TEST(PjrtFake, Adds) {
  World w({}, Fake());
  T x = w.Vector({1, 2});
  EXPECT_THAT(w.Read(w.Op("add", {x, w.Number(1)})), ElementsAre(2, 3));
}

}  // namespace
}  // namespace weft::pjrt
