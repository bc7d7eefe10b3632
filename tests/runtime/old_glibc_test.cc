// The stand-ins for what old glibc lacks, each against the real one of this machine. Other names, so that both are there.
#include <gtest/gtest.h>

#include <cstring>

#define WEFT_OLD_GLIBC(name) Old_##name
#include "src/runtime/old_glibc.c"

namespace {

TEST(OldGlibc, StatsAsTheSystemDoes) {
  struct stat have, want;
  struct stat64 have64, want64;
  for (const char* path : {"/proc/self/exe", "/", "/dev/null"}) {
    ASSERT_EQ(0, stat(path, &want));
    ASSERT_EQ(0, Old_stat(path, &have));
    EXPECT_EQ(want.st_ino, have.st_ino);
    EXPECT_EQ(want.st_size, have.st_size);
    EXPECT_EQ(want.st_rdev, have.st_rdev);
    EXPECT_EQ(want.st_mode, have.st_mode);
    ASSERT_EQ(0, Old_stat64(path, &have64));
    EXPECT_EQ(want.st_ino, have64.st_ino);
    ASSERT_EQ(0, lstat64(path, &want64));
    ASSERT_EQ(0, Old_lstat64(path, &have64));
    EXPECT_EQ(want64.st_mode, have64.st_mode);
    ASSERT_EQ(0, lstat(path, &want));
    ASSERT_EQ(0, Old_lstat(path, &have));
    EXPECT_EQ(want.st_mode, have.st_mode);
  }
  ASSERT_EQ(0, fstat(0, &want));
  ASSERT_EQ(0, Old_fstat(0, &have));
  ASSERT_EQ(0, Old_fstat64(0, &have64));
  EXPECT_EQ(want.st_ino, have.st_ino);
  EXPECT_EQ(want.st_ino, have64.st_ino);
  errno = 0;
  EXPECT_EQ(-1, Old_stat("/there/is/no/such/file", &have));
  EXPECT_EQ(ENOENT, errno);
  EXPECT_EQ(-1, Old_fstat(-1, &have));
  EXPECT_EQ(EBADF, errno);
}

TEST(OldGlibc, MakesPipes) {
  char folder[] = "/tmp/weft_old_glibc_XXXXXX";
  ASSERT_NE(nullptr, mkdtemp(folder));
  const std::string path = std::string(folder) + "/pipe";
  struct stat made;
  EXPECT_EQ(0, Old_mknod(path.c_str(), S_IFIFO | 0600, 0));
  EXPECT_EQ(0, Old_stat(path.c_str(), &made));
  EXPECT_TRUE(S_ISFIFO(made.st_mode));
  EXPECT_EQ(-1, Old_mknod(path.c_str(), S_IFIFO | 0600, 0));
  EXPECT_EQ(EEXIST, errno);
  unlink(path.c_str());
  rmdir(folder);
}

TEST(OldGlibc, NamesAndDescribesErrors) {
  int named = 0;
  for (int error = 0; error < 200; ++error) {
    const char *name = Old_strerrorname_np(error), *text = Old_strerrordesc_np(error), *real = strerrorname_np(error);
    if (name != nullptr) {
      EXPECT_STREQ(real, name);
      ++named;
    }
    if (real != nullptr) {
      EXPECT_STREQ(strerrordesc_np(error), text);
    }
  }
  EXPECT_EQ(50, named);
  EXPECT_EQ(nullptr, Old_strerrordesc_np(-1));
  EXPECT_EQ(nullptr, Old_strerrordesc_np(1000));
}

TEST(OldGlibc, DrawsNumbersAndCountsMemory) {
  uint32_t all = 0;
  for (int i = 0; i < 64; ++i) all |= Old_arc4random();
  EXPECT_EQ(UINT32_MAX, all);
#if !defined(WEFT_SANITIZED)  // their allocator counts nothing here
  void* const held = malloc(1 << 16);
  EXPECT_GT(Old_mallinfo2().arena, 0u);
  free(held);
#endif
}

TEST(OldGlibc, FindsTheTablesOfThisProgramAndOfOthers) {
  for (void* at : {reinterpret_cast<void*>(&Old_arc4random), reinterpret_cast<void*>(&qsort), reinterpret_cast<void*>(&pthread_create)}) {
    dl_find_object have, want;
    ASSERT_EQ(0, _dl_find_object(at, &want));
    ASSERT_EQ(0, Old__dl_find_object(at, &have));
    EXPECT_EQ(want.dlfo_eh_frame, have.dlfo_eh_frame);
    EXPECT_EQ(want.dlfo_map_start, have.dlfo_map_start);
    EXPECT_LE(have.dlfo_map_start, at);
    EXPECT_GT(have.dlfo_map_end, at);
  }
  dl_find_object have;
  EXPECT_EQ(-1, Old__dl_find_object(nullptr, &have));
  int on_the_stack = 0;
  EXPECT_EQ(-1, Old__dl_find_object(&on_the_stack, &have));
}

timespec In(int64_t milliseconds) {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  const int64_t end = now.tv_sec * 1000000000 + now.tv_nsec + milliseconds * 1000000;
  return {end / 1000000000, static_cast<long>(end % 1000000000)};
}

TEST(OldGlibc, WaitsByTheSteadyClock) {
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
  for (auto* wait : {&weft_clockwait_by_realtime, &Old_pthread_cond_clockwait}) {
    pthread_mutex_lock(&mutex);
    timespec until = In(30), over;
    int result;
    while ((result = wait(&changed, &mutex, CLOCK_MONOTONIC, &until)) == 0) {
    }
    EXPECT_EQ(ETIMEDOUT, result);
    clock_gettime(CLOCK_MONOTONIC, &over);
    EXPECT_TRUE(over.tv_sec > until.tv_sec || (over.tv_sec == until.tv_sec && over.tv_nsec + 5000000 >= until.tv_nsec));
    until = In(-5);
    EXPECT_EQ(ETIMEDOUT, wait(&changed, &mutex, CLOCK_MONOTONIC, &until));
    pthread_mutex_unlock(&mutex);
  }
  // A long wait comes back after a second without being over, and is asked for again.
  pthread_mutex_lock(&mutex);
  const timespec until = In(60000);
  EXPECT_EQ(0, weft_clockwait_by_realtime(&changed, &mutex, CLOCK_MONOTONIC, &until));
  pthread_mutex_unlock(&mutex);
}

}  // namespace
