// Arguments of functions that Weft's client does not call and other clients do.
#pragma once

#include "src/backends/pjrt/api.h"

namespace weft::pjrt::api {

struct EventIsReady {
  Head head;
  Event* event = nullptr;
  bool ready = false;
};
struct ClientNumber {
  Head head;
  Client* client = nullptr;
  int number = 0;
};
struct DeviceNumber {
  Head head;
  Device* device = nullptr;
  int number = 0;
};
struct DeviceFlag {
  Head head;
  Device* device = nullptr;
  bool flag = false;
};
struct ExecutableText {
  Head head;
  Executable* executable = nullptr;
  const char* text = nullptr;
  size_t size = 0;
};
struct BufferFlag {
  Head head;
  Buffer* buffer = nullptr;
  bool flag = false;
};
struct BufferType {
  Head head;
  Buffer* buffer = nullptr;
  ElementType type = ElementType::kInvalid;
};
struct BufferDims {
  Head head;
  Buffer* buffer = nullptr;
  const int64_t* dims = nullptr;
  size_t num_dims = 0;
};
struct BufferSize {
  Head head;
  Buffer* buffer = nullptr;
  size_t size = 0;
};
struct BufferOnDevice {
  Head head;
  Buffer* buffer = nullptr;
  Device* device = nullptr;
};

}  // namespace weft::pjrt::api
