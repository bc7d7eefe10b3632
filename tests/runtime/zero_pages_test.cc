// Zeros to be read cost no memory of their own.
#include "src/runtime/zero_pages.h"

#include <sys/resource.h>

#include <algorithm>

#include "gtest/gtest.h"

namespace weft {
namespace {

TEST(ZeroPages, AreZeroAndNoMemory) {
  const auto peak = [] {
    rusage usage = {};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;  // KiB
  };
  ZeroPages pages;
  std::span<const std::byte> zeros;
  ASSERT_TRUE(pages.Get(size_t{1} << 20, &zeros));
  [[maybe_unused]] const auto before = peak();
  ASSERT_TRUE(pages.Get(size_t{512} << 20, &zeros));
  EXPECT_EQ(zeros.size(), size_t{512} << 20);
  for (size_t i = 0; i < zeros.size(); i += 4096) ASSERT_EQ(zeros[i], std::byte{0});
#if !defined(WEFT_SANITIZED)  // whose shadow of what is read is memory
  EXPECT_LT(peak() - before, 64 << 10);
#endif
  ASSERT_TRUE(pages.Get(100, &zeros));
  EXPECT_EQ(zeros.size(), 100u);
  EXPECT_FALSE(pages.Get(SIZE_MAX / 2, &zeros));
  ASSERT_TRUE(pages.Get(5000, &zeros));
  EXPECT_TRUE(std::ranges::all_of(zeros, [](std::byte byte) { return byte == std::byte{0}; }));
}

}  // namespace
}  // namespace weft
