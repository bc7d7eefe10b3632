// What a process makes once.
#include "src/runtime/lasting.h"

#include <gtest/gtest.h>

#include <latch>
#include <thread>

namespace weft {
namespace {

constinit Lasting<int> g_number;

// Who comes second does not wait for who came first: it would for ever here.
TEST(Lasting, NobodyWaitsForAnother) {
  std::latch first_makes(1), second_has(1);
  int* of_first = nullptr;
  std::thread first([&] {
    of_first = &g_number.Get([&] {
      first_makes.count_down();
      second_has.wait();
      return std::make_unique<int>(1);
    });
  });
  first_makes.wait();
  int& of_second = g_number.Get([] { return std::make_unique<int>(2); });
  second_has.count_down();
  first.join();
  EXPECT_EQ(of_second, 2);
  EXPECT_EQ(of_first, &of_second);
  EXPECT_EQ(&g_number.Get(), &of_second);
}

}  // namespace
}  // namespace weft
