// See client.h.
#include "src/backends/pjrt/client.h"

#include <cstring>
#include <new>

#include "src/backends/pjrt/topology.h"
#include "src/runtime/alloc_hook.h"
#include "src/runtime/narrow.h"

namespace weft::pjrt {
namespace {

constexpr int64_t kLookNs = 10'000'000;  // how often a call that has not returned is asked about

}  // namespace

api::ElementType ElementTypeOf(DType dtype) {
  using enum api::ElementType;
  switch (StorageOf(dtype)) {
    case DType::kBool: return kPred;
    case DType::kI8: return kS8;
    case DType::kI16: return kS16;
    case DType::kI32: return kS32;
    case DType::kI64: return kS64;
    case DType::kU8: return kU8;
    case DType::kU16: return kU16;
    case DType::kU32: return kU32;
    case DType::kU64: return kU64;
    case DType::kF16: return kF16;
    case DType::kF32: return kF32;
    case DType::kF64: return kF64;
    case DType::kBF16: return kBF16;
    case DType::kC64: return kC64;
    case DType::kC128: return kC128;
    default: return kInvalid;
  }
}

// --- Client ----------------------------------------------------------------------------------------------------------------

absl::StatusOr<std::shared_ptr<Client>> Client::Create(const Plugin& plugin, const CreateOptions& options,
                                                       const Limits& limits) {
  std::shared_ptr<Client> client(new Client(plugin));
  const std::vector<api::NamedValue> values = options.NamedValues();
  api::ClientCreate create{.options = values.data(), .num_options = values.size()};
  WEFT_RETURN_IF_ERROR(options.Explain(plugin.Call(api::Function::kClientCreate, &create)));
  client->client_ = create.client;
  api::ClientText name{.client = create.client}, version{.client = create.client};
  WEFT_RETURN_IF_ERROR(plugin.Call(api::Function::kClientPlatformName, &name));
  WEFT_RETURN_IF_ERROR(plugin.Call(api::Function::kClientPlatformVersion, &version));
  client->platform_.assign(name.text, name.size);
  client->SetRaw(client->platform_ == "cpu" && limits.deadline_ms <= 0);
  api::ClientDevices devices{.client = create.client};
  WEFT_RETURN_IF_ERROR(plugin.Call(api::Function::kClientAddressableDevices, &devices));
  client->devices_.assign(devices.devices, devices.devices + devices.num_devices);
  if (client->devices_.empty()) {
    return UserErrorOf(absl::StatusCode::kNotFound, "plugin '", plugin.path(), "' (", client->platform_,
                       ") has no device here, as ", NameOf(api::Function::kClientAddressableDevices), " says");
  }
  if (const auto topology = Topology::Of(plugin, create.client); topology.ok()) {
    client->fingerprint_ = (*topology)->fingerprint();
  } else {
    client->fingerprint_ = absl::StrCat(client->platform_, " ", std::string_view(version.text, version.size), " ",
                                        client->KindOf(client->devices_[0]));
  }
  client->usage_ = std::make_unique<Usage[]>(client->devices_.size());
  for (size_t i = 0; i < client->devices_.size(); ++i) client->usage_[i].set_limit(limits.bytes);
  if (limits.deadline_ms > 0) client->watch_ = std::make_unique<Watch>(limits.deadline_ms, client->devices_.size());
  return client;
}

Client::~Client() {
  Close();
  // Which would wait for what was given up, if that is for ever.
  if (watch_ != nullptr && watch_->AnyRuns()) return;
  if (client_ != nullptr) plugin_.Destroy(api::Function::kClientDestroy, api::ClientDestroy{.client = client_});
}

api::DeviceDescription* Client::DescriptionOf(api::Device* device) const {
  api::DeviceGetDescription get{.device = device};
  return plugin_.Call(api::Function::kDeviceGetDescription, &get).ok() ? get.description : nullptr;
}

std::string Client::KindOf(api::Device* device) const {
  api::DescriptionKind kind{.description = DescriptionOf(device)};
  if (kind.description == nullptr) return platform_;
  if (!plugin_.Call(api::Function::kDeviceDescriptionKind, &kind).ok()) return platform_;
  return std::string(kind.kind, kind.size);
}

int64_t Client::IdOf(int device) const {
  return plugin_.IdOf(DescriptionOf(devices_[static_cast<size_t>(device)]), device);
}

std::optional<absl::Status> Client::Begin(int device, std::string what, Begins begin, const Ref<Event>& done) const {
  if (watch_ == nullptr) {
    absl::Status status = begin(done);
    if (!status.ok()) done->Complete(status);
    return status;
  }
  // The call is over when the device has ended it and the calls have returned.
  const Ref<Event> ended = MakeRef<Event>(), over = MakeRef<Event>(), late = MakeRef<Event>();
  const Ref<Event> both[] = {ended, over};
  watch_->Over(device, Event::All(both), std::move(what), done, late);
  const auto outcome = std::make_shared<absl::Status>();
  const auto work = [ended, over, outcome, begin = std::move(begin)] {
    try {
      *outcome = begin(ended);
    } catch (const std::bad_alloc&) {
      *outcome = absl::Status(absl::StatusCode::kResourceExhausted, "");  // a text would need memory
    }
    if (!outcome->ok()) ended->Complete(*outcome);
    over->Complete(absl::OkStatus());
  };
  const bool returned = aside_.Run(work, [&](const Ref<Event>& returned) {
    while (!returned->WaitDone(kLookNs) && !late->done()) {
    }
    return returned->done();
  });
  if (!returned) return std::nullopt;
  return *outcome;
}

void Client::Close() const {
  if (watch_ == nullptr) return;
  watch_->Close();
  aside_.Close();
}

// --- Buffer ----------------------------------------------------------------------------------------------------------------

PjrtBuffer::PjrtBuffer(std::shared_ptr<Client> client, Device* device, DType dtype, Dims dims, Ref<Event> ready,
                       Share share, api::Buffer* buffer)
    : Buffer(device, dtype, std::move(dims), std::move(ready)),
      client_(std::move(client)),
      share_(std::move(share)),
      buffer_(buffer) {}

PjrtBuffer::~PjrtBuffer() {
  if (fetched_ != nullptr) FreeLarge(fetched_, static_cast<size_t>(bytes()));
  if (buffer_ == nullptr) return;
  client_->plugin().Destroy(api::Function::kBufferDestroy, api::OfBuffer{.buffer = buffer_});
}

namespace {

// A copy to the host. Without a layout a plugin hands out its own, which need not be the host's.
struct HostCopy {
  HostCopy(api::Buffer* source, size_t rank, std::span<std::byte> destination) : order(rank) {
    for (size_t i = 0; i < rank; ++i) order[i] = static_cast<int64_t>(rank - 1 - i);
    layout.head.struct_size = sizeof(layout);
    layout.tiled.head.struct_size = sizeof(layout.tiled);
    layout.tiled.minor_to_major = order.data();
    layout.tiled.minor_to_major_size = rank;
    call = {.source = source, .host_layout = &layout, .destination = destination.data(), .size = destination.size()};
  }
  HostCopy(const HostCopy&) = delete;
  HostCopy& operator=(const HostCopy&) = delete;

  std::vector<int64_t> order;
  api::MemoryLayout layout;
  api::ToHostBuffer call;
};

}  // namespace

absl::Status PjrtBuffer::Fetch(std::span<std::byte> destination) {
  if (client_->watch() == nullptr) {
    HostCopy copy(buffer_, dims().size(), destination);
    WEFT_RETURN_IF_ERROR(client_->plugin().Call(api::Function::kBufferToHostBuffer, &copy.call));
    return client_->plugin().Await(copy.call.event);
  }
  // Into memory of our own, which the plugin may write to when nobody waits any more.
  const size_t size = destination.size();
  const std::string what = absl::StrCat("a copy of ", size, " bytes from ", device()->name);
  const std::shared_ptr<void> memory(AllocateLarge(size), [size](void* at) { FreeLarge(at, size); });
  if (memory == nullptr) return NoLargeMemory(absl::StrCat("the host's copy of ", size, " bytes of ", device()->name));
  const auto copy = std::make_shared<HostCopy>(buffer_, dims().size(),
                                               std::span<std::byte>(static_cast<std::byte*>(memory.get()), size));
  const auto begin = [self = Ref<PjrtBuffer>::Share(this), copy, memory,
                      what](const Ref<Event>& ended) -> absl::Status {
    const Plugin& plugin = self->client_->plugin();
    WEFT_RETURN_IF_ERROR(plugin.Call(api::Function::kBufferToHostBuffer, &copy->call));
    ended->OnDone([memory](const absl::Status&) {});
    plugin.Forward(copy->call.event, what, ended);
    return absl::OkStatus();
  };
  const Ref<Event> done = MakeRef<Event>();
  client_->Begin(device()->id, what, begin, done);
  WEFT_RETURN_IF_ERROR(done->Wait());
  std::memcpy(destination.data(), memory.get(), size);
  return absl::OkStatus();
}

bool PjrtBuffer::FetchSome(int64_t offset, std::span<std::byte> destination) const {
  if (!client_->raw()) return false;
  api::CopyRawToHost copy{.buffer = buffer_, .destination = destination.data(), .offset = offset};
  copy.size = static_cast<int64_t>(destination.size());
  absl::Status status = client_->plugin().Call(api::Function::kBufferCopyRawToHost, &copy);
  if (status.ok()) status = client_->plugin().Await(copy.event);
  if (!status.ok()) client_->SetRaw(false);
  return status.ok();
}

absl::Status PjrtBuffer::Read(int64_t offset, std::span<std::byte> destination) {
  WEFT_RETURN_IF_ERROR(ready().Wait());
  const int64_t size = static_cast<int64_t>(destination.size());
  if (offset < 0 || size > bytes() - offset) {
    return UserErrorOf(absl::StatusCode::kOutOfRange, "bytes ", offset, " to ", offset + size,
                       " asked for of a buffer of ", bytes());
  }
  if (size == 0) return absl::OkStatus();
  if (size == bytes()) return Fetch(destination);
  if (FetchSome(offset, destination)) return absl::OkStatus();
  const auto whole = static_cast<size_t>(bytes());
  MutexLock lock(mutex_);
  if (fetched_ == nullptr) {
    auto* const memory = static_cast<std::byte*>(AllocateLarge(whole));
    if (memory == nullptr)
      return NoLargeMemory(absl::StrCat("the host's copy of ", whole, " bytes of ", device()->name));
    if (absl::Status status = Fetch({memory, whole}); !status.ok()) {
      FreeLarge(memory, whole);
      return status;
    }
    fetched_ = memory;
  }
  std::memcpy(destination.data(), fetched_ + offset, destination.size());
  if (offset + size < bytes()) return absl::OkStatus();
  FreeLarge(fetched_, whole);
  fetched_ = nullptr;
  return absl::OkStatus();
}

}  // namespace weft::pjrt
