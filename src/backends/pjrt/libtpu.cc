// See libtpu.h.
#include "src/backends/pjrt/libtpu.h"

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace weft::pjrt {
namespace {

namespace fs = std::filesystem;

constexpr const char* kQuiet[][2] = {
    {"TPU_MIN_LOG_LEVEL", "3"}, {"TPU_STDERR_LOG_LEVEL", "3"}, {"TPU_LOG_DIR", "disabled"}};

// Describes a machine that libtpu would otherwise ask the cloud about, which does not answer for minutes.
constexpr const char* kNoTpu[][2] = {{"TPU_SKIP_MDS_QUERY", "1"},
                                     {"TPU_ACCELERATOR_TYPE", "v5litepod-1"},
                                     {"TPU_WORKER_HOSTNAMES", "localhost"},
                                     {"TPU_WORKER_ID", "0"},
                                     {"ALLOW_MULTIPLE_LIBTPU_LOAD", "1"}};

// The files by which processes use TPUs.
std::vector<fs::path> DevicesIn(const fs::path& dev) {
  std::vector<fs::path> found;
  std::error_code error;
  for (int i = 0; fs::exists(dev / absl::StrCat("accel", i), error); ++i)
    found.push_back(dev / absl::StrCat("accel", i));
  for (fs::directory_iterator at(dev / "vfio", error), end; !error && at != end; at.increment(error)) {
    if (at->path().filename() != "vfio") found.push_back(at->path());  // vfio/vfio is there without any device
  }
  return found;
}

// "process 1234 (python3)", another one than this, or nothing.
std::string HolderOf(const std::vector<fs::path>& devices) {
  std::error_code error, ignored;
  for (fs::directory_iterator process("/proc", error), end; !error && process != end; process.increment(error)) {
    int pid = 0;
    if (!absl::SimpleAtoi(process->path().filename().string(), &pid) || pid == getpid()) continue;
    for (fs::directory_iterator file(process->path() / "fd", ignored); !ignored && file != end;
         file.increment(ignored)) {
      std::error_code gone;
      if (std::ranges::find(devices, fs::read_symlink(file->path(), gone)) == devices.end()) continue;
      std::string name;
      std::getline(std::ifstream(process->path() / "comm"), name);
      return absl::StrCat("process ", pid, " (", name, ")");
    }
  }
  return "";
}

}  // namespace

bool HasTpu(const fs::path& dev) { return !DevicesIn(dev).empty(); }

void PrepareLibtpu() {
  for (const auto& [name, value] : kQuiet) setenv(name, value, /*overwrite=*/0);
  if (HasTpu()) return;
  for (const auto& [name, value] : kNoTpu) setenv(name, value, /*overwrite=*/0);
}

std::string WhatToCheckOfTpu(const fs::path& dev) {
  if (const std::vector<fs::path> devices = DevicesIn(dev); !devices.empty()) {
    if (const std::string holder = HolderOf(devices); !holder.empty()) {
      return absl::StrCat(
          ". ", holder,
          " holds the TPU: end it, or give it some of the chips and this one others by TPU_VISIBLE_CHIPS");
    }
    return ". /dev shows a TPU: check that this user may open it, that no other process holds it and that TPU_VISIBLE_CHIPS "
           "is not wrong";
  }
  return ". There is neither /dev/accel0 nor a device in /dev/vfio: check that this machine has a TPU and, in a container, that it "
         "is passed through. To compile without one, set the option topology, such as v5e:1x1";
}

}  // namespace weft::pjrt
