// The option dump_dir: texts of each program that is compiled, a file each.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "src/ir/function.h"

namespace weft::compiler {

// Thread rule: any thread. Files appear whole or not at all. What cannot be written, or would be beyond the limit, is left out with one
// warning each, and whoever computes goes on.
class ProgramDump {
 public:
  // The folder is made when the first file is. `most`: bytes of all files; 0: no limit. `warn` may be empty.
  ProgramDump(std::string folder, int64_t most, std::function<void(std::string)> warn)
      : folder_(std::move(folder)), most_(most), warn_(std::move(warn)) {}

  // FOLDER/KEY.wir, which weft_function_load takes.
  void WriteFunction(std::string_view key, const Ref<const ir::Function>& function);
  // FOLDER/KEY.ENDING. A text that there is none of is left out.
  void Write(std::string_view key, std::string_view ending, const absl::StatusOr<std::string>& text);

 private:
  void Put(std::string_view key, std::string_view ending, size_t bytes,
           absl::FunctionRef<absl::Status(const std::string& path)> write);
  void WarnOnce(std::atomic<bool>& warned, std::string text);

  const std::string folder_;
  const int64_t most_;
  const std::function<void(std::string)> warn_;
  std::atomic<int64_t> bytes_{0};
  std::atomic<bool> failed_{false}, full_{false};
};

}  // namespace weft::compiler
