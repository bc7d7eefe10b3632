// See loaded.h.
#include "src/backends/pjrt/loaded.h"

#include <utility>

namespace weft::pjrt {
namespace {

void Destroy(const Client& client, api::LoadedExecutable* executable) {
  client.plugin().Destroy(api::Function::kLoadedExecutableDestroy, api::OfLoadedExecutable{.executable = executable});
}

// Tells whether the executable runs on the device and on no other; plugins that do not tell are believed.
bool IsFor(const Client& client, api::LoadedExecutable* executable, int device) {
  api::LoadedDevices its{.executable = executable};
  if (!client.plugin().Call(api::Function::kLoadedExecutableAddressableDevices, &its).ok()) return true;
  return its.num_devices == 1 && its.devices[0] == client.devices()[static_cast<size_t>(device)];
}

}  // namespace

absl::StatusOr<api::LoadedExecutable*> CompileText(const Client& client, std::string_view text,
                                                   std::string_view options) {
  const api::Program code = AsArgument(text);
  api::ClientCompile compile{.client = client.get(), .program = &code};
  compile.options = options.data();
  compile.options_size = options.size();
  WEFT_RETURN_IF_ERROR(client.plugin().Call(api::Function::kClientCompile, &compile));
  return compile.executable;
}

absl::StatusOr<api::LoadedExecutable*> LoadBytes(const Client& client, std::string_view bytes, int device) {
  api::DeserializeAndLoad load{.client = client.get(), .bytes = bytes.data(), .size = bytes.size()};
  std::string options;
  if (device >= 0) {
    options = CompileOptionBytes(client.IdOf(device));
    load.options = options.data();
    load.options_size = options.size();
  }
  WEFT_RETURN_IF_ERROR(client.plugin().Call(api::Function::kExecutableDeserializeAndLoad, &load));
  if (device < 0 || IsFor(client, load.executable, device)) return load.executable;
  Destroy(client, load.executable);
  return InternalError("plugin '", client.plugin().path(), "' loaded a program for another device than its device ",
                       client.IdOf(device));
}

absl::Status Serialize(const Plugin& plugin, api::Executable* executable,
                       absl::FunctionRef<absl::Status(std::string_view)> use) {
  api::ExecutableSerialize bytes{.executable = executable};
  WEFT_RETURN_IF_ERROR(plugin.Call(api::Function::kExecutableSerialize, &bytes));
  absl::Status status = use({bytes.bytes, bytes.size});
  if (bytes.destroy != nullptr) bytes.destroy(bytes.owner);
  return status;
}

Loaded::Loaded(std::shared_ptr<Client> client, const Program& program, api::LoadedExecutable* first)
    : client_(std::move(client)), program_(program), first_(first), own_(client_->devices().size()) {}

Loaded::~Loaded() {
  for (api::LoadedExecutable* own : own_) {
    if (own != nullptr && own != first_) Destroy(*client_, own);
  }
  Destroy(*client_, first_);
}

absl::StatusOr<Loaded::Place> Loaded::On(int device) {
  if (!client_->alone()) return Place{first_, client_->devices()[static_cast<size_t>(device)]};
  return Alone(device);
}

absl::StatusOr<Loaded::Place> Loaded::Alone(int device) {
  MutexLock lock(mutex_);
  api::LoadedExecutable*& own = own_[static_cast<size_t>(device)];
  if (own == nullptr) {
    if (program_.device >= 0 && program_.device == client_->IdOf(device)) {
      own = first_;
    } else {
      WEFT_ASSIGN_OR_RETURN(own, Make(device));
    }
  }
  return Place{own, nullptr};
}

absl::StatusOr<api::LoadedExecutable*> Loaded::Make(int device) const {
  api::LoadedExecutable* made = nullptr;
  const absl::Status loaded = WithExecutable([&](api::Executable* executable) {
    return Serialize(client_->plugin(), executable, [&](std::string_view bytes) -> absl::Status {
      WEFT_ASSIGN_OR_RETURN(made, LoadBytes(*client_, bytes, device));
      return absl::OkStatus();
    });
  });
  if (loaded.ok()) return made;
  if (program_.text.empty()) return loaded;
  return CompileText(*client_, program_.text, CompileOptionBytes(client_->IdOf(device)));
}

absl::Status Loaded::WithExecutable(absl::FunctionRef<absl::Status(api::Executable*)> use) const {
  api::GetExecutable get{.loaded = first_};
  WEFT_RETURN_IF_ERROR(client_->plugin().Call(api::Function::kLoadedExecutableGetExecutable, &get));
  absl::Status status = use(get.executable);
  client_->plugin().Destroy(api::Function::kExecutableDestroy, api::OfExecutable{.executable = get.executable});
  return status;
}

}  // namespace weft::pjrt
