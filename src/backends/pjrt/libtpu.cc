// See libtpu.h.
#include "src/backends/pjrt/libtpu.h"

#include <stdlib.h>

#include <filesystem>

namespace weft::pjrt {
namespace {

constexpr const char* kQuiet[][2] = {
    {"TPU_MIN_LOG_LEVEL", "3"}, {"TPU_STDERR_LOG_LEVEL", "3"}, {"TPU_LOG_DIR", "disabled"}};

// Of a machine that libtpu would otherwise ask the cloud about, which does not answer for minutes.
constexpr const char* kNoTpu[][2] = {{"TPU_SKIP_MDS_QUERY", "1"},
                                     {"TPU_ACCELERATOR_TYPE", "v5litepod-1"},
                                     {"TPU_WORKER_HOSTNAMES", "localhost"},
                                     {"TPU_WORKER_ID", "0"},
                                     {"ALLOW_MULTIPLE_LIBTPU_LOAD", "1"}};

}  // namespace

bool HasTpu() {
  std::error_code error;
  if (std::filesystem::exists("/dev/accel0", error)) return true;
  for (std::filesystem::directory_iterator at("/dev/vfio", error), end; !error && at != end; at.increment(error)) {
    if (at->path().filename() != "vfio") return true;  // /dev/vfio/vfio is there without any device
  }
  return false;
}

void PrepareLibtpu() {
  for (const auto& [name, value] : kQuiet) setenv(name, value, /*overwrite=*/0);
  if (HasTpu()) return;
  for (const auto& [name, value] : kNoTpu) setenv(name, value, /*overwrite=*/0);
}

std::string WhatToCheckOfTpu() {
  if (HasTpu()) {
    return ". /dev shows a TPU: check that this user may open it, that no other process holds it and that TPU_VISIBLE_CHIPS "
           "is not wrong";
  }
  return ". There is neither /dev/accel0 nor a device in /dev/vfio: check that this machine has a TPU and, in a container, that it "
         "is passed through. To compile without one, set the option topology, such as v5e:1x1";
}

}  // namespace weft::pjrt
