// A program as a plugin has it loaded: one for all devices or, where the plugin has no such programs, one for each that launched it.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "src/backends/pjrt/client.h"
#include "src/backends/pjrt/program.h"
#include "src/runtime/mutex.h"

namespace weft::pjrt {

// Compiles the text by the options, which are CompileOptionBytes.
absl::StatusOr<api::LoadedExecutable*> CompileText(const Client& client, std::string_view text,
                                                   std::string_view options);
// Loads what Serialize gave. `device`: for this one alone, whichever it was compiled for; -1: as it was compiled.
absl::StatusOr<api::LoadedExecutable*> LoadBytes(const Client& client, std::string_view bytes, int device);
// Hands the plugin's bytes of the executable on.
absl::Status Serialize(const Plugin& plugin, api::Executable* executable,
                       absl::FunctionRef<absl::Status(std::string_view bytes)> use);

// Thread rule: any thread.
class Loaded {
 public:
  // The executable and device of a launch.
  struct Place {
    api::LoadedExecutable* executable = nullptr;
    api::Device* device = nullptr;  // null: the executable's own
  };

  // Takes the plugin's executable over, which was compiled or loaded as `program` says, and that outlives this.
  Loaded(std::shared_ptr<Client> client, const Program& program, api::LoadedExecutable* first);
  ~Loaded();
  Loaded(const Loaded&) = delete;
  Loaded& operator=(const Loaded&) = delete;

  // Returns the executable for a launch on the device: the one for all or, where the plugin has no such programs,
  // Alone.
  absl::StatusOr<Place> On(int device);
  // Returns the executable for a launch of a program of several processes, on the devices that it was compiled for.
  Place OnAll() const { return {first_, nullptr}; }
  // The device's own executable, loaded from the bytes of the first one or, where the plugin does not do that for another device
  // than theirs, compiled when it is first asked for.
  absl::StatusOr<Place> Alone(int device);

  absl::Status WithExecutable(absl::FunctionRef<absl::Status(api::Executable*)> use) const;

 private:
  absl::StatusOr<api::LoadedExecutable*> Make(int device) const;

  const std::shared_ptr<Client> client_;
  const Program& program_;
  api::LoadedExecutable* const first_;
  Mutex mutex_;
  std::vector<api::LoadedExecutable*> own_ ABSL_GUARDED_BY(mutex_);  // of each device; null: none yet
};

}  // namespace weft::pjrt
