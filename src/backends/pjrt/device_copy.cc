// See device_copy.h.
#include "src/backends/pjrt/device_copy.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

namespace weft::pjrt {
namespace {

// A copy as far as it has come, and what it reads.
struct Copying {
  Copying(std::shared_ptr<Client> of, const Ref<Buffer>& from) : client(std::move(of)), source(from) {
    call.buffer = static_cast<const PjrtBuffer&>(*source).get();
  }
  ~Copying() {
    if (call.copy != nullptr)
      client->plugin().Destroy(api::Function::kBufferDestroy, api::OfBuffer{.buffer = call.copy});
  }
  Copying(const Copying&) = delete;
  Copying& operator=(const Copying&) = delete;

  const std::shared_ptr<Client> client;
  const Ref<Buffer> source;
  api::CopyToDevice call;
};

}  // namespace

absl::StatusOr<Ref<Buffer>> CopyToDevice(const std::shared_ptr<Client>& client, const Ref<Buffer>& from, Device* to) {
  if (from->ready().done()) WEFT_RETURN_IF_ERROR(from->ready().status());
  WEFT_ASSIGN_OR_RETURN(Share share, ShareOf(client->usage(to->id), from->bytes()));
  const auto copying = std::make_shared<Copying>(client, from);
  copying->call.device = client->devices()[static_cast<size_t>(to->id)];
  const std::string what = absl::StrCat("a copy from ", from->device()->name, " to ", to->name);
  const auto begin = [copying, what](const Ref<Event>& ended) -> absl::Status {
    const Plugin& plugin = copying->client->plugin();
    WEFT_RETURN_IF_ERROR(plugin.Call(api::Function::kBufferCopyToDevice, &copying->call));
    ended->OnDone([source = copying->source](const absl::Status&) {});
    plugin.ForwardReady(copying->call.copy, what, ended);
    return absl::OkStatus();
  };
  const Ref<Event> ready = MakeRef<Event>();
  const std::optional<absl::Status> begun = client->Begin(to->id, what, begin, ready);
  if (!begun.has_value()) return ready->status();
  WEFT_RETURN_IF_ERROR(*begun);
  return Ref<Buffer>(new PjrtBuffer(client, to, from->dtype(), from->dims(), ready, std::move(share),
                                    std::exchange(copying->call.copy, nullptr)));
}

}  // namespace weft::pjrt
