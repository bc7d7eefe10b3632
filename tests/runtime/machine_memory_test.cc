// What the files of a machine say about its memory.
#include "src/runtime/machine_memory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/support/temp_dir.h"

namespace weft {
namespace {

class Machine {
 public:
  void Write(const std::string& name, std::string_view text) {
    const std::filesystem::path path = dir_ / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  MachineMemory Read() const { return ReadMachineMemory(dir_.path()); }

 private:
  testing::TempDir dir_;
};

constexpr int64_t kGiB = int64_t{1} << 30;
constexpr std::string_view kMeminfo =
    "MemTotal:       16777216 kB\nMemFree:         1048576 kB\nMemAvailable:    8388608 kB\nSwapFree: 5 kB\n";

TEST(MachineMemory, IsUnknownWithoutFiles) {
  Machine machine;
  EXPECT_EQ(machine.Read().total, -1);
  EXPECT_EQ(machine.Read().available, -1);
}

TEST(MachineMemory, IsWhatTheKernelCanGiveWithoutSwapping) {
  Machine machine;
  machine.Write("proc/meminfo", kMeminfo);
  machine.Write("proc/self/cgroup", "0::/\n");
  EXPECT_EQ(machine.Read().total, 16 * kGiB);
  EXPECT_EQ(machine.Read().available, 8 * kGiB);
}

TEST(MachineMemory, EndsAtTheLimitOfAnyGroupAround) {
  Machine machine;
  machine.Write("proc/meminfo", kMeminfo);
  machine.Write("proc/self/cgroup", "1:name=systemd:/other\n0::/user.slice/job\n");
  const std::string root = "sys/fs/cgroup/";
  machine.Write(root + "user.slice/job/memory.max", "max\n");
  machine.Write(root + "user.slice/job/memory.current", "1073741824\n");
  EXPECT_EQ(machine.Read().available, 8 * kGiB);
  machine.Write(root + "user.slice/memory.max", "4294967296\n");
  machine.Write(root + "user.slice/memory.current", "3221225472\n");
  EXPECT_EQ(machine.Read().total, 4 * kGiB);
  EXPECT_EQ(machine.Read().available, 1 * kGiB);
  machine.Write(root + "user.slice/memory.stat", "anon 5\nactive_file 7\ninactive_file 1073741824\n");
  EXPECT_EQ(machine.Read().available, 2 * kGiB);
  machine.Write(root + "user.slice/job/memory.max", "536870912\n");  // below what it uses: nothing is left
  EXPECT_EQ(machine.Read().available, 0);
}

TEST(MachineMemory, KnowsTheFirstVersionOfGroupsAndThoseShownAsTheRoot) {
  Machine machine;
  machine.Write("proc/meminfo", kMeminfo);
  machine.Write("proc/self/cgroup", "4:memory:/docker/0123\n0::/\n");
  const std::string root = "sys/fs/cgroup/memory/";
  machine.Write(root + "memory.limit_in_bytes", "2147483648\n");
  machine.Write(root + "memory.usage_in_bytes", "1610612736\n");
  machine.Write(root + "memory.stat", "inactive_file 9\ntotal_inactive_file 536870912\n");
  EXPECT_EQ(machine.Read().total, 2 * kGiB);
  EXPECT_EQ(machine.Read().available, 1 * kGiB);
  machine.Write(root + "memory.limit_in_bytes", "9223372036854771712\n");  // none
  EXPECT_EQ(machine.Read().available, 8 * kGiB);
}

TEST(MachineMemory, OfThisMachineIsKnown) {
  const MachineMemory memory = ReadMachineMemory();
  EXPECT_GT(memory.available, 0);
  EXPECT_LE(memory.available, memory.total);
}

}  // namespace
}  // namespace weft
