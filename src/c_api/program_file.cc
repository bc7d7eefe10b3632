// See program_file.h.
#include "src/c_api/program_file.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "serialization/function_file.h"
#include "serialization/limits.h"
#include "src/c_api/text_on_mesh.h"
#include "src/compiler/canonical.h"
#include "src/compiler/entry_difference.h"
#include "src/ir/text.h"
#include "src/ir/verify.h"
#include "src/ops/custom/custom_call.h"
#include "src/ops/registry.h"
#include "src/runtime/file_kind.h"
#include "src/runtime/io.h"
#include "src/runtime/status.h"

namespace weft::c_api {
namespace {

absl::Status Named(const std::string& path, const absl::Status& status) {
  return UserErrorOf(status.code(), "'", path, "': ", status.message());
}

absl::StatusOr<Ref<const ir::Function>> Checked(const Context& context, const ir::Module& module) {
  if (const absl::Status status = ir::Verify(module); !status.ok()) return UserError(status.message());
  if (module.functions.size() != 1) {
    return UserError("the text is a program of ", module.functions.size(), " functions and no function");
  }
  if (!module.participants.usual()) {
    return UserErrorOf(absl::StatusCode::kUnimplemented, "the program is of several devices; a function is of one");
  }
  WEFT_RETURN_IF_ERROR(ops::CheckCustomCalls(module.main(), context.custom()));
  return module.functions[0];
}

absl::StatusOr<Ref<const ir::Function>> FunctionOfStableHlo(const Context& context, std::string_view text) {
  WEFT_ASSIGN_OR_RETURN(const ir::Module module, ReadTextFor(context, text));
  return module.functions[0];
}

// The program that an entry of the compile cache was compiled from.
absl::StatusOr<Ref<const ir::Function>> FunctionOfKey(const Context& context, std::string_view canonical) {
  bool traced = false;
  const std::string_view program = compiler::ProgramIn(canonical, &traced);
  if (!traced) return FunctionOfStableHlo(context, program);
  ir::Module module;
  // A file that cannot be read is its writer's mistake, not the library's.
  absl::StatusOr<Ref<const ir::Function>> read = compiler::ReadCanonical(program, &module.participants);
  if (!read.ok()) return UserErrorOf(absl::StatusCode::kDataLoss, "the entry's program cannot be read");
  module.functions.push_back(*std::move(read));
  for (size_t i = 0; i < module.main().parameters().size(); ++i) {
    if (module.main().parameter_infos()[i].role == ir::ParameterInfo::Role::kWords)
      module.argument_words += ir::WordsOf(module.main().parameters()[i].type());
  }
  return Checked(context, module);
}

absl::StatusOr<ProgramFile> ReadStored(const Context& context, const std::string& path) {
  ProgramFile file;
  WEFT_ASSIGN_OR_RETURN(FunctionFile stored, ReadFunctionFile(PosixFileSystem(), path));
  absl::StatusOr<Ref<const ir::Function>> read =
      stored.canonical.empty() ? FunctionOfText(context, stored.text) : FunctionOfKey(context, stored.canonical);
  if (!read.ok()) return Named(path, read.status());
  file.function = *std::move(read);
  file.key = std::move(stored.canonical);
  return file;
}

absl::StatusOr<std::string> ReadText(const std::string& path) {
  FileInfo info;
  WEFT_ASSIGN_OR_RETURN(const File file, File::OpenToRead(PosixFileSystem(), path, &info));
  if (static_cast<uint64_t>(info.size) > kMaxFunctionBytes) {
    return UserError("'", path, "' has ", info.size, " bytes, more than a program can have");
  }
  std::string text(static_cast<size_t>(info.size), '\0');
  WEFT_RETURN_IF_ERROR(file.ReadAt(0, std::as_writable_bytes(std::span(text))));
  return text;
}

}  // namespace

absl::StatusOr<Ref<const ir::Function>> FunctionOfText(const Context& context, std::string_view text) {
  WEFT_ASSIGN_OR_RETURN(const ir::Module module, ir::Parse(text, ops::FindOp));
  return Checked(context, module);
}

absl::StatusOr<Ref<const ir::Function>> FunctionOfFile(const Context& context, const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(ProgramFile file, ReadStored(context, path));
  return std::move(file.function);
}

Ref<const ir::Function> WithoutRoles(const ir::Function& function) {
  return ir::Function::Create(function.name(), {function.parameters().begin(), function.parameters().end()},
                              {function.results().begin(), function.results().end()});
}

absl::StatusOr<ProgramFile> ReadProgramFile(const Context& context, const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const std::string text, ReadText(path));
  const auto first = std::as_bytes(std::span(text)).first(std::min(text.size(), kSniffedBytes));
  const SniffedFile kind = SniffFile(first);
  if (kind.name == "function" || kind.name == "cache_entry") return ReadStored(context, path);
  if (!kind.name.empty()) return UserError("'", path, "' holds no program: it is ", kind.what);
  const bool stablehlo = text.find("func.func") != std::string::npos;
  absl::StatusOr<Ref<const ir::Function>> read =
      stablehlo ? FunctionOfStableHlo(context, text) : FunctionOfText(context, text);
  if (!read.ok()) return Named(path, read.status());
  return ProgramFile{*std::move(read), ""};
}

}  // namespace weft::c_api
