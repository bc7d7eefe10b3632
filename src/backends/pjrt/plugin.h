// A PJRT plugin in this process: found, opened, asked how long its tables are, and called. Opened once and never closed: plugins
// own threads.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "src/backends/pjrt/api.h"
#include "src/backends/pjrt/outputs.h"
#include "src/runtime/event.h"
#include "src/runtime/status.h"

namespace weft::pjrt {

// Thread rule: any thread, but for the plugin's own rules, which are the same.
class Plugin {
 public:
  // The plugin at this path, initialised. Errors say what is at the path instead. DEADLINE_EXCEEDED if that takes longer than the
  // deadline (0: none): the thread that opens it is then left behind, and the next one who opens it waits for that one.
  static absl::StatusOr<const Plugin*> Open(const std::string& path, int64_t start_deadline_ms = 0);

  const std::string& path() const { return path_; }
  // "0.115"
  const std::string& version() const { return version_; }
  // Identifies the plugin's file by its bytes: compiled code depends on them, and the plugin does not tell.
  const std::string& identity() const { return identity_; }
  bool Has(api::Function function) const;
  // The extension of this type, which is `size` bytes long at least; null: the plugin has none such.
  const void* FindExtension(int type, size_t size) const;

  // One call. The struct's head is filled in; an error is taken over from the plugin and names the function. UNIMPLEMENTED where
  // the plugin has none such, INTERNAL where it answers success and has not written what outputs.h wants; it may then have written
  // something else.
  template <typename Arguments>
  absl::Status Call(api::Function function, Arguments* arguments) const {
    arguments->head = {sizeof(Arguments), nullptr};
    WEFT_RETURN_IF_ERROR(Call(function, static_cast<void*>(arguments)));
    const char* const missing = Unwritten(*arguments);
    return missing == nullptr ? absl::OkStatus() : NotWritten(function, missing);
  }
  // One call of a function that an extension has, which messages call `name`, a literal. The struct's head is the caller's.
  absl::Status CallOfExtension(void* function, const char* name, void* arguments) const;
  // INTERNAL: it answered success and wrote no `what`.
  absl::Status NotWritten(api::Function function, std::string_view what) const;
  // The same for what cannot fail or whose failure nobody could act on.
  template <typename Arguments>
  void Destroy(api::Function function, Arguments arguments) const {
    Call(function, &arguments).IgnoreError();
  }

  // A device's id; `otherwise` where the plugin does not tell.
  int64_t IdOf(api::DeviceDescription* description, int64_t otherwise) const;

  // Waits, and destroys the event; null is done.
  absl::Status Await(api::Event* event) const;
  // Completes `to` when the event is, on a thread of the plugin's or at once, and destroys the event. `what` starts the text of
  // a failure.
  void Forward(api::Event* event, std::string what, Ref<Event> to) const;
  // The same when the buffer has its bytes.
  void ForwardReady(api::Buffer* buffer, std::string what, Ref<Event> to) const;

 private:
  Plugin() = default;
  absl::Status Initialize(const std::string& path);
  absl::Status Call(api::Function function, void* arguments) const;
  api::Error* Enter(api::Function function, void* arguments) const;
  static api::Error* Enter(void* address, void* arguments);
  absl::Status TakeOver(api::Error* error, std::string_view what) const;
  absl::StatusCode CodeOf(const api::Error* error) const;

  std::string path_, version_, identity_;
  const api::Table* table_ = nullptr;
};

// Returns PJRT's name of the function, for messages: "PJRT_Client_Compile".
std::string_view NameOf(api::Function function);

// When the last of those that live at the same time has gone, the process's signal handlers are what they were before the first.
// Plugins set handlers for SIGSEGV, SIGTERM and others when they start; what one sets that has been left behind stays. Where nobody
// has a handler for SIGPROF the plugin's stays, too: libtpu starts a timer that sends it.
class KeptSignals {
 public:
  KeptSignals();
  ~KeptSignals();
  KeptSignals(const KeptSignals&) = delete;
  KeptSignals& operator=(const KeptSignals&) = delete;
};

}  // namespace weft::pjrt
