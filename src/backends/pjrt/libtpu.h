// Facts that libtpu wants before it is loaded, where nobody has set them.
#pragma once

#include <filesystem>
#include <string>

namespace weft::pjrt {

// Tells whether the kernel shows a TPU: accel0 and so on, or a group in vfio.
bool HasTpu(const std::filesystem::path& dev = "/dev");

// Sets variables of libtpu where they are unset, before it is loaded: its logs are quiet, and on a machine without a TPU it neither
// asks a cloud's metadata server for minutes nor keeps other processes from compiling.
void PrepareLibtpu();

// Says at the end of a message where to look when libtpu gets no TPU: names the process that has it open, if this user
// may see that.
std::string WhatToCheckOfTpu(const std::filesystem::path& dev = "/dev");

}  // namespace weft::pjrt
