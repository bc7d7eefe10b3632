// What libtpu wants to know before it is loaded and nobody has told it.
#pragma once

#include <string>

namespace weft::pjrt {

// Whether the kernel shows a TPU: /dev/accel0 or a group in /dev/vfio.
bool HasTpu();

// Sets variables of libtpu where they are unset, before it is loaded: its logs are quiet, and on a machine without a TPU it neither
// asks a cloud's metadata server for minutes nor keeps other processes from compiling.
void PrepareLibtpu();

// What to check when libtpu finds no TPU, for the end of a message.
std::string WhatToCheckOfTpu();

}  // namespace weft::pjrt
