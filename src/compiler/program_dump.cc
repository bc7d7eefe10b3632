// See program_dump.h.
#include "src/compiler/program_dump.h"

#include <span>
#include <vector>

#include "absl/strings/str_cat.h"
#include "serialization/atomic_file.h"
#include "serialization/function_file.h"
#include "src/ir/text.h"
#include "src/runtime/io.h"

namespace weft::compiler {
namespace {

absl::Status WriteText(const std::string& path, std::string_view text) {
  AtomicFile::Options options;
  options.durability = Durability::kProcess;
  options.clean_stale = false;
  WEFT_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(PosixFileSystem(), path, options));
  WEFT_RETURN_IF_ERROR(file.file().Write(std::as_bytes(std::span(text))));
  return file.Commit();
}

}  // namespace

void ProgramDump::WarnOnce(std::atomic<bool>& warned, std::string text) {
  if (!warned.exchange(true) && warn_) warn_(std::move(text));
}

void ProgramDump::Put(std::string_view key, std::string_view ending, size_t bytes,
                      absl::FunctionRef<absl::Status(const std::string& path)> write) {
  const auto size = static_cast<int64_t>(bytes);
  if (most_ > 0 && bytes_.fetch_add(size, std::memory_order_relaxed) + size > most_) {
    bytes_.fetch_sub(size, std::memory_order_relaxed);
    return WarnOnce(full_, absl::StrCat("the option dump_dir: texts of programs have reached dump_max_bytes, ", most_,
                                        "; what follows is left out"));
  }
  absl::Status status = MakeDirectories(PosixFileSystem(), folder_, 0755);
  if (status.ok()) status = write(JoinPath(folder_, absl::StrCat(key, ".", ending)));
  if (!status.ok()) {
    WarnOnce(failed_, absl::StrCat("the option dump_dir: ", status.message(), "; texts of programs are lost"));
  }
}

void ProgramDump::WriteFunction(std::string_view key, const Ref<const ir::Function>& function) {
  ir::Module module;
  // Numbers are arguments like others in a file.
  const auto copy = [](std::span<const ir::Value> values) { return std::vector(values.begin(), values.end()); };
  module.functions.push_back(ir::Function::Create("main", copy(function->parameters()), copy(function->results()), {}));
  std::string text = ir::Print(module);
  const size_t bytes = text.size();
  Put(key, "wir", bytes,
      [&](const std::string& path) { return WriteFunctionFile(PosixFileSystem(), path, std::move(text)); });
}

void ProgramDump::Write(std::string_view key, std::string_view ending, const absl::StatusOr<std::string>& text) {
  if (!text.ok()) return;
  Put(key, ending, text->size(), [&](const std::string& path) { return WriteText(path, *text); });
}

}  // namespace weft::compiler
