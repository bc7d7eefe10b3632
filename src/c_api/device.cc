// weft_device_*.
#include <algorithm>

#include "absl/strings/str_join.h"
#include "src/c_api/context.h"
#include "src/c_api/options.h"
#include "src/runtime/free_memory.h"
#include "weft.h"

namespace weft::c_api {

absl::StatusOr<Device*> DeviceOr(weft_device* device, lazy::Engine& engine) {
  if (device == nullptr) return engine.devices()[0];
  WEFT_ASSIGN_OR_RETURN(Pin<DeviceObject> object, Get(device, "device"));
  if (object->engine.get() != &engine) return UserError("device ", object->device->name, " belongs to another context");
  return object->device;
}

absl::StatusOr<lazy::Where> PlaceOr(weft_device* device, lazy::Engine& engine) {
  const lazy::DeviceMesh* const mesh = device == nullptr ? engine.mesh() : nullptr;
  if (mesh != nullptr) return lazy::Where(mesh);
  return DeviceOr(device, engine);
}

absl::StatusOr<lazy::Where> WhereOf(const Context& context, weft_device* device) {
  if (device == nullptr) return context.where();
  WEFT_ASSIGN_OR_RETURN(Device * found, DeviceOr(device, context.engine()));
  return context.where(found);
}

namespace {

absl::Status MakeDevice(Context& context, Device* device, weft_device** out) {
  WEFT_ASSIGN_OR_RETURN(*out,
                        Make<weft_device>(MakeRef<DeviceObject>(Ref<lazy::Engine>::Share(&context.engine()), device)));
  return absl::OkStatus();
}

}  // namespace
}  // namespace weft::c_api

using namespace weft;
using namespace weft::c_api;

extern "C" {

weft_error* weft_device_count(weft_context* ctx, size_t* out_count) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out_count);
    WEFT_ASSIGN_OR_RETURN(Pin<Context> context, Get(ctx, "ctx"));
    *out_count = context->engine().devices().size();
    return absl::OkStatus();
  });
}

weft_error* weft_device_at(weft_context* ctx, size_t index, weft_device** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Pin<Context> context, Get(ctx, "ctx"));
    const auto devices = context->engine().devices();
    if (index >= devices.size()) {
      return UserErrorOf(absl::StatusCode::kOutOfRange, "device ", index, " of a context that has ", devices.size());
    }
    return MakeDevice(*context, devices[index], out);
  });
}

weft_error* weft_device_by_name(weft_context* ctx, const char* name, size_t length, weft_device** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Pin<Context> context, Get(ctx, "ctx"));
    WEFT_ASSIGN_OR_RETURN(std::string_view wanted, Text(name, length, "name"));
    const auto devices = context->engine().devices();
    for (Device* device : devices) {
      const std::string_view full = device->name;
      if (full == wanted || full.substr(0, full.find(':')) == wanted) return MakeDevice(*context, device, out);
    }
    return UserErrorOf(absl::StatusCode::kNotFound, "there is no device '", wanted, "' here; there are: ",
                       absl::StrJoin(devices, ", ", [](std::string* to, const Device* d) { to->append(d->name); }));
  });
}

weft_error* weft_device_name(weft_device* device, const char** out_name, size_t* out_length) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out_name);
    WEFT_ASSIGN_OR_RETURN(Pin<DeviceObject> object, Get(device, "device"));
    *out_name = object->device->name.c_str();
    if (out_length != nullptr) *out_length = object->device->name.size();
    return absl::OkStatus();
  });
}

weft_error* weft_device_kind(weft_device* device, const char** out_kind, size_t* out_length) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out_kind);
    WEFT_ASSIGN_OR_RETURN(Pin<DeviceObject> object, Get(device, "device"));
    *out_kind = object->device->kind.c_str();
    if (out_length != nullptr) *out_length = object->device->kind.size();
    return absl::OkStatus();
  });
}

weft_error* weft_device_dlpack(weft_device* device, int32_t* out_type, int32_t* out_id) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out_type);
    WEFT_NOT_NULL(out_id);
    WEFT_ASSIGN_OR_RETURN(Pin<DeviceObject> object, Get(device, "device"));
    *out_type = object->device->type;
    *out_id = object->device->id;
    return absl::OkStatus();
  });
}

weft_error* weft_device_memory(weft_device* device, weft_memory_stats* out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Pin<DeviceObject> object, Get(device, "device"));
    const MemoryStats now = object->device->backend->memory_stats(object->device);
    weft_memory_stats stats = WEFT_MEMORY_STATS_INIT;
    stats.bytes_in_use = static_cast<uint64_t>(now.bytes_in_use);
    stats.peak_bytes = static_cast<uint64_t>(now.peak_bytes);
    stats.bytes_limit = static_cast<uint64_t>(now.bytes_limit);
    return WriteStruct(&stats, sizeof(stats), "weft_memory_stats", out);
  });
}

weft_error* weft_memory_report(weft_device* device, weft_memory_format format, weft_blob** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Pin<DeviceObject> object, Get(device, "device"));
    if (format != WEFT_MEMORY_TEXT && format != WEFT_MEMORY_JSON) {
      return UserError("format is ", static_cast<int>(format), "; there are 0 and 1");
    }
    WEFT_ASSIGN_OR_RETURN(const std::string text,
                          object->engine->MemoryReport(*object->device, format == WEFT_MEMORY_JSON));
    return MakeBlob(text, out);
  });
}

weft_error* weft_device_trim(weft_device* device) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(Pin<DeviceObject> object, Get(device, "device"));
    object->device->backend->Trim(object->device);
    ReleaseFreeMemory();
    return absl::OkStatus();
  });
}

void weft_device_retain(weft_device* device) noexcept { RetainHandle(device, HandleType::kDevice); }
void weft_device_release(weft_device* device) noexcept { ReleaseHandle(device, HandleType::kDevice); }

}  // extern "C"
