// Devices of one backend that share its memory and its threads.
#pragma once

#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/runtime/buffer.h"

namespace weft {

// "cpu:0", "cpu:1", …: as many as somebody wants, all of them the host. For DLPack each is the host's device 0.
class DeviceRow {
 public:
  DeviceRow(std::string_view platform, const std::string& kind, int64_t count, Backend* backend) {
    for (int64_t i = 0; i < count; ++i) {
      Device& device = devices_.emplace_back();
      device.name = absl::StrCat(platform, ":", i);
      device.kind = kind;
      device.backend = backend;
      device.live = devices_[0].live;
      pointers_.push_back(&device);
    }
  }
  DeviceRow(const DeviceRow&) = delete;
  DeviceRow& operator=(const DeviceRow&) = delete;

  std::span<Device* const> all() const { return pointers_; }
  Device* first() const { return pointers_[0]; }

 private:
  std::deque<Device> devices_;
  std::vector<Device*> pointers_;
};

}  // namespace weft
